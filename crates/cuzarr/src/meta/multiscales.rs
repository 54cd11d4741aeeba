//! Images with several scales, as the attributes of their group describe them. There are two conventions: OME-Zarr
//! (<https://ngff.openmicroscopy.org/0.6/#multiscales-metadata>, and earlier versions), and `multiscales` of GeoZarr
//! (<https://github.com/zarr-conventions/multiscales>). This module reads both; `cuzarr-compute` writes OME-Zarr.

use serde_json::{Map, Value};

use super::invalid;
use crate::{Error, ErrorKind, Result};

/// The convention by which a group's attributes describe an image with several resolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiscaleConvention {
    /// The convention OME-Zarr up to 0.4, with the attributes `multiscales` and `omero`.
    OmeAttributes,
    /// The convention OME-Zarr from 0.5 on, with `multiscales` and `omero` as members of the attribute `ome`.
    OmeMember,
    /// The convention GeoZarr, with an attribute `multiscales` that has a `layout`.
    Layout,
}

/// A dimension of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageAxis {
    /// The name of the dimension, such as `z`.
    pub name: String,
    /// The type of the dimension, such as `space`, `time` or `channel`.
    pub kind: Option<String>,
    /// The unit of the coordinates along the dimension, such as `micrometer`.
    pub unit: Option<String>,
    /// All members of the axis, unchanged from the attributes, such as `longName` and `orientation`.
    pub members: Map<String, Value>,
}

/// One array of an image: the image in one resolution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageLevel {
    /// The path of the array below the image's group.
    pub path: String,
    /// Size of an array element along each dimension; empty if the attributes do not state it.
    pub scale: Vec<f64>,
    /// Position of the first array element along each dimension; empty if the attributes do not state it.
    pub translation: Vec<f64>,
}

/// The coordinate systems of an image in OME-Zarr 0.6.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinateSystems {
    /// The name of the coordinate system to which the transformations of all levels lead.
    pub intrinsic: String,
    /// All coordinate systems of the image, unchanged from the attributes.
    pub systems: Vec<Map<String, Value>>,
    /// Transformations from the intrinsic system to others, unchanged from the attributes.
    pub transformations: Vec<Value>,
}

/// An image that is stored in several resolutions, as the attributes of its group describe it.
///
/// ```
/// use cuzarr::meta::Multiscales;
/// let attributes = serde_json::json!({"ome": {"version": "0.5", "multiscales": [{
///     "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
///     "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.5]}]}],
/// }]}});
/// let image = Multiscales::of(attributes.as_object().unwrap())?.expect("these attributes describe an image");
/// assert_eq!((image.levels[0].path.as_str(), image.levels[0].scale[1]), ("0", 0.5));
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Multiscales {
    /// The convention that the attributes follow.
    pub convention: MultiscaleConvention,
    /// The convention's version, as stated in the attributes.
    pub version: Option<String>,
    /// The name of the image, if the attributes state one.
    pub name: Option<String>,
    /// The dimensions of the image; empty if the attributes do not name them.
    pub axes: Vec<ImageAxis>,
    /// The arrays of the image, from the largest to the smallest.
    pub levels: Vec<ImageLevel>,
    /// The `omero` member: channels with their colours and limits.
    pub omero: Option<Map<String, Value>>,
    /// The coordinate systems in OME-Zarr 0.6. Axes, scales and translations of levels refer to the intrinsic system.
    pub coordinates: Option<CoordinateSystems>,
}

