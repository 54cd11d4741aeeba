//! Conversions between element types, bit for bit as NumPy's `astype` (and ml_dtypes', for bfloat16) on x86-64.
//!
//! Where C leaves a result undefined, that processor's result counts, found by experiment with NumPy 2.5 (golden values in
//! `tests/data`):
//!
//! - Float to an integer of up to 32 bits, except uint32: truncated to int32, where NaN and everything outside becomes
//!   -2³¹; then cut to the width. Float to uint32: truncated to int64 in the same way, then cut. (NumPy's loops for
//!   float32/float64 → uint32 disagree with each other out of range; this is what its scalar and strided loops give.)
//! - Float to int64: truncated, NaN and everything outside becomes -2⁶³. To uint64: as int64 below 2⁶³, above it
//!   truncated after subtracting 2⁶³, with the top bit flipped.
//! - 2-byte floats convert by way of float32, except from float64 to float16, which is rounded once.
//! - NaN keeps the upper bits of its payload and its sign, quiet or not, between float16 and the others; between float32
//!   and float64 the processor makes it quiet; to bfloat16, and from it to float16, only the sign is kept.
//! - Complex to real drops the imaginary part; anything to bool is "not zero", so NaN is true.

use crate::array::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::element::{Element, WithType, with_type};

/// Whether [`cast`] converts between these types.
pub fn is_supported(from: DType, to: DType) -> bool {
    let known = |dtype: DType| with_type(dtype, Known).is_some();
    known(from) && known(to)
}

/// Converts packed elements; `source` and `target` hold the same number of them, in native byte order.
///
/// # Errors
/// `Unsupported` when there is no conversion (opaque bytes); `InvalidArgument` when the lengths do not match.
pub fn cast(from: DType, to: DType, source: &[u8], target: &mut [u8]) -> Result<()> {
    if !is_supported(from, to) {
        return Err(Error::new(ErrorKind::Unsupported, format!("cannot cast {from} to {to}")));
    }
    let len = source.len() / from.size_bytes();
    if len * from.size_bytes() != source.len() || len.checked_mul(to.size_bytes()) != Some(target.len()) {
        let (got, expected) = (target.len(), source.len());
        return Err(Error::invalid(format!("{expected} bytes of {from} do not convert to {got} bytes of {to}")));
    }
    if from == to {
        target.copy_from_slice(source);
        return Ok(());
    }
    with_type(from, CastFrom { to, source, target });
    Ok(())
}

struct Known;

impl WithType for Known {
    type Output = ();
    fn run<T: Element>(self) {}
}

struct CastFrom<'a> {
    to: DType,
    source: &'a [u8],
    target: &'a mut [u8],
}

impl WithType for CastFrom<'_> {
    type Output = ();
    fn run<From: Element>(self) {
        struct CastTo<'a, From>(&'a [u8], &'a mut [u8], std::marker::PhantomData<From>);
        impl<From: Element> WithType for CastTo<'_, From> {
            type Output = ();
            fn run<To: Element>(self) {
                for (from, to) in self.0.chunks_exact(From::SIZE).zip(self.1.chunks_exact_mut(To::SIZE)) {
                    To::from_parts(From::read(from).parts()).write(to);
                }
            }
        }
        with_type(self.to, CastTo::<From>(self.source, self.target, std::marker::PhantomData));
    }
}
