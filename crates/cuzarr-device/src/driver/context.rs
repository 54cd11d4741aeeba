//! What a process keeps for each device it has used: the backend, its home stream, its kernels, its pinned memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::device::Device;
use crate::driver::backend::{Backend, RawStream};
use crate::driver::cuda::CudaBackend;
use crate::driver::simt::SimtBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Kernels;
use crate::memory::pool::Counters;
use crate::memory::slab::PinnedCache;
use crate::ops::launch::Tables;

/// One device that has been used. Made at first use, kept for the life of the process.
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) backend: Box<dyn Backend>,
    /// Orders what was given no stream: allocations for a device rather than for a stream.
    pub(crate) home_stream: RawStream,
    pub(crate) kernels: Kernels,
    pub(crate) counters: Counters,
    pub(crate) pinned: PinnedCache,
    pub(crate) tables: Tables,
}

static CONTEXTS: OnceLock<Mutex<HashMap<Device, &'static Context>>> = OnceLock::new();

impl Context {
    /// The context of a device that has one.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub(crate) fn get(device: Device) -> Result<&'static Context> {
        let mut contexts = lock(CONTEXTS.get_or_init(Mutex::default));
        if let Some(context) = contexts.get(&device) {
            return Ok(context);
        }
        // Made under the lock: two threads must not make two pools, and this happens once a device.
        let context: &'static Context = Box::leak(Box::new(Context::new(device)?));
        contexts.insert(device, context);
        Ok(context)
    }

    /// The context of a device, if it was used before. Starts nothing.
    pub(crate) fn existing(device: Device) -> Option<&'static Context> {
        CONTEXTS.get().and_then(|contexts| lock(contexts).get(&device).copied())
    }

    fn new(device: Device) -> Result<Context> {
        let backend: Box<dyn Backend> = match device {
            Device::Cpu => return Err(Error::new(ErrorKind::Unsupported, "cpu has no driver context")),
            Device::Cuda(ordinal) => Box::new(CudaBackend::new(ordinal)?),
            Device::Simt => Box::new(SimtBackend::new()?),
        };
        let home_stream = backend.create_stream(false)?;
        Ok(Context {
            device,
            backend,
            home_stream,
            kernels: Kernels::default(),
            counters: Counters::default(),
            pinned: PinnedCache::default(),
            tables: Tables::default(),
        })
    }
}

/// A lock whose holder panicked still guards consistent data here: every section under it is a few plain assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
