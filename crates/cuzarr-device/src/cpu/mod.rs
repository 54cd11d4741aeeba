//! What runs on the host: strided copies, casts, byte and bit shuffles, comparison, downsampling, and the transfers made of them.
//!
//! Codecs use the plain functions here on their own byte slices.

pub mod bits;
pub mod cast;
pub(crate) mod compare;
pub(crate) mod downsample;
mod lanes;
pub mod math;
pub(crate) mod narrow;
pub mod shuffle;
mod steps;
pub(crate) mod strided;
pub(crate) mod transfer;
