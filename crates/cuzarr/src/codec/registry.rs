//! Maps names to codecs: Zarr v3 names, `numcodecs.*` names and v2 ids.

use std::sync::Arc;

use serde_json::Map;

use super::chain::Sharding;
use super::device::DeviceDecoder;
use super::open::{OpenCodec, Opened, Request};
use super::sharding_indexed::{self, BuildChain};
use super::size::Size;
use super::{ChunkSpec, external};
use crate::meta::{DataType, FillValue};
use crate::{Error, ErrorKind, Result};

/// An opened codec, before it is added to a chain.
pub(crate) enum Found {
    Codec(Opened),
    /// The sharding codec, which contains a chain of codecs.
    Sharding(Arc<Sharding>),
}

impl From<Opened> for Found {
    fn from(opened: Opened) -> Found {
        Found::Codec(opened)
    }
}

/// The function that opens a built-in codec; there is one kind for each way in which a codec contains other codecs.
#[derive(Clone, Copy)]
enum Open {
    Codec(fn(&Request<'_>) -> Result<Opened>),
    /// Opens a codec that contains a whole chain of codecs.
    Chained(fn(&Request<'_>, BuildChain) -> Result<Opened>),
    /// Opens a codec that contains other codecs, which it opens one by one.
    Wrapping(fn(&Request<'_>, OpenCodec<'_>) -> Result<Opened>),
    Sharding(fn(&Request<'_>, BuildChain) -> Result<Sharding>),
}

impl Open {
    fn call(self, request: &Request<'_>, build: BuildChain) -> Result<Found> {
        match self {
            Open::Codec(open) => open(request).map(Found::Codec),
            Open::Chained(open) => open(request, build).map(Found::Codec),
            Open::Wrapping(wrap) => wrap(request, &|inner| open_codec(inner, build)).map(Found::Codec),
            Open::Sharding(open) => Ok(Found::Sharding(Arc::new(open(request, build)?))),
        }
    }
}

/// Every built-in codec: its names in v3 metadata (the first is its own), its id in v2 metadata, and how to open it.
const BUILT_IN: &[(&[&str], Option<&str>, Open)] = &[
    (&["bytes", "endian"], None, Open::Codec(super::bytes::open)),
    (&["transpose"], None, Open::Codec(super::transpose::open)),
    (&["sharding_indexed"], None, Open::Sharding(sharding_indexed::open)),
    (&["blosc", "numcodecs.blosc"], Some("blosc"), Open::Codec(super::blosc::open)),
    (&["zstd", "numcodecs.zstd"], Some("zstd"), Open::Codec(super::zstd::open)),
    (&["gzip", "numcodecs.gzip"], Some("gzip"), Open::Codec(super::gzip::open)),
    (&["numcodecs.zlib", "zlib"], Some("zlib"), Open::Codec(super::zlib::open)),
    (&["numcodecs.bz2", "bz2"], Some("bz2"), Open::Codec(super::bz2::open)),
    (&["numcodecs.lzma", "lzma"], Some("lzma"), Open::Codec(super::lzma::open)),
    (&["numcodecs.pcodec", "pcodec"], Some("pcodec"), Open::Codec(super::pcodec::open)),
    (&["numcodecs.lz4", "lz4"], Some("lz4"), Open::Codec(super::lz4::open)),
    (&["crc32c", "numcodecs.crc32c"], Some("crc32c"), Open::Codec(super::crc32c::open)),
    (&["numcodecs.crc32", "crc32"], Some("crc32"), Open::Codec(super::crc32::open)),
    (&["numcodecs.adler32", "adler32"], Some("adler32"), Open::Codec(super::adler32::open)),
    (&["numcodecs.fletcher32", "fletcher32"], Some("fletcher32"), Open::Codec(super::fletcher32::open)),
    (&["numcodecs.shuffle", "shuffle"], Some("shuffle"), Open::Codec(super::shuffle::open)),
    (&["numcodecs.delta", "delta"], Some("delta"), Open::Codec(super::delta::open)),
    (
        &["numcodecs.fixedscaleoffset", "fixedscaleoffset"],
        Some("fixedscaleoffset"),
        Open::Codec(super::fixedscaleoffset::open),
    ),
    (&["numcodecs.quantize", "quantize"], Some("quantize"), Open::Codec(super::quantize::open)),
    (&["bitround", "numcodecs.bitround"], Some("bitround"), Open::Codec(super::bitround::open)),
    (&["numcodecs.packbits"], Some("packbits"), Open::Codec(super::packbits::open)),
    (&["conditional"], None, Open::Wrapping(super::conditional::open)),
    (&["n5_default"], None, Open::Chained(super::n5_default::open)),
    (&["packbits"], None, Open::Codec(super::packbits::registered::open)),
    (&["reshape"], None, Open::Codec(super::reshape::open)),
    (&["numcodecs.astype", "astype"], Some("astype"), Open::Codec(super::astype::open)),
    (&["scale_offset"], None, Open::Codec(super::scale_offset::open)),
    (&["cast_value"], None, Open::Codec(super::cast_value::open)),
    (&["zfp"], None, Open::Codec(super::zfp::open)),
    (&["vlen-utf8", "numcodecs.vlen-utf8"], Some("vlen-utf8"), Open::Codec(super::vlen_utf8::open)),
    (&["vlen-bytes", "numcodecs.vlen-bytes"], Some("vlen-bytes"), Open::Codec(super::vlen_bytes::open)),
];

/// Codecs that metadata cannot name, for frames that a caller decodes itself.
const DIRECT: &[(&str, Open)] =
    &[("deflate", Open::Codec(super::deflate::open)), ("lz4_raw", Open::Codec(super::lz4::open_raw))];

/// Codecs that zarr-python or numcodecs register and cuzarr refuses, each with the reason.
pub const REFUSED: &[(&str, &str)] = &[
    ("pickle", "it runs code from the data"),
    ("json2", "its elements are Python objects"),
    ("msgpack2", "its elements are Python objects"),
    ("vlen-array", "its elements are arrays"),
    ("categorize", "its labels are Python objects"),
    ("base64", "only external codecs have it"),
    ("zfpy", "only external codecs have it"),
    ("jenkins_lookup3", "only external codecs have it"),
];

/// The v3 names of the codecs that are built in.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(names, ..)| names[0])
}

/// Whether `name` is the name of a built-in codec in metadata of `zarr_format`.
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

/// The names by which built-in codecs are known in metadata of `zarr_format`.
fn known(zarr_format: u8) -> impl Iterator<Item = &'static str> {
    BUILT_IN
        .iter()
        .flat_map(move |(names, id, _)| match zarr_format {
            2 => id.as_slice(),
            _ => names,
        })
        .copied()
}

fn find_direct(name: &str, zarr_format: u8) -> Option<Open> {
    let direct = DIRECT.iter().find(|(known, _)| *known == name).map(|(_, open)| *open);
    direct.or_else(|| find(name, zarr_format))
}

/// Opens a codec by name, including codecs that metadata cannot name, for frames that the caller has. The names in
/// `DIRECT` are known too.
pub(crate) fn open_direct(request: &Request<'_>, build: BuildChain) -> Result<Found> {
    match find_direct(request.name, request.zarr_format) {
        Some(open) => open.call(request, build),
        None => open_external(request).map(Found::Codec),
    }
}

/// The kernels that decode frames of one codec, by a name that [`Chain::from_codecs`](super::Chain::from_codecs) knows.
///
/// # Errors
/// `UnknownCodec`; `Unsupported` if no kernel decodes the frames of this codec without configuration.
pub fn device_decoder(name: &str) -> Result<&'static dyn DeviceDecoder> {
    let (configuration, spec) = (Map::new(), ChunkSpec::new(vec![1], DataType::UInt8, FillValue::Element(vec![0])));
    let (decoded, element_bytes) = (Size::Exact(1), Some(1));
    let request = Request { name, configuration: &configuration, zarr_format: 3, spec: &spec, decoded, element_bytes };
    let opened = match find_direct(name, 3) {
        Some(Open::Codec(open)) => Some(open(&request)?),
        Some(Open::Chained(_) | Open::Wrapping(_) | Open::Sharding(_)) => None,
        None => Some(open_external(&request)?),
    };
    let decoder = match opened {
        Some(Opened::Bytes(codec)) => codec.device_decoder(),
        _ => None,
    };
    decoder.ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("no kernels decode '{name}'")))
}

/// Opens a codec by name: a built-in or an external one.
pub(crate) fn open(request: &Request<'_>, build: BuildChain) -> Result<Found> {
    match find(request.name, request.zarr_format) {
        Some(open) => open.call(request, build),
        None => open_external(request).map(Found::Codec),
    }
}

/// Opens a codec inside another codec.
fn open_codec(request: &Request<'_>, build: BuildChain) -> Result<Opened> {
    match open(request, build)? {
        Found::Codec(opened) => Ok(opened),
        Found::Sharding(_) => {
            let message = format!("codec '{}' is no part of another one", request.name);
            Err(Error::new(ErrorKind::MetadataInvalid, message))
        }
    }
}

/// Opens a codec that is not built in.
fn open_external(request: &Request<'_>) -> Result<Opened> {
    let bare = request.name.strip_prefix("numcodecs.").unwrap_or(request.name);
    // An external codec that opens pickle asks first whether that is allowed.
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
