//! Computing with arrays of any size. Arrays are processed region by region: one region is computed while the next one
//! is read and the previous one is written. So memory stays within the limit, whatever the shape.
//!
//! | to | use |
//! |---|---|
//! | compute with elements | [`Expr`], or [`parse()`] for its text; [`Op`] lists the operations |
//! | compute few numbers from many | [`Reduction`], [`Quantile`], [`Histogram`], [`Statistics`] |
//! | copy, or store in other chunks, codecs or the other format | [`Copy`](struct@Copy), [`copy_node`], [`copy_elements`] (into an array) |
//! | make an image of several scales | [`Pyramid`] |
//! | run your own CUDA C++ on elements in memory | [`ElementwiseKernel`] |
//! | resume your own interrupted work | [`Checkpoint`] |
//!
//! [`ComputeOptions`] choose the device and the memory limit. [`Progress`] reports how much of the work is done.
//!
//! ```
#![doc = include_str!("../examples/expression.rs")]
//! ```
//!
//! # How an expression is computed
//!
//! 1. **`expression/`** describes the computation: inputs (elements in memory, arrays in stores), numbers and operations. An
//!    [`Expr`] promotes types by NumPy 2's rules and broadcasts shapes while it is built, so invalid expressions are refused
//!    before anything is read. It is a graph: shared parts are computed once.
//! 2. **`program/`** turns the graph into a series of distinct steps, in types that processors compute in. 2-byte
//!    floats are computed in binary32 and rounded after every step, which gives the same bits as NumPy's own loops.
//!    Neighbouring dimensions along which every operand has even steps are joined, so that most operands become one
//!    row.
//! 3. A program runs on blocks of inputs in memory. On the CPU (`program/cpu/`) a block of a few thousand elements goes through
//!    all steps while it is in a core's cache, one typed loop per step, on all cores. On a GPU (`program/cuda.rs`) one kernel
//!    is generated from the functions of `program/arithmetic.cuh`, compiled when first needed, and kept.
//! 4. **`stream/`** reads inputs in stores region by region: `regions.rs` cuts the result along the grid of chunks into boxes
//!    that fit the memory limit. [`Expr::compute`] gathers the regions in memory. [`Expr::store`] writes them into another
//!    array, along its grid of stored objects.
//! 5. **`reduce/`** joins the states of segments, blocks and regions, always in the same order. Reductions, quantiles
//!    and histograms inside an expression are computed first.
//! 6. **`quantile/`** and **`histogram.rs`** count elements (`count/`), in several passes when there is too little memory.
//!    **`statistics/`** needs one pass through all elements.
//!
//! Results equal NumPy's exactly, except for approximated functions, such as `exp`. These are at most 2 ulp from the
//! true value, or 3 for `arcsinh` and `arccosh` of binary64 on GPUs. NaN elements may have another payload.

mod checkpoint;
mod copy;
mod count;
mod decoded;
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
mod spatial;
mod statistics;
mod stream;
mod unfinished;

// Expressions and their computation.
pub use expression::{Along, Expr, Op, Operand, Parts, Pick, PickedDim, Weak};
pub use histogram::Histogram;
pub use options::{ComputeOptions, Wrap};
pub use parse::parse;
pub use quantile::{Quantile, QuantileMethod};
pub use reduce::{ReduceOp, Reduction};
pub use statistics::Statistics;
pub use stream::{ComputeExplanation, ComputeStage, Creation};

// Kernels that users write.
pub use elementwise::{ElementwiseArgument, ElementwiseCall, ElementwiseKernel};

// Copies and pyramids of whole arrays.
pub use copy::{
    Carrier, Changes, Copied, Copy, Existing, Here, NamedExtents, Pass, Rest, Shrink, codecs_from_json,
    compressor_named, copy_elements, copy_node, copy_region,
};
pub use pyramid::{Labels, OmeVersion, Pyramid, PyramidOptions};

// Progress, and resuming of interrupted work.
pub use checkpoint::Checkpoint;
pub use progress::{Progress, Tell};
