//! Computing with arrays of any size. Work goes through arrays in regions: the next one is read while one is computed and the one
//! before is written, so memory stays within the limit whatever the shape is.
//!
//! | to | use |
//! |---|---|
//! | compute with elements | [`Expr`], or [`parse()`] for its text; [`Op`] lists the operations |
//! | make few numbers of many | [`Reduction`], [`Quantile`], [`Histogram`], [`Statistics`] |
//! | copy, or store in other chunks, codecs or the other format | [`Copy`](struct@Copy), [`copy_node`] for groups, [`copy_elements`] into an array that is there |
//! | make an image of several scales | [`Pyramid`] |
//! | run CUDA C++ of one's own on elements in memory | [`ElementwiseKernel`] |
//! | go on with interrupted work of one's own | [`Checkpoint`] |
//!
//! [`ComputeOptions`] choose the device and the memory limit; [`Progress`] reports how far work is.
//!
//! ```
#![doc = include_str!("../examples/expression.rs")]
//! ```
//!
//! # The way of the data through an expression
//!
//! 1. **`expression/`** says what is computed, of what: inputs (elements in memory, arrays in stores), numbers, operations.
//!    Types are promoted by NumPy 2's rules and shapes broadcast while an [`Expr`] is built, so whatever has no meaning is
//!    refused before anything is read. It is a graph: what is shared is computed once.
//! 2. **`program/`** makes a row of steps without repetitions of the graph, in types that processors compute in: 2-byte floats
//!    are binary32 that is rounded after every step, which gives the same bits as NumPy's own loops. Dimensions that all
//!    operands walk through evenly are joined, so that most operands are one row.
//! 3. A program runs on blocks of inputs that are in memory. On the CPU (`program/cpu/`) a block of a few thousand elements goes
//!    through all steps while it is in a core's cache, one typed loop a step, on all cores. On a GPU (`program/cuda.rs`) one
//!    kernel is generated out of the functions of `program/arithmetic.cuh`, compiled when first needed, and kept.
//! 4. **`stream/`** reads inputs in stores region by region: `regions.rs` cuts the result along the grid of chunks into boxes
//!    that fit the memory limit. [`Expr::compute`] gathers the regions in memory. [`Expr::store`] writes them into another
//!    array, along its grid of stored objects.
//! 5. **`reduce/`** joins states of segments, of blocks, of regions, always in the same order. Inside of an expression
//!    reductions, quantiles and histograms are computed first.
//! 6. **`quantile/`** and **`histogram.rs`** count elements (`count/`), in several passes where memory does not suffice.
//!    **`statistics/`** are what one way through all elements tells.
//!
//! Results equal NumPy's: exactly, but for functions that only approximate (at most 2 ulp from the true value, 3 for
//! `arcsinh` and `arccosh` of binary64 on GPUs). Elements that are NaN may have another payload.

mod checkpoint;
mod copy;
mod count;
mod elementwise;
mod expression;
mod histogram;
mod options;
mod parse;
mod program;
mod progress;
mod pyramid;
mod quantile;
mod reduce;
mod regions;
mod statistics;
mod stream;

// Expressions and their computation.
pub use expression::{Expr, Op, Operand, Weak};
pub use histogram::Histogram;
pub use options::{ComputeOptions, Wrap};
pub use parse::parse;
pub use quantile::{Quantile, QuantileMethod};
pub use reduce::{ReduceOp, Reduction};
pub use statistics::Statistics;

// Kernels of the user's.
pub use elementwise::{ElementwiseArgument, ElementwiseCall, ElementwiseKernel};

// Copies, and what is made of whole arrays.
pub use copy::{Changes, Copied, Copy, Existing, Pass, codecs_from_json, compressor_named, copy_elements, copy_node};
pub use pyramid::{Pyramid, PyramidOptions};

// Progress, and resuming of interrupted work.
pub use checkpoint::Checkpoint;
pub use progress::{Progress, Tell};
