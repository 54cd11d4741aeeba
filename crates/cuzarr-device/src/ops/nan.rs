//! The canonical NaN: positive, quiet, without a payload. It is the fill value `"NaN"` of Zarr.
//!
//! Computed NaNs have different signs and payloads on different processors: x86-64 sets the sign of 0/0, and GPUs have
//! one NaN of their own. cuzarr replaces the NaNs that it computes with the canonical one. So results have the same
//! bits everywhere, and chunks that contain only NaN are empty if the fill value is `"NaN"`. Elements that are only
//! moved keep their bits. `kernels/include/cuzarr/nan.cuh` does the same in kernels.

use crate::array::dtype::{DType, DTypeKind};
use crate::ops::lanes::{Vectors, widest};

/// A float type whose NaNs can be replaced.
pub trait Canonical: Copy {
    /// Returns the number itself, or the canonical NaN if it is any NaN.
    fn canonical(self) -> Self;
}

impl Canonical for f32 {
    #[inline(always)]
    fn canonical(self) -> f32 {
        if self.is_nan() { f32::from_bits(0x7fc0_0000) } else { self }
    }
}

impl Canonical for f64 {
    #[inline(always)]
    fn canonical(self) -> f64 {
        if self.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { self }
    }
}

/// Replaces every NaN among packed elements in native byte order with the canonical one. Each part of a complex number
/// is replaced separately. Elements that are not floats are unchanged.
///
/// ```
/// use cuzarr_device::DType;
/// use cuzarr_device::internal::cpu::nan;
/// let mut bytes = [0xff80_0001u32, 0x3f80_0000].map(u32::to_ne_bytes).concat();
/// nan::canonicalize(DType::FLOAT32, &mut bytes);
/// assert_eq!(bytes, [0x7fc0_0000u32, 0x3f80_0000].map(u32::to_ne_bytes).concat());
/// ```
pub fn canonicalize(dtype: DType, elements: &mut [u8]) {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::BFloat, _) => widest(InWords16 { elements, infinity: 0x7f80, nan: 0x7fc0 }),
        (DTypeKind::Float, 2) => widest(InWords16 { elements, infinity: 0x7c00, nan: 0x7e00 }),
        (DTypeKind::Float, 4) | (DTypeKind::Complex, 8) => {
            widest(InWords32 { elements, infinity: 0x7f80_0000, nan: 0x7fc0_0000 })
        }
        (DTypeKind::Float | DTypeKind::Complex, _) => {
            widest(InWords64 { elements, infinity: 0x7ff0_0000_0000_0000, nan: 0x7ff8_0000_0000_0000 });
        }
        _ => {}
    }
}

/// Size of the blocks that are searched for NaN, in bytes.
const BLOCK_BYTES: usize = 1024;

macro_rules! in_words {
    ($($name:ident $bits:ident)*) => {$(
        /// Floats as words, which are NaN if their size is above infinity.
        struct $name<'a> {
            elements: &'a mut [u8],
            infinity: $bits,
            nan: $bits,
        }

        impl Vectors for $name<'_> {
            type Output = ();

            #[inline(always)]
            fn run(self) {
                let is_nan = |bytes: [u8; size_of::<$bits>()]| {
                    $bits::from_ne_bytes(bytes) & ($bits::MAX >> 1) > self.infinity
                };
                // Most blocks have no NaN. A search takes a fraction of the time of writing: a choice between an element
                // and another value becomes a masked store, which is slow on some processors.
                for block in self.elements.chunks_mut(BLOCK_BYTES) {
                    let block = block.as_chunks_mut().0;
                    if block.iter().fold(false, |found, &bytes| found | is_nan(bytes)) {
                        for bytes in block.iter_mut().filter(|bytes| is_nan(**bytes)) {
                            *bytes = self.nan.to_ne_bytes();
                        }
                    }
                }
            }
        }
    )*};
}

in_words! { InWords16 u16 InWords32 u32 InWords64 u64 }

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical<const N: usize>(dtype: DType, elements: &[[u8; N]]) -> Vec<u8> {
        let mut bytes = elements.concat();
        canonicalize(dtype, &mut bytes);
        bytes
    }

    #[test]
    fn nans_of_every_type_become_the_canonical_one() {
        let halves =
            |nans: [u16; 3], others: [u16; 3]| [nans.map(u16::to_ne_bytes), others.map(u16::to_ne_bytes)].concat();
        let expected = halves([0x7e00; 3], [0x7c00, 0xfc00, 0x8000]).concat();
        assert_eq!(canonical(DType::FLOAT16, &halves([0x7c01, 0xffff, 0xfe00], [0x7c00, 0xfc00, 0x8000])), expected);
        let expected = halves([0x7fc0; 3], [0x7f80, 0xff80, 0x8000]).concat();
        assert_eq!(canonical(DType::BFLOAT16, &halves([0x7f81, 0xffff, 0xffc0], [0x7f80, 0xff80, 0x8000])), expected);
        let parts = [0xff80_0001u32, 0xff80_0000, 0x8000_0000, 0x7fc0_0001].map(u32::to_ne_bytes);
        let expected = [0x7fc0_0000u32, 0xff80_0000, 0x8000_0000, 0x7fc0_0000].map(u32::to_ne_bytes).concat();
        assert_eq!(canonical(DType::FLOAT32, &parts), expected);
        assert_eq!(canonical(DType::COMPLEX64, &parts), expected);
        let parts = [0xfff8_0000_0000_0000u64, 0x7ff0_0000_0000_0000].map(u64::to_ne_bytes);
        let expected = [0x7ff8_0000_0000_0000u64, 0x7ff0_0000_0000_0000].map(u64::to_ne_bytes).concat();
        assert_eq!(canonical(DType::FLOAT64, &parts), expected);
        assert_eq!(canonical(DType::COMPLEX128, &parts), expected);
    }

    #[test]
    fn elements_that_are_no_floats_stay() {
        let bytes = [0xff; 8];
        for dtype in [DType::INT32, DType::UINT64, DType::BOOL, DType::opaque(8)] {
            assert_eq!(canonical(dtype, &[bytes]), bytes, "{dtype}");
        }
    }
}
