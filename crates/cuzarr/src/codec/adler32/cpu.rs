//! Adler-32, by the crate simd-adler32.

/// Adler-32 of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    simd_adler32::adler32(&bytes)
}
