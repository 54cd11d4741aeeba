//! Expressions that are joined one after the other along a dimension.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{NdBuffer, Order};

use super::expr::{Expr, Flat, Joined, Kind, Node, Operand, Summary, common_dtype};
use super::pick::{Along, Pick};
use crate::options::ComputeOptions;
use crate::regions::memory_shape;

impl Expr {
    /// Joins expressions to one, one after the other along a dimension. Their types are promoted to a common type, as
    /// in NumPy.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr::plan::Selection;
    /// use cuzarr_compute::{ComputeOptions, Expr};
    /// let array = Array::builder([2], DataType::Int32).chunks([2]).create("memory://joined")?;
    /// array.write(&Selection::all(&[2]), &[3i32, 4])?;
    /// let twice = Expr::concatenated(&[Expr::array(array.clone())?, Expr::array(array)?], 0)?;
    /// assert_eq!(twice.compute(&ComputeOptions::default())?.host_slice::<i32>()?, [3, 4, 3, 4]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ShapeMismatch` when other extents differ; `InvalidArgument` without expressions, or for a dimension that does
    /// not exist; `DTypeMismatch`.
    pub fn concatenated(parts: &[Expr], axis: usize) -> Result<Expr> {
        let Some(first) = parts.first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "there is nothing to join"));
        };
        if axis >= first.ndim() {
            let message = format!("there is no dimension {axis} of {}", first.ndim());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let others = |shape: &[u64]| -> Vec<u64> {
            shape.iter().enumerate().filter(|(place, _)| *place != axis).map(|(_, &extent)| extent).collect()
        };
        if parts.iter().any(|part| part.ndim() != first.ndim() || others(part.shape()) != others(first.shape())) {
            let shapes: Vec<String> = parts.iter().map(|part| format!("{:?}", part.shape())).collect();
            let message = format!("shapes {} differ beside dimension {axis}", shapes.join(", "));
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        }
        let operands: Vec<Operand> = parts.iter().cloned().map(Operand::from).collect();
        let dtype = common_dtype(&operands)?;
        let parts = parts.iter().map(|part| part.astype(dtype)).collect::<Result<Vec<_>>>()?;
        Ok(Joined { axis, parts }.into_expr())
    }
}

impl Joined {
    fn into_expr(self) -> Expr {
        let (shape, dtype) = (self.shape(), self.parts[0].dtype());
        Expr::new(shape, dtype, Kind::Joined(self))
    }

    /// Returns the shape of the joined expression.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let mut shape = self.parts[0].shape().to_vec();
        shape[self.axis] = self.starts().last().map_or(0, |last| last.1);
        shape
    }

    /// Returns for each part the indices at which it starts and ends along the joined dimension.
    fn starts(&self) -> Vec<(u64, u64)> {
        let mut end = 0u64;
        let place = |part: &Expr| {
            let start = end;
            end = end.saturating_add(part.shape()[self.axis]);
            (start, end)
        };
        self.parts.iter().map(place).collect()
    }

    /// Makes the expression for those joined elements that `pick` chooses. The pick must fit the shape of the joined
    /// expression.
    ///
    /// # Errors
    /// Those of [`Expr::picked`].
    pub(crate) fn picked(&self, pick: &Pick) -> Result<Expr> {
        let starts = self.starts();
        let part_of = |index: u64| starts.partition_point(|&(_, end)| end <= index);
        let along = pick.along(self.axis);
        let Some(axis) = pick.dim_of(self.axis) else {
            let index = along.index(0);
            let part = part_of(index);
            return self.parts[part].picked(&pick.with(self.axis, Along::Index(index - starts[part].0)));
        };
        let count = along.count().unwrap_or(1);
        if count == 0 {
            return self.parts[0].picked(&pick.with(self.axis, Along::all(0)));
        }
        // Runs of consecutive elements that lie in one part.
        let mut parts = Vec::new();
        let mut at = 0;
        while at < count {
            let part = part_of(along.index(at));
            let (start, end) = starts[part];
            let run = along.run(at, &(start..end));
            let own = along.then(&Along::Range { start: at, count: run, step: 1 }).moved(start);
            parts.push(self.parts[part].picked(&pick.with(self.axis, own))?);
            at += run;
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Joined { axis, parts }.into_expr() })
    }

    /// Replaces summaries (such as sums) in the joined parts by the results, so that no region computes a summary
    /// again.
    ///
    /// # Errors
    /// What the function reports.
    pub(crate) fn bound(&self, reduced: &Reduced<'_>) -> Result<Joined> {
        let mut known = HashMap::new();
        let parts = self.parts.iter().map(|part| with_results(part, reduced, &mut known)).collect::<Result<_>>()?;
        Ok(Joined { axis: self.axis, parts })
    }

    /// Computes the elements of a region from the parts that it overlaps.
    ///
    /// # Errors
    /// Those of [`Expr::compute_region`].
    pub(crate) fn read(&self, region: &Region, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let shape = memory_shape(&region.extent)?;
        let result = NdBuffer::empty(options.device, self.parts[0].dtype(), &shape, Order::C)?;
        let (first, last) = (region.start[self.axis], region.start[self.axis] + region.extent[self.axis]);
        for (part, (start, end)) in self.parts.iter().zip(self.starts()) {
            let (from, to) = (start.max(first), end.min(last));
            if from >= to {
                continue;
            }
            let (mut begin, mut extent, mut place) =
                (region.start.clone(), region.extent.clone(), vec![0; shape.len()]);
            (begin[self.axis], extent[self.axis]) = (from - start, to - from);
            let elements = part.compute_checked(&begin, &extent, options)?;
            place[self.axis] = memory_shape(&[from - first])?[0];
            result.region(&place, elements.shape(), &vec![1; shape.len()])?.copy_from(&elements)?;
        }
        Ok(result)
    }
}

/// A function that returns the result of a summary, such as a sum; `None` if the result is not computed yet.
type Reduced<'a> = dyn Fn(Expr, Arc<dyn Summary>) -> Result<Option<NdBuffer>> + 'a;

fn with_results(expr: &Expr, reduced: &Reduced<'_>, known: &mut HashMap<*const Node, Expr>) -> Result<Expr> {
    let key = Arc::as_ptr(&expr.0);
    if let Some(known) = known.get(&key) {
        return Ok(known.clone());
    }
    let mut each =
        |parts: &[Expr]| parts.iter().map(|part| with_results(part, reduced, known)).collect::<Result<Vec<_>>>();
    let kind = match &expr.0.kind {
        Kind::Buffer(_) | Kind::Array(_) | Kind::Constant(_) => return Ok(expr.clone()),
        Kind::Apply(op, operands) => Kind::Apply(*op, each(operands)?),
        Kind::Cast(inner) => Kind::Cast(each(std::slice::from_ref(inner))?.remove(0)),
        Kind::Joined(joined) => Kind::Joined(Joined { axis: joined.axis, parts: each(&joined.parts)? }),
        Kind::Flat(flat) => Kind::Flat(Flat { of: each(std::slice::from_ref(&flat.of))?.remove(0), ..*flat }),
        Kind::Running(running) => Kind::Running(running.of(each(std::slice::from_ref(&running.of))?.remove(0))),
        Kind::Summary(summary, of) => match reduced(of.clone(), Arc::clone(summary))? {
            Some(buffer) => Kind::Buffer(buffer),
            None => return Ok(expr.clone()),
        },
    };
    let made = Expr::new(expr.shape().to_vec(), expr.dtype(), kind);
    known.insert(key, made.clone());
    Ok(made)
}
