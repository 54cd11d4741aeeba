//! Multiscale pyramids in the form of OME-Zarr 0.5: <https://ngff.openmicroscopy.org/0.5/#multiscale-md>.
//!
//! Level 0 is a copy of the array. Every other level is made from the one before, region by region, and can be resumed like a
//! copy. The group's attributes, which make it an image, are written when all levels are there.

use std::sync::Arc;

use cuzarr_device::downsample::Downsampling;
use serde_json::{Map, Value, json};

use crate::checkpoint::Checkpoint;
use crate::copy::{Changes, Copy, Existing, Shrink};
use crate::progress::Progress;
use cuzarr::meta::{ArrayMetadata, ZarrFormat};
use cuzarr::node::refuse_overlap;
use cuzarr::node::{self, Array, Group, normalize_path};
use cuzarr::store::{Store, join_key};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// Most levels, and the extent below which no further level is needed.
const MOST_LEVELS: usize = 16;
const SMALL_EXTENT: u64 = 256;

/// Default names of dimensions for arrays without names. The last ones are used first.
const AXES: [&str; 5] = ["x", "y", "z", "c", "t"];

/// Settings of a pyramid.
#[derive(Clone, Debug)]
pub struct PyramidOptions {
    /// The method that makes one element of several.
    pub method: Downsampling,
    /// The number of levels, including the first; `None`: until no spatial extent is above 256.
    pub levels: Option<usize>,
    /// Names of the dimensions, such as `t c z y x`; `None`: the array's own names, or the last of these.
    pub axes: Option<Vec<String>>,
    /// Size of an element along each dimension; `None` for 1.
    pub scale: Option<Vec<f64>>,
    /// Unit of each dimension, such as `micrometer`; empty for none.
    pub units: Option<Vec<String>>,
    /// Chunks, shards and compressors of all levels.
    pub changes: Changes,
}

impl Default for PyramidOptions {
    fn default() -> Self {
        PyramidOptions {
            method: Downsampling::Mean,
            levels: None,
            axes: None,
            scale: None,
            units: None,
            changes: Changes::default(),
        }
    }
}

/// A planned and checked pyramid.
pub struct Pyramid {
    source: Array,
    store: Arc<dyn Store>,
    path: String,
    existing: Existing,
    options: PyramidOptions,
    axes: Vec<String>,
    factors: Vec<u64>,
    levels: Vec<ArrayMetadata>,
}

