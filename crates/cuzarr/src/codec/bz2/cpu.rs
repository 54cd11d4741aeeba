//! Decodes and encodes bzip2 streams on the host, by the crate bzip2 over libbz2-rs, which is written in Rust.

use std::borrow::Cow;
use std::io::Read;

use bzip2::Compression;
use bzip2::bufread::{BzEncoder, MultiBzDecoder};

use crate::Result;
use crate::codec::damage::{read_exactly, read_to_limit, unencodable};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;

#[derive(Debug)]
pub(super) struct Bz2 {
    pub(super) level: u32,
}

impl BytesToBytes for Bz2 {
    fn name(&self) -> &str {
        "numcodecs.bz2"
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        read_exactly(MultiBzDecoder::new(encoded), decoded)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        read_to_limit(MultiBzDecoder::new(encoded), limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let mut encoded = Vec::new();
        BzEncoder::new(&*decoded, Compression::new(self.level))
            .read_to_end(&mut encoded)
            .map_err(|error| unencodable(error.to_string()))?;
        Ok(encoded)
    }
}
