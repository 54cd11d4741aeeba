//! How each codec of a chain runs, in words for users.

use cuzarr_device::Device;

use super::split::tail_split;
use crate::codec::chain::Chain;
use crate::codec::host::TailPart;
use crate::codec::program::{Leave, Program, leave_nothing};

/// Which way codecs run, and what a call leaves to the host.
#[derive(Clone, Copy)]
enum Way<'a> {
    Decoding(Leave<'a>),
    Encoding(Option<&'static str>),
}

/// How a codec runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// On the device, in the movement that places the elements.
    Native,
    /// On the CPU, for this reason; the result is copied.
    ViaHost(&'static str),
}

/// One codec of a chain, and how it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The codec's v3 name.
    pub name: String,
    /// How it runs.
    pub support: Support,
}

impl Chain {
    /// Every codec in order of encoding, and how it decodes to `device`. On the CPU everything is native.
    pub fn describe(&self, device: Device) -> Vec<Stage> {
        self.stages(device, Way::Decoding(&leave_nothing))
    }

    /// Like [`Chain::describe`], for a call that leaves work to the host where `leave` gives a reason.
    pub fn describe_beside(&self, device: Device, leave: Leave<'_>) -> Vec<Stage> {
        self.stages(device, Way::Decoding(leave))
    }

    /// Every codec in order of encoding, and how it encodes what is on `device`. On the CPU everything is native. A call that
    /// leaves to the host what kernels could encode says why in `left`.
    pub fn describe_encoding(&self, device: Device, left: Option<&'static str>) -> Vec<Stage> {
        self.stages(device, Way::Encoding(left))
    }

    fn stages(&self, device: Device, way: Way<'_>) -> Vec<Stage> {
        let names = self.arrays.iter().map(|codec| codec.name()).chain([self.serializer.name()]);
        let names = names.chain(self.bytes.iter().map(|step| step.codec.name()));
        let program = Program::new(self, device);
        let division = match (&program, way) {
            (Ok(program), Way::Decoding(leave)) => Some(program.divide(leave)),
            _ => None,
        };
        let reason = |index: usize| match (&program, way) {
            _ if device == Device::Cpu => None,
            (Ok(program), Way::Encoding(left)) => self.encoding_reason(program, index, left),
            (Ok(_), Way::Decoding(_)) => division.as_ref().and_then(|division| division.reason(index)),
            (Err(_), _) => Some("elements of variable length stay in host memory"),
        };
        let support = |index| reason(index).map_or(Support::Native, Support::ViaHost);
        let stages = names.enumerate().map(|(index, name)| Stage { name: name.into(), support: support(index) });
        let mut stages: Vec<Stage> = stages.collect();
        if let Some(sharding) = self.sharding() {
            stages[0].support = Support::Native;
            stages.extend(sharding.inner().stages(device, way));
        }
        stages
    }

    /// Why the host encodes with the codec of this number.
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
