//! Deflate on GPUs (RFC 1951), for the codecs `gzip` and `numcodecs.zlib` and for zlib inside Blosc: the same streams in
//! other containers. On the host both call well-kept libraries, see `gzip/cpu.rs`.
//!
//! - `deflate.cu`: a warp a frame, member after member, with all lanes at work on it.
//! - `split`: before that, large frames by many warps each. What does not come out there is left to `deflate.cu`: streams
//!   of fixed codes or stored blocks throughout come out, but without gain; frames of several members do not.
//!
//! Checksums and sizes in trailers are compared; gzip's checksum of a header is not looked at, as libdeflate does. Kernels
//! keep to the RFC where libdeflate takes more: a dynamic block with more than 286 and 30 codes, or without one for its end,
//! is damaged, and so are bits that a code of one word does not have.

pub(crate) mod cuda;
mod split;
