//! Conversion of floats with at most 16 bits from and to `f64`. Each conversion rounds once (to nearest, ties to even),
//! as in NumPy and `ml_dtypes`. A conversion through `f32` would round twice.

use cuzarr_device::SmallNumber;

/// A binary floating-point format of at most 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmallFloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

/// Which bits of a format stand for infinity or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specials {
    /// The highest exponent stands for infinity and NaN, as in IEEE 754.
    Ieee,
    /// The format has neither infinity nor NaN.
    Finite,
    /// The highest exponent with all mantissa bits set stands for NaN.
    OneNan,
    /// The bits of negative zero stand for NaN.
    NegativeZero,
    /// The format has only an exponent: no sign, no zero and no mantissa. The highest exponent stands for NaN.
    Scale,
}

const fn ieee(exponent_bits: u32, mantissa_bits: u32) -> SmallFloat {
    let bias = (1 << (exponent_bits - 1)) - 1;
    SmallFloat { exponent_bits, mantissa_bits, bias, specials: Specials::Ieee }
}

/// The format `float16`: IEEE 754 binary16.
pub(crate) const FLOAT16: SmallFloat = ieee(5, 10);
/// The format `bfloat16`: the upper half of a binary32.
pub(crate) const BFLOAT16: SmallFloat = ieee(8, 7);

impl SmallFloat {
    /// The format of this number type, or of each part of a complex one; `None` for integers.
    pub(crate) const fn of(number: SmallNumber) -> Option<SmallFloat> {
        use SmallNumber::*;
        let (format, bias, specials) = match number {
            Int2 | Int4 | UInt2 | UInt4 => return None,
            ComplexFloat16 => return Some(FLOAT16),
            ComplexBFloat16 => return Some(BFLOAT16),
            Float8E3M4 | ComplexFloat8E3M4 => return Some(ieee(3, 4)),
            Float8E4M3 | ComplexFloat8E4M3 => return Some(ieee(4, 3)),
            Float8E5M2 | ComplexFloat8E5M2 => return Some(ieee(5, 2)),
            Float4E2M1FN | ComplexFloat4E2M1FN => (ieee(2, 1), 1, Specials::Finite),
            Float6E2M3FN | ComplexFloat6E2M3FN => (ieee(2, 3), 1, Specials::Finite),
            Float6E3M2FN | ComplexFloat6E3M2FN => (ieee(3, 2), 3, Specials::Finite),
            Float8E4M3FN => (ieee(4, 3), 7, Specials::OneNan),
            Float8E4M3B11FNUZ | ComplexFloat8E4M3B11FNUZ => (ieee(4, 3), 11, Specials::NegativeZero),
            Float8E4M3FNUZ | ComplexFloat8E4M3FNUZ => (ieee(4, 3), 8, Specials::NegativeZero),
            Float8E5M2FNUZ | ComplexFloat8E5M2FNUZ => (ieee(5, 2), 16, Specials::NegativeZero),
            Float8E8M0FNU | ComplexFloat8E8M0FNU => (ieee(8, 0), 127, Specials::Scale),
        };
        Some(SmallFloat { bias, specials, ..format })
    }

    /// Bytes that an element of this format is stored in: 1 or 2.
    pub(crate) const fn size_bytes(self) -> usize {
        if self.exponent_bits + self.mantissa_bits > 8 { 2 } else { 1 }
    }

    const fn sign_bit(self) -> u16 {
        match self.specials {
            Specials::Scale => 0,
            _ => 1 << (self.exponent_bits + self.mantissa_bits),
        }
    }

    /// A mask of the bits that the format uses.
    pub(crate) const fn mask(self) -> u16 {
        self.sign_bit() | self.magnitude_bits()
    }

    /// A mask of the bits that the format uses, without the sign.
    const fn magnitude_bits(self) -> u16 {
        ((1_u32 << (self.exponent_bits + self.mantissa_bits)) - 1) as u16
    }

    const fn max_exponent(self) -> u16 {
        (1 << self.exponent_bits) - 1
    }

    /// The bits of the largest finite number of this format.
    const fn largest(self) -> u16 {
        match self.specials {
            Specials::Ieee => (self.max_exponent() << self.mantissa_bits) - 1,
            Specials::OneNan | Specials::Scale => self.magnitude_bits() - 1,
            Specials::Finite | Specials::NegativeZero => self.magnitude_bits(),
        }
    }

