//! Checked conversions between element types, for whole chunks in device memory. If the new type cannot hold a number,
//! the number's position is reported.
//!
//! NumPy's `astype` never refuses a number; it is a step of a [`crate::Tail`] instead.

pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::ops::launch::require_statuses;
use crate::stream::Stream;

/// How a value between two representable values is rounded. In the order of convert.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds to the nearer of the two values; halfway, to the even one.
    NearestEven,
    /// Rounds to the value that is nearer to zero.
    TowardsZero,
    /// Rounds up, to the greater value.
    TowardsPositive,
    /// Rounds down, to the smaller value.
    TowardsNegative,
    /// Rounds to the nearer of the two values; halfway, away from zero.
    NearestAway,
}

/// How a conversion treats values that the target type cannot hold. In the order of convert.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// The value is reported as an error.
    Error,
    /// The value becomes the nearest value of the type; for floats, an infinity.
    Clamp,
    /// Only as many low bits of the value are kept as the target type has. For integers only.
    Wrap,
}

/// How a number of the source becomes a number of the target's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Converts the number, and rounds it if the target type needs that. NaN and infinities cannot become integers.
    Cast {
        /// How to round a number that the target type cannot represent exactly.
        rounding: Rounding,
        /// How to treat a number that the target type cannot hold.
        out_of_range: OutOfRange,
    },
    /// Computes `(x - offset) * scale`, for integers of one type. Results that are out of range are reported.
    Scale {
        /// The number to subtract, as the bits of the integer type.
        offset: [u8; 8],
        /// The number to multiply by, as the bits of the integer type.
        scale: [u8; 8],
    },
    /// Computes `x / scale + offset`, for integers of one type. Remainders and results that are out of range are
    /// reported.
    Unscale {
        /// The number to add, as the bits of the integer type.
        offset: [u8; 8],
        /// The number to divide by, as the bits of the integer type. Not 0.
        scale: [u8; 8],
    },
}

/// Most pairs of an element and its replacement that kernels accept: a table of 1 MiB.
pub const MAX_PAIRS: usize = 1 << 16;

/// How elements of one type become elements of another. `from` and `to` are integer or float types of 1 to 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Type of the elements that are converted.
    pub from: DType,
    /// Type that elements have after the conversion.
    pub to: DType,
    /// The rule for elements that `pairs` does not replace.
    pub rule: Rule,
    /// Elements that are replaced before `rule` is applied: pairs of an element's bits and its replacement's bits.
    /// Elements with equal bits match first, then elements of equal value; NaN matches NaN.
    pub pairs: Vec<([u8; 8], [u8; 8])>,
}

/// Where one chunk lies in the source and in the target, and the status word in which kernels report its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Byte offset of the chunk in the source, a multiple of the element size.
    pub src_offset_bytes: usize,
    /// Byte offset of the chunk in the target, a multiple of the element size.
    pub dst_offset_bytes: usize,
    /// Index of the chunk's word in `statuses`, the buffer in which kernels report the first element that cannot be
    /// converted.
    pub status: u32,
}

/// Whether GPU kernels can do this conversion of elements.
pub fn is_supported(conversion: &Conversion) -> bool {
    let real =
        |dtype: DType| matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat);
    let integer = |dtype: DType| matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt);
    let Conversion { from, to, rule, pairs } = conversion;
    let ruled = match rule {
        Rule::Cast { out_of_range, .. } => *out_of_range != OutOfRange::Wrap || integer(*to),
        Rule::Scale { .. } => integer(*from) && from == to,
        Rule::Unscale { scale, .. } => {
            integer(*from) && from == to && scale[..from.size_bytes()] != [0; 8][..from.size_bytes()]
        }
    };
    real(*from) && real(*to) && ruled && pairs.len() <= MAX_PAIRS
}

/// Converts `elems` elements of each chunk from `src` to `dst`, in stream order. `statuses` must be 0 before. If the
/// new type cannot hold an element, the span's status becomes `CUZARR_NO_VALUE` with the byte offset of the first such
/// element.
///
/// # Errors
/// `Unsupported` for conversions that kernels cannot do; `InvalidArgument` for spans outside the buffers or not
/// aligned; `MemorySpace`, `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
pub fn convert_on(
    conversion: &Conversion,
    src: &Buffer,
    dst: &Buffer,
    statuses: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    if !is_supported(conversion) {
        let (from, to) = (conversion.from, conversion.to);
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("kernels do not convert {from} to {to} by these rules"),
        ));
    }
    if stream.device() == Device::Cpu || [src, dst, statuses].iter().any(|buffer| buffer.device() != stream.device()) {
        let message = format!("cannot convert from {} to {} on {}", src.device(), dst.device(), stream.device());
        return Err(Error::new(ErrorKind::MemorySpace, message));
    }
    dst.require_writable()?;
    require_statuses(statuses)?;
    let fits = |buffer: &Buffer, offset: usize, dtype: DType| {
        let end = elems.checked_mul(dtype.size_bytes()).and_then(|size| size.checked_add(offset));
        end.is_some_and(|end| end <= buffer.size_bytes())
            && (buffer.address() + offset).is_multiple_of(dtype.size_bytes())
    };
    let valid = |span: &Span| {
        fits(src, span.src_offset_bytes, conversion.from)
            && fits(dst, span.dst_offset_bytes, conversion.to)
            && (span.status as usize) < statuses.size_bytes() / size_of::<u64>()
    };
    if let Some(span) = spans.iter().find(|span| !valid(span)) {
        let (from, to) = (src.size_bytes(), dst.size_bytes());
        let message =
            format!("{span:?} of {elems} elements is not aligned, or not inside buffers of {from} and {to} bytes");
        return Err(Error::invalid(message));
    }
    cuda::convert(conversion, src, dst, statuses, spans, elems, stream)
}
