//! Arrays whose attributes say how stored numbers are to be read.

use cuzarr::meta::{Decoding, Mark};
use cuzarr::node::Array;
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, DTypeKind};

use super::{Expr, Op, Operand, Weak};

impl Expr {
    /// The numbers that an array's elements stand for, as the attributes of the CF conventions say ([`Decoding`]): missing ones are
    /// NaN, and packed ones are scaled. Integers become binary64 for that; floats keep their type unless they are scaled.
    ///
    /// # Errors
    /// Those of [`Expr::array`]; `Unsupported` for `_Unsigned` integers of another size than 1, 2, 4 or 8 bytes.
    pub fn decoded(array: Array) -> Result<Expr> {
        let decoding = array.metadata().decoding();
        let stored = Expr::array(array)?;
        if decoding.is_plain() || !matches!(stored.dtype().kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float)
        {
            return Ok(stored);
        }
        decode(&stored, &decoding)
    }
}

fn decode(stored: &Expr, decoding: &Decoding) -> Result<Expr> {
    let dtype = stored.dtype();
    let is_float = dtype.kind() == DTypeKind::Float;
    let mut numbers = if decoding.is_unsigned { stored.astype(unsigned(dtype)?)? } else { stored.clone() };
    if decoding.is_scaled() || !is_float {
        numbers = numbers.astype(DType::FLOAT64)?;
    }
    if decoding.scale != 1.0 {
        numbers = Expr::apply(Op::Multiply, &[numbers.into(), decoding.scale.into()])?;
    }
    if decoding.offset != 0.0 {
        numbers = Expr::apply(Op::Add, &[numbers.into(), decoding.offset.into()])?;
    }
    for mark in &decoding.missing {
        let mark = match *mark {
            Mark::Int(value) if is_float => Weak::Float(value as f64),
            Mark::Int(value) => Weak::Int(value),
            Mark::Float(value) => Weak::Float(value),
        };
        let is_missing = Expr::apply(Op::Equal, &[stored.clone().into(), Operand::Weak(mark)])?;
        numbers = Expr::apply(Op::Where, &[is_missing.into(), f64::NAN.into(), numbers.into()])?;
    }
    Ok(numbers)
}

fn unsigned(dtype: DType) -> Result<DType> {
    match dtype {
        DType::INT8 => Ok(DType::UINT8),
        DType::INT16 => Ok(DType::UINT16),
        DType::INT32 => Ok(DType::UINT32),
        DType::INT64 => Ok(DType::UINT64),
        _ => Err(Error::new(ErrorKind::Unsupported, format!("cannot read {dtype} as unsigned integers"))),
    }
}
