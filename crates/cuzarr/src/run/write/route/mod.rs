//! The ways in which elements become encoded chunks.

pub(crate) mod encode;
pub(crate) mod host;
pub(crate) mod variable;
