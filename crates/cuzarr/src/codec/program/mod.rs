//! A chain bound to a device: passes, the last of which may run on the device by themselves, then a tail. `binding` makes it.

mod pass;

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::checksum::Checksum;
use cuzarr_device::{DType, Device, ElementStep, Tail};

pub(super) use self::pass::Pass;
use self::pass::{decode_passes, encode_passes};
use super::device::{DeviceDecoder, DeviceEncoder, MOST_FRAME_BYTES};
use super::elements::is_float;
use super::native::{Native, Step, Undo};
use super::size::Size;
use super::step::Location;
use crate::{Error, ErrorKind, Result};

/// A chain bound to a device. Used by many threads at once.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) device: Device,
    /// The passes in order of decoding.
    pub(super) passes: Vec<Pass>,
    /// For each pass, the steps that a device can do in its place.
    pub(super) natives: Vec<PassOnDevice>,
    /// How many bytes are stored.
    pub(super) stored: Size,
    /// The passes in order of encoding.
    pub(super) encoding: Vec<Pass>,
    /// The number of each pass's codec, counted in order of encoding; `None` for a pass that is only part of one.
    pub(super) numbers: Vec<Option<usize>>,
    pub(super) on_device: Result<Encoded, &'static str>,
    pub(super) packed_size_bytes: usize,
    pub(super) tail: Tail,
    pub(super) packed_axes: Vec<usize>,
}

/// Work that a device could do for a chunk, and that the host may do faster.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// A frame that these kernels decode, and how many bytes it decodes to.
    Frame(&'a dyn DeviceDecoder, usize),
    /// A running sum of floats, by their number and their bytes: one after the other, since the order decides how they round.
    FloatSum(usize, usize),
}

/// Why work is left to the host, where it is.
pub type Leave<'a> = &'a dyn Fn(Work<'_>) -> Option<&'static str>;

/// Leaves nothing to the host that a device can do.
pub(crate) fn leave_nothing(_: Work<'_>) -> Option<&'static str> {
    None
}

/// The steps that a device can do in place of one pass.
#[derive(Clone, Debug)]
pub(super) struct PassOnDevice {
    /// The pass's codec, counted in order of encoding; `None` for a pass that is only part of one.
    pub(super) codec: Option<usize>,
    /// The steps, or why the host does it.
    pub(super) steps: Result<Vec<Step>, &'static str>,
}

/// The part of encoding that a device does.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    /// The passes before the one that makes frames.
    pub(super) undo: Undo,
    pub(super) encoder: Arc<dyn DeviceEncoder>,
    /// The number of that pass.
    pub(super) pass: usize,
}

/// Where the passes of a program run.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    /// The number of passes that run on the host, chunk by chunk.
    pub(crate) host_passes: usize,
    /// The others run on the device, batch by batch.
    pub(crate) native: Option<Native>,
    /// Codecs that run on the host, counted in order of encoding, and why.
    pub(crate) via_host: Vec<(usize, &'static str)>,
}

impl Division {
    /// The device's work, if it does all.
    pub(crate) fn whole(self) -> Option<Native> {
        self.native.filter(|_| self.host_passes == 0)
    }

    /// Why the host decodes at all.
    pub(crate) fn first_reason(&self) -> Option<&'static str> {
        self.via_host.last().map(|(_, reason)| *reason)
    }

    /// Why the codec of this number, in order of encoding, runs on the host.
    pub(crate) fn reason(&self, codec: usize) -> Option<&'static str> {
        self.via_host.iter().find(|(number, _)| *number == codec).map(|(_, reason)| *reason)
    }
}

/// Why kernels do not encode.
pub(super) const ENCODED_ON_HOST: &str = "encoded by the host's threads";

impl Program {
    /// The program of another device: packed chunks are the same everywhere.
    pub(crate) fn on(&self, device: Device) -> Program {
        Program { device, ..self.clone() }
    }

    /// The exact size of one packed chunk, the input of the tail.
    pub fn packed_size_bytes(&self) -> usize {
        self.packed_size_bytes
    }

    /// Whether stored bytes are packed bytes, both ways, so that they can be fetched straight to their place. Their
    /// number must still be compared with [`Program::packed_size_bytes`].
    pub fn stored_is_packed(&self) -> bool {
        self.encoding.is_empty()
    }

