//! Downsampling on the host. Arguments were checked by the public function (`crate::ops::downsample`).

use crate::array::dtype::{DType, DTypeKind};
use crate::array::elements::HostElement;
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::downsample::Downsampling;
use crate::threads::{cores, in_threads};

/// Elements of the result that are worth a thread.
const ELEMS_A_THREAD: usize = 1 << 15;

/// A number of which boxes are reduced.
trait Number: HostElement + PartialOrd + Default {
    fn mean(values: &[Self]) -> Self;
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! integers {
    ($($name:ty)*) => {$(
        impl Number for $name {
            fn mean(values: &[Self]) -> Self {
                let count = values.len() as i128;
                let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
                let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
                let up = 2 * rest > count || (2 * rest == count && whole & 1 == 1);
                // A mean lies among its numbers.
                (whole + i128::from(up)) as Self
            }

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

macro_rules! floats {
    ($($name:ty)*) => {$(
        impl Number for $name {
            fn mean(values: &[Self]) -> Self {
                let sum = values.iter().fold(0.0, |sum, &value| sum + f64::from(value));
                (sum / values.len() as f64) as Self
            }

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }
floats! { f32 f64 }

/// A new array of `shape`, of boxes of `src`, which is packed in C order.
pub(crate) fn downsample(src: &NdBuffer, shape: &[usize], factors: &[usize], method: Downsampling) -> Result<NdBuffer> {
    let dtype = src.dtype();
    let boxes = Boxes { src: src.shape(), dst: shape, factors };
    let bytes = match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Int, 1) => boxes.reduce::<i8>(src, method),
        (DTypeKind::Int, 2) => boxes.reduce::<i16>(src, method),
        (DTypeKind::Int, 4) => boxes.reduce::<i32>(src, method),
        (DTypeKind::Int, _) => boxes.reduce::<i64>(src, method),
        (DTypeKind::UInt, 1) => boxes.reduce::<u8>(src, method),
        (DTypeKind::UInt, 2) => boxes.reduce::<u16>(src, method),
        (DTypeKind::UInt, 4) => boxes.reduce::<u32>(src, method),
        (DTypeKind::UInt, _) => boxes.reduce::<u64>(src, method),
        _ if dtype == DType::FLOAT32 => boxes.reduce::<f32>(src, method),
        _ if dtype == DType::FLOAT64 => boxes.reduce::<f64>(src, method),
        _ => Err(Error::new(ErrorKind::Unsupported, format!("no {} of {dtype}", method.name()))),
    }?;
    NdBuffer::from_host(Device::Cpu, dtype, shape, Order::C, &bytes)
}

struct Boxes<'a> {
    src: &'a [usize],
    dst: &'a [usize],
    factors: &'a [usize],
}

impl Boxes<'_> {
    fn reduce<T: Number>(&self, src: &NdBuffer, method: Downsampling) -> Result<Vec<u8>> {
        // A view's elements may lie at odd addresses.
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
            return Ok(self.part(&elements, 0..count, method));
        }
        let share = count.div_ceil(threads);
        let ranges =
            (0..threads).map(|number| (number * share).min(count)..((number + 1) * share).min(count)).collect();
        Ok(in_threads(threads, ranges, |range| self.part(&elements, range, method)).concat())
    }

    /// The bytes of some elements of the result.
    fn part<T: Number>(&self, elements: &[T], range: std::ops::Range<usize>, method: Downsampling) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len() * size_of::<T>());
        let mut values = Vec::with_capacity(self.factors.iter().product());
        for index in range {
            values.clear();
            self.gather(elements, index, &mut values);
            let value = match method {
                Downsampling::Mean => T::mean(&values),
                Downsampling::Max => largest(&values),
                Downsampling::Mode => most_frequent(&mut values),
                Downsampling::Nearest => values[0],
            };
            value.append(&mut bytes);
        }
        bytes
    }

    /// The elements of one box, in C order.
    fn gather<T: Copy>(&self, elements: &[T], index: usize, values: &mut Vec<T>) {
        let (mut rest, mut stride, mut first) = (index, 1, 0);
        let mut axes = [(1usize, 0usize); crate::ops::downsample::MOST_AXES];
        for dim in (0..self.dst.len()).rev() {
            let place = rest % self.dst[dim] * self.factors[dim];
            rest /= self.dst[dim];
            axes[dim] = (self.factors[dim].min(self.src[dim] - place), stride);
            first += place * stride;
            stride *= self.src[dim];
        }
        walk(elements, &axes[..self.dst.len()], first, values);
    }
}

fn walk<T: Copy>(elements: &[T], axes: &[(usize, usize)], first: usize, values: &mut Vec<T>) {
    match axes {
        [] => values.push(elements[first]),
        [(extent, 1)] => values.extend_from_slice(&elements[first..first + extent]),
        [(extent, stride), rest @ ..] => {
            for at in 0..*extent {
                walk(elements, rest, first + at * stride, values);
            }
        }
    }
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn largest<T: Number>(values: &[T]) -> T {
    values.iter().fold(values[0], |best, &value| if value > best || value != value { value } else { best })
}

fn most_frequent<T: Number>(values: &mut [T]) -> T {
    values.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let (mut best, mut most) = (T::default(), 0);
    for run in values.chunk_by(|one, other| one == other) {
        if run.len() > most {
            (best, most) = (run[0], run.len());
        }
    }
    best
}
