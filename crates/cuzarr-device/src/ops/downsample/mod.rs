//! Downsampling: makes smaller arrays with one element for each box of elements, as multiscale pyramids need.

pub(crate) mod cpu;
pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::stream::Stream;

/// Largest number of elements of a box that is combined into one element; larger boxes are refused. The host visits
/// them one by one.
const MOST_BOX_ELEMS: usize = 1 << 16;

const TEXT: &str = include_str!("downsample.cu");
/// Most dimensions of an array that can be downsampled; arrays with more are refused.
pub(crate) const MOST_AXES: usize = defined(TEXT, "CUZARR_DOWNSAMPLE_AXES") as usize;

/// The method by which the elements of a box are combined into one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downsampling {
    /// The mean of the box's elements. Floats are averaged in binary64; integers exactly, rounded half to even.
    Mean = defined(TEXT, "CUZARR_MEAN") as isize,
    /// The largest element of the box; NaN if the box has one.
    Max = defined(TEXT, "CUZARR_MAX") as isize,
    /// The most frequent element of the box; if there are several, the smallest. For labels.
    Mode,
    /// The first element of the box.
    Nearest,
    /// A weighted mean of the box and its surroundings, in binary64. The weights are a Gaussian around the middle of
    /// the box. Its standard deviation is a third of the factor along each dimension, as in scikit-image's
    /// `pyramid_reduce`; elements beyond four deviations do not count. At the edges of an array, only the weights
    /// inside count. Integers are rounded half to even.
    Gaussian,
}

const METHODS: [Downsampling; 5] =
    [Downsampling::Mean, Downsampling::Max, Downsampling::Mode, Downsampling::Nearest, Downsampling::Gaussian];

impl Downsampling {
    /// Name of the downsampling method, such as `mean`.
    pub const fn name(self) -> &'static str {
        match self {
            Downsampling::Mean => "mean",
            Downsampling::Max => "max",
            Downsampling::Mode => "mode",
            Downsampling::Nearest => "nearest",
            Downsampling::Gaussian => "gaussian",
        }
    }

    /// Returns the downsampling method with this name, such as `mean`.
    pub fn named(name: &str) -> Option<Downsampling> {
        METHODS.into_iter().find(|one| one.name() == name)
    }

    /// Number of elements beyond each side of a box that its result also depends on, along a dimension with this
    /// factor.
    pub const fn reach(self, factor: u64) -> u64 {
        match self {
            // The elements between the edge of the box and four standard deviations from its middle: 4/3 f - (f - 1) /
            // 2.
            Downsampling::Gaussian if factor > 1 => (5 * factor + 3) / 6,
            _ => 0,
        }
    }

    /// The weights of a box and of the elements within its reach, along a dimension with this factor.
    fn weights(self, factor: usize) -> Vec<f64> {
        let reach = self.reach(factor as u64) as usize;
        let (middle, deviation) = (reach as f64 + (factor as f64 - 1.0) / 2.0, factor as f64 / 3.0);
        let weight = |at: usize| (-((at as f64 - middle) / deviation).powi(2) / 2.0).exp();
        (0..factor + 2 * reach).map(weight).collect()
    }

    /// Checks that the method can be used for elements of this type.
    ///
    /// # Errors
    /// `Unsupported`
    pub fn check(self, dtype: DType) -> Result<()> {
        let exact = matches!(dtype.kind(), DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt);
        let real = exact || matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat);
        let short = dtype.size_bytes() <= 4 && dtype.kind() != DTypeKind::Bool;
        match self {
            Downsampling::Nearest => Ok(()),
            Downsampling::Gaussian if real && (short || !exact) => Ok(()),
            Downsampling::Mode if exact => Ok(()),
            Downsampling::Mean | Downsampling::Max if real => Ok(()),
            _ => {
                let message = format!("downsampling by {} does not take {dtype}", self.name());
                Err(Error::new(ErrorKind::Unsupported, message).with_hint("use nearest"))
            }
        }
    }
}

