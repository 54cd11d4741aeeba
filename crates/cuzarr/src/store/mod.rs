//! Stores: keys and their bytes. A store knows nothing about codecs, and reads into memory that its caller lends.
//!
//! # One small trait
//! [`Store`] has thirteen methods and no defaults. A back end writes thirteen methods. A layer forwards all of them, and the compiler
//! complains when a new one is missing. Convenient calls (`get`, `write`, `exists`) are in [`StoreExt`], for every store.
//!
//! # Completion-based, without async
//! [`Store::read`] takes a batch of (key, range) and may return before the items are done. Each item ends once, through the
//! [`ReadSink`], in any order and on any thread. So a store may serve items one by one, with a thread pool, with `io_uring` or
//! with hundreds of requests in flight. Users of a store need no async executor.
//!
//! # Lent memory
//! A store asks the sink for memory when it knows an item's size, fills it and hands it back ([`Lease`]). So the caller decides
//! where bytes land (a slab of pinned memory, or the result itself) and how many are in flight. It can also refuse an item
//! before a byte is moved.
//!
//! # Large values
//! [`Store::put`] takes a whole value. [`Store::begin`] gives an [`Unfinished`] value, to which threads write parts as they get
//! them. So no thread needs memory for a large value, and the first parts are written while the last ones are still computed.
//!
//! # What a store says about itself
//! - [`Identity`]: which values it holds. Two handles of one directory are equal, however they were opened. Write locks, checks
//!   for overlaps and caches compare identities; names (`Display`) are only for messages.
//! - [`Capabilities`]: what it can do, and how it is used best. Callers ask before they begin, not when something fails.
//! - [`Version`]: which state of a value was read, such as inode and time of a file, or the ETag of an object. Reads of several
//!   parts of one value use it to stay with one state. [`Condition::Unchanged`] only writes over that state.
//!
//! # Opening
//! [`Registry`] turns URLs into stores. Another crate adds its schemes with [`Registry::with`]. A scheme that wraps a store, such
//! as `zip::`, opens the inner store with the registry that it is given.
//!
//! # Stopping
//! A store does not know whether its caller still waits. The sink does: [`ReadSink::check`] and [`ReadSink::reserve`] fail after
//! the call was cancelled through the token in its options ([`crate::CancellationToken`]).
//!
//! # Promises
//! [`conformance`] is a test suite for everything that is promised here. Every back end and every layer runs it.

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
mod object;
mod other_file;
mod parts;
pub(crate) mod registry;
pub(crate) mod testing;
mod traffic;
mod url;
pub(crate) mod values;
mod version;
mod zip;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use crate::error::{Error, ErrorKind, Result};

pub use device::GpuMemoryStore;
pub use ext::{InlineWorkers, StoreExt, Versioned};
pub use gds::{Gds, GdsStore};
pub(crate) use held::HeldValues;
pub use identity::Identity;
pub use key::{Key, join_key, validate_key, validate_prefix};
pub use layers::{Prefixed, ReadOnly, Split};
pub use local::{DirectIo, Durability, LocalOptions, LocalStore, Symlinks};
pub use memory::MemoryStore;
pub use other_file::hint_about_file;
pub use registry::{Opener, Registry};
pub use traffic::{Traffic, TrafficCounts};
pub use url::Url;
pub use version::{OpenLimit, OpenValues, Version};
pub use zip::{ZipArchive, ZipMode, ZipOptions, ZipStore};

/// The bytes of a value that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteRange {
    /// All bytes.
    Full,
    /// `size_bytes` bytes from `offset` on; an error when the value is shorter.
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
    /// The last `size_bytes` bytes; all bytes when the value is shorter.
    Suffix {
        /// How many bytes.
        size_bytes: u64,
    },
}

