//! Launches the kernels of `delta.cu`, which compute running sums and differences of chunks. Arguments were checked by
//! the public function (`crate::ops::delta`).

use crate::array::dtype::{DType, DTypeKind};
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, Result};
use crate::kernel::{WARP, defined};
use crate::memory::buffer::Buffer;
use crate::memory::pool;
use crate::ops::delta::Chunk;
use crate::ops::launch::{blocks, sized_kernel, threads, upload};
use crate::ops::step::cuda::code;
use crate::stream::Stream;

static DELTA: KernelSource = KernelSource { name: "delta", text: include_str!("delta.cu"), headers: &[] };

/// Number of bytes of a tile (a part of a chunk) that one warp handles.
const WARP_BYTES: usize = defined(DELTA.text, "CUZARR_DELTA_WARP_BYTES") as usize;

/// Where one chunk lies in the source and in the target. `Chunk` in delta.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeltaEntry {
    src_offset: u64,
    dst_offset: u64,
    bytes: u64,
    first_tile: u32,
    reserved: u32,
}

// `Chunk` in delta.cu, which checks the size, too.
c_layout! { plain DeltaEntry: 32 bytes { src_offset at 0, dst_offset at 8, bytes at 16, first_tile at 24, reserved at 28 } }

/// The chunks of one launch that are not empty, and the number of tiles (parts of chunks) that these chunks have in
/// all.
struct Tiling {
    entries: Vec<DeltaEntry>,
    tiles: u32,
    /// Whether any chunk has more than one tile.
    several: bool,
}

impl Tiling {
    fn new(chunks: &[Chunk], threads: u32) -> Result<Tiling> {
        let too_many = || Error::invalid("the chunks of one launch have too many bytes");
        let tile_bytes = WARP_BYTES * (threads / WARP) as usize;
        let mut tiling = Tiling { entries: Vec::with_capacity(chunks.len()), tiles: 0, several: false };
        for chunk in chunks.iter().filter(|chunk| chunk.size_bytes > 0) {
            tiling.entries.push(DeltaEntry {
                src_offset: chunk.src_offset_bytes as u64,
                dst_offset: chunk.dst_offset_bytes as u64,
                bytes: chunk.size_bytes as u64,
                first_tile: tiling.tiles,
                reserved: 0,
            });
            let more = u32::try_from(chunk.size_bytes.div_ceil(tile_bytes)).map_err(|_| too_many())?;
            tiling.tiles = tiling.tiles.checked_add(more).ok_or_else(too_many)?;
            tiling.several |= more > 1;
        }
        u32::try_from(tiling.entries.len()).map_err(|_| too_many())?;
        Ok(tiling)
    }
}

pub(crate) fn differences(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    let threads = threads(stream.device());
    let Tiling { entries, tiles, .. } = Tiling::new(chunks, threads)?;
    if entries.is_empty() {
        return Ok(());
    }
    let table = upload(&entries, stream)?;
    let kernel = sized_kernel(&DELTA, stream.device(), "delta_differences", dtype.size_bytes())?;
    let code = u32::from(code(dtype)?);
    let arguments = (src.address(), dst.address(), table.address(), entries.len() as u32, tiles, code);
    let grid = blocks(&kernel, tiles.into());
    // SAFETY: the parameters of delta_differences_N; the chunks were checked to lie in both buffers, which are apart.
    unsafe { kernel.launch(stream, grid, threads, arguments, &[src, dst, &table]) }
}

pub(crate) fn accumulate(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    let threads = threads(stream.device());
    let Tiling { entries, tiles, several } = Tiling::new(chunks, threads)?;
    if entries.is_empty() {
        return Ok(());
    }
    let count = entries.len() as u32;
    let table = upload(&entries, stream)?;
    let (from, to, lines) = (src.address(), dst.address(), table.address());
    let chunk_blocks = u64::from(count.div_ceil(threads / WARP));
    if !matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt) {
        let kernel = sized_kernel(&DELTA, stream.device(), "delta_floats", dtype.size_bytes())?;
        let arguments = (from, to, lines, count, u32::from(code(dtype)?));
        // SAFETY: the parameters of delta_floats_N; the chunks were checked to lie in both buffers.
        return unsafe {
            kernel.launch(stream, blocks(&kernel, chunk_blocks), threads, arguments, &[src, dst, &table])
        };
    }
    let totals = pool::allocate(if several { tiles as usize * 8 } else { 1 }, stream)?;
    if several {
        let kernel = sized_kernel(&DELTA, stream.device(), "delta_totals", dtype.size_bytes())?;
        let arguments = (from, lines, count, tiles, totals.address());
        let grid = blocks(&kernel, tiles.into());
        // SAFETY: the parameters of delta_totals_N; there is a total for each tile.
        unsafe { kernel.launch(stream, grid, threads, arguments, &[src, &table, &totals]) }?;
        let kernel = DELTA.kernel(stream.device(), "delta_offsets")?;
        let arguments = (totals.address(), lines, count, tiles);
        // SAFETY: the parameters of delta_offsets; the table has every chunk, and there is a total for each tile.
        unsafe { kernel.launch(stream, blocks(&kernel, chunk_blocks), threads, arguments, &[&table, &totals]) }?;
    }
    let kernel = sized_kernel(&DELTA, stream.device(), "delta_sums", dtype.size_bytes())?;
    let offsets = if several { totals.address() } else { 0 };
    let arguments = (from, to, lines, count, tiles, offsets);
    // SAFETY: the parameters of delta_sums_N; the chunks were checked to lie in both buffers.
    unsafe { kernel.launch(stream, blocks(&kernel, tiles.into()), threads, arguments, &[src, dst, &table, &totals]) }
}
