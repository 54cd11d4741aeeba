//! The attributes that turn a group of arrays into an image of OME-Zarr 0.4 to 0.6.

use cuzarr_device::downsample::Downsampling;
use cuzarr_device::{DType, DTypeKind, Device, Order};
use serde_json::{Map, Value, json};

use super::axes::is_spatial;
use super::options::OmeVersion;
use cuzarr::meta::CoordinateSystems;
use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::{Error, ErrorKind, Result};

/// Colours, in hexadecimal RGB, that are given in turn to channels without a colour. Red-green colour-blind people can
/// distinguish neighbouring ones.
const COLOURS: [&str; 6] = ["00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF"];

/// Largest number of elements along a dimension that are read to find a channel's contrast limits; others are skipped.
const MOST_LOOKED_AT: u64 = 256;

/// An image from which the OME-Zarr attributes of a pyramid's group are made.
pub(super) struct Described<'a> {
    pub(super) version: OmeVersion,
    pub(super) name: String,
    pub(super) method: Downsampling,
    pub(super) axes: &'a [String],
    pub(super) units: Option<&'a [String]>,
    pub(super) scale: Vec<f64>,
    pub(super) translation: Option<&'a [f64]>,
    /// For each level after the first, how many elements become one along each dimension.
    pub(super) factors: &'a [Vec<u64>],
    /// Coordinate systems of the source image, for version 0.6.
    pub(super) coordinates: Option<&'a CoordinateSystems>,
    /// Axes of the source image, whose further members, such as their orientation, are kept.
    pub(super) source_axes: &'a [Map<String, Value>],
}

/// Name of the coordinate system of the levels, if the source image does not name one.
const INTRINSIC: &str = "intrinsic";

impl Described<'_> {
    /// Returns the value of the OME-Zarr attribute `multiscales`.
    pub(super) fn multiscales(&self) -> Value {
        let axis = |(at, name): (usize, &String)| {
            let given = || self.coordinates?.axes_of_levels()?.get(at)?.as_object();
            let own = self
                .source_axes
                .get(at)
                .or_else(given)
                .filter(|own| own.get("name").and_then(Value::as_str) == Some(name));
            let mut axis = own.cloned().unwrap_or_else(|| Map::from_iter([("name".to_string(), json!(name))]));
            let kind = match name.as_str() {
                "t" => Some("time"),
                "c" => Some("channel"),
                name if is_spatial(name) => Some("space"),
                _ => None,
            };
            if let Some(kind) = kind.filter(|_| !axis.contains_key("type")) {
                axis.insert("type".to_string(), json!(kind));
            }
            Value::Object(self.with_unit(axis, at))
        };
        let axes: Vec<Value> = self.axes.iter().enumerate().map(axis).collect();
        let datasets: Vec<Value> = (0..=self.factors.len()).map(|number| self.dataset(number)).collect();
        let mut image = Map::new();
        if self.version == OmeVersion::V04 {
            image.insert("version".into(), json!(self.version.name()));
        }
        image.insert("name".into(), json!(self.name));
        match self.version {
            OmeVersion::V06 => image.extend(self.systems(axes)),
            _ => image.extend([("axes".to_string(), json!(axes))]),
        }
        image.insert("datasets".into(), json!(datasets));
        image.insert("type".into(), json!(self.method.name()));
        json!([image])
    }

    /// Returns an OME-Zarr axis with the unit of its dimension added, if the dimension has one.
    fn with_unit(&self, mut axis: Map<String, Value>, at: usize) -> Map<String, Value> {
        axis.remove("unit");
        let unit = self.units.map(|units| &units[at]).filter(|unit| !unit.is_empty());
        axis.extend(unit.map(|unit| ("unit".to_string(), json!(unit))));
        axis
    }

    /// Returns the name of the coordinate system that all levels are transformed to.
    fn intrinsic(&self) -> &str {
        self.coordinates.map_or(INTRINSIC, |own| &own.intrinsic)
    }

    /// Returns the members that replace `axes` in version 0.6: the coordinate systems, and the transformations between
    /// them.
    fn systems(&self, axes: Vec<Value>) -> Vec<(String, Value)> {
        let own = json!({"name": self.intrinsic(), "axes": axes});
        let mut systems: Vec<Value> = match self.coordinates {
            Some(given) => given.systems.iter().cloned().map(Value::Object).collect(),
            None => Vec::new(),
        };
        match systems.iter_mut().find(|system| system["name"] == own["name"]) {
            Some(system) => system["axes"] = own["axes"].clone(),
            None => systems.push(own),
        }
        let mut members = vec![("coordinateSystems".to_string(), json!(systems))];
        let further = self.coordinates.map(|own| &own.transformations).filter(|all| !all.is_empty());
        members.extend(further.map(|all| ("coordinateTransformations".to_string(), json!(all))));
        members
    }

    /// Returns a level's entry in `datasets`: its path, and the transformations to coordinates. An element lies in the
    /// middle of the box that became one element; for `nearest`, at the first element of the box.
    fn dataset(&self, number: usize) -> Value {
        let factor = |at: usize| self.factors[..number].iter().map(|factors| factors[at]).product::<u64>() as f64;
        let scale: Vec<f64> = self.scale.iter().enumerate().map(|(at, size)| size * factor(at)).collect();
        let mut transformations = vec![json!({"type": "scale", "scale": scale})];
        let shift = |(at, size): (usize, &f64)| match self.method {
            Downsampling::Nearest => 0.0,
            _ => size * (factor(at) - 1.0) / 2.0,
        };
        let own = |at: usize| self.translation.map_or(0.0, |own| own[at]);
        let places: Vec<f64> = self.scale.iter().enumerate().map(|one| own(one.0) + shift(one)).collect();
        if places.iter().any(|place| *place != 0.0) {
            transformations.push(json!({"type": "translation", "translation": places}));
        }
        let path = number.to_string();
        if self.version == OmeVersion::V06 {
            // One transformation, from array indices to the coordinate system.
            let mut one = match transformations.len() {
                1 => transformations.swap_remove(0),
                _ => json!({"type": "sequence", "transformations": transformations}),
            };
            one["input"] = json!({ "path": path });
            one["output"] = json!({"name": self.intrinsic()});
            transformations = vec![one];
        }
        json!({"path": path, "coordinateTransformations": transformations})
    }
}

