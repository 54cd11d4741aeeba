//! Multiscale pyramids in OME-Zarr 0.4 to 0.6: <https://ngff.openmicroscopy.org/0.5/#multiscale-md>,
//! <https://ngff.openmicroscopy.org/0.6/#multiscales-metadata>.
//!
//! Level 0 is a copy of the array. Every other level is computed from the previous level, region by region, and can be
//! resumed like a copy. The group's attributes, which make it an image, are written once all levels are complete.

mod attributes;
mod axes;
mod options;
mod source;

use std::sync::Arc;

use cuzarr_device::downsample::Downsampling;
use serde_json::{Map, Value, json};

use self::attributes::{Described, check_channels, omero, placed};
use self::axes::{axis_names, check_lists, factors_of_levels};
pub use self::options::{Labels, OmeVersion, PyramidOptions};
use self::source::{check_references, for_labels, labels_of, of_image};
use crate::checkpoint::{Checkpoint, differences};
use crate::copy::{Carrier, Changes, Copy, Existing, Here, Shrink};
use crate::progress::Progress;
use crate::spatial::{self, Place};
use crate::unfinished::Mark;
use cuzarr::internal::node::refuse_overlap;
use cuzarr::meta::{
    ArrayMetadata, ChunkKeyEncoding, DataType, FillValue, GroupMetadata, IMAGE_LABELS, NewArray, Separator, ZarrFormat,
    label_names,
};
use cuzarr::node::{self, Array, Consolidation, Group, Node, normalize_path};
use cuzarr::store::{Store, join_key};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// A pyramid of an image, planned and checked but not yet written.
pub struct Pyramid {
    source: Array,
    store: Arc<dyn Store>,
    path: String,
    existing: Existing,
    options: PyramidOptions,
    version: OmeVersion,
    method: Downsampling,
    axes: Vec<String>,
    /// For each level after the first, how many elements become one along each dimension.
    factors: Vec<Vec<u64>>,
    levels: Vec<ArrayMetadata>,
    /// Attributes of the source image that are copied unchanged, because OME-Zarr does not define them.
    kept: Map<String, Value>,
    /// The pyramids of the source image's labels.
    labels: Vec<Pyramid>,
}

impl Pyramid {
    /// Plans a pyramid of `source` in the group at `path`: levels `0`, `1`, …, each half as large as the previous one
    /// along spatial dimensions. With `options.labels`, the group at `path` is an image, and the pyramid becomes one of
    /// its labels. Nothing is written.
    ///
    /// # Errors
    /// `InvalidArgument` for names and numbers that do not fit; `Unsupported` for element types that the method does
    /// not support, and for arrays with missing elements that would count as numbers; `ContainsArray`, `ContainsGroup`;
    /// `BudgetExceeded` as for [`Copy::new`], for any level; for labels `GroupNotFound` when there is no image.
    pub fn new(
        source: &Array,
        store: Arc<dyn Store>,
        path: &str,
        existing: Existing,
        options: PyramidOptions,
    ) -> Result<Pyramid> {
        let path = normalize_path(path)?;
        let options = match options.labels {
            Some(_) => for_labels(source, &store, &path, options)?,
            None => options,
        };
        Pyramid::plan(source, store, &path, existing, options)
    }

    /// Plans a pyramid of an image and of all its labels. It starts from the largest level, and keeps axes, scale,
    /// units, channels and other attributes. Options take precedence over what the image says.
    ///
    /// # Errors
    /// `InvalidArgument` for a group that is not an image; those of [`Pyramid::new`].
    pub fn of_image(
        image: &Group,
        store: Arc<dyn Store>,
        path: &str,
        existing: Existing,
        options: PyramidOptions,
    ) -> Result<Pyramid> {
        if options.labels.is_some() {
            let error = Error::new(
                ErrorKind::InvalidArgument,
                format!("'{}' is an image, expected an array of labels", image.name()),
            );
            return Err(error.with_hint("choose the array of one of its levels"));
        }
        let path = normalize_path(path)?;
        let own = of_image(image)?;
        let options = own.options_for(options).at(|| format!("image {}", image.name()))?;
        let mut pyramid = Pyramid::plan(&own.array, Arc::clone(&store), &path, existing, options)?;
        pyramid.kept = own.kept;
        for (array, mut options) in labels_of(image, Some(pyramid.version))? {
            // Labels have as many levels as their image.
            options.levels = Some(pyramid.levels.len());
            options.factors = pyramid.factors_along(options.axes.as_deref().unwrap_or_default());
            let references = options.coordinates.as_ref().map_or(Ok(()), |own| check_references(own, &[]));
            let labels = references.and_then(|()| Pyramid::plan(&array, Arc::clone(&store), &path, existing, options));
            pyramid.labels.push(labels.at(|| format!("labels of {}", image.name()))?);
        }
        if let Some(coordinates) = &pyramid.options.coordinates {
            let names = pyramid.labels.iter().filter_map(|labels| Some(&*labels.options.labels.as_ref()?.name));
            check_references(coordinates, &names.collect::<Vec<_>>()).at(|| format!("image {}", image.name()))?;
        }
        Ok(pyramid)
    }

