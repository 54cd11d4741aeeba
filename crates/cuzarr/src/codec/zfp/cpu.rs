//! Encodes chunks to zfp blocks and decodes them, on the host.

use std::borrow::Cow;
use std::sync::Arc;

use cuzarr_device::DType;

use super::bits::{BitReader, BitWriter};
use super::block::{Value, ZfpBlocks};
use super::cuda::ZfpDecoder;
use super::extents::Extents;
use super::planes::MOST_VALUES;
use crate::codec::damage::{corrupt, expect_encoded_size, unencodable};
use crate::codec::device::FrameDecoder;
use crate::codec::host::ArrayToBytes;
use crate::codec::size::Size;
use crate::{Error, ErrorKind, Result};

/// The type of a block's values in which elements of `dtype` are coded; `None` for elements that zfp does not take.
pub(super) fn stored_as(dtype: DType) -> Option<DType> {
    match dtype {
        DType::INT8 | DType::UINT8 | DType::INT16 | DType::UINT16 | DType::UINT32 => Some(DType::INT32),
        DType::UINT64 => Some(DType::INT64),
        DType::INT32 | DType::INT64 | DType::FLOAT32 | DType::FLOAT64 => Some(dtype),
        _ => None,
    }
}

#[derive(Debug)]
pub(super) struct Zfp {
    pub(super) blocks: ZfpBlocks,
    pub(super) dtype: DType,
    pub(super) extents: Extents,
    pub(super) encoded: Size,
    pub(super) decoder: Option<Arc<ZfpDecoder>>,
}

/// A type of array elements that can be coded as values of zfp blocks.
trait Element: Sized {
    type Value: Value;
    const BYTES: usize = size_of::<Self>();

    /// The value that stands for an element, given by its bytes; `None` for an element that blocks cannot hold.
    fn load(bytes: &[u8], is_reversible: bool) -> Option<Self::Value>;
    fn store(value: Self::Value, bytes: &mut [u8]);
}

/// Implements [`Element`] for several types. `$load` is the value of an element, if blocks can hold it; `$store` is the
/// element of a value.
macro_rules! element {
    ($($type:ty as $value:ty: |$element:ident, $is_reversible:ident| $load:expr, |$stored:ident| $store:expr;)*) => {$(
        impl Element for $type {
            type Value = $value;

            fn load(bytes: &[u8], $is_reversible: bool) -> Option<$value> {
                let $element = <$type>::from_ne_bytes(*bytes.first_chunk()?);
                $load
            }

            fn store($stored: $value, bytes: &mut [u8]) {
                let element: $type = $store;
                bytes.copy_from_slice(&element.to_ne_bytes());
            }
        }
    )*};
}

// Small integers fill the upper bits, so that the lowest planes, which hold nothing, are left out first.
element! {
    i32 as i32: |element, _any| Some(element), |value| value;
    i64 as i64: |element, _any| Some(element), |value| value;
    f32 as f32: |element, any| (any || element.is_finite()).then_some(element), |value| value;
    f64 as f64: |element, any| (any || element.is_finite()).then_some(element), |value| value;
    i8 as i32: |element, _any| Some(i32::from(element) << 23), |value| (value >> 23).clamp(-0x80, 0x7f) as i8;
    u8 as i32: |element, _any| Some((i32::from(element) - 0x80) << 23), |value| ((value >> 23) + 0x80).clamp(0, 0xff) as u8;
    i16 as i32: |element, _any| Some(i32::from(element) << 15), |value| (value >> 15).clamp(-0x8000, 0x7fff) as i16;
    u16 as i32: |element, _any| Some((i32::from(element) - 0x8000) << 15), |value| ((value >> 15) + 0x8000).clamp(0, 0xffff) as u16;
    u32 as i32: |element, _any| i32::try_from(element).ok(), |value| value.max(0) as u32;
    u64 as i64: |element, _any| i64::try_from(element).ok(), |value| value.max(0) as u64;
}

/// Runs `$body` with `$T` as the Rust type of the codec's elements.
macro_rules! typed {
    ($dtype:expr, $T:ident => $body:expr) => {{
        macro_rules! with {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            DType::INT8 => with!(i8),
            DType::UINT8 => with!(u8),
            DType::INT16 => with!(i16),
            DType::UINT16 => with!(u16),
            DType::INT32 => with!(i32),
            DType::UINT32 => with!(u32),
            DType::INT64 => with!(i64),
            DType::UINT64 => with!(u64),
            DType::FLOAT32 => with!(f32),
            DType::FLOAT64 => with!(f64),
            other => Err(Error::new(ErrorKind::Unsupported, format!("zfp: got elements of {other}"))),
        }
    }};
}

