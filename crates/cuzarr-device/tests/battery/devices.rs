//! Which devices the battery runs on.

use cuzarr_device::{DType, Device, NdBuffer, Order};

/// `cpu` always; `simt` and the first GPU where they work. What is missing is said; with `CUZARR_REQUIRE_GPU=1` a
/// missing GPU fails.
pub fn devices() -> Vec<Device> {
    let mut found = vec![Device::Cpu];
    for device in [Device::Simt, Device::Cuda(0)] {
        match NdBuffer::full(device, DType::INT16, &[3], Order::C, &[1, 2]) {
            Ok(_) => found.push(device),
            Err(error) => {
                let required = matches!(device, Device::Cuda(_))
                    && std::env::var_os("CUZARR_REQUIRE_GPU").is_some_and(|on| on == "1");
                assert!(!required, "CUZARR_REQUIRE_GPU=1, but {device}: {error}");
                eprintln!("skipped: {device}: {}", error.message());
            }
        }
    }
    found
}

/// Runs `case` with seeds on every device: many on the host and on GPUs, few on `simt`, where a kernel takes milliseconds.
pub fn for_each_case(cases: u64, case: impl Fn(Device, u64)) {
    for device in devices() {
        let cases = if device == Device::Simt { cases.div_ceil(10) } else { cases };
        for seed in 0..cases {
            case(device, seed);
        }
    }
}
