//! Large deflate streams, many warps each: `deflate_split.cu` and its launches.

pub(super) mod cuda;
