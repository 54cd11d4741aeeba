//! Codecs that change elements one by one. A tail does the same steps; here they run over whole chunks on the host.

use cuzarr_device::internal::cpu::bits::{round_bits, round_integers};
use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{Arithmetic, DType, DTypeKind, ElementStep};
use serde_json::Number;

use super::ChunkSpec;
use super::bytes::cpu::swap;
use super::configuration::Configuration;
use super::damage::expect_encoded_size;
use super::host::{ArrayToArray, TailPart};
use super::open::Request;
use crate::meta::{DataType, FillValue};
use crate::{Error, ErrorKind, Result};

/// Number of elements to which one step after the other is applied, so that they stay in the cache.
const BLOCK_ELEMS: usize = 1024;

/// A codec that only changes elements, each on its own.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) name: &'static str,
    pub(crate) decoded: DType,
    pub(crate) encoded_dtype: DType,
    pub(crate) encoded: ChunkSpec,
    /// Steps that turn an encoded element into a decoded one, in order.
    pub(crate) read: Vec<ElementStep>,
    /// Steps that turn a decoded element into an encoded one, in order.
    pub(crate) write: Vec<ElementStep>,
}

/// The step that converts elements; `None` if the types are equal.
pub(crate) fn cast_step(from: DType, to: DType) -> Option<ElementStep> {
    (from != to).then_some(ElementStep::Cast { from, to })
}

/// The step that computes `operation` of each element and a constant, in `dtype`. The constant is converted as NumPy
/// converts a Python number.
pub(crate) fn arithmetic(operation: Arithmetic, dtype: DType, number: &Number) -> Result<ElementStep> {
    let mut operand = [0; 8];
    let target = &mut operand[..dtype.size_bytes()];
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), ..) => cast(DType::INT64, dtype, &integer.to_ne_bytes(), target)?,
        (_, Some(integer), _) => cast(DType::UINT64, dtype, &integer.to_ne_bytes(), target)?,
        (.., float) => cast(DType::FLOAT64, dtype, &float.unwrap_or(f64::NAN).to_ne_bytes(), target)?,
    }
    Ok(ElementStep::Arithmetic { operation, dtype, operand })
}

/// The step that rounds elements to the nearest integer, half to even.
pub(crate) fn round_step(dtype: DType) -> ElementStep {
    ElementStep::Arithmetic { operation: Arithmetic::Round, dtype, operand: [0; 8] }
}

/// The type of the elements that a numcodecs filter encodes. The configuration member `key` may name it; it must be the
/// array's type.
pub(crate) fn input_dtype(configuration: &Configuration<'_>, request: &Request<'_>, key: &str) -> Result<DType> {
    let own = request.spec.dtype()?;
    match configuration.numpy_dtype(key)? {
        None => Ok(own),
        // In v2 the chain has already brought the array to this type and byte order.
        Some(view) if view.dtype == own && (request.zarr_format == 2 || !view.big_endian) => Ok(own),
        Some(_) => {
            let expected = request.spec.data_type.numpy_descr();
            Err(configuration.invalid(format!("'{key}' is not the array's data type, {expected}")))
        }
    }
}

/// The shape, type and fill value of the array after a filter whose output has the type `dtype`. The fill value is
/// converted, not encoded, as zarr-python does.
pub(crate) fn output_spec(spec: &ChunkSpec, dtype: DType) -> Result<ChunkSpec> {
    let own = spec.dtype()?;
    if own == dtype {
        return Ok(spec.clone());
    }
    let mut fill = vec![0; dtype.size_bytes()];
    cast(own, dtype, &spec.fill_bytes(), &mut fill)?;
    Ok(ChunkSpec::new(spec.shape.clone(), DataType::try_from(dtype)?, FillValue::Element(fill)))
}

/// Whether element steps can calculate in `dtype`: it is an integer or a float.
pub(crate) fn is_real(dtype: DType) -> bool {
    is_float(dtype) || matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt)
}

/// Whether `dtype` is a float of any width.
pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat)
}

/// Runs `$body` with `$T` as the Rust type of `$dtype`, an integer or a 4- or 8-byte float. Runs `$other` for other
/// types.
macro_rules! typed {
    ($dtype:expr, $T:ident => $body:expr, $other:expr) => {{
        macro_rules! with {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            cuzarr_device::DType::INT8 => with!(i8),
            cuzarr_device::DType::INT16 => with!(i16),
            cuzarr_device::DType::INT32 => with!(i32),
            cuzarr_device::DType::INT64 => with!(i64),
            cuzarr_device::DType::UINT8 => with!(u8),
            cuzarr_device::DType::UINT16 => with!(u16),
            cuzarr_device::DType::UINT32 => with!(u32),
            cuzarr_device::DType::UINT64 => with!(u64),
            cuzarr_device::DType::FLOAT32 => with!(f32),
            cuzarr_device::DType::FLOAT64 => with!(f64),
            _ => $other,
        }
    }};
}
pub(crate) use typed;

