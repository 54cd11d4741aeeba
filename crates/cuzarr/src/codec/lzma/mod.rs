//! # `numcodecs.lzma`: compresses bytes to LZMA streams
//!
//! xz streams, or those of the older `.lzma` format.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/compression/lzma.html>, <https://tukaani.org/xz/xz-file-format.txt>
//! - Names: v3 `numcodecs.lzma`; v2 `lzma`
//! - Configuration: `format` 1 (xz) or 2 (`.lzma`), `check` (-1: CRC64), `preset` 0 to 9. A list of `filters`, and `format` 3,
//!   which has no header, are left to numcodecs and so need Python.
//! - Compatible: zarr-python, numcodecs
//! - Native: cpu (liblzma). On GPUs: via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.lzma", "configuration": {"preset": 3}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use liblzma::stream::Check;
use serde_json::Value;

use super::configuration::Configuration;
use super::external;
use super::open::{Opened, Request};
use crate::{Error, ErrorKind, Result};

/// The number that Python's `lzma` module gives the format without a header.
const FORMAT_RAW: i64 = 3;

/// Opens the codec `lzma` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let members = ["format", "check", "preset", "filters"];
    let configuration = Configuration::new(request.name, request.configuration, &members)?;
    let format = configuration.integer("format", 0..=FORMAT_RAW, 1)?;
    let has_filters = configuration.get("filters").is_some_and(|filters| !filters.is_null());
    if format == FORMAT_RAW || has_filters {
        return external::open(request)?.ok_or_else(|| {
            let message = format!("codec '{}': got filters, or the format {FORMAT_RAW}", request.name);
            Error::new(ErrorKind::UnsupportedFeature, message)
                .with_hint("use Python with numcodecs, or the format 1 with a preset")
        });
    }
    let check = match configuration.integer("check", -1..=10, -1)? {
        0 => Check::None,
        1 => Check::Crc32,
        -1 | 4 => Check::Crc64,
        10 => Check::Sha256,
        other => return Err(configuration.invalid(format!("'check' is {other}, expected -1, 0, 1, 4 or 10"))),
    };
    let preset = match configuration.get("preset") {
        None | Some(Value::Null) => 6,
        // The highest bit asks for the slower search.
        Some(_) => configuration.integer("preset", 0..=i64::from(u32::MAX), 6)? as u32,
    };
    if preset & 0x7fff_ffff > 9 {
        return Err(configuration.invalid(format!("'preset' is {preset}, expected 0 to 9")));
    }
    let format = if format == 2 { cpu::Format::Alone } else { cpu::Format::Xz };
    Ok(Opened::bytes(cpu::Lzma { format, check, preset }))
}
