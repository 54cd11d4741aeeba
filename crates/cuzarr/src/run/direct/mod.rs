//! Codecs used directly: frames and chunks that a caller holds, without an array, a store or a plan.

mod codecs;
mod decoder;
mod encoder;
mod place;

pub use decoder::{Decoder, DecoderBatch, Frames};
pub use encoder::{Encoder, EncoderBatch};
