//! The Rust side of the Python package `cuzarr`.
