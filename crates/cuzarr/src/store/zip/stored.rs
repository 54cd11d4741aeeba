//! Members that are stored as they are: reads of them are passed on as reads of the file. Where all of a member is read, the threads
//! that fill its memory compute its checksum while the bytes are warm.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use crc32fast::Hasher;
use cuzarr_device::{Buffer, Device};

use super::{Archive, damaged};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::store::{Lease, OpenValues, ReadOutcome, ReadSink, Version};

/// Passes reads of the file on under their places in the whole batch.
pub(super) struct Stored {
    pub(super) archive: Arc<Archive>,
    pub(super) sink: Arc<dyn ReadSink>,
    pub(super) items: Vec<Item>,
}

/// A read of one member.
pub(super) struct Item {
    /// Its place in the whole batch.
    place: usize,
    name: String,
    /// The member's checksum, and those of the parts that were filled; `None` where a part of the member is read.
    checksum: Option<(u32, Sums)>,
}

/// Checksums of parts, by where they begin.
type Sums = Arc<Mutex<Vec<(usize, Hasher)>>>;

impl Item {
    pub(super) fn new(place: usize, name: String, checksum: Option<u32>) -> Item {
        Item { place, name, checksum: checksum.map(|checksum| (checksum, Sums::default())) }
    }

    /// The lender's memory, once its bytes are what the member's checksum says.
    fn verified(&self, lease: Box<dyn Lease>) -> Result<Box<dyn Lease>> {
        let Some((checksum, sums)) = &self.checksum else { return Ok(lease) };
        let foreign = |_| damaged("the store handed back memory that it was not lent");
        let lease = lease.into_any().downcast::<Hashed>().map_err(foreign)?;
        let lease = (*lease).take();
        let mut sums = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
        sums.sort_unstable_by_key(|(at, _)| *at);
        let mut whole = Hasher::new();
        sums.iter().for_each(|(_, part)| whole.combine(part));
        if whole.finalize() == *checksum { Ok(lease) } else { Err(damaged("the member's checksum is wrong")) }
    }
}

/// Lent memory of which a checksum is taken when it comes back.
struct Hashed {
    /// `None` once it went back.
    lease: Option<Box<dyn Lease>>,
    at: usize,
    sums: Sums,
}

impl Hashed {
    /// Gives the memory back, with what is in it.
    fn take(mut self) -> Box<dyn Lease> {
        self.hash().unwrap_or_else(|| Box::new(Vec::new()))
    }

    fn hash(&mut self) -> Option<Box<dyn Lease>> {
        let mut lease = self.lease.take()?;
        let mut hasher = Hasher::new();
        hasher.update(lease.bytes());
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).push((self.at, hasher));
        Some(lease)
    }
}

impl Drop for Hashed {
    fn drop(&mut self) {
        self.hash();
    }
}

#[deny(clippy::missing_trait_methods)]
impl Lease for Hashed {
    fn bytes(&mut self) -> &mut [u8] {
        self.lease.as_mut().map_or(&mut [], |lease| lease.bytes())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        let lease = self.lease.as_mut()?.split_off(at)?;
        Some(Box::new(Hashed { lease: Some(lease), at: self.at + at, sums: Arc::clone(&self.sums) }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Stored {
    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let item = &self.items[index];
        let lease = self.sink.reserve(item.place, size_bytes)?;
        Ok(match &item.checksum {
            None => lease,
            Some((_, sums)) => Box::new(Hashed { lease: Some(lease), at: 0, sums: Arc::clone(sums) }),
        })
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.sink.open_values()
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        self.archive.check_version(&version)?;
        self.sink.opened(self.items[index].place, version)
    }

    // Not all members can come in memory of a device.
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "the bytes are wanted on the host"))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = &self.items[index];
        let outcome = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Missing => Err(damaged("the ZIP file is gone")),
            ReadOutcome::Filled(lease) => item.verified(lease).map(ReadOutcome::Filled).at(|| item.name.clone()),
            ReadOutcome::OnDevice(bytes) => Ok(ReadOutcome::OnDevice(bytes)),
        });
        self.sink.done(item.place, outcome);
    }
}
