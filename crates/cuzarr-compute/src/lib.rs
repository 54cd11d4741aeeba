//! Computing with arrays of any size: they are worked through in regions, each read while the one before it is computed
//! and written, so that memory stays within the budget whatever the shape is. [`Array::stream`](cuzarr::node::Array::stream) and
//! [`walk`](cuzarr::run::walk()) read them.
//!
//! # The way of the data through an expression
//!
//! 1. **[`Expr`]** says what is computed, of what: inputs (elements in memory, arrays in stores), numbers, operations
//!    ([`Op`]). Types are promoted by NumPy 2's rules and shapes broadcast while it is built, so whatever has no meaning is
//!    refused before anything is read. It is a graph: what is shared is computed once.
//! 2. **`Program`** (`program.rs`) is the graph as a row of steps without repetitions, in types that processors compute in:
//!    2-byte floats are binary32 that is rounded after every step, which gives the same bits as NumPy's own loops.
//! 3. **`Joint`** (`layout.rs`) joins dimensions that all operands walk through evenly, so that most operands are one row.
//! 4. A program runs on blocks of inputs that are in memory: on the CPU (`cpu/`) a block of a few thousand elements goes
//!    through all steps while it is in a core's cache, one typed loop a step, on all cores; on a GPU (`cuda.rs`) one kernel
//!    is generated (`source.rs`) out of the functions of `program/arithmetic.cuh`, compiled when first needed, and kept.
//! 5. Inputs in stores are read **region by region**: `regions.rs` cuts the result along the grid of chunks into boxes that
//!    fit the memory limit. [`Expr::compute`] gathers the regions in memory, [`Expr::store`] writes them, along the grid of
//!    stored objects, into another array.
//! 6. **Quantiles** (`quantile/`) and **histograms** are found by counting (`count/`), in passes where memory does not suffice.
//! 7. **Reductions** (`reduce/`) join states of segments, of blocks, of regions, always in the same order. Inside of an
//!    expression they are computed first. **Statistics** (`statistics/`) are what one way through all elements tells.
//! 8. **Element-wise kernels** (`elementwise/`) are expressions in CUDA C++ of the user's own, on arrays in memory.
//!
//! Results equal NumPy's: exactly, but for functions that only approximate (at most 2 ulp from the true value, 3 for
//! `arcsinh` and `arccosh` of binary64 on GPUs). Elements that are NaN may have another payload.

mod checkpoint;
mod copy;
mod copy_elements;
mod copy_group;
mod count;
mod cpu;
mod cuda;
mod elementwise;
mod evaluate;
mod expr;
mod histogram;
mod layout;
mod meter;
mod op;
mod parse;
mod pass;
mod program;
mod promote;
mod pyramid;
mod quantile;
mod reduce;
mod regions;
mod run;
mod source;
mod statistics;
mod summary;
mod target;

pub use checkpoint::Checkpoint;
pub use copy::{Copy, Existing, Progress};
pub use copy_elements::copy_elements;
pub use copy_group::{Copied, copy_node};
pub use elementwise::{ElementwiseArgument, ElementwiseCall, ElementwiseKernel};
pub use expr::{Expr, Operand};
pub use histogram::Histogram;
pub use op::Op;
pub use parse::parse;
pub use pass::Pass;
pub use promote::Weak;
pub use pyramid::{Pyramid, PyramidOptions};
pub use quantile::{Quantile, QuantileMethod};
pub use reduce::{ReduceOp, Reduction};
pub use run::{ComputeOptions, Tell, Wrap};
pub use statistics::Statistics;
pub use target::{Changes, codecs_from_json, compressor_named};
