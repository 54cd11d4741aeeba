//! Smaller arrays: one element for every box of elements, as multiscale pyramids need it.

pub(crate) mod cpu;
pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::stream::Stream;

/// Elements of a box at most: the host looks at them one by one.
const MOST_BOX_ELEMS: usize = 1 << 16;

const TEXT: &str = include_str!("downsample.cu");
/// Dimensions at most.
pub(crate) const MOST_AXES: usize = defined(TEXT, "CUZARR_DOWNSAMPLE_AXES") as usize;

/// The way to make one element of a box of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downsampling {
    /// The mean, of floats in binary64; of integers exactly, ties to even.
    Mean = defined(TEXT, "CUZARR_MEAN") as isize,
    /// The largest; NaN when there is one.
    Max = defined(TEXT, "CUZARR_MAX") as isize,
    /// The most frequent one, of several the smallest: for labels.
    Mode,
    /// The first one.
    Nearest,
}

impl Downsampling {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Downsampling::Mean => "mean",
            Downsampling::Max => "max",
            Downsampling::Mode => "mode",
            Downsampling::Nearest => "nearest",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Downsampling> {
        [Downsampling::Mean, Downsampling::Max, Downsampling::Mode, Downsampling::Nearest]
            .into_iter()
            .find(|one| one.name() == name)
    }

    /// Whether it has a meaning for elements of this type.
    ///
    /// # Errors
    /// `Unsupported`
    pub fn check(self, dtype: DType) -> Result<()> {
        let exact = matches!(dtype.kind(), DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt);
        let real = exact || matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat);
        match self {
            Downsampling::Nearest => Ok(()),
            Downsampling::Mode if exact => Ok(()),
            Downsampling::Mean | Downsampling::Max if real => Ok(()),
            _ => {
                let message = format!("downsampling by {} does not take {dtype}", self.name());
                Err(Error::new(ErrorKind::Unsupported, message).with_hint("use nearest"))
            }
        }
    }
}

/// The extents of an array downsampled by these factors.
pub fn downsampled_shape(shape: &[usize], factors: &[usize]) -> Vec<usize> {
    shape.iter().zip(factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect()
}

/// A smaller array on the same device, packed in C order: one element for each box of `factors` elements; boxes at the far
/// edges are cut off.
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
/// `InvalidArgument` for factors that do not fit; `Unsupported` for types that the method has no meaning for, and more
/// than 8 dimensions; `OutOfMemory`, `DeviceFailed`.
pub fn downsample(array: &NdBuffer, factors: &[usize], method: Downsampling) -> Result<NdBuffer> {
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
    let shape = downsampled_shape(array.shape(), factors);
    if method == Downsampling::Nearest {
        return array.region(&vec![0; array.ndim()], &shape, factors)?.copy(Order::C);
    }
    // Short floats are rounded once, from binary32.
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
        cpu::downsample(&packed, &shape, factors, method)?
    } else {
        let result = NdBuffer::empty(array.device(), working, &shape, Order::C)?;
        let stream = Stream::new(array.device())?;
        cuda::downsample(&packed, &result, factors, method, &stream)?;
        stream.synchronize()?;
        result
    };
    match dtype {
        DType::BOOL => result.reinterpret(dtype),
        _ if working != dtype => result.astype(dtype, Order::C),
        _ => Ok(result),
    }
}
