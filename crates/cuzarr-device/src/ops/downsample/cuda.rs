//! Launches of `downsample.cu`. Arguments were checked by the public function (`crate::ops::downsample`).

use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::ops::downsample::Downsampling;
use crate::ops::launch::{blocks, threads, upload};
use crate::stream::Stream;

static DOWNSAMPLE: KernelSource =
    KernelSource { name: "downsample", text: include_str!("downsample.cu"), headers: &[] };

/// One dimension. `Axis` in downsample.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Axis {
    src_extent: u64,
    dst_extent: u64,
    factor: u64,
    src_stride: u64,
}

// `Axis` in downsample.cu, which states the size, too.
c_layout! { plain Axis: 32 bytes { src_extent at 0, dst_extent at 8, factor at 16, src_stride at 24 } }

/// Fills `dst` from `src`, both packed in C order, in stream order.
pub(crate) fn downsample(
    src: &NdBuffer,
    dst: &NdBuffer,
    factors: &[usize],
    method: Downsampling,
    stream: &Stream,
) -> Result<()> {
    let mut stride = 1u64;
    let mut axes: Vec<Axis> = (0..src.ndim())
        .rev()
        .map(|dim| {
            let (src_extent, dst_extent) = (src.shape()[dim] as u64, dst.shape()[dim] as u64);
            let axis = Axis { src_extent, dst_extent, factor: factors[dim] as u64, src_stride: stride };
            stride *= src_extent;
            axis
        })
        .collect();
    axes.reverse();
    let ndim = axes.len() as u32;
    if axes.is_empty() {
        axes.push(Axis { src_extent: 1, dst_extent: 1, factor: 1, src_stride: 1 });
    }
    let table = upload(&axes, stream)?;
    let kernel = DOWNSAMPLE.kernel(stream.device(), &format!("downsample_{}", src.dtype()))?;
    let (count, threads) = (dst.len() as u64, threads(stream.device()));
    let grid = blocks(&kernel, count.div_ceil(u64::from(threads)));
    let arguments = (src.address(), dst.address(), table.address(), ndim, count, method as u32);
    // SAFETY: the parameters of downsample_T; every box lies inside the source, whose extents the table has.
    unsafe { kernel.launch(stream, grid, threads, arguments, &[src.buffer(), dst.buffer(), &table]) }
}
