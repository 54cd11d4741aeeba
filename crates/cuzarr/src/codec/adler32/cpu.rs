//! Computes Adler-32 checksums on the host, by the crate simd-adler32.

/// Computes the Adler-32 checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    simd_adler32::adler32(&bytes)
}
