//! The crc32c crate: the CPU's own instruction where it has one.

/// CRC-32C of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
