//! Placement: the route of one read or write, where each codec runs and why, and how large a batch is. It is decided
//! once for a whole call, from the costs of the codecs and the available memory. Explanations, refusals of fall-backs
//! (`strict`) and the engine all use the same placement.

mod accelerated;
mod read;
mod write;

use cuzarr_device::Device;

pub(crate) use self::accelerated::{HOST_IS_FASTER, PLAIN};
pub(crate) use self::read::{Circumstances, PLAIN_COPIES, ReadPlacement, Resident, Route, SMALL_BYTES};
pub(crate) use self::write::{
    ChunkRoute, DeviceEncoding, DeviceWrite, WriteCircumstances, WritePlacement, WriteRoute, padded,
};
use super::costs::{Estimate, Load};
use crate::codec::{Chain, Stage, Support};
use crate::error::{Error, ErrorKind, Result};

/// The memory limit divided by this is kept for the pinned memory through which elements in host memory go to a device
/// that encodes them, or come back from a device that decodes them.
pub(crate) const PIECES_SHARE: u64 = 8;

/// Whether one codec of an array runs on the device or on the host in a read or write, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The name of the codec.
    pub codec: String,
    /// Why the codec runs on the host; `None` if it runs on the device.
    pub via_host: Option<String>,
}

/// The expected speeds of decoding the frames of a read, on the device and on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// The format of the frames, such as `zstd`.
    pub format: String,
    /// Decoded bytes of each frame.
    pub frame_bytes: usize,
    /// Number of frames that are decoded in parallel, and number of host threads.
    pub load: Load,
    /// The estimated speeds of kernels and of host threads.
    pub estimate: Estimate,
}

/// Where a write merges new elements with a chunk's old ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    /// Why the host merges old and new elements; `None` if the device does.
    pub via_host: Option<String>,
}

/// Which codecs of the innermost chunks run on the host in a read or write, and why.
#[derive(Clone, Debug)]
enum ViaHost {
    /// All codecs run on the host, for this reason.
    All(&'static str),
    /// Only the codecs with these numbers, in order of encoding, run on the host, each for its reason.
    These(Vec<(usize, &'static str)>),
}

impl ViaHost {
    const NOTHING: ViaHost = ViaHost::These(Vec::new());

    fn is_nothing(&self) -> bool {
        matches!(self, ViaHost::These(codecs) if codecs.is_empty())
    }

    fn reason(&self, codec: usize) -> Option<&'static str> {
        match self {
            ViaHost::All(reason) => Some(reason),
            ViaHost::These(codecs) => codecs.iter().find(|(number, _)| *number == codec).map(|(_, reason)| *reason),
        }
    }

    /// Where each codec of the chain runs, in a read to `device`.
    fn places(&self, chain: &Chain, device: Device) -> Vec<Placement> {
        placements(chain.stages(device, &|codec| self.reason(codec)))
    }
}

/// Where each codec of the chain runs when elements in memory of `device` are encoded. `left` is the reason if the host
/// encodes frames.
pub(crate) fn encoding_places(chain: &Chain, device: Device, left: Option<&'static str>) -> Vec<Placement> {
    placements(chain.describe_encoding(device, left))
}

fn placements(stages: Vec<Stage>) -> Vec<Placement> {
    let stages = stages.into_iter().map(|stage| Placement {
        codec: stage.name,
        via_host: match stage.support {
            Support::Native => None,
            Support::ViaHost(reason) => Some(reason.to_string()),
        },
    });
    stages.collect()
}

/// Refuses codecs that run on the host although the elements are on a device.
///
/// # Errors
/// `FallbackRefused`, with each codec and its reason.
pub(crate) fn refuse_fallen(placements: Vec<Placement>) -> Result<()> {
    let fallen: Vec<String> = placements
        .into_iter()
        .filter_map(|placement| placement.via_host.map(|reason| format!("'{}' ({reason})", placement.codec)))
        .collect();
    if fallen.is_empty() {
        return Ok(());
    }
    let message = format!("codecs would run on the host, which strict forbids: {}", fallen.join(", "));
    Err(Error::new(ErrorKind::FallbackRefused, message).with_hint("leave out `strict`, or use the device 'cpu'"))
}

#[cfg(test)]
mod tests;
