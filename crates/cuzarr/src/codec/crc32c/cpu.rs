//! CRC-32C, by the crate crc32c, which uses the CPU's instruction for it, if there is one.

/// Computes the CRC-32C checksum of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
