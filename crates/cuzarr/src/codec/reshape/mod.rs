//! # `reshape`: gives chunks another shape
//!
//! Gives a chunk another shape. The elements keep their order.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/reshape>
//! - Names: v3 `reshape`
//! - Configuration: `shape`: for each dimension of the encoded array a size, a list of dimensions whose sizes are multiplied, or -1
//! - Compatible: zarrs, tensorstore
//! - Native: cpu. On GPUs: via host, with the codecs before it.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "reshape", "configuration": {"shape": [[0, 1], 3, -1]}});
//! # let spec = ChunkSpec::new(vec![4, 2, 6], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, Extension::new("bytes", Default::default())], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use serde_json::Value;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;
use crate::meta::MAX_NDIM;

/// The length of one dimension of the encoded array, as the configuration gives it.
enum ReshapeExtent {
    Size(u64),
    /// The product of the lengths of these dimensions of the decoded array.
    Of(Vec<usize>),
    Rest,
}

/// Opens the codec `reshape` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["shape"])?;
    let from = &request.spec.shape;
    let extents = match configuration.get("shape") {
        Some(Value::Array(extents)) if extents.len() <= MAX_NDIM => extents,
        _ => return Err(configuration.invalid(format!("'shape' is no list of at most {MAX_NDIM} sizes"))),
    };
    let extents: Option<Vec<ReshapeExtent>> = extents.iter().map(|extent| parse(extent, from.len())).collect();
    let shape = extents.and_then(|extents| shape(&extents, from)).ok_or_else(|| {
        let given = configuration.get("shape").map(Value::to_string).unwrap_or_default();
        configuration.invalid(format!("'shape' is {given}, which a chunk of shape {from:?} does not fit"))
    })?;
    let encoded = ChunkSpec { shape, ..request.spec.clone() };
    Ok(Opened::array(cpu::Reshape { encoded }))
}

fn parse(extent: &Value, ndim: usize) -> Option<ReshapeExtent> {
    match extent {
        Value::Array(dims) => {
            let dim = |dim: &Value| dim.as_u64().and_then(|dim| usize::try_from(dim).ok()).filter(|&dim| dim < ndim);
            dims.iter().map(dim).collect::<Option<Vec<usize>>>().map(ReshapeExtent::Of)
        }
        size if size.as_i64() == Some(-1) => Some(ReshapeExtent::Rest),
        size => size.as_u64().filter(|&size| size > 0).map(ReshapeExtent::Size),
    }
}

fn product(extents: &[u64]) -> Option<u64> {
    extents.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent))
}

/// The shape of the encoded array; `None` if its number of elements differs from the decoded array's, or if it tears
/// listed dimensions apart.
fn shape(extents: &[ReshapeExtent], from: &[u64]) -> Option<Vec<u64>> {
    let listed =
        || extents.iter().flat_map(|extent| if let ReshapeExtent::Of(dims) = extent { &dims[..] } else { &[] });
    let mut rising = listed().zip(listed().skip(1));
    if !rising.all(|(dim, next)| dim < next)
        || extents.iter().filter(|extent| matches!(extent, ReshapeExtent::Rest)).count() > 1
    {
        return None;
    }
    let known = |extent: &ReshapeExtent| match extent {
        ReshapeExtent::Size(size) => Some(*size),
        ReshapeExtent::Of(dims) => product(&dims.iter().map(|&dim| from[dim]).collect::<Vec<u64>>()),
        ReshapeExtent::Rest => Some(1),
    };
    let mut to: Vec<u64> = extents.iter().map(known).collect::<Option<_>>()?;
    let all = product(from)?;
    if let Some(rest) = extents.iter().position(|extent| matches!(extent, ReshapeExtent::Rest)) {
        let others = product(&to)?;
        to[rest] = all.checked_div(others).filter(|rest| rest * others == all)?;
    }
    let keeps_together = |(at, extent): (usize, &ReshapeExtent)| match extent {
        ReshapeExtent::Of(dims) if !dims.is_empty() => {
            let (first, last) = (dims[0], dims[dims.len() - 1]);
            product(&to[..at]) == product(&from[..first]) && product(&to[at + 1..]) == product(&from[last + 1..])
        }
        _ => true,
    };
    (product(&to)? == all && extents.iter().enumerate().all(keeps_together)).then_some(to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shapes_are_those_of_the_specification() {
        let found = |given: Value, from: &[u64]| {
            let extents: Option<Vec<_>> = given.as_array()?.iter().map(|extent| parse(extent, from.len())).collect();
            shape(&extents?, from)
        };
        assert_eq!(found(json!([[0, 1], [2], 3]), &[100, 50, 64, 3]), Some(vec![5000, 64, 3]));
        assert_eq!(found(json!([-1]), &[2, 3]), Some(vec![6]));
        assert_eq!(found(json!([3, -1, 2]), &[2, 6]), Some(vec![3, 2, 2]));
        assert_eq!(found(json!([[], 2, [1]]), &[2, 6]), Some(vec![1, 2, 6]));
        for given in [
            json!([[1], [0]]),
            json!([[1, 0]]),
            json!([5]),
            json!([-1, -1]),
            json!([0, 6]),
            json!([[2]]),
            json!([[0], 2, 3, [0]]),
        ] {
            assert_eq!(found(given.clone(), &[2, 3]), None, "{given}");
        }
        assert_eq!(found(json!([[1], -1]), &[2, 2]), None, "dimension 1 is not the first");
    }
}
