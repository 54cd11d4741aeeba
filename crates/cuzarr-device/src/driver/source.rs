//! Kernel sources, and the headers that they include.

/// The text of one `.cu` file, and the headers that it may include. Keep it in a `static`.
#[derive(Debug)]
pub struct KernelSource {
    /// Name of the kernel source's `.cu` file, without the ending. Cubins have the same name.
    pub name: &'static str,
    /// The whole text of the file, in CUDA C++.
    pub text: &'static str,
    /// Headers that the text may include, beside those of `kernels/include`. Only headers that it does include,
    /// directly or through others, affect its machine code.
    pub headers: &'static [&'static [Header]],
}

/// A header that kernels include. Made by [`header!`](crate::header).
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The name in `#include`: the file's path below the crate's folder `src`.
    pub name: &'static str,
    /// The whole text of the header file, in CUDA C++.
    pub text: &'static str,
}

/// The header `cuzarr/status.cuh`: the codes with which kernels report damaged data, and their messages.
pub const STATUS_HEADER: Header =
    Header { name: "cuzarr/status.cuh", text: include_str!("../../kernels/include/cuzarr/status.cuh") };

/// Makes a [`Header`] of a file below the crate's folder `src`: `header!("codec/zstd/zstd.cuh")`.
#[macro_export]
macro_rules! header {
    ($name:literal) => {
        $crate::Header { name: $name, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $name)) }
    };
}
