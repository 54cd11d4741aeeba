//! NumPy's `__array_interface__` and CUDA's `__cuda_array_interface__` (version 3), as plain data.

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::{Layout, Order};
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::Owner;
use crate::memory::pool;

/// The fields of a dictionary `__array_interface__` or `__cuda_array_interface__`, as plain data. The Python crate
/// converts between this structure and a dictionary.
///
/// ```
/// use cuzarr_device::{DType, Device, NdBuffer, Order, dlpack::ArrayInterface};
/// let array = NdBuffer::zeroed(Device::Cpu, DType::FLOAT32, &[2, 3], Order::C)?;
/// let interface = ArrayInterface::export(&array, None)?;
/// assert_eq!((interface.typestr.as_str(), interface.strides), ("<f4", None));
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayInterface {
    /// Byte order, kind and size in bytes of one element, as NumPy's type string: `<f4`, `|b1`, `|V12`.
    pub typestr: String,
    /// The shape of the array: the extent of each dimension.
    pub shape: Vec<usize>,
    /// Byte strides of the array; `None` for C order.
    pub strides: Option<Vec<isize>>,
    /// Address of the first element. 0 is allowed if there are no elements.
    pub address: usize,
    /// Whether the array's memory must not be written.
    pub read_only: bool,
    /// CUDA only: the stream of the producer's work (1 legacy, 2 per thread, else a `CUstream`). `None` if the memory
    /// may be used immediately. 0 is not allowed.
    pub stream: Option<usize>,
}

impl ArrayInterface {
    /// Describes an nd-buffer by its address, shape, strides and type string. The description borrows nothing, so the
    /// caller keeps the nd-buffer alive while others use it.
    ///
    /// # Errors
    /// `InvalidArgument` when `stream` is 0 (CUDA's legacy default stream is 1 here).
    pub fn export(array: &NdBuffer, stream: Option<usize>) -> Result<ArrayInterface> {
        if stream == Some(0) {
            return Err(Error::invalid("stream 0 is ambiguous in the CUDA array interface, use 1 or 2"));
        }
        pool::mark_shared(array.buffer());
        Ok(ArrayInterface {
            typestr: typestr(array.dtype()),
            shape: array.shape().to_vec(),
            strides: (!array.is_contiguous(Order::C)).then(|| array.strides().to_vec()),
            address: if array.is_empty() { 0 } else { array.address() },
            read_only: array.is_read_only(),
            stream,
        })
    }

    /// Wraps the memory that this dictionary describes as an nd-buffer, without copying. Does not wait for `stream`:
    /// the caller must order its own stream after it.
    ///
    /// `device` is the CPU for `__array_interface__`. The CUDA interface does not name its device; pass the GPU that
    /// the driver gives for the address.
    ///
    /// # Errors
    /// `Unsupported` for unknown types and for bytes in the other byte order; `InvalidArgument` when shape and strides
    /// make no sense.
    ///
    /// # Safety
    /// The memory is on `device`, is as large as shape and strides say, and stays valid until `owner` is dropped.
    pub unsafe fn import(&self, device: Device, owner: Owner) -> Result<NdBuffer> {
        let dtype = parse_typestr(&self.typestr)?;
        let strides = match &self.strides {
            Some(strides) => strides.clone(),
            None => Layout::contiguous(&self.shape, dtype.size_bytes(), Order::C)?.strides().to_vec(),
        };
        if self.address == 0 && !self.shape.contains(&0) && dtype.size_bytes() > 0 {
            return Err(Error::invalid(format!("array of shape {:?} without memory", self.shape)));
        }
        // SAFETY: the caller promises this function's conditions, which are the same.
        unsafe { wrap(device, dtype, self.address, &self.shape, &strides, owner, self.read_only) }
    }
}

