//! # `conditional`: lets each chunk skip some bytes→bytes codecs
//!
//! Bytes→bytes codecs that a chunk may skip. Bits at the beginning of a chunk say which ones were applied.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/conditional>
//! - Names: v3 `conditional`
//! - Configuration: `codecs`, bytes→bytes codecs; `header_bits`, a multiple of 8 (the default has a bit for every codec)
//! - Writing: a compressor is applied where it makes the chunk smaller. Codecs whose output has a fixed size, such as
//!   shuffles and checksums, are always applied. This rule is not part of the metadata, because readers do not need it.
//! - Compatible: no other implementation is known
//! - Native: cpu. On GPUs: via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "conditional", "configuration": {"codecs": [
//!     {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
//!     {"name": "zstd", "configuration": {"level": 5, "checksum": false}},
//! ]}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use super::configuration::Configuration;
use super::open::{OpenCodec, Opened, Request};
use super::sharding_indexed::extensions;
use crate::{Result, ResultExt};

/// Maximum number of bits in a chunk's header: one for each codec that a chunk may skip, more than any chain has.
const MOST_HEADER_BITS: i64 = 1 << 13;

/// Opens the codec `conditional` from its configuration in the metadata. `open_codec` opens the codecs inside it.
pub(crate) fn open(request: &Request<'_>, open_codec: OpenCodec<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["codecs", "header_bits"])?;
    let Some(list) = configuration.get("codecs") else { return Err(configuration.invalid("'codecs' is missing")) };
    let (mut codecs, mut decoded) = (Vec::new(), request.decoded);
    for (index, codec) in extensions(&configuration, "codecs", list)?.iter().enumerate() {
        let inner = Request { name: &codec.name, configuration: &codec.configuration, decoded, ..*request };
        let opened = open_codec(&inner).at(|| format!("codec 'conditional': codecs[{index}]"))?;
        let Opened::Bytes(opened) = opened else {
            return Err(configuration.invalid(format!("codecs[{index}]: '{}' is no bytes→bytes codec", codec.name)));
        };
        decoded = opened.encoded_size(decoded).within(request.decoded);
        codecs.push(opened);
    }
    let least = codecs.len().next_multiple_of(8) as i64;
    let bits = configuration.integer("header_bits", least..=MOST_HEADER_BITS, least)?;
    if bits % 8 != 0 || least > MOST_HEADER_BITS {
        return Err(configuration.invalid(format!("'header_bits' is {bits}, expected a multiple of 8")));
    }
    Ok(Opened::bytes(cpu::Conditional { codecs, header_bytes: bits as usize / 8 }))
}
