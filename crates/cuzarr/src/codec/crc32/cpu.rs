//! CRC-32, by the crate crc32fast.

/// CRC-32 of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
