//! Data that all chunks of one write share, and the description of a chunk that is to be encoded.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuzarr_device::Buffer;
use cuzarr_device::internal::Reader;

use crate::codec::{Location, VariableElements};
use crate::error::Result;
use crate::plan::{Spacing, Touched, WritePlan};
use crate::run::context::{CallArray, Context};
use crate::run::write::place::Place;

/// Data that all chunks of one write share, such as the plan, the fill value, and chunks that only hold the fill value.
pub(crate) struct Writing {
    pub(crate) call: Arc<Context>,
    pub(crate) array: CallArray,
    pub(crate) plan: WritePlan,
    /// Where the elements of a chunk lie in the caller's elements and in the packed chunk.
    pub(crate) spacing: Spacing,
    pub(crate) fill: Vec<u8>,
    /// One element with the fill value, in the form in which chunks are encoded.
    pub(crate) packed_fill: MadeOnce,
    /// By chunk shape, packed chunks whose elements all have the fill value.
    pub(crate) blanks: Mutex<HashMap<Vec<u64>, Arc<MadeOnce>>>,
    pub(crate) write_empty: bool,
    /// Maximum size in bytes of a chunk whose elements have variable length.
    pub(crate) variable_limit_bytes: u64,
    /// Number of chunks that threads are encoding now, or will encode.
    pub(crate) submitted: AtomicUsize,
    /// Objects that another writer changed after their old bytes were read. They must be written again.
    pub(crate) lost: Arc<Mutex<Vec<Touched>>>,
}

/// Bytes that all chunks of a write use, and that the first thread that needs them makes. Other threads wait for them.
#[derive(Default)]
pub(crate) struct MadeOnce {
    bytes: OnceLock<Arc<Vec<u8>>>,
    making: Mutex<()>,
}

impl MadeOnce {
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(Arc::clone(bytes));
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.bytes.get() {
            Some(bytes) => Ok(Arc::clone(bytes)),
            None => make().map(|bytes| Arc::clone(self.bytes.get_or_init(|| Arc::new(bytes)))),
        }
    }
}

/// An innermost chunk that a write must encode, and the object or shard that gets its bytes.
pub(crate) struct Leaf {
    pub(crate) chunk: Touched,
    pub(crate) place: Place,
}

/// The checksum of a frame, and where it is stored: before the frame or after it.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    pub(crate) checksum: u32,
    pub(crate) location: Location,
}

/// The new elements of a chunk, in one of the forms in which threads of the host receive them.
pub(crate) enum LeafValue {
    /// Elements in host memory, in the shape of the chunk's part of the selection. With index lists, all elements of
    /// the call.
    Elements(Reader),
    /// A whole chunk, packed, in host memory.
    Packed(Buffer),
    /// A whole chunk that a device encoded, in host memory. The checksum is set if the device computed it. Codecs that
    /// run after the device's are still to be applied.
    Frame(Buffer, Option<Seal>),
    /// A whole chunk that only holds the fill value and is not stored.
    Blank,
    /// All elements of the write call, which have variable length; the thread takes those of the chunk.
    Variable(Arc<VariableElements>),
}