/// Arithmetic as element steps define it: integers wrap, floats round once.
pub(crate) trait Compute: Copy {
    fn compute(self, operation: Arithmetic, operand: Self) -> Self;
}

macro_rules! compute_integer {
    ($($type:ty)*) => {$(
        impl Compute for $type {
            fn compute(self, operation: Arithmetic, operand: Self) -> Self {
                match operation {
                    Arithmetic::Add => self.wrapping_add(operand),
                    Arithmetic::Subtract => self.wrapping_sub(operand),
                    Arithmetic::Multiply => self.wrapping_mul(operand),
                    Arithmetic::Divide if operand == 0 => 0,
                    Arithmetic::Divide => self.wrapping_div(operand),
                    Arithmetic::Round => self,
                }
            }
        }
    )*};
}

macro_rules! compute_float {
    ($($type:ty)*) => {$(
        impl Compute for $type {
            fn compute(self, operation: Arithmetic, operand: Self) -> Self {
                match operation {
                    Arithmetic::Add => self + operand,
                    Arithmetic::Subtract => self - operand,
                    Arithmetic::Multiply => self * operand,
                    Arithmetic::Divide => self / operand,
                    Arithmetic::Round => self.round_ties_even(),
                }
            }
        }
    )*};
}

compute_integer!(i8 i16 i32 i64 u8 u16 u32 u64);
compute_float!(f32 f64);

fn compute(operation: Arithmetic, dtype: DType, operand: &[u8; 8], block: &mut [u8]) -> Result<()> {
    typed!(dtype, T => {
        const SIZE: usize = size_of::<T>();
        let (operand, _) = operand.as_chunks::<SIZE>();
        let operand = T::from_ne_bytes(operand[0]);
        for element in block.as_chunks_mut::<SIZE>().0 {
            *element = T::from_ne_bytes(*element).compute(operation, operand).to_ne_bytes();
        }
        Ok(())
    }, compute_half(operation, dtype, operand, block))
}

/// Calculates with 2-byte floats: in binary32 and rounded once, as NumPy does.
fn compute_half(operation: Arithmetic, dtype: DType, operand: &[u8; 8], block: &mut [u8]) -> Result<()> {
    if !is_float(dtype) || dtype.size_bytes() != 2 {
        return Err(Error::new(ErrorKind::Unsupported, format!("no arithmetic in {dtype}")));
    }
    let mut wide = vec![0; block.len() * 2];
    let mut wide_operand = [0; 8];
    cast(dtype, DType::FLOAT32, block, &mut wide)?;
    cast(dtype, DType::FLOAT32, &operand[..2], &mut wide_operand[..4])?;
    compute(operation, DType::FLOAT32, &wide_operand, &mut wide)?;
    Ok(cast(DType::FLOAT32, dtype, &wide, block)?)
}

/// Applies `steps` to each element: reads packed elements of type `from`, writes packed ones of type `to`. Both slices
/// hold the same number of elements.
pub(crate) fn apply(steps: &[ElementStep], from: DType, source: &[u8], to: DType, target: &mut [u8]) -> Result<()> {
    let (mut block, mut next) = (Vec::new(), Vec::new());
    let targets = target.chunks_mut(BLOCK_ELEMS * to.size_bytes());
    for (source, target) in source.chunks(BLOCK_ELEMS * from.size_bytes()).zip(targets) {
        block.clear();
        block.extend_from_slice(source);
        for step in steps {
            match step {
                ElementStep::SwapBytes { unit_bytes } => swap(&mut block, *unit_bytes),
                ElementStep::Cast { from, to } => {
                    next.resize(block.len() / from.size_bytes() * to.size_bytes(), 0);
                    cast(*from, *to, &block, &mut next)?;
                    std::mem::swap(&mut block, &mut next);
                }
                ElementStep::RoundBits { dtype, dropped_bits } => {
                    round_bits(&mut block, dtype.swap_unit_bytes(), *dropped_bits);
                }
                ElementStep::RoundInteger { dtype, kept_bits } => round_integers(&mut block, *dtype, *kept_bits),
                ElementStep::Arithmetic { operation, dtype, operand } => {
                    compute(*operation, *dtype, operand, &mut block)?
                }
            }
        }
        target.copy_from_slice(&block);
    }
    Ok(())
}

impl Stepped {
    fn check(&self, decoded: &[u8], encoded: &[u8]) -> Result<()> {
        let count = decoded.len() / self.decoded.size_bytes();
        expect_encoded_size(encoded.len(), count * self.encoded_dtype.size_bytes())
    }
}

impl ArrayToArray for Stepped {
    fn name(&self) -> &str {
        self.name
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        self.check(decoded, encoded)?;
        apply(&self.read, self.encoded_dtype, encoded, self.decoded, decoded)
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        self.check(decoded, encoded)?;
        apply(&self.write, self.decoded, decoded, self.encoded_dtype, encoded)
    }

    fn decodes_to_itself(&self) -> bool {
        self.read.is_empty()
    }

    fn tail(&self) -> TailPart {
        TailPart::Steps { read: self.read.clone(), write: self.write.clone() }
    }
}
