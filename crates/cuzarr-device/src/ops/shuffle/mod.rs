//! Byte and bit shuffles.

pub mod cpu;
mod cuda;

pub use cuda::{Shuffle, Span, shuffle, unshuffle};