    /// A copy of this program that converts elements to `dtype` behind the tail, as NumPy's `astype` does. For reading only.
    ///
    /// # Errors
    /// `DTypeMismatch` when such elements cannot be converted.
    pub(crate) fn read_as(&self, dtype: DType) -> Result<Program> {
        let mut program = self.clone();
        let from = program.tail.dtype;
        program.tail.steps.push(ElementStep::Cast { from, to: dtype });
        program.tail.write_steps = None;
        program.tail.dtype = dtype;
        program.tail.check().map_err(|error| {
            Error::new(ErrorKind::DTypeMismatch, format!("cannot read {from} as {dtype}")).with_source(error)
        })?;
        Ok(program)
    }

    /// Divides the passes between the host and the device, for a result on the program's device. The device runs the
    /// last passes, as many as it has kernels for. `leave` may give reasons to leave work to the host.
    pub(crate) fn divide(&self, leave: Leave<'_>) -> Division {
        let on_host = |pass: &PassOnDevice| match &pass.steps {
            _ if self.device == Device::Cpu => Some("the result is host memory"),
            Ok(steps) => steps.iter().find_map(|step| match step {
                Step::Decode { decoded_bytes, .. } if *decoded_bytes >= MOST_FRAME_BYTES => {
                    Some("frames of 2 GiB and more are decoded on the host")
                }
                Step::Decode { decoder, decoded_bytes } => {
                    decoder.host_reason(*decoded_bytes).or_else(|| leave(Work::Frame(&**decoder, *decoded_bytes)))
                }
                Step::Sum(dtype) if is_float(*dtype) => {
                    let elements = self.packed_size_bytes / self.tail.packed.size_bytes();
                    leave(Work::FloatSum(elements, dtype.size_bytes()))
                }
                _ => None,
            }),
            Err(reason) => Some(*reason),
        };
        let reasons: Vec<_> = self.natives.iter().map(on_host).collect();
        let mut first = reasons.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        // Bytes that the host decodes cross the bus in no more bytes than packed ones, and are looked at where they were decoded.
        while (1..self.passes.len()).contains(&first) && !self.begins_behind_the_host(first) {
            first += 1;
        }
        let fed = "feeds a codec that runs on the host";
        let via_host = self.natives[..first].iter().zip(&reasons);
        let via_host = via_host.filter_map(|(pass, reason)| Some((pass.codec?, reason.unwrap_or(fed)))).collect();
        let native = self.native_from(first);
        Division { host_passes: first, native, via_host }
    }

    /// The device's work in all passes from number `first` on; `None` when there is none, or the device cannot do it.
    pub(crate) fn native_from(&self, first: usize) -> Option<Native> {
        let mut all = Vec::new();
        for (native, pass) in self.natives[first..].iter().zip(&self.passes[first..]) {
            let steps = native.steps.as_ref().ok()?;
            all.extend(steps.iter().map(|step| (step.clone(), pass.name().to_string())));
        }
        (!all.is_empty()).then(|| Native::new(all, self.size_before(first), self.packed_size_bytes))
    }

    /// The codecs of all passes, counted in order of encoding, for a read whose passes all run on the host for this reason.
    pub(crate) fn all_via_host(&self, reason: &'static str) -> Vec<(usize, &'static str)> {
        self.natives.iter().filter_map(|pass| Some((pass.codec?, reason))).collect()
    }

    /// The device's work when it does all of decoding: no steps at all where stored bytes are packed ones.
    pub(crate) fn all_native(&self, division: Division) -> Option<Native> {
        let nothing = self.passes.is_empty() && self.device != Device::Cpu;
        let none = || nothing.then(|| Native::new(Vec::new(), self.stored, self.packed_size_bytes));
        division.whole().or_else(none)
    }

