//! `cargo +nightly fuzz run zip`
#![no_main]

#[path = "../bodies/zip.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
