//! The layout of an array for a reduction: dimensions of the result, and dimensions that are reduced.

use cuzarr_device::internal::defined;
use cuzarr_device::{DType, NdBuffer};

use super::state::{State, Wide};
use crate::program::Joint;
use cuzarr::Result;

/// The C++ text of the reduction kernels. It defines the numbers that the CPU uses too.
pub(super) const KERNELS: &str = include_str!("reduce.cuh");

/// Number of threads in a block of a reduction.
pub(crate) const BLOCK_THREADS: usize = defined(KERNELS, "CUZARR_REDUCE_THREADS") as usize;
/// Number of lanes (partial results) that each GPU thread keeps.
pub(crate) const PACK: usize = defined(KERNELS, "CUZARR_REDUCE_PACK") as usize;
/// Number of lanes (partial results) in which a block reduces a segment.
pub(crate) const BLOCK_LANES: usize = BLOCK_THREADS * PACK;
/// Number of elements of a segment that each thread takes.
pub(crate) const THREAD_STEPS: usize = defined(KERNELS, "CUZARR_REDUCE_STEPS") as usize;
/// Number of elements below which one GPU thread reduces a row: a block of threads would mostly wait.
const SHORT_ROW_ELEMS: usize = 64;

/// How a reduction groups the elements of an array by result element, and divides each group into segments.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Number of elements that the reduction's result has.
    pub(crate) outputs: usize,
    /// Number of elements that make up each element of the result.
    pub(crate) reduced: usize,
    /// Number of segments into which the elements of each result element are divided.
    pub(crate) segments: usize,
    /// Whether a whole block reduces each segment. Otherwise one thread does, and neighbouring threads take
    /// neighbouring elements of the result.
    pub(crate) by_blocks: bool,
    pub(crate) kept: Walk,
    pub(crate) over: Walk,
}

/// Extents and strides in bytes of some dimensions of an array, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
}

impl Walk {
    /// Returns the extents and strides of the dimensions `axes` of an array. Dimensions are joined where possible.
    fn new(source: &NdBuffer, axes: &[usize]) -> Result<Walk> {
        let dropped: Vec<usize> = (0..source.ndim()).filter(|axis| !axes.contains(axis)).collect();
        let order: Vec<usize> = dropped.iter().chain(axes).copied().collect();
        let mut part = source.transpose(&order)?;
        for _ in &dropped {
            // Without elements there is nothing to walk through.
            if part.is_empty() {
                let shape: Vec<usize> = axes.iter().map(|&axis| source.shape()[axis]).collect();
                return Ok(Walk { shape: vec![shape.iter().product()], strides: vec![0] });
            }
            part = part.index_axis(0, 0)?;
        }
        let joint = Joint::new(part.shape(), std::slice::from_ref(&part))?;
        let strides = joint.strides.into_iter().next().unwrap_or_default();
        Ok(if joint.shape.is_empty() {
            Walk { shape: vec![1], strides: vec![0] }
        } else {
            Walk { shape: joint.shape, strides }
        })
    }

    /// Returns the distance in bytes from each element to the next, if it is the same everywhere.
    pub(crate) fn even(&self) -> Option<isize> {
        if let [stride] = self.strides[..] { Some(stride) } else { None }
    }

    fn offset(&self, number: usize) -> isize {
        if let ([_], [stride]) = (&self.shape[..], &self.strides[..]) {
            return number as isize * stride;
        }
        let (mut rest, mut offset) = (number, 0);
        for (&extent, &stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += (rest % extent) as isize * stride;
            rest /= extent;
        }
        offset
    }
}

/// Size in bytes of a reduction's partial results, for an array whose `axes` are reduced. It counts the states of all
/// segments, at the shortest segment length, and the states that they are joined to.
pub(crate) fn state_bytes(shape: &[u64], axes: &[usize]) -> u64 {
    let product = |reduced: bool| {
        let extents = shape.iter().enumerate().filter(|(axis, _)| axes.contains(axis) == reduced);
        extents.fold(1u64, |all, (_, &extent)| all.saturating_mul(extent))
    };
    let segments = product(true).div_ceil(THREAD_STEPS as u64);
    let states = if segments > 1 { segments + 1 } else { 1 };
    product(false).saturating_mul(states).saturating_mul(size_of::<State>() as u64)
}

impl View {
    /// Groups and divides the elements of an array whose `axes` are reduced. It depends only on the array's layout.
    ///
    /// # Errors
    /// `InvalidArgument` for a dimension that does not exist.
    pub(crate) fn new(source: &NdBuffer, axes: &[usize]) -> Result<View> {
        let others: Vec<usize> = (0..source.ndim()).filter(|axis| !axes.contains(axis)).collect();
        let (kept, over) = (Walk::new(source, &others)?, Walk::new(source, axes)?);
        let (outputs, reduced) = (kept.shape.iter().product(), over.shape.iter().product());
        let by_blocks = !is_across(outputs, &kept, &over) && reduced >= SHORT_ROW_ELEMS;
        let segment = if by_blocks { BLOCK_THREADS * THREAD_STEPS } else { THREAD_STEPS };
        Ok(View { outputs, reduced, segments: usize::max(1, reduced.div_ceil(segment)), by_blocks, kept, over })
    }

    /// Whether neighbouring elements of the result are closer in memory than the elements that make up one of them.
    pub(crate) fn is_across(&self) -> bool {
        is_across(self.outputs, &self.kept, &self.over)
    }

    pub(crate) fn kept_offset(&self, output: usize) -> isize {
        self.kept.offset(output)
    }

    pub(crate) fn reduced_offset(&self, at: usize) -> isize {
        self.over.offset(at)
    }
}

fn is_across(outputs: usize, kept: &Walk, over: &Walk) -> bool {
    let inner = |walk: &Walk| walk.strides.last().map_or(0, |stride| stride.unsigned_abs());
    outputs > 1 && inner(kept) < inner(over)
}

/// Returns the widest type of a kind as an element type.
pub(crate) fn wide_type(wide: Wide) -> DType {
    match wide {
        Wide::Signed => DType::INT64,
        Wide::Unsigned => DType::UINT64,
        Wide::Float => DType::FLOAT64,
        Wide::Complex => DType::COMPLEX128,
    }
}
