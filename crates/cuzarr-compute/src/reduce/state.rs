//! States of reductions: what is known about the elements so far, and how two states are joined. The GPU's counterparts
//! are in `reduce/accumulators.cuh`. Both do the same operations in the same order.

use cuzarr_device::{DType, DTypeKind};

/// The intermediate result of a reduction, in three words: a value, the number of elements, and a second value. The
/// [`Accumulator`] defines the meaning of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State(pub(crate) [u64; 3]);

/// The quantity that a reduction accumulates from elements, in the widest type of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Accumulator {
    Sum,
    Product,
    /// The mean of the elements, their number, and the sum of their squared distances from the mean.
    Moments,
    Least,
    Greatest,
    /// The number of elements that are not 0.
    Count,
}

/// How a reduction combines elements: the quantity, its type, and whether NaN elements are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) accumulator: Accumulator,
    pub(crate) wide: Wide,
    pub(crate) skip_nan: bool,
}

impl Fold {
    /// Returns how a reduction combines elements of type `dtype`.
    pub(crate) fn of(dtype: DType, accumulator: Accumulator, skip_nan: bool) -> Fold {
        Fold { accumulator, wide: Wide::of(dtype), skip_nan }
    }

    /// Whether partial results may be joined in any groups without a difference: nothing is rounded.
    pub(crate) fn is_exact(self) -> bool {
        match self.accumulator {
            Accumulator::Least | Accumulator::Greatest | Accumulator::Count => true,
            Accumulator::Sum | Accumulator::Product => matches!(self.wide, Wide::Signed | Wide::Unsigned),
            Accumulator::Moments => false,
        }
    }
}

/// The widest type of each kind of numbers, in which reductions compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wide {
    Signed,
    Unsigned,
    Float,
    Complex,
}

impl Wide {
    pub(crate) fn of(dtype: DType) -> Wide {
        match dtype.kind() {
            DTypeKind::Bool | DTypeKind::Int => Wide::Signed,
            DTypeKind::UInt => Wide::Unsigned,
            DTypeKind::Complex => Wide::Complex,
            _ => Wide::Float,
        }
    }

    /// Returns the number that a word of a partial result represents; for complex numbers, the real part.
    pub(crate) fn number(self, word: u64) -> f64 {
        match self {
            Wide::Signed => word.cast_signed() as f64,
            Wide::Unsigned => word as f64,
            Wide::Float | Wide::Complex => f64::from_bits(word),
        }
    }

    /// Returns the integer that a word of a partial result represents; `None` for other kinds of numbers.
    pub(crate) fn whole(self, word: u64) -> Option<i128> {
        match self {
            Wide::Signed => Some(word.cast_signed().into()),
            Wide::Unsigned => Some(word.into()),
            Wide::Float | Wide::Complex => None,
        }
    }
}

/// An element that was converted to the widest type of its kind.
pub(crate) trait Value: Copy + Send + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn word(self) -> u64;
    fn from_word(word: u64) -> Self;
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn less(self, other: Self) -> bool;
    fn is_zero(self) -> bool;
    fn float(self) -> f64;
    /// Converts packed elements of a frequent type to the widest one; returns false for other types.
    fn widen(dtype: DType, packed: &[u8], row: &mut [Self]) -> bool;
}

/// Converts packed elements of `N` bytes by `convert`, until `row` is full.
#[inline(always)]
fn widen_by<const N: usize, V>(packed: &[u8], row: &mut [V], convert: impl Fn([u8; N]) -> V) -> bool {
    for (&element, value) in packed.as_chunks::<N>().0.iter().zip(row) {
        *value = convert(element);
    }
    true
}

macro_rules! whole_values {
    ($($name:ident: $($narrow:ident $dtype:ident)*;)*) => {$(
        impl Value for $name {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn word(self) -> u64 { self as u64 }
            fn from_word(word: u64) -> Self { word as Self }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn is_nan(self) -> bool { false }
            fn less(self, other: Self) -> bool { self < other }
            fn is_zero(self) -> bool { self == 0 }
            fn float(self) -> f64 { self as f64 }
            #[inline(always)]
            fn widen(dtype: DType, packed: &[u8], row: &mut [Self]) -> bool {
                match dtype {
                    $(DType::$dtype => {
                        widen_by(packed, row, |element| <$name>::from($narrow::from_ne_bytes(element)))
                    })*
                    _ => false,
                }
            }
        }
    )*};
}

whole_values! {
    i64: i8 INT8 i16 INT16 i32 INT32 i64 INT64;
    u64: u8 UINT8 u16 UINT16 u32 UINT32 u64 UINT64;
}

