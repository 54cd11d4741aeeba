//! Launches of `lz4.cu`: a warp a frame, in order.

use cuzarr_device::{KernelSource, upload_table};

use crate::Result;
use crate::codec::batch::frames::{FrameEntry, table};
use crate::codec::batch::{Decode, Prepared, Request, Task};

static LZ4: KernelSource = KernelSource { name: "lz4", text: include_str!("lz4.cu") };

/// Few warps a block, so that a block's place is free as soon as its slowest frame is done.
const WARPS_PER_BLOCK: u32 = 2;

/// Frames behind their size.
struct Frames {
    table: Vec<u8>,
    count: u32,
}

/// Nothing is read before kernels run: they compare the sizes.
pub(crate) fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let entries: Vec<FrameEntry> = request
        .units
        .iter()
        .map(|unit| FrameEntry {
            src_offset: unit.src.start as u64,
            dst_offset: unit.dst.start as u64,
            ..FrameEntry::new(unit.src.len(), unit.dst.len())
        })
        .collect();
    let count = entries.len() as u32;
    let frames = Frames { table: table(&entries, count.into()), count };
    Ok(Prepared { decode: Box::new(frames), refused: Vec::new() })
}

impl Decode for Frames {
    fn scratch_bytes(&self) -> usize {
        self.table.len()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        let table = upload_table(&self.table, stream)?;
        let kernel = LZ4.kernel(stream.device(), "lz4_frames")?;
        let arguments = (src.address(), dst.address(), table.address(), self.count, statuses.address());
        let blocks = self.count.div_ceil(WARPS_PER_BLOCK);
        // SAFETY: the parameters of lz4_frames. The table's ranges were checked to lie in source and target, and a warp stays
        // in its frame's; there is a status for each frame.
        unsafe { kernel.launch(stream, blocks, WARPS_PER_BLOCK * 32, arguments, &[src, dst, &table, statuses]) }?;
        Ok(())
    }
}
