//! Values in the memory of a device.
//!
//! Chunks stay where they were computed: what an array on the device writes uncompressed is handed over, and what a read
//! on that device wants is lent, neither with a copy through the host. Metadata documents are read by the host alone, so
//! they live in host memory, as everything does on `cpu`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr_device::{Buffer, Device, Stream};

use super::batch::{self, Object, Source};
use super::values::Values;
use super::{InlineWorkers, Key, Listing, ReadRequest, ReadSink, Store, Workers};
use crate::error::Result;

/// Last segments of the keys whose values stay in host memory.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Values in the memory of a device. Cloning shares them.
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
    number: u64,
}

impl GpuMemoryStore {
    /// An empty store. Uses no device yet.
    pub fn new(device: Device) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        GpuMemoryStore { device, values: Values::default(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    /// Where values are.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The value itself, where it is: on the device, or on the host for a metadata document. Nobody may write it.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn value(&self, key: &Key) -> Result<Option<Buffer>> {
        self.values.get(key)
    }

    fn place(&self, key: &Key) -> Device {
        let name = key.rsplit('/').next().unwrap_or(key);
        if DOCUMENTS.contains(&name) { Device::Cpu } else { self.device }
    }

    fn take_in(&self, key: &Key, value: &[u8]) -> Result<Buffer> {
        super::validate_key(key)?;
        Ok(Buffer::from_bytes(self.place(key), value)?.into_read_only())
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
        // `batch` resolved the range inside this very value, which never changes.
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
        // Lending is a look into the table: threads would cost more.
        match self.is_on(sink.device()) {
            true => batch::run(self.clone(), batch, sink, &InlineWorkers),
            false => batch::run(self.clone(), batch, sink, workers),
        }
    }

    fn write(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.values.insert(key, self.take_in(key, value)?)
    }

    fn is_on(&self, device: Device) -> bool {
        device != Device::Cpu && device == self.device
    }

    fn write_buffer(&self, key: &Key, value: &Buffer) -> Result<()> {
        super::validate_key(key)?;
        let place = self.place(key);
        // A view would keep all of its block alive, and a block that others own can change.
        let own = value.device() == place && value.size_bytes() == value.allocation_bytes();
        let value = match own {
            true => value.clone(),
            false => {
                let copy = Buffer::empty(place, value.size_bytes())?;
                copy.copy_from(value)?;
                copy
            }
        };
        self.values.insert(key, value.into_read_only())
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        if self.values.get(key)?.is_some() {
            return Ok(false);
        }
        self.values.insert_if_absent(key, self.take_in(key, value)?)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.values.remove(key)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.values.remove_prefix(prefix)
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.values.get(key)?.map(|value| value.size_bytes() as u64))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl fmt::Display for GpuMemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpumemory://{}", self.number)
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
