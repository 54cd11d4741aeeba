//! `cargo +nightly fuzz run eval`
#![no_main]

#[path = "../bodies/eval.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
