//! The size of a chunk between codecs, as far as metadata determines it.

/// A size in bytes, exact or bounded, as far as metadata determines it. It never comes from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The data has exactly this number of bytes.
    Exact(u64),
    /// The data has at most this number of bytes.
    AtMost(u64),
    /// Metadata sets no bound, as for variable-length elements.
    Unknown,
}

/// The largest assumed ratio of encoded bytes to the bytes of the elements, after any number of compressors.
const MOST_GROWTH: u64 = 4;

impl Size {
    /// The maximum number of bytes that data of this size may have; `None` if metadata sets no bound.
    pub fn bound(self) -> Option<u64> {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => Some(bytes),
            Size::Unknown => None,
        }
    }

    /// Returns the exact number of bytes, if it is known and fits a `usize`.
    pub(crate) fn exact(self) -> Option<usize> {
        match self {
            Size::Exact(bytes) => usize::try_from(bytes).ok(),
            Size::AtMost(_) | Size::Unknown => None,
        }
    }

    /// This size plus `extra` bytes.
    pub fn plus(self, extra: u64) -> Size {
        match self {
            Size::Exact(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::Exact),
            Size::AtMost(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::AtMost),
            Size::Unknown => Size::Unknown,
        }
    }

    /// Limits this size to a few times `serialized`, the size of the chain's elements. Each compressor adds room for
    /// growth to the bound, but real bytes do not grow like that.
    pub(crate) fn within(self, serialized: Size) -> Size {
        match (self, serialized.bound()) {
            (Size::AtMost(bytes), Some(serialized)) => {
                Size::AtMost(bytes.min(serialized.saturating_mul(MOST_GROWTH).saturating_add(1 << 20)))
            }
            _ => self,
        }
    }

    /// The maximum size that any compressor makes of data of this size, with room for stored blocks, flushes and small
    /// blocks.
    pub fn compressed(self) -> Size {
        match self.bound().and_then(|bytes| bytes.checked_mul(2)?.checked_add(1 << 16)) {
            Some(bytes) => Size::AtMost(bytes),
            None => Size::Unknown,
        }
    }
}
