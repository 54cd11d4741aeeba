//! Libraries and machine code that are missing, wrong or damaged. Each case runs in a process of its own, since what was
//! found is kept for the life of a process.

mod device;

use std::process::Command;

use cuzarr_device::{Buffer, Device, ErrorKind, NdBuffer, Stream, probe};
use device::say_skipped;

/// Runs the test `name` of this file in a child, with these variables, and returns what it printed.
fn child(name: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("CUZARR_LOADING_CHILD", name)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}\n{}", String::from_utf8_lossy(&output.stderr));
    words
}

fn is_child(name: &str) -> bool {
    std::env::var_os("CUZARR_LOADING_CHILD").is_some_and(|own| own == name)
}

#[test]
fn child_without_driver() {
    if !is_child("child_without_driver") {
        return;
    }
    let error = Stream::new(Device::Cuda(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceUnavailable);
    assert!(error.hint().is_some(), "{error}");
    // The second answer is the first one's.
    assert_eq!(Stream::new(Device::Cuda(0)).unwrap_err().message(), error.message());
    assert!(Buffer::empty(Device::Cuda(0), 16).is_err());
    let report = probe();
    assert!(report.unusable.is_some() && report.gpus.is_empty() && report.driver.problem.is_some(), "{report:?}");
    assert!(report.libraries.iter().any(|library| library.name == "NVRTC"));
    println!("{error}");
}

#[test]
fn a_driver_that_cannot_be_opened_is_an_error_with_a_hint() {
    let words = child("child_without_driver", &[("CUZARR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1")]);
    assert!(words.contains("/nonexistent/libcuda.so.1"), "{words}");
}

#[test]
fn a_driver_that_lacks_functions_is_called_too_old() {
    // Any library that is not a driver.
    let libc = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/usr/lib/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
    ];
    let Some(libc) = libc.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        say_skipped("no libc.so.6 at a known place");
        return;
    };
    let words = child("child_without_driver", &[("CUZARR_CUDA_LIBRARY", libc)]);
    assert!(words.contains("too old"), "{words}");
}

#[test]
fn child_cpu_only() {
    if !is_child("child_cpu_only") {
        return;
    }
    let array = NdBuffer::zeroed(Device::Cpu, cuzarr_device::DType::INT16, &[3, 4], cuzarr_device::Order::C).unwrap();
    array.fill(&[1, 2]).unwrap();
    Stream::new(Device::Cpu).unwrap().synchronize().unwrap();
    Device::Cpu.memory_info().unwrap();
    Device::Cuda(0).synchronize().unwrap();
    assert_eq!(cuzarr_device::pool::stats(Device::Cuda(0)), cuzarr_device::pool::PoolStats::default());
    let loaded = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    assert!(!loaded.contains("libcuda") && !loaded.contains("libnvrtc"));
}

#[test]
fn work_on_the_cpu_loads_no_driver() {
    child("child_cpu_only", &[]);
}

#[test]
fn child_without_kernels() {
    if !is_child("child_without_kernels") {
        return;
    }
    let Ok(_) = Stream::new(Device::Cuda(0)) else {
        say_skipped("no GPU");
        return;
    };
    let array = NdBuffer::empty(Device::Cuda(0), cuzarr_device::DType::INT16, &[3], cuzarr_device::Order::C).unwrap();
    let error = array.fill(&[1, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LibraryMissing, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("nvrtc")), "{error}");
}

#[test]
fn without_cubins_and_compiler_a_kernel_is_an_error_with_a_hint() {
    let nowhere = "/nonexistent/nvrtc.so";
    child("child_without_kernels", &[("CUZARR_NVRTC_LIBRARY", nowhere), ("CUZARR_CUBIN_DIR", "/nonexistent")]);
}

#[test]
fn child_with_damaged_cache() {
    if !is_child("child_with_damaged_cache") {
        return;
    }
    if Stream::new(Device::Cuda(0)).is_err() {
        say_skipped("no GPU");
        return;
    }
    let array = NdBuffer::empty(Device::Cuda(0), cuzarr_device::DType::INT16, &[300], cuzarr_device::Order::C).unwrap();
    match array.fill(&[1, 2]) {
        Ok(()) => assert!(array.to_host_bytes(cuzarr_device::Order::C).unwrap().chunks(2).all(|pair| pair == [1, 2])),
        Err(error) => assert_eq!(error.kind(), ErrorKind::LibraryMissing, "{error}"),
    }
}

#[test]
fn a_damaged_cache_is_made_again() {
    let folder = std::env::temp_dir().join(format!("cuzarr-cache-{}", std::process::id()));
    let variables = [("CUZARR_CACHE_DIR", folder.to_str().unwrap()), ("CUZARR_CUBIN_DIR", "/nonexistent")];
    child("child_with_damaged_cache", &variables);
    for file in std::fs::read_dir(folder.join("kernels")).into_iter().flatten().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        std::fs::write(file.path(), &bytes[..bytes.len() / 2]).unwrap();
    }
    child("child_with_damaged_cache", &variables);
    let _ = std::fs::remove_dir_all(folder);
}
