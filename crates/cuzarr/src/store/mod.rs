//! Stores: they keep bytes under keys, such as chunks and metadata documents. A store knows nothing about codecs. It
//! reads into memory that its caller lends.
//!
//! # One small trait
//! [`Store`] has thirteen methods and no defaults. A back end implements all of them, and a layer forwards all of them.
//! If a method is missing, the compiler complains. Convenient calls (`get`, `write`, `exists`) are in [`StoreExt`], for
//! every store.
//!
//! # Completion-based, without async
//! [`Store::read`] takes a batch of (key, range) and may return before the items are done. Each item ends exactly once,
//! through the [`ReadSink`], in any order and on any thread. So a store may serve items one by one, with a thread pool,
//! with `io_uring`, or with hundreds of requests in flight. Users of a store need no async executor.
//!
//! # Lent memory
//! When a store knows the size of an item, it asks the sink for memory, fills it and hands it back ([`Lease`]). So the
//! caller decides where bytes go (a slab of pinned memory, or the result itself) and how many are in flight. It can
//! also refuse an item before a byte is moved.
//!
//! # Large values
//! [`Store::put`] writes a whole value. [`Store::begin`] returns an [`Unfinished`] value. Threads write its parts in
//! any order, as soon as each is ready. So a large value is never in memory as a whole, and its first parts are written
//! while the last ones are still computed.
//!
//! # What a store says about itself
//! - [`Identity`]: which values it holds. Two handles of one directory have equal identities, however they were opened.
//!   Write locks, checks for overlaps and caches compare identities; names (`Display`) are only for messages.
//! - [`Capabilities`]: what it can do, and how to use it best. Callers check them before they begin, not after a
//!   failure.
//! - [`Version`]: which state of a value was read, such as inode and time of a file, or the ETag of an object. Reads of
//!   several parts of one value use it to see only one state. A write with [`Condition::Unchanged`] replaces only that
//!   state.
//!
//! # Opening
//! [`Registry`] turns URLs into stores. Other crates add schemes with [`Registry::with`]. A scheme that wraps a store,
//! such as `zip::`, opens the inner store with the registry that it is given.
//!
//! # Stopping
//! A store does not know whether its caller still waits, but the sink does. [`ReadSink::check`] and
//! [`ReadSink::reserve`] fail after the call was cancelled through the token in its options
//! ([`crate::CancellationToken`]).
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

/// The bytes of a value that a request asks for: all, a range, or the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteRange {
    /// All bytes of the value.
    Full,
    /// `size_bytes` bytes from `offset` on; an error when the value is shorter.
    Span {
        /// Offset of the first byte in the value.
        offset: u64,
        /// Number of bytes of the value that are read.
        size_bytes: u64,
    },
    /// All bytes of the value from `offset` on.
    From {
        /// Offset of the first byte in the value.
        offset: u64,
    },
    /// The last `size_bytes` bytes; all bytes when the value is shorter.
    Suffix {
        /// Number of bytes at the end of the value that are read.
        size_bytes: u64,
    },
}

impl ByteRange {
    /// Returns the offset and the size of this range in a value of `total_bytes`.
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

/// A request for one value or a part of it, as an item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The key of the value.
    pub key: String,
    /// The bytes of the value that are wanted.
    pub range: ByteRange,
}

/// Copies `bytes` into the memory that a reader lent to a store, from byte `at` on. For implementations of
/// [`Lease::write`] whose memory is one piece.
///
/// # Errors
/// `StoreFailed` when the bytes end beyond the memory.
pub(crate) fn write_to(memory: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    let end = at.saturating_add(bytes.len());
    let behind = || Error::new(ErrorKind::StoreFailed, "the store wrote behind the memory that it was lent");
    memory.get_mut(at..end).ok_or_else(behind)?.copy_from_slice(bytes);
    Ok(())
}

/// Memory that a reader lends to a store, which fills it with the bytes of one item. It has one owner at a time, so
/// only one side can access it.
pub trait Lease: Send {
    /// The memory that the reader lends, which has exactly the reserved size. Its content before the read is
    /// unspecified.
    fn bytes(&mut self) -> &mut [u8];

    /// The size of the lent memory in bytes, as it was reserved.
    fn size_bytes(&mut self) -> usize {
        self.bytes().len()
    }

    /// Copies `bytes` into the lent memory, from byte `at` on. A store whose bytes come in pieces may fill a lease with
    /// this method alone, instead of [`Lease::bytes`]. Then memory that consists of several pieces needs no extra copy.
    ///
    /// # Errors
    /// `StoreFailed` when the bytes end beyond the memory.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        write_to(self.bytes(), at, bytes)
    }

    /// Converts the lent memory back to the type that the reader lent.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    /// Splits the lent memory: this keeps the first `at` bytes, and the rest is returned as separate memory. So several
    /// threads can fill one item. `None` if the memory cannot be divided. The store drops the separate parts before it
    /// hands back the first one, which then stands for the whole item.
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

