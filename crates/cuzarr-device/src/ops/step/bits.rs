//! Rounding of floats in integer arithmetic (M. Klöwer et al., "Compressing atmospheric data into its real information content",
//! 2021).

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

/// Rounds elements of 2, 4 or 8 bytes, half to even, so that their lowest `dropped_bits` bits, fewer than they have, are zero.
pub fn round_bits(bytes: &mut [u8], element_bytes: usize, dropped_bits: u32) {
    match (dropped_bits, element_bytes) {
        (0, _) => {}
        (dropped, 2) => round!(u16, bytes, dropped),
        (dropped, 4) => round!(u32, bytes, dropped),
        (dropped, _) => round!(u64, bytes, dropped),
    }
}
