//! Functions of numbers on the host.
//!
//! Inverse hyperbolic functions are taken from the C library. Rust has its own formulas for some of them, which lose
//! digits near their zeros.

pub use super::lanes::{Vectors, widest};

unsafe extern "C" {
    #[link_name = "asinh"]
    safe fn c_asinh(x: f64) -> f64;
    #[link_name = "acosh"]
    safe fn c_acosh(x: f64) -> f64;
    #[link_name = "atanh"]
    safe fn c_atanh(x: f64) -> f64;
}

/// The inverse hyperbolic sine of `x`.
pub fn asinh(x: f64) -> f64 {
    c_asinh(x)
}

/// The inverse hyperbolic cosine of `x`. NaN below 1.
pub fn acosh(x: f64) -> f64 {
    c_acosh(x)
}

/// The inverse hyperbolic tangent of `x`. NaN outside -1 to 1.
pub fn atanh(x: f64) -> f64 {
    c_atanh(x)
}

/// Largest size of a number whose sine and cosine are computed by [`sines`] and [`cosines`] themselves. Multiples of π up
/// to it are exact in the first part of π.
const LARGEST_ANGLE: f32 = 1_048_576.0;
/// π in two parts. The first one has 33 bits, so that its product with a number of 20 bits is exact.
const PI_PARTS: [f64; 2] = [3.141_592_653_468_251_2, 1.215_420_101_301_238_4e-10];
/// Adding and subtracting it rounds a number to the nearest integer, which is then in the lowest bits of the sum.
const ROUNDING: f64 = 6_755_399_441_055_744.0;
/// The polynomial for (sin(r) / r - 1) / r² in r², from -π/2 to π/2: interpolation at Chebyshev's nodes. It is exact to
/// 2⁻⁴².
const SINE: [f64; 6] = [
    -0.166_666_666_666_584_64,
    0.008_333_333_330_939_888,
    -0.000_198_412_687_088_758_12,
    2.755_712_315_099_485_3e-6,
    -2.503_674_379_063_406_4e-8,
    1.550_248_709_821_51e-10,
];

/// Computes sines of binary32 numbers in vectors: x is reduced to r by a multiple of π in binary64, and a polynomial is
/// rounded once. So results are the nearest numbers, except for one in about 2¹⁷, which is off by one ulp. The sine of a
/// large number is that of the C library.
pub fn sines(numbers: &[[u8; 4]], results: &mut [[u8; 4]]) {
    widest(Waves::<false> { numbers, results });
}

/// Computes cosines of binary32 numbers, like [`sines`].
pub fn cosines(numbers: &[[u8; 4]], results: &mut [[u8; 4]]) {
    widest(Waves::<true> { numbers, results });
}

struct Waves<'a, const COSINE: bool> {
    numbers: &'a [[u8; 4]],
    results: &'a mut [[u8; 4]],
}

impl<const COSINE: bool> Vectors for Waves<'_, COSINE> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // Blocks are so short that the second look finds them in the first-level cache.
        for (numbers, results) in self.numbers.chunks(1024).zip(self.results.chunks_mut(1024)) {
            let (groups, rest) = numbers.as_chunks::<GROUP>();
            let (group_results, rest_results) = results.as_chunks_mut::<GROUP>();
            for (numbers, results) in groups.iter().zip(group_results) {
                *results = waves::<GROUP, COSINE>(numbers);
            }
            for (&number, result) in rest.iter().zip(rest_results) {
                [*result] = waves::<1, COSINE>(&[number]);
            }
            let is_other = |number: [u8; 4]| !is_angle(f32::from_ne_bytes(number));
            if numbers.iter().fold(false, |found, &number| found | is_other(number)) {
                for (&number, result) in numbers.iter().zip(results).filter(|(number, _)| is_other(**number)) {
                    let x = f32::from_ne_bytes(number);
                    *result = if COSINE { x.cos() } else { x.sin() }.to_ne_bytes();
                }
            }
        }
    }
}

/// How many sines are computed side by side, step by step. Each step of one waits for the step before it, so processors
/// need several vectors to be busy.
const GROUP: usize = 32;

/// Whether a number is so small that [`waves`] computes its sine for it. False for NaN.
#[inline(always)]
fn is_angle(x: f32) -> bool {
    x.abs() <= LARGEST_ANGLE
}