/// The result of reading an item without failure: where its bytes are, or that the key does not exist.
pub enum ReadOutcome {
    /// The lent memory, filled with the bytes of the item.
    Filled(Box<dyn Lease>),
    /// The bytes lie in memory of the sink's device. It is the store's own memory, which is never written again, or
    /// memory from [`ReadSink::reserve_on_device`]. The bytes are ready on every stream.
    OnDevice(Buffer),
    /// The key does not exist; nothing was reserved.
    Missing,
}

/// Receives the results of a batch of reads: it lends memory to the store, and gets the outcome of each item. Its
/// methods are called from any thread.
pub trait ReadSink: Send + Sync {
    /// Lends memory to the store for the bytes of item `index`, of which there are `size_bytes`. A store calls this at
    /// most once per item. It then either fills all of the memory and hands it back through `done`, or drops it.
    ///
    /// # Errors
    /// When the item is larger than allowed, the budget refuses it, or the batch was cancelled. The store passes the
    /// error on to `done`.
    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>>;

    /// Checks that the caller has not cancelled the batch of reads. A store that reads one item after another calls
    /// this before each item.
    ///
    /// # Errors
    /// When the batch was cancelled. The store passes the error on to `done`.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Values that the caller keeps open between its batches, if it keeps any. A store that opens values looks here
    /// first, and adds the values that it opens. After each read of such a value, it checks that the value has not
    /// changed.
    fn open_values(&self) -> Option<&OpenValues> {
        None
    }

    /// Reports which version the value of item `index` has, before its bytes are read. A store that knows versions
    /// calls this before it reserves memory.
    ///
    /// # Errors
    /// When the caller wants another version. The store passes the error on to `done`.
    fn opened(&self, _index: usize, _version: Version) -> Result<()> {
        Ok(())
    }

    /// The device in whose memory the sink accepts bytes, besides host memory; `cpu` if it wants all bytes on the host.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Lends memory of the sink's device to the store for item `index`, instead of [`ReadSink::reserve`].
    ///
    /// # Errors
    /// Those of [`ReadSink::reserve`]; `MemorySpace` when the sink wants bytes on the host.
    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "this sink takes bytes in host memory only"))
    }

    /// Reports to the sink that item `index` has ended: with its bytes, as missing, or with an error. It is called
    /// exactly once for each item.
    fn done(&self, index: usize, outcome: Result<ReadOutcome>);
}

/// Threads that the caller of a read lends to the store.
pub trait Workers: Send + Sync {
    /// Runs `job` soon, on one of the lent threads.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// Number of worker threads, which is the largest number of jobs that run at once.
    fn count(&self) -> usize;

    /// A handle to the lent threads, for jobs that start more jobs; `None` if there is only the caller's thread.
    fn handle(&self) -> Option<Arc<dyn Workers>> {
        None
    }
}

/// Name of the object that stands for a node's lock on a server ([`Store::try_lock`]), below the node's prefix.
pub const LOCK_NAME: &str = ".cuzarr-lock";

/// The result of [`Store::try_lock`]: whether the caller got the lock on the node.
pub enum Lock {
    /// The caller has the lock, until this value is dropped.
    Held(Box<dyn Any + Send + Sync>),
    /// Another caller, here or in another process, holds the lock.
    Busy,
    /// The store has no locks, or nothing is stored at the prefix.
    Unsupported,
}

/// The keys and prefixes that lie directly below a prefix, like the files and directories in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Full keys of the values that lie directly below the prefix.
    pub keys: Vec<String>,
    /// Full prefixes that lie directly below the prefix, without a trailing `/`.
    pub prefixes: Vec<String>,
}

/// The bytes of a value that is written to a store, in host memory or in a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// The bytes of the value are in host memory.
    Bytes(&'a [u8]),
    /// The bytes are in a buffer, perhaps in device memory. It is ready on every stream. Its memory is never written
    /// again, so the store may keep it.
    Buffer(&'a Buffer),
}

impl Payload<'_> {
    /// The size of the value in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Buffer(buffer) => buffer.size_bytes(),
        }
    }

    /// Calls `write` with the bytes, which are copied to host memory if necessary.
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

/// The condition under which a store writes a value: always, or only over nothing or a known version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always write, even over another value.
    Always,
    /// Write only if the key has no value.
    Absent,
    /// Write only if the key has a value of this version. For stores with [`Capabilities::conditional_writes`].
    Unchanged(Version),
}

impl Condition {
    /// Whether a value may be written over a value of version `found`; `None` means that there is no value.
    pub fn allows(&self, found: Option<&Version>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Unchanged(version) => found.is_some_and(|found| found.has_same_bytes(version)),
        }
    }

    /// Refuses the condition that a value has a certain version, which some stores cannot check. For stores that cannot
    /// compare a version and write in one step.
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