impl Pyramid {
    /// Plans a pyramid of `source` in the group at `path`: levels `0`, `1`, …, each half as large as the one before along
    /// spatial dimensions. Writes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for names and numbers that do not fit; `Unsupported` for elements that the method has no meaning for,
    /// or of which some are missing and would count; `ContainsArray`, `ContainsGroup`; `BudgetExceeded` as of [`Copy::new`],
    /// for any level.
    pub fn new(
        source: &Array,
        store: Arc<dyn Store>,
        path: &str,
        existing: Existing,
        options: PyramidOptions,
    ) -> Result<Pyramid> {
        let path = normalize_path(path)?;
        let dtype =
            source.metadata().data_type().device_dtype().ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "pyramids do not support elements of variable length")
            })?;
        options.method.check(dtype)?;
        check_missing(source, options.method)?;
        let axes = axis_names(source, &options)?;
        check_lengths(source.metadata().ndim(), &options)?;
        let shape = source.shape();
        let factors: Vec<u64> =
            axes.iter().zip(shape).map(|(name, &len)| if is_spatial(name) && len > 1 { 2 } else { 1 }).collect();
        let changes = Changes { zarr_format: Some(ZarrFormat::V3), ..options.changes.clone() };
        let mut level = changes.apply(source.metadata())?;
        level.set_dimension_names(axes.iter().cloned().map(Some).collect())?;
        let count = options.levels.unwrap_or_else(|| levels_for(shape, &factors));
        if !(1..=MOST_LEVELS).contains(&count) {
            let message = format!("a pyramid has 1 to {MOST_LEVELS} levels, got {count}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let mut levels = vec![level];
        for number in 1..count {
            let mut next = levels[number - 1].clone();
            let shrunk = next.shape().iter().zip(&factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect();
            next.set_shape(shrunk)?;
            next.retain_decoding_attributes();
            levels.push(next);
        }
        let pyramid = Pyramid { source: source.clone(), store, path, existing, options, axes, factors, levels };
        pyramid.check_target()?;
        pyramid.check_levels()?;
        Ok(pyramid)
    }

    /// The shapes of all levels.
    pub fn shapes(&self) -> Vec<Vec<u64>> {
        self.levels.iter().map(|level| level.shape().to_vec()).collect()
    }

    /// The plan as JSON: the levels, and the attributes that the group will have.
    pub fn to_json(&self) -> Value {
        let level = |(number, level): (usize, &ArrayMetadata)| json!({"path": number.to_string(), "shape": level.shape(), "chunk_shape": level.chunk_grid().chunk_shape()});
        json!({
            "target": format!("{}/{}", self.store, self.path), "method": self.options.method.name(),
            "levels": self.levels.iter().enumerate().map(level).collect::<Vec<_>>(), "attributes": self.attributes(),
        })
    }

    /// Makes all levels. `progress` is called for each level's regions.
    ///
    /// # Errors
    /// Those of [`Copy::run`].
    pub fn run(self, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Group> {
        let options = self.source.options().clone();
        options.cancellation.check()?;
        options.device.initialize()?;
        if self.existing == Existing::Overwrite {
            node::delete_node(&*self.store, &self.path)?;
        }
        let level_exists = if self.existing == Existing::Resume { Existing::Resume } else { Existing::Refuse };
        match Group::create(Arc::clone(&self.store), &self.path, ZarrFormat::V3, Map::new(), false, options.clone()) {
            Err(error) if error.kind() == ErrorKind::ContainsGroup && self.existing == Existing::Resume => {}
            created => drop(created?),
        }
        let mut above = self.source.clone();
        for number in 0..self.levels.len() {
            let name = format!("level {number}");
            let copy = self.level_copy(&above, number, level_exists);
            above = copy.and_then(|copy| copy.run(&|now| progress(&name, now))).at(|| name.clone())?;
        }
        let mut group = node::Group::open(self.store.clone(), &self.path, None, node::Consolidation::Never, options)?;
        group.set_attributes(self.attributes())?;
        Ok(group)
    }

    /// Plans the copy that makes a level of the one above.
    fn level_copy(&self, above: &Array, number: usize, existing: Existing) -> Result<Copy> {
        let shrink = Shrink { factors: self.factors.clone(), method: self.options.method };
        let shrink = (number > 0).then_some(shrink);
        let metadata = self.levels[number].clone();
        Copy::shrinking(above, Arc::clone(&self.store), &self.level_path(number), metadata, existing, shrink)
    }

    /// Refuses what a level would be refused for, before there is any.
    fn check_levels(&self) -> Result<()> {
        let mut above = self.source.clone();
        for (number, level) in self.levels.iter().enumerate() {
            self.level_copy(&above, number, Existing::Overwrite).at(|| format!("level {number}"))?;
            let (store, options) = (Arc::clone(&self.store), self.source.options().clone());
            above = Array::from_metadata(store, &self.level_path(number), level.clone(), options)?;
        }
        Ok(())
    }

    fn level_path(&self, number: usize) -> String {
        let name = number.to_string();
        if self.path.is_empty() { name } else { join_key(&self.path, &name) }
    }

    fn check_target(&self) -> Result<()> {
        refuse_overlap((self.source.store(), self.source.path()), (&self.store, &self.path))?;
        Checkpoint::check_place(&*self.store, &self.path)?;
        if self.existing != Existing::Refuse {
            return Ok(());
        }
        let options = self.source.options().clone();
        let (kind, what) = match node::open_existing(Arc::clone(&self.store), &self.path, None, options) {
            Err(error) if error.kind() == ErrorKind::NodeNotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(node::Node::Array(_)) => (ErrorKind::ContainsArray, "an array"),
            Ok(node::Node::Group(_)) => (ErrorKind::ContainsGroup, "a group"),
        };
        let message = format!("{}: there is {what} at '/{}' already", self.store, self.path);
        Err(Error::new(kind, message).with_hint("resume what was begun, overwrite it, or choose another place"))
    }

    /// The `ome` attribute of version 0.5.
    fn attributes(&self) -> Map<String, Value> {
        let axis = |(at, name): (usize, &String)| {
            let mut axis = Map::from_iter([("name".to_string(), json!(name))]);
            let kind = match name.as_str() {
                "t" => Some("time"),
                "c" => Some("channel"),
                name if is_spatial(name) => Some("space"),
                _ => None,
            };
            axis.extend(kind.map(|kind| ("type".to_string(), json!(kind))));
            let unit = self.options.units.as_ref().map(|units| &units[at]).filter(|unit| !unit.is_empty());
            axis.extend(unit.map(|unit| ("unit".to_string(), json!(unit))));
            Value::Object(axis)
        };
        let axes: Vec<Value> = self.axes.iter().enumerate().map(axis).collect();
        let datasets: Vec<Value> = (0..self.levels.len()).map(|number| self.dataset(number)).collect();
        let name = self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("image");
        let multiscale = json!({
            "name": name, "axes": axes, "datasets": datasets, "type": self.options.method.name(),
        });
        Map::from_iter([("ome".to_string(), json!({"version": "0.5", "multiscales": [multiscale]}))])
    }

    /// The place of a level's elements: the middle of the box that became one element, or its first element for `nearest`.
    fn dataset(&self, number: usize) -> Value {
        let own = self.options.scale.clone().unwrap_or_else(|| vec![1.0; self.axes.len()]);
        let factor = |at: usize| self.factors[at].pow(number as u32) as f64;
        let scale: Vec<f64> = own.iter().enumerate().map(|(at, size)| size * factor(at)).collect();
        let mut transformations = vec![json!({"type": "scale", "scale": scale})];
        if number > 0 && self.options.method != Downsampling::Nearest {
            let shift: Vec<f64> = own.iter().enumerate().map(|(at, size)| size * (factor(at) - 1.0) / 2.0).collect();
            transformations.push(json!({"type": "translation", "translation": shift}));
        }
        json!({"path": number.to_string(), "coordinateTransformations": transformations})
    }
}

fn is_spatial(name: &str) -> bool {
    matches!(name, "x" | "y" | "z")
}

fn levels_for(shape: &[u64], factors: &[u64]) -> usize {
    let mut shape = shape.to_vec();
    let mut levels = 1;
    while levels < MOST_LEVELS && shape.iter().zip(factors).any(|(&len, &factor)| factor > 1 && len > SMALL_EXTENT) {
        shape = shape.iter().zip(factors).map(|(len, factor)| len.div_ceil(*factor)).collect();
        levels += 1;
    }
    levels
}

/// Names of the dimensions in the specification's order: time, channel, then two or three of space.
fn axis_names(source: &Array, options: &PyramidOptions) -> Result<Vec<String>> {
    let ndim = source.metadata().ndim();
    let invalid = |message: String| {
        let error = Error::new(ErrorKind::InvalidArgument, message);
        Err(error.with_hint("name the axes: t, c, z, y, x, in this order, without those that the array has not"))
    };
    if !(2..=5).contains(&ndim) {
        return invalid(format!("OME-Zarr has images of 2 to 5 dimensions, the array has {ndim}"));
    }
    let own: Option<Vec<String>> = source.metadata().xarray_dimensions().and_then(|names| names.into_iter().collect());
    let known = |names: &Vec<String>| names.iter().all(|name| AXES.contains(&name.as_str()));
    let names = match (&options.axes, own) {
        (Some(names), _) => names.clone(),
        (None, Some(names)) if known(&names) => names,
        _ => AXES[..ndim].iter().rev().map(|name| (*name).to_string()).collect(),
    };
    let places: Vec<Option<usize>> = names.iter().map(|name| AXES.iter().position(|axis| axis == name)).collect();
    let ordered = places.windows(2).all(|pair| pair[0] > pair[1]);
    let spatial = names.iter().filter(|name| is_spatial(name)).count();
    if names.len() != ndim || places.contains(&None) || !ordered || spatial < 2 {
        return invalid(format!("the axes {names:?} do not fit an image of {ndim} dimensions"));
    }
    Ok(names)
}

/// Refuses methods that would let the number that marks missing elements take part in what is made of the others.
fn check_missing(source: &Array, method: Downsampling) -> Result<()> {
    let counts = matches!(method, Downsampling::Mean | Downsampling::Max);
    let Some(mark) = source.metadata().missing_number().filter(|_| counts) else { return Ok(()) };
    let message =
        format!("{mark} marks missing elements of {}, and would count in their {}", source.name(), method.name());
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("use the method nearest or mode, or write NaN for missing elements"))
}

fn check_lengths(ndim: usize, options: &PyramidOptions) -> Result<()> {
    let scale = options.scale.as_ref();
    let lengths = [("scale", scale.map(Vec::len)), ("units", options.units.as_ref().map(Vec::len))];
    for (what, length) in lengths {
        if length.is_some_and(|length| length != ndim) {
            let message = format!("the {what} has {} numbers, the array {ndim} dimensions", length.unwrap_or(0));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
    }
    if scale.is_some_and(|scale| scale.iter().any(|size| !size.is_finite() || *size <= 0.0)) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the scale {scale:?} has sizes that are not above 0"),
        ));
    }
    Ok(())
}
