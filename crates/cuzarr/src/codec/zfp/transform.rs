//! Transforms the integers of a zfp block to coefficients, and coefficients back to integers.
//!
//! Both transforms lift four values along each axis. The lossy one is nearly orthogonal, and loses the lowest bits; the
//! reversible one takes differences of differences.
//! <https://zfp.readthedocs.io/en/latest/algorithm.html#lossy-compression>, steps 3 to 5.

/// A type of integers that zfp transforms to coefficients: the values of a block, of 32 or 64 bits. Arithmetic wraps
/// around.
pub(super) trait Integer: Copy + Default {
    /// Number of bits of this integer type.
    const WIDTH: u32;
    /// Number of bits in which a reversible block states how many planes it has.
    const PLANES_BITS: u32 = Self::WIDTH.trailing_zeros();

    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn half(self) -> Self;
    fn twice(self) -> Self;
    /// The number in base -2, where numbers near zero have leading zeros, whatever their sign.
    fn to_negabinary(self) -> u64;
    fn from_negabinary(bits: u64) -> Self;
}

macro_rules! integer {
    ($($signed:ty, $unsigned:ty, $odd_bits:literal;)*) => {$(
        impl Integer for $signed {
            const WIDTH: u32 = <$signed>::BITS;

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn half(self) -> Self {
                self >> 1
            }

            fn twice(self) -> Self {
                self << 1
            }

            fn to_negabinary(self) -> u64 {
                u64::from((self as $unsigned).wrapping_add($odd_bits) ^ $odd_bits)
            }

            fn from_negabinary(bits: u64) -> Self {
                (bits as $unsigned ^ $odd_bits).wrapping_sub($odd_bits) as $signed
            }
        }
    )*};
}

integer! {
    i32, u32, 0xaaaa_aaaa;
    i64, u64, 0xaaaa_aaaa_aaaa_aaaa;
}

/// A function that transforms the four values of a line (a "lifting step").
type Lift<I> = fn([I; 4]) -> [I; 4];

fn lift_forward<I: Integer>([mut x, mut y, mut z, mut w]: [I; 4]) -> [I; 4] {
    x = x.plus(w).half();
    w = w.minus(x);
    z = z.plus(y).half();
    y = y.minus(z);
    x = x.plus(z).half();
    z = z.minus(x);
    w = w.plus(y).half();
    y = y.minus(w);
    w = w.plus(y.half());
    y = y.minus(w.half());
    [x, y, z, w]
}

fn lift_back<I: Integer>([mut x, mut y, mut z, mut w]: [I; 4]) -> [I; 4] {
    y = y.plus(w.half());
    w = w.minus(y.half());
    y = y.plus(w);
    w = w.twice().minus(y);
    z = z.plus(x);
    x = x.twice().minus(z);
    y = y.plus(z);
    z = z.twice().minus(y);
    w = w.plus(x);
    x = x.twice().minus(w);
    [x, y, z, w]
}

fn differ<I: Integer>([x, mut y, mut z, mut w]: [I; 4]) -> [I; 4] {
    w = w.minus(z);
    z = z.minus(y);
    y = y.minus(x);
    w = w.minus(z);
    z = z.minus(y);
    w = w.minus(z);
    [x, y, z, w]
}

fn sum<I: Integer>([x, mut y, mut z, mut w]: [I; 4]) -> [I; 4] {
    w = w.plus(z);
    z = z.plus(y);
    w = w.plus(z);
    y = y.plus(x);
    z = z.plus(y);
    w = w.plus(z);
    [x, y, z, w]
}

/// Transforms all lines of four values of a zfp block along one axis, on which neighbours are `stride` apart.
fn along<I: Integer>(block: &mut [I], stride: usize, lift: Lift<I>) {
    for lines in block.chunks_exact_mut(4 * stride) {
        for start in 0..stride {
            let line = [0, 1, 2, 3].map(|at| start + at * stride);
            let lifted = lift(line.map(|place| lines[place]));
            line.into_iter().zip(lifted).for_each(|(place, value)| lines[place] = value);
        }
    }
}

fn strides(size: usize) -> impl DoubleEndedIterator<Item = usize> {
    [1, 4, 16, 64].into_iter().filter(move |&stride| stride < size)
}

/// Transforms the integers of a zfp block to coefficients, and writes the coefficients in the order `order`.
pub(super) fn forward<I: Integer>(block: &mut [I], is_reversible: bool, order: &[u8], coefficients: &mut [u64]) {
    let lift = if is_reversible { differ } else { lift_forward };
    strides(block.len()).for_each(|stride| along(block, stride, lift));
    for (coefficient, &place) in coefficients.iter_mut().zip(order) {
        *coefficient = block[usize::from(place)].to_negabinary();
    }
}

/// Transforms coefficients, which are in the order `order`, back to the integers of a zfp block.
pub(super) fn back<I: Integer>(coefficients: &[u64], is_reversible: bool, order: &[u8], block: &mut [I]) {
    for (coefficient, &place) in coefficients.iter().zip(order) {
        block[usize::from(place)] = I::from_negabinary(*coefficient);
    }
    let lift = if is_reversible { sum } else { lift_back };
    strides(block.len()).rev().for_each(|stride| along(block, stride, lift));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::zfp::order;

    #[test]
    fn the_reversible_transform_loses_nothing() {
        for ndim in 1..=4 {
            let order = order::of(ndim);
            let block: Vec<i32> = (0..order.len() as i32).map(|at| at.wrapping_mul(0x1234_5677)).collect();
            let (mut coefficients, mut again) = (vec![0; block.len()], vec![0; block.len()]);
            forward(&mut block.clone(), true, order, &mut coefficients);
            back(&coefficients, true, order, &mut again);
            assert_eq!(again, block);
        }
    }

    #[test]
    fn small_numbers_have_few_negabinary_bits() {
        assert_eq!([0, 1, -1, 2, -2].map(i32::to_negabinary), [0, 1, 3, 6, 2]);
        assert!([i64::MIN, -5, i64::MAX].iter().all(|&one| i64::from_negabinary(one.to_negabinary()) == one));
    }
}