/// The size and the version of a value, which a store knows without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The size of the value in bytes.
    pub size_bytes: u64,
    /// The version of the value, if the store reports versions.
    pub version: Option<Version>,
}

/// Describes what a store can do, and how to use it best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether the store refuses every write.
    pub read_only: bool,
    /// Whether the store can delete values. A caller that needs to delete checks this before it writes anything.
    pub deletes: bool,
    /// Whether the store can write under the condition [`Condition::Unchanged`].
    pub conditional_writes: bool,
    /// Whether writes become visible only when the caller commits them, as in an Icechunk session or a local ZIP file.
    /// Such a store may refuse keys other than Zarr's documents and chunks, and chunks of arrays without metadata.
    pub transactional: bool,
    /// Whether each request takes long, even for few bytes, as over a network. Then one request for more bytes is
    /// better than two consecutive ones.
    pub far: bool,
    /// Whether the store reports versions of its values, from which caches see that a value has changed.
    pub versions: bool,
    /// Whether the store spreads one large read over all lent threads. Then a few reads at a time keep the threads
    /// busy.
    pub divides_reads: bool,
    /// Whether the store can write a value in parts, with [`Store::begin`].
    pub writes_parts: bool,
    /// Whether the store supports [`Unfinished::shorten`], so that a value can be begun before its size is known.
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
            versions: false,
            divides_reads: false,
            writes_parts: false,
            shortens_parts: false,
        }
    }
}

/// A value that is being written to a store in parts. Readers see it after [`Unfinished::finish`]. If it is dropped
/// unfinished, the old value remains.
pub trait Unfinished: Send + Sync {
    /// Writes `bytes` into the unfinished value, from byte `offset` on. Parts may come in any order and from any
    /// threads. Each byte must come exactly once.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes beyond the value's end; what the store reports.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes the value shorter than the size given to [`Store::begin`]. All bytes that remain must have been written.
    /// For stores with [`Capabilities::shortens_parts`].
    ///
    /// # Errors
    /// `InvalidArgument` when `size_bytes` is larger than that size; `Unsupported`; what the store reports.
    fn shorten(&mut self, size_bytes: u64) -> Result<()>;

    /// Completes the value and makes it visible under its key, atomically. All its bytes must have been written.
    ///
    /// # Errors
    /// `InvalidArgument` when bytes are missing; what the store reports. Then the old value remains.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Returns the error of [`Store::begin`] for stores that cannot write a value in parts.
///
/// # Errors
/// `Unsupported`, always.
pub fn no_parts(store: &dyn Store, key: &Key) -> Result<Box<dyn Unfinished>> {
    let message = format!("{store}: key '{key}': this store only writes whole values");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Stores values under keys; every storage back end implements this trait. The [module](self) explains its design.
pub trait Store: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads the values, or parts of values, that a batch asks for. May return before the items are done. A span that
    /// ends beyond its value is an error, never a short read. An invalid key fails only its own item.
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers);

    /// Writes a value to a key if the condition holds. Returns whether it wrote. The write is atomic: readers see the
    /// old value or the new one.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a condition that the store does not support; what the store reports.
    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool>;

    /// Begins a value of `size_bytes` that is written in parts. It replaces any value of the key. For stores with
    /// [`Capabilities::writes_parts`]; others return [`no_parts`].
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported`; what the store reports.
    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>>;

    /// Deletes values in any order, as one batch if the store can. Missing keys are not an error. After a failure, some
    /// of the values may be deleted.
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

    /// Lists the keys and prefixes directly below a prefix (`""`: the root), sorted. A store on a file system may list
    /// a prefix even if all its values are deleted.
    ///
    /// # Errors
    /// What the store reports.
    fn list_dir(&self, prefix: &Key) -> Result<Listing>;

    /// Lists every key below a prefix, sorted.
    ///
    /// # Errors
    /// What the store reports.
    fn list(&self, prefix: &Key) -> Result<Vec<String>>;

    /// The identity of the store, by which it can be compared with other stores. A store that shows the values of
    /// another one under other keys adds a view ([`Identity::with_view`]), so that caches keep the two apart.
    fn identity(&self) -> Identity;

    /// Describes what the store can do, and how to use it best.
    fn capabilities(&self) -> Capabilities;

    /// Whether values move to and from memory of `device` without passing through host memory. If so, all reads into a
    /// sink of that device end as [`ReadOutcome::OnDevice`].
    fn is_on(&self, device: Device) -> bool;

    /// Tries to lock the node at a prefix, without waiting. The lock excludes all other callers of this method, even in
    /// other processes. Writes do not check it.
    ///
    /// # Errors
    /// `KeyInvalid`; what the store reports.
    fn try_lock(&self, prefix: &Key) -> Result<Lock>;

    /// The store that contains this one, and this store's prefix in it: the parent of a directory, the bucket of a
    /// prefix. `None` if the store cannot know.
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
