//! Everything that a pyramid takes over from its source image or, for labels, from the image that they belong to.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::options::{Labels, OmeVersion, PyramidOptions};
use crate::spatial;
use cuzarr::internal::meta::node::UNFINISHED;
use cuzarr::meta::{CoordinateSystems, IMAGE_LABELS, ImageLevel, MultiscaleConvention, Multiscales, label_names};
use cuzarr::node::{self, Array, Group, Node};
use cuzarr::store::Store;
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// Attributes of the source image that the pyramid replaces, because they say what a group is or how its levels are
/// stored. The new image writes its own.
const REPLACED: [&str; 7] = ["ome", "multiscales", "omero", "image-label", "labels", "_creator", UNFINISHED];

/// Attributes that show that a group holds several images instead of being one.
const COLLECTIONS: [&str; 4] = ["plate", "well", "scene", "bioformats2raw.layout"];

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// The image that a pyramid is made from: its largest level, and what its attributes say.
pub(super) struct Image {
    pub(super) array: Array,
    description: Multiscales,
    pub(super) kept: Map<String, Value>,
}

impl Image {
    /// Returns the options of a pyramid, with those that the caller left out taken from this image.
    ///
    /// # Errors
    /// `Unsupported` if the image's coordinate systems cannot be kept.
    pub(super) fn options_for(&self, mut options: PyramidOptions) -> Result<PyramidOptions> {
        if let Some(coordinates) = &self.description.coordinates {
            options.version = options.version.or(Some(OmeVersion::V06));
            check_kept(coordinates, &options)?;
            options.coordinates = options.coordinates.or_else(|| Some(coordinates.clone()));
        }
        let ndim = self.array.metadata().ndim();
        let level = &self.description.levels[0];
        let fits = |numbers: &Vec<f64>| numbers.len() == ndim;
        options.scale = options.scale.or_else(|| Some(level.scale.clone()).filter(fits));
        options.translation = options.translation.or_else(|| Some(level.translation.clone()).filter(fits));
        if self.description.axes.len() == ndim {
            let axes = || self.description.axes.iter();
            options.source_axes = axes().map(|axis| axis.members.clone()).collect();
            options.axes = options.axes.or_else(|| Some(axes().map(|axis| axis.name.clone()).collect()));
            let units = || axes().map(|axis| axis.unit.clone().unwrap_or_default()).collect();
            options.units = options.units.or_else(|| Some(units()));
        }
        options.name = options.name.or_else(|| self.description.name.clone());
        let channels = self.description.omero.as_ref().and_then(|omero| omero.get("channels")?.as_array());
        let channels = channels.map(|all| all.iter().filter_map(|one| one.as_object().cloned()).collect());
        options.channels = options.channels.or(channels);
        Ok(options)
    }
}

/// Refuses options that would lose further coordinate systems, or would move the levels' system relative to the others.
fn check_kept(coordinates: &CoordinateSystems, options: &PyramidOptions) -> Result<()> {
    let is_other =
        |system: &&Map<String, Value>| system.get("name").and_then(Value::as_str) != Some(&coordinates.intrinsic);
    let others = coordinates.systems.iter().filter(is_other).filter_map(|system| system.get("name")?.as_str());
    // Transformations may also lead to the coordinate systems of labels.
    let ends =
        coordinates.transformations.iter().flat_map(|step| ["input", "output"].map(|end| path_of(step.get(end)?)));
    let mut others: Vec<&str> = others.chain(ends.flatten()).collect();
    others.dedup();
    if others.is_empty() && coordinates.transformations.is_empty() {
        return Ok(());
    }
    let refuse = |message: String, hint: &str| Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint));
    match options.version {
        Some(version) if version != OmeVersion::V06 => {
            let message =
                format!("OME-Zarr {} has no coordinate systems, the image has also {others:?}", version.name());
            refuse(message, "choose version 0.6, or make the pyramid of the array of one of its levels")
        }
        _ if options.scale.is_some()
            || options.translation.is_some()
            || options.units.is_some()
            || options.axes.is_some() =>
        {
            let message = format!("the image's transformations to {others:?} are of its own scale, units and axes");
            refuse(
                message,
                "leave out scale, translation, units and axes, or make the pyramid of the array of one of its levels",
            )
        }
        _ => Ok(()),
    }
}

/// Returns the path in the input or output of a transformation. It names the group that has the coordinate system.
fn path_of(end: &Value) -> Option<&str> {
    end.get("path").and_then(Value::as_str).filter(|path| !matches!(*path, "" | "."))
}

