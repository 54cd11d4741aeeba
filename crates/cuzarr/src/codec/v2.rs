//! Builds the codec chain of a v2 array.
//!
//! numcodecs passes NumPy arrays from filter to filter, and each filter views its input as the data type in its own
//! configuration. So the builder tracks the array, and also the byte order in which its elements would be stored. If a
//! filter's view differs from its input, a step that reinterprets bytes is inserted. `order: F` becomes a transposition
//! before the first filter. The implicit `bytes` codec stands before the first filter or compressor of bytes.

use serde_json::{Map, Value};

use super::builder::Builder;
use super::chain::Chain;
use super::configuration::NumpyDType;
use super::open::Opened;
use super::registry::Found;
use super::reinterpret::Reinterpret;
use super::{ChunkSpec, bytes, transpose};
use crate::meta::{CodecsMetadata, DataType, Endian, Extension, Order};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Filters that encode arrays, each with the configuration members that name the types of its input and output.
const ARRAY_FILTERS: &[(&str, &str, &str)] = &[
    ("delta", "dtype", "astype"),
    ("fixedscaleoffset", "dtype", "astype"),
    ("quantize", "dtype", "astype"),
    ("astype", "decode_dtype", "encode_dtype"),
];

/// Builds the codec chain of a v2 array.
pub(super) fn chain(codecs: &CodecsMetadata, spec: ChunkSpec) -> Result<Chain> {
    let CodecsMetadata::V2 { filters, compressor, order, endian } = codecs else {
        return Err(Error::new(ErrorKind::InvalidArgument, "not the codecs of a v2 array"));
    };
    let ndim = spec.shape.len();
    let mut builder = Builder::new(2, spec)?;
    let mut endian = *endian;
    if *order == Order::F && ndim > 1 {
        if builder.current.data_type.size_bytes().is_none() {
            builder.variable_order_f = true;
        } else {
            let axes = (0..ndim).rev().collect();
            let opened = transpose::open_axes(&builder.current, axes);
            builder.push(opened)?;
        }
    }
    for (index, filter) in filters.iter().enumerate() {
        add(&mut builder, filter, &mut endian).at(|| format!("filters[{index}]"))?;
    }
    if let Some(compressor) = compressor {
        add(&mut builder, compressor, &mut endian).at(|| "compressor")?;
    }
    serialize(&mut builder, endian)?;
    builder.finish()
}

/// Adds the `bytes` codec that v2 metadata does not name, unless there is an array→bytes codec.
fn serialize(builder: &mut Builder, endian: Endian) -> Result<()> {
    if builder.is_serialized() {
        return Ok(());
    }
    if builder.current.data_type.size_bytes().is_none() {
        let message = format!("no filter encodes elements of {:?}", builder.current.data_type);
        return Err(Error::new(ErrorKind::MetadataInvalid, message).with_hint("add the filter vlen-utf8 or vlen-bytes"));
    }
    let opened = bytes::open_v2(&builder.current, endian)?;
    builder.push(opened)
}

/// Adds one filter or the compressor of a v2 array to the chain. `endian` is the byte order before that codec. The call
/// changes it to the byte order after the codec.
fn add(builder: &mut Builder, codec: &Map<String, Value>, endian: &mut Endian) -> Result<()> {
    let Some(Value::String(id)) = codec.get("id") else {
        return Err(Error::new(ErrorKind::MetadataInvalid, "the codec has no 'id'"));
    };
    let mut configuration = codec.clone();
    configuration.shift_remove("id");
    let extension = Extension::new(id.clone(), configuration);
    let array = ARRAY_FILTERS.iter().find(|(name, ..)| name == id);
    if builder.is_serialized() && (array.is_some() || matches!(id.as_str(), "bitround" | "packbits")) {
        let message = format!("codec '{id}' takes arrays, and follows a codec that gives bytes");
        return Err(Error::new(ErrorKind::UnsupportedFeature, message));
    }
    let mut after = *endian;
    if let Some((_, input, output)) = array {
        let dtype = |key| NumpyDType::member(id, &extension.configuration, key);
        let view = dtype(input)?;
        if let Some(view) = view {
            reinterpret(builder, *endian, view)?;
        }
        let output = dtype(output)?.or(view);
        after = output.map_or(after, |output| if output.big_endian { Endian::Big } else { Endian::Little });
    }
    if id == "packbits" && *builder.current.data_type != DataType::Bool {
        let view = NumpyDType { dtype: cuzarr_device::DType::BOOL, big_endian: false };
        reinterpret(builder, *endian, view)?;
    }
    let opened = match builder.open(&extension)? {
        opened @ Found::Codec(Opened::Bytes(_)) if !builder.is_serialized() => {
            serialize(builder, *endian)?;
            // Opens the codec again, now that the number of bytes is known.
            drop(opened);
            builder.open(&extension)?
        }
        opened => opened,
    };
    *endian = after;
    builder.push(opened)
}

/// Adds a codec, if needed, that views the filters' output so far as elements of the type `view`, which the next filter
/// expects.
fn reinterpret(builder: &mut Builder, endian: Endian, view: NumpyDType) -> Result<()> {
    let current = &builder.current;
    let units = current.data_type.stored_swap_units(endian);
    let same = current.data_type.device_dtype() == Some(view.dtype) && units.is_empty() != view.big_endian;
    // Dates are integers to every filter, and their type is worth keeping.
    if same || (view.dtype.size_bytes() == 1 && current.dtype()?.size_bytes() == 1 && current.dtype()? == view.dtype) {
        return Ok(());
    }
    let size = current.size_bytes()?;
    let element = view.dtype.size_bytes();
    if element == 0 || !size.is_multiple_of(element) {
        let message = format!("a chunk of {size} bytes cannot be viewed as elements of {element}");
        return Err(Error::new(ErrorKind::MetadataInvalid, message));
    }
    // numcodecs flattens the array. If elements keep their size, the shape may stay, because only its product matters.
    let shape =
        if element == current.dtype()?.size_bytes() { current.shape.clone() } else { vec![(size / element) as u64] };
    let data_type = DataType::try_from(view.dtype)?;
    let fill_value = crate::meta::FillValue::default_of(&data_type);
    let before = bytes::swapper(current, endian)?;
    let encoded = ChunkSpec::new(shape, data_type, fill_value);
    let after = if view.big_endian { view.dtype.swap_unit_bytes() } else { 1 };
    builder.push(Opened::array(Reinterpret { before, after, encoded }))
}
