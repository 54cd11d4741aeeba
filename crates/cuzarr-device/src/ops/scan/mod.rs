//! Running sums and products along a dimension.

mod cpu;
pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::{Layout, Order};
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::memory::buffer::Buffer;
use crate::ops::lines::Lines;
use crate::stream::Stream;

const TEXT: &str = include_str!("scan.cu");
/// Number of neighbouring elements (a segment) that one GPU thread combines one after the other.
const SEGMENT: u64 = defined(TEXT, "CUZARR_SCAN_SEGMENT") as u64;

/// The operation that combines an element with all elements before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Running sums: each element of the result is the sum of an element and all elements before it.
    Sum = defined(TEXT, "CUZARR_SCAN_SUM") as isize,
    /// Running products: each element of the result is the product of an element and all elements before it.
    Product = defined(TEXT, "CUZARR_SCAN_PRODUCT") as isize,
}

impl NdBuffer {
    /// Returns running sums or products along a dimension, in new memory, packed in C order.
    ///
    /// Integers wrap, as in NumPy. Floats are combined in binary64 and rounded once, in an order that depends only on
    /// the shape: every device gives the same bits. NaNs become the canonical one (`nan`).
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
        self.working_dtype()?;
        let lines = Lines::new(self.shape(), axis)?;
        if self.device() == Device::Cpu && !self.is_empty() {
            return Ok(cpu::scan(self, lines, operation, None)?.0);
        }
        let wide = self.scanned(lines, operation, None)?;
        self.narrowed(wide)
    }

    /// Like [`NdBuffer::scan`], but continues from the totals of earlier elements. `before` has the totals of those,
    /// one for each line, from an earlier call. Also returns the new totals, which are not rounded; `None` if there are
    /// no elements.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer, Scan};
    /// let [first, second] = [[1, 2], [3, 4_i32]].map(|part| NdBuffer::from_slice(Device::Cpu, &part, &[2]));
    /// let (_, totals) = first?.scan_behind(0, Scan::Sum, None)?;
    /// let (sums, _) = second?.scan_behind(0, Scan::Sum, totals.as_ref())?;
    /// assert_eq!(sums.host_slice::<i32>()?, [6, 10]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`NdBuffer::scan`]; `InvalidArgument` for totals of another type or shape.
    pub fn scan_behind(
        &self,
        axis: usize,
        operation: Scan,
        before: Option<&NdBuffer>,
    ) -> Result<(NdBuffer, Option<NdBuffer>)> {
        let working = self.working_dtype()?;
        let lines = Lines::new(self.shape(), axis)?;
        let mut of_totals = self.shape().to_vec();
        of_totals[axis] = 1;
        let before = before.filter(|_| !self.is_empty());
        if let Some(before) = before.filter(|before| before.dtype() != working || before.shape() != of_totals) {
            let (got, dtype) = (before.shape(), before.dtype());
            return Err(Error::invalid(format!(
                "totals before are {dtype} of shape {got:?}, expected {working} of shape {of_totals:?}"
            )));
        }
        if self.device() == Device::Cpu && !self.is_empty() {
            let (results, totals) = cpu::scan(self, lines, operation, before)?;
            let layout = Layout::contiguous(&of_totals, working.size_bytes(), Order::C)?;
            return Ok((results, Some(NdBuffer::from_parts(Buffer::from_vec(totals), working, layout)?)));
        }
        let wide = self.scanned(lines, operation, before.map(|before| (axis, before)))?;
        let totals = if wide.is_empty() {
            None
        } else {
            let mut start = vec![0; wide.ndim()];
            start[axis] = wide.shape()[axis] - 1;
            Some(wide.region(&start, &of_totals, &vec![1; of_totals.len()])?.copy(Order::C)?)
        };
        Ok((self.narrowed(wide)?, totals))
    }

    /// Running sums or products in the working type, on a GPU, before they are rounded to the array's type.
    fn scanned(&self, lines: Lines, operation: Scan, before: Option<(usize, &NdBuffer)>) -> Result<NdBuffer> {
        let working = self.working_dtype()?;
        let own = if self.has_bits_of(working) { self.reinterpret(working)? } else { self.clone() };
        let Some((axis, before)) = before else {
            return in_place(own.astype(working, Order::C)?, lines, operation);
        };
        // The totals are put before the elements, as if they were one more element.
        let mut shape = self.shape().to_vec();
        let ones = vec![1; shape.len()];
        shape[axis] += 1;
        let all = NdBuffer::empty(self.device(), working, &shape, Order::C)?;
        let mut start = vec![0; shape.len()];
        all.region(&start, before.shape(), &ones)?.copy_from(before)?;
        start[axis] = 1;
        all.region(&start, self.shape(), &ones)?.copy_from_cast(&own)?;
        in_place(all, Lines { extent: lines.extent + 1, ..lines }, operation)?.region(&start, self.shape(), &ones)
    }

    /// The type in which elements are combined before the result is rounded to the array's type.
    fn working_dtype(&self) -> Result<DType> {
        let own = self.dtype();
        Ok(match own.kind() {
            DTypeKind::Int | DTypeKind::UInt => DType::INT64,
            DTypeKind::Float | DTypeKind::BFloat => DType::FLOAT64,
            DTypeKind::Complex => DType::COMPLEX128,
            _ => {
                let message = format!("there are no running sums and products of {own}");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint("convert the elements to numbers"));
            }
        })
    }

    /// Whether elements can be combined in the type `working` without conversion. Sums and products that wrap have the
    /// same bits with and without a sign.
    fn has_bits_of(&self, working: DType) -> bool {
        self.dtype() == working || self.dtype() == DType::UINT64
    }

    /// Converts running sums or products to this array's type.
    fn narrowed(&self, wide: NdBuffer) -> Result<NdBuffer> {
        match self.has_bits_of(wide.dtype()) {
            true => wide.reinterpret(self.dtype()),
            false => wide.astype(self.dtype(), Order::C),
        }
    }
}

/// Computes the running sums or products of a packed array in GPU memory, in place. The caller must be its only user.
fn in_place(wide: NdBuffer, lines: Lines, operation: Scan) -> Result<NdBuffer> {
    if !wide.is_empty() {
        let stream = Stream::legacy(wide.device())?;
        cuda::scan(&wide.as_buffer()?, wide.dtype(), lines, operation, &stream)?;
        stream.synchronize()?;
    }
    Ok(wide)
}
