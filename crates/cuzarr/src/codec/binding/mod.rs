//! Binds a codec chain to a device: most codecs become passes over a whole chunk; the others run while elements are
//! copied.

mod split;
mod stages;

use cuzarr_device::internal::convert::Conversion;
use cuzarr_device::{Device, ElementStep, Tail};

use self::split::{TailSplit, no_split, tail_split};
pub(crate) use self::stages::VARIABLE;
pub use self::stages::{Stage, Support};
use super::chain::{Chain, Serializer};
use super::host::TailPart;
use super::native::{Step, Undo, array_steps, bytes_steps, header_step, serializer_steps};
use super::program::{ENCODED_ON_HOST, Encoded, Pass, PassOnDevice, Program};
use crate::{Error, ErrorKind, Result};

/// The passes over whole chunks by which the host or a device decodes and encodes, collected codec by codec.
#[derive(Default)]
struct Passes {
    decoding: Vec<Pass>,
    natives: Vec<PassOnDevice>,
    /// The passes of encoding, listed in the order of decoding.
    encoding: Vec<EncodingPass>,
}

/// One pass over a chunk while it is encoded: the function that the host runs, and how a device does the pass instead.
struct EncodingPass {
    pass: Pass,
    /// The number of the codec that this pass belongs to; `None` for a pass that is only a part of a codec.
    codec: Option<usize>,
    /// How a device does this encoding pass; `None` if only the host can.
    native: Option<NativePass>,
}

/// How a device does one pass over chunks while it encodes them.
enum NativePass {
    /// The device runs the inverse of each of these decoding steps.
    Undone(Vec<Step>),
    /// The device converts each element to the type in which it is stored. Elements that cannot be converted are
    /// reported.
    Convert(Conversion),
}

impl Passes {
    fn push(&mut self, pass: Pass, codec: Option<usize>, steps: Result<Vec<Step>, &'static str>) {
        let native = match &pass {
            Pass::Array { codec, .. } if matches!(codec.tail(), TailPart::Host(_)) => {
                let undone = codec.native_undone().map(NativePass::Undone);
                undone.or_else(|| codec.native_encoding().map(NativePass::Convert))
            }
            _ => steps.clone().ok().map(NativePass::Undone),
        };
        self.encoding.push(EncodingPass { pass: pass.clone(), codec, native });
        if !matches!(&pass, Pass::Array { codec, .. } if codec.decodes_to_itself()) {
            self.decoding.push(pass);
            self.natives.push(PassOnDevice { codec, steps });
        }
    }
}

impl Encoded {
    /// Finds the pass that turns chunks into frames on the device, if the device can also do all passes before it.
    /// `passes` are in order of decoding.
    fn find(passes: &[EncodingPass], packed_bytes: usize) -> Result<Encoded, &'static str> {
        let (mut undo, mut size_bytes) = (Undo::default(), packed_bytes);
        for (number, EncodingPass { pass, native, .. }) in passes.iter().rev().enumerate() {
            if let Pass::Bytes { codec, .. } = pass
                && let Some(encoder) = codec.device_encoder(size_bytes)
            {
                return Ok(Encoded { undo, encoder, pass: number });
            }
            let done = match native {
                Some(NativePass::Undone(steps)) => undo.add(steps, pass.name(), size_bytes),
                Some(NativePass::Convert(conversion)) => undo.add_conversion(conversion, pass.name(), size_bytes),
                None => false,
            };
            size_bytes = match pass.encoded_bytes(size_bytes) {
                Some(encoded_bytes) if done => encoded_bytes,
                _ => return Err(ENCODED_ON_HOST),
            };
        }
        Err(match passes.is_empty() {
            true => "nothing is encoded: bytes are stored as they are gathered",
            false => "kernels encode before a compressor, and there is none",
        })
    }
}

