//! Byte and bit shuffles, as codecs use them, on the host and on devices.

pub mod cpu;
mod cuda;

pub use cuda::{Shuffle, Span, shuffle, unshuffle};
