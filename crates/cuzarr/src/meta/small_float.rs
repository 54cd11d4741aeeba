//! float16 and bfloat16 from and to `f64`, each rounded once (to nearest, ties to even), as NumPy does. Going through
//! `f32` would round twice.

/// A binary floating-point format of 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFloat {
    mantissa_bits: u32,
}

/// IEEE 754 binary16.
pub(crate) const FLOAT16: SmallFloat = SmallFloat { mantissa_bits: 10 };
/// The upper half of a binary32.
pub(crate) const BFLOAT16: SmallFloat = SmallFloat { mantissa_bits: 7 };

impl SmallFloat {
    const fn max_exponent(self) -> i32 {
        (1 << (15 - self.mantissa_bits)) - 1
    }

    const fn bias(self) -> i32 {
        self.max_exponent() / 2
    }

    const fn infinity(self) -> u16 {
        (self.max_exponent() as u16) << self.mantissa_bits
    }

    /// The nearest value; what is too large becomes infinity.
    pub(crate) fn encode(self, value: f64) -> u16 {
        let bits = value.to_bits();
        let sign = ((bits >> 48) & 0x8000) as u16;
        if value.is_nan() {
            return sign | self.infinity() | 1 << (self.mantissa_bits - 1);
        }
        if value.is_infinite() {
            return sign | self.infinity();
        }
        let biased = ((bits >> 52) & 0x7ff) as i32;
        if biased == 0 {
            // Zero, or so far below the smallest subnormal here that it rounds to zero.
            return sign;
        }
        let significand = bits & ((1 << 52) - 1) | 1 << 52;
        let exponent = biased - 1023 + self.bias();
        // Below exponent 1 the value is subnormal: more bits are shifted out, and there is no hidden one.
        let shift = 52 - self.mantissa_bits as i32 + if exponent < 1 { 1 - exponent } else { 0 };
        if shift > 53 {
            return sign;
        }
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        let up = u64::from(rest > half || (rest == half && kept & 1 == 1));
        // The hidden one of a normal number adds 1 to the exponent field, as does a carry out of the mantissa.
        let exponent_field = if exponent < 1 { 0 } else { (exponent as u64 - 1) << self.mantissa_bits };
        let magnitude = exponent_field + kept + up;
        sign | magnitude.min(u64::from(self.infinity())) as u16
    }

    /// The exact value.
    pub(crate) fn decode(self, bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from((bits & 0x7fff) >> self.mantissa_bits);
        let mantissa = bits & ((1 << self.mantissa_bits) - 1);
        if exponent == self.max_exponent() {
            return if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let (significand, exponent) = match exponent {
            0 => (mantissa, 1),
            _ => (mantissa | 1 << self.mantissa_bits, exponent),
        };
        let power = exponent - self.bias() - self.mantissa_bits as i32;
        // A power of two in the normal range of f64, made from its exponent field: exact.
        sign * f64::from(significand) * f64::from_bits(((power + 1023) as u64) << 52)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_a_round_trip() {
        for format in [FLOAT16, BFLOAT16] {
            for bits in 0..=u16::MAX {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), bits, "{format:?} {bits:#06x}");
                }
            }
        }
    }

    #[test]
    fn halfway_values_round_to_even_and_others_to_nearest() {
        for format in [FLOAT16, BFLOAT16] {
            for bits in 0..format.infinity() - 1 {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let middle = (low + high) / 2.0;
                assert_eq!(format.encode(middle), bits + (bits & 1), "{format:?} {bits:#06x}");
                assert_eq!(format.encode(middle.next_down()), bits);
                assert_eq!(format.encode(middle.next_up()), bits + 1);
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
        assert_eq!(FLOAT16.encode(65519.99), 0x7bff);
        assert_eq!(FLOAT16.encode(65520.0), 0x7c00);
        assert_eq!(FLOAT16.encode(-1e300), 0xfc00);
        assert_eq!(FLOAT16.encode(5e-324), 0);
        assert_eq!(FLOAT16.encode(-1e-10), 0x8000);
        assert_eq!(FLOAT16.encode(f64::NAN), 0x7e00);
        assert_eq!(BFLOAT16.encode(f64::NAN), 0x7fc0);
        assert_eq!(BFLOAT16.encode(f64::INFINITY), 0x7f80);
    }
}
