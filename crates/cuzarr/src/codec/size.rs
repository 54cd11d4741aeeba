//! How many bytes a chunk has between codecs, as far as metadata says.

/// A number of bytes as far as metadata tells it. It never comes from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Always this many.
    Exact(u64),
    /// Never more than this.
    AtMost(u64),
    /// Metadata does not bound it (variable-length elements).
    Unknown,
}

/// How many times as large as their elements the bytes behind several compressors may be.
const MOST_GROWTH: u64 = 4;

impl Size {
    /// The bound, if there is one.
    pub fn bound(self) -> Option<u64> {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => Some(bytes),
            Size::Unknown => None,
        }
    }

    /// The exact number, if there is one and memory has room for it.
    pub(crate) fn exact(self) -> Option<usize> {
        match self {
            Size::Exact(bytes) => usize::try_from(bytes).ok(),
            Size::AtMost(_) | Size::Unknown => None,
        }
    }

    /// The size after `extra` more bytes.
    pub fn plus(self, extra: u64) -> Size {
        match self {
            Size::Exact(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::Exact),
            Size::AtMost(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::AtMost),
            Size::Unknown => Size::Unknown,
        }
    }

    /// The size within a chain whose elements have `serialized` bytes. Behind any number of compressors, each with room to
    /// grow, real bytes are only a few times as many.
    pub(crate) fn within(self, serialized: Size) -> Size {
        match (self, serialized.bound()) {
            (Size::AtMost(bytes), Some(serialized)) => {
                Size::AtMost(bytes.min(serialized.saturating_mul(MOST_GROWTH).saturating_add(1 << 20)))
            }
            _ => self,
        }
    }

    /// The size after a general compressor, by any encoder: with room for stored blocks, flushes and small blocks.
    pub fn compressed(self) -> Size {
        match self.bound().and_then(|bytes| bytes.checked_mul(2)?.checked_add(1 << 16)) {
            Some(bytes) => Size::AtMost(bytes),
            None => Size::Unknown,
        }
    }
}
