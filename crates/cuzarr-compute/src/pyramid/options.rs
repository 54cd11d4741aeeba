//! Settings for making multiscale pyramids of images.

use cuzarr_device::downsample::Downsampling;
use serde_json::{Map, Value};

use crate::copy::Changes;
use cuzarr::meta::{CoordinateSystems, ZarrFormat};
use cuzarr::{Error, ErrorKind, Result};

/// The version of OME-Zarr that a pyramid is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmeVersion {
    /// OME-Zarr 0.4, in Zarr format 2.
    V04,
    /// OME-Zarr 0.5, in Zarr format 3.
    V05,
    /// OME-Zarr 0.6, in Zarr format 3, with coordinate systems.
    V06,
}

impl OmeVersion {
    /// Returns the version as text: `0.4`, `0.5` or `0.6`.
    pub const fn name(self) -> &'static str {
        match self {
            OmeVersion::V04 => "0.4",
            OmeVersion::V05 => "0.5",
            OmeVersion::V06 => "0.6",
        }
    }

    /// Returns the version that a text such as `0.5` names.
    pub fn named(name: &str) -> Option<OmeVersion> {
        [OmeVersion::V04, OmeVersion::V05, OmeVersion::V06].into_iter().find(|version| version.name() == name)
    }

    /// Returns the Zarr format in which this version stores arrays.
    pub const fn zarr_format(self) -> ZarrFormat {
        match self {
            OmeVersion::V04 => ZarrFormat::V2,
            OmeVersion::V05 | OmeVersion::V06 => ZarrFormat::V3,
        }
    }
}

/// Settings for a pyramid that becomes labels (a segmentation) of an image. The array of labels tells for each element
/// of an image which object it belongs to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// The name of the labels, below the image's group `labels`.
    pub name: String,
    /// Members of the attribute `image-label`, such as `colors` and `properties`.
    pub metadata: Map<String, Value>,
}

/// Settings of a pyramid: OME-Zarr version, levels, axes, how elements are combined and stored. Settings that are
/// `None` come from the source or, for labels, from their image.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PyramidOptions {
    /// The OME-Zarr version to write. The default is 0.5, or 0.6 if the source is an image of that version.
    pub version: Option<OmeVersion>,
    /// How the elements of a level are combined into one element of the next. The default is the mean; for labels, the
    /// most frequent value.
    pub method: Option<Downsampling>,
    /// Number of levels, including the one of full size. By default, levels are added until no spatial extent is above
    /// 256.
    pub levels: Option<usize>,
    /// Names of the dimensions, such as `t c z y x`. The default is the array's own names, or the last of these.
    pub axes: Option<Vec<String>>,
    /// Physical size of an element along each dimension, in `units`. The default is 1.
    pub scale: Option<Vec<f64>>,
    /// Physical position of the first element along each dimension, in `units`. The default is 0.
    pub translation: Option<Vec<f64>>,
    /// Unit of each dimension, such as `micrometer`; an empty text means no unit.
    pub units: Option<Vec<String>>,
    /// Number of elements that become one along each dimension, from each level to the next. The default is 2 along
    /// spatial dimensions, but 1 where elements are already at least twice as large as along another one.
    pub factors: Option<Vec<u64>>,
    /// The image's name in the attributes. The default is the last part of its path.
    pub name: Option<String>,
    /// Channels as in the member `omero`: objects with `label`, `color` and `window`. Missing members are chosen
    /// automatically.
    pub channels: Option<Vec<Map<String, Value>>>,
    /// If set, the pyramid becomes labels (a segmentation) of the image at the target, with this name and metadata.
    pub labels: Option<Labels>,
    /// Coordinate systems of the image, for OME-Zarr 0.6. The default is a single one named `intrinsic`.
    pub coordinates: Option<CoordinateSystems>,
    /// Changes to how all levels are stored: their chunks, shards and compressors.
    pub changes: Changes,
    /// The axes in the source image's attributes, with all their members.
    pub(super) source_axes: Vec<Map<String, Value>>,
}

