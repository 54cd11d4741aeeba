//! Finds the compressed streams inside a Blosc frame, for the decoders of the streams' own formats.

use std::ops::Range;

use super::container::{HEADER_BYTES, Header, stream};
use crate::codec::damage::corrupt;
use crate::{Error, ErrorKind, Result};

/// Where one compressed stream lies in a frame, and its decoded bytes among the frame's shuffled bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) src: Range<usize>,
    pub(super) dst: Range<usize>,
}

impl Stream {
    /// Whether the stream is stored uncompressed.
    pub(super) fn is_stored(&self) -> bool {
        self.src.len() == self.dst.len()
    }
}

/// Lists all streams of a frame, from its header and its table of blocks. Its header was checked, and it is not a copy.
///
/// # Errors
/// `ChunkCorrupt` if a block or stream leaves the frame. `Unsupported` if streams share bytes: no writer does that, and
/// the frame's size would not bound the work of decoding.
pub(super) fn streams(header: &Header, frame: &[u8]) -> Result<Vec<Stream>> {
    let (mut streams, mut encoded_bytes) = (Vec::new(), 0usize);
    for block in 0..header.block_count() {
        let begin = block * header.block_bytes;
        let size = header.block_bytes.min(header.decoded_bytes - begin);
        let splits = header.split_count(size);
        let split_bytes = size / splits;
        let entry = HEADER_BYTES + 4 * block;
        let start = header.block_start(frame, block);
        let mut at = start.map_err(|error| corrupt(format!("byte {entry}: {}", error.message())))?;
        for split in 0..splits {
            let (bytes, next) = stream(frame, at)?;
            encoded_bytes += bytes.len();
            if encoded_bytes > frame.len() {
                let message = format!("byte {entry}: streams share bytes of the frame, which kernels do not decode");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let dst = begin + split * split_bytes;
            streams.push(Stream { src: next - bytes.len()..next, dst: dst..dst + split_bytes });
            at = next;
        }
    }
    Ok(streams)
}
