//! The ways in which elements become encoded chunks.

pub(crate) mod encode;
