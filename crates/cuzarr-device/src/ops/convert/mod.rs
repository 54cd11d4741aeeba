//! Exact conversions of whole chunks in device memory: a number that has no value in the new type is reported, with its
//! place.
//!
//! NumPy's `astype`, which never refuses, is a step of a [`crate::Tail`] instead.

pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::ops::launch::require_statuses;
use crate::stream::Stream;

/// How a value between two representable ones is rounded. In the order of convert.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The nearer one; of two as near, the even one.
    NearestEven,
    /// The one nearer to zero.
    TowardsZero,
    /// The greater one.
    TowardsPositive,
    /// The smaller one.
    TowardsNegative,
    /// The nearer one; of two as near, the one farther from zero.
    NearestAway,
}

/// What becomes of a value that the target cannot hold. In the order of convert.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// It is reported.
    Error,
    /// It becomes the nearest value that there is; of floats, an infinity.
    Clamp,
    /// Its low bits are kept. For integers.
    Wrap,
}

/// The rule by which a number becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The number itself, rounded. NaN and infinities have no integer.
    Cast {
        /// How the number is rounded.
        rounding: Rounding,
        /// What becomes of a number that is out of range.
        out_of_range: OutOfRange,
    },
    /// `(x - offset) * scale` of integers of one type, each given as the bits of that type; a result out of range is reported.
    Scale {
        /// The number that is subtracted.
        offset: [u8; 8],
        /// The factor.
        scale: [u8; 8],
    },
    /// `x / scale + offset` of integers of one type, each given as the bits of that type; a remainder, or a result out of range,
    /// is reported.
    Unscale {
        /// The number that is added.
        offset: [u8; 8],
        /// The divisor; not 0.
        scale: [u8; 8],
    },
}

/// Most pairs that kernels take: a table of 1 MiB.
pub const MAX_PAIRS: usize = 1 << 16;

/// One conversion: `from` and `to` are integers or floats of 1 to 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Type before.
    pub from: DType,
    /// Type after.
    pub to: DType,
    /// The rule for numbers.
    pub rule: Rule,
    /// Elements, by their bits, that become others before anything else: equal bits first, then equal scalars, NaN being NaN.
    pub pairs: Vec<([u8; 8], [u8; 8])>,
}

/// One chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins in the source, at a multiple of an element's size.
    pub src_offset_bytes: usize,
    /// Where it begins in the target, likewise.
    pub dst_offset_bytes: usize,
    /// Index of the status that tells of its first element without a value.
    pub status: u32,
}

/// Whether kernels know the conversion.
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

/// Converts `elems` elements of each span of `src`, in stream order. A status that was 0 and stays so says that all of its
/// span have a value; others hold the byte of the first element that has none.
///
/// # Errors
/// `Unsupported` for other conversions; `InvalidArgument` for spans outside the buffers or between elements; `MemorySpace`,
/// `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
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
