//! `cargo +nightly fuzz run kerchunk`
#![no_main]

#[path = "../bodies/kerchunk.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