impl Multiscales {
    /// Reads the image that these attributes of a group describe; `None` if there is none. If there are several,
    /// returns the first.
    ///
    /// # Errors
    /// `MetadataInvalid`; `Unsupported` for a version of OME-Zarr after 0.6, and for transformations of levels other
    /// than scales, translations and sequences of them.
    pub fn of(attributes: &Map<String, Value>) -> Result<Option<Multiscales>> {
        match (attributes.get("ome"), attributes.get("multiscales")) {
            (Some(Value::Object(ome)), _) if ome.contains_key("multiscales") => {
                Multiscales::of_ome(ome, MultiscaleConvention::OmeMember, stated_version(ome)?).map(Some)
            }
            (_, Some(Value::Array(_))) => {
                Multiscales::of_ome(attributes, MultiscaleConvention::OmeAttributes, None).map(Some)
            }
            (_, Some(Value::Object(members))) if members.contains_key("layout") => {
                Multiscales::of_layout(members).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn of_ome(
        members: &Map<String, Value>,
        convention: MultiscaleConvention,
        version: Option<String>,
    ) -> Result<Multiscales> {
        let list = members.get("multiscales").unwrap_or(&Value::Null);
        let first = list.get(0).and_then(Value::as_object);
        let Some(first) = first else { return Err(invalid("multiscales", list, "a list with an object")) };
        let text = |name: &str| first.get(name).and_then(Value::as_str).map(str::to_string);
        let version = version.map_or_else(|| stated_version(first), |version| Ok(Some(version)))?;
        let has_systems = match &version {
            Some(version) => minor_version(version)? >= 6,
            None => false,
        };
        let datasets = first.get("datasets").unwrap_or(&Value::Null);
        let Some(datasets) = datasets.as_array().filter(|all| !all.is_empty()) else {
            return Err(invalid("datasets", datasets, "a list of objects"));
        };
        let is_systems = has_systems || first.contains_key("coordinateSystems") && !first.contains_key("axes");
        let coordinates = is_systems.then(|| CoordinateSystems::of(first, datasets)).transpose()?;
        let axes = match coordinates.as_ref().map_or_else(|| first.get("axes"), CoordinateSystems::axes) {
            None => Vec::new(),
            Some(Value::Array(axes)) => axes.iter().map(axis).collect::<Result<_>>()?,
            Some(other) => return Err(invalid("axes", other, "a list")),
        };
        // From version 0.6 on, transformations of the whole image lead to other systems, so they are not applied to the
        // levels.
        let common = first.get("coordinateTransformations").filter(|_| coordinates.is_none());
        let common = Transformation::of(common, axes.len())?;
        let level = |dataset: &Value| {
            let path = dataset.get("path").unwrap_or(&Value::Null);
            let Some(path) = path.as_str() else { return Err(invalid("path", path, "a text")) };
            let own = Transformation::of(dataset.get("coordinateTransformations"), axes.len())?;
            let Transformation { scale, translation } = own.then(&common);
            Ok(ImageLevel { path: path.to_string(), scale, translation })
        };
        Ok(Multiscales {
            convention,
            version,
            name: text("name"),
            levels: datasets.iter().map(level).collect::<Result<_>>()?,
            axes,
            omero: members.get("omero").and_then(Value::as_object).cloned(),
            coordinates,
        })
    }

    fn of_layout(members: &Map<String, Value>) -> Result<Multiscales> {
        let layout = members.get("layout").unwrap_or(&Value::Null);
        let Some(entries) = layout.as_array().filter(|all| !all.is_empty()) else {
            return Err(invalid("layout", layout, "a list of objects"));
        };
        let mut levels: Vec<ImageLevel> = Vec::new();
        for entry in entries {
            let asset = entry.get("asset").unwrap_or(&Value::Null);
            let Some(path) = asset.as_str() else { return Err(invalid("asset", asset, "a text")) };
            let transform = entry.get("transform").unwrap_or(&Value::Null);
            let own = Transformation {
                scale: numbers(transform.get("scale"), "scale")?,
                translation: numbers(transform.get("translation"), "translation")?,
            };
            // A level's transformation is relative to the level `derived_from`, if that one was listed before.
            let above = entry.get("derived_from").and_then(Value::as_str);
            let above = above.and_then(|above| levels.iter().find(|level| level.path == above));
            let made = above.map_or_else(
                || own.clone(),
                |above| {
                    own.then(&Transformation { scale: above.scale.clone(), translation: above.translation.clone() })
                },
            );
            levels.push(ImageLevel { path: path.to_string(), scale: made.scale, translation: made.translation });
        }
        let version = members.get("version").and_then(Value::as_str).map(str::to_string);
        let convention = MultiscaleConvention::Layout;
        Ok(Multiscales { convention, version, name: None, axes: Vec::new(), levels, omero: None, coordinates: None })
    }

    /// The convention's name and version, as text to be shown.
    pub fn title(&self) -> String {
        let name = match self.convention {
            MultiscaleConvention::Layout => "multiscales",
            _ => "OME-Zarr",
        };
        self.version.as_ref().map_or_else(|| name.to_string(), |version| format!("{name} {version}"))
    }

    /// The labels of the channels; empty if the attributes do not have them.
    pub fn channels(&self) -> Vec<String> {
        let channels = self.omero.as_ref().and_then(|omero| omero.get("channels")?.as_array());
        let label = |channel: &Value| channel.get("label").and_then(Value::as_str).unwrap_or("-").to_string();
        channels.into_iter().flatten().map(label).collect()
    }
}

impl CoordinateSystems {
    /// Reads the coordinate systems of an image, and finds the one to which the transformations of its levels lead.
    fn of(image: &Map<String, Value>, datasets: &[Value]) -> Result<CoordinateSystems> {
        let list = image.get("coordinateSystems").unwrap_or(&Value::Null);
        let systems = list.as_array().and_then(|all| all.iter().map(|one| one.as_object().cloned()).collect());
        let Some(systems): Option<Vec<Map<String, Value>>> = systems else {
            return Err(invalid("coordinateSystems", list, "a list of objects"));
        };
        let mut intrinsic: Option<String> = None;
        for dataset in datasets {
            let steps = dataset.get("coordinateTransformations").unwrap_or(&Value::Null);
            let Some([step]) = steps.as_array().map(Vec::as_slice) else {
                return Err(invalid(
                    "coordinateTransformations",
                    steps,
                    "a list of one transformation for each dataset",
                ));
            };
            // In drafts of this version, the name was not inside an object.
            let output = step.get("output").unwrap_or(&Value::Null);
            let Some(name) = output.get("name").unwrap_or(output).as_str() else {
                return Err(invalid("output", output, "an object with the name of a coordinate system"));
            };
            if intrinsic.as_deref().is_some_and(|first| first != name) {
                let expected = "the same coordinate system for all datasets";
                return Err(invalid("output", output, expected));
            }
            intrinsic = Some(name.to_string());
        }
        let intrinsic = intrinsic.unwrap_or_default();
        let transformations = match image.get("coordinateTransformations") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(all)) => all.clone(),
            Some(other) => return Err(invalid("coordinateTransformations", other, "a list")),
        };
        let found = CoordinateSystems { intrinsic, systems, transformations };
        if found.axes().is_none() {
            let expected =
                format!("the coordinate system {:?}, which datasets lead to, with its axes", found.intrinsic);
            return Err(invalid("coordinateSystems", list, &expected));
        }
        Ok(found)
    }

    /// The axes of the intrinsic coordinate system, unchanged from the attributes.
    pub fn axes_of_levels(&self) -> Option<&Vec<Value>> {
        self.axes()?.as_array()
    }

    fn axes(&self) -> Option<&Value> {
        let named = |system: &&Map<String, Value>| system.get("name").and_then(Value::as_str) == Some(&self.intrinsic);
        self.systems.iter().find(named)?.get("axes")
    }
}

/// The version that an image's or convention's members state, if they do. Some writers store it as a number.
fn stated_version(members: &Map<String, Value>) -> Result<Option<String>> {
    match members.get("version") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(version)) => Ok(Some(version.clone())),
        Some(Value::Number(version)) => Ok(Some(version.to_string())),
        Some(other) => Err(unknown_version(other)),
    }
}