    /// The bits that common readers write for NaN; `None` if the format has no NaN.
    const fn nan(self) -> Option<u16> {
        match self.specials {
            Specials::Ieee => Some((self.largest() + 1) | (1 << (self.mantissa_bits - 1))),
            Specials::OneNan | Specials::Scale => Some(self.magnitude_bits()),
            Specials::NegativeZero => Some(self.sign_bit()),
            Specials::Finite => None,
        }
    }

    /// Returns the bits of this format's number that is nearest to `value`. Values that are too large become infinity.
    /// Without infinity in the format, these are `None`; without NaN, NaN is `None`. In a format without zero, zero
    /// becomes the smallest number, and negative numbers are `None`.
    pub(crate) fn encode(self, value: f64) -> Option<u16> {
        let bits = value.to_bits();
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_nan() {
            let has_sign = matches!(self.specials, Specials::Ieee | Specials::OneNan);
            return self.nan().map(|nan| if has_sign { sign | nan } else { nan });
        }
        if value < 0.0 && self.specials == Specials::Scale {
            return None;
        }
        let infinity = (self.specials == Specials::Ieee).then(|| sign | (self.largest() + 1));
        if value.is_infinite() {
            return infinity;
        }
        let magnitude = if self.specials == Specials::Scale { self.nearest_power(value) } else { self.round(bits) };
        if magnitude > u64::from(self.largest()) {
            return infinity;
        }
        let is_nan = magnitude == 0 && self.specials == Specials::NegativeZero;
        Some(if is_nan { 0 } else { sign | magnitude as u16 })
    }

    /// Rounds the magnitude of a finite `f64`, given by its `bits`, to bits of this format. It may be larger than the
    /// largest finite number.
    fn round(self, bits: u64) -> u64 {
        let biased = ((bits >> 52) & 0x7ff) as i32;
        if biased == 0 {
            // Zero, or so small that it rounds to zero in this format.
            return 0;
        }
        let significand = bits & ((1 << 52) - 1) | 1 << 52;
        let exponent = biased - 1023 + self.bias;
        // Below exponent 1, the value is subnormal: more bits are shifted out, and there is no hidden bit.
        let shift = 52 - self.mantissa_bits as i32 + if exponent < 1 { 1 - exponent } else { 0 };
        if shift > 53 {
            return 0;
        }
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        let up = u64::from(rest > half || (rest == half && kept & 1 == 1));
        // The hidden bit of a normal number adds 1 to the exponent field, and so does a carry out of the mantissa.
        let exponent_field = if exponent < 1 { 0 } else { (exponent as u64 - 1) << self.mantissa_bits };
        exponent_field + kept + up
    }

    /// The exponent field, in this format, of the power of two that is nearest to `value`. If two are equally near, the
    /// larger one.
    fn nearest_power(self, value: f64) -> u64 {
        let bits = value.abs().to_bits();
        let up = i64::from(bits >> 51 & 1 == 1 && bits >> 52 != 0);
        ((bits >> 52) as i64 - 1023 + i64::from(self.bias) + up).max(0) as u64
    }