/// Wraps another library's strided memory as an nd-buffer, without copying. The first element is at address `first`;
/// other elements may lie before it.
///
/// # Errors
/// `InvalidArgument` when shape and strides make no sense, and for elements on a GPU that are not aligned.
///
/// # Safety
/// Every element that shape and strides reach lies in memory of `device` that `owner` keeps alive.
pub unsafe fn wrap(
    device: Device,
    dtype: DType,
    first: usize,
    shape: &[usize],
    strides: &[isize],
    owner: Owner,
    read_only: bool,
) -> Result<NdBuffer> {
    let size = dtype.size_bytes();
    let invalid = || Error::invalid(format!("shape {shape:?} with byte strides {strides:?} is not an array in memory"));
    let (mut before, mut after) = (0_usize, size);
    if shape.len() != strides.len() {
        return Err(invalid());
    }
    if shape.contains(&0) {
        after = 0;
    } else {
        for (&extent, &stride) in shape.iter().zip(strides) {
            let reach = stride.unsigned_abs().checked_mul(extent - 1).ok_or_else(invalid)?;
            let side = if stride < 0 { &mut before } else { &mut after };
            *side = side.checked_add(reach).ok_or_else(invalid)?;
        }
    }
    let start = first.checked_sub(before).ok_or_else(invalid)?;
    let size_bytes = before.checked_add(after).filter(|&size| isize::try_from(size).is_ok()).ok_or_else(invalid)?;
    start.checked_add(size_bytes).ok_or_else(invalid)?;
    let layout = Layout::strided(shape, strides, before, size, size_bytes)?;
    // If a kernel accesses an unaligned number, the process loses its context.
    let alignment = dtype.swap_unit_bytes();
    let steps = shape.iter().zip(strides).filter(|&(&extent, _)| extent > 1).map(|(_, stride)| stride.unsigned_abs());
    let is_aligned = std::iter::once(first).chain(steps).all(|bytes| bytes.is_multiple_of(alignment));
    if !device.is_host_accessible() && size_bytes > 0 && !is_aligned {
        let message =
            format!("elements of {dtype} at address {first:#x} with byte strides {strides:?} are not aligned");
        return Err(Error::invalid(message).with_hint("copy the array first"));
    }
    // SAFETY: the caller promises the span of the elements, which this is.
    let buffer = unsafe { Buffer::foreign(device, start, size_bytes, owner) };
    NdBuffer::from_parts(if read_only { buffer.into_read_only() } else { buffer }, dtype, layout)
}

/// NumPy's type string of a dtype. NumPy has no bfloat16, so it becomes two opaque bytes, as in ml_dtypes.
fn typestr(dtype: DType) -> String {
    let size = dtype.size_bytes();
    let order = match (dtype.swap_unit_bytes(), cfg!(target_endian = "little")) {
        (..=1, _) => '|',
        (_, true) => '<',
        (_, false) => '>',
    };
    match dtype.kind() {
        DTypeKind::Bool => "|b1".to_string(),
        DTypeKind::Int => format!("{order}i{size}"),
        DTypeKind::UInt => format!("{order}u{size}"),
        DTypeKind::Float => format!("{order}f{size}"),
        DTypeKind::Complex => format!("{order}c{size}"),
        DTypeKind::BFloat => format!("{order}V{size}"),
        DTypeKind::Opaque => format!("|V{size}"),
    }
}

