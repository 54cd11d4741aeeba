//! Conversions between element types, with the bits of NumPy's `astype` on x86-64 (for bfloat16: of ml_dtypes).
//!
//! C leaves some results undefined. In these cases we return what NumPy 2.5 returned on x86-64 in experiments (golden
//! values in `tests/data`):
//!
//! - Float to an integer of up to 32 bits, except uint32: truncated to int32, with NaN and values out of range as -2³¹,
//!   then cut to the width. Float to uint32: truncated to int64 in the same way, then cut. (NumPy's loops for
//!   float32/float64 → uint32 disagree with each other out of range; this is the result of its scalar and strided
//!   loops.)
//! - Float to int64: truncated; NaN and values out of range become -2⁶³. Float to uint64: below 2⁶³ as to int64; from
//!   there on, truncated after subtracting 2⁶³, with the top bit flipped.
//! - 2-byte floats convert by way of float32, except from float64 to float16, which is rounded once.
//! - NaN between float16 and the other types keeps its sign and the upper bits of its payload, quiet or not. Between
//!   float32 and float64, the processor makes it quiet. To bfloat16, and from bfloat16 to float16, only the sign is
//!   kept.
//! - Complex to real drops the imaginary part; anything to bool is "not zero", so NaN is true.

use crate::array::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::element::{Element, WithType, with_type};

/// Whether [`cast`] converts elements of type `from` to type `to`.
pub fn is_supported(from: DType, to: DType) -> bool {
    let known = |dtype: DType| with_type(dtype, Known).is_some();
    known(from) && known(to)
}

/// Converts the elements of type `from` in `source` to type `to`, and writes them to `target`; both are packed.
/// `source` and `target` must hold the same number of elements.
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
