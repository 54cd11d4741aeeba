//! The part of decoding that a device runs alone: the last passes of a program, each over a whole batch of chunks.
//!
//! ```text
//! stored ──[crc32c: looked at]──[zstd: decoded]──[delta: summed]── packed ──tail──> elements
//! ```
//!
//! A [`Native`] is the list of steps, made once per array and device. [`Native::prepare`] lays out their memory for
//! chunks that lie in one buffer. [`NativeBatch::run`] puts them on a stream one after the other, and
//! [`NativeBatch::check`] returns for each refused chunk which codec refused it, and why. A step that only checks
//! (checksums, a header) leaves the bytes where they are.

mod encoding;
mod launches;
mod steps;
mod undo;

use std::ops::Range;

use cuzarr_device::{Buffer, Stream};

pub(crate) use encoding::{NativeEncoder, NativeEncoding};
pub(crate) use launches::{Chunks, NativeBatch};
pub(crate) use steps::{array_steps, bytes_steps, header_step, serializer_steps};
pub(crate) use undo::{Strided, Undo};

use super::batch::{HostCopy, ScratchLimit};
use super::damage::{corrupt, expect_encoded_size};
use super::device::{Headers, MOST_FRAME_BYTES};
use super::size::Size;
use super::step::CHECKSUM_BYTES;
pub(crate) use super::step::{Map, Step};
use crate::Result;

/// The steps by which a device decodes chunks that are stored, or that the host has already decoded in part. Their
/// results are packed chunks.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    /// The steps in order of decoding, each with the name of its codec.
    steps: Vec<(Step, String)>,
    /// The size of a chunk before the first of the device's steps.
    input: Size,
    packed_bytes: usize,
}

/// The stored chunks with which a device's decoding steps begin, as ranges of one buffer.
pub(crate) struct Source<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) ranges: Vec<Range<usize>>,
    /// The host's copy of the buffer's bytes, and the headers that [`Native::headers`] read. The buffer need not hold
    /// its bytes yet.
    pub(crate) host: HostCopy<'a>,
}

/// Scratch memory of decoding steps that decode no frames, as a multiple of a chunk's bytes after these steps.
const PLAIN_SCRATCH_COPIES: u64 = 2;

impl Native {
    pub(crate) fn new(steps: Vec<(Step, String)>, input: Size, packed_bytes: usize) -> Native {
        Native { steps, input, packed_bytes }
    }

    /// Whether `other` consists of the same steps for the same codecs as this one. Sizes may differ.
    pub(crate) fn is_like(&self, other: &Native) -> bool {
        let alike =
            |((one, codec), (other, others)): (&(Step, String), &(Step, String))| codec == others && one.is_like(other);
        self.steps.len() == other.steps.len() && self.steps.iter().zip(&other.steps).all(alike)
    }

    /// The exact size of a chunk before the first step, in bytes; `None` if metadata does not fix it.
    pub(crate) fn input_bytes(&self) -> Option<usize> {
        self.input.exact()
    }

    /// Reads the headers of a stored chunk's frame. `None` if its size does not fit or kernels cannot decode its frame;
    /// the host then decodes or refuses it.
    pub(crate) fn headers(&self, stored: &[u8]) -> Option<Headers> {
        let mut inside = stored;
        for (step, _) in &self.steps {
            inside = match step {
                Step::Check { location, .. } if inside.len() >= CHECKSUM_BYTES => {
                    &inside[location.payload(inside.len())]
                }
                Step::Check { .. } => return None,
                Step::Decode { decoder, decoded_bytes } if inside.len() < MOST_FRAME_BYTES => {
                    return decoder.headers(inside, *decoded_bytes);
                }
                Step::Decode { .. } => return None,
                _ => break,
            };
        }
        (self.input_bytes() == Some(stored.len())).then(Headers::known)
    }

    /// Whether [`Native::prepare`] needs a host copy of all bytes of stored chunks, and not only their headers.
    pub(crate) fn reads_frames(&self) -> bool {
        let first = self.steps.iter().find(|(step, _)| !step.looks());
        matches!(first, Some((Step::Decode { decoder, .. }, _)) if decoder.reads_frames())
    }

