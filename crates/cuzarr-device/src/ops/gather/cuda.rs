//! Launches the kernels of `gather.cu`, which read and write elements at indices along a dimension.

use crate::array::ndbuffer::NdBuffer;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::memory::pool;
use crate::ops::gather::{Listed, Written};
use crate::ops::launch::{blocks, sized_kernel, threads, unit_bytes, upload_table};
use crate::ops::lines::Lines;
use crate::stream::Stream;

static GATHER: KernelSource = KernelSource { name: "gather", text: include_str!("gather.cu"), headers: &[] };

/// Fills `gathered` with the packed elements at packed indices, and waits for the stream. Returns an index that is out
/// of range, if there is one. `gathered` must not be empty.
pub(super) fn gather(
    packed: &NdBuffer,
    indices: &NdBuffer,
    gathered: &NdBuffer,
    of: Listed,
    stream: &Stream,
) -> Result<Option<i64>> {
    let size = packed.dtype().size_bytes();
    // The largest unit that divides the element size and both addresses.
    let unit = unit_bytes(size | packed.address() | gathered.address());
    let kernel = sized_kernel(&GATHER, stream.device(), "gather", unit)?;
    let outside = upload_table(&[0; size_of::<i64>()], stream)?;
    let threads = threads(stream.device());
    let grid = blocks(&kernel, (gathered.len() as u64).div_ceil(threads.into()));
    let units = (size / unit) as u64;
    let arguments = (packed.address(), indices.address(), gathered.address(), outside.address(), of, units);
    let memory = [packed.buffer(), indices.buffer(), gathered.buffer(), &outside];
    // SAFETY: the parameters of gather. The shapes in `of` are those of the three arrays, and an element has `units`
    // units. The kernel reads an element only after it compared the index with the extent.
    unsafe { kernel.launch(stream, grid, threads, arguments, &memory) }?;
    let mut found = [0; size_of::<i64>()];
    stream.d2h(&outside, &mut found)?;
    Ok(Some(i64::from_ne_bytes(found)).filter(|&index| index != 0))
}

/// Writes packed values to elements of `lines`, an array of three dimensions, at packed indices along the second one.
/// Waits for the stream. If an index is out of range, returns it and writes nothing. All extents must be at least 1.
pub(super) fn scatter(lines: &NdBuffer, indices: &NdBuffer, values: &NdBuffer, stream: &Stream) -> Result<Option<i64>> {
    let (size, shape) = (lines.dtype().size_bytes(), lines.shape());
    let strides = [0, 1, 2].map(|axis: usize| lines.strides()[axis] as i64);
    let extents = Lines { outer: shape[0] as u64, extent: shape[1] as u64, inner: shape[2] as u64 };
    let of = Written { lines: extents, listed: indices.len() as u64, strides };
    // The largest unit that divides the element size, both addresses and all strides.
    let steps = strides.iter().fold(0, |all, &stride| all | stride as usize);
    let unit = unit_bytes(size | lines.address() | values.address() | steps);
    let outside = upload_table(&[0; size_of::<i64>()], stream)?;
    let last = pool::allocate(shape[1] * size_of::<u64>(), stream)?;
    stream.memset(&last, 0)?;
    let threads = threads(stream.device());
    let kernel = GATHER.kernel(stream.device(), "gather_last")?;
    let grid = blocks(&kernel, of.listed.div_ceil(threads.into()));
    let arguments = (indices.address(), last.address(), outside.address(), of.listed, extents.extent);
    // SAFETY: the parameters of gather_last; `last` has a word for each element of a line.
    unsafe { kernel.launch(stream, grid, threads, arguments, &[indices.buffer(), &last, &outside]) }?;
    let mut found = [0; size_of::<i64>()];
    stream.d2h(&outside, &mut found)?;
    if let Some(index) = Some(i64::from_ne_bytes(found)).filter(|&index| index != 0) {
        return Ok(Some(index));
    }
    let kernel = sized_kernel(&GATHER, stream.device(), "scatter", unit)?;
    let grid = blocks(&kernel, (values.len() as u64).div_ceil(threads.into()));
    let arguments = (values.address(), indices.address(), last.address(), lines.address(), of, (size / unit) as u64);
    let memory = [values.buffer(), indices.buffer(), &last, lines.buffer()];
    // SAFETY: the parameters of scatter. The extents and strides in `of` are those of the lines, and gather_last found
    // no index outside of them. The packed values have an element for each index of each line; the last argument is its
    // number of units.
    unsafe { kernel.launch(stream, grid, threads, arguments, &memory) }?;
    stream.synchronize()?;
    Ok(None)
}
