//! Memory for results that comes from another library's pool.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::Device;
use crate::driver::context::Context;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::memory::lease::Owner;
use crate::memory::pool::counters::Named;

/// The owner of memory from another library's pool.
pub(super) struct Lent {
    pub(super) context: &'static Context,
    owner: Option<Owner>,
    pub(super) shared: AtomicBool,
    pub(super) name: OnceLock<Named>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The name is removed first, before the address can be reused.
        drop(self.name.take());
        let is_lost = self.shared.load(Ordering::Acquire) && self.context.backend.synchronize_device().is_err();
        if is_lost {
            // Dropping it would let the other library use a lost device.
            std::mem::forget(self.owner.take());
        }
    }
}

/// Makes a buffer of memory that another library's pool gave for a result. Dropping `owner` gives the memory back.
/// `owner` is dropped after the last buffer over the memory, once our streams have finished with it. If `mark_shared`
/// was called, the drop also waits until the whole device is idle.
///
/// # Errors
/// `DeviceUnavailable` when the device cannot be used.
///
/// # Safety
/// The conditions of [`Buffer::from_raw`].
pub unsafe fn lend(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Result<Buffer> {
    let context = Context::get(device)?;
    let lent = Lent { context, owner: Some(owner), shared: AtomicBool::new(false), name: OnceLock::new() };
    // SAFETY: the caller promises memory that lives as long as its owner, which `lent` keeps.
    Ok(unsafe { Buffer::from_raw(device, address, size_bytes, Box::new(lent)) })
}
