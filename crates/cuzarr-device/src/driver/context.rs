//! Devices that the process has used: the backend and home stream of each, and data that other modules keep for it.

use std::sync::{Mutex, OnceLock};

use crate::device::Device;
use crate::driver::backend::{Backend, RawStream};
use crate::driver::cuda::CudaBackend;
use crate::driver::simt::SimtBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::process::{AppendOnlyMap, PerProcess};

/// A device that this process has used, with its backend and its home stream. Made at first use and kept until the
/// process ends.
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) backend: Box<dyn Backend>,
    /// The stream in whose order memory is allocated if the caller names no stream.
    pub(crate) home_stream: RawStream,
    /// The device's index in every [`PerDevice`], below [`MOST_DEVICES`].
    place: usize,
}

/// Number of devices that one process can use: more than any machine has.
const MOST_DEVICES: usize = 64;

/// One value for each device that was used, made at first use and kept until the process ends. Other modules keep
/// loaded kernels, counters and pinned memory this way.
pub(crate) struct PerDevice<T>([OnceLock<T>; MOST_DEVICES]);

impl<T: Default> PerDevice<T> {
    pub(crate) const fn new() -> PerDevice<T> {
        PerDevice([const { OnceLock::new() }; MOST_DEVICES])
    }

    /// Returns the value that belongs to the device of `context`, which is made at the first call. Takes no lock once
    /// the value exists.
    pub(crate) fn of(&self, context: &Context) -> &T {
        self.0[context.place].get_or_init(T::default)
    }
}

static CONTEXTS: AppendOnlyMap<Device, Context> = AppendOnlyMap::new();
/// A lock that is held while a device's context is made, so that two threads do not make two pools.
static MAKING: PerProcess<Mutex<()>> = PerProcess::new();

impl Context {
    /// Returns the context of a device, which is made at the first call.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub(crate) fn get(device: Device) -> Result<&'static Context> {
        if let Some(context) = Context::existing(device) {
            return Ok(context);
        }
        if device == Device::Cpu {
            return Err(Error::new(ErrorKind::Unsupported, "cpu has no driver context"));
        }
        let _making = lock(MAKING.get());
        match Context::existing(device) {
            Some(context) => Ok(context),
            None => Ok(CONTEXTS.insert(device, Context::new(device, CONTEXTS.len())?)),
        }
    }

    /// The context of a device, if it was used before. Starts nothing.
    pub(crate) fn existing(device: Device) -> Option<&'static Context> {
        CONTEXTS.get(&device)
    }

    fn new(device: Device, place: usize) -> Result<Context> {
        if place >= MOST_DEVICES {
            let message =
                format!("{device} would be device number {place} of this process, which uses {MOST_DEVICES} at most");
            return Err(Error::new(ErrorKind::DeviceUnavailable, message));
        }
        let backend: Box<dyn Backend> = match device {
            Device::Cpu => return Err(Error::new(ErrorKind::Unsupported, "cpu has no driver context")),
            Device::Cuda(ordinal) => Box::new(CudaBackend::new(ordinal)?),
            Device::Simt => Box::new(SimtBackend::new()?),
        };
        let home_stream = backend.create_stream(false)?;
        Ok(Context { device, backend, home_stream, place })
    }
}
