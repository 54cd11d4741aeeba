//! Launches the kernels of `downsample.cu`, which make one element of each box of elements. Arguments were checked by
//! the public function (`crate::ops::downsample`).

use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::ops::downsample::Downsampling;
use crate::ops::launch::{blocks, threads, upload, upload_table};
use crate::stream::Stream;

static DOWNSAMPLE: KernelSource =
    KernelSource { name: "downsample", text: include_str!("downsample.cu"), headers: &[] };

/// One dimension of a downsampled array, in the form that kernels read. `Axis` in downsample.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Axis {
    src_extent: u64,
    dst_extent: u64,
    factor: u64,
    src_stride: u64,
    before: u64,
    reach: u64,
}

// `Axis` in downsample.cu, which checks the size, too.
c_layout! { plain Axis: 48 bytes { src_extent at 0, dst_extent at 8, factor at 16, src_stride at 24, before at 32, reach at 40 } }

/// Fills `dst` with one element for each box of elements of `src`, in stream order. Both must be packed in C order.
pub(crate) fn downsample(
    src: &NdBuffer,
    before: &[usize],
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
            let (factor, before) = (factors[dim] as u64, before[dim] as u64);
            let axis = Axis { src_extent, dst_extent, factor, src_stride: stride, before, reach: method.reach(factor) };
            stride *= src_extent;
            axis
        })
        .collect();
    axes.reverse();
    let ndim = axes.len() as u32;
    if axes.is_empty() {
        axes.push(Axis { src_extent: 1, dst_extent: 1, factor: 1, src_stride: 1, before: 0, reach: 0 });
    }
    let table = upload(&axes, stream)?;
    let (count, threads) = (dst.len() as u64, threads(stream.device()));
    let lines = count.div_ceil(u64::from(threads));
    if method == Downsampling::Gaussian {
        let weights = factors.iter().flat_map(|&factor| method.weights(factor)).flat_map(f64::to_ne_bytes);
        // Tables must not be empty, even for arrays without dimensions.
        let weights = upload_table(&weights.chain([0; 8]).collect::<Vec<u8>>(), stream)?;
        let kernel = DOWNSAMPLE.kernel(stream.device(), &format!("gaussian_{}", src.dtype()))?;
        let arguments = (src.address(), dst.address(), table.address(), weights.address(), ndim, count);
        let memory = [src.buffer(), dst.buffer(), &table, &weights];
        // SAFETY: the parameters of gaussian_T. The table has the source's extents, and the kernel cuts off boxes and
        // their surroundings there. `weights` has a number for every element of the table's factors and reaches.
        return unsafe { kernel.launch(stream, blocks(&kernel, lines), threads, arguments, &memory) };
    }
    let kernel = DOWNSAMPLE.kernel(stream.device(), &format!("downsample_{}", src.dtype()))?;
    let arguments = (src.address(), dst.address(), table.address(), ndim, count, method as u32);
    // SAFETY: the parameters of downsample_T; every box lies inside the source, whose extents the table has.
    unsafe { kernel.launch(stream, blocks(&kernel, lines), threads, arguments, &[src.buffer(), dst.buffer(), &table]) }
}
