//! Names to codecs: Zarr v3 names, `numcodecs.*` names and v2 ids, one folder each.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::contract::{ArrayToArray, ArrayToBytes, BytesToBytes, Size, VariableToBytes};
use super::device::DeviceDecoder;
use super::{ChunkSpec, Sharding, external};
use crate::meta::{DataType, FillValue};
use crate::{Error, ErrorKind, Result};

/// What a codec is opened with.
pub(crate) struct Request<'a> {
    /// As metadata spells it.
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Map<String, Value>,
    pub(crate) zarr_format: u8,
    /// The array before this codec; behind the array→bytes codec the array that was before that one.
    pub(crate) spec: &'a ChunkSpec,
    /// How many bytes reach this codec.
    pub(crate) decoded: Size,
    /// Bytes of an element of the array, where they are equal.
    pub(crate) element_bytes: Option<usize>,
}

/// An opened codec.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    Array(Arc<dyn ArrayToArray>),
    Serializer(Arc<dyn ArrayToBytes>),
    Sharding(Arc<Sharding>),
    Variable(Arc<dyn VariableToBytes>),
    Bytes(Arc<dyn BytesToBytes>),
}

impl Opened {
    pub(crate) fn bytes(codec: impl BytesToBytes + 'static) -> Opened {
        Opened::Bytes(Arc::new(codec))
    }

    pub(crate) fn array(codec: impl ArrayToArray + 'static) -> Opened {
        Opened::Array(Arc::new(codec))
    }

    pub(crate) fn serializer(codec: impl ArrayToBytes + 'static) -> Opened {
        Opened::Serializer(Arc::new(codec))
    }
}

type Open = fn(&Request<'_>) -> Result<Opened>;

/// Every built-in codec: its names in v3 metadata (the first is its own), its id in v2 metadata, and how to open it.
const BUILT_IN: &[(&[&str], Option<&str>, Open)] = &[
    (&["bytes", "endian"], None, super::bytes::open),
    (&["transpose"], None, super::transpose::open),
    (&["sharding_indexed"], None, super::sharding_indexed::open),
    (&["blosc", "numcodecs.blosc"], Some("blosc"), super::blosc::open),
    (&["zstd", "numcodecs.zstd"], Some("zstd"), super::zstd::open),
    (&["gzip", "numcodecs.gzip"], Some("gzip"), super::gzip::open),
    (&["numcodecs.zlib", "zlib"], Some("zlib"), super::zlib::open),
    (&["numcodecs.bz2", "bz2"], Some("bz2"), super::bz2::open),
    (&["numcodecs.lz4", "lz4"], Some("lz4"), super::lz4::open),
    (&["crc32c", "numcodecs.crc32c"], Some("crc32c"), super::crc32c::open),
    (&["numcodecs.crc32", "crc32"], Some("crc32"), super::crc32::open),
    (&["numcodecs.adler32", "adler32"], Some("adler32"), super::adler32::open),
    (&["numcodecs.fletcher32", "fletcher32"], Some("fletcher32"), super::fletcher32::open),
    (&["numcodecs.shuffle", "shuffle"], Some("shuffle"), super::shuffle::open),
    (&["numcodecs.delta", "delta"], Some("delta"), super::delta::open),
    (&["numcodecs.fixedscaleoffset", "fixedscaleoffset"], Some("fixedscaleoffset"), super::fixedscaleoffset::open),
    (&["numcodecs.quantize", "quantize"], Some("quantize"), super::quantize::open),
    (&["bitround", "numcodecs.bitround"], Some("bitround"), super::bitround::open),
    (&["numcodecs.packbits"], Some("packbits"), super::packbits::open),
    (&["numcodecs.astype", "astype"], Some("astype"), super::astype::open),
    (&["scale_offset"], None, super::scale_offset::open),
    (&["cast_value"], None, super::cast_value::open),
    (&["vlen-utf8", "numcodecs.vlen-utf8"], Some("vlen-utf8"), super::vlen_utf8::open),
    (&["vlen-bytes", "numcodecs.vlen-bytes"], Some("vlen-bytes"), super::vlen_bytes::open),
];

/// Codecs that no metadata names, for frames that a caller holds.
const DIRECT: &[(&str, Open)] = &[("deflate", super::deflate::open), ("lz4_raw", super::lz4::open_raw)];

/// Codecs that zarr-python or numcodecs register and that are refused here, with why.
pub const REFUSED: &[(&str, &str)] = &[
    ("pickle", "it runs code from the data"),
    ("json2", "its elements are Python objects"),
    ("msgpack2", "its elements are Python objects"),
    ("vlen-array", "its elements are arrays"),
    ("categorize", "its labels are Python objects"),
    ("base64", "only external codecs have it"),
    ("lzma", "only external codecs have it"),
    ("zfpy", "only external codecs have it"),
    ("pcodec", "only external codecs have it"),
    ("jenkins_lookup3", "only external codecs have it"),
];

/// The v3 names of the codecs that are built in.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(names, ..)| names[0])
}

