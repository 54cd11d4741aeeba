//! A codec chain bound to a device: passes over whole chunks, then a copy of elements to the array (the tail). The last
//! passes may run on the device alone. `binding` makes it.

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

/// A codec chain, prepared to decode and encode chunks for arrays on one device. Many threads can use it at once.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) device: Device,
    /// The passes that the host runs to decode a chunk, in order: mostly one for each codec.
    pub(super) passes: Vec<Pass>,
    /// For each pass of `passes`, how a device can do it instead of the host.
    pub(super) natives: Vec<PassOnDevice>,
    /// The size of a stored chunk, as far as it is known.
    pub(super) stored: Size,
    /// The passes that the host runs to encode a chunk, in order.
    pub(super) encoding: Vec<Pass>,
    /// For each pass of `encoding`, its codec's number in order of encoding; `None` for a pass that is only part of a
    /// codec.
    pub(super) numbers: Vec<Option<usize>>,
    pub(super) on_device: Result<Encoded, &'static str>,
    pub(super) packed_size_bytes: usize,
    pub(super) tail: Tail,
    pub(super) packed_axes: Vec<usize>,
}

/// A part of decoding a chunk that a device can do, but that the host may do faster.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Decoding a frame: the kernels that can decode it, and its decoded size in bytes.
    Frame(&'a dyn DeviceDecoder, usize),
    /// Summing floats one by one: how many there are, and the bytes of each. They are summed one after the other,
    /// because rounding depends on the order.
    FloatSum(usize, usize),
}

/// A function that decides whether the host should do some decoding that a device could: returns the reason, or `None`.
pub type Leave<'a> = &'a dyn Fn(Work<'_>) -> Option<&'static str>;

/// Leaves to the device all decoding that a device can do: returns no reason for the host to do it.
pub(crate) fn leave_nothing(_: Work<'_>) -> Option<&'static str> {
    None
}

/// How a device can do one pass of decoding.
#[derive(Clone, Debug)]
pub(super) struct PassOnDevice {
    /// The number of the pass's codec in order of encoding; `None` for a pass that is only a part of a codec.
    pub(super) codec: Option<usize>,
    /// The steps that replace the pass on the device, or the reason why only the host can do it.
    pub(super) steps: Result<Vec<Step>, &'static str>,
}

/// The part of encoding that a device can do: all passes up to the one that makes frames.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    /// The steps that the device runs over packed chunks before it makes frames.
    pub(super) undo: Undo,
    pub(super) encoder: Arc<dyn DeviceEncoder>,
    /// The number, in order of encoding, of the pass that makes frames.
    pub(super) pass: usize,
}

/// Which passes of a program run on the host for a read, and which on the device.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    /// How many decoding passes the host runs over each chunk, before the device runs the others.
    pub(crate) host_passes: usize,
    /// The passes after those of the host, which the device runs for many chunks at once; `None` if there are none.
    pub(crate) native: Option<Native>,
    /// The codecs that run on the host, each by its number in order of encoding and with the reason.
    pub(crate) via_host: Vec<(usize, &'static str)>,
}

impl Division {
    /// The device's decoding steps, if the device runs all decoding passes; `None` if the host runs some.
    pub(crate) fn whole(self) -> Option<Native> {
        self.native.filter(|_| self.host_passes == 0)
    }

    /// Why the last decoding pass that the host runs is not left to the device. The passes before it have to run there
    /// too.
    pub(crate) fn first_reason(&self) -> Option<&'static str> {
        self.via_host.last().map(|(_, reason)| *reason)
    }

    /// Why codec number `codec`, in order of encoding, runs on the host; `None` if it does not.
    pub(crate) fn reason(&self, codec: usize) -> Option<&'static str> {
        self.via_host.iter().find(|(number, _)| *number == codec).map(|(_, reason)| *reason)
    }
}

/// The reason, shown to users, why the host encodes chunks if it does so instead of kernels.
pub(super) const ENCODED_ON_HOST: &str = "encoded by the host's threads";

impl Program {
    /// Returns this program for arrays on another device. Packed chunks are the same on all devices.
    pub(crate) fn on(&self, device: Device) -> Program {
        Program { device, ..self.clone() }
    }

    /// The exact size in bytes of a packed chunk, from or to which the last step (the tail) copies the elements of the
    /// array.
    pub fn packed_size_bytes(&self) -> usize {
        self.packed_size_bytes
    }

    /// Whether the stored bytes of a chunk are its packed bytes, so that nothing must be decoded or encoded. Then they
    /// can be fetched straight to their place. Their number must still be compared with [`Program::packed_size_bytes`].
    pub fn stored_is_packed(&self) -> bool {
        self.encoding.is_empty()
    }

    /// Returns a copy of this program that also converts the elements that it reads to `dtype`, as NumPy's `astype`
    /// does. For reading only.
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

