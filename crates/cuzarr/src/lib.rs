//! Moves Zarr arrays straight into and out of GPU memory. Compressed bytes cross the bus, the GPU decodes them, and the
//! array is where the computation needs it. Without a GPU, the same calls work in host memory.
//!
//! # A first program
//!
//! ```
#![doc = include_str!("../examples/first_array.rs")]
//! ```
//!
//! [`Array::builder`] makes an array, [`Group::builder`] a group, and [`open`] opens either. [`Array::read`] and
//! [`Array::write`] move elements of host memory as Rust values; [`Selection`] says which. Results are
//! [`Values`](node::Values), which are used like slices.
//!
//! # Where things are
//!
//! | to | use |
//! |---|---|
//! | create, open, read and write arrays | [`Array`], [`ArrayOptions`] |
//! | work with a hierarchy | [`Group`], [`Node`], [`open_group`], [`create_group`] |
//! | say which elements are meant | [`Selection`], [`plan::SliceArg`], [`plan::Regions`] |
//! | keep bytes in a directory, in memory, in a ZIP file, or elsewhere | [`store`], [`store::Registry`] for URLs |
//! | look into metadata | [`meta`] |
//! | add a codec of your own | [`codec::set_external`] |
//! | see what a call would do, or did | [`Array::explain`], [`Array::last_report`], [`display`] |
//! | set limits and devices for a whole program | [`config::Config`] |
//! | reach memory, streams and kernels of a GPU | [`device`] |
//!
//! The crate `cuzarr-compute` computes with arrays of any size: expressions, reductions, copies, pyramids.
//!
//! # On a GPU
//!
//! [`Array::read_buffer`] reads to the device in [`ArrayOptions::device`], and returns an [`NdBuffer`]: typed, strided
//! memory of that device. [`Array::write_buffer`] takes such a buffer from any device. Where a chunk is decoded depends
//! on its codecs and sizes. [`Array::explain`] says where and why, and [`ArrayOptions::strict`] turns an unwanted
//! fall-back to the host into an error.
//!
//! With [`ArrayOptions::accelerator`], a GPU decodes and encodes for arrays in host memory, too.
//!
//! ```
#![doc = include_str!("../examples/sharded_on_gpu.rs")]
//! ```
//!
//! # Arrays larger than memory
//!
//! [`ArrayOptions::memory_limit_bytes`] limits the memory that calls use beside their results. [`Array::stream`] reads
//! one region after another, so each result is small, too. [`Array::write_stream`] writes in the same way.
//!
//! ```
#![doc = include_str!("../examples/larger_than_memory.rs")]
//! ```
//!
//! # Errors
//!
//! Every call returns one [`Error`]. [`Error::kind`] is for programs, [`Error::trail`] says where it happened (array,
//! chunk, codec), and [`Error::hint`] says what to do. If a write fails or is interrupted, the old object stays under
//! its key.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `ndarray` | writes take arrays and views of the crate `ndarray`, and [`Values`](node::Values) become arrays |
//! | `half` | elements as `half::f16` and `half::bf16` |
//! | `num-complex` | elements as `num_complex::Complex` |
//!
//! CUDA needs no feature: cuzarr looks for the driver when a GPU is first used.

#[macro_use]
mod setters;

mod cancellation;
pub mod codec;
pub mod config;
pub mod display;
mod error;
#[doc(hidden)]
pub mod internal;
pub mod meta;
pub mod node;
mod open;
pub mod plan;
pub mod prelude;
pub mod run;
pub mod store;

pub use cancellation::CancellationToken;
/// Memory, streams and kernels: the crate `cuzarr-device`.
pub use cuzarr_device as device;
pub use cuzarr_device::{Buffer, DType, Device, HostElement, Layout, NdBuffer, Order};
pub use error::{Error, ErrorKind, Result, ResultExt};
pub use node::{Array, ArrayOptions, ArraySelection, ArrayWrite, Group, Node, read_all, write_all};
pub use open::{create_group, open, open_array, open_group};
pub use plan::Selection;
