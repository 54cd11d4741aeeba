//! Vectors of bytes on the host: transposition of small byte matrices in 16-byte vectors, and loops that use the widest
//! vectors of the processor.
//!
//! Interleaving the two halves of a block of elements rotates the bits of every element's index left by one: the bit
//! that selects the half becomes the lowest bit. So a matrix of 2ʳ rows and 2ᶜ columns is transposed by `r` such
//! rounds, whatever its shape. One instruction interleaves half a vector with another (Alman and others call it a
//! perfect shuffle; Blosc's SSE2 shuffle is a case of it).

/// Work whose loops the compiler turns into vector instructions. Mark `run` with `#[inline(always)]`, and all that it
/// calls in its loops: only what is inlined is compiled for wider vectors.
pub trait Vectors {
    /// The result of the work.
    type Output;
    /// Does the work.
    fn run(self) -> Self::Output;
}

/// Runs work that is compiled twice: for every processor, and for processors with AVX2, whose vectors are twice as wide.
/// Both give the same bits, since no operations are fused.
///
/// ```
/// use cuzarr_device::internal::cpu::math::{Vectors, widest};
/// struct Doubled<'a>(&'a mut [f32]);
/// impl Vectors for Doubled<'_> {
///     type Output = ();
///     #[inline(always)]
///     fn run(self) {
///         self.0.iter_mut().for_each(|x| *x *= 2.0);
///     }
/// }
/// let mut numbers = [1.0, 2.5];
/// widest(Doubled(&mut numbers));
/// assert_eq!(numbers, [2.0, 5.0]);
/// ```
#[inline]
pub fn widest<W: Vectors>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn wide<W: Vectors>(work: W) -> W::Output {
            work.run()
        }
        // SAFETY: the processor has what `wide` is compiled for.
        return unsafe { wide(work) };
    }
    work.run()
}

/// A vector of 16 bytes, which the compiler keeps in a register.
pub(crate) type Vector = [u8; 16];

/// Loads the first 16 bytes of a slice.
#[inline(always)]
pub(crate) fn load(bytes: &[u8]) -> Vector {
    let mut vector = [0; 16];
    vector.copy_from_slice(&bytes[..16]);
    vector
}

/// Interleaves the elements of two vectors, of `WIDTH` bytes each: `a0 b0 a1 b1 …`. The result is two vectors.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn zip<const WIDTH: usize>(a: Vector, b: Vector) -> [Vector; 2] {
    use std::arch::x86_64 as intel;
    // SAFETY: SSE2 is part of x86-64, and vectors of 16 bytes are any bits.
    unsafe {
        let [a, b] = std::mem::transmute::<[Vector; 2], [intel::__m128i; 2]>([a, b]);
        let zipped = match WIDTH {
            1 => [intel::_mm_unpacklo_epi8(a, b), intel::_mm_unpackhi_epi8(a, b)],
            2 => [intel::_mm_unpacklo_epi16(a, b), intel::_mm_unpackhi_epi16(a, b)],
            4 => [intel::_mm_unpacklo_epi32(a, b), intel::_mm_unpackhi_epi32(a, b)],
            8 => [intel::_mm_unpacklo_epi64(a, b), intel::_mm_unpackhi_epi64(a, b)],
            _ => [a, b],
        };
        std::mem::transmute::<[intel::__m128i; 2], [Vector; 2]>(zipped)
    }
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn zip<const WIDTH: usize>(a: Vector, b: Vector) -> [Vector; 2] {
    let byte = |at: usize| {
        let (element, byte) = (at / WIDTH, at % WIDTH);
        let side = if element.is_multiple_of(2) { &a } else { &b };
        side[element / 2 * WIDTH + byte]
    };
    [std::array::from_fn(byte), std::array::from_fn(|at| byte(at + 16))]
}

/// Does one round of a byte transposition: interleaves the first half of the vectors with the second half.
#[inline(always)]
pub(crate) fn rotate<const WIDTH: usize, const N: usize>(vectors: [Vector; N]) -> [Vector; N] {
    let mut rotated = vectors;
    for index in 0..N / 2 {
        let [low, high] = zip::<WIDTH>(vectors[index], vectors[index + N / 2]);
        (rotated[2 * index], rotated[2 * index + 1]) = (low, high);
    }
    rotated
}

/// Transposes 16 units of `N` bytes, `N` a power of two, into `N` rows of 16 bytes.
#[inline(always)]
pub(crate) fn units_to_planes<const N: usize>(units: [Vector; N]) -> [Vector; N] {
    (0..4).fold(units, |vectors, _| rotate::<1, N>(vectors))
}

/// Transposes `N` rows of 16 bytes back to 16 units of `N` bytes, as the inverse of [`units_to_planes`].
#[inline(always)]
pub(crate) fn planes_to_units<const N: usize>(planes: [Vector; N]) -> [Vector; N] {
    (0..N.trailing_zeros()).fold(planes, |vectors, _| rotate::<1, N>(vectors))
}

/// Transposes a square matrix of elements, of `WIDTH` bytes each, in vectors. Its side `N` is `16 / WIDTH`.
#[inline(always)]
pub(crate) fn transpose_square<const WIDTH: usize, const N: usize>(rows: [Vector; N]) -> [Vector; N] {
    (0..N.trailing_zeros()).fold(rows, |vectors, _| rotate::<WIDTH, N>(vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square<const WIDTH: usize, const N: usize>() {
        let rows: [Vector; N] = std::array::from_fn(|row| std::array::from_fn(|at| (row * 16 + at) as u8));
        let columns = transpose_square::<WIDTH, N>(rows);
        for row in 0..N {
            for at in 0..16 {
                assert_eq!(columns[row][at], rows[at / WIDTH][row * WIDTH + at % WIDTH], "width {WIDTH}");
            }
        }
    }

    #[test]
    fn squares_are_transposed() {
        square::<1, 16>();
        square::<2, 8>();
        square::<4, 4>();
        square::<8, 2>();
    }

    fn planes<const N: usize>() {
        let bytes: Vec<u8> = (0..16 * N).map(|at| at as u8).collect();
        let units: [Vector; N] = std::array::from_fn(|at| std::array::from_fn(|byte| bytes[at * 16 + byte]));
        let planes = units_to_planes(units);
        for (byte, unit) in (0..N).flat_map(|byte| (0..16).map(move |unit| (byte, unit))) {
            assert_eq!(planes[byte][unit], bytes[unit * N + byte], "{N} bytes");
        }
        assert_eq!(planes_to_units(planes), units);
    }

    #[test]
    fn units_become_planes_and_back() {
        planes::<2>();
        planes::<4>();
        planes::<8>();
        planes::<16>();
    }
}
