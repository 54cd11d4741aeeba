//! The device of a command that computes or re-encodes: what the user says, or the first GPU where there is enough to do.

use cuzarr::Result;
use cuzarr::config::{Accelerator, Config, Origin};
use cuzarr::node::{Array, Node};
use cuzarr_device::{Device, probe};

use crate::nodes;
use crate::output::Output;

/// Work on fewer bytes than this is done before CUDA would have started.
const LEAST_BYTES: u64 = 64 << 20;

/// Chooses the device of a command: the one that the user gave, else the configured one. If neither is set, the first
/// GPU, for work on at least 64 MiB; the user is then told so.
///
/// # Errors
/// `ConfigInvalid` when an environment variable is not valid.
pub fn chosen(given: Option<Device>, bytes: u64, output: &mut Output) -> Result<Device> {
    let config = Config::from_environment()?;
    let is_set = |name| Ok::<_, cuzarr::Error>(config.setting(name)?.origin != Origin::Default);
    let by_user = match (given, config.accelerator()) {
        (Some(device), _) => Some(device),
        _ if is_set("device")? => Some(config.device()),
        (None, Accelerator::On(device)) => Some(device),
        (None, Accelerator::None) if is_set("accelerator")? => Some(Device::Cpu),
        _ => None,
    };
    if let Some(device) = by_user {
        return Ok(device);
    }
    if bytes < LEAST_BYTES || probe().unusable.is_some() {
        return Ok(Device::Cpu);
    }
    let device = Device::Cuda(0);
    output.note(&format!("{device} does the work"), "choose by --device, such as --device cpu");
    Ok(device)
}

/// Opens the array or group that a command works on, for the device that [`chosen`] names. A group counts as large,
/// because its size is not known.
///
/// # Errors
/// Those of [`nodes::open`] and [`chosen`].
pub fn open(output: &mut Output, path: &str, given: Option<Device>) -> Result<Node> {
    let node = nodes::open(output.registry(), path, given)?;
    let bytes = if let Node::Array(array) = &node { bytes_of(array) } else { u64::MAX };
    let device = chosen(given, bytes, output)?;
    let own = match &node {
        Node::Array(array) => array.options().device,
        Node::Group(group) => group.options().device,
    };
    if device == own { Ok(node) } else { nodes::open(output.registry(), path, Some(device)) }
}

/// Size of all elements of an array in bytes; elements of variable length count as one byte.
pub fn bytes_of(array: &Array) -> u64 {
    let element_bytes = array.metadata().data_type().size_bytes().unwrap_or(1) as u64;
    array.shape().iter().fold(element_bytes, |bytes, &extent| bytes.saturating_mul(extent))
}