fn unknown_version(version: impl std::fmt::Display) -> Error {
    let message = format!("OME-Zarr: got version {version}, expected 0.1 to 0.6");
    Error::new(ErrorKind::Unsupported, message).with_hint("use the arrays below the image, or a later cuzarr")
}

/// The second number in a version of OME-Zarr, such as 4 in `0.4`. Drafts such as `0.6.dev4` and `0.6rc0` count as the
/// final version.
fn minor_version(version: &str) -> Result<u32> {
    let digits = |rest: &str| rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let minor = version.strip_prefix("0.").and_then(|rest| rest[..digits(rest)].parse().ok());
    minor.filter(|minor| (1..=6).contains(minor)).ok_or_else(|| unknown_version(format!("{version:?}")))
}

/// Name of the group, below an image, that contains its labels.
pub const IMAGE_LABELS: &str = "labels";

/// The names of the labels, from the attributes of the group of labels.
pub fn label_names(attributes: &Map<String, Value>) -> Vec<String> {
    let names = attributes.get("ome").map_or_else(|| attributes.get("labels"), |ome| ome.get("labels"));
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_string).collect()
}

/// A change of coordinates: a scale, followed by a translation. Empty vectors change nothing.
#[derive(Clone, Debug, Default)]
struct Transformation {
    scale: Vec<f64>,
    translation: Vec<f64>,
}

