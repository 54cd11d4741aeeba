//! What is made of many elements: reductions, quantiles, histograms.

use std::fmt;

use cuzarr_device::{DType, NdBuffer};

use super::expr::{Expr, Kind};
use super::histogram::{Histogram, HistogramPart};
use super::quantile::Quantile;
use super::reduce::Reduction;
use super::run::ComputeOptions;
use cuzarr::Result;

/// One of them. As part of an expression it is computed before anything else is.
#[derive(Clone, Debug)]
pub(crate) enum Summary {
    Reduction(Reduction),
    Quantile(Quantile),
    Histogram(Histogram, HistogramPart),
}

impl Summary {
    /// Type and shape of what comes of elements of such a type and shape.
    ///
    /// # Errors
    /// `DTypeMismatch`, `InvalidArgument`.
    pub(crate) fn result(&self, dtype: DType, shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        match self {
            Summary::Reduction(reduction) => reduction.result(dtype, shape),
            Summary::Quantile(quantile) => quantile.result(dtype, shape),
            Summary::Histogram(histogram, part) => histogram.result(*part, dtype),
        }
    }

    /// What comes of an expression's elements, in new memory of the device.
    ///
    /// # Errors
    /// Those of [`Expr::compute`].
    pub(crate) fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        match self {
            Summary::Reduction(reduction) => of.reduce(reduction, options),
            Summary::Quantile(quantile) => quantile.compute(of, options),
            Summary::Histogram(histogram, part) => histogram.compute(*part, of, options),
        }
    }

    /// Writes it as a function of what `of` writes.
    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        of: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let (name, axes) = match self {
            Summary::Reduction(reduction) => (reduction.op.name(), &reduction.axes),
            Summary::Quantile(quantile) => ("quantile", &quantile.axes),
            Summary::Histogram(_, HistogramPart::Counts) => ("histogram", &None),
            Summary::Histogram(_, HistogramPart::Edges) => ("histogram_bin_edges", &None),
        };
        write!(f, "{name}(")?;
        of(f)?;
        if let Summary::Quantile(quantile) = self {
            write!(f, ", {:?}", quantile.probabilities)?;
        }
        match axes {
            Some(axes) => write!(f, ", axis={axes:?})"),
            None => f.write_str(")"),
        }
    }
}

impl Expr {
    fn summary(&self, summary: Summary) -> Result<Expr> {
        let (dtype, shape) = summary.result(self.dtype(), self.shape())?;
        Ok(Expr::new(shape, dtype, Kind::Summary(summary, self.clone())))
    }

    /// What a reduction makes of the elements, without computing it.
    ///
    /// # Errors
    /// `DTypeMismatch` when it has no meaning for them; `InvalidArgument` for dimensions that are not there.
    pub fn reduced(&self, reduction: Reduction) -> Result<Expr> {
        self.summary(Summary::Reduction(reduction))
    }

    /// Quantiles of the elements, without computing them: see [`Quantile`].
    ///
    /// ```
    /// use cuzarr_compute::{Expr, Quantile, QuantileMethod};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [5.0f64, 1.0, 3.0, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[4], Order::C, &bytes)?)?;
    /// let quartiles = x.quantile(Quantile::new(vec![0.25, 0.5], QuantileMethod::Linear))?;
    /// assert_eq!(quartiles.compute(&Default::default())?.host_slice::<f64>()?, [1.75, 2.5]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when they have no meaning for the elements; `InvalidArgument` for dimensions that are not there, and
    /// for quantiles outside of 0 to 1.
    pub fn quantile(&self, quantile: Quantile) -> Result<Expr> {
        self.summary(Summary::Quantile(quantile))
    }

    /// How many elements lie in each bin, and the edges of the bins, without computing them: see [`Histogram`].
    ///
    /// ```
    /// use cuzarr_compute::{Expr, Histogram};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [0.0f64, 1.0, 3.0, 2.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[5], Order::C, &bytes)?)?;
    /// let (counts, edges) = x.histogram(Histogram::new(2, None))?;
    /// assert_eq!(counts.compute(&Default::default())?.host_slice::<i64>()?, [2, 3]);
    /// assert_eq!(edges.compute(&Default::default())?.host_slice::<f64>()?, [0.0, 2.0, 4.0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when the elements have no order; `InvalidArgument` for edges that do not increase.
    pub fn histogram(&self, histogram: Histogram) -> Result<(Expr, Expr)> {
        let counts = self.summary(Summary::Histogram(histogram.clone(), HistogramPart::Counts))?;
        Ok((counts, self.summary(Summary::Histogram(histogram, HistogramPart::Edges))?))
    }
}
