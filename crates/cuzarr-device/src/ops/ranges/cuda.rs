//! Launches the kernels of `ranges.cu`, which copy ranges of elements between arrays.

use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::kernel::WARP;
use crate::memory::buffer::Buffer;
use crate::ops::launch::{blocks, sized_kernel, threads, unit_bytes, upload};
use crate::ops::ranges::ElementRange;
use crate::stream::Stream;

static RANGES: KernelSource = KernelSource { name: "ranges", text: include_str!("ranges.cu"), headers: &[] };

/// Largest number of units in one piece of a range; one warp copies a piece. Longer ranges are cut, so that many warps
/// share them.
const MOST_PIECE_UNITS: usize = 2048;
/// Largest number of pieces of ranges that one launch copies; more pieces take several launches.
const MOST_PIECES: usize = 1 << 15;

/// A part of a range, which one warp copies: `RangePiece` in ranges.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct RangePiece {
    src: u64,
    dst: u64,
    units: u64,
}

// `RangePiece` in ranges.cu, which checks the size, too.
c_layout! { plain RangePiece: 24 bytes { src at 0, dst at 8, units at 16 } }

/// Copies ranges that were checked to lie in their arrays, and waits for the stream. Elements have at least one byte.
pub(super) fn copy(sources: &[NdBuffer], target: &NdBuffer, ranges: &[ElementRange], stream: &Stream) -> Result<()> {
    let size = target.dtype().size_bytes();
    // The largest unit that divides the element size and all addresses.
    let addresses = sources.iter().fold(target.address(), |all, source| all | source.address());
    let unit = unit_bytes(size | addresses);
    let pieces = |range: &ElementRange| {
        let (src, dst) = (sources[range.source].address() + range.start * size, target.address() + range.target * size);
        let units = range.len * (size / unit);
        (0..units).step_by(MOST_PIECE_UNITS).map(move |first| RangePiece {
            src: (src + first * unit) as u64,
            dst: (dst + first * unit) as u64,
            units: MOST_PIECE_UNITS.min(units - first) as u64,
        })
    };
    let pieces: Vec<RangePiece> = ranges.iter().flat_map(pieces).collect();
    let kernel = sized_kernel(&RANGES, stream.device(), "copy_ranges", unit)?;
    let threads = threads(stream.device());
    let arrays: Vec<&Buffer> = sources.iter().chain([target]).map(NdBuffer::buffer).collect();
    for pieces in pieces.chunks(MOST_PIECES) {
        let table = upload(pieces, stream)?;
        let grid = blocks(&kernel, pieces.len().div_ceil((threads / WARP) as usize) as u64);
        let used: Vec<&Buffer> = arrays.iter().copied().chain([&table]).collect();
        // SAFETY: the parameters of copy_ranges. The table has that many pieces, which lie in the sources and the target.
        unsafe { kernel.launch(stream, grid, threads, (table.address(), pieces.len() as u64), &used) }?;
    }
    stream.synchronize()
}