impl ByteRange {
    /// Offset and size of this range in a value of `total_bytes`.
    ///
    /// # Errors
    /// `StoreFailed` when the range is not inside the value.
    pub fn resolve(self, total_bytes: u64) -> Result<(u64, u64)> {
        let inside = match self {
            ByteRange::Full => Some((0, total_bytes)),
            ByteRange::Span { offset, size_bytes } => {
                offset.checked_add(size_bytes).filter(|&end| end <= total_bytes).map(|_| (offset, size_bytes))
            }
            ByteRange::From { offset } => total_bytes.checked_sub(offset).map(|size_bytes| (offset, size_bytes)),
            ByteRange::Suffix { size_bytes } => {
                let size_bytes = size_bytes.min(total_bytes);
                Some((total_bytes - size_bytes, size_bytes))
            }
        };
        inside.ok_or_else(|| {
            let wanted = match self {
                ByteRange::Span { offset, size_bytes } => format!("{size_bytes} bytes from byte {offset} on"),
                ByteRange::From { offset } => format!("the bytes from byte {offset} on"),
                ByteRange::Full | ByteRange::Suffix { .. } => "bytes".to_string(),
            };
            Error::new(
                ErrorKind::StoreFailed,
                format!("value is too short: asked for {wanted}, it has {total_bytes} bytes"),
            )
        })
    }
}

/// One item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The key of the value.
    pub key: String,
    /// The bytes of the value that are wanted.
    pub range: ByteRange,
}

/// Copies bytes into lent memory, from byte `at` on: [`Lease::write`] of leases whose memory is one piece.
///
/// # Errors
/// `StoreFailed` when the bytes end behind the memory.
pub(crate) fn write_to(memory: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    let end = at.saturating_add(bytes.len());
    let behind = || Error::new(ErrorKind::StoreFailed, "the store wrote behind the memory that it was lent");
    memory.get_mut(at..end).ok_or_else(behind)?.copy_from_slice(bytes);
    Ok(())
}

/// Memory lent to a store for the bytes of one item. It has one owner at a time, so only one side can touch it.
pub trait Lease: Send {
    /// The memory, of exactly the reserved size. Its content before the read is unspecified.
    fn bytes(&mut self) -> &mut [u8];

    /// The reserved size.
    fn size_bytes(&mut self) -> usize {
        self.bytes().len()
    }

    /// Copies bytes into the memory, from byte `at` on. A store whose bytes come piece by piece may fill a lease by this alone, in
    /// place of [`Lease::bytes`]. Memory that lies in several places then needs no copy of all of it.
    ///
    /// # Errors
    /// `StoreFailed` when the bytes end behind the memory.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        write_to(self.bytes(), at, bytes)
    }

    /// Lets the lender get its own type back.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    /// Keeps the first `at` bytes and returns the rest as separate memory, so that several threads can fill one item. `None` when
    /// this memory cannot be divided. The store drops the separate parts before it hands the first part back, which then stands
    /// for the whole item.
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

/// The outcome of one item that did not fail.
pub enum ReadOutcome {
    /// The lent memory holds the bytes and returns to its lender.
    Filled(Box<dyn Lease>),
    /// The bytes lie in memory of the sink's device: the store's own memory, which is never written again, or memory from
    /// [`ReadSink::reserve_on_device`]. They are ready on every stream.
    OnDevice(Buffer),
    /// The key does not exist; nothing was reserved.
    Missing,
}

/// The receiver of a batch's bytes. Its methods are called from any thread.
pub trait ReadSink: Send + Sync {
    /// Reserves memory for item `index`, which has `size_bytes` bytes. A store calls this at most once per item. It either fills
    /// all of the memory and hands it back through `done`, or drops it.
    ///
    /// # Errors
    /// When the item is larger than allowed, the budget refuses it, or the batch was cancelled. The store passes the error on
    /// to `done`.
    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>>;

    /// Checks that the items are still wanted. A store that reads one item after the other asks before each item.
    ///
    /// # Errors
    /// When the batch was cancelled. The store passes the error on to `done`.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Values that the caller keeps open between its batches, if it does. A store that opens values looks here first, and adds
    /// the values that it opens. After each read of such a value, it checks that the value has not changed.
    fn open_values(&self) -> Option<&OpenValues> {
        None
    }

    /// Tells the version of the value of item `index`. A store that knows versions calls this before it reserves memory.
    ///
    /// # Errors
    /// When another version is wanted. The store passes the error on to `done`.
    fn opened(&self, _index: usize, _version: Version) -> Result<()> {
        Ok(())
    }

