//! `cargo +nightly fuzz run icechunk`
#![no_main]

#[path = "../bodies/icechunk.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
