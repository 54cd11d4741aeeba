//! gzip on the host: libdeflate for one member of known size, zlib-rs for everything else.

use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::sync::Arc;

use flate2::bufread::GzDecoder;

use crate::codec::damage::{corrupt, expect_size, read_exactly, read_to_limit, unencodable};
use crate::codec::deflate::cpu::walk;
use crate::codec::deflate::cuda::GZIP;
use crate::codec::deflate::encode::DeflateEncoder;
use crate::codec::deflate::libdeflate::{with_compressor, with_decompressor};
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;
use crate::{Error, ErrorKind, Result};

/// Bytes of the checksum and the size after a gzip member's stream.
const TRAILER_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct Gzip {
    pub(super) level: i32,
}

/// A reader of the decoded bytes of all gzip members, one after the other. Zeros after a member are skipped.
struct GzipMembers<'a> {
    /// The gzip member that is being read; `None` after the last one.
    member: Option<GzDecoder<&'a [u8]>>,
}

impl<'a> GzipMembers<'a> {
    fn new(encoded: &'a [u8]) -> Self {
        GzipMembers { member: Some(GzDecoder::new(encoded)) }
    }

    /// Adds to an error the byte at which reading ended.
    fn place(&self, error: Error, encoded_bytes: usize) -> Error {
        let Some(member) = &self.member else { return error };
        let at = encoded_bytes - member.get_ref().len();
        match error.message().contains("checksum") {
            true => wrong_checksum(at.saturating_sub(TRAILER_BYTES)),
            false => corrupt(format!("byte {at}: {}", error.message())),
        }
    }
}

impl Read for GzipMembers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let mut rest = *member.get_ref();
            let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
            rest.consume(zeros);
            self.member = (!rest.is_empty()).then(|| GzDecoder::new(rest));
        }
        Ok(0)
    }
}

/// Whether the last four bytes of the frame say that it decodes to `size` bytes. They do if the frame is one member
/// with nothing after it.
fn ends_with_size(encoded: &[u8], size: usize) -> bool {
    encoded.last_chunk::<4>().is_some_and(|last| u32::from_le_bytes(*last) == size as u32)
}

impl BytesToBytes for Gzip {
    fn name(&self) -> &str {
        "gzip"
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&GZIP)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(DeflateEncoder::gzip(decoded_bytes, self.level)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        if ends_with_size(encoded, decoded.len())
            && with_decompressor(|decompressor| decompressor.gzip_decompress(encoded, decoded)) == Ok(decoded.len())
        {
            return Ok(());
        }
        // There are several members, or damage. The slower decoder reads the members, and names the damage.
        let mut members = GzipMembers::new(encoded);
        read_exactly(&mut members, decoded).map_err(|error| members.place(error, encoded.len()))
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        read_to_limit(GzipMembers::new(encoded), limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        with_compressor(self.level, |compressor| {
            let mut encoded = vec![0; compressor.gzip_compress_bound(decoded.len())];
            let size =
                compressor.gzip_compress(&decoded, &mut encoded).map_err(|error| unencodable(error.to_string()))?;
            encoded.truncate(size);
            Ok(encoded)
        })
    }
}

/// Decodes a zlib stream of exactly `decoded.len()` bytes.
pub(crate) fn zlib_into(encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
    match with_decompressor(|decompressor| decompressor.zlib_decompress(encoded, decoded)) {
        Ok(size) => expect_size(size, decoded.len()),
        Err(_) => Err(zlib_damage(encoded, decoded)),
    }
}

/// The error for a zlib stream that libdeflate refused, with the byte where it is damaged.
fn zlib_damage(encoded: &[u8], decoded: &mut [u8]) -> Error {
    let Some((header, stream)) = encoded.split_first_chunk::<2>() else {
        return corrupt(format!("byte {}: the stream is cut off", encoded.len()));
    };
    if header[0] & 15 != 8 || header[1] & 32 != 0 || u16::from_be_bytes(*header) % 31 != 0 {
        return corrupt("byte 0: the header is invalid");
    }
    match walk(stream, header.len(), decoded) {
        Err(error) => error,
        Ok(taken) if stream.len() - taken < 4 => corrupt(format!("byte {}: the stream is cut off", encoded.len())),
        Ok(taken) => wrong_checksum(header.len() + taken),
    }
}

fn wrong_checksum(at: usize) -> Error {
    Error::new(ErrorKind::ChecksumMismatch, format!("byte {at}: the checksum there is not that of the data"))
}

/// Encodes `decoded` to a zlib stream at compression level `level`.
pub(crate) fn zlib_encode(decoded: &[u8], level: i32) -> Result<Vec<u8>> {
    with_compressor(level, |compressor| {
        let mut encoded = vec![0; compressor.zlib_compress_bound(decoded.len())];
        let size = compressor.zlib_compress(decoded, &mut encoded).map_err(|error| unencodable(error.to_string()))?;
        encoded.truncate(size);
        Ok(encoded)
    })
}
