//! What a codec pipeline of zarr-python's needs: chunks that are not known as an array, under keys that a caller lists.
//!
//! zarr-python hands a pipeline one request at a time: for every chunk its key, the part of the chunk, and the part of the
//! result. [`PyChunkRequest`] finds the box that these make up and states it as a selection of an array whose chunks
//! have the listed keys, so that the engine plans, reads and writes it like any other. [`PyChunkStore`] is where the bytes
//! are, [`PyChunks`] how a chunk is encoded.

mod chunks;
mod grid;
mod request;
mod store;

pub use chunks::{PyChunks, has_codec};
pub use request::{PyChunkRequest, PyStartedRead};
pub use store::PyChunkStore;
