//! Texts of kernels, and of the headers that they include.

/// One `.cu` file. Keep it in a `static`.
#[derive(Debug)]
pub struct KernelSource {
    /// File name without `.cu`; also the name of its cubins.
    pub name: &'static str,
    /// The text of the file.
    pub text: &'static str,
    /// Headers that the text may include beside those of `kernels/include`. Only those that it does include, itself or by
    /// another header, decide about its machine code.
    pub headers: &'static [&'static [Header]],
}

/// A header that kernels include. [`header!`](crate::header) makes one.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The name that kernels include it by: its path from the crate's folder `src`.
    pub name: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

/// The header `cuzarr/status.cuh`: what kernels report of damaged units, and in what words.
pub const STATUS_HEADER: Header =
    Header { name: "cuzarr/status.cuh", text: include_str!("../../kernels/include/cuzarr/status.cuh") };

/// The [`Header`] in this file of the crate's folder `src`: `header!("codec/zstd/zstd.cuh")`.
#[macro_export]
macro_rules! header {
    ($name:literal) => {
        $crate::Header { name: $name, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $name)) }
    };
}