fn parse_typestr(text: &str) -> Result<DType> {
    let unsupported = || Error::new(ErrorKind::Unsupported, format!("array of type '{text}'"));
    let mut rest = text.chars();
    let (order, kind) = rest.next().zip(rest.next()).ok_or_else(unsupported)?;
    // Times carry their unit in brackets: '<M8[ns]'.
    let digits = rest.as_str().split('[').next().unwrap_or_default();
    let count: u32 = digits.parse().map_err(|_| unsupported())?;
    let dtype = match (kind, count) {
        ('b', 1) => DType::BOOL,
        ('i', 1) => DType::INT8,
        ('i', 2) => DType::INT16,
        ('i' | 'M' | 'm', 8) => DType::INT64,
        ('i', 4) => DType::INT32,
        ('u', 1) => DType::UINT8,
        ('u', 2) => DType::UINT16,
        ('u', 4) => DType::UINT32,
        ('u', 8) => DType::UINT64,
        ('f', 2) => DType::FLOAT16,
        ('f', 4) => DType::FLOAT32,
        ('f', 8) => DType::FLOAT64,
        ('c', 8) => DType::COMPLEX64,
        ('c', 16) => DType::COMPLEX128,
        ('S' | 'V', size) => return Ok(DType::opaque(size)),
        ('U', characters) => DType::opaque(characters.checked_mul(4).ok_or_else(unsupported)?),
        _ => return Err(unsupported()),
    };
    let foreign = if cfg!(target_endian = "little") { '>' } else { '<' };
    if order == foreign && dtype.size_bytes() > 1 {
        return Err(
            unsupported().with_hint("convert it to native byte order: `array.astype(array.dtype.newbyteorder('='))`")
        );
    }
    if !matches!(order, '<' | '>' | '|' | '=') {
        return Err(unsupported());
    }
    Ok(dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(array: &NdBuffer) -> NdBuffer {
        let interface = ArrayInterface::export(array, None).unwrap();
        // SAFETY: described just now, and the clone keeps the memory alive.
        unsafe { interface.import(array.device(), Box::new(array.clone())).unwrap() }
    }

    #[test]
    fn a_round_trip_shares_memory() {
        let bytes: Vec<u8> = (0..48).collect();
        let array = NdBuffer::from_host(Device::Cpu, DType::INT32, &[3, 4], Order::C, &bytes).unwrap();
        let view = array.transpose(&[1, 0]).unwrap().region(&[1, 0], &[2, 2], &[2, 2]).unwrap();
        let back = round_trip(&view);
        assert_eq!((back.address(), back.strides()), (view.address(), view.strides()));
        assert_eq!(back.to_host_bytes(Order::C).unwrap(), view.to_host_bytes(Order::C).unwrap());
        let repeated = round_trip(&array.index_axis(0, 1).unwrap().broadcast_to(&[5, 4]).unwrap());
        assert!(repeated.is_read_only());
        let none = NdBuffer::zeroed(Device::Cpu, DType::INT32, &[0, 4], Order::C).unwrap();
        assert_eq!(round_trip(&none).shape(), [0, 4]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn type_strings_are_numpys() {
        for (text, dtype) in [
            ("|b1", DType::BOOL),
            ("|i1", DType::INT8),
            ("<u2", DType::UINT16),
            ("<f2", DType::FLOAT16),
            ("<c16", DType::COMPLEX128),
            ("|V12", DType::opaque(12)),
        ] {
            assert_eq!((typestr(dtype).as_str(), parse_typestr(text).unwrap()), (text, dtype));
        }
        assert_eq!(typestr(DType::BFLOAT16), "<V2");
        assert_eq!(parse_typestr("<M8[25us]").unwrap(), DType::INT64);
        assert_eq!(parse_typestr("<U3").unwrap(), DType::opaque(12));
        for text in ["", "<", "<f", "<f3", ">f4", ">U2", "<i16", "|O8", "?f4", "<U4294967295", "<f-4", "é4"] {
            assert_eq!(parse_typestr(text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
    }

    #[test]
    fn numbers_on_a_gpu_are_aligned() {
        let bytes = [0_u64; 8];
        let address = bytes.as_ptr() as usize;
        let wrapped = |device, dtype, first, stride| {
            // SAFETY: inside of `bytes`, and refused or dropped before anything is read.
            unsafe { wrap(device, dtype, first, &[2], &[stride], Box::new(()), false) }
        };
        assert!(wrapped(Device::Cpu, DType::FLOAT32, address + 2, 6).is_ok());
        assert!(wrapped(Device::Simt, DType::FLOAT32, address + 2, 8).is_err());
        assert!(wrapped(Device::Simt, DType::FLOAT32, address, 6).is_err());
        assert!(wrapped(Device::Simt, DType::COMPLEX64, address + 4, 12).is_ok());
        assert!(wrapped(Device::Simt, DType::opaque(3), address + 1, 5).is_ok());
    }

    #[test]
    fn impossible_descriptions_are_refused() {
        let good = ArrayInterface {
            typestr: "<f8".to_string(),
            shape: vec![2],
            strides: None,
            address: 64,
            read_only: false,
            stream: None,
        };
        for bad in [
            ArrayInterface { address: 0, ..good.clone() },
            ArrayInterface { strides: Some(vec![8, 8]), ..good.clone() },
            ArrayInterface { strides: Some(vec![-128]), ..good.clone() },
            ArrayInterface { strides: Some(vec![isize::MIN]), shape: vec![9], ..good.clone() },
            ArrayInterface { shape: vec![usize::MAX], ..good.clone() },
            ArrayInterface { shape: vec![1 << 40, 1 << 40], strides: Some(vec![0, 0]), ..good.clone() },
            ArrayInterface { address: usize::MAX, ..good.clone() },
        ] {
            // SAFETY: refused before anything is touched.
            let error = unsafe { bad.import(Device::Cpu, Box::new(())) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
        let array = NdBuffer::zeroed(Device::Cpu, DType::INT8, &[1], Order::C).unwrap();
        assert!(ArrayInterface::export(&array, Some(0)).is_err());
    }
}
