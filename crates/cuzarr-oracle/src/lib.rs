//! What the comparison with zarrs needs of cuzarr: whole chunks through a chain's program and its tail.

#[path = "../../cuzarr/tests/codec_support/mod.rs"]
mod codec_support;

pub use codec_support::{decode, encode};