impl Transformation {
    /// Combines a list of transformations, which are applied one after the other, to one.
    fn of(list: Option<&Value>, ndim: usize) -> Result<Transformation> {
        let mut all = Transformation::default();
        let Some(list) = list else { return Ok(all) };
        let Some(steps) = list.as_array() else { return Err(invalid("coordinateTransformations", list, "a list")) };
        for step in steps {
            let next = match step.get("type").and_then(Value::as_str) {
                Some("scale") => {
                    Transformation { scale: numbers(step.get("scale"), "scale")?, ..Transformation::default() }
                }
                Some("translation") => Transformation {
                    translation: numbers(step.get("translation"), "translation")?,
                    ..Transformation::default()
                },
                Some("identity") => continue,
                Some("sequence") => {
                    let inner = step.get("transformations").unwrap_or(&Value::Null);
                    let Some(_) = inner.as_array() else { return Err(invalid("transformations", inner, "a list")) };
                    Transformation::of(Some(inner), ndim)?
                }
                other => {
                    let expected = "scale, translation, identity or a sequence of these";
                    let got = other.map_or_else(|| "no type".to_string(), |name| format!("the type {name:?}"));
                    let message = format!("member 'coordinateTransformations': got {got}, expected {expected}");
                    return Err(Error::new(ErrorKind::Unsupported, message)
                        .with_hint("use the arrays below the image, with their scale"));
                }
            };
            if next.scale.is_empty() && next.translation.is_empty() {
                // The numbers may be stored in an array, which is not supported.
                if let Some(path) = step.get("path").and_then(Value::as_str) {
                    let message = format!("member 'coordinateTransformations': got numbers in the array {path:?}");
                    return Err(
                        Error::new(ErrorKind::Unsupported, message).with_hint("write the numbers into the attributes")
                    );
                }
            }
            for (what, given) in [("scale", &next.scale), ("translation", &next.translation)] {
                if ndim > 0 && !given.is_empty() && given.len() != ndim {
                    return Err(invalid(what, step, &format!("{ndim} numbers, one for each axis")));
                }
            }
            all = all.then(&next);
        }
        Ok(all)
    }

    /// Returns the transformation that applies this one, then `other`.
    fn then(&self, other: &Transformation) -> Transformation {
        let len = [&self.scale, &self.translation, &other.scale, &other.translation].map(Vec::len);
        let len = len.into_iter().max().unwrap_or(0);
        let at = |numbers: &[f64], at: usize, none: f64| numbers.get(at).copied().unwrap_or(none);
        let mut made = Transformation::default();
        for axis in 0..len {
            let outer = at(&other.scale, axis, 1.0);
            made.scale.push(at(&self.scale, axis, 1.0) * outer);
            made.translation.push(at(&self.translation, axis, 0.0) * outer + at(&other.translation, axis, 0.0));
        }
        made
    }
}

