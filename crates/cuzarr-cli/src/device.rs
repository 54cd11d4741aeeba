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
    if let Some(device) = given.map_or_else(|| configured(&Config::from_environment()?), |device| Ok(Some(device)))? {
        return Ok(device);
    }
    if bytes < LEAST_BYTES || probe().unusable.is_some() {
        return Ok(Device::Cpu);
    }
    let device = Device::Cuda(0);
    output.note(&format!("{device} does the work"), "choose by --device, such as --device cpu");
    Ok(device)
}

/// The device that the settings `device` and `accelerator` name; `None` if they leave the choice to the command.
fn configured(config: &Config) -> Result<Option<Device>> {
    let is_set = |name| Ok::<_, cuzarr::Error>(config.setting(name)?.origin != Origin::Default);
    Ok(match config.accelerator() {
        _ if is_set("device")? => Some(config.device()),
        Accelerator::On(device) => Some(device),
        Accelerator::None if is_set("accelerator")? => Some(Device::Cpu),
        _ => None,
    })
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
    match node {
        Node::Array(array) => {
            let options = array.options().clone().with_device(device);
            Ok(Node::Array(array.with_options(options)))
        }
        Node::Group(group) if group.options().device == device => Ok(Node::Group(group)),
        Node::Group(_) => nodes::open(output.registry(), path, Some(device)),
    }
}

/// Size of all elements of an array in bytes; elements of variable length count as one byte.
pub fn bytes_of(array: &Array) -> u64 {
    let element_bytes = array.metadata().data_type().size_bytes().unwrap_or(1) as u64;
    array.shape().iter().fold(element_bytes, |bytes, &extent| bytes.saturating_mul(extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_before_the_choice_of_the_command() {
        let named = |settings: &[(&str, &str)]| {
            let mut config = Config::new();
            for (name, value) in settings {
                config = config.with(name, value, Origin::Set).unwrap();
            }
            configured(&config).unwrap()
        };
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[("accelerator", "auto")]), None);
        assert_eq!(named(&[("accelerator", "none")]), Some(Device::Cpu));
        assert_eq!(named(&[("accelerator", "cuda:1")]), Some(Device::Cuda(1)));
        assert_eq!(named(&[("accelerator", "cuda:1"), ("device", "cpu")]), Some(Device::Cpu));
        assert_eq!(named(&[("device", "cuda:2")]), Some(Device::Cuda(2)));
    }
}
