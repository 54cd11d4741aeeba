//! How each codec of a chain runs, in words for users.

use cuzarr_device::Device;

use super::split::tail_split;
use crate::codec::chain::Chain;
use crate::codec::host::TailPart;
use crate::codec::program::{Leave, Program, leave_nothing};

/// The reason, shown to users, why the host decodes and encodes elements of variable length.
pub(crate) const VARIABLE: &str = "elements of variable length stay in host memory";

/// Where a codec runs for results on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// On the device: in kernels, or in the copy that puts elements into the array.
    Native,
    /// On the CPU, for this reason; the result is then copied to the device.
    ViaHost(&'static str),
}

/// One codec of a chain, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The codec's v3 name.
    pub name: String,
    /// Where the codec runs: on the device, or on the host for a reason.
    pub support: Support,
}

impl Chain {
    /// Lists every codec, in order of encoding, and where it runs when chunks are decoded to `device`. On the CPU
    /// everything is native.
    pub fn describe(&self, device: Device) -> Vec<Stage> {
        self.describe_beside(device, &leave_nothing)
    }

    /// Like [`Chain::describe`], but with `leave`, a function that returns a reason for each codec that the host should
    /// run.
    pub fn describe_beside(&self, device: Device, leave: Leave<'_>) -> Vec<Stage> {
        let leaf = self.leaf();
        let division = Program::new(leaf, device).map(|program| program.divide(leave));
        self.stages(device, &|codec| match &division {
            Ok(division) => division.reason(codec),
            Err(_) => Some(VARIABLE),
        })
    }

    /// Lists every codec, in order of encoding, and where it runs when chunks on `device` are encoded. On the CPU
    /// everything is native. If a call leaves codecs to the host that kernels could do, `left` is the reason.
    pub fn describe_encoding(&self, device: Device, left: Option<&'static str>) -> Vec<Stage> {
        let leaf = self.leaf();
        let program = Program::new(leaf, device);
        self.stages(device, &|codec| match &program {
            Ok(program) => leaf.encoding_reason(program, codec, left),
            Err(_) => Some(VARIABLE),
        })
    }

    /// Lists every codec, in order of encoding, and where it runs according to `reason`. `reason` returns why a codec
    /// of the innermost chunks, given by its number, runs on the host.
    pub(crate) fn stages(&self, device: Device, reason: &dyn Fn(usize) -> Option<&'static str>) -> Vec<Stage> {
        if let Some(sharding) = self.sharding() {
            let shards = Stage { name: self.serializer.name().into(), support: Support::Native };
            return [shards].into_iter().chain(sharding.inner().stages(device, reason)).collect();
        }
        let names = self.arrays.iter().map(|codec| codec.name()).chain([self.serializer.name()]);
        let names = names.chain(self.bytes.iter().map(|step| step.codec.name()));
        let reason = |codec| if device == Device::Cpu { None } else { reason(codec) };
        let support = |codec| reason(codec).map_or(Support::Native, Support::ViaHost);
        names.enumerate().map(|(codec, name)| Stage { name: name.into(), support: support(codec) }).collect()
    }

    /// Returns why the host encodes with codec number `index`, or `None` if the device does.
    fn encoding_reason(&self, program: &Program, index: usize, left: Option<&'static str>) -> Option<&'static str> {
        let split = tail_split(self);
        let in_tail = match index.checked_sub(self.arrays.len()) {
            None => index < split.arrays,
            Some(0) => split.serializer,
            Some(number) => number <= split.bytes,
        };
        if in_tail {
            return None;
        }
        let host = self.arrays.get(index).map(|codec| codec.tail());
        match (program.encoding_reason(index), host) {
            (None, _) => left,
            (Some(_), Some(TailPart::Host(reason))) => Some(reason),
            (reason, _) => reason,
        }
    }
}