impl PyramidOptions {
    cuzarr::setters! {
        with_version(version: OmeVersion) = Some(version);
        with_method(method: Downsampling) = Some(method);
        with_levels(levels: usize) = Some(levels);
        with_axes(axes: Vec<String>) = Some(axes);
        with_scale(scale: Vec<f64>) = Some(scale);
        with_translation(translation: Vec<f64>) = Some(translation);
        with_units(units: Vec<String>) = Some(units);
        with_factors(factors: Vec<u64>) = Some(factors);
        with_name(name: String) = Some(name);
        with_channels(channels: Vec<Map<String, Value>>) = Some(channels);
        with_labels(labels: Labels) = Some(labels);
        with_coordinates(coordinates: CoordinateSystems) = Some(coordinates);
        with_changes(changes: Changes) = changes;
    }

    /// Reads settings from JSON: `version`, `method`, `levels`, `axes`, `scale`, `translation`, `units`, `factors`,
    /// `name`, `channels` and `labels` (with `name` and `metadata`).
    ///
    /// # Errors
    /// `InvalidArgument` for other members or values.
    pub fn from_json(document: &Value, changes: Changes) -> Result<PyramidOptions> {
        let mut options = PyramidOptions { changes, ..PyramidOptions::default() };
        for (member, value) in document.as_object().into_iter().flatten() {
            let wrong = || Error::new(ErrorKind::InvalidArgument, format!("'{member}' cannot be {value}"));
            match member.as_str() {
                _ if value.is_null() => {}
                "version" => options.version = Some(version(value.as_str().ok_or_else(wrong)?)?),
                "method" => options.method = Some(method(value.as_str().ok_or_else(wrong)?)?),
                "levels" => options.levels = Some(value.as_u64().ok_or_else(wrong)? as usize),
                "axes" => options.axes = Some(list(value, Value::as_str).ok_or_else(wrong)?),
                "units" => options.units = Some(list(value, Value::as_str).ok_or_else(wrong)?),
                "scale" => options.scale = Some(list(value, Value::as_f64).ok_or_else(wrong)?),
                "translation" => options.translation = Some(list(value, Value::as_f64).ok_or_else(wrong)?),
                "factors" => options.factors = Some(list(value, Value::as_u64).ok_or_else(wrong)?),
                "name" => options.name = Some(value.as_str().ok_or_else(wrong)?.to_string()),
                "channels" => options.channels = Some(channels(value)?),
                "labels" => options.labels = Some(labels(value).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

fn list<'a, T, U: From<T>>(value: &'a Value, read: impl Fn(&'a Value) -> Option<T>) -> Option<Vec<U>> {
    value.as_array()?.iter().map(|one| read(one).map(U::from)).collect()
}

/// Returns the downsampling method with this name.
///
/// # Errors
/// `InvalidArgument`
fn method(name: &str) -> Result<Downsampling> {
    Downsampling::named(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::InvalidArgument, format!("unknown method '{name}'"));
        error.with_hint("use mean, gaussian, max, nearest or mode")
    })
}

/// Returns the OME-Zarr version with this name.
///
/// # Errors
/// `InvalidArgument`
fn version(name: &str) -> Result<OmeVersion> {
    OmeVersion::named(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::InvalidArgument, format!("unknown version '{name}' of OME-Zarr"));
        error.with_hint("use 0.4, 0.5 or 0.6")
    })
}

/// Parses the channels of an image from JSON. Each is an object or only a label.
fn channels(value: &Value) -> Result<Vec<Map<String, Value>>> {
    let wrong = |got: &Value| {
        let error = Error::new(ErrorKind::InvalidArgument, format!("a channel cannot be {got}"));
        error.with_hint("use its label, or an object with label, color and window")
    };
    let channel = |one: &Value| match one {
        Value::String(label) => Ok(Map::from_iter([("label".to_string(), Value::from(label.as_str()))])),
        Value::Object(members) => Ok(members.clone()),
        other => Err(wrong(other)),
    };
    value.as_array().ok_or_else(|| wrong(value))?.iter().map(channel).collect()
}

fn labels(value: &Value) -> Option<Labels> {
    let metadata = match value.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(members) => members.as_object()?.clone(),
    };
    Some(Labels { name: value.get("name")?.as_str()?.to_string(), metadata })
}