impl Chain {
    /// Makes the program that decodes and encodes chunks with this chain for arrays on `device`. This is done once per
    /// array and device.
    ///
    /// # Errors
    /// `Unsupported` for elements of variable length.
    pub fn bind(&self, device: Device) -> Result<Program> {
        Program::new(self, device)
    }
}

impl Program {
    pub(crate) fn new(chain: &Chain, device: Device) -> Result<Program> {
        // The tail is the same everywhere.
        Ok(Program { device, ..Program::build(chain, tail_split(chain))? })
    }

    /// Makes a program whose passes do all codecs, so that packed chunks are decoded chunks, in native byte order and C
    /// order. No codec is left to the copy of elements to arrays (the tail).
    pub(crate) fn whole(chain: &Chain) -> Result<Program> {
        Program::build(chain, no_split(chain))
    }

    fn build(chain: &Chain, split: TailSplit) -> Result<Program> {
        let spec_at = |index: usize| match index {
            0 => chain.spec(),
            index => chain.arrays()[index - 1].encoded_spec(),
        };
        let mut passes = Passes::default();
        let last = chain.arrays().len();
        for (index, step) in chain.bytes().iter().enumerate().skip(split.bytes).rev() {
            let pass = Pass::Bytes { codec: step.codec.clone(), decoded: step.decoded };
            passes.push(pass, Some(last + 1 + index), bytes_steps(&*step.codec, step.decoded));
        }
        if !split.serializer {
            let spec = spec_at(last);
            let decoded = spec.size_bytes()?;
            let whole_shards = Err("other codecs stand around the shards");
            match chain.serializer() {
                // Elements in native order are their own bytes.
                Serializer::Fixed(codec) if codec.steps().is_some_and(|steps| steps.is_empty()) => {}
                Serializer::Fixed(codec) => {
                    let steps = serializer_steps(&**codec, spec);
                    passes.push(Pass::Serializer { codec: codec.clone(), decoded }, Some(last), steps);
                }
                Serializer::Sharding(codec) => {
                    passes.push(Pass::Serializer { codec: codec.clone(), decoded }, Some(last), whole_shards);
                }
                Serializer::Variable(codec) => {
                    let message = format!("codec '{}' has elements of variable length", codec.name());
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            }
        }
        for index in (split.arrays..last).rev() {
            let (decoded, encoded) = (spec_at(index).size_bytes()?, spec_at(index + 1).size_bytes()?);
            let codec = chain.arrays()[index].clone();
            let steps = array_steps(&*codec, spec_at(index));
            passes.push(Pass::Array { codec, decoded, encoded }, Some(index), steps);
        }
        let packed_spec = spec_at(split.arrays);
        let mut packed_size_bytes = packed_spec.size_bytes()?;
        let mut packed = packed_spec.dtype()?;
        if let Some(header) = split.bits {
            packed_size_bytes = header.bits_bytes;
            packed = cuzarr_device::DType::BOOL;
            passes.push(Pass::BitsHeader(header), None, Ok(vec![header_step(&header)]));
        }
        let dtype = chain.spec().dtype()?;
        // If the writing steps are the inverse of the reading steps, the tail derives them itself.
        let undone = split.read.iter().rev().map(ElementStep::inverse).eq(split.write.iter().copied().map(Some));
        let write_steps = if undone { None } else { Some(split.write) };
        let tail = Tail { packing: split.packing, packed, steps: split.read, write_steps, dtype };
        let Passes { decoding, natives, encoding } = passes;
        let on_device = Encoded::find(&encoding, packed_size_bytes);
        let (encoding, numbers) = encoding.into_iter().rev().map(|one| (one.pass, one.codec)).unzip();
        let (device, stored, packed_axes) = (Device::Cpu, chain.encoded_size(), split.axes);
        Ok(Program {
            device,
            passes: decoding,
            natives,
            stored,
            encoding,
            numbers,
            on_device,
            packed_size_bytes,
            tail,
            packed_axes,
        })
    }
}
