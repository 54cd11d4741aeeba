//! Copies of arrays and hierarchies of any size to other chunks, codecs, formats and stores.
//!
//! The target is written region by region. Regions consist of whole stored objects, so no object is written twice. A
//! region is as large as the memory limit allows, if that saves reads of the source. If the chunks of source and target
//! differ so much that the source would still be read several times, the copy takes two passes. The array between the
//! passes has chunks that suit both sides (the idea of Pangeo's `rechunker`,
//! <https://rechunker.readthedocs.io/en/latest/algorithm.html>).
//!
//! The target's metadata is written once all of its chunks are stored, so no reader can see a half-written array. Until
//! then there are only whole objects, and a `Checkpoint` from which an interrupted copy can continue.

mod array;
mod carrier;
mod changes;
mod elements;
mod node;
mod pass;

pub(crate) use self::array::{Begin, look};
pub use self::array::{Copy, Existing};
pub use self::carrier::{Carrier, Here, Rest};
pub use self::changes::{Changes, NamedExtents, codecs_from_json, compressor_named};
pub use self::elements::copy_elements;
pub use self::node::{Copied, copy_node};
pub use self::pass::{Pass, Shrink, copy_region};
