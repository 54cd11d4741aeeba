//! Executes the plans of reads and writes: with threads, CUDA streams and memory budgets.
//!
//! **Reading.** The calling thread asks the plan for batches, and launches them while there is memory. On worker
//! threads, the store fills memory that the batch lends it. The thread that gets the bytes decodes them while they are
//! in its cache: to their place (host), or to a slab of pinned memory (device). When all bytes of a batch are there,
//! the calling thread closes the batch: on a device, it enqueues one copy and one scatter. Workers never wait for each
//! other, and never for memory, which the calling thread reserves beforehand.
//!
//! **Writing** goes the same way back. Workers gather, encode and deliver chunks. The worker that delivers the last
//! inner chunk of a shard makes the shard. Stores write atomically, so a failure leaves the old value intact. Calls
//! that touch the same objects run one after the other (`schedule::range_lock`).
//!
//! **Failures** cancel work that has not begun. The call returns when all its work has ended, with the first failure
//! and the others attached to it. All its memory is free by then.

mod accelerator;
pub(crate) mod access;
mod calls;
mod chunk_cache;
mod context;
mod direct;
pub(crate) mod engine;
mod explain;
mod natives;
pub(crate) mod options;
mod pieces;
pub(crate) mod read;
mod report;
pub(crate) mod schedule;
mod write;

pub(crate) use calls::{EngineWrite, reads_in_turn};
pub use chunk_cache::CacheUse;
pub use direct::{Decoder, DecoderBatch, Encoder, EncoderBatch, Frames};
pub use options::Options;
pub(crate) use read::call::{ArrayRead, ArrayResult};
pub(crate) use read::out::Arrived;

pub use cuzarr_device::internal::Threads;
pub use report::{Report, Span, Stage, StageReport};
pub use schedule::budget::Memory;
pub(crate) use schedule::range_lock::{Objects, Turn};

// Engine types for the Python package's pipeline, for `cuzarr-compute`, and for tests.
pub(crate) use access::Access;
pub(crate) use engine::{Engine, WriterMark};
pub(crate) use schedule::walk::{Behind, beside, relay};
pub(crate) use write::coordinator::Value;
