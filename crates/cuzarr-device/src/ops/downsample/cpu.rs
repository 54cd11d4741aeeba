//! Downsamples arrays in host memory, with several threads. Arguments were checked by the public function
//! (`crate::ops::downsample`).

use crate::array::dtype::{DType, DTypeKind};
use crate::array::elements::HostElement;
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::downsample::Downsampling;
use crate::ops::nan::Canonical;
use crate::threads::{Threads, cores};

/// Fewest elements of the result for which one more thread is used.
const ELEMS_A_THREAD: usize = 1 << 15;

/// A number type for which the elements of a box can be reduced to one element.
trait MeanNumber: HostElement + PartialOrd + Default {
    fn mean(values: &[Self]) -> Self;
    /// Returns the number converted to binary64. Not used for 64-bit integers, which the Gaussian refuses.
    fn float(self) -> f64;
    /// Returns the number of this type that is nearest to `value`; halfway between two, the even one.
    fn nearest(value: f64) -> Self;
    /// Appends the number's bytes to `bytes`. Every NaN becomes the canonical one.
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! integers {
    ($($name:ty)*) => {$(
        impl MeanNumber for $name {
            fn mean(values: &[Self]) -> Self {
                let count = values.len() as i128;
                let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
                let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
                let up = 2 * rest > count || (2 * rest == count && whole & 1 == 1);
                // Cannot overflow, since a mean lies among its numbers.
                (whole + i128::from(up)) as Self
            }

            fn float(self) -> f64 {
                self as f64
            }

            fn nearest(value: f64) -> Self {
                value.round_ties_even() as Self
            }

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

macro_rules! floats {
    ($($name:ty)*) => {$(
        impl MeanNumber for $name {
            fn mean(values: &[Self]) -> Self {
                let sum = values.iter().fold(0.0, |sum, &value| sum + f64::from(value));
                (sum / values.len() as f64) as Self
            }

            fn float(self) -> f64 {
                f64::from(self)
            }

            fn nearest(value: f64) -> Self {
                value as Self
            }

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.canonical().to_ne_bytes());
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }
floats! { f32 f64 }

/// Returns a new array of `shape`, one element for each box of `src`. `before` elements lie before the first box. `src`
/// must be packed in C order.
pub(crate) fn downsample(
    src: &NdBuffer,
    before: &[usize],
    shape: &[usize],
    factors: &[usize],
    method: Downsampling,
) -> Result<NdBuffer> {
    let dtype = src.dtype();
    let weights = match method {
        Downsampling::Gaussian => factors.iter().map(|&factor| method.weights(factor)).collect(),
        _ => Vec::new(),
    };
    let boxes = CpuBoxes { src: src.shape(), before, dst: shape, factors, method, weights };
    let bytes = match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Int, 1) => boxes.reduce::<i8>(src),
        (DTypeKind::Int, 2) => boxes.reduce::<i16>(src),
        (DTypeKind::Int, 4) => boxes.reduce::<i32>(src),
        (DTypeKind::Int, _) => boxes.reduce::<i64>(src),
        (DTypeKind::UInt, 1) => boxes.reduce::<u8>(src),
        (DTypeKind::UInt, 2) => boxes.reduce::<u16>(src),
        (DTypeKind::UInt, 4) => boxes.reduce::<u32>(src),
        (DTypeKind::UInt, _) => boxes.reduce::<u64>(src),
        _ if dtype == DType::FLOAT32 => boxes.reduce::<f32>(src),
        _ if dtype == DType::FLOAT64 => boxes.reduce::<f64>(src),
        _ => Err(Error::new(ErrorKind::Unsupported, format!("no {} of {dtype}", method.name()))),
    }?;
    NdBuffer::from_host(Device::Cpu, dtype, shape, Order::C, &bytes)
}

struct CpuBoxes<'a> {
    src: &'a [usize],
    before: &'a [usize],
    dst: &'a [usize],
    factors: &'a [usize],
    method: Downsampling,
    /// For each dimension, the weights of the elements of a box; empty for methods without weights.
    weights: Vec<Vec<f64>>,
}

/// One dimension of a box: its extent and its stride in elements, and how many of its elements lie before the source.
#[derive(Clone, Copy, Default)]
struct Axis {
    extent: usize,
    stride: usize,
    skipped: usize,
}

impl CpuBoxes<'_> {
    fn reduce<T: MeanNumber>(&self, src: &NdBuffer) -> Result<Vec<u8>> {
        // The elements of a view may not be aligned; then they are copied.
        let copied;
        let elements = match src.host_slice::<T>() {
            Ok(elements) => elements,
            Err(_) => {
                copied = src.copy(Order::C)?;
                copied.host_slice::<T>()?
            }
        };
        let count: usize = self.dst.iter().product();
        let threads = cores().min(count.div_ceil(ELEMS_A_THREAD));
        if threads <= 1 {
            return Ok(self.part(&elements, 0..count));
        }
        let share = count.div_ceil(threads);
        let ranges = (0..threads).map(|number| (number * share).min(count)..((number + 1) * share).min(count));
        Ok(Threads::workers().map(threads, ranges, |range| self.part(&elements, range)).concat())
    }

    /// Computes a range of the result's elements, and returns their bytes.
    fn part<T: MeanNumber>(&self, elements: &[T], range: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len() * size_of::<T>());
        let mut values = Vec::with_capacity(self.factors.iter().product());
        for index in range {
            let (first, axes) = self.place(index);
            let axes = &axes[..self.dst.len()];
            if self.method == Downsampling::Gaussian {
                T::nearest(self.weighed(elements, first, axes)).append(&mut bytes);
                continue;
            }
            values.clear();
            walk(elements, axes, first, &mut values);
            let value = match self.method {
                Downsampling::Mean => T::mean(&values),
                Downsampling::Max => largest(&values),
                Downsampling::Mode => most_frequent(&mut values),
                Downsampling::Nearest | Downsampling::Gaussian => values[0],
            };
            value.append(&mut bytes);
        }
        bytes
    }

    /// Returns the number of the first source element that counts for the result's element `index`, and the box of all
    /// that count.
    fn place(&self, index: usize) -> (usize, [Axis; crate::ops::downsample::MOST_AXES]) {
        let (mut rest, mut stride, mut first) = (index, 1, 0);
        let mut axes = [Axis::default(); crate::ops::downsample::MOST_AXES];
        for dim in (0..self.dst.len()).rev() {
            let place = self.before[dim] + rest % self.dst[dim] * self.factors[dim];
            rest /= self.dst[dim];
            let reach = self.method.reach(self.factors[dim] as u64) as usize;
            let (begin, end) = (place.saturating_sub(reach), place + self.factors[dim] + reach);
            axes[dim] = Axis { extent: end.min(self.src[dim]) - begin, stride, skipped: begin + reach - place };
            first += begin * stride;
            stride *= self.src[dim];
        }
        (first, axes)
    }

    /// The weighted mean of a box: the sum of elements times their weights, divided by the sum of the weights. Adds in
    /// the same order as `weighed` in `downsample.cu`.
    fn weighed<T: MeanNumber>(&self, elements: &[T], first: usize, axes: &[Axis]) -> f64 {
        let inside = |(axis, weights): (&Axis, &Vec<f64>)| {
            weights[axis.skipped..][..axis.extent].iter().fold(0.0, |sum, weight| sum + weight)
        };
        let all = axes.iter().zip(&self.weights).map(inside).fold(1.0, |all, inside| all * inside);
        let mut sum = 0.0;
        self.add_weighed(elements, first, axes, 0, 1.0, &mut sum);
        sum / all
    }

    /// Adds the elements of a box to `sum`, each times `weight` and its own weights. `axes` begins with dimension
    /// `dim`.
    fn add_weighed<T: MeanNumber>(
        &self,
        elements: &[T],
        first: usize,
        axes: &[Axis],
        dim: usize,
        weight: f64,
        sum: &mut f64,
    ) {
        let Some((axis, rest)) = axes.split_first() else {
            *sum += weight * elements[first].float();
            return;
        };
        let weights = &self.weights[dim][axis.skipped..][..axis.extent];
        if rest.is_empty() {
            for (own, element) in weights.iter().zip(&elements[first..first + axis.extent]) {
                *sum += weight * own * element.float();
            }
            return;
        }
        for (at, own) in weights.iter().enumerate() {
            self.add_weighed(elements, first + at * axis.stride, rest, dim + 1, weight * own, sum);
        }
    }
}

fn walk<T: Copy>(elements: &[T], axes: &[Axis], first: usize, values: &mut Vec<T>) {
    match axes {
        [] => values.push(elements[first]),
        [axis] => values.extend_from_slice(&elements[first..first + axis.extent]),
        [axis, rest @ ..] => {
            for at in 0..axis.extent {
                walk(elements, rest, first + at * axis.stride, values);
            }
        }
    }
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn largest<T: MeanNumber>(values: &[T]) -> T {
    values.iter().fold(values[0], |best, &value| if value > best || value != value { value } else { best })
}

fn most_frequent<T: MeanNumber>(values: &mut [T]) -> T {
    values.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let (mut best, mut most) = (T::default(), 0);
    for run in values.chunk_by(|one, other| one == other) {
        if run.len() > most {
            (best, most) = (run[0], run.len());
        }
    }
    best
}
