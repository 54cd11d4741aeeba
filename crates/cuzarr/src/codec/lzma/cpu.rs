//! Decodes and encodes LZMA streams on the host, by the crate liblzma.

use std::borrow::Cow;
use std::io::{self, Read};

use liblzma::bufread::{XzDecoder, XzEncoder};
use liblzma::stream::{Check, LzmaOptions, Stream};

use crate::Result;
use crate::codec::damage::{read_exactly, read_to_limit, unencodable};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;

/// Maximum memory in bytes that decoding an LZMA stream may take, mostly for the dictionary; a stream that needs more
/// is refused. The highest preset takes 64 MiB.
const DICTIONARY_LIMIT_BYTES: u64 = 128 << 20;
/// The first bytes of an xz stream.
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Xz,
    Alone,
}

#[derive(Debug)]
pub(super) struct Lzma {
    pub(super) format: Format,
    pub(super) check: Check,
    pub(super) preset: u32,
}

/// A reader of the decoded bytes of several LZMA streams, one after the other. Other bytes after the last stream are
/// ignored, as in Python's `lzma.decompress`.
struct LzmaStreams<'a> {
    format: Format,
    decoder: XzDecoder<&'a [u8]>,
}

impl<'a> LzmaStreams<'a> {
    fn new(format: Format, encoded: &'a [u8]) -> io::Result<LzmaStreams<'a>> {
        let stream = match format {
            Format::Xz => Stream::new_stream_decoder(DICTIONARY_LIMIT_BYTES, 0),
            Format::Alone => Stream::new_lzma_decoder(DICTIONARY_LIMIT_BYTES),
        };
        Ok(LzmaStreams { format, decoder: XzDecoder::new_stream(encoded, stream?) })
    }
}

impl Read for LzmaStreams<'_> {
    fn read(&mut self, decoded: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.decoder.read(decoded)?;
            let rest = *self.decoder.get_ref();
            if count > 0 || decoded.is_empty() || matches!(self.format, Format::Alone) || !rest.starts_with(XZ_MAGIC) {
                return Ok(count);
            }
            *self = LzmaStreams::new(self.format, rest)?;
        }
    }
}

impl BytesToBytes for Lzma {
    fn name(&self) -> &str {
        "numcodecs.lzma"
    }

    fn has_checksum(&self) -> bool {
        matches!(self.format, Format::Xz) && !matches!(self.check, Check::None)
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        read_exactly(Whole(LzmaStreams::new(self.format, encoded)), decoded)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        read_to_limit(Whole(LzmaStreams::new(self.format, encoded)), limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let stream = || match self.format {
            Format::Xz => Stream::new_easy_encoder(self.preset, self.check),
            Format::Alone => Stream::new_lzma_encoder(&LzmaOptions::new_preset(self.preset)?),
        };
        let stream = stream().map_err(|error| unencodable(error.to_string()))?;
        let mut encoded = Vec::new();
        XzEncoder::new_stream(&*decoded, stream)
            .read_to_end(&mut encoded)
            .map_err(|error| unencodable(error.to_string()))?;
        Ok(encoded)
    }
}

/// A reader of decoded bytes that may have failed to open; then every read returns the error.
struct Whole<R>(io::Result<R>);

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, decoded: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Ok(reader) => reader.read(decoded),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}
