//! zlib on the host: by libdeflate if the decoded size is known, else by zlib-rs.

use std::borrow::Cow;
use std::sync::Arc;

use crate::Result;
use crate::codec::damage::read_to_limit;
use crate::codec::deflate::cuda::ZLIB;
use crate::codec::deflate::encode::DeflateEncoder;
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::gzip::cpu::{zlib_encode, zlib_into};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;

#[derive(Debug)]
pub(super) struct Zlib {
    pub(super) level: i32,
}

impl BytesToBytes for Zlib {
    fn name(&self) -> &str {
        "numcodecs.zlib"
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&ZLIB)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(DeflateEncoder::zlib(decoded_bytes, self.level)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        zlib_into(encoded, decoded)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        read_to_limit(flate2::bufread::ZlibDecoder::new(encoded), limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        zlib_encode(&decoded, self.level)
    }
}
