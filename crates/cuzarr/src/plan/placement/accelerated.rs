//! The placement of reads into host memory whose chunks a device decodes, and their costs beside those of the host.

use cuzarr_device::Device;

use super::Placement;
use super::read::{Circumstances, ReadPlacement, Route};
use crate::codec::{Chain, Program};
use crate::plan::costs::Offload;

/// The reason, shown to users, why the host reads and writes chunks that are not compressed.
pub(crate) const PLAIN: &str = "no codec compresses the chunks, so threads bring them directly to their place";
/// The reason, shown to users, why the host decodes if it is expected to be faster.
pub(crate) const HOST_IS_FASTER: &str = "the host's threads are expected to be faster";

impl ReadPlacement {
    /// Chooses the placement of a read into host memory whose chunks `device` decodes. `given` forces the device.
    ///
    /// # Errors
    /// The reason why the device cannot decode such chunks.
    pub(crate) fn accelerated(
        program: &Program,
        chain: &Chain,
        device: Device,
        given: &Circumstances,
    ) -> Result<ReadPlacement, String> {
        let placement = ReadPlacement::new(Some(program), device, given);
        match &placement.route {
            Route::Kernels(_) | Route::Resident(_) => Ok(placement),
            _ => {
                let fallen = placement.codecs(chain).into_iter();
                let mut reasons =
                    fallen.filter_map(|Placement { codec, via_host }| Some(format!("'{codec}': {}", via_host?)));
                Err(reasons.next_back().unwrap_or_else(|| "no codec of the chunks has kernels".into()))
            }
        }
    }

    /// The estimated times of decoding `chunks` chunks into host memory, on this placement's device and on the host.
    pub(crate) fn offload(&self, program: &Program, chunks: u64) -> Offload {
        let Some((costs, load)) = &self.weighed else { return Offload::default() };
        let frames = program.frames().map(|(decoder, frame_bytes)| (decoder.speeds(), frame_bytes));
        costs.offload(frames, program.packed_size_bytes(), chunks, *load)
    }
}
