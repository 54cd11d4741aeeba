//! Copies of arrays and hierarchies to other chunks, codecs, formats and stores, whatever their size.
//!
//! The target is written region by region, and regions are made of whole stored objects, so that none is written twice. A
//! region is as large as the budget allows where that saves reads of the source. Where chunks lie so far across each other
//! that the source would be read several times nevertheless, the copy takes two passes, by way of an array whose chunks
//! suit both sides (the idea of Pangeo's `rechunker`, <https://rechunker.readthedocs.io/en/latest/algorithm.html>).
//!
//! The target's metadata is written when all of its chunks are there: until then there is no array that could be read
//! half-written, only objects, each whole, and a `Checkpoint`, by which a copy that was killed goes on.

mod array;
mod changes;
mod elements;
mod node;
mod pass;

pub use self::array::{Copy, Existing};
pub use self::changes::{Changes, codecs_from_json, compressor_named};
pub use self::elements::copy_elements;
pub use self::node::{Copied, copy_node};
pub use self::pass::Pass;
pub(crate) use self::pass::Shrink;
