//! Launches the kernels of `convert.cu`, which convert elements between types. Arguments were checked by the public
//! function (`crate::ops::convert`).

use crate::array::dtype::{DType, DTypeKind};
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, Result};
use crate::kernel::defined;
use crate::memory::buffer::Buffer;
use crate::ops::convert::{Conversion, Rule, Span};
use crate::ops::launch::{blocks, threads, upload};
use crate::ops::step::cuda::code;
use crate::stream::Stream;

static CONVERT: KernelSource = KernelSource { name: "convert", text: include_str!("convert.cu"), headers: &[] };

/// Number of elements that a GPU thread converts in a tile (the elements that a block of threads handles at once).
const ELEMS_PER_THREAD: usize = defined(CONVERT.text, "CUZARR_CONVERT_ELEMS") as usize;

/// Where one chunk lies in the source and in the target, and the status word in which kernels report its errors.
/// `ConvertSpan` in convert.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConvertEntry {
    src_offset: u64,
    dst_offset: u64,
    status: u32,
    reserved: u32,
}

// `ConvertSpan` in convert.cu, which checks the size, too.
c_layout! { plain ConvertEntry: 24 bytes { src_offset at 0, dst_offset at 8, status at 16, reserved at 20 } }

/// The conversion that a launch does, in the form that kernels read. `ConvertTask` in convert.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConvertTask {
    elems: u64,
    count: u32,
    from: u32,
    to: u32,
    from_bytes: u32,
    to_bytes: u32,
    rule: u32,
    rounding: u32,
    out_of_range: u32,
    offset: u64,
    scale: u64,
    pairs: u32,
    others: u32,
}

// `ConvertTask` in convert.cu, which checks the size, too.
c_layout! {
    ConvertTask: 64 bytes {
        elems at 0, count at 8, from at 12, to at 16, from_bytes at 20, to_bytes at 24, rule at 28, rounding at 32,
        out_of_range at 36, offset at 40, scale at 48, pairs at 56, others at 60,
    }
}

/// An element and its replacement, as bits. `ConvertPair` in convert.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pair {
    key: u64,
    value: u64,
}

// `ConvertPair` in convert.cu, which checks the size, too.
c_layout! { plain Pair: 16 bytes { key at 0, value at 8 } }

/// A table of values to replace, with their replacements.
struct ConvertPairs {
    /// Pairs of an element's bits (the key) and its replacement's bits, sorted by key, each key once. The last two
    /// pairs give the replacement of any zero and of any NaN.
    table: Vec<Pair>,
    /// Number of pairs in `table`, not counting the last two, which are for zero and NaN.
    count: u32,
    /// Whether the last two pairs of `table` apply: bit 0 says that zeros are replaced, bit 1 that NaNs are replaced.
    others: u32,
}

impl ConvertPairs {
    fn new(conversion: &Conversion) -> ConvertPairs {
        let bits = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let mut table: Vec<_> =
            conversion.pairs.iter().map(|(key, value)| Pair { key: bits(key), value: bits(value) }).collect();
        let first = |is: fn(u64, DType) -> bool| table.iter().find(|pair| is(pair.key, conversion.from)).copied();
        let others = [first(is_zero), first(is_nan)];
        // Of pairs with the same key, the first counts.
        table.sort_by_key(|pair| pair.key);
        table.dedup_by_key(|pair| pair.key);
        let count = table.len() as u32;
        table.extend(others.map(|other| other.unwrap_or(Pair { key: 0, value: 0 })));
        ConvertPairs { table, count, others: u32::from(others[0].is_some()) | u32::from(others[1].is_some()) << 1 }
    }
}

/// The bits of an element without its sign bit, and the bits of infinity in its type; `None` for integers.
fn magnitude(bits: u64, dtype: DType) -> Option<(u64, u64)> {
    let infinity = match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::BFloat, _) => 0x7f80,
        (DTypeKind::Float, 2) => 0x7c00,
        (DTypeKind::Float, 4) => 0x7f80_0000,
        (DTypeKind::Float, 8) => 0x7ff0_0000_0000_0000,
        _ => return None,
    };
    Some((bits & !(1 << (8 * dtype.size_bytes() - 1)), infinity))
}

fn is_zero(bits: u64, dtype: DType) -> bool {
    magnitude(bits, dtype).is_some_and(|(magnitude, _)| magnitude == 0)
}

fn is_nan(bits: u64, dtype: DType) -> bool {
    magnitude(bits, dtype).is_some_and(|(magnitude, infinity)| magnitude > infinity)
}

impl ConvertTask {
    fn new(conversion: &Conversion, pairs: &ConvertPairs, elems: usize, count: u32) -> Result<ConvertTask> {
        let Conversion { from, to, rule, .. } = conversion;
        let mut task = ConvertTask {
            elems: elems as u64,
            count,
            from: code(*from)?.into(),
            to: code(*to)?.into(),
            from_bytes: from.size_bytes() as u32,
            to_bytes: to.size_bytes() as u32,
            rule: 0,
            rounding: 0,
            out_of_range: 0,
            offset: 0,
            scale: 1,
            pairs: pairs.count,
            others: pairs.others,
        };
        match *rule {
            Rule::Cast { rounding, out_of_range } => {
                (task.rounding, task.out_of_range) = (rounding as u32, out_of_range as u32);
            }
            Rule::Unscale { offset, scale } => {
                (task.rule, task.offset, task.scale) = (1, u64::from_ne_bytes(offset), u64::from_ne_bytes(scale));
            }
            Rule::Scale { offset, scale } => {
                (task.rule, task.offset, task.scale) = (2, u64::from_ne_bytes(offset), u64::from_ne_bytes(scale));
            }
        }
        Ok(task)
    }
}

pub(crate) fn convert(
    conversion: &Conversion,
    src: &Buffer,
    dst: &Buffer,
    statuses: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    if spans.is_empty() || elems == 0 {
        return Ok(());
    }
    let entry = |span: &Span| ConvertEntry {
        src_offset: span.src_offset_bytes as u64,
        dst_offset: span.dst_offset_bytes as u64,
        status: span.status,
        reserved: 0,
    };
    let count = u32::try_from(spans.len()).map_err(|_| Error::invalid("one launch has too many chunks"))?;
    let table = upload(&spans.iter().map(entry).collect::<Vec<_>>(), stream)?;
    let kernel = CONVERT.kernel(stream.device(), "convert_checked")?;
    let threads = threads(stream.device());
    let tiles = elems.div_ceil(ELEMS_PER_THREAD * threads as usize) as u64 * u64::from(count);
    let pairs = ConvertPairs::new(conversion);
    let task = ConvertTask::new(conversion, &pairs, elems, count)?;
    // The kernel does not read the pairs if there are none.
    let pairs = if pairs.count == 0 { table.clone() } else { upload(&pairs.table, stream)? };
    let arguments = (src.address(), dst.address(), table.address(), pairs.address(), statuses.address(), task);
    // SAFETY: the parameters of convert_checked; spans were checked to lie in both buffers, and to have a status each; there
    // are as many pairs as the task says, and two behind them.
    unsafe { kernel.launch(stream, blocks(&kernel, tiles), threads, arguments, &[src, dst, &table, &pairs, statuses]) }
}