    /// Decides which passes the host runs and which the device, when chunks are read to the program's device. The
    /// device runs the last passes, as many as it has kernels for. `leave` may give reasons to leave work to the host.
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
        // The device must not begin with more bytes than a packed chunk has, because all of them would cross the bus.
        // It must not begin with a check of bytes that the host decoded, either.
        while (1..self.passes.len()).contains(&first) && !self.begins_behind_the_host(first) {
            first += 1;
        }
        let fed = "feeds a codec that runs on the host";
        let via_host = self.natives[..first].iter().zip(&reasons);
        let via_host = via_host.filter_map(|(pass, reason)| Some((pass.codec?, reason.unwrap_or(fed)))).collect();
        let native = self.native_from(first);
        Division { host_passes: first, native, via_host }
    }

    /// The device's steps for all passes from number `first` on; `None` if there are no steps or the device cannot do
    /// all passes.
    pub(crate) fn native_from(&self, first: usize) -> Option<Native> {
        let mut all = Vec::new();
        for (native, pass) in self.natives[first..].iter().zip(&self.passes[first..]) {
            let steps = native.steps.as_ref().ok()?;
            all.extend(steps.iter().map(|step| (step.clone(), pass.name().to_string())));
        }
        (!all.is_empty()).then(|| Native::new(all, self.size_before(first), self.packed_size_bytes))
    }

    /// Lists every codec by its number in order of encoding, with `reason` as why it runs on the host. For a read whose
    /// passes all run on the host.
    pub(crate) fn all_via_host(&self, reason: &'static str) -> Vec<(usize, &'static str)> {
        self.natives.iter().filter_map(|pass| Some((pass.codec?, reason))).collect()
    }

    /// The device's steps, if the device does all decoding; `None` if some pass runs on the host. There are no steps if
    /// stored bytes are packed bytes.
    pub(crate) fn all_native(&self, division: Division) -> Option<Native> {
        let nothing = self.passes.is_empty() && self.device != Device::Cpu;
        let none = || nothing.then(|| Native::new(Vec::new(), self.stored, self.packed_size_bytes));
        division.whole().or_else(none)
    }

    /// The decoders of frames that a device would use, each with its decoded size in bytes.
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

    /// The size of a chunk before decoding pass number `pass`.
    fn size_before(&self, pass: usize) -> Size {
        match pass.checked_sub(1) {
            Some(before) => self.passes[before].decoded_size(),
            None => self.stored,
        }
    }

    /// Runs only the passes that are left to the host ([`Division::host_passes`] many) over one stored chunk. `decoded`
    /// has the size of the input of the device's first step.
    ///
    /// # Errors
    /// Those of [`Program::decode`].
    pub(crate) fn decode_host_passes(&self, host_passes: usize, stored: &[u8], decoded: &mut [u8]) -> Result<()> {
        let all = 0..decoded.len();
        decode_passes(&self.passes[..host_passes], stored, decoded, all).map(drop)
    }

    /// Decodes one stored chunk on the host, to the packed bytes from which elements are then copied to the array.
    ///
    /// # Errors
    /// `ChunkCorrupt` or `ChecksumMismatch`, with the codec in the trail; the content of `packed` is then unspecified.
    pub fn decode(&self, stored: &[u8], packed: &mut [u8]) -> Result<()> {
        let all = 0..packed.len();
        self.decode_part(stored, packed, all).map(drop)
    }

    /// Like [`Program::decode`], but only the bytes `wanted` of `packed` must be right afterwards. Blosc skips the
    /// blocks that hold none of these bytes; zstd skips the blocks after them. Returns the number of bytes that were
    /// decoded.
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

    /// Encodes one chunk on the host, from its packed bytes, to which elements were copied from the array.
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

    /// The kernels that can make a chunk's frame instead of [`Program::encode`], or why the host makes it.
    ///
    /// # Errors
    /// The reason.
    pub fn device_encoder(&self) -> Result<&Arc<dyn DeviceEncoder>, &'static str> {
        self.on_device.as_ref().map(|encoded| &encoded.encoder).map_err(|reason| *reason)
    }

    /// The steps that the device runs over packed chunks before it makes frames.
    pub(crate) fn device_undo(&self) -> Undo {
        self.on_device.as_ref().map_or_else(|_| Undo::default(), |encoded| encoded.undo.clone())
    }

    /// Why the host encodes with codec number `codec`, for a codec that is not done while elements are copied; `None`
    /// if the device does.
    pub(crate) fn encoding_reason(&self, codec: usize) -> Option<&'static str> {
        let on_device = match &self.on_device {
            Ok(encoded) => encoded,
            Err(reason) => return Some(*reason),
        };
        let pass = self.numbers.iter().position(|number| *number == Some(codec));
        let last = on_device.pass + usize::from(self.device_checksum().is_some());
        pass.filter(|&pass| pass > last).map(|_| ENCODED_ON_HOST)
    }

    /// The checksum that is stored with a frame made by a device, and where, if nothing else is added to the frame.
    pub(crate) fn device_checksum(&self) -> Option<(Checksum, Location)> {
        let [Pass::Bytes { codec, decoded }] = self.passes_behind_device() else { return None };
        match codec.native(*decoded)? {
            Step::Check { checksum, location } => Some((checksum, location)),
            _ => None,
        }
    }

    /// Whether frames that a device makes are stored as they are, or with only a checksum added.
    pub(crate) fn stores_device_frames(&self) -> bool {
        self.passes_behind_device().is_empty() || self.device_checksum().is_some()
    }

    fn passes_behind_device(&self) -> &[Pass] {
        self.on_device.as_ref().map_or(&[], |encoded| &self.encoding[encoded.pass + 1..])
    }

    /// Encodes a frame made by a device further, by the passes of [`Program::encode`] that follow it. `None` if there
    /// are no such passes.
    ///
    /// # Errors
    /// Those of [`Program::encode`].
    pub(crate) fn encode_behind_device(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.passes_behind_device() {
            [] => Ok(None),
            passes => encode_passes(passes, frame).map(Some),
        }
    }

    /// The changes to elements while they are copied between packed chunks and arrays, in both directions.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Dimension `i` of the packed chunk, whose elements lie in C order, is dimension `packed_axes[i]` of the array.
    pub fn packed_axes(&self) -> &[usize] {
        &self.packed_axes
    }
}
