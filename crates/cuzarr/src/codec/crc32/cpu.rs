//! Computes CRC-32 checksums on the host, by the crate crc32fast.

/// Computes the CRC-32 checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
