//! Maps each element to an integer, its key. Keys sort as the elements do, so one way of counting works for every real
//! type.

use cuzarr_device::{DType, DTypeKind};

/// The conversion of elements of one type to keys, which are unsigned integers that can be compared instead. Keys have
/// as many bits as the elements, and the same order. Both zeros have the same key; NaN has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) kind: KeyKind,
    /// Number of bits of an element; its key has as many.
    pub(crate) bits: u32,
    /// The bits of the element infinity, for float types; 0 for other types.
    pub(crate) infinity: u64,
}

/// How an element's bits are interpreted, for example as a signed integer or a float. The numbers are those in
/// keys.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Unsigned = 0,
    Signed = 1,
    Float = 2,
}

impl Keys {
    /// Returns the conversion of elements of type `dtype` to keys; `None` for complex numbers and types without
    /// arithmetic.
    pub(crate) fn of(dtype: DType) -> Option<Keys> {
        let bits = 8 * dtype.size_bytes() as u32;
        let (kind, infinity) = match (dtype.kind(), bits) {
            (DTypeKind::Bool | DTypeKind::UInt, _) => (KeyKind::Unsigned, 0),
            (DTypeKind::Int, _) => (KeyKind::Signed, 0),
            (DTypeKind::BFloat, _) => (KeyKind::Float, 0x7f80),
            (DTypeKind::Float, 16) => (KeyKind::Float, 0x7c00),
            (DTypeKind::Float, 32) => (KeyKind::Float, u64::from(f32::INFINITY.to_bits())),
            (DTypeKind::Float, 64) => (KeyKind::Float, f64::INFINITY.to_bits()),
            _ => return None,
        };
        Some(Keys { kind, bits, infinity })
    }

    fn sign(self) -> u64 {
        1 << (self.bits - 1)
    }

    /// Returns the key of an element's bits; `None` for NaN.
    pub(crate) fn key(self, raw: u64) -> Option<u64> {
        let sign = self.sign();
        match self.kind {
            KeyKind::Unsigned => Some(raw),
            KeyKind::Signed => Some(raw ^ sign),
            KeyKind::Float => self.key_of_float(raw),
        }
    }

    /// Like [`Keys::key`], for floats. Signs need no branches, which processors could not foresee.
    #[inline(always)]
    pub(super) fn key_of_float(self, raw: u64) -> Option<u64> {
        let sign = self.sign();
        let size = raw & (sign - 1);
        let flipped = if raw & sign == 0 { sign } else { sign | (sign - 1) };
        let key = if size == 0 { sign } else { raw ^ flipped };
        (size <= self.infinity).then_some(key)
    }

    /// Returns the bits of the element with this key.
    pub(crate) fn raw(self, key: u64) -> u64 {
        let sign = self.sign();
        match self.kind {
            KeyKind::Unsigned => key,
            KeyKind::Signed => key ^ sign,
            KeyKind::Float if key & sign != 0 => key ^ sign,
            KeyKind::Float => key ^ (sign | (sign - 1)),
        }
    }

    /// Returns the key of an element in memory; `None` for NaN.
    pub(crate) fn of_element(self, element: &[u8]) -> Option<u64> {
        self.key(match *element {
            [byte] => u64::from(byte),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => element.try_into().map_or(0, u64::from_ne_bytes),
        })
    }

    /// Returns the number whose key is `key`, rounded to binary64; for 2-byte floats, the bits of the number instead.
    pub(super) fn about(self, key: u64) -> f64 {
        let raw = self.raw(key);
        match (self.kind, self.bits) {
            (KeyKind::Float, 32) => f64::from(f32::from_bits(raw as u32)),
            (KeyKind::Float, 64) => f64::from_bits(raw),
            (KeyKind::Signed, bits) => (raw << (64 - bits)).cast_signed() as f64 / 2f64.powi(64 - bits as i32),
            _ => raw as f64,
        }
    }

    /// Returns the bytes of the element with this key, as they lie in memory.
    pub(crate) fn element(self, key: u64) -> Vec<u8> {
        let raw = self.raw(key);
        match self.bits {
            8 => vec![raw as u8],
            16 => (raw as u16).to_ne_bytes().to_vec(),
            32 => (raw as u32).to_ne_bytes().to_vec(),
            _ => raw.to_ne_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_the_elements_are() {
        let floats = [f64::NEG_INFINITY, -1e300, -1.0, -1e-310, 0.0, 5e-324, 1.0, 2.5, f64::INFINITY];
        let keys = Keys::of(DType::FLOAT64).unwrap();
        let ordered: Vec<u64> = floats.iter().map(|x| keys.key(x.to_bits()).unwrap()).collect();
        assert!(ordered.is_sorted() && ordered.iter().zip(floats).all(|(&key, x)| keys.raw(key) == x.to_bits()));
        assert_eq!(keys.key((-0.0f64).to_bits()), keys.key(0));
        assert_eq!((keys.key(f64::NAN.to_bits()), keys.key((-f64::NAN).to_bits())), (None, None));
        let keys = Keys::of(DType::INT16).unwrap();
        let ordered: Vec<u64> =
            [i16::MIN, -3, 0, 7, i16::MAX].iter().map(|x| keys.of_element(&x.to_ne_bytes()).unwrap()).collect();
        assert!(ordered.is_sorted() && keys.element(ordered[1]) == (-3i16).to_ne_bytes());
        assert_eq!(Keys::of(DType::COMPLEX64), None);
    }
}
