//! Deflate on GPUs (RFC 1951), for the codecs `gzip` and `numcodecs.zlib`: the same streams in other containers. On the
//! host both call well-kept libraries, see `gzip/cpu.rs`.

pub(crate) mod cuda;
mod split;
