//! Boxes of elements between packed memory (decoded chunks) and an nd-buffer, changing the elements on the way.
//!
//! This is the last step of every read and the first of every write. A [`Tail`] says what a packed element goes through;
//! the boxes say from where to where. All boxes of one transfer share the tail and the packed strides, so one kernel
//! launch moves thousands of chunks. The same tail runs on the CPU and on GPUs, with the same result, bit for bit.

use crate::dtype::DType;

/// One step of arithmetic, done in the element type that is current at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// `x + operand`
    Add,
    /// `x - operand`
    Subtract,
    /// `x * operand`
    Multiply,
    /// `x / operand`; for integers the quotient is truncated toward zero.
    Divide,
    /// `round_half_even(x)`, floats only; the operand is not used.
    Round,
}

/// What happens to one element on its way. Steps are listed in the order of reading (packed → nd-buffer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementStep {
    /// Reverses the bytes of every unit of `unit_bytes` (2, 4, 8 or 16) in the element.
    SwapBytes {
        /// Bytes that are reversed together.
        unit_bytes: usize,
    },
    /// Converts as NumPy's `astype` does on x86-64, for NaN and out-of-range values too.
    Cast {
        /// Type before.
        from: DType,
        /// Type after.
        to: DType,
    },
    /// Arithmetic in `dtype` with a constant, given as the bits of that type in the low bytes.
    Arithmetic {
        /// What to do.
        operation: Arithmetic,
        /// In which type: an integer or float type of 1 to 8 bytes.
        dtype: DType,
        /// The constant's bytes, native order, zero-padded.
        operand: [u8; 8],
    },
}

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

/// What packed elements go through between packed memory and an nd-buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// How elements lie in packed memory.
    pub packing: Packing,
    /// Element type in packed memory (byte order aside).
    pub packed: DType,
    /// Steps in the order of reading.
    pub steps: Vec<ElementStep>,
    /// Element type in the nd-buffer.
    pub dtype: DType,
}

impl Tail {
    /// Elements that are moved as they are.
    pub fn plain(dtype: DType) -> Tail {
        Tail { packing: Packing::Plain, packed: dtype, steps: Vec::new(), dtype }
    }

    /// Whether packed bytes are the nd-buffer's bytes.
    pub fn is_plain(&self) -> bool {
        self.packing == Packing::Plain && self.steps.is_empty()
    }
}

/// One box to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferBox {
    /// Where the chunk's packed bytes begin in the packed buffer.
    pub packed_offset_bytes: usize,
    /// How many packed bytes the chunk has.
    pub packed_size_bytes: usize,
    /// Index, in the packed chunk, of the box's first element.
    pub packed_first_elem: usize,
    /// Where the box begins in the nd-buffer, per dimension.
    pub start: Vec<usize>,
    /// Elements per dimension.
    pub extent: Vec<usize>,
}

/// Many boxes between packed chunks of one kind and one nd-buffer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// What the elements go through.
    pub tail: Tail,
    /// Elements between neighbours in a packed chunk, per dimension of the nd-buffer (selection steps and transposed
    /// axes included).
    pub packed_strides: Vec<isize>,
    /// The boxes; those of one transfer do not overlap in the nd-buffer.
    pub boxes: Vec<TransferBox>,
}