    /// The exact value that these bits stand for. Unused upper bits are ignored.
    pub(crate) fn decode(self, bits: u16) -> f64 {
        let bits = bits & self.mask();
        let magnitude = bits & self.magnitude_bits();
        let sign = if bits & self.sign_bit() == 0 { 1.0 } else { -1.0 };
        if self.specials == Specials::NegativeZero && bits == self.sign_bit() {
            return f64::NAN;
        }
        if magnitude > self.largest() {
            let is_infinity = self.specials == Specials::Ieee && magnitude == self.largest() + 1;
            return if is_infinity { sign * f64::INFINITY } else { f64::NAN };
        }
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let (significand, exponent) = match exponent {
            0 if self.specials != Specials::Scale => (mantissa, 1),
            _ => (mantissa | 1 << self.mantissa_bits, exponent),
        };
        let power = exponent - self.bias - self.mantissa_bits as i32;
        // This power of two is in the normal range of f64. It is made from its exponent field, so it is exact.
        sign * f64::from(significand) * f64::from_bits(((power + 1023) as u64) << 52)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists each different floating-point format once.
    fn formats() -> Vec<SmallFloat> {
        let mut formats = vec![FLOAT16, BFLOAT16];
        for format in SmallNumber::all().filter_map(SmallFloat::of) {
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        assert_eq!(formats.len(), 13);
        formats
    }

    fn all_bits(format: SmallFloat) -> impl Iterator<Item = u16> {
        0..=format.mask()
    }

    #[test]
    fn every_value_survives_a_round_trip() {
        for format in formats() {
            for bits in all_bits(format) {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), Some(bits), "{format:?} {bits:#06x}");
                }
            }
        }
    }

    #[test]
    fn halfway_values_round_to_even_and_others_to_nearest() {
        for format in formats().into_iter().filter(|format| format.specials != Specials::Scale) {
            for bits in 0..format.largest() {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let middle = (low + high) / 2.0;
                assert_eq!(format.encode(middle), Some(bits + (bits & 1)), "{format:?} {bits:#06x}");
                assert_eq!(format.encode(middle.next_down()), Some(bits));
                assert_eq!(format.encode(middle.next_up()), Some(bits + 1));
            }
        }
    }

    #[test]
    fn bfloat16_is_the_upper_half_of_float32() {
        for bits in (0..=u16::MAX).step_by(7) {
            let value = f32::from_bits(u32::from(bits) << 16);
            if !value.is_nan() {
                assert_eq!(BFLOAT16.decode(bits), f64::from(value));
            }
        }
    }

    #[test]
    fn extremes_become_infinity_zero_and_quiet_nan() {
        assert_eq!(FLOAT16.encode(65519.99), Some(0x7bff));
        assert_eq!(FLOAT16.encode(65520.0), Some(0x7c00));
        assert_eq!(FLOAT16.encode(-1e300), Some(0xfc00));
        assert_eq!(FLOAT16.encode(5e-324), Some(0));
        assert_eq!(FLOAT16.encode(-1e-10), Some(0x8000));
        assert_eq!(FLOAT16.encode(f64::NAN), Some(0x7e00));
        assert_eq!(BFLOAT16.encode(f64::NAN), Some(0x7fc0));
        assert_eq!(BFLOAT16.encode(f64::INFINITY), Some(0x7f80));
    }

    /// Compares conversions of special values with the results of `ml_dtypes` 0.6.0. `None` stands for results that are
    /// wrong there: a value that is not the nearest, or NaN instead of a number.
    #[test]
    fn special_values_are_those_of_ml_dtypes() {
        use SmallNumber::*;
        for (number, nan, infinity, zero, largest, beyond) in [
            (Float8E3M4, Some(0x78), Some(0x70), Some(0x80), (0x6f, 15.5), Some(0x70)),
            (Float8E4M3, Some(0x7c), Some(0x78), Some(0x80), (0x77, 240.0), Some(0x78)),
            (Float8E5M2, Some(0x7e), Some(0x7c), Some(0x80), (0x7b, 57344.0), Some(0x7c)),
            (Float8E4M3FN, Some(0x7f), None, Some(0x80), (0x7e, 448.0), None),
            (Float8E4M3FNUZ, Some(0x80), None, Some(0), (0x7f, 240.0), None),
            (Float8E4M3B11FNUZ, Some(0x80), None, Some(0), (0x7f, 30.0), None),
            (Float8E5M2FNUZ, Some(0x80), None, Some(0), (0x7f, 57344.0), None),
            (Float8E8M0FNU, Some(0xff), None, Some(0), (0xfe, 2f64.powi(127)), None),
            (Float6E2M3FN, None, None, Some(0x20), (0x1f, 7.5), None),
            (Float6E3M2FN, None, None, Some(0x20), (0x1f, 28.0), None),
            (Float4E2M1FN, None, None, Some(0x8), (0x7, 6.0), None),
        ] {
            let format = SmallFloat::of(number).unwrap();
            assert_eq!(format.encode(f64::NAN), nan, "{number}");
            assert_eq!(format.encode(f64::INFINITY), infinity, "{number}");
            assert_eq!(format.encode(-0.0), zero, "{number}");
            assert_eq!(format.decode(largest.0), largest.1, "{number}");
            assert_eq!(format.encode(largest.1 * 1.5), beyond, "{number}");
        }
    }

    #[test]
    fn scales_are_powers_of_two() {
        let format = SmallFloat::of(SmallNumber::Float8E8M0FNU).unwrap();
        for (value, bits) in [
            (1.0, 0x7f),
            (1.4999, 0x7f),
            (1.5, 0x80),
            (2.9, 0x80),
            (3.0, 0x81),
            (0.0, 0),
            (5e-324, 0),
            (2f64.powi(-127), 0),
            (1.5 * 2f64.powi(-127), 1),
            (1.4 * 2f64.powi(127), 0xfe),
        ] {
            assert_eq!(format.encode(value), Some(bits), "{value}");
        }
        assert_eq!(format.encode(-1.0), None);
    }
}