    /// Refuses a stored chunk that is too short for its headers and checksums, or whose size is not the one that metadata fixes.
    ///
    /// # Errors
    /// `ChunkCorrupt`
    pub(crate) fn check_size(&self, stored_bytes: usize) -> Result<()> {
        let beside = self.steps.iter().map(|(step, _)| step).take_while(|step| step.looks());
        let beside: usize = beside.map(|step| if let Step::Check { .. } = step { CHECKSUM_BYTES } else { 1 }).sum();
        match self.input_bytes() {
            Some(expected) => expect_encoded_size(stored_bytes, expected),
            None if stored_bytes < beside => {
                Err(corrupt(format!("got {stored_bytes} bytes, expected a checksum of {CHECKSUM_BYTES}")))
            }
            None => Ok(()),
        }
    }

    /// The largest [`batch_factor`](super::device::DeviceDecoder::batch_factor) of the decoders among the steps; 1 if
    /// there are none.
    pub(crate) fn batch_factor(&self) -> u64 {
        let factors = self.steps.iter().filter_map(|(step, _)| match step {
            Step::Decode { decoder, decoded_bytes } => Some(decoder.batch_factor(*decoded_bytes)),
            _ => None,
        });
        factors.max().unwrap_or(1)
    }

    /// The largest [`scratch_copies`](super::device::DeviceDecoder::scratch_copies) of the decoders among the steps.
    pub(crate) fn scratch_copies(&self) -> u64 {
        let copies = self.steps.iter().filter_map(|(step, _)| match step {
            Step::Decode { decoder, decoded_bytes } => Some(decoder.scratch_copies(*decoded_bytes)),
            _ => None,
        });
        copies.max().unwrap_or(PLAIN_SCRATCH_COPIES)
    }

    /// Device memory, in bytes, that decoding a chunk takes besides its stored and packed bytes.
    pub(crate) fn extra_bytes(&self) -> usize {
        let mut written = Vec::new();
        for (step, _) in &self.steps {
            written.push(match step {
                Step::Decode { decoded_bytes, .. } => *decoded_bytes,
                Step::Map(map) => map.decoded_bytes(),
                Step::Convert { conversion, len } => len * conversion.to.size_bytes(),
                Step::Unpack { fields, len } => len * fields.elem_bytes,
                // These steps write as many bytes as they read.
                Step::Unshuffle { .. } | Step::Sum(_) => written.last().copied().unwrap_or(self.packed_bytes),
                Step::Check { .. } | Step::Header { .. } => continue,
            });
        }
        // The last step writes the packed chunk.
        written.split_last().map_or(0, |(_, before)| before.iter().sum())
    }

    /// Plans all steps for the chunks of `source`, on the stream that will run them. Decoders keep within `scratch` if
    /// they can.
    ///
    /// # Errors
    /// Those of [`Batch::prepare`]; `ChunkCorrupt` for a range that [`Native::check_size`] refuses.
    pub(crate) fn prepare(&self, source: Source<'_>, scratch: ScratchLimit, stream: &Stream) -> Result<NativeBatch> {
        self.prepare_to(source, None, scratch, stream)
    }

    /// Whether the last step is a decoder, which writes the packed chunks. Then they can be written to any memory.
    pub(crate) fn ends_with_decoder(&self) -> bool {
        matches!(self.steps.last(), Some((Step::Decode { .. }, _)))
    }

    /// Like [`Native::prepare`], but if a decoder writes the packed chunks, it writes them to `target`.
    ///
    /// # Errors
    /// Those of [`Native::prepare`].
    pub(crate) fn prepare_to(
        &self,
        source: Source<'_>,
        target: Option<Chunks>,
        scratch: ScratchLimit,
        stream: &Stream,
    ) -> Result<NativeBatch> {
        source.ranges.iter().try_for_each(|range| self.check_size(range.len()))?;
        let target = target.filter(|_| self.ends_with_decoder());
        NativeBatch::lay_out(&[self], &[], source, target, scratch, stream)
    }

    /// Like [`Native::prepare`], for chunks of several kinds that go through the same steps with different sizes.
    /// `kind_of` holds the kind of each chunk.
    ///
    /// # Errors
    /// Those of [`Native::prepare`]; `Unsupported` when kinds take different steps.
    pub(crate) fn prepare_kinds(
        kinds: &[&Native],
        kind_of: &[usize],
        source: Source<'_>,
        scratch: ScratchLimit,
        stream: &Stream,
    ) -> Result<NativeBatch> {
        for (range, &kind) in source.ranges.iter().zip(kind_of) {
            kinds[kind].check_size(range.len())?;
        }
        NativeBatch::lay_out(kinds, kind_of, source, None, scratch, stream)
    }
}
