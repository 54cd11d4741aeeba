//! Launches of `lz4.cu`: a warp a frame, in order.

use cuzarr_device::KernelSource;

use crate::Result;
use crate::codec::batch::Launch;

static LZ4: KernelSource = KernelSource { name: "lz4", text: include_str!("lz4.cu") };

/// Few warps a block, so that a block's place is free as soon as its slowest frame is done.
const WARPS_PER_BLOCK: u32 = 2;

pub(crate) fn launch(launch: &Launch<'_>) -> Result<()> {
    let kernel = LZ4.kernel(launch.stream.device(), "lz4_frames")?;
    let arguments =
        (launch.src.address(), launch.dst.address(), launch.table.address(), launch.frames, launch.statuses.address());
    let blocks = launch.frames.div_ceil(WARPS_PER_BLOCK);
    let buffers = [launch.src, launch.dst, launch.table, launch.statuses];
    // SAFETY: the parameters of lz4_frames. The table's ranges were checked to lie in source and target, and a warp stays in
    // its frame's; there is a status for each frame.
    unsafe { kernel.launch(launch.stream, blocks, WARPS_PER_BLOCK * 32, arguments, &buffers) }?;
    Ok(())
}
