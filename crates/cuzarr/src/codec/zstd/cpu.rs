//! libzstd, with one context per thread.

use std::borrow::Cow;
use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::ResetDirective;

use super::scan::scan;
use super::table::Tables;
use crate::codec::batch::Format;
use crate::codec::contract::{BytesToBytes, Size, corrupt, expect_size, read_to_limit, unencodable};
use crate::{Error, ErrorKind, Result};

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default();
    static COMPRESSOR: RefCell<Compressor<'static>> = RefCell::default();
}

#[derive(Debug)]
pub(super) struct Zstd {
    pub(super) level: i32,
    pub(super) checksum: bool,
}

/// Decodes all frames of `encoded` into `decoded`, without a window of their own; gives the number of bytes.
pub(crate) fn decompress(encoded: &[u8], decoded: &mut [u8]) -> Result<usize> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        decompressor.decompress_to_buffer(encoded, decoded).map_err(|error| damage(&error, encoded, decoded.len()))
    })
}

/// What is wrong with frames that libzstd refused, and at which byte as far as their headers tell: it does not say.
fn damage(error: &std::io::Error, encoded: &[u8], decoded_bytes: usize) -> Error {
    let said = lower(error);
    let mut tables = Tables::new();
    let scanned = scan(&mut tables, encoded, 0..encoded.len(), 0..decoded_bytes);
    if said.contains("checksum") {
        let mut places = tables.frames.iter().filter_map(|frame| frame.checksum);
        let message = match (places.next(), places.next()) {
            (Some(at), None) => format!("byte {at}: the checksum there is not that of the data"),
            _ => "a frame's checksum is not that of its data".into(),
        };
        return Error::new(ErrorKind::ChecksumMismatch, message);
    }
    match scanned {
        Err(error) if error.kind() == ErrorKind::ChunkCorrupt || said.contains("dictionary") => error,
        _ => corrupt(format!("{said}, in {} encoded bytes for {decoded_bytes} decoded", encoded.len())),
    }
}

/// Encodes one frame into `encoded`, or says that it does not fit.
pub(crate) fn compress(decoded: &[u8], level: i32, checksum: bool, encoded: &mut Vec<u8>) -> std::io::Result<usize> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        // A frame that did not fit has left its session open.
        compressor
            .context_mut()
            .reset(ResetDirective::SessionOnly)
            .map_err(|_| std::io::Error::other("reset failed"))?;
        compressor.set_compression_level(level)?;
        compressor.include_checksum(checksum)?;
        compressor.compress_to_buffer(decoded, encoded)
    })
}

fn lower(error: &std::io::Error) -> String {
    error.to_string().to_lowercase()
}

impl BytesToBytes for Zstd {
    fn name(&self) -> &str {
        "zstd"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_format(&self) -> Option<Format> {
        Some(Format::Zstd)
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_size(decompress(encoded, decoded)?, decoded.len())
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        // The streaming decoder keeps a window of its own; libzstd refuses windows above 128 MiB.
        let decoder = zstd::stream::read::Decoder::with_buffer(encoded).map_err(|error| corrupt(lower(&error)))?;
        read_to_limit(decoder, limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let mut encoded = Vec::with_capacity(zstd::zstd_safe::compress_bound(decoded.len()));
        compress(&decoded, self.level, self.checksum, &mut encoded).map_err(|error| unencodable(lower(&error)))?;
        Ok(encoded)
    }
}