impl Value for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    fn word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> Self {
        f64::from_bits(word)
    }
    fn add(self, other: Self) -> Self {
        self + other
    }
    fn multiply(self, other: Self) -> Self {
        self * other
    }
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    fn less(self, other: Self) -> bool {
        self < other
    }
    fn is_zero(self) -> bool {
        self == 0.0
    }
    fn float(self) -> f64 {
        self
    }
    #[inline(always)]
    fn widen(dtype: DType, packed: &[u8], row: &mut [Self]) -> bool {
        match dtype {
            DType::FLOAT32 => widen_by(packed, row, |element| f32::from_ne_bytes(element).into()),
            DType::FLOAT64 => widen_by(packed, row, f64::from_ne_bytes),
            _ => false,
        }
    }
}

/// Whether `x` replaces `y` as the smallest (if `least`) or largest element. NaN beats all other elements.
#[inline(always)]
pub(super) fn beats<V: Value>(x: V, y: V, least: bool) -> bool {
    let is_better = if least { x.less(y) } else { y.less(x) };
    // Without branches, so that loops can use vector instructions.
    is_better | (x.is_nan() & !y.is_nan())
}

impl Accumulator {
    /// Returns the partial result before any element was added.
    pub(crate) fn empty(self, wide: Wide) -> State {
        match (self, wide) {
            (Accumulator::Product, Wide::Float) => State([1f64.to_bits(), 0, 0]),
            (Accumulator::Product, _) => State([1, 0, 0]),
            _ => State::default(),
        }
    }

    /// Merges two partial results into that of all their elements. The elements of `other` come after those of `own`.
    #[inline]
    pub(crate) fn merge(self, wide: Wide, own: State, other: State) -> State {
        match wide {
            Wide::Signed => self.join::<i64>(own, other),
            Wide::Unsigned => self.join::<u64>(own, other),
            Wide::Float => self.join::<f64>(own, other),
            Wide::Complex => {
                let second = f64::from_bits(own.0[2]) + f64::from_bits(other.0[2]);
                match self {
                    Accumulator::Count => self.join::<u64>(own, other),
                    _ => State([self.join::<f64>(own, other).0[0], own.0[1] + other.0[1], second.to_bits()]),
                }
            }
        }
    }

    #[inline]
    fn join<V: Value>(self, own: State, other: State) -> State {
        let ([a, own_count, c], [b, other_count, d]) = (own.0, other.0);
        let count = own_count + other_count;
        match self {
            Accumulator::Sum => State([V::from_word(a).add(V::from_word(b)).word(), count, 0]),
            Accumulator::Product => State([V::from_word(a).multiply(V::from_word(b)).word(), count, 0]),
            Accumulator::Count => State([a + b, count, 0]),
            Accumulator::Moments => moments(own, other),
            Accumulator::Least | Accumulator::Greatest => {
                let (x, y, least) = (V::from_word(a), V::from_word(b), self == Accumulator::Least);
                let wins = own_count == 0 || beats(y, x, least) || (!beats(x, y, least) && d < c);
                let (best, place) = if other_count > 0 && wins { (b, d) } else { (a, c) };
                State([best, count, place])
            }
        }
    }
}

/// Joins the moments (mean, number, squared distances) of two groups of elements, of which one may be empty.
fn moments(own: State, other: State) -> State {
    if other.0[1] == 0 {
        return own;
    }
    if own.0[1] == 0 {
        return other;
    }
    let joint = Joint::new(own.0[1], other.0[1]);
    let [mean, squares] = joint.moments([own.0[0], own.0[2]], [other.0[0], other.0[2]]);
    State([mean, own.0[1] + other.0[1], squares])
}

/// The factors that join the moments of two groups of elements, by the formula of Chan, Golub and LeVeque (1979).
/// They only depend on the numbers of elements, neither of which is 0.
#[derive(Clone, Copy)]
pub(super) struct Joint {
    share: f64,
    weight: f64,
}

impl Joint {
    pub(super) fn new(own: u64, other: u64) -> Joint {
        let (n, m) = (own as f64, other as f64);
        Joint { share: m / (n + m), weight: n * m / (n + m) }
    }

    /// Joins the mean and the squared distances of two groups of elements. All of them are bits of binary64.
    #[inline(always)]
    pub(super) fn moments(self, own: [u64; 2], other: [u64; 2]) -> [u64; 2] {
        let ([mean, squares], [other_mean, other_squares]) = (own.map(f64::from_bits), other.map(f64::from_bits));
        let distance = other_mean - mean;
        let joint = mean + distance * self.share;
        [joint.to_bits(), (squares + other_squares + distance * distance * self.weight).to_bits()]
    }
}
