//! A store that keeps its values in the memory of a device.
//!
//! Chunks stay where they were computed. When a device array writes uncompressed chunks, the store takes over their
//! memory. When that device reads, the store lends its memory. Nothing is copied through the host. Metadata documents
//! are always kept in host memory, because only the host reads them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device, Stream};

use super::batch::{self, Source};
use super::key::is_document;
use super::object::Object;
use super::values::Values;
use super::{
    Capabilities, Condition, Identity, InlineWorkers, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store,
    Unfinished, Workers, no_parts,
};
use crate::error::Result;

/// A store that keeps its values in the memory of a device. Clones share the values.
///
/// ```
/// use cuzarr::store::{GpuMemoryStore, Store, StoreExt};
/// use cuzarr_device::{Buffer, Device};
/// # fn story(device: Device) -> cuzarr::Result<()> {
/// let store = GpuMemoryStore::new(device);
/// store.write_buffer("c/0", &Buffer::from_bytes(device, b"chunk")?)?;
/// assert_eq!(store.get("c/0")?.as_deref(), Some(&b"chunk"[..]));
/// # Ok(()) }
/// # story(Device::Cpu).unwrap();
/// ```
#[derive(Clone)]
pub struct GpuMemoryStore {
    device: Device,
    values: Values<Buffer>,
    identity: Identity,
}

impl GpuMemoryStore {
    /// Makes an empty store. The device is not used yet.
    pub fn new(device: Device) -> Self {
        GpuMemoryStore { device, values: Values::default(), identity: Identity::unique() }
    }

    /// The device that holds the values.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the stored value itself, without a copy; the caller must only read it. It is on the device, or in host
    /// memory if it is a metadata document.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn value(&self, key: &Key) -> Result<Option<Buffer>> {
        self.values.get(key)
    }

    fn place(&self, key: &Key) -> Device {
        if is_document(key) { Device::Cpu } else { self.device }
    }

    fn take_in(&self, place: Device, value: Payload<'_>) -> Result<Buffer> {
        match value {
            Payload::Bytes(bytes) => Ok(Buffer::from_bytes(place, bytes)?),
            // A view of a larger block is copied: it would keep the whole block alive, and others may write to it.
            Payload::Buffer(value) if value.device() == place && value.size_bytes() == value.allocation_bytes() => {
                Ok(value.clone())
            }
            Payload::Buffer(value) => {
                let copy = Buffer::empty(place, value.size_bytes())?;
                copy.copy_from(value)?;
                Ok(copy)
            }
        }
    }
}

impl Source for GpuMemoryStore {
    type Object = Buffer;

    fn open(&self, key: &Key) -> Result<Option<Buffer>> {
        self.values.get(key)
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

impl Object for Buffer {
    fn size_bytes(&self) -> u64 {
        Buffer::size_bytes(self) as u64
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // `batch` checked the range against this value, which never changes.
        let offset = offset as usize;
        let part = self.slice(offset..offset + bytes.len())?;
        match part.host_bytes() {
            Ok(host) => bytes.copy_from_slice(&host),
            Err(_) => Stream::legacy(part.device())?.d2h(&part, bytes)?,
        }
        Ok(())
    }

    fn on_device(
        &self,
        device: Device,
        range: Range<u64>,
        reserve: &dyn Fn() -> Result<Buffer>,
    ) -> Result<Option<Buffer>> {
        let part = self.slice(range.start as usize..range.end as usize)?;
        if part.device() == device {
            return Ok(Some(part));
        }
        let reserved = reserve()?;
        reserved.copy_from(&part)?;
        Ok(Some(reserved))
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

impl Store for GpuMemoryStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        // Lending only looks up the table. Handing this to threads would take longer.
        match self.is_on(sink.device()) {
            true => batch::run(self.clone(), batch, sink, &InlineWorkers),
            false => batch::run(self.clone(), batch, sink, workers),
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        super::validate_key(key)?;
        condition.refuse_versions(self, key)?;
        if *condition == Condition::Absent && self.values.get(key)?.is_some() {
            return Ok(false);
        }
        let value = self.take_in(self.place(key), value)?.into_read_only();
        self.values.insert_if(key, value, |old| *condition == Condition::Always || old.is_none())
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        no_parts(self, key)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.values.remove(keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.values.remove_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        Ok(self.values.get(key)?.map(|value| Stat { size_bytes: value.size_bytes() as u64, version: None }))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn is_on(&self, device: Device) -> bool {
        device != Device::Cpu && device == self.device
    }

    fn try_lock(&self, _prefix: &Key) -> Result<Lock> {
        Ok(Lock::Unsupported)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}

impl fmt::Display for GpuMemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpumemory://{}", self.identity)
    }
}

impl fmt::Debug for GpuMemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuMemoryStore('{self}' on {})", self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms_in_host_memory() {
        super::super::conformance::run(&|| Arc::new(GpuMemoryStore::new(Device::Cpu)));
    }

    #[test]
    fn conforms_in_device_memory() {
        if let Err(error) = Buffer::empty(Device::Simt, 1) {
            return println!("skipped: {error}");
        }
        super::super::conformance::run(&|| Arc::new(GpuMemoryStore::new(Device::Simt)));
    }
}
