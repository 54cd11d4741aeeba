//! Bit shuffle as c-blosc 1 uses it: only for a number of elements that is a multiple of 8; otherwise bytes are copied.

use cuzarr_device::internal::cpu::shuffle;

use crate::Result;

/// Whether Blosc shuffles the bits of `size` bytes: only if their elements fill groups of 8.
fn applies(size: usize, unit_bytes: usize) -> bool {
    (size / unit_bytes).is_multiple_of(8)
}

/// Undoes [`bitshuffle`]: brings the bits of each element together again. Both slices have the same length.
pub(super) fn bitunshuffle(shuffled: &[u8], plain: &mut [u8], unit_bytes: usize) -> Result<()> {
    match applies(plain.len(), unit_bytes) {
        true => Ok(shuffle::bitunshuffle(shuffled, plain, unit_bytes)?),
        false => {
            plain.copy_from_slice(shuffled);
            Ok(())
        }
    }
}

/// Shuffles the bits of elements of `unit_bytes`, so that equal bits of all elements lie together. Both slices have the
/// same length.
pub(super) fn bitshuffle(plain: &[u8], shuffled: &mut [u8], unit_bytes: usize) -> Result<()> {
    match applies(plain.len(), unit_bytes) {
        true => Ok(shuffle::bitshuffle(plain, shuffled, unit_bytes)?),
        false => {
            shuffled.copy_from_slice(plain);
            Ok(())
        }
    }
}