    /// The device whose memory the sink also accepts; `cpu` when it wants all bytes on the host.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Reserves memory of the sink's device for item `index`, instead of [`ReadSink::reserve`].
    ///
    /// # Errors
    /// Those of [`ReadSink::reserve`]; `MemorySpace` when the sink wants bytes on the host.
    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "this sink takes bytes in host memory only"))
    }

    /// Ends item `index` with its outcome. It is called exactly once per item.
    fn done(&self, index: usize, outcome: Result<ReadOutcome>);
}

/// Threads that a store may borrow for blocking work.
pub trait Workers: Send + Sync {
    /// Runs `job` soon, on some thread.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// How many jobs run at once.
    fn count(&self) -> usize;

    /// A handle to these threads, for jobs that spawn more jobs; `None` when there is only the caller's thread.
    fn handle(&self) -> Option<Arc<dyn Workers>> {
        None
    }
}

/// Name of the object by which a server's store locks a node ([`Store::try_lock`]), below the node's prefix.
pub const LOCK_NAME: &str = ".cuzarr-lock";

/// The answer of [`Store::try_lock`].
pub enum Lock {
    /// The lock, held until this value is dropped.
    Held(Box<dyn Any + Send + Sync>),
    /// Another caller, here or in another process, holds the lock.
    Busy,
    /// The store has no locks, or nothing is stored at the prefix.
    Unsupported,
}

/// The keys and prefixes directly below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Full keys of values.
    pub keys: Vec<String>,
    /// Full prefixes, without a trailing `/`.
    pub prefixes: Vec<String>,
}

/// A value to write.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes in host memory.
    Bytes(&'a [u8]),
    /// A buffer, which may be in device memory. It is ready on every stream. Its memory is never written again, so the store may
    /// keep it.
    Buffer(&'a Buffer),
}

impl Payload<'_> {
    /// The size of the value.
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
    /// Write always, also over another value.
    Always,
    /// Write when the key has no value.
    Absent,
    /// Write when the key has a value of this version. Only for stores with [`Capabilities::conditional_writes`].
    Unchanged(Version),
}

impl Condition {
    /// Whether a value may be written over a value of version `found`, which is `None` where there is no value.
    pub fn allows(&self, found: Option<&Version>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Unchanged(version) => found.is_some_and(|found| found.has_same_bytes(version)),
        }
    }

    /// Refuses conditions on versions, for stores that cannot compare a version and write in one step.
    ///
    /// # Errors
    /// `Unsupported` for [`Condition::Unchanged`].
    pub fn refuse_versions(&self, store: &dyn Store, key: &Key) -> Result<()> {
        match self {
            Condition::Always | Condition::Absent => Ok(()),
            Condition::Unchanged(_) => {
                let message = format!("{store}: key '{key}': this store cannot check a value's version when it writes");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

/// What a store knows about a value without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its size.
    pub size_bytes: u64,
    /// Its version, where the store knows versions.
    pub version: Option<Version>,
}

/// What a store can do, and how it is used best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Every write is refused.
    pub read_only: bool,
    /// Values can be deleted. A caller that needs to delete checks this before it writes anything.
    pub deletes: bool,
    /// [`Condition::Unchanged`] is supported.
    pub conditional_writes: bool,
    /// Writes become visible when the caller commits them, as in an Icechunk session or a local ZIP file. Such a store may only
    /// accept keys of Zarr's documents and of chunks, and chunks only for arrays whose metadata exists.
    pub transactional: bool,
    /// Each request takes long, even for few bytes, as over a network. Then one request for more bytes is better than two in a
    /// row.
    pub far: bool,
    /// The store spreads one large read over all lent threads, so a few reads at a time keep them busy.
    pub divides_reads: bool,
    /// [`Store::begin`] is supported.
    pub writes_parts: bool,
    /// [`Unfinished::shorten`] is supported: a value can be begun before its size is known.
    pub shortens_parts: bool,
}

/// The capabilities of a local store that can write and delete.
impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            read_only: false,
            deletes: true,
            conditional_writes: false,
            transactional: false,
            far: false,
            divides_reads: false,
            writes_parts: false,
            shortens_parts: false,
        }
    }
}

