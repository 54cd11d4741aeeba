//! Launches the kernels of `count.cu`, which count elements by their values.

use std::ops::Range;

use cuzarr_device::internal::defined;
use cuzarr_device::{Buffer, Device, Header, KernelSource, Stream, header};

use super::{Bins, Counter, Keys};
use crate::reduce::view::Walk;
use cuzarr::Result;

const COUNT_TEXT: &str = include_str!("count.cu");
const HEADERS: &[Header] = &[header!("program/arithmetic.cuh"), header!("count/keys.cuh")];
static COUNT: KernelSource = KernelSource { name: "count", text: COUNT_TEXT, headers: &[HEADERS] };

/// Largest number of dimensions that the result of a count may have, and that may be counted over.
pub(super) const MOST_AXES: usize = defined(COUNT_TEXT, "CUZARR_COUNT_AXES") as usize;
const THREADS: u32 = 256;
/// Least number of elements that a GPU thread should count, since every block has a table to clear and to add.
const THREAD_ELEMS: u64 = 64;
/// Number of blocks that run at the same time on a multiprocessor, given their shared memory.
const BLOCKS_EACH: u64 = 6;
/// Number of blocks that are launched for each multiprocessor if there are few bins. Some wait for others, so there are
/// more than run at the same time.
const BIN_BLOCKS_EACH: u64 = 16;
/// Largest number of bins of one result element that a block of threads counts in shared memory: `CUZARR_FEW_BINS`.
const FEW_BINS: usize = defined(COUNT_TEXT, "CUZARR_FEW_BINS") as usize;

/// How a kernel maps elements to keys: the struct `Keys` of keys.cuh, in the same memory layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KeyWords {
    infinity: u64,
    kind: u32,
    bits: u32,
}

impl KeyWords {
    pub(crate) fn of(keys: Keys) -> KeyWords {
        KeyWords { infinity: keys.infinity, kind: keys.kind as u32, bits: keys.bits }
    }

    /// Returns the struct's bytes as a kernel reads them.
    pub(crate) fn bytes(self) -> Vec<u8> {
        [&self.infinity.to_ne_bytes()[..], &self.kind.to_ne_bytes(), &self.bits.to_ne_bytes()].concat()
    }
}

/// The parameters of a kernel that counts elements: the struct `Job` of count.cu, in the same memory layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct CountJob {
    origin: u64,
    first_output: u64,
    outputs: u64,
    reduced: u64,
    kept_shape: [u64; MOST_AXES],
    over_shape: [u64; MOST_AXES],
    kept_strides: [i64; MOST_AXES],
    over_strides: [i64; MOST_AXES],
    keys: KeyWords,
    counters: u64,
    table: u64,
    edges: u64,
    kept_axes: u32,
    over_axes: u32,
    is_across: u32,
    intervals: u32,
    shift: u32,
    bits: u32,
    first_edge: f64,
    bins_per_unit: f64,
}

/// A GPU's counters, and the edges or intervals that decide which counter an element belongs to.
pub(super) struct Tables {
    counters: Buffer,
    table: Buffer,
}

impl Tables {
    pub(super) fn new(bins: &Bins, outputs: usize, stream: &Stream) -> Result<Tables> {
        let device = stream.device();
        let words = match bins {
            Bins::Edges(edges) => edges,
            Bins::Digits { lows, .. } => lows,
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let counters = Buffer::zeroed(device, outputs * (bins.counters() + 1) * size_of::<u64>())?;
        Ok(Tables { counters, table: Buffer::from_bytes(device, &bytes)? })
    }

    pub(super) fn counters(&self, stream: &Stream) -> Result<Vec<u64>> {
        stream.synchronize()?;
        let bytes = self.counters.to_vec()?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect())
    }
}

/// Counts on the GPU the input elements that belong to the result elements `outputs`. There are as many results as
/// `tables` has room for.
pub(super) fn add(counter: &Counter<'_>, outputs: Range<usize>, tables: &Tables, stream: &Stream) -> Result<()> {
    let Counter { source, view, keys, bins } = *counter;
    let all = outputs.len() as u64 * view.reduced as u64;
    if all == 0 {
        return Ok(());
    }
    let (edges, intervals, shift, bits) = match bins {
        Bins::Edges(edges) => (edges.len() as u64, 0, 0, 0),
        Bins::Digits { intervals, shift, bits, .. } => (0, *intervals as u32, *shift, *bits),
    };
    let (first_edge, bins_per_unit, are_few) = match bins {
        Bins::Edges(edges) if outputs.len() == 1 && edges.len() <= FEW_BINS + 1 => {
            let [first, last] = [edges[0], edges[edges.len() - 1]].map(|edge| keys.about(edge));
            (first, (edges.len() - 1) as f64 / (last - first), true)
        }
        _ => (0.0, 0.0, false),
    };
    let (kept_shape, kept_strides) = axes(&view.kept);
    let (over_shape, over_strides) = axes(&view.over);
    let job = CountJob {
        origin: source.address() as u64,
        first_output: outputs.start as u64,
        outputs: outputs.len() as u64,
        reduced: view.reduced as u64,
        kept_shape,
        over_shape,
        kept_strides,
        over_strides,
        keys: KeyWords::of(keys),
        counters: tables.counters.address() as u64,
        table: tables.table.address() as u64,
        edges,
        kept_axes: view.kept.shape.len() as u32,
        over_axes: view.over.shape.len() as u32,
        is_across: u32::from(view.is_across()),
        intervals,
        shift,
        bits,
        first_edge,
        bins_per_unit,
    };
    let name = if are_few { "count_bins" } else { "count" };
    let kernel = COUNT.kernel(stream.device(), &format!("{name}_u{}", keys.bits))?;
    let (threads, most) = match stream.device() {
        Device::Simt => (32, 2),
        _ => (THREADS, u64::from(kernel.multiprocessors()) * if are_few { BIN_BLOCKS_EACH } else { BLOCKS_EACH }),
    };
    let blocks = all.div_ceil(u64::from(threads) * THREAD_ELEMS).min(most) as u32;
    // SAFETY: the parameter is that of count_T. `View::new` made the walk of the source, whose constructor checked that
    // all elements lie in its memory. `Tables::new` made the counters for the outputs and bins, and their table;
    // `Counting` uses no others.
    unsafe { kernel.launch(stream, blocks, threads, (job,), &[source.buffer(), &tables.counters, &tables.table]) }?;
    Ok(())
}

fn axes(walk: &Walk) -> ([u64; MOST_AXES], [i64; MOST_AXES]) {
    let (mut shape, mut strides) = ([1; MOST_AXES], [0; MOST_AXES]);
    for (axis, (&extent, &stride)) in walk.shape.iter().zip(&walk.strides).enumerate().take(MOST_AXES) {
        (shape[axis], strides[axis]) = (extent as u64, stride as i64);
    }
    (shape, strides)
}

#[cfg(test)]
mod tests {
    use super::HEADERS;
    use crate::program::cuda::check_headers;

    #[test]
    fn kernels_have_the_headers_that_theirs_include() {
        check_headers("count/keys.cuh", HEADERS);
        check_headers("program/arithmetic.cuh", HEADERS);
    }
}
