//! Memory in use, and the choice of the allocator for results.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuzarr::internal::run::Engine;
use cuzarr_device::internal::pool::named_bytes;
use cuzarr_device::pool::{self, DeviceAllocator};
use cuzarr_device::{Buffer, Device, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ending::{Unlocked, try_attach};
use crate::error::{IntoPython, PyResult};
use crate::foreign::python_owner;
use crate::names::parse_device;

/// Returns a dictionary with the memory in use on a device, in bytes: of the whole device, of cuzarr's pool, pinned on
/// the host, and of running calls.
#[pyfunction]
pub fn memory_info<'py>(py: Python<'py>, device: &str) -> PyResult<Bound<'py, PyDict>> {
    let device = parse_device(device)?;
    let info = py.unlocked(|| device.memory_info()).py()?;
    let (engine, stats) = (Engine::get(), pool::stats(device));
    let cached = engine.cache_use(device);
    let in_flight = engine.memory(device).used_bytes().saturating_sub(cached.size_bytes);
    let numbers = PyDict::new(py);
    numbers.set_item("free", info.free_bytes)?;
    numbers.set_item("total", info.total_bytes)?;
    numbers.set_item("used", stats.used_bytes)?;
    numbers.set_item("peak", stats.peak_bytes)?;
    numbers.set_item("held", stats.held_bytes)?;
    numbers.set_item("pinned", stats.pinned_bytes)?;
    numbers.set_item("in_flight", in_flight)?;
    numbers.set_item("chunk_cache", cached.size_bytes)?;
    numbers.set_item("allocations", stats.allocations)?;
    numbers.set_item("trims", stats.trims)?;
    Ok(numbers)
}

/// Bytes of live results on a device, for each array that was read.
#[pyfunction]
pub fn memory_of_arrays(device: &str) -> PyResult<BTreeMap<String, u64>> {
    Ok(named_bytes(parse_device(device)?))
}

/// Drops all chunks of the chunk cache, and returns unused pool memory to the device.
#[pyfunction]
pub fn trim_memory(py: Python<'_>, device: &str) -> PyResult<()> {
    let device = parse_device(device)?;
    py.unlocked(|| {
        Engine::get().clear_cache(device);
        pool::trim(device)
    })
    .py()
}

/// Resets the peak of the memory in use to the bytes that are in use now.
#[pyfunction]
pub fn reset_memory_peak(device: &str) -> PyResult<()> {
    pool::reset_peak(parse_device(device)?);
    Ok(())
}

/// Sets the function that allocates the memory of results. It is a function that takes a number of bytes and a device's
/// name, and returns an address and the object that owns the memory. `None` selects our pool.
#[pyfunction]
pub fn set_allocator(function: Option<Py<PyAny>>) {
    pool::set_allocator(function.map(|function| Arc::new(PythonAllocator(function)) as Arc<dyn DeviceAllocator>));
}

struct PythonAllocator(Py<PyAny>);

impl DeviceAllocator for PythonAllocator {
    fn allocate(&self, device: Device, size_bytes: usize) -> cuzarr_device::Result<Buffer> {
        let allocated = try_attach(|py| {
            let given = self.0.call1(py, (size_bytes, device.to_string()));
            let given = given.and_then(|given| given.extract::<(usize, Py<PyAny>)>(py));
            let failed = |error: PyErr| {
                let message =
                    format!("the chosen allocator failed to allocate {size_bytes} bytes on {device}: {error}");
                Error::new(ErrorKind::OutOfMemory, message)
                    .with_hint("lower `memory_limit`, read a smaller selection, or choose cuzarr's own pool")
            };
            let (address, owner) = given.map_err(failed)?;
            // SAFETY: the function promises this memory for as long as the owner lives.
            unsafe { pool::lend(device, address, size_bytes, python_owner(owner)) }
        });
        let ended = || Err(Error::new(ErrorKind::OutOfMemory, "the chosen allocator has ended with Python"));
        allocated.unwrap_or_else(ended)
    }
}
