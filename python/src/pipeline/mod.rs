//! The engine behind zarr-python's codec pipeline. It reads and writes chunks whose array is unknown, at keys that the
//! caller lists.
//!
//! zarr-python hands a pipeline one request at a time: for every chunk its key, a part of the chunk, and a part of the
//! result. [`PyChunkRequest`] finds the box that these parts make up. It states the box as a selection of an array
//! whose chunks have the listed keys. So the engine plans, reads and writes the box like any other selection.
//! [`PyChunkStore`] holds the bytes, and [`PyChunks`] describes how a chunk is encoded.

mod chunks;
mod grid;
mod request;
mod store;

pub use chunks::{PyChunks, has_codec};
pub use request::{PyChunkRequest, PyStartedRead};
pub use store::PyChunkStore;
