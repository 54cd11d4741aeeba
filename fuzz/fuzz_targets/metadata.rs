//! `cargo +nightly fuzz run metadata fuzz/corpus/metadata fuzz/seeds/metadata`
#![no_main]

#[path = "../bodies/metadata.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