    /// The decoders of frames among the passes, and to how many bytes each.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (&dyn DeviceDecoder, usize)> {
        self.natives.iter().flat_map(|native| native.steps.iter().flatten()).filter_map(|step| match step {
            Step::Decode { decoder, decoded_bytes } => Some((&**decoder, *decoded_bytes)),
            _ => None,
        })
    }

    fn begins_behind_the_host(&self, pass: usize) -> bool {
        let fits = matches!(self.size_before(pass), Size::Exact(bytes) if bytes <= self.packed_size_bytes as u64);
        let works = |steps: &Vec<Step>| steps.first().is_some_and(|step| !step.looks());
        fits && self.natives[pass].steps.as_ref().is_ok_and(works)
    }

    /// The number of bytes that a pass gets.
    fn size_before(&self, pass: usize) -> Size {
        match pass.checked_sub(1) {
            Some(before) => self.passes[before].decoded_size(),
            None => self.stored,
        }
    }

    /// The first passes only, as [`Division::host_passes`] says, over one stored chunk; `decoded` has the size that the
    /// device's first step gets.
    ///
    /// # Errors
    /// Those of [`Program::decode`].
    pub(crate) fn decode_host_passes(&self, host_passes: usize, stored: &[u8], decoded: &mut [u8]) -> Result<()> {
        let all = 0..decoded.len();
        decode_passes(&self.passes[..host_passes], stored, decoded, all).map(drop)
    }

    /// Host passes over one stored chunk.
    ///
    /// # Errors
    /// `ChunkCorrupt` or `ChecksumMismatch`, with the codec in the trail; `packed` then holds anything.
    pub fn decode(&self, stored: &[u8], packed: &mut [u8]) -> Result<()> {
        let all = 0..packed.len();
        self.decode_part(stored, packed, all).map(drop)
    }

    /// Like [`Program::decode`], but only the bytes `wanted` of `packed` must be right afterwards. Blocks of a Blosc frame that
    /// hold none of them are left out, and blocks of a zstd frame behind them. Returns the number of bytes that were decoded.
    ///
    /// # Errors
    /// Those of [`Program::decode`]. Damage in a part that was left out is not noticed. `InvalidArgument` when `wanted` leaves
    /// the chunk.
    pub fn decode_part(&self, stored: &[u8], packed: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        if packed.len() != self.packed_size_bytes {
            let message = format!("got {} bytes for a packed chunk of {}", packed.len(), self.packed_size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if packed.get(wanted.clone()).is_none() {
            let message = format!("bytes {wanted:?} are not in a packed chunk of {}", packed.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        decode_passes(&self.passes, stored, packed, wanted)
    }

    /// Host passes over one packed chunk, to what is stored.
    ///
    /// # Errors
    /// `EncodeFailed`, with the codec in the trail; `InvalidArgument` when the size is not a packed chunk's.
    pub fn encode(&self, packed: &[u8]) -> Result<Vec<u8>> {
        if packed.len() != self.packed_size_bytes {
            let message = format!("got {} bytes for a packed chunk of {}", packed.len(), self.packed_size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        encode_passes(&self.encoding, packed)
    }

    /// The kernels that make frames in the course of [`Program::encode`], or why the host makes them.
    ///
    /// # Errors
    /// The reason.
    pub fn device_encoder(&self) -> Result<&Arc<dyn DeviceEncoder>, &'static str> {
        self.on_device.as_ref().map(|encoded| &encoded.encoder).map_err(|reason| *reason)
    }

    /// The device's work on packed chunks before it encodes them.
    pub(crate) fn device_undo(&self) -> Undo {
        self.on_device.as_ref().map_or_else(|_| Undo::default(), |encoded| encoded.undo.clone())
    }

    /// Why the host encodes with the codec of this number, which no tail does.
    pub(crate) fn encoding_reason(&self, codec: usize) -> Option<&'static str> {
        let on_device = match &self.on_device {
            Ok(encoded) => encoded,
            Err(reason) => return Some(*reason),
        };
        let pass = self.numbers.iter().position(|number| *number == Some(codec));
        let last = on_device.pass + usize::from(self.device_checksum().is_some());
        pass.filter(|&pass| pass > last).map(|_| ENCODED_ON_HOST)
    }

    /// The checksum of a frame that a device made, when it is all that follows, and where it goes.
    pub(crate) fn device_checksum(&self) -> Option<(Checksum, Location)> {
        let [Pass::Bytes { codec, decoded }] = self.passes_behind_device() else { return None };
        match codec.native(*decoded)? {
            Step::Check { checksum, location } => Some((checksum, location)),
            _ => None,
        }
    }

    /// Whether the frames that a device makes are followed by nothing or only a checksum.
    pub(crate) fn stores_device_frames(&self) -> bool {
        self.passes_behind_device().is_empty() || self.device_checksum().is_some()
    }

    fn passes_behind_device(&self) -> &[Pass] {
        self.on_device.as_ref().map_or(&[], |encoded| &self.encoding[encoded.pass + 1..])
    }

    /// Runs the passes of [`Program::encode`] behind the one that makes frames, over a frame that a device made; `None` when
    /// there are none.
    ///
    /// # Errors
    /// Those of [`Program::encode`].
    pub(crate) fn encode_behind_device(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.passes_behind_device() {
            [] => Ok(None),
            passes => encode_passes(passes, frame).map(Some),
        }
    }

    /// The steps that elements go through between packed memory and an nd-buffer, both ways.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Dimension `i` of the packed chunk, whose elements lie in C order, is dimension `packed_axes[i]` of the array.
    pub fn packed_axes(&self) -> &[usize] {
        &self.packed_axes
    }
}