    fn plan(
        source: &Array,
        store: Arc<dyn Store>,
        image: &str,
        existing: Existing,
        options: PyramidOptions,
    ) -> Result<Pyramid> {
        let path = match &options.labels {
            Some(labels) => join(&join(image, IMAGE_LABELS), &normalize_path(&labels.name)?),
            None => image.to_string(),
        };
        let dtype =
            source.metadata().data_type().device_dtype().ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "pyramids do not support elements of variable length")
            })?;
        let usual = if options.labels.is_some() { Downsampling::Mode } else { Downsampling::Mean };
        let method = options.method.unwrap_or(usual);
        method.check(dtype)?;
        check_missing(source, method)?;
        if options.labels.is_some() && !is_label_type(source.metadata().data_type()) {
            let message = format!("labels are integers, the array has elements of {}", source.metadata().data_type());
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("convert the array to an integer type"));
        }
        let axes = axis_names(source, &options)?;
        check_lists(axes.len(), &options)?;
        if let Some(channels) = &options.channels {
            let axis = axes.iter().position(|name| name == "c");
            check_channels(channels, axis.map_or(1, |axis| source.shape()[axis]))?;
        }
        let version = options.version.unwrap_or(OmeVersion::V05);
        let factors = factors_of_levels(source.shape(), &axes, &options)?;
        let mut levels = vec![largest(source, &axes, &options.changes, version)?];
        let mut total = vec![1; axes.len()];
        place_on_earth(&mut levels[0], source.metadata(), &total, &axes)?;
        for factors in &factors {
            total.iter_mut().zip(factors).for_each(|(total, factor)| *total *= factor);
            let mut next = levels[levels.len() - 1].clone();
            let shrunk = next.shape().iter().zip(factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect();
            next.set_shape(shrunk)?;
            next.retain_decoding_attributes();
            if version == OmeVersion::V04 {
                name_dimensions(&mut next, &axes)?;
            }
            place_on_earth(&mut next, source.metadata(), &total, &axes)?;
            levels.push(next);
        }
        let (source, kept, labels) = (source.clone(), Map::new(), Vec::new());
        let pyramid =
            Pyramid { source, store, path, existing, options, version, method, axes, factors, levels, kept, labels };
        pyramid.check_target()?;
        pyramid.check_levels()?;
        Ok(pyramid)
    }

    /// Returns the shape of each level of the pyramid.
    pub fn shapes(&self) -> Vec<Vec<u64>> {
        self.levels.iter().map(|level| level.shape().to_vec()).collect()
    }

    /// Returns the plan of the pyramid as JSON: its levels, the attributes of the group, and the plans of labels.
    /// Contrast limits of channels are left out, because they are not known yet.
    pub fn to_json(&self) -> Value {
        let level = |(number, level): (usize, &ArrayMetadata)| json!({"path": number.to_string(), "shape": level.shape(), "chunk_shape": level.chunk_grid().chunk_shape()});
        let channels = self.options.channels.as_ref().map(|channels| json!({ "channels": channels }));
        json!({
            "target": format!("{}/{}", self.store, self.path), "method": self.method.name(),
            "levels": self.levels.iter().enumerate().map(level).collect::<Vec<_>>(), "attributes": self.attributes(channels),
            "labels": self.labels.iter().map(Pyramid::to_json).collect::<Vec<_>>(),
        })
    }

    /// Writes all levels of the image and of its labels. `progress` is called for each level's regions.
    ///
    /// # Errors
    /// Those of [`Copy::run`].
    pub fn run(self, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Group> {
        self.run_by(&Here, progress)
    }

    /// Like [`Pyramid::run`], but `carrier` computes the regions of levels, for example with workers of a cluster.
    ///
    /// # Errors
    /// Those of [`Copy::run_by`].
    pub fn run_by(mut self, carrier: &dyn Carrier, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Group> {
        let options = self.source.options().clone();
        options.cancellation.check()?;
        carrier.prepare(&options, &self.store)?;
        if self.existing == Existing::Overwrite {
            node::delete_node(&*self.store, &self.path)?;
        }
        let mark = self.mark();
        let level_exists = if self.existing == Existing::Resume { Existing::Resume } else { Existing::Refuse };
        let format = self.version.zarr_format();
        let mut metadata = GroupMetadata::new(format, Map::new())?;
        mark.on(&*self.store, &mut metadata)?;
        match Group::create_from(Arc::clone(&self.store), &self.path, metadata, false, options.clone()) {
            Err(error) if error.kind() == ErrorKind::ContainsGroup && self.existing == Existing::Resume => {
                mark.set(&mut self.open_group(&self.path, options.clone())?)?;
            }
            created => drop(created?),
        }
        let mut above = self.source.clone();
        for number in 0..self.levels.len() {
            let name = match &self.options.labels {
                Some(labels) => format!("labels {}, level {number}", labels.name),
                None => format!("level {number}"),
            };
            let copy = self.level_copy(&above, number, level_exists);
            above = copy.and_then(|copy| copy.run_by(carrier, &|now| progress(&name, now))).at(|| name.clone())?;
        }
        let channels = self.options.channels.as_ref().map(|channels| omero(channels, &above, &self.axes));
        let attributes = self.attributes(channels.transpose()?);
        for mut labels in std::mem::take(&mut self.labels) {
            // Labels to be replaced were deleted together with the image.
            labels.existing = level_exists;
            labels.run_by(carrier, progress)?;
        }
        let mut group = self.open_group(&self.path, options.clone())?;
        // The attributes replace the mark.
        group.set_attributes(attributes)?;
        if let Some(labels) = &self.options.labels {
            self.list_labels(&labels.name)?;
        }
        Ok(group)
    }

    fn open_group(&self, path: &str, options: node::ArrayOptions) -> Result<Group> {
        let format = Some(self.version.zarr_format());
        Group::open(Arc::clone(&self.store), path, format, Consolidation::Never, options)
    }

    /// Adds the labels' name to the list in the image's group of labels.
    fn list_labels(&self, name: &str) -> Result<()> {
        let parent = self.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let mut group = self.open_group(parent, self.source.options().clone())?;
        let mut names = label_names(group.metadata().attributes());
        if !names.iter().any(|other| other == name) {
            names.push(name.to_string());
        }
        let mut attributes = group.metadata().attributes().clone();
        let listed = placed(self.version, Map::from_iter([("labels".to_string(), json!(names))]));
        attributes.extend(listed);
        group.set_attributes(attributes)
    }

    /// Returns the factors that the caller gave, for the given axes; 1 for axes without one. `None` if the caller chose
    /// none.
    fn factors_along(&self, axes: &[String]) -> Option<Vec<u64>> {
        let own = self.options.factors.as_ref()?;
        let factor = |name: &String| self.axes.iter().position(|axis| axis == name).map_or(1, |at| own[at]);
        Some(axes.iter().map(factor).collect())
    }

    /// Plans the copy that computes a level from the level above.
    fn level_copy(&self, above: &Array, number: usize, existing: Existing) -> Result<Copy> {
        let shrink =
            number.checked_sub(1).map(|step| Shrink { factors: self.factors[step].clone(), method: self.method });
        let metadata = self.levels[number].clone();
        Copy::planned(
            above,
            Arc::clone(&self.store),
            &join(&self.path, &number.to_string()),
            metadata,
            existing,
            shrink,
            None,
        )
    }

    /// Checks that all levels can be written, before the first one is written.
    fn check_levels(&self) -> Result<()> {
        let mut above = self.source.clone();
        for (number, level) in self.levels.iter().enumerate() {
            self.level_copy(&above, number, Existing::Overwrite).at(|| format!("level {number}"))?;
            let (store, options) = (Arc::clone(&self.store), self.source.options().clone());
            above = Array::from_metadata(store, &join(&self.path, &number.to_string()), level.clone(), options)?;
        }
        Ok(())
    }

    fn check_target(&self) -> Result<()> {
        refuse_overlap((self.source.store(), self.source.path()), (&self.store, &self.path))?;
        Checkpoint::check_place(&*self.store, &self.path)?;
        if self.existing == Existing::Overwrite {
            return Ok(());
        }
        let options = self.source.options().clone();
        let other = "replace it with `overwrite`, or choose another place";
        let (kind, what, hint) = match node::open_existing(Arc::clone(&self.store), &self.path, None, options) {
            Err(error) if error.kind() == ErrorKind::NodeNotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(Node::Group(found)) if self.existing == Existing::Resume => {
                self.mark().check(&found)?;
                return self.check_complete(&found);
            }
            Ok(Node::Array(_)) => (ErrorKind::ContainsArray, "an array", other.to_string()),
            Ok(Node::Group(found)) if found.metadata().unfinished().is_some() => {
                (ErrorKind::ContainsGroup, "an unfinished hierarchy", format!("go on with `resume`, {other}"))
            }
            Ok(Node::Group(_)) => (ErrorKind::ContainsGroup, "a group", other.to_string()),
        };
        let message = format!("{}: there is {what} at '/{}' already", self.store, self.path);
        Err(Error::new(kind, message).with_hint(hint))
    }

    /// Refuses to continue with a complete pyramid that was made with other settings, because its levels would not
    /// change.
    fn check_complete(&self, found: &Group) -> Result<()> {
        let attributes = found.metadata().attributes();
        let ome = attributes.get("ome").unwrap_or(&Value::Null);
        let images = ome.get("multiscales").or_else(|| attributes.get("multiscales"));
        let Some(image) = images.and_then(|images| images.get(0)) else { return Ok(()) };
        let Some(method) = image.get("type") else { return Ok(()) };
        let levels = image.get("datasets").and_then(Value::as_array).map(Vec::len);
        let before = json!({"method": method, "levels": levels});
        let differences = differences(&before, &json!({"method": self.method.name(), "levels": self.levels.len()}));
        if differences.is_empty() {
            return Ok(());
        }
        let message =
            format!("{}: there is a whole image with other settings ({differences}) at '/{}'", self.store, self.path);
        Err(Error::new(ErrorKind::ContainsGroup, message)
            .with_hint("replace it with `overwrite`, or choose another place"))
    }

    /// Returns the attribute that marks the group as a pyramid that is not completely written yet. It records every
    /// option, including those that were chosen here.
    fn mark(&self) -> Mark {
        let given = &self.options;
        let mut options = given.changes.to_json();
        let own = json!({
            "version": self.version.name(), "method": self.method.name(), "levels": self.levels.len(), "axes": self.axes,
            "factors": self.factors, "scale": given.scale, "translation": given.translation, "units": given.units,
            "name": given.name, "channels": given.channels, "labels": given.labels.as_ref().map(|labels| &labels.name),
        });
        let own = own.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        options.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        Mark::new("pyramid", (self.source.store(), self.source.path()), options)
    }

    /// Returns the OME-Zarr attributes that make the group an image.
    fn attributes(&self, omero: Option<Value>) -> Map<String, Value> {
        let own = self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("image");
        let described = Described {
            version: self.version,
            name: self.options.name.clone().unwrap_or_else(|| own.to_string()),
            method: self.method,
            axes: &self.axes,
            units: self.options.units.as_deref(),
            scale: self.options.scale.clone().unwrap_or_else(|| vec![1.0; self.axes.len()]),
            translation: self.options.translation.as_deref(),
            factors: &self.factors,
            coordinates: self.options.coordinates.as_ref(),
            source_axes: &self.options.source_axes,
        };
        let mut members = Map::from_iter([("multiscales".to_string(), described.multiscales())]);
        members.extend(omero.map(|omero| ("omero".to_string(), omero)));
        if let Some(labels) = &self.options.labels {
            let mut label = Map::from_iter([("source".to_string(), json!({"image": "../../"}))]);
            label.extend(labels.metadata.clone());
            label.insert("version".into(), json!(self.version.name()));
            members.insert("image-label".into(), Value::Object(label));
        }
        let mut attributes = placed(self.version, members);
        attributes.extend(self.kept.clone());
        attributes
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { join_key(path, name) }
}

/// Returns the metadata of the largest level.
fn largest(source: &Array, axes: &[String], changes: &Changes, version: OmeVersion) -> Result<ArrayMetadata> {
    let format = version.zarr_format();
    let changes = Changes { zarr_format: Some(format), ..changes.clone() };
    if format == ZarrFormat::V3 {
        // Dimensions are named after `apply`: in format 2, xarray takes the fill value of an array with dimension names
        // for the mark of missing elements.
        let mut level = changes.apply(source.metadata())?;
        name_dimensions(&mut level, axes)?;
        return Ok(level);
    }
    let mut named = source.metadata().clone();
    name_dimensions(&mut named, axes)?;
    let level = changes.apply(&named)?;
    let is_mark = named.zarr_format() == ZarrFormat::V3 || source.metadata().xarray_dimensions().is_some();
    let fill_value = if is_mark { level.fill_value().clone() } else { FillValue::Undefined };
    // Version 0.4 has one folder for each dimension.
    let chunk_key_encoding = Some(ChunkKeyEncoding::V2 { separator: Separator::Slash });
    let mut level_of_folders = ArrayMetadata::new(NewArray {
        fill_value,
        chunk_key_encoding,
        ..NewArray::plain(
            level.shape(),
            level.data_type().clone(),
            level.chunk_grid().chunk_shape(),
            level.codecs().clone(),
        )
    })?;
    level_of_folders.set_attributes_json(&level.attributes_json())?;
    Ok(level_of_folders)
}

/// Sets the names of the dimensions, in the metadata or attributes according to the array's format.
fn name_dimensions(metadata: &mut ArrayMetadata, axes: &[String]) -> Result<()> {
    if metadata.zarr_format() == ZarrFormat::V3 {
        return metadata.set_dimension_names(axes.iter().cloned().map(Some).collect());
    }
    let mut attributes = metadata.attributes().clone();
    attributes.insert("_ARRAY_DIMENSIONS".into(), json!(axes));
    metadata.set_attributes(attributes)
}

/// Adds the source's georeference to a level. Each element of the level is made from `factors` elements of the source.
/// The level gets the transformation of its own indices, and the names of its own dimensions.
fn place_on_earth(level: &mut ArrayMetadata, source: &ArrayMetadata, factors: &[u64], axes: &[String]) -> Result<()> {
    let mut own = spatial::georeference(source.attributes());
    if own.is_empty() {
        return Ok(());
    }
    let names = source.xarray_dimensions().unwrap_or_default();
    let places = factors.iter().zip(source.shape()).map(|(&factor, &len)| Place::combined(factor, len));
    spatial::relocate(&mut own, &names, &places.collect::<Vec<_>>());
    spatial::rename(&mut own, &names, axes);
    let mut attributes = level.attributes().clone();
    // The largest level already has a list of conventions, which may contain others too.
    own.retain(|name, _| name != spatial::CONVENTIONS || !attributes.contains_key(name));
    attributes.extend(own);
    level.set_attributes(attributes)
}

/// Whether OME-Zarr allows this element type for labels.
fn is_label_type(data_type: &DataType) -> bool {
    use cuzarr_device::DTypeKind::{Int, UInt};
    data_type.device_dtype().is_some_and(|dtype| matches!(dtype.kind(), Int | UInt))
}

/// Refuses methods that would mix the number that marks missing elements with other elements.
fn check_missing(source: &Array, method: Downsampling) -> Result<()> {
    let counts = matches!(method, Downsampling::Mean | Downsampling::Max | Downsampling::Gaussian);
    let Some(mark) = source.metadata().missing_number().filter(|_| counts) else { return Ok(()) };
    let message =
        format!("{mark} marks missing elements of {}, and would count in their {}", source.name(), method.name());
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("use the method nearest or mode, or write NaN for missing elements"))
}
