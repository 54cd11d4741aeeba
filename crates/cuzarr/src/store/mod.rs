//! Stores: keys and their bytes. A store knows nothing of codecs, and reads into memory that its caller lends.
//!
//! One trait, completion-based: a batch of (key, range) goes in, every item comes back through the sink, in any order,
//! from any thread. So a store may serve items one by one, by a thread pool, by `io_uring` or by hundreds of requests in
//! flight, and no executor is forced on anyone.

mod adapters;
mod batch;
pub mod conformance;
mod device;
mod extension;
mod gds;
mod held;
mod key;
mod local;
mod location;
mod memory;
mod parts;
mod split;
pub mod testing;
mod values;
mod version;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use crate::error::{Error, ErrorKind, Result};

pub use adapters::{Prefixed, ReadOnly};
pub use device::GpuMemoryStore;
pub use extension::{InlineWorkers, StoreExt};
pub use gds::{Gds, GdsStore};
pub(crate) use held::HeldValues;
pub use key::{Key, join_key, validate_key, validate_prefix};
pub use local::{DirectIo, Durability, LocalOptions, LocalStore, Symlinks};
pub(crate) use location::location;
pub use memory::MemoryStore;
pub use split::Split;
pub use version::{OpenLimit, OpenValues, Version};

/// Which bytes of a value are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteRange {
    /// All of them.
    Full,
    /// `size_bytes` bytes from `offset`; an error when the value is shorter.
    Span {
        /// First byte.
        offset: u64,
        /// How many bytes.
        size_bytes: u64,
    },
    /// All bytes from `offset` on.
    From {
        /// First byte.
        offset: u64,
    },
    /// The last bytes; all of them when the value is shorter.
    Suffix {
        /// How many bytes.
        size_bytes: u64,
    },
}

/// One item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// Which value.
    pub key: String,
    /// Which of its bytes.
    pub range: ByteRange,
}

/// Memory lent to a store for the bytes of one item. It is owned, so neither side can touch it while the other has it.
pub trait Lease: Send {
    /// The memory, exactly as long as was asked for. What it holds before is unspecified.
    fn bytes(&mut self) -> &mut [u8];

    /// For the lender, to get its own type back.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    /// Keeps the first `at` bytes and gives the others as memory of their own, so that several threads can fill one item;
    /// `None` when this memory cannot be divided. The store drops what it was given here before it hands the first part
    /// back, which then stands for all of the item.
    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        let _ = at;
        None
    }
}

impl Lease for Vec<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// How one item ended, when nothing failed.
pub enum ReadOutcome {
    /// The lent memory holds the bytes, and goes back to its lender.
    Filled(Box<dyn Lease>),
    /// The bytes lie in memory of the sink's device: the store's own, which nobody writes any more, or what
    /// [`ReadSink::reserve_on_device`] gave. They are ready on every stream.
    OnDevice(Buffer),
    /// The key does not exist; nothing was reserved.
    Missing,
}

/// Where a batch's bytes go. Called from any thread.
pub trait ReadSink: Send + Sync {
    /// Memory for item `index`, which turned out to have `size_bytes` bytes. A store calls this at most once an item, and
    /// either fills all of the memory and hands it back through `done`, or drops it.
    ///
    /// # Errors
    /// When the size is above what the item may have, the budget refuses it, or the batch was cancelled; the store
    /// passes that error on to `done`.
    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>>;

    /// Whether the items are still wanted. A store that reads one after the other asks before each of them.
    ///
    /// # Errors
    /// When the batch was cancelled; the store passes that error on to `done`.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Values that the caller keeps open between its batches, when it does: a store that opens values looks here first, and
    /// leaves here what it opened. It also makes sure, after each read of such a value, that the value has not changed.
    fn open_values(&self) -> Option<&OpenValues> {
        None
    }

