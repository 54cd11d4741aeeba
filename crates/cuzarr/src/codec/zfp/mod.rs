//! # `zfp`: compresses numbers with zfp
//!
//! Numbers compressed by zfp. Blocks of 4 values along each axis are transformed, and stored bit plane by bit plane.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zfp>,
//!   <https://zfp.readthedocs.io/en/latest/algorithm.html>, and P. Lindstrom, *Fixed-Rate Compressed Floating-Point Arrays*, 2014
//! - Names: v3 `zfp`. numcodecs' `zfpy`, whose frames have a header, is another codec, available in Python.
//! - Configuration: `mode`, and its parameters: `reversible`; `fixed_rate` with `rate`; `fixed_precision` with `precision`;
//!   `fixed_accuracy` with `tolerance`; `expert` with `minbits`, `maxbits`, `maxprec`, `minexp`
//! - Elements: `float32`, `float64`, integers of 8 to 64 bits; integers of 8 and 16 bits become `int32`. Chunks of at most 4 dimensions.
//! - Compatible: zarrs; zfp itself. zarrs counts the bits of `fixed_rate` as if all blocks had three dimensions.
//! - Native: cpu, by our own code: the crates of the C library need libclang or CMake to be built, and the library does not check
//!   where its input ends. Tests compare our bytes with the library's. GPUs decode `int32`, `int64`, `float32` and `float64` in blocks
//!   of a fixed size: mode `fixed_rate`, and `expert` with equal `minbits` and `maxbits`. Other chunks go via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 0.05}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float32, FillValue::Element(vec![0; 4]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod bits;
mod block;
mod cost;
mod cpu;
mod cuda;
mod extents;
mod order;
mod parameters;
mod planes;
mod transform;

use std::sync::Arc;

use cuzarr_device::DType;

use self::block::ZfpBlocks;
use self::cpu::{Zfp, stored_as};
use self::extents::Extents;
use self::parameters::{Parameters, ZfpValues};
use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::size::Size;
use crate::Result;

/// Maximum number of dimensions of a zfp block.
const MOST_NDIM: usize = 4;

/// Opens the codec `zfp` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let invalid = |message| Err(Configuration::new(request.name, &Default::default(), &[])?.invalid(message));
    let shape = &request.spec.shape;
    if shape.len() > MOST_NDIM {
        let message =
            format!("takes chunks of at most {MOST_NDIM} dimensions, got {shape:?}; 'reshape' before it joins some");
        return invalid(message);
    }
    let dtype = request.spec.dtype()?;
    let Some(stored) = stored_as(dtype) else {
        return invalid(format!("takes integers of 8 to 64 bits, float32 and float64, got {dtype}"));
    };
    let exponent_bits = match stored {
        DType::FLOAT32 => Some(8),
        DType::FLOAT64 => Some(11),
        _ => None,
    };
    let ndim = shape.len().max(1);
    let values = ZfpValues { ndim, width: 8 * stored.size_bytes() as u32, exponent_bits };
    let parameters = Parameters::read(request.name, request.configuration, values)?;
    // Extents fit into `usize`, because all elements fit into memory. But without elements, an extent may be any
    // number.
    let is_empty = request.spec.size_bytes()? == 0;
    let extents: Vec<usize> = match shape.len() {
        0 => vec![1],
        _ if is_empty => vec![0; ndim],
        _ => shape.iter().rev().map(|&extent| extent as usize).collect(),
    };
    let extents = Extents(extents);
    let bits = |of_block: u32| Some((extents.block_count()? as u64).checked_mul(u64::from(of_block))?.div_ceil(64) * 8);
    let size = match parameters.fixed_bits() {
        Some(fixed) => bits(fixed).map(Size::Exact),
        None => bits(parameters.bound_bits(values)).map(Size::AtMost),
    };
    let Some(encoded) = size else { return invalid(format!("a chunk of shape {shape:?} has too many blocks")) };
    let blocks = ZfpBlocks { parameters, ndim, order: order::of(ndim) };
    let decoder = match encoded {
        Size::Exact(bytes) => cuda::ZfpDecoder::new(&blocks, dtype, &extents, bytes),
        _ => None,
    };
    let decoder = decoder.map(Arc::new);
    Ok(Opened::serializer(Zfp { blocks, dtype, extents, encoded, decoder }))
}
