//! # `deflate`
//!
//! One stream of RFC 1951 with nothing around it. No metadata names it: it is there for frames that a caller holds
//! ([`crate::run::Decoder`]). Bytes behind the end of the stream are ignored.
//!
//! ```
//! # use cuzarr::run::Decoder;
//! # use cuzarr_device::Device;
//! let decoder = Decoder::new(&serde_json::json!({"name": "deflate"}), Device::Cpu)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! The kernels are those of the codecs `gzip` and `numcodecs.zlib` and of zlib inside Blosc, too: the same streams in other
//! containers. On the host all call well-kept libraries, see `gzip/cpu.rs`.
//!
//! - `deflate.cu`: a warp a frame, member after member, with all lanes at work on it.
//! - `split`: before that, large frames by many warps each. What does not come out there is left to `deflate.cu`: streams
//!   of fixed codes or stored blocks throughout come out, but without gain; frames of several members do not.
//! - `encode`: the way back, for levels 1 to 9 on GPUs from compute capability 8.0 on. Level 0 and levels above 9 are the host's, and
//!   so are chunks above 256 MiB.
//! - `members`: gzip members that say how long they are, as bgzip's do, are frames of their own, side by side, where the host
//!   has their bytes.
//!
//! Checksums and sizes in trailers are compared; gzip's checksum of a header is not looked at, as libdeflate does. Kernels
//! keep to the RFC where libdeflate takes more: a dynamic block with more than 286 and 30 codes, or without one for its end,
//! is damaged, and so are bits that a code of one word does not have.

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

/// Opens the codec from its configuration.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level"])?;
    let level = configuration.integer("level", 0..=12, 5)? as i32;
    Ok(Opened::bytes(cpu::Deflate { level }))
}
