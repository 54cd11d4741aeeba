//! Rounds floats and integers to fewer bits, with integer arithmetic. Floats are rounded as by M. Klöwer et al.
//! ("Compressing atmospheric data into its real information content", 2021), integers as by `bitround` of
//! zarr-extensions.

use crate::array::dtype::{DType, DTypeKind};

macro_rules! round {
    ($type:ty, $bytes:expr, $dropped:expr) => {{
        let dropped = $dropped;
        let half: $type = (1 << (dropped - 1)) - 1;
        for element in $bytes.as_chunks_mut::<{ size_of::<$type>() }>().0 {
            let bits = <$type>::from_ne_bytes(*element);
            let rounded = bits.wrapping_add((bits >> dropped & 1) + half) >> dropped << dropped;
            *element = rounded.to_ne_bytes();
        }
    }};
}

/// Rounds floats of 2, 4 or 8 bytes, half to even, so that their lowest `dropped_bits` bits are zero. A float must have
/// more bits than that.
pub fn round_bits(bytes: &mut [u8], float_bytes: usize, dropped_bits: u32) {
    match (dropped_bits, float_bytes) {
        (0, _) => {}
        (dropped, 2) => round!(u16, bytes, dropped),
        (dropped, 4) => round!(u32, bytes, dropped),
        (dropped, _) => round!(u64, bytes, dropped),
    }
}

macro_rules! round_integers {
    ($type:ty, $bytes:expr, $is_signed:expr, $kept:expr) => {{
        for element in $bytes.as_chunks_mut::<{ size_of::<$type>() }>().0 {
            let bits = <$type>::from_ne_bytes(*element);
            let dropped = (<$type>::BITS - bits.leading_zeros()).saturating_sub($kept);
            if dropped > 0 {
                let is_positive = $is_signed && bits >> (<$type>::BITS - 1) == 0;
                let largest = <$type>::MAX >> u32::from(is_positive);
                let up = (bits >> dropped & 1) + ((1 << (dropped - 1)) - 1);
                *element = (bits.saturating_add(up).min(largest) >> dropped << dropped).to_ne_bytes();
            }
        }
    }};
}

/// Rounds integers of type `dtype`, half to even, so that at most `kept_bits` bits remain, counted from the highest set
/// bit. In a negative number, that is the sign bit. `kept_bits` must be at least 1.
///
/// A number that would overflow the type or change its sign is rounded down instead.
pub fn round_integers(bytes: &mut [u8], dtype: DType, kept_bits: u32) {
    let is_signed = dtype.kind() == DTypeKind::Int;
    match dtype.size_bytes() {
        1 => round_integers!(u8, bytes, is_signed, kept_bits),
        2 => round_integers!(u16, bytes, is_signed, kept_bits),
        4 => round_integers!(u32, bytes, is_signed, kept_bits),
        _ => round_integers!(u64, bytes, is_signed, kept_bits),
    }
}