/// Whether metadata of that format may spell a built-in codec so.
pub fn is_built_in(name: &str, zarr_format: u8) -> bool {
    find(name, zarr_format).is_some()
}

fn find(name: &str, zarr_format: u8) -> Option<Open> {
    let known = |(names, id, _): &&(&[&str], Option<&str>, Open)| match zarr_format {
        2 => *id == Some(name),
        _ => names.contains(&name),
    };
    BUILT_IN.iter().find(known).map(|(.., open)| *open)
}

/// Every name that metadata of that format may have for a built-in codec.
fn known(zarr_format: u8) -> impl Iterator<Item = &'static str> {
    BUILT_IN
        .iter()
        .flat_map(move |(names, id, _)| match zarr_format {
            2 => id.as_slice(),
            _ => names,
        })
        .copied()
}

/// Opens a codec by name for frames that a caller holds: those of metadata, and others.
pub(crate) fn open_direct(request: &Request<'_>) -> Result<Opened> {
    match DIRECT.iter().find(|(name, _)| *name == request.name) {
        Some((_, open)) => open(request),
        None => open(request),
    }
}

/// The kernels that decode frames of a codec, by a name that [`Chain::from_codecs`](super::Chain::from_codecs) knows.
///
/// # Errors
/// `UnknownCodec`; `Unsupported` when no kernel decodes what the codec, without any configuration, makes.
pub fn device_decoder(name: &str) -> Result<&'static dyn DeviceDecoder> {
    let (configuration, spec) = (Map::new(), ChunkSpec::new(vec![1], DataType::UInt8, FillValue::Element(vec![0])));
    let (decoded, element_bytes) = (Size::Exact(1), Some(1));
    let request = Request { name, configuration: &configuration, zarr_format: 3, spec: &spec, decoded, element_bytes };
    let decoder = match open_direct(&request)? {
        Opened::Bytes(codec) => codec.device_decoder(),
        _ => None,
    };
    decoder.ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("no kernels decode '{name}'")))
}

/// Opens a codec by name: built in, or from elsewhere.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    if let Some(open) = find(request.name, request.zarr_format) {
        return open(request);
    }
    let bare = request.name.strip_prefix("numcodecs.").unwrap_or(request.name);
    // Whoever opens pickle asks first whether that is allowed.
    if let Some(opened) = external::open(request)? {
        return Ok(opened);
    }
    let reason = REFUSED.iter().find(|(name, _)| *name == bare).map(|(_, reason)| *reason);
    let refused = |why: &str| Error::new(ErrorKind::UnknownCodec, format!("codec '{}' is {why}", request.name));
    Err(match reason {
        Some(reason) => refused(&format!("not supported: {reason}")),
        None => refused("not known").with_nearest(request.name, known(request.zarr_format)),
    })
}
