//! Deflate streams of all kinds of blocks, by zlib-rs.

use super::Format;
use flate2::{Compress, Compression, FlushCompress};

/// A stream of `parts`, each by the level beside it: 0 makes stored blocks, 1 blocks of the fixed codes, others mostly dynamic
/// ones.
pub fn by_levels(format: Format, parts: &[(u32, &[u8])]) -> Vec<u8> {
    let mut encoded = match format {
        Format::Gzip => vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff],
        Format::Zlib => vec![0x78, 0x9c],
        _ => Vec::new(),
    };
    for (index, &(level, part)) in parts.iter().enumerate() {
        encoded.reserve(part.len() * 2 + 1000);
        // Behind a flush, the blocks of another stream may follow.
        let flush = if index + 1 < parts.len() { FlushCompress::Sync } else { FlushCompress::Finish };
        let mut compress = Compress::new(Compression::new(level), false);
        compress.compress_vec(part, &mut encoded, flush).expect("there is room");
    }
    let plain: Vec<_> = parts.iter().flat_map(|(_, part)| part.iter().copied()).collect();
    match format {
        Format::Gzip => {
            encoded.extend(libdeflater::crc32(&plain).to_le_bytes());
            encoded.extend((plain.len() as u32).to_le_bytes());
        }
        Format::Zlib => encoded.extend(libdeflater::adler32(&plain).to_be_bytes()),
        _ => {}
    }
    encoded
}