    /// Item `index` is of this version of its value. A store that knows versions says it before it reserves memory.
    ///
    /// # Errors
    /// When another version is wanted; the store passes that error on to `done`.
    fn opened(&self, _index: usize, _version: Version) -> Result<()> {
        Ok(())
    }

    /// The device in whose memory the sink takes bytes as well; `cpu` when it wants all of them on the host.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Memory of the sink's device for item `index`, instead of [`ReadSink::reserve`].
    ///
    /// # Errors
    /// As [`ReadSink::reserve`]; `MemorySpace` when the sink wants bytes on the host.
    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "the bytes are wanted on the host"))
    }

    /// Item `index` ended. Called exactly once an item.
    fn done(&self, index: usize, outcome: Result<ReadOutcome>);
}

/// Threads that a store may borrow for blocking work.
pub trait Workers: Send + Sync {
    /// Runs `job` soon, on some thread.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// How many jobs run at once.
    fn count(&self) -> usize;

    /// The same threads, for jobs that begin jobs of their own; `None` when there are none beside the caller's.
    fn handle(&self) -> Option<Arc<dyn Workers>> {
        None
    }
}

/// What is directly below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Full keys of values.
    pub keys: Vec<String>,
    /// Full prefixes, without a trailing `/`.
    pub prefixes: Vec<String>,
}

/// Keys and their bytes.
pub trait Store: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads a batch. May return before the items are done. A span that ends beyond its value is an error, never a short
    /// read; a key that has no meaning fails its own item only.
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers);

    /// Writes a value, whole and atomically: readers see the old value or the new one.
    fn write(&self, key: &Key, value: &[u8]) -> Result<()>;

    /// Whether values go to and come from memory of `device` without a way through the host's: reads by a sink of that
    /// device then all end as [`ReadOutcome::OnDevice`].
    fn is_on(&self, _device: Device) -> bool {
        false
    }

    /// Like [`Store::write`], for a value that may lie in device memory. It is ready on every stream, and nobody writes its
    /// memory any more: the store may keep it.
    fn write_buffer(&self, key: &Key, value: &Buffer) -> Result<()> {
        match value.host_bytes() {
            Ok(bytes) => self.write(key, &bytes),
            Err(_) => self.write(key, &value.to_vec()?),
        }
    }

    /// Writes a value unless the key exists; says whether it wrote.
    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool>;

    /// Deletes a value; a missing key is no error.
    fn delete(&self, key: &Key) -> Result<()>;

    /// Deletes several values, in any order, as one batch where the store has a way to; missing keys are no error. What was
    /// deleted before a failure is gone.
    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| self.delete(key))
    }

    /// Deletes everything below a prefix (`""`: everything), in any order.
    fn delete_prefix(&self, prefix: &Key) -> Result<()>;

    /// Size of a value in bytes, or `None` when the key does not exist.
    fn size_bytes(&self, key: &Key) -> Result<Option<u64>>;

    /// What is directly below a prefix (`""`: the root), sorted. A store on a file system may list a prefix below which
    /// there is nothing any more.
    fn list_dir(&self, prefix: &Key) -> Result<Listing>;

    /// Every key below a prefix, sorted.
    fn list(&self, prefix: &Key) -> Result<Vec<String>>;

    /// Whether writing is refused.
    fn is_read_only(&self) -> bool;

    /// Whether values can be deleted; those of a ZIP file cannot. Who needs that asks before it writes anything.
    fn supports_deletes(&self) -> bool {
        true
    }

    /// Whether a request takes long however little it asks for, as one over a network does: one for more bytes is then better than
    /// two, one behind the other.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether nobody sees what is written before the caller commits it, as in a session of Icechunk. Such a store takes no keys
    /// but those of Zarr's documents and of chunks, and chunks only of arrays whose metadata is there.
    fn is_transactional(&self) -> bool {
        false
    }

    /// Whether the store spreads one large read over all lent threads, so that few reads at a time keep them busy.
    fn divides_reads(&self) -> bool {
        false
    }
}
