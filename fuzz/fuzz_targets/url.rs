//! `cargo +nightly fuzz run url`
#![no_main]

#[path = "../bodies/url.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
