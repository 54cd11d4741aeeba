//! Launches of `convert.cu`. Arguments were checked by the public function (`crate::convert`).

use super::launch::{Plain, blocks, threads, upload};
use super::steps::code;
use crate::buffer::Buffer;
use crate::convert::{Conversion, MAX_PAIRS, Rule, Span};
use crate::error::{Error, Result};
use crate::kernel::KernelSource;
use crate::stream::Stream;

static CONVERT: KernelSource = KernelSource { name: "convert", text: include_str!("../../kernels/convert.cu") };

/// Elements of a thread in a tile, as in convert.cu.
const ELEMS_PER_THREAD: usize = 8;

/// `ConvertSpan` in convert.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    src_offset: u64,
    dst_offset: u64,
    status: u32,
    reserved: u32,
}

// SAFETY: every gap is a named, initialised field.
unsafe impl Plain for Entry {}

/// `ConvertTask` in convert.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Task {
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
    reserved: u32,
    keys: [u64; MAX_PAIRS],
    values: [u64; MAX_PAIRS],
}

impl Task {
    fn new(conversion: &Conversion, elems: usize, count: u32) -> Result<Task> {
        let Conversion { from, to, rule, pairs } = conversion;
        let mut task = Task {
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
            pairs: pairs.len() as u32,
            reserved: 0,
            keys: [0; MAX_PAIRS],
            values: [0; MAX_PAIRS],
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
        for (at, (key, value)) in pairs.iter().enumerate() {
            (task.keys[at], task.values[at]) = (u64::from_ne_bytes(*key), u64::from_ne_bytes(*value));
        }
        Ok(task)
    }
}

pub(crate) fn convert(
    conversion: &Conversion,
    [src, dst, statuses]: [&Buffer; 3],
    (spans, elems): (&[Span], usize),
    stream: &Stream,
) -> Result<()> {
    if spans.is_empty() || elems == 0 {
        return Ok(());
    }
    let entry = |span: &Span| Entry {
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
    let task = Task::new(conversion, elems, count)?;
    let arguments = (src.address(), dst.address(), table.address(), statuses.address(), task);
    // SAFETY: the parameters of convert_checked; spans were checked to lie in both buffers, and to have a status each.
    unsafe { kernel.launch(stream, blocks(&kernel, tiles), threads, arguments, &[src, dst, &table, statuses]) }
}
