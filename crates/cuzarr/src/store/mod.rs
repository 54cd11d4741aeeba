//! Stores: keys and their bytes. A store knows nothing of codecs, and reads into memory that its caller lends.
//!
//! # One small trait
//! [`Store`] has ten methods and no defaults. A back end writes ten methods; a layer that forwards them forwards all of them, and
//! the compiler says so when one is added. What is convenient (`get`, `write`, `exists`) is in [`StoreExt`], for every store.
//!
//! # Completion-based, without async
//! [`Store::read`] takes a batch of (key, range) and returns when it likes. Every item comes back once through the
//! [`ReadSink`], in any order, from any thread. So a store may serve items one by one, by a thread pool, by `io_uring` or by
//! hundreds of requests in flight, and no executor is forced on its users.
//!
//! # Lent memory
//! A store asks the sink for memory when it knows an item's size, fills it and hands it back ([`Lease`]). Who reads decides where
//! bytes land (a slab of pinned memory, the result itself), how many are in flight, and what is refused before a byte is moved.
//!
//! # What a store says about itself
//! - [`Identity`]: which values it is about, as a value. Two handles of one directory are equal, however they were opened. Write
//!   locks, checks for overlaps and caches go by it; names (`Display`) are for messages alone.
//! - [`Capabilities`]: what it can do, and how it likes to be used. Callers ask before they begin, not when something fails.
//! - [`Version`]: which state of a value was read: inode and time of a file, the ETag of an object. Reads of parts of one value
//!   use it to stay with one state, and [`Condition::Unchanged`] writes only over that state.
//!
//! # Opening
//! [`Registry`] turns URLs into stores. It is a value: another crate adds its schemes by [`Registry::with`], and schemes that wrap
//! a store, such as `zip::`, open that store by the registry that they are given.
//!
//! # Stopping
//! A store does not know whether its caller still waits. The sink does: [`ReadSink::check`] and [`ReadSink::reserve`] fail when
//! the call was cancelled, by the token that travels in the call's options ([`crate::CancellationToken`]).
//!
//! # Promises
//! [`conformance`] is a suite of all that is promised here. Every back end and every layer runs it.

mod batch;
pub mod conformance;
mod device;
mod ext;
mod gds;
mod held;
mod identity;
mod key;
mod layers;
mod local;
mod memory;
mod parts;
mod registry;
pub mod testing;
mod url;
mod values;
mod version;
mod zip;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use crate::error::{Error, ErrorKind, Result};

pub use device::GpuMemoryStore;
pub use ext::{InlineWorkers, StoreExt};
pub use gds::{Gds, GdsStore};
pub(crate) use held::HeldValues;
pub use identity::Identity;
pub use key::{Key, join_key, validate_key, validate_prefix};
pub use layers::{Prefixed, ReadOnly, Split};
pub use local::{DirectIo, Durability, LocalOptions, LocalStore, Symlinks};
pub use memory::MemoryStore;
pub use registry::{Opener, Registry, is_zip};
pub use url::Url;
pub use version::{OpenLimit, OpenValues, Version};
pub use zip::ZipStore;

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
    /// Those of [`ReadSink::reserve`]; `MemorySpace` when the sink wants bytes on the host.
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

/// A value that is written.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes of the host.
    Bytes(&'a [u8]),
    /// A buffer, which may be in device memory. It is ready on every stream, and its memory is not written any more: the store
    /// may keep it.
    Buffer(&'a Buffer),
}

impl Payload<'_> {
    /// How many bytes it has.
    pub fn size_bytes(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Buffer(buffer) => buffer.size_bytes(),
        }
    }

    /// Calls `write` with the bytes in host memory.
    ///
    /// # Errors
    /// Those of the copy from a device, and of `write`.
    pub fn with_bytes<T>(&self, write: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        match self {
            Payload::Bytes(bytes) => write(bytes),
            Payload::Buffer(buffer) => match buffer.host_bytes() {
                Ok(bytes) => write(&bytes),
                Err(_) => write(&buffer.to_vec()?),
            },
        }
    }
}

/// When a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// When the key has no value.
    Absent,
    /// When the key has a value of this version. Only for stores that say [`Capabilities::conditional_writes`].
    Unchanged(Version),
}

impl Condition {
    /// Whether a value may be written over one of version `found`; `None` where there is no value.
    pub fn allows(&self, found: Option<&Version>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Unchanged(version) => found.is_some_and(|found| found.has_same_bytes(version)),
        }
    }

    /// For stores that cannot compare a version and write in one step.
    ///
    /// # Errors
    /// `Unsupported` for [`Condition::Unchanged`].
    pub fn refuse_versions(&self, store: &dyn Store, key: &Key) -> Result<()> {
        match self {
            Condition::Always | Condition::Absent => Ok(()),
            Condition::Unchanged(_) => {
                let message = format!("{store}: key '{key}': this store cannot write over one version of a value only");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

/// What is known of a value without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its size.
    pub size_bytes: u64,
    /// Its version, where the store knows versions.
    pub version: Option<Version>,
}

/// What a store can do, and how it likes to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Every write is refused.
    pub read_only: bool,
    /// Values can be deleted; those of a ZIP file cannot. A caller that needs to delete asks before it writes anything.
    pub deletes: bool,
    /// [`Condition::Unchanged`] is understood.
    pub conditional_writes: bool,
    /// Writes become visible when the caller commits them, as in a session of Icechunk. Such a store takes no keys but those of
    /// Zarr's documents and of chunks, and chunks only of arrays whose metadata is there.
    pub transactional: bool,
    /// A request takes long however little it asks for, as over a network: one request for more bytes is then better than two
    /// in a row.
    pub far: bool,
    /// One large read is spread over all lent threads, so that few reads at a time keep them busy.
    pub divides_reads: bool,
}

/// A store at hand that can write and delete.
impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            read_only: false,
            deletes: true,
            conditional_writes: false,
            transactional: false,
            far: false,
            divides_reads: false,
        }
    }
}

/// Keys and their bytes. The [module](self) says why it looks as it does.
pub trait Store: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads a batch. May return before the items are done. A span that ends beyond its value is an error, never a short
    /// read; a key that has no meaning fails its own item only.
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers);

    /// Writes a value when the condition holds, whole and atomically: readers see the old value or the new one. Says whether it
    /// wrote.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a condition that the store does not understand; what the store reports.
    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool>;

    /// Deletes values, in any order, as one batch where the store has a way to; missing keys are no error. Values that were
    /// deleted before a failure are gone.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    fn delete_many(&self, keys: &[String]) -> Result<()>;

    /// Deletes everything below a prefix (`""`: everything), in any order.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    fn delete_prefix(&self, prefix: &Key) -> Result<()>;

    /// Size and version of a value, or `None` when the key does not exist.
    ///
    /// # Errors
    /// What the store reports.
    fn stat(&self, key: &Key) -> Result<Option<Stat>>;

    /// Keys and prefixes directly below a prefix (`""`: the root), sorted. A store on a file system may list a prefix below
    /// which there is nothing any more.
    ///
    /// # Errors
    /// What the store reports.
    fn list_dir(&self, prefix: &Key) -> Result<Listing>;

    /// Every key below a prefix, sorted.
    ///
    /// # Errors
    /// What the store reports.
    fn list(&self, prefix: &Key) -> Result<Vec<String>>;

    /// Which values the store is about.
    fn identity(&self) -> Identity;

    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether values go to and come from memory of `device` without a way through the host's: reads by a sink of that
    /// device then all end as [`ReadOutcome::OnDevice`].
    fn is_on(&self, device: Device) -> bool;
}