fn axis(value: &Value) -> Result<ImageAxis> {
    if let Some(name) = value.as_str() {
        return Ok(ImageAxis { name: name.to_string(), ..ImageAxis::default() }); // as in version 0.3
    }
    let text = |member: &str| value.get(member).and_then(Value::as_str).map(str::to_string);
    let Some(name) = text("name") else { return Err(invalid("axes", value, "a name, or an object with one")) };
    let members = value.as_object().cloned().unwrap_or_default();
    Ok(ImageAxis { name, kind: text("type"), unit: text("unit"), members })
}

fn numbers(list: Option<&Value>, member: &str) -> Result<Vec<f64>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let read = list.as_array().and_then(|all| all.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
    read.ok_or_else(|| invalid(member, list, "a list of numbers"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(attributes: &Value) -> Result<Option<Multiscales>> {
        Multiscales::of(attributes.as_object().unwrap())
    }

    #[test]
    fn transformations_of_levels_and_of_the_image_follow_each_other() {
        let read = image(&json!({"multiscales": [{
            "version": "0.4", "name": "cells", "axes": ["y", {"name": "x", "type": "space", "unit": "micrometer"}],
            "datasets": [{"path": "s0", "coordinateTransformations": [
                {"type": "scale", "scale": [2, 3]}, {"type": "translation", "translation": [1, 1]}]}],
            "coordinateTransformations": [{"type": "scale", "scale": [10, 10]}],
        }], "omero": {"channels": [{"label": "DAPI"}, {}]}}))
        .unwrap()
        .unwrap();
        assert_eq!(read.title(), "OME-Zarr 0.4");
        assert_eq!(read.axes[1].unit.as_deref(), Some("micrometer"));
        assert_eq!(
            (&read.levels[0].scale[..], &read.levels[0].translation[..]),
            (&[20.0, 30.0][..], &[10.0, 10.0][..])
        );
        assert_eq!(read.channels(), ["DAPI", "-"]);
    }

    #[test]
    fn scales_of_a_layout_are_those_of_the_levels_above_times_their_own() {
        let read = image(&json!({"multiscales": {"layout": [
            {"asset": "r10m", "transform": {"scale": [10.0, 10.0]}},
            {"asset": "r20m", "derived_from": "r10m", "transform": {"scale": [2.0, 2.0], "translation": [0.5, 0.5]}},
            {"asset": "r60m", "derived_from": "r20m", "transform": {"scale": [3.0, 3.0]}},
        ]}}))
        .unwrap()
        .unwrap();
        assert_eq!((read.convention, read.title().as_str()), (MultiscaleConvention::Layout, "multiscales"));
        assert_eq!((read.levels[1].path.as_str(), read.levels[1].scale[0]), ("r20m", 20.0));
        assert_eq!((read.levels[1].translation[0], read.levels[2].scale[0]), (5.0, 60.0));
    }

    /// Makes the attributes of an image of OME-Zarr 0.6, whose levels are placed in the second of its coordinate
    /// systems.
    fn image_06(steps: &[Value], members: &Value) -> Value {
        let axes = |prefix: &str| {
            json!([{"name": "t", "type": "time", "unit": "millisecond"}, {"name": format!("{prefix}y"), "type": "space",
                "unit": "micrometer"}, {"name": "x", "type": "space"}])
        };
        let datasets: Vec<Value> = steps
            .iter()
            .enumerate()
            .map(|(number, step)| json!({"path": format!("s{number}"), "coordinateTransformations": [step]}))
            .collect();
        let mut image = json!({
            "coordinateSystems": [{"name": "world", "axes": axes("world_")}, {"name": "intrinsic", "axes": axes("")}],
            "datasets": datasets,
        });
        image.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({"ome": {"version": "0.6", "multiscales": [image]}})
    }

    fn step(kind: &str, members: &Value) -> Value {
        let mut step = json!({"type": kind, "input": {"path": "s0"}, "output": {"name": "intrinsic"}});
        step.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        step
    }

    #[test]
    fn levels_of_version_0_6_lead_to_the_system_that_gives_the_axes() {
        let scale = json!({"type": "scale", "scale": [0.1, 1.0, 2.0]});
        let shift = json!({"type": "translation", "translation": [0, 0.5, 1]});
        let to_world = json!({"type": "affine", "affine": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 9]],
            "input": {"name": "intrinsic"}, "output": {"name": "world"}});
        let steps = [
            step("identity", &json!({})),
            step("scale", &json!({"scale": [0.1, 1.0, 2.0]})),
            step("sequence", &json!({"transformations": [scale, shift]})),
        ];
        let read = image(&image_06(&steps, &json!({"coordinateTransformations": [to_world]}))).unwrap().unwrap();
        let names: Vec<&str> = read.axes.iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!((names, read.axes[0].unit.as_deref()), (vec!["t", "y", "x"], Some("millisecond")));
        assert!(read.levels[0].scale.is_empty(), "an identity changes nothing");
        assert_eq!((&read.levels[1].scale[..], &read.levels[1].translation[..]), (&[0.1, 1.0, 2.0][..], &[0.0; 3][..]));
        assert_eq!(read.levels[2].translation, [0.0, 0.5, 1.0]);
        let coordinates = read.coordinates.unwrap();
        assert_eq!((coordinates.intrinsic.as_str(), coordinates.systems.len()), ("intrinsic", 2));
        assert_eq!(coordinates.transformations, [to_world], "it moves the whole image, not its levels");
    }

    #[test]
    fn what_levels_of_version_0_6_may_not_have_is_named() {
        let scale = step("scale", &json!({"scale": [1, 1, 1]}));
        let two = json!([scale, scale]);
        let list = json!({"datasets": [{"path": "s0", "coordinateTransformations": two}]});
        let elsewhere = step("scale", &json!({"scale": [1, 1, 1], "output": {"name": "elsewhere"}}));
        let nowhere = step("scale", &json!({"scale": [1, 1, 1], "output": {"path": "s0"}}));
        for (steps, members, named) in [
            (vec![], list, "a list of one transformation"),
            (vec![scale.clone(), elsewhere], json!({}), "the same coordinate system for all datasets"),
            (vec![nowhere], json!({}), "the name of a coordinate system"),
            (vec![step("scale", &json!({"scale": [1, 1]}))], json!({}), "3 numbers, one for each axis"),
            (vec![scale.clone()], json!({"coordinateSystems": null}), "coordinateSystems"),
            (vec![scale], json!({"coordinateTransformations": 1}), "coordinateTransformations"),
        ] {
            let error = image(&image_06(&steps, &members)).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::MetadataInvalid, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        for kind in
            ["affine", "rotation", "mapAxis", "projectAxis", "byDimension", "bijection", "displacements", "coordinates"]
        {
            let inside = step("sequence", &json!({"transformations": [{"type": kind}]}));
            for step in [step(kind, &json!({})), inside] {
                let error = image(&image_06(&[step], &json!({}))).unwrap_err();
                assert_eq!(error.kind(), crate::ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains(kind), "{error}");
            }
        }
    }

    #[test]
    fn attributes_of_other_groups_are_no_image_and_broken_ones_are_named() {
        for other in [json!({}), json!({"ome": {"labels": ["a"]}}), json!({"multiscales": {"tiles": 1}})] {
            assert_eq!(image(&other).unwrap(), None);
        }
        for (broken, member) in [
            (json!({"multiscales": []}), "multiscales"),
            (json!({"multiscales": [{"axes": 3, "datasets": [{"path": "0"}]}]}), "axes"),
            (json!({"ome": {"multiscales": [{"datasets": []}]}}), "datasets"),
            (json!({"ome": {"multiscales": [{"datasets": [{"path": 1}]}]}}), "path"),
            (json!({"multiscales": {"layout": [{"asset": 1}]}}), "asset"),
            (json!({"multiscales": {"layout": [{"asset": "a", "transform": {"scale": ["x"]}}]}}), "scale"),
            (
                json!({"multiscales": [{"axes": ["y", "x"], "datasets": [
                    {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1]}]}]}]}),
                "scale",
            ),
        ] {
            let error = image(&broken).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::MetadataInvalid);
            assert!(error.to_string().contains(member), "{error}");
        }
    }
}
