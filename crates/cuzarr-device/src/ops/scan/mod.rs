//! Running sums and products along a dimension.

mod cpu;
pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::ops::lines::Lines;
use crate::stream::Stream;

const TEXT: &str = include_str!("scan.cu");
/// Elements that are combined one after the other.
const SEGMENT: u64 = defined(TEXT, "CUZARR_SCAN_SEGMENT") as u64;

/// How an element is combined with all those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Running sums.
    Sum = defined(TEXT, "CUZARR_SCAN_SUM") as isize,
    /// Running products.
    Product = defined(TEXT, "CUZARR_SCAN_PRODUCT") as isize,
}

impl NdBuffer {
    /// Running sums or products along a dimension, in new memory, packed in C order.
    ///
    /// Integers wrap, as NumPy's do. Floats are combined in binary64 and rounded once, in an order that depends on the shape
    /// alone: every device gives the same bits.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer, Scan};
    /// let array = NdBuffer::from_slice(Device::Cpu, &[1, 2, 3, 4_i32], &[2, 2])?;
    /// assert_eq!(array.scan(0, Scan::Sum)?.host_slice::<i32>()?, [1, 2, 4, 6]);
    /// assert_eq!(array.scan(1, Scan::Product)?.host_slice::<i32>()?, [1, 2, 3, 12]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension; `Unsupported` for bools and opaque bytes; those of
    /// [`NdBuffer::empty`].
    pub fn scan(&self, axis: usize, operation: Scan) -> Result<NdBuffer> {
        let own = self.dtype();
        let lines = Lines::new(self.shape(), axis)?;
        let working = match own.kind() {
            DTypeKind::Int | DTypeKind::UInt => DType::INT64,
            DTypeKind::Float | DTypeKind::BFloat => DType::FLOAT64,
            DTypeKind::Complex => DType::COMPLEX128,
            _ => {
                let message = format!("there are no running sums and products of {own}");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint("convert the elements to numbers"));
            }
        };
        // Sums that wrap have the same bits with a sign and without.
        let has_its_bits = own == working || own == DType::UINT64;
        let wide =
            if has_its_bits { self.copy(Order::C)?.reinterpret(working)? } else { self.astype(working, Order::C)? };
        let scanned = match wide.device() {
            _ if wide.is_empty() => wide,
            Device::Cpu => cpu::scan(wide, lines, operation)?,
            device => {
                let stream = Stream::legacy(device)?;
                cuda::scan(&wide.as_buffer()?, working, lines, operation, &stream)?;
                stream.synchronize()?;
                wide
            }
        };
        if has_its_bits { scanned.reinterpret(own) } else { scanned.astype(own, Order::C) }
    }
}
