//! Carrying out plans: threads, streams, budgets.
//!
//! **Reading.** The calling thread asks the plan for batches and launches them while memory lasts. The store fills memory
//! that the batch lends it, on the engine's worker threads; the thread that has the bytes goes on with them while they are
//! warm: it decodes them into their place (host) or into a slab of pinned memory (device). When all of a batch came, the
//! calling thread closes it: on a device it puts one copy and one scatter on the streams. Workers never wait: neither for
//! memory, which the calling thread takes beforehand, nor for each other.
//!
//! **Writing** goes the same way back. Chunks are gathered, encoded and delivered by the workers; a shard is made by
//! whoever delivers its last inner chunk. Stores write atomically, so a failure leaves old values whole. Calls that touch
//! the same objects go one after the other (`schedule::range_lock`).
//!
//! **Failures** cancel what has not begun. The call returns when nothing of it is under way any more, with the first
//! failure, the others beside it, and all memory given back.

mod access;
mod context;
mod decoder;
mod engine;
mod options;
mod read;
mod report;
mod schedule;
mod write;

pub use decoder::{Decoder, DecoderBatch, Frames};
pub(crate) use engine::{memory_shape, reads_in_turn};
pub use options::Options;
pub(crate) use read::out::Arrived;

pub use report::{Report, Span, Stage, StageReport};
pub use schedule::budget::Memory;
pub use schedule::pool::Pool;
pub(crate) use schedule::range_lock::Turn;
pub(crate) use schedule::walk::no_thread;

// The engine's: for the Python package's pipeline, for `cuzarr-compute`, and for tests.
#[doc(hidden)]
pub use access::Access;
#[doc(hidden)]
pub use engine::Engine;
#[doc(hidden)]
pub use schedule::pool::in_threads;
#[doc(hidden)]
pub use schedule::walk::{relay, walk, write_behind};
