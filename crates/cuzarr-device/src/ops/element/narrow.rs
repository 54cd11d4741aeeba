//! Conversions of 2-byte floats, on their bits. They round half to even, and leave NaN payloads as NumPy and ml_dtypes
//! do.
//!
//! The functions have no loops and no table look-ups, so that the compiler can vectorise their callers. The constant
//! additions that let the floating-point adder round subnormals are Fabian Giesen's
//! (<https://gist.github.com/rygorous/2156668>).

/// The bits of the binary16 nearest to a binary32. A NaN keeps its upper payload bits; if they are all 0, the lowest
/// bit is set.
pub(crate) fn half_from_f32(value: f32) -> u16 {
    const SUBNORMAL_MAGIC: u32 = ((127 - 15) + (23 - 10) + 1) << 23;
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let nan = 0x7c00 | ((magnitude >> 13) & 0x3ff).max(1);
    let infinite_or_nan = if magnitude > 0x7f80_0000 { nan } else { 0x7c00 };
    let subnormal =
        (f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL_MAGIC)).to_bits().wrapping_sub(SUBNORMAL_MAGIC);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let rounded = match magnitude {
        0x4780_0000.. => infinite_or_nan,
        0..0x3880_0000 => subnormal,
        _ => normal,
    };
    sign | rounded as u16
}

/// The bits of the binary16 nearest to a binary64, rounded once.
pub(crate) fn half_from_f64(value: f64) -> u16 {
    const SUBNORMAL_MAGIC: u64 = ((1023 - 15) + (52 - 10) + 1) << 52;
    let bits = value.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff_ffff_ffff;
    let nan = 0x7c00 | ((magnitude >> 42) & 0x3ff).max(1);
    let infinite_or_nan = if magnitude > 0x7ff0_0000_0000_0000 { nan } else { 0x7c00 };
    let subnormal =
        (f64::from_bits(magnitude) + f64::from_bits(SUBNORMAL_MAGIC)).to_bits().wrapping_sub(SUBNORMAL_MAGIC);
    let odd = (magnitude >> 42) & 1;
    let normal = magnitude.wrapping_sub((1023 - 15) << 52).wrapping_add((1 << 41) - 1 + odd) >> 42;
    let rounded = match magnitude {
        0x40f0_0000_0000_0000.. => infinite_or_nan,
        0..0x3f10_0000_0000_0000 => subnormal,
        _ => normal,
    };
    sign | rounded as u16
}

/// The binary32 that equals a binary16; a NaN keeps its payload.
pub(crate) fn f32_from_half(half: u16) -> f32 {
    const SHIFTED_EXPONENT: u32 = 0x7c00 << 13;
    let sign = u32::from(half & 0x8000) << 16;
    let shifted = u32::from(half & 0x7fff) << 13;
    let exponent = shifted & SHIFTED_EXPONENT;
    let rebased = shifted + ((127 - 15) << 23);
    let subnormal = (f32::from_bits(rebased + (1 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let magnitude = match exponent {
        SHIFTED_EXPONENT => rebased + ((128 - 16) << 23),
        0 => subnormal,
        _ => rebased,
    };
    f32::from_bits(sign | magnitude)
}

/// Converts a binary16, given by its bits, to the binary64 that equals it. A NaN keeps its payload, and a signalling
/// NaN remains signalling.
pub(crate) fn f64_from_half(half: u16) -> f64 {
    if half & 0x7fff > 0x7c00 {
        return f64::from_bits(u64::from(half & 0x8000) << 48 | 0x7ff << 52 | u64::from(half & 0x3ff) << 42);
    }
    f64::from(f32_from_half(half))
}

/// The bits of the bfloat16 nearest to a binary32. Every NaN becomes the quiet NaN of the same sign.
pub(crate) fn bfloat_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + odd) >> 16) as u16;
    if value.is_nan() { (bits >> 16) as u16 & 0x8000 | 0x7fc0 } else { rounded }
}

/// Converts a bfloat16, given by its bits, to the binary32 that equals it.
pub(crate) fn f32_from_bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_wider_floats() {
        for bits in 0..=u16::MAX {
            let wide = f32_from_half(bits);
            assert_eq!(half_from_f32(wide), bits, "{bits:#06x}");
            if !wide.is_nan() {
                assert_eq!(half_from_f64(f64::from(wide)), bits, "{bits:#06x}");
            }
        }
    }

    #[test]
    fn halves_are_what_their_fields_say() {
        for bits in 0..0x7c00_u16 {
            let (exponent, fraction) = (i32::from(bits >> 10), f32::from(bits & 0x3ff));
            let expected = match exponent {
                0 => fraction * 2_f32.powi(-24),
                _ => (1024.0 + fraction) * 2_f32.powi(exponent - 25),
            };
            assert_eq!(f32_from_half(bits), expected);
            assert_eq!(f32_from_half(bits | 0x8000), -expected);
        }
        assert_eq!(f32_from_half(0x7c00), f32::INFINITY);
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        assert_eq!(half_from_f32(1.0 + 2_f32.powi(-11)), 0x3c00);
        assert_eq!(half_from_f32(1.0 + 3.0 * 2_f32.powi(-11)), 0x3c02);
        assert_eq!(half_from_f64(1.0 + 2_f64.powi(-11) + 2_f64.powi(-40)), 0x3c01);
        assert_eq!((half_from_f32(65519.9), half_from_f32(65520.0)), (0x7bff, 0x7c00));
        assert_eq!((half_from_f64(2_f64.powi(-25)), half_from_f64(2_f64.powi(-25) * 1.01)), (0, 1));
        assert_eq!(
            (bfloat_from_f32(f32::from_bits(0x3f80_8000)), bfloat_from_f32(f32::from_bits(0x3f81_8000))),
            (0x3f80, 0x3f82)
        );
    }
}
