//! Decodes each large deflate stream with many warps: `deflate_split.cu` and its launches.

pub(super) mod cuda;
