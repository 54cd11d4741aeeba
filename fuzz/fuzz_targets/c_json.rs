//! `cargo +nightly fuzz run c_json`
#![no_main]

#[path = "../bodies/c_json.rs"]
mod body;
#[allow(dead_code, reason = "the library opens stores by it, too")]
#[path = "../../crates/cuzarr-c/src/json.rs"]
mod json;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::check(bytes);
});
