//! # `numcodecs.pcodec`: compresses numbers to pcodec files
//!
//! Numbers in pcodec's standalone format.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/compression/pcodec.html>,
//!   <https://github.com/pcodec/pcodec/blob/main/docs/format.md>
//! - Names: v3 `numcodecs.pcodec`, `pcodec`; v2 `pcodec`
//! - Configuration: `level` 0 to 12, `mode_spec` (`auto`, `classic`), `delta_spec` (`auto`, `no_op`, `try_consecutive`,
//!   `try_lookback`) with `delta_encoding_order`, `equal_pages_up_to`.
//! - Elements: integers of 16 to 64 bits, `float16`, `float32`, `float64`
//! - Compatible: zarr-python, numcodecs
//! - Native: cpu (pco). On GPUs: via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.pcodec", "configuration": {"level": 8}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float32, FillValue::Element(vec![0; 4]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use pco::{ChunkConfig, DeltaSpec, ModeSpec, PagingSpec};
use serde_json::Value;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `pcodec` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let members = ["level", "mode_spec", "delta_spec", "paging_spec", "delta_encoding_order", "equal_pages_up_to"];
    let configuration = Configuration::new(request.name, request.configuration, &members)?;
    let level = configuration.integer("level", 0..=12, 8)? as usize;
    let mode = configuration.choice("mode_spec", &[("auto", ModeKind::Auto), ("classic", ModeKind::Classic)])?;
    configuration.choice("paging_spec", &[("equal_pages_up_to", ())])?;
    let order = match configuration.get("delta_encoding_order") {
        None | Some(Value::Null) => None,
        Some(_) => Some(configuration.integer("delta_encoding_order", 0..=7, 0)? as usize),
    };
    let deltas = [
        ("auto", DeltaKind::Auto),
        ("no_op", DeltaKind::NoOp),
        ("none", DeltaKind::NoOp),
        ("try_consecutive", DeltaKind::Consecutive),
        ("try_lookback", DeltaKind::Lookback),
    ];
    let delta = match (configuration.choice("delta_spec", &deltas)?.unwrap_or(DeltaKind::Auto), order) {
        (DeltaKind::Auto, None) => DeltaSpec::Auto,
        (DeltaKind::Auto | DeltaKind::Consecutive, Some(order)) => DeltaSpec::TryConsecutive(order),
        (DeltaKind::NoOp, None) => DeltaSpec::NoOp,
        (DeltaKind::Lookback, None) => DeltaSpec::TryLookback,
        (DeltaKind::Consecutive, None) => {
            return Err(configuration.invalid("'delta_encoding_order' is missing, which 'try_consecutive' needs"));
        }
        (_, Some(_)) => {
            return Err(configuration.invalid("'delta_encoding_order' is only for the delta_spec 'try_consecutive'"));
        }
    };
    let page = configuration.integer("equal_pages_up_to", 1..=i64::from(u32::MAX), 1 << 18)? as usize;
    let dtype = request.spec.dtype()?;
    if !cpu::TYPES.contains(&dtype) {
        let types = "integers of 16 to 64 bits and floats of 16 to 64 bits";
        return Err(configuration.invalid(format!("takes {types}, got {dtype}")));
    }
    let config = ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(match mode {
            Some(ModeKind::Classic) => ModeSpec::Classic,
            _ => ModeSpec::Auto,
        })
        .with_delta_spec(delta)
        .with_paging_spec(PagingSpec::EqualPagesUpTo(page));
    Ok(Opened::serializer(cpu::Pcodec { config, dtype, size_bytes: request.spec.size_bytes()? }))
}

#[derive(Clone, Copy)]
enum ModeKind {
    Auto,
    Classic,
}

#[derive(Clone, Copy)]
enum DeltaKind {
    Auto,
    NoOp,
    Consecutive,
    Lookback,
}