/// Nests members below `ome` if this OME-Zarr version requires it.
pub(super) fn placed(version: OmeVersion, mut members: Map<String, Value>) -> Map<String, Value> {
    match version {
        OmeVersion::V04 => members,
        OmeVersion::V05 | OmeVersion::V06 => {
            members.shift_insert(0, "version".into(), json!(version.name()));
            Map::from_iter([("ome".to_string(), Value::Object(members))])
        }
    }
}

/// Refuses channels that do not fit an image with `count` channels.
///
/// # Errors
/// `InvalidArgument`
pub(super) fn check_channels(channels: &[Map<String, Value>], count: u64) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if channels.len() as u64 != count {
        return invalid(format!("got {} channels, the image has {count}", channels.len()));
    }
    for channel in channels {
        if let Some(colour) = channel.get("color") {
            let is_colour = |text: &str| text.len() == 6 && text.chars().all(|digit| digit.is_ascii_hexdigit());
            if !colour.as_str().is_some_and(is_colour) {
                return invalid(format!(
                    "the color of a channel is {colour}, expected 6 hexadecimal digits, as in \"00FF00\""
                ));
            }
        }
        if let Some(window) = channel.get("window") {
            let limits = ["start", "end"].map(|limit| window.get(limit).and_then(Value::as_f64));
            if limits.contains(&None) {
                return invalid(format!(
                    "the window of a channel is {window}, expected an object with the numbers start and end"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the value of the OME-Zarr attribute `omero`: channels with a colour and contrast limits. Limits that were
/// not given are the smallest and the largest element of the smallest level.
///
/// # Errors
/// Those of reading.
pub(super) fn omero(channels: &[Map<String, Value>], smallest: &Array, axes: &[String]) -> Result<Value> {
    let axis = axes.iter().position(|name| name == "c");
    let mut described = Vec::new();
    for (number, given) in channels.iter().enumerate() {
        let mut channel = Map::from_iter([("label".to_string(), json!(format!("channel {number}")))]);
        let colour = if channels.len() == 1 { "FFFFFF" } else { COLOURS[number % COLOURS.len()] };
        channel.insert("color".into(), json!(colour));
        channel.insert("active".into(), json!(true));
        channel.extend(given.clone());
        let window = given.get("window").and_then(Value::as_object).cloned().unwrap_or_default();
        channel.insert("window".into(), Value::Object(limits(window, smallest, axis, number as u64)?));
        described.push(Value::Object(channel));
    }
    Ok(json!({ "channels": described }))
}

/// Returns a channel's `window` with all four contrast limits.
fn limits(
    mut window: Map<String, Value>,
    smallest: &Array,
    axis: Option<usize>,
    channel: u64,
) -> Result<Map<String, Value>> {
    if ["start", "end", "min", "max"].iter().all(|limit| window.contains_key(*limit)) {
        return Ok(window);
    }
    let axes = smallest.shape().iter().enumerate().map(|(at, &len)| match axis {
        Some(axis) if axis == at => AxisSelection { start: channel, count: 1, step: 1, dropped: false },
        _ => {
            let step = len.div_ceil(MOST_LOOKED_AT).max(1);
            AxisSelection { start: 0, count: len.div_ceil(step), step, dropped: false }
        }
    });
    let part = smallest.read_buffer(&Selection::new(axes.collect())?)?.to_device(Device::Cpu)?;
    let part = part.astype(DType::FLOAT64, Order::C)?;
    let values = part.host_slice::<f64>()?;
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let own = smallest.metadata().data_type().device_dtype().and_then(range);
    let (least, most) = own.unwrap_or((low, high));
    for (limit, value) in [("min", least), ("max", most), ("start", low), ("end", high)] {
        window.entry(limit).or_insert_with(|| json!(value));
    }
    Ok(window)
}

/// Returns the smallest and largest value of an integer type of up to 32 bits; `None` for other types.
fn range(dtype: DType) -> Option<(f64, f64)> {
    let bits = dtype.size_bytes() as i32 * 8;
    match dtype.kind() {
        DTypeKind::UInt if bits <= 32 => Some((0.0, 2f64.powi(bits) - 1.0)),
        DTypeKind::Int if bits <= 32 => Some((-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0)),
        _ => None,
    }
}
