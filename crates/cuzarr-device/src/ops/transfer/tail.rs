//! Tails: how decoded elements are packed, and the steps that change the elements on the way to an nd-buffer and back.

use std::borrow::Cow;

use crate::array::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::step::{ElementStep, check_steps};

/// The way in which a chunk's elements are packed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// The elements lie one after the other, without gaps and not shuffled.
    Plain,
    /// The elements are byte-shuffled as by numcodecs and HDF5: first the first bytes of all units, then all second
    /// bytes, and so on. Bytes that do not fill a unit follow unchanged. The unit may differ from the element.
    Shuffled {
        /// Size of a shuffled unit in bytes.
        unit_bytes: usize,
    },
    /// Each element is one bit, most significant bit first like `numpy.packbits`. For bool only.
    Bits,
}

/// How decoded elements are packed in memory, and the steps that change the elements on the way to an nd-buffer and
/// back.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// How elements are packed in memory.
    pub packing: Packing,
    /// Type of the elements in packed memory, except its byte order.
    pub packed: DType,
    /// The steps that change elements, in the order of reading (packed → nd-buffer).
    pub steps: Vec<ElementStep>,
    /// The steps in the order of writing (nd-buffer → packed), if they are not the inverse of `steps`.
    ///
    /// `None` stands for `steps` backwards, each inverted. A byte swap is its own inverse, and a cast goes the other
    /// way. Addition and subtraction are exchanged, as are multiplication and division. Rounding of either kind is left
    /// out. Codecs that define their encoding differently give the steps here: fixedscaleoffset reads
    /// `x / scale + offset` and writes `round((x - offset) * scale)`, each in the type of NumPy's promotion.
    pub write_steps: Option<Vec<ElementStep>>,
    /// Type of the elements in the nd-buffer.
    pub dtype: DType,
}

impl Tail {
    /// Makes a tail for elements that lie one after the other and move unchanged.
    pub fn plain(dtype: DType) -> Tail {
        Tail { packing: Packing::Plain, packed: dtype, steps: Vec::new(), write_steps: None, dtype }
    }

    /// Whether reads and writes copy elements between packed bytes and the nd-buffer without changing a byte.
    pub fn is_plain(&self) -> bool {
        self.packing == Packing::Plain && self.steps.is_empty() && self.write_steps.as_ref().is_none_or(Vec::is_empty)
    }

    /// The steps in the order of writing: `write_steps`, or the inverse of `steps`.
    pub fn steps_of_writing(&self) -> Cow<'_, [ElementStep]> {
        match &self.write_steps {
            Some(steps) => Cow::Borrowed(steps),
            None => Cow::Owned(self.steps.iter().rev().filter_map(|step| step.inverse()).collect()),
        }
    }

    /// Number of elements in `size_bytes` packed bytes.
    pub fn packed_len(&self, size_bytes: usize) -> usize {
        match (self.packing, self.packed.size_bytes()) {
            (Packing::Bits, _) => size_bytes.saturating_mul(8),
            (_, 0) => isize::MAX as usize,
            (_, element) => size_bytes / element,
        }
    }

    /// Checks that each step takes the element type that the step before gives, in the steps of reads and of writes.
    ///
    /// # Errors
    /// `InvalidArgument` when the types of neighbouring steps differ, a unit is impossible, or the packing does not fit
    /// the type.
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