/// Refuses an image whose transformations need data that a pyramid does not keep: arrays of numbers, and groups other
/// than the labels in `labels`.
///
/// # Errors
/// `Unsupported`
pub(super) fn check_references(coordinates: &CoordinateSystems, labels: &[&str]) -> Result<()> {
    let refuse = |what: String| {
        let message = format!("the image's transformations need {what}, which a pyramid does not keep");
        let error = Error::new(ErrorKind::Unsupported, message);
        Err(error.with_hint("make the pyramid of the array of one of its levels"))
    };
    for step in &coordinates.transformations {
        if let Some(path) = array_of_numbers(step) {
            return refuse(format!("the array {path:?}"));
        }
        for path in ["input", "output"].iter().filter_map(|end| path_of(step.get(*end)?)) {
            let is_kept = |name: &str| labels.contains(&name.trim_matches('/'));
            let below_labels = path.trim_start_matches("./").strip_prefix(IMAGE_LABELS);
            if !below_labels.and_then(|rest| rest.strip_prefix('/')).is_some_and(is_kept) {
                return refuse(format!("the group {path:?}"));
            }
        }
    }
    Ok(())
}

/// Returns the path of an array in which a transformation, or one of its parts, keeps its numbers.
fn array_of_numbers(step: &Value) -> Option<&str> {
    let parts = |name: &str| step.get(name).and_then(Value::as_array).into_iter().flatten();
    let part = |name: &str| step.get(name).into_iter();
    let mut inner =
        parts("transformations").chain(part("transformation")).chain(part("forward")).chain(part("inverse"));
    step.get("path").and_then(Value::as_str).or_else(|| inner.find_map(array_of_numbers))
}

/// Refuses a group with several multiscale images, because a pyramid has one.
fn check_single(attributes: &Map<String, Value>) -> Result<()> {
    let ome = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
    let Some(Value::Array(images)) = ome.get("multiscales") else { return Ok(()) };
    if images.len() < 2 {
        return Ok(());
    }
    let name = |image: &Value| image.get("name").and_then(Value::as_str).unwrap_or("-").to_string();
    let names: Vec<String> = images.iter().map(name).collect();
    let message = format!("the group has the images {names:?}, a pyramid keeps one");
    Err(Error::new(ErrorKind::Unsupported, message).with_hint("make the pyramid of the array of one of their levels"))
}

/// Adds the georeference that the image's group, the layout or the level's group has for the largest level.
fn with_georeference(group: &Group, level: &ImageLevel, array: Array) -> Result<Array> {
    let attributes = group.metadata().attributes();
    let mut georeference = spatial::georeference(attributes);
    let layout = attributes.get("multiscales").and_then(|all| all.get("layout")?.as_array());
    let is_level = |entry: &&Value| entry.get("asset").and_then(Value::as_str) == Some(&level.path);
    let entry = layout.and_then(|all| all.iter().find(is_level)?.as_object());
    georeference.extend(entry.map(spatial::georeference).unwrap_or_default());
    if let Ok(Node::Group(own)) = group.get(&level.path) {
        georeference.extend(spatial::georeference(own.metadata().attributes()));
    }
    let added = |name: &String| !array.metadata().attributes().contains_key(name);
    georeference.retain(|name, _| added(name));
    if georeference.is_empty() {
        return Ok(array);
    }
    let mut metadata = array.metadata().clone();
    georeference.extend(metadata.attributes().clone());
    metadata.set_attributes(georeference)?;
    Array::from_metadata(Arc::clone(array.store()), array.path(), metadata, array.options().clone())
}

/// Returns the largest level of an image, and what the image's attributes say.
///
/// # Errors
/// `InvalidArgument` for a group that is not an image; `Unsupported` for one with several.
pub(super) fn of_image(group: &Group) -> Result<Image> {
    let attributes = group.metadata().attributes();
    let Some(description) = Multiscales::of(attributes).at(|| group.name())? else {
        let ome = attributes.get("ome").and_then(Value::as_object);
        let is_collection =
            |name: &&str| attributes.contains_key(*name) || ome.is_some_and(|ome| ome.contains_key(*name));
        let collection = COLLECTIONS.iter().any(is_collection);
        let message = match collection {
            true => format!("'{}' holds several images", group.name()),
            false => format!("'{}' is a group, expected an array, or a group that is an image", group.name()),
        };
        return Err(invalid(message).with_hint("choose one of the images or arrays below it"));
    };
    let named = || format!("image {}", group.name());
    check_single(attributes).at(named)?;
    let level = &description.levels[0];
    let array = group.level(&level.path).and_then(|array| with_georeference(group, level, array)).at(named)?;
    let mut kept = attributes.clone();
    kept.retain(|name, _| !REPLACED.contains(&name.as_str()));
    // Each level has its own values of these attributes.
    spatial::remove_indices(&mut kept);
    // Removes `multiscales` from GeoZarr's list of conventions, since that attribute was removed.
    if let Some(Value::Array(conventions)) = kept.get_mut(spatial::CONVENTIONS) {
        conventions.retain(|one| one.get("name").and_then(Value::as_str) != Some("multiscales"));
    }
    Ok(Image { array, description, kept })
}

