//! Launches the kernels of `nonzero.cu`, which find the true elements of a mask. Arguments were checked by the public
//! function (`crate::ops::nonzero`).

use crate::array::elements::bytes_of;
use crate::array::ndbuffer::NdBuffer;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::kernel::{WARP, defined};
use crate::memory::buffer::Buffer;
use crate::memory::pool;
use crate::ops::launch::{blocks, threads, upload_table};
use crate::stream::Stream;

const TEXT: &str = include_str!("nonzero.cu");

/// Bytes of the mask that a warp searches at once.
const TILE_BYTES: u32 = defined(TEXT, "TILE_BYTES");

static NONZERO: KernelSource = KernelSource { name: "nonzero", text: TEXT, headers: &[] };

/// Returns the positions of the bytes of a packed mask that are not 0, 8 bytes each, in device memory. Waits for the
/// stream.
pub(super) fn nonzero(mask: &NdBuffer, stream: &Stream) -> Result<Buffer> {
    let size = mask.len() as u64;
    let tiles = size.div_ceil(TILE_BYTES.into());
    let counts = pool::allocate(tiles as usize * size_of::<u32>(), stream)?;
    let threads = threads(stream.device());
    let count = NONZERO.kernel(stream.device(), "nonzero_count")?;
    let grid = blocks(&count, tiles.div_ceil(u64::from(threads / WARP)));
    let arguments = (mask.address(), size, counts.address());
    // SAFETY: the parameters of nonzero_count; the mask has `size` bytes, and there is a count for each tile of them.
    unsafe { count.launch(stream, grid, threads, arguments, &[mask.buffer(), &counts]) }?;
    let mut bytes = vec![0u8; counts.size_bytes()];
    stream.d2h(&counts, &mut bytes)?;
    let mut total = 0u64;
    let counts = bytes.chunks_exact(4).map(|count| count.try_into().map_or(0, u32::from_ne_bytes));
    let starts: Vec<u64> = counts
        .map(|count| {
            total += u64::from(count);
            total - u64::from(count)
        })
        .collect();
    let numbers = pool::allocate(total as usize * size_of::<u64>(), stream)?;
    if total == 0 {
        return Ok(numbers);
    }
    let starts = upload_table(bytes_of(&starts), stream)?;
    let write = NONZERO.kernel(stream.device(), "nonzero_write")?;
    let arguments = (mask.address(), size, starts.address(), numbers.address());
    // SAFETY: the parameters of nonzero_write; `numbers` has room for all that were counted, and there is a start for each tile.
    unsafe { write.launch(stream, grid, threads, arguments, &[mask.buffer(), &starts, &numbers]) }?;
    stream.synchronize()?;
    Ok(numbers)
}
