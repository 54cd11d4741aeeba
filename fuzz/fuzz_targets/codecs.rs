//! `cargo +nightly fuzz run codecs`
#![no_main]

#[path = "../bodies/codecs.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