/// Returns the shape of an array that is downsampled by these factors.
pub fn downsampled_shape(shape: &[usize], factors: &[usize]) -> Vec<usize> {
    shape.iter().zip(factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect()
}

/// Returns a smaller array on the same device, packed in C order, with one element for each box of `factors` elements.
/// Boxes at the far edges are cut off.
///
/// ```
/// use cuzarr_device::downsample::{Downsampling, downsample};
/// use cuzarr_device::{DType, Device, NdBuffer, Order};
/// let array = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[2, 3], Order::C, &[1, 2, 9, 3, 4, 4])?;
/// assert_eq!(downsample(&array, &[2, 2], Downsampling::Mean)?.host_slice::<u8>()?, [2, 6]);
/// assert_eq!(downsample(&array, &[2, 2], Downsampling::Max)?.host_slice::<u8>()?, [4, 9]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument` for factors that do not fit; `Unsupported` for types that the method cannot be used for, and for
/// more than 8 dimensions; `OutOfMemory`, `DeviceFailed`.
pub fn downsample(array: &NdBuffer, factors: &[usize], method: Downsampling) -> Result<NdBuffer> {
    let shape = array.shape().iter().zip(factors).map(|(extent, factor)| extent.div_ceil((*factor).max(1))).collect();
    downsample_part(array, Boxes { before: &vec![0; array.ndim()], shape }, factors, method)
}

/// The boxes that a part of an array is divided into.
#[derive(Clone, Debug)]
pub struct Boxes<'a> {
    /// Number of elements before the first box, along each dimension. Methods with a reach use them.
    pub before: &'a [usize],
    /// Number of boxes of elements along each dimension. Elements behind the last box are used like those before the
    /// first.
    pub shape: Vec<usize>,
}

/// Like [`downsample`], but for a part of an array, with elements around its boxes. If the part includes all elements
/// within the method's [reach](Downsampling::reach), the result has the same elements as that of the whole array.
///
/// # Errors
/// Those of [`downsample`]; `InvalidArgument` for boxes that begin outside the part.
pub fn downsample_part(
    array: &NdBuffer,
    boxes: Boxes<'_>,
    factors: &[usize],
    method: Downsampling,
) -> Result<NdBuffer> {
    method.check(array.dtype())?;
    let elems = factors.iter().try_fold(1usize, |elems, &factor| elems.checked_mul(factor));
    let fits = elems.is_some_and(|elems| (1..=MOST_BOX_ELEMS).contains(&elems));
    if factors.len() != array.ndim() || !fits {
        let message =
            format!("factors {factors:?} for shape {:?}: one each, at most {MOST_BOX_ELEMS} together", array.shape());
        return Err(Error::invalid(message));
    }
    if array.ndim() > MOST_AXES {
        let message = format!("downsampling takes at most {MOST_AXES} dimensions, got {}", array.ndim());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let Boxes { before, shape } = boxes;
    let begins_inside = |dim: usize| match shape[dim].checked_sub(1) {
        Some(last) => before[dim].saturating_add(last.saturating_mul(factors[dim])) < array.shape()[dim],
        None => true,
    };
    if (before.len(), shape.len()) != (array.ndim(), array.ndim()) || !(0..array.ndim()).all(begins_inside) {
        let message = format!("boxes {shape:?} behind {before:?} elements do not fit shape {:?}", array.shape());
        return Err(Error::invalid(message));
    }
    if method == Downsampling::Nearest {
        return array.region(before, &shape, factors)?.copy(Order::C);
    }
    // Short floats are computed in binary32 and rounded once.
    let dtype = array.dtype();
    let working = match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::BFloat, _) | (DTypeKind::Float, 2) => DType::FLOAT32,
        (DTypeKind::Bool, _) => DType::UINT8,
        _ => dtype,
    };
    let packed = match () {
        () if working == DType::UINT8 && dtype == DType::BOOL => array.copy(Order::C)?.reinterpret(working)?,
        () if working != dtype => array.astype(working, Order::C)?,
        () if array.is_contiguous(Order::C) => array.clone(),
        () => array.copy(Order::C)?,
    };
    let result = if shape.contains(&0) {
        NdBuffer::empty(array.device(), working, &shape, Order::C)?
    } else if array.device() == Device::Cpu {
        cpu::downsample(&packed, before, &shape, factors, method)?
    } else {
        let result = NdBuffer::empty(array.device(), working, &shape, Order::C)?;
        let stream = Stream::new(array.device())?;
        cuda::downsample(&packed, before, &result, factors, method, &stream)?;
        stream.synchronize()?;
        result
    };
    match dtype {
        DType::BOOL => result.reinterpret(dtype),
        _ if working != dtype => result.astype(dtype, Order::C),
        _ => Ok(result),
    }
}
