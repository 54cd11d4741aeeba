//! libdeflate where the size is known, zlib-rs where it is not.

use std::borrow::Cow;

use crate::Result;
use crate::codec::batch::Format;
use crate::codec::contract::{BytesToBytes, Size, expect_size, read_to_limit, unencodable};
use crate::codec::gzip::cpu::{explain, with_compressor, with_decompressor};

#[derive(Debug)]
pub(super) struct Deflate {
    pub(super) level: i32,
}

impl BytesToBytes for Deflate {
    fn name(&self) -> &str {
        "deflate"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_format(&self) -> Option<Format> {
        Some(Format::Deflate)
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let size = with_decompressor(|decompressor| decompressor.deflate_decompress(encoded, decoded))
            .map_err(|error| explain(error, encoded.len(), decoded.len()))?;
        expect_size(size, decoded.len())
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
