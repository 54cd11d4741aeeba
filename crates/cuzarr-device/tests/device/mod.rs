//! The devices that tests run on: `simt` where its library is named, `cuda:0` where it works.

// Every test file takes the part it needs.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;

use cuzarr_device::{Device, Stream};

/// Devices with kernels. Says which are skipped and why; a missing GPU fails when `CUZARR_REQUIRE_GPU=1`.
pub fn devices() -> Vec<Device> {
    let found: Vec<_> = [Device::Simt, Device::Cuda(0)].into_iter().filter(|&device| is_usable(device)).collect();
    if found.is_empty() {
        say_skipped("no device has kernels; run the program by scripts/with-simt");
    }
    found
}

/// Says once that the test at hand tests nothing, or not all. Not by `println!`, which the harness keeps to itself while a test
/// passes.
pub fn say_skipped(reason: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let said = format!("skipped: {}: {reason}\n", std::thread::current().name().unwrap_or("a test"));
    if SAID.lock().unwrap().insert(said.clone()) {
        std::io::stderr().write_all(said.as_bytes()).unwrap();
    }
}

fn is_usable(device: Device) -> bool {
    match Stream::new(device) {
        Ok(_) => true,
        Err(error) => {
            let required =
                device == Device::Cuda(0) && std::env::var_os("CUZARR_REQUIRE_GPU").is_some_and(|on| on == "1");
            assert!(!required, "CUZARR_REQUIRE_GPU=1, but {device} cannot be used: {error}");
            println!("skipped: {device}: {}", error.message());
            false
        }
    }
}

/// Numbers for generated cases: small, seeded, the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 33) as usize % bound.max(1)
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}
