//! Launches of `gather.cu`.

use crate::array::ndbuffer::NdBuffer;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::ops::gather::Listed;
use crate::ops::launch::{blocks, sized_kernel, threads, upload_table};
use crate::stream::Stream;

static GATHER: KernelSource = KernelSource { name: "gather", text: include_str!("gather.cu"), headers: &[] };

/// Bytes of the largest unit.
const MOST_UNIT_BYTES: usize = 16;

/// Fills `gathered`, which has at least one element, from packed elements by packed indices, and waits for that. Returns an index
/// that lies outside, if there is one.
pub(super) fn gather(
    packed: &NdBuffer,
    indices: &NdBuffer,
    gathered: &NdBuffer,
    of: Listed,
    stream: &Stream,
) -> Result<Option<i64>> {
    let size = packed.dtype().size_bytes();
    // Elements and both addresses are multiples of the unit.
    let unit = 1 << (size | packed.address() | gathered.address() | MOST_UNIT_BYTES).trailing_zeros();
    let kernel = sized_kernel(&GATHER, stream.device(), "gather", unit)?;
    let outside = upload_table(&[0; size_of::<i64>()], stream)?;
    let threads = threads(stream.device());
    let grid = blocks(&kernel, (gathered.len() as u64).div_ceil(threads.into()));
    let units = (size / unit) as u64;
    let arguments = (packed.address(), indices.address(), gathered.address(), outside.address(), of, units);
    let memory = [packed.buffer(), indices.buffer(), gathered.buffer(), &outside];
    // SAFETY: the parameters of gather; the shapes in `of` are those of the three arrays, whose elements have so many units, and the
    // kernel reads no element whose index it has not compared with the extent.
    unsafe { kernel.launch(stream, grid, threads, arguments, &memory) }?;
    let mut found = [0; size_of::<i64>()];
    stream.d2h(&outside, &mut found)?;
    Ok(Some(i64::from_ne_bytes(found)).filter(|&index| index != 0))
}
