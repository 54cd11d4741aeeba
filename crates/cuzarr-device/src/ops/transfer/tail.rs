//! The steps that packed elements go through on their way to an nd-buffer, and back.

use std::borrow::Cow;

use crate::array::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::step::{ElementStep, check_steps};

/// How packed bytes become elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Element after element.
    Plain,
    /// Byte-shuffled as by numcodecs' and HDF5's shuffle: first all first bytes of `unit_bytes`-sized units, then all
    /// second bytes, …; bytes that do not fill a unit follow unchanged. The unit need not be the element.
    Shuffled {
        /// Bytes of a shuffled unit.
        unit_bytes: usize,
    },
    /// One bit an element, bool only: most significant bit first as numpy.packbits.
    Bits,
}

/// The steps that elements go through between packed memory and an nd-buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// How elements lie in packed memory.
    pub packing: Packing,
    /// Element type in packed memory (byte order aside).
    pub packed: DType,
    /// Steps in the order of reading.
    pub steps: Vec<ElementStep>,
    /// Steps in the order of writing (nd-buffer → packed), where they are not the plain inverse of `steps`.
    ///
    /// `None` takes `steps` backwards, each inverted: a byte swap is its own inverse, a cast goes the other way, adding
    /// and subtracting, multiplying and dividing change places, and rounding of either kind is left out. Codecs that define their
    /// encoding differently state it: fixedscaleoffset reads `x / scale + offset` and writes
    /// `round((x - offset) * scale)`, each in the type that NumPy's promotion gives.
    pub write_steps: Option<Vec<ElementStep>>,
    /// Element type in the nd-buffer.
    pub dtype: DType,
}

impl Tail {
    /// Elements that are moved as they are.
    pub fn plain(dtype: DType) -> Tail {
        Tail { packing: Packing::Plain, packed: dtype, steps: Vec::new(), write_steps: None, dtype }
    }

    /// Whether packed bytes are the nd-buffer's bytes, both ways.
    pub fn is_plain(&self) -> bool {
        self.packing == Packing::Plain && self.steps.is_empty() && self.write_steps.as_ref().is_none_or(Vec::is_empty)
    }

    /// The steps of writing: `write_steps`, or the inverse of `steps`.
    pub fn steps_of_writing(&self) -> Cow<'_, [ElementStep]> {
        match &self.write_steps {
            Some(steps) => Cow::Borrowed(steps),
            None => Cow::Owned(self.steps.iter().rev().filter_map(|step| step.inverse()).collect()),
        }
    }

    /// How many elements `size_bytes` packed bytes hold.
    pub fn packed_len(&self, size_bytes: usize) -> usize {
        match (self.packing, self.packed.size_bytes()) {
            (Packing::Bits, _) => size_bytes.saturating_mul(8),
            (_, 0) => isize::MAX as usize,
            (_, element) => size_bytes / element,
        }
    }

    /// Checks that every step fits the one before, in both directions.
    ///
    /// # Errors
    /// `InvalidArgument` when the types do not join up, a unit is not possible, or the packing does not suit the type.
    pub fn check(&self) -> Result<()> {
        match self.packing {
            Packing::Bits if self.packed != DType::BOOL => {
                return Err(Error::invalid(format!("packed bits hold bool, not {}", self.packed)));
            }
            Packing::Shuffled { unit_bytes: 0 } => return Err(Error::invalid("cannot shuffle units of 0 bytes")),
            _ => (),
        }
        check_steps(&self.steps, self.packed, self.dtype)?;
        check_steps(&self.steps_of_writing(), self.dtype, self.packed)
    }
}