/// Returns the labels of an image, each with the options of its pyramid.
///
/// # Errors
/// Those of opening the labels.
pub(super) fn labels_of(image: &Group, version: Option<OmeVersion>) -> Result<Vec<(Array, PyramidOptions)>> {
    let Ok(Node::Group(list)) = image.get(IMAGE_LABELS) else { return Ok(Vec::new()) };
    let mut labels = Vec::new();
    for name in label_names(list.metadata().attributes()) {
        let group = list.group(&name).at(|| format!("labels '{name}'"))?;
        let attributes = group.metadata().attributes();
        let ome = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
        let metadata = ome.get("image-label").and_then(Value::as_object).cloned().unwrap_or_default();
        let own = of_image(&group).at(|| format!("labels '{name}'"))?;
        let given = Labels { name: name.clone(), metadata };
        let given = PyramidOptions { version, labels: Some(given), ..PyramidOptions::default() };
        let options = own.options_for(given).at(|| format!("labels '{name}'"))?;
        labels.push((own.array.clone(), options));
    }
    Ok(labels)
}

/// Returns the options for labels, with those that the caller left out taken from the image at the target.
///
/// # Errors
/// `GroupNotFound`; `InvalidArgument` for a group that is not an image, or an image of another version or shape.
pub(super) fn for_labels(
    source: &Array,
    store: &Arc<dyn Store>,
    path: &str,
    mut options: PyramidOptions,
) -> Result<PyramidOptions> {
    let hint = "make the image's pyramid first, then that of its labels";
    let opened = node::open_existing(Arc::clone(store), path, None, source.options().clone());
    let group = match opened {
        Ok(Node::Group(group)) => group,
        Ok(Node::Array(_)) => return Err(invalid(format!("'/{path}' is an array, expected an image")).with_hint(hint)),
        Err(error) if error.kind() == ErrorKind::NodeNotFound => {
            let message = format!("{store}: there is no image at '/{path}' that labels could belong to");
            return Err(Error::new(ErrorKind::GroupNotFound, message).with_hint(hint));
        }
        Err(error) => return Err(error),
    };
    let Some(image) = Multiscales::of(group.metadata().attributes())? else {
        return Err(invalid(format!("the group '/{path}' is no image")).with_hint(hint));
    };
    let version = match image.convention {
        MultiscaleConvention::OmeAttributes => OmeVersion::V04,
        MultiscaleConvention::OmeMember if image.coordinates.is_some() => OmeVersion::V06,
        MultiscaleConvention::OmeMember => OmeVersion::V05,
        MultiscaleConvention::Layout => {
            return Err(invalid(format!("'/{path}' is no image of OME-Zarr, which alone has labels")));
        }
    };
    if options.version.is_some_and(|other| other != version) {
        return Err(invalid(format!("the image '/{path}' is of version {}, and so are its labels", version.name())));
    }
    options.version = Some(version);
    let largest = group.array(&image.levels[0].path)?;
    take_over(source, largest.shape(), &image, options).at(|| format!("labels of '/{path}'"))
}

/// Completes the options of labels from the image that they belong to: axes, scale, units and number of levels. Labels
/// may lack dimensions, such as channels.
fn take_over(
    source: &Array,
    shape: &[u64],
    image: &Multiscales,
    mut options: PyramidOptions,
) -> Result<PyramidOptions> {
    let ndim = source.metadata().ndim();
    let names: Vec<&str> = image.axes.iter().map(|axis| axis.name.as_str()).collect();
    let own = options.axes.take().unwrap_or_else(|| {
        let left = names.iter().filter(|name| names.len() == ndim || **name != "c");
        left.map(|name| (*name).to_string()).collect()
    });
    let places: Option<Vec<usize>> = own.iter().map(|name| names.iter().position(|other| other == name)).collect();
    let Some(places) = places.filter(|places| places.len() == ndim && names.len() == shape.len()) else {
        let message = format!("the labels have {ndim} dimensions, the image has the axes {names:?}");
        return Err(invalid(message).with_hint("name the axes of the labels, which are some of the image's"));
    };
    let expected: Vec<u64> = places.iter().map(|&place| shape[place]).collect();
    let level: &ImageLevel = &image.levels[0];
    if options.scale.is_none() && source.shape() != expected {
        let message =
            format!("the labels have shape {:?}, the image has {expected:?} along their axes", source.shape());
        return Err(invalid(message).with_hint("pass the scale of the labels"));
    }
    let taken = |numbers: &[f64], none: f64| {
        places.iter().map(|&place| numbers.get(place).copied().unwrap_or(none)).collect::<Vec<_>>()
    };
    if options.scale.is_none() {
        options.scale = Some(taken(&level.scale, 1.0));
        options.translation = options.translation.or_else(|| Some(taken(&level.translation, 0.0)));
        options.levels = options.levels.or(Some(image.levels.len()).filter(|count| *count <= super::axes::MOST_LEVELS));
    }
    let units = || places.iter().map(|&place| image.axes[place].unit.clone().unwrap_or_default()).collect();
    options.units = options.units.or_else(|| Some(units()));
    options.axes = Some(own);
    Ok(options)
}
