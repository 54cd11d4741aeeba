//! `cargo +nightly fuzz run cache`
#![no_main]

#[path = "../bodies/cache.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|lines: &[u8]| {
    let folder = std::env::temp_dir().join(format!("cuzarr-fuzz-{}", std::process::id()));
    body::check(&folder, lines);
});