/// Computes a group of sines or cosines. All loops are over arrays of one size, without closures, which might not be
/// compiled for the caller's vectors.
#[inline(always)]
fn waves<const N: usize, const COSINE: bool>(numbers: &[[u8; 4]; N]) -> [[u8; 4]; N] {
    // cos(r + (n + 1/2) π) is -sin(r + n π).
    let shift = if COSINE { 0.5 } else { 0.0 };
    let (mut x, mut rounded, mut r, mut z) = ([0.0f64; N], [0.0f64; N], [0.0f64; N], [0.0f64; N]);
    for (x, &number) in x.iter_mut().zip(numbers) {
        *x = f32::from_ne_bytes(number).into();
    }
    for (rounded, x) in rounded.iter_mut().zip(&x) {
        *rounded = (x * std::f64::consts::FRAC_1_PI - shift) + ROUNDING;
    }
    for (r, (x, rounded)) in r.iter_mut().zip(x.iter().zip(&rounded)) {
        let turns = (rounded - ROUNDING) + shift;
        *r = (x - turns * PI_PARTS[0]) - turns * PI_PARTS[1];
    }
    for (z, r) in z.iter_mut().zip(&r) {
        *z = r * r;
    }
    let [factors @ .., last] = SINE;
    let mut sums = [last; N];
    for factor in factors.into_iter().rev() {
        for (sum, z) in sums.iter_mut().zip(&z) {
            *sum = factor + z * *sum;
        }
    }
    let mut results = [[0; 4]; N];
    for (result, ((r, z), (sum, rounded))) in results.iter_mut().zip(r.iter().zip(&z).zip(sums.iter().zip(&rounded))) {
        let size = r * (1.0 + z * sum);
        let is_odd = rounded.to_bits() & 1 ^ u64::from(COSINE);
        *result = (f64::from_bits(size.to_bits() ^ is_odd << 63) as f32).to_ne_bytes();
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(numbers: &[f32]) -> [Vec<f32>; 2] {
        let bytes: Vec<[u8; 4]> = numbers.iter().map(|x| x.to_ne_bytes()).collect();
        let compute = |function: fn(&[[u8; 4]], &mut [[u8; 4]])| {
            let mut results = vec![[0; 4]; bytes.len()];
            function(&bytes, &mut results);
            results.into_iter().map(f32::from_ne_bytes).collect()
        };
        [compute(sines), compute(cosines)]
    }

    /// Distance of two numbers of one sign in ulps.
    fn ulps(got: f32, expected: f32) -> u32 {
        got.to_bits().abs_diff(expected.to_bits())
    }

    #[test]
    fn sines_and_cosines_are_the_nearest_numbers() {
        // Every exponent, and numbers near multiples of half of π.
        let mut numbers: Vec<f32> = (0..1 << 16).map(|at: u32| f32::from_bits(at.wrapping_mul(0x9e37_79b1))).collect();
        let near = |n: i32| {
            (-2..3)
                .map(move |ulp| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32 * (1.0 + ulp as f32 * f32::EPSILON))
        };
        numbers.extend((-40_000..40_000).flat_map(near));
        numbers.extend([
            0.0,
            -0.0,
            f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            LARGEST_ANGLE,
            -LARGEST_ANGLE,
            1_048_576.1,
            f32::MAX,
        ]);
        let [sines, cosines] = both(&numbers);
        let mut wrong = 0;
        for (at, &x) in numbers.iter().enumerate().filter(|(_, x)| x.is_finite()) {
            // The C library's functions of binary64 are exact to far less than an ulp of binary32.
            let expected = [f64::from(x).sin() as f32, f64::from(x).cos() as f32];
            for (got, expected) in [sines[at], cosines[at]].into_iter().zip(expected) {
                assert!(ulps(got, expected) <= 1, "{x:?}: {got:?} {expected:?}");
                // The C library's functions of large binary32 numbers miss the nearest one more often.
                wrong += if is_angle(x) { ulps(got, expected) } else { 0 };
            }
        }
        assert!(wrong < 20, "{wrong} of {} are not the nearest", 2 * numbers.len());
    }

    #[test]
    fn results_do_not_depend_on_neighbours_and_what_has_none_is_nan() {
        let mut numbers: Vec<f32> = (0..200).map(|at| at as f32 * 0.37 - 30.0).collect();
        let plain = both(&numbers);
        for at in [0, 5, 63, 64, 130, 199] {
            numbers[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e9][at % 4];
        }
        let mixed = both(&numbers);
        for (at, &x) in numbers.iter().enumerate() {
            for (plain, mixed) in plain.iter().zip(&mixed) {
                let is_angle = is_angle(x);
                assert!(!is_angle || plain[at].to_bits() == mixed[at].to_bits(), "{x:?}");
                assert!(x.is_finite() || mixed[at].is_nan(), "{x:?}");
            }
        }
        for count in [0, 1, 3, 4, 7, 8, 9, 63, 64, 65] {
            let [sines, cosines] = both(&numbers[..count]);
            assert_eq!((sines.len(), cosines.len()), (count, count));
            assert!((0..count).all(|at| sines[at].to_bits() == mixed[0][at].to_bits() || sines[at].is_nan()));
            assert!((0..count).all(|at| cosines[at].to_bits() == mixed[1][at].to_bits() || cosines[at].is_nan()));
        }
        assert_eq!(both(&[-0.0])[0][0].to_bits(), (-0.0f32).to_bits());
    }
}
