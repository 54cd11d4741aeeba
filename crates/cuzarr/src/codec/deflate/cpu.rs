//! Deflate on the host: by libdeflate if the decoded size is known, else by zlib-rs.

use std::borrow::Cow;
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};

use super::encode::DeflateEncoder;
use super::libdeflate::{with_compressor, with_decompressor};
use crate::Result;
use crate::codec::damage::{corrupt, expect_size, read_to_limit, unencodable};
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;

#[derive(Debug)]
pub(super) struct Deflate {
    pub(super) level: i32,
}

/// Decodes, byte by byte, a deflate stream that libdeflate refused, to find where the stream is damaged. Returns the
/// number of encoded bytes that the stream takes. `at` is where the stream begins, for messages.
pub(crate) fn walk(stream: &[u8], at: usize, decoded: &mut [u8]) -> Result<usize> {
    let mut inflate = Decompress::new(false);
    let status = inflate.decompress(stream, decoded, FlushDecompress::Finish);
    let (taken, made) = (inflate.total_in() as usize, inflate.total_out() as usize);
    let what = match status {
        Ok(Status::StreamEnd) => return expect_size(made, decoded.len()).map(|()| taken),
        Ok(_) if taken == stream.len() => "the stream is cut off",
        Ok(_) => "the stream decodes to more than its place",
        Err(_) => "the stream is damaged",
    };
    Err(corrupt(format!("byte {}: {what}", at + taken)))
}

impl BytesToBytes for Deflate {
    fn name(&self) -> &str {
        "deflate"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&super::cuda::RAW)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(DeflateEncoder::raw(decoded_bytes, self.level)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        match with_decompressor(|decompressor| decompressor.deflate_decompress(encoded, decoded)) {
            Ok(size) => expect_size(size, decoded.len()),
            Err(_) => walk(encoded, 0, decoded).map(|_| ()),
        }
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        read_to_limit(flate2::bufread::DeflateDecoder::new(encoded), limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        with_compressor(self.level, |compressor| {
            let mut encoded = vec![0; compressor.deflate_compress_bound(decoded.len())];
            let size =
                compressor.deflate_compress(&decoded, &mut encoded).map_err(|error| unencodable(error.to_string()))?;
            encoded.truncate(size);
            Ok(encoded)
        })
    }
}
