//! The codec `delta` on the host: differences of neighbouring elements, and the running sums that undo them.

use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{Arithmetic, DType, Tail};

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::damage::expect_encoded_size;
use crate::codec::elements::{Compute, cast_step, typed};
use crate::codec::host::ArrayToArray;
use crate::codec::native::{Map, Step};

#[derive(Debug)]
pub(super) struct Delta {
    pub(super) decoded: DType,
    pub(super) encoded_dtype: DType,
    /// The type in which differences are summed.
    pub(super) sum: DType,
    pub(super) encoded: ChunkSpec,
}

/// Replaces each element by the sum of all elements up to it.
fn running_sum(dtype: DType, bytes: &mut [u8]) -> Result<()> {
    typed!(dtype, T => {
        let mut elements = bytes.as_chunks_mut::<{ size_of::<T>() }>().0.iter_mut();
        let Some(first) = elements.next() else { return Ok(()) };
        let mut sum = T::from_ne_bytes(*first);
        for element in elements {
            sum = sum.compute(Arithmetic::Add, T::from_ne_bytes(*element));
            *element = sum.to_ne_bytes();
        }
        Ok(())
    }, half_by_half(dtype, bytes, |sum, element| (sum + element, true)))
}

/// Replaces each element but the first by its difference from the one before.
fn differences(dtype: DType, bytes: &mut [u8]) -> Result<()> {
    typed!(dtype, T => {
        let mut elements = bytes.as_chunks_mut::<{ size_of::<T>() }>().0.iter_mut();
        let Some(first) = elements.next() else { return Ok(()) };
        let mut before = T::from_ne_bytes(*first);
        for element in elements {
            let value = T::from_ne_bytes(*element);
            *element = value.compute(Arithmetic::Subtract, before).to_ne_bytes();
            before = value;
        }
        Ok(())
    }, half_by_half(dtype, bytes, |before, element| (element - before, false)))
}

/// Computes sums or differences of 2-byte floats in binary32, and rounds to 2 bytes after each step. `step` gets the
/// carried number and an element. It returns the new element, and whether to carry the new element instead of the old
/// one.
fn half_by_half(dtype: DType, bytes: &mut [u8], step: impl Fn(f32, f32) -> (f32, bool)) -> Result<()> {
    let widen = |half: &[u8; 2]| {
        let mut wide = [0; 4];
        cast(dtype, DType::FLOAT32, half, &mut wide).map(|()| f32::from_ne_bytes(wide))
    };
    let mut elements = bytes.as_chunks_mut::<2>().0.iter_mut();
    let Some(first) = elements.next() else { return Ok(()) };
    let mut carried = widen(first)?;
    for element in elements {
        let old = widen(element)?;
        let (new, carries_new) = step(carried, old);
        cast(DType::FLOAT32, dtype, &new.to_ne_bytes(), element)?;
        carried = if carries_new { widen(element)? } else { old };
    }
    Ok(())
}

impl Delta {
    /// The step by which a device converts all elements: `Some(None)` if there is nothing to convert, `None` if it
    /// cannot.
    fn conversion(&self, from: DType, to: DType) -> Option<Option<Step>> {
        let len = usize::try_from(self.encoded.elements()?).ok()?;
        Some(cast_step(from, to).map(|step| {
            let tail = Tail { steps: vec![step], dtype: to, ..Tail::plain(from) };
            Step::Map(Map::flat(tail, len))
        }))
    }
}

impl ArrayToArray for Delta {
    fn name(&self) -> &str {
        "numcodecs.delta"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let count = decoded.len() / self.decoded.size_bytes();
        expect_encoded_size(encoded.len(), count * self.encoded_dtype.size_bytes())?;
        if self.sum == self.decoded {
            cast(self.encoded_dtype, self.decoded, encoded, decoded)?;
            return running_sum(self.decoded, decoded);
        }
        let mut sums = vec![0; count * self.sum.size_bytes()];
        cast(self.encoded_dtype, self.sum, encoded, &mut sums)?;
        running_sum(self.sum, &mut sums)?;
        Ok(cast(self.sum, self.decoded, &sums, decoded)?)
    }

    fn native(&self) -> Option<Vec<Step>> {
        let (before, behind) =
            (self.conversion(self.encoded_dtype, self.sum)?, self.conversion(self.sum, self.decoded)?);
        Some(before.into_iter().chain([Step::Sum(self.sum)]).chain(behind).collect())
    }

    /// The decoding steps whose inverses a device runs to encode: they take differences in the decoded type, even if
    /// sums have another type.
    fn native_undone(&self) -> Option<Vec<Step>> {
        let before = self.conversion(self.encoded_dtype, self.decoded)?;
        Some(before.into_iter().chain([Step::Sum(self.decoded)]).collect())
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let count = decoded.len() / self.decoded.size_bytes();
        expect_encoded_size(encoded.len(), count * self.encoded_dtype.size_bytes())?;
        if self.decoded == self.encoded_dtype {
            encoded.copy_from_slice(decoded);
            return differences(self.decoded, encoded);
        }
        let mut wide = decoded.to_vec();
        differences(self.decoded, &mut wide)?;
        Ok(cast(self.decoded, self.encoded_dtype, &wide, encoded)?)
    }
}
