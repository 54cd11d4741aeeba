//! Running sums and products of expressions along a dimension.

use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, DTypeKind, NdBuffer, Scan};

use super::expr::{Expr, Kind, Running};
use super::pick::{Along, Pick};

impl Expr {
    /// Makes an expression for running sums or products along a dimension, in the elements' own type.
    ///
    /// Regions are computed one after the other along the dimension, and each begins with the totals of the previous
    /// one. Integers wrap around, as in NumPy. Floats are combined in binary64 and rounded once. Within a region, rows
    /// of 32 elements are combined first, then the totals of the rows. Every device gives the same bits. The last bits
    /// of floats depend on the regions, and so on the memory limit.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr::plan::Selection;
    /// use cuzarr_compute::{ComputeOptions, Expr};
    /// use cuzarr_device::Scan;
    /// let array = Array::builder([4], DataType::Int32).chunks([2]).create("memory://running")?;
    /// array.write(&Selection::all(&[4]), &[1i32, 2, 3, 4])?;
    /// let sums = Expr::array(array)?.running(0, Scan::Sum)?;
    /// assert_eq!(sums.compute(&ComputeOptions::default())?.host_slice::<i32>()?, [1, 3, 6, 10]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a dimension that does not exist; `DTypeMismatch` for elements that are not numbers
    /// (convert bools first); `Unsupported` for too many nested running results.
    pub fn running(&self, axis: usize, scan: Scan) -> Result<Expr> {
        if axis >= self.ndim() {
            let message = format!("there is no dimension {axis} of {}", self.ndim());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if matches!(self.dtype().kind(), DTypeKind::Bool | DTypeKind::Opaque) {
            let message = format!("there are no running sums and products of {}", self.dtype());
            return Err(
                Error::new(ErrorKind::DTypeMismatch, message).with_hint("convert the elements to numbers: astype")
            );
        }
        self.check_derived()?;
        Ok(Running { of: self.clone(), axis, scan, from: 0 }.into_expr())
    }
}

impl Running {
    fn into_expr(self) -> Expr {
        if self.of.shape()[self.axis] == 1 && self.from == 0 {
            return self.of;
        }
        let (shape, dtype) = (self.shape(), self.of.dtype());
        Expr::new(shape, dtype, Kind::Running(self))
    }

    /// Returns the shape of the running sums or products.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let mut shape = self.of.shape().to_vec();
        shape[self.axis] -= self.from;
        shape
    }

    /// Whether two expressions give the same running sums or products.
    pub(crate) fn is_same(&self, other: &Running) -> bool {
        std::sync::Arc::ptr_eq(&self.of.0, &other.of.0)
            && (self.axis, self.scan, self.from) == (other.axis, other.scan, other.from)
    }

    /// Returns running sums or products of the same kind, but of the expression `of`.
    pub(crate) fn of(&self, of: Expr) -> Running {
        Running { of, ..self.clone() }
    }

    /// Makes the expression for those running sums or products that `pick` chooses. The pick must fit the shape of this
    /// expression.
    ///
    /// # Errors
    /// Those of [`Expr::picked`]; `Unsupported` for elements that are not consecutive along the dimension.
    pub(crate) fn picked(&self, pick: &Pick) -> Result<Expr> {
        let is_first = self.from == 0 && pick.along(self.axis).index(0) == 0;
        let (start, count) = match (pick.along(self.axis), pick.dim_of(self.axis)) {
            // The first running result is the element itself.
            (own, None) if is_first && own.count().is_none() => return self.of.picked(pick),
            (own, Some(_)) if own.count() == Some(0) => return self.of.picked(pick),
            (own, Some(_)) if own.count() == Some(1) => (own.index(0), 1),
            (&Along::Range { start, count, step: 1 }, Some(_)) => (start, count),
            _ => {
                let message = format!(
                    "of running results only elements that follow each other can be picked along dimension {}",
                    self.axis
                );
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("compute or store the running results, and pick from these"));
            }
        };
        let from = self.from + start;
        let of = self.of.picked(&pick.with(self.axis, Along::all(from + count)))?;
        let axis = pick.dim_of(self.axis).unwrap_or_default();
        Ok(Running { of, axis, scan: self.scan, from }.into_expr())
    }

    /// Computes the running sums or products of `elements`, continuing from the totals `before` them. Returns the new
    /// totals too.
    ///
    /// # Errors
    /// Those of [`NdBuffer::scan_behind`].
    pub(crate) fn step(&self, elements: &NdBuffer, before: Option<&NdBuffer>) -> Result<(NdBuffer, Option<NdBuffer>)> {
        Ok(elements.scan_behind(self.axis, self.scan, before)?)
    }

    /// Returns NumPy's name of the function that this expression computes: `cumsum` or `cumprod`.
    pub(crate) fn name(&self) -> &'static str {
        match self.scan {
            Scan::Sum => "cumsum",
            Scan::Product => "cumprod",
        }
    }

    /// Returns the size in bytes of the type in which running sums or products are computed.
    pub(crate) fn working_bytes(&self) -> u64 {
        match self.of.dtype().kind() {
            DTypeKind::Complex => DType::COMPLEX128.size_bytes() as u64,
            _ => DType::FLOAT64.size_bytes() as u64,
        }
    }
}
