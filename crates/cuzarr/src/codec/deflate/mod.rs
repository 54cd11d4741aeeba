//! # `deflate`: compresses bytes to a deflate stream without a container
//!
//! One stream of RFC 1951 with nothing around it. No metadata names this codec; it is for frames that a caller holds
//! ([`crate::run::Decoder`]). Bytes after the end of the stream are ignored.
//!
//! ```
//! # use cuzarr::run::Decoder;
//! # use cuzarr_device::Device;
//! let decoder = Decoder::new(&serde_json::json!({"name": "deflate"}), Device::Cpu)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! The codecs `gzip` and `numcodecs.zlib`, and zlib inside Blosc, use the same kernels: the same streams in other
//! containers. On the host, all of them call well-kept libraries, see `gzip/cpu.rs`.
//!
//! - `deflate.cu`: one warp decodes a frame, member after member, with all its lanes.
//! - `split`: many warps decode each large frame before that. Frames of several members, and others that fail here, are left
//!   to `deflate.cu`. Streams of only fixed codes or stored blocks are decoded here, but no faster.
//! - `encode`: encodes levels 1 to 9 on GPUs from compute capability 8.0 on. Level 0, levels above 9 and chunks above 256 MiB
//!   are left to the host.
//! - `members`: finds the members of gzip frames, such as bgzip's, if the host has their bytes. They are decoded side by side,
//!   like frames.
//!
//! Checksums and sizes in trailers are compared. Like libdeflate, kernels do not check gzip's checksum of a header.
//! They follow the RFC where libdeflate accepts more. So they refuse dynamic blocks with more than 286 codes of
//! literals and lengths, with more than 30 of distances, or without a code for their end. They also refuse bits that
//! are not in a code of a single word.

mod container;
mod cost;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod encode;
pub(crate) mod libdeflate;
mod members;
mod split;

pub(crate) use container::DAMAGE;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `deflate` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level"])?;
    let level = configuration.integer("level", 0..=12, 5)? as i32;
    Ok(Opened::bytes(cpu::Deflate { level }))
}
