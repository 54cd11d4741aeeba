//! Scales integers, in arithmetic that is wide enough for every product.

use cuzarr_device::DType;
use cuzarr_device::internal::convert::{Conversion, Rule};

use super::EncodedFill;
use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::damage::{corrupt, expect_encoded_size, unencodable};
use crate::codec::elements::typed;
use crate::codec::host::{ArrayToArray, TailPart};
use crate::codec::native::Step;

#[derive(Debug)]
pub(super) struct ScaleOffset {
    dtype: DType,
    offset: i128,
    scale: i128,
    encoded: ChunkSpec,
}

/// Reads an integer of any type from its bytes.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let (fill, last) = (if dtype.kind() == cuzarr_device::DTypeKind::Int { 0xff } else { 0 }, bytes.len() - 1);
    let mut wide = if bytes[last] & 0x80 != 0 { [fill; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

/// The lowest 8 bytes of an integer.
fn bits(number: i128) -> [u8; 8] {
    (number as i64).to_ne_bytes()
}

impl ScaleOffset {
    /// Makes the codec `scale_offset` for elements of the integer type `dtype`. `offset` and `scale` are bytes of
    /// elements of the array.
    pub(super) fn new(spec: &ChunkSpec, dtype: DType, offset: &[u8], scale: &[u8]) -> Self {
        ScaleOffset { dtype, offset: integer(dtype, offset), scale: integer(dtype, scale), encoded: spec.clone() }
    }

    fn map(&self, source: &[u8], target: &mut [u8], function: impl Fn(i128) -> Option<i128>) -> Option<usize> {
        macro_rules! over {
            ($type:ty) => {{
                let target = target.as_chunks_mut::<{ size_of::<$type>() }>().0;
                let source = source.as_chunks::<{ size_of::<$type>() }>().0;
                for (index, (source, target)) in source.iter().zip(target).enumerate() {
                    let mapped = function(<$type>::from_ne_bytes(*source) as i128);
                    match mapped.and_then(|value| <$type>::try_from(value).ok()) {
                        Some(value) => *target = value.to_ne_bytes(),
                        None => return Some(index),
                    }
                }
            }};
        }
        match self.dtype {
            DType::INT8 => over!(i8),
            DType::INT16 => over!(i16),
            DType::INT32 => over!(i32),
            DType::INT64 => over!(i64),
            DType::UINT8 => over!(u8),
            DType::UINT16 => over!(u16),
            DType::UINT32 => over!(u32),
            _ => over!(u64),
        }
        None
    }

    fn conversion(&self, rule: Rule) -> Conversion {
        Conversion { from: self.dtype, to: self.dtype, rule, pairs: Vec::new() }
    }

    /// Element number `index` as text, for messages.
    fn show(&self, bytes: &[u8], index: usize) -> String {
        typed!(self.dtype, T => {
            let elements = bytes.as_chunks::<{ size_of::<T>() }>().0;
            elements.get(index).map_or(String::new(), |element| T::from_ne_bytes(*element).to_string())
        }, String::new())
    }
}

impl EncodedFill for ScaleOffset {
    fn encoded_mut(&mut self) -> &mut ChunkSpec {
        &mut self.encoded
    }
}

impl ArrayToArray for ScaleOffset {
    fn name(&self) -> &str {
        "scale_offset"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        let undone = |value: i128| (value % self.scale == 0).then(|| value / self.scale + self.offset);
        match self.map(encoded, decoded, undone) {
            None => Ok(()),
            Some(index) => {
                let (value, scale, offset) = (self.show(encoded, index), self.scale, self.offset);
                let message = format!("element {index}: {value} / {scale} + {offset} is not a value of {}", self.dtype);
                Err(corrupt(message))
            }
        }
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        let done = |value: i128| (value - self.offset).checked_mul(self.scale);
        match self.map(decoded, encoded, done) {
            None => Ok(()),
            Some(index) => {
                let (value, scale, offset) = (self.show(decoded, index), self.scale, self.offset);
                let message =
                    format!("element {index}: ({value} - {offset}) * {scale} is not a value of {}", self.dtype);
                Err(unencodable(message))
            }
        }
    }

    fn native(&self) -> Option<Vec<Step>> {
        let len = usize::try_from(self.encoded.elements()?).ok()?;
        let rule = Rule::Unscale { offset: bits(self.offset), scale: bits(self.scale) };
        Some(vec![Step::Convert { conversion: self.conversion(rule), len }])
    }

    fn native_encoding(&self) -> Option<Conversion> {
        Some(self.conversion(Rule::Scale { offset: bits(self.offset), scale: bits(self.scale) }))
    }

    fn tail(&self) -> TailPart {
        TailPart::Host("every element is checked when writing")
    }
}