impl Zfp {
    fn values(&self) -> usize {
        self.blocks.order.len()
    }

    fn decode_elements<T: Element>(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let (mut reader, steps) = (BitReader::new(encoded), self.extents.steps());
        let block = &mut [T::Value::default(); MOST_VALUES][..self.values()];
        for (number, place) in self.extents.places().enumerate() {
            T::Value::decode(&self.blocks, &mut reader, block);
            if reader.is_past_end() {
                let bytes = encoded.len();
                return Err(corrupt(format!("got {bytes} encoded bytes, which end inside of block {number}")));
            }
            let mut store = |element: usize, value: &T::Value| {
                T::store(*value, &mut decoded[element * T::BYTES..][..T::BYTES]);
            };
            match self.extents.whole(&place) {
                Some(first) => steps.iter().zip(&*block).for_each(|(step, value)| store(first + step, value)),
                None => self.extents.elements(&place).zip(&*block).for_each(|((element, is_own), value)| {
                    if is_own {
                        store(element, value);
                    }
                }),
            }
        }
        expect_encoded_size(encoded.len(), reader.read_bytes())
    }

    fn encode_elements<T: Element>(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let (mut writer, steps) = (BitWriter::default(), self.extents.steps());
        let block = &mut [T::Value::default(); MOST_VALUES][..self.values()];
        let is_reversible = self.blocks.parameters.is_reversible();
        for place in self.extents.places() {
            let load = |element: usize| {
                let bytes = &decoded[element * T::BYTES..][..T::BYTES];
                T::load(bytes, is_reversible).ok_or_else(|| self.refuse(element))
            };
            match self.extents.whole(&place) {
                Some(first) => {
                    for (step, value) in steps.iter().zip(&mut *block) {
                        *value = load(first + step)?;
                    }
                }
                None => {
                    for ((element, _), value) in self.extents.elements(&place).zip(&mut *block) {
                        *value = load(element)?;
                    }
                }
            }
            T::Value::encode(&self.blocks, &mut writer, block);
        }
        Ok(writer.finish())
    }

    fn refuse(&self, element: usize) -> Error {
        let why = match self.dtype {
            DType::FLOAT32 | DType::FLOAT64 => "it is no finite number, which only mode 'reversible' stores",
            _ => "zfp's integers are signed, and it is above the largest",
        };
        unencodable(format!("element {element} cannot be stored: {why}"))
    }
}

impl ArrayToBytes for Zfp {
    fn name(&self) -> &str {
        "zfp"
    }

    fn encoded_size(&self) -> Size {
        self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        if let Size::Exact(expected) = self.encoded
            && expected != encoded.len() as u64
        {
            return Err(self.wrong_size(encoded.len(), expected));
        }
        typed!(self.dtype, T => self.decode_elements::<T>(encoded, decoded))
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        typed!(self.dtype, T => self.encode_elements::<T>(&decoded))
    }

    fn device_decoder(&self) -> Option<FrameDecoder> {
        self.decoder.clone().map(|decoder| FrameDecoder::Made(decoder))
    }

    fn host_reason(&self) -> &'static str {
        "kernels decode zfp's blocks of a fixed size, of 32 and 64 bits"
    }
}

impl Zfp {
    /// The error for encoded bytes of a wrong size, if all blocks have the same size. zarrs counts their bits as if
    /// blocks had three dimensions.
    fn wrong_size(&self, got: usize, expected: u64) -> Error {
        let error = corrupt(format!("got {got} encoded bytes, expected {expected}"));
        let Some(bits) = self.blocks.parameters.fixed_bits() else { return error };
        let cubes = u64::from(bits) << 6 >> (2 * self.blocks.ndim);
        let theirs = self.extents.block_count().map(|blocks| (blocks as u64 * cubes).div_ceil(64) * 8);
        match theirs == Some(got as u64) {
            true => error.with_hint(format!(
                "the chunk has blocks of {cubes} bits, as zarrs writes them: in the metadata, name the mode 'expert', with \
                 'minbits' and 'maxbits' {cubes}, 'maxprec' 64 and 'minexp' -1074"
            )),
            false => error,
        }
    }
}