/// A value that is written in parts. Readers see it after [`Unfinished::finish`]. Dropping it before that leaves the old value.
pub trait Unfinished: Send + Sync {
    /// Writes `bytes` from `offset` on. Parts come in any order and from any threads, and each byte comes once.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes beyond the value's end; what the store reports.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes the value shorter than it was begun, when all bytes that it will have were written. Only for stores with
    /// [`Capabilities::shortens_parts`].
    ///
    /// # Errors
    /// `InvalidArgument` for more bytes than it was begun with; `Unsupported`; what the store reports.
    fn shorten(&mut self, size_bytes: u64) -> Result<()>;

    /// Gives the value its key, atomically, after all its bytes were written.
    ///
    /// # Errors
    /// `InvalidArgument` when bytes are missing; what the store reports. The old value is left then.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The answer of [`Store::begin`] for stores that only write whole values.
///
/// # Errors
/// `Unsupported`, always.
pub fn no_parts(store: &dyn Store, key: &Key) -> Result<Box<dyn Unfinished>> {
    let message = format!("{store}: key '{key}': this store only writes whole values");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// A store: keys and their bytes. The [module](self) explains its design.
pub trait Store: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads a batch. It may return before the items are done. A span that ends beyond its value is an error, never a short
    /// read. An invalid key fails only its own item.
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers);

    /// Writes a value when the condition holds; returns whether it wrote. The write is atomic: readers see the old value or the
    /// new one.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a condition that the store does not support; what the store reports.
    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool>;

    /// Begins a value of `size_bytes` that is written in parts, over any value that the key has. Only for stores with
    /// [`Capabilities::writes_parts`]; others answer with [`no_parts`].
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported`; what the store reports.
    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>>;

    /// Deletes values in any order, as one batch where the store can. Missing keys are not an error. After a failure, some values
    /// may be gone already.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    fn delete_many(&self, keys: &[String]) -> Result<()>;

    /// Deletes everything below a prefix (`""`: the whole store), in any order.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    fn delete_prefix(&self, prefix: &Key) -> Result<()>;

    /// The size and version of a value, or `None` when the key does not exist.
    ///
    /// # Errors
    /// What the store reports.
    fn stat(&self, key: &Key) -> Result<Option<Stat>>;

    /// Lists the keys and prefixes directly below a prefix (`""`: the root), sorted. A store on a file system may still list a
    /// prefix whose values are all deleted.
    ///
    /// # Errors
    /// What the store reports.
    fn list_dir(&self, prefix: &Key) -> Result<Listing>;

    /// Lists every key below a prefix, sorted.
    ///
    /// # Errors
    /// What the store reports.
    fn list(&self, prefix: &Key) -> Result<Vec<String>>;

    /// The identity of the store's values.
    fn identity(&self) -> Identity;

    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether values move to and from memory of `device` without passing through host memory. Then all reads into a sink of that
    /// device end as [`ReadOutcome::OnDevice`].
    fn is_on(&self, device: Device) -> bool;

    /// Tries to lock the node at a prefix, without waiting. The lock excludes all other callers of this method, also in other
    /// processes. Writes do not ask for it.
    ///
    /// # Errors
    /// `KeyInvalid`; what the store reports.
    fn try_lock(&self, prefix: &Key) -> Result<Lock>;

    /// The store that this one is a part of, and the prefix of this one in it: the parent of a directory, the bucket of a prefix.
    /// `None` when the store cannot know.
    fn above(&self) -> Option<(Arc<dyn Store>, String)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_ranges_without_overflow() {
        assert_eq!(ByteRange::Full.resolve(0).unwrap(), (0, 0));
        assert_eq!(ByteRange::Span { offset: 2, size_bytes: 3 }.resolve(5).unwrap(), (2, 3));
        assert_eq!(ByteRange::From { offset: 5 }.resolve(5).unwrap(), (5, 0));
        assert_eq!(ByteRange::Suffix { size_bytes: u64::MAX }.resolve(5).unwrap(), (0, 5));
        for range in [
            ByteRange::Span { offset: 2, size_bytes: 4 },
            ByteRange::Span { offset: u64::MAX, size_bytes: u64::MAX },
            ByteRange::From { offset: 6 },
        ] {
            assert_eq!(range.resolve(5).unwrap_err().kind(), ErrorKind::StoreFailed);
        }
    }
}
