//! Changes that a copy makes: other chunks, other codecs or the other format.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::Chain;
use cuzarr::internal::meta::encoding;
use cuzarr::internal::meta::encoding::{completed, serializer, to_v2};
use cuzarr::meta::{
    ArrayMetadata, CodecsMetadata, DataType, Endian, Extension, NewArray, Order, ZarrFormat, translate,
};
use cuzarr::plan::{Selection, SliceArg};
use cuzarr::{Error, ErrorKind, Result};

use crate::spatial::{self, Place};

pub use cuzarr::internal::meta::encoding::compressor_named;

/// Extents along named dimensions; `None` means the whole dimension.
pub type NamedExtents = BTreeMap<String, Option<u64>>;

/// How a copy differs from its source: format, chunks, codecs, and which nodes and elements are copied. A field that is
/// `None` keeps the source's setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The Zarr format in which the copy is stored; `None` keeps the source's format.
    pub zarr_format: Option<ZarrFormat>,
    /// Elements of a chunk along each dimension; `None` means the whole dimension.
    pub chunks: Option<Vec<Option<u64>>>,
    /// Elements of a shard along each dimension; `Some(None)` means no shards.
    pub shards: Option<Option<Vec<Option<u64>>>>,
    /// Elements of a chunk along named dimensions, instead of `chunks`. Other dimensions keep their extents.
    pub named_chunks: NamedExtents,
    /// Elements of a shard along named dimensions, instead of `shards`. Other dimensions keep their extents.
    pub named_shards: NamedExtents,
    /// Changes for single arrays of a copied group, by their paths below the group. Codecs and the format default to
    /// those for all arrays; chunks and shards default to the source's.
    pub members: BTreeMap<String, Changes>,
    /// The compressors of the copy, as v3 codecs. An empty list means no compressor.
    pub compressors: Option<Vec<Extension>>,
    /// All codecs of the copy's chunks, as v3 codecs, in the order from elements to bytes. They replace `compressors`,
    /// and need format
    /// 3.
    pub codecs: Option<Vec<Extension>>,
    /// Paths of the arrays and groups to copy, relative to the copied group. Others are left out. An empty list copies
    /// all.
    pub only: Vec<String>,
    /// The elements to copy: a slice for each dimension name. A single array also accepts dimension numbers. Other
    /// dimensions are copied whole.
    pub select: BTreeMap<String, SliceArg>,
    /// Whether to leave out nodes of a copied group that cannot be read.
    pub skip_unreadable: bool,
}

impl Changes {
    /// Reads changes from JSON: `zarr_format`, `chunks`, `shards` (`false`: none), and the lists `compressors` and
    /// `codecs`. In lists of extents, `null` means a whole dimension. `chunks` and `shards` may be objects with
    /// dimension names as members. `members` is an object of changes by path. `only` is a list of paths. `select` maps
    /// each dimension to `[start, stop, step]`, each a number or `null`. `skip_unreadable` is true or false.
    ///
    /// # Errors
    /// `InvalidArgument` for other members or values.
    pub fn from_json(document: &Value) -> Result<Changes> {
        let wrong = |member: &str, value: &Value| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("'{member}' cannot be {value}")))
        };
        let mut changes = Changes::default();
        let Value::Object(members) = document else { return wrong("changes", document) };
        for (member, value) in members {
            match (member.as_str(), value) {
                (_, Value::Null) => {}
                ("zarr_format", value) if value == &json!(2) => changes.zarr_format = Some(ZarrFormat::V2),
                ("zarr_format", value) if value == &json!(3) => changes.zarr_format = Some(ZarrFormat::V3),
                ("shards", Value::Bool(false)) => changes.shards = Some(None),
                ("chunks", Value::Array(extents)) => changes.chunks = Some(parse_extents(extents)?),
                ("shards", Value::Array(extents)) => changes.shards = Some(Some(parse_extents(extents)?)),
                ("chunks", Value::Object(extents)) => changes.named_chunks = parse_named(extents)?,
                ("shards", Value::Object(extents)) => changes.named_shards = parse_named(extents)?,
                ("members", Value::Object(members)) => {
                    for (path, own) in members {
                        changes.members.insert(path.clone(), Changes::from_json(own)?);
                    }
                }
                ("compressors", Value::Array(codecs)) => changes.compressors = Some(parse_codecs(codecs, member)?),
                ("codecs", Value::Array(codecs)) => changes.codecs = Some(parse_codecs(codecs, member)?),
                ("only", Value::Array(paths)) if paths.iter().all(Value::is_string) => {
                    changes.only = paths.iter().filter_map(Value::as_str).map(String::from).collect();
                }
                ("select", Value::Object(slices)) => {
                    for (dimension, slice) in slices {
                        let Some(slice) = parse_slice(slice) else { return wrong(member, slice) };
                        changes.select.insert(dimension.clone(), slice);
                    }
                }
                ("skip_unreadable", Value::Bool(skip)) => changes.skip_unreadable = *skip,
                _ => return wrong(member, value),
            }
        }
        Ok(changes)
    }

    /// Returns the changes that decide what a copy contains, as JSON.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let extensions = |codecs: &Vec<Extension>| codecs.iter().map(Extension::to_json).collect::<Vec<_>>();
        let extents = |listed: Option<&Vec<Option<u64>>>, named: &NamedExtents| match listed {
            _ if !named.is_empty() => Some(json!(named)),
            listed => listed.map(|extents| json!(extents)),
        };
        let shards = match &self.shards {
            Some(None) if self.named_shards.is_empty() => Some(json!(false)),
            shards => extents(shards.as_ref().and_then(Option::as_ref), &self.named_shards),
        };
        let members =
            || self.members.iter().map(|(path, own)| (path.clone(), own.to_json())).collect::<BTreeMap<_, _>>();
        let select = || self.select.iter().map(|(name, slice)| (name, slice_text(slice))).collect::<BTreeMap<_, _>>();
        let options = [
            ("zarr_format", self.zarr_format.map(|format| json!(format.number()))),
            ("chunks", extents(self.chunks.as_ref(), &self.named_chunks)),
            ("shards", shards),
            ("members", (!self.members.is_empty()).then(|| json!(members()))),
            ("compressors", self.compressors.as_ref().map(|codecs| json!(extensions(codecs)))),
            ("codecs", self.codecs.as_ref().map(|codecs| json!(extensions(codecs)))),
            ("only", (!self.only.is_empty()).then(|| json!(self.only))),
            ("select", (!self.select.is_empty()).then(|| json!(select()))),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
    }

    /// Whether the node at `path` inside a group is copied: `only` names it, or a node below or above it.
    pub(super) fn keeps(&self, path: &str) -> bool {
        let is_below = |path: &str, above: &str| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        self.only.is_empty()
            || self.only.iter().any(|only| only == path || is_below(path, only) || is_below(only, path))
    }

    /// Returns which elements of `source` are copied; `None` means all.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no dimension or several dimensions have, and for an index or an empty slice.
    pub(super) fn selection(&self, source: &ArrayMetadata) -> Result<Option<Selection>> {
        if self.select.is_empty() {
            return Ok(None);
        }
        let mut slices = vec![SliceArg::Slice { start: None, stop: None, step: None }; source.ndim()];
        for (name, slice) in &self.select {
            let named = axis_named(name, source);
            let numbered = name.parse().ok().filter(|&axis: &usize| axis < source.ndim());
            slices[named.or_else(|error| numbered.ok_or(error))?] = *slice;
        }
        let selection = Selection::from_slices(&slices, source.shape())?;
        let is_range = slices.iter().all(|slice| matches!(slice, SliceArg::Slice { .. }));
        let shape = selection.shape();
        if is_range && shape.iter().zip(source.shape()).all(|(count, whole)| *count > 0 || *whole == 0) {
            return Ok(Some(selection));
        }
        let texts: Vec<String> =
            self.select.iter().map(|(name, slice)| format!("{name}={}", slice_text(slice))).collect();
        let message =
            format!("{} selects no range of elements of an array of shape {:?}", texts.join(", "), source.shape());
        Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("select ranges such as time=0:120"))
    }

    /// Returns the changes for the array at a path inside a group. Lists of extents only apply to arrays with as many
    /// dimensions, named extents only to arrays that have such a dimension.
    pub(super) fn of_member(&self, path: &str, metadata: &ArrayMetadata) -> Changes {
        let mut changes = Changes { members: BTreeMap::new(), ..self.clone() };
        let names = metadata.xarray_dimensions().unwrap_or_default();
        let is_known = |name: &String| names.iter().flatten().any(|known| known == name);
        changes.select.retain(|name, _| is_known(name));
        if let Some(own) = self.members.get(path) {
            let own = own.clone();
            return Changes {
                zarr_format: self.zarr_format,
                compressors: own.compressors.or(changes.compressors.filter(|_| own.codecs.is_none())),
                codecs: own.codecs.or(changes.codecs),
                members: BTreeMap::new(),
                select: changes.select,
                ..own
            };
        }
        if !self.members.is_empty() {
            return Changes {
                chunks: None,
                shards: None,
                named_chunks: BTreeMap::new(),
                named_shards: BTreeMap::new(),
                ..changes
            };
        }
        let ndim = metadata.ndim();
        changes.chunks = changes.chunks.filter(|chunks| chunks.len() == ndim);
        changes.shards = changes.shards.filter(|shards| shards.as_ref().is_none_or(|shards| shards.len() == ndim));
        changes.named_chunks.retain(|name, _| is_known(name));
        changes.named_shards.retain(|name, _| is_known(name));
        changes
    }

    /// Refuses settings for members that are not among `arrays`, and dimension names that no array has.
    ///
    /// # Errors
    /// `InvalidArgument`, with the nearest name.
    pub(super) fn check_names(&self, arrays: &[(String, Vec<String>)]) -> Result<()> {
        for path in self.members.keys() {
            if !arrays.iter().any(|(known, _)| known == path) {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("the group has no array '{path}'"))
                    .with_nearest(path, arrays.iter().map(|(known, _)| known.as_str())));
            }
        }
        let dimensions = || arrays.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
        for name in self.named_chunks.keys().chain(self.named_shards.keys()).chain(self.select.keys()) {
            if !dimensions().any(|known| known == name) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("no array of the group has a dimension '{name}'"),
                )
                .with_nearest(name, dimensions()));
            }
        }
        Ok(())
    }

    /// Refuses chunk and shard shapes if no array of the group has that number of dimensions.
    ///
    /// # Errors
    /// `InvalidArgument`
    pub(super) fn check_dimensions(&self, ndims: &[usize]) -> Result<()> {
        let shards = self.shards.as_ref().and_then(Option::as_ref);
        for (what, extents) in [("chunks", self.chunks.as_ref()), ("shards", shards)] {
            let Some(len) = extents.map(Vec::len).filter(|len| !ndims.contains(len)) else { continue };
            let known: BTreeSet<usize> = ndims.iter().copied().collect();
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            let message = format!("{what} have {len} dimensions, and no array of the group has as many");
            let hint = format!("the arrays have {} dimensions", known.join(", "));
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        }
        Ok(())
    }

    /// Makes the metadata of the copy from that of the source. Within a format, unchanged codecs are kept.
    ///
    /// Between formats, zstd, gzip and Blosc keep their settings, zstd replaces other compressors, and filters are left
    /// out. A sharded array loses its shards in v2. Dimension names and the value of missing elements move to their
    /// place in the other format, so that xarray reads the copy like the source. A v3 array with dimension names but
    /// without a missing value gets the fill value `null` in v2; [`Copy`](crate::Copy) then stores every chunk.
    ///
    /// ```
    /// use cuzarr_compute::Changes;
    /// use cuzarr::meta::ArrayMetadata;
    /// let source = ArrayMetadata::from_json_v2(br#"{
    ///     "zarr_format": 2, "shape": [100, 100], "chunks": [1, 100], "dtype": ">f4", "fill_value": null, "order": "C",
    ///     "filters": null, "compressor": {"id": "gzip", "level": 3}}"#, None)?;
    /// let changes = Changes::from_json(&serde_json::json!({"zarr_format": 3, "chunks": [null, 5], "shards": [null, 50]}))?;
    /// let target = changes.apply(&source)?;
    /// assert_eq!(target.chunk_grid().chunk_shape(), [100, 50]);
    /// assert!(String::from_utf8(target.to_json()).unwrap().contains("gzip"));
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for chunks and shards that do not fit; for shards, codecs or several compressors in v2; and
    /// for codecs together with compressors. Those of data types that the other format lacks.
    pub fn apply(&self, source: &ArrayMetadata) -> Result<ArrayMetadata> {
        let selected = match self.selection(source)? {
            None => None,
            Some(selection) => Some(self.part_of(source, &selection)?),
        };
        let source = selected.as_ref().unwrap_or(source);
        let format = self.zarr_format.unwrap_or(source.zarr_format());
        let same = format == source.zarr_format();
        let stored = Stored::of(source);
        let (chunk, shard) = self.shapes(source, &stored, format)?;
        let codecs = match format {
            ZarrFormat::V3 => self.codecs_v3(source, &stored, &chunk, shard.is_some())?,
            ZarrFormat::V2 => self.codecs_v2(source, &stored)?,
        };
        let translated = translate(source, format)?;
        let mut target = ArrayMetadata::new(NewArray {
            data_type_words: None,
            shape: source.shape().to_vec(),
            data_type: source.data_type().clone(),
            chunk_shape: shard.unwrap_or(chunk),
            fill_value: translated.fill_value,
            codecs,
            chunk_key_encoding: same.then(|| *source.chunk_key_encoding()),
            attributes: Map::new(),
            dimension_names: translated.dimension_names,
        })?;
        target.set_attributes_json(&translated.attributes)?;
        let keeps_shards = self.shards.is_none() && self.named_shards.is_empty();
        let keeps_chunks = self.chunks.is_none() && self.named_chunks.is_empty();
        let keeps_grid = keeps_shards && (keeps_chunks || stored.shard.is_some());
        if let Some(grid) = source.chunk_grid().rectilinear().filter(|_| keeps_grid && format == ZarrFormat::V3) {
            target.set_rectilinear_grid(grid.clone())?;
        }
        Ok(target)
    }

    /// Returns metadata for a copy of the selected elements: the source's, with another shape and georeference.
    fn part_of(&self, source: &ArrayMetadata, selection: &Selection) -> Result<ArrayMetadata> {
        if source.chunk_grid().rectilinear().is_some() && self.chunks.is_none() && self.named_chunks.is_empty() {
            let error = Error::new(ErrorKind::Unsupported, "a part of an array cannot keep chunks of several extents");
            return Err(error.with_hint("choose the chunks of the copy"));
        }
        let mut part = source.clone();
        part.set_shape(selection.shape())?;
        let mut attributes = source.attributes().clone();
        let ranges = selection.axes().unwrap_or_default().iter().zip(source.shape());
        let places: Vec<Place> = ranges.map(|(range, len)| Place::selected(range, *len)).collect();
        spatial::relocate(&mut attributes, &source.xarray_dimensions().unwrap_or_default(), &places);
        if attributes != *source.attributes() {
            part.set_attributes(attributes)?;
        }
        Ok(part)
    }

    /// Returns the chunk shape and the shard shape of the copy.
    fn shapes(
        &self,
        source: &ArrayMetadata,
        stored: &Stored,
        format: ZarrFormat,
    ) -> Result<(Vec<u64>, Option<Vec<u64>>)> {
        let shape = source.shape();
        let chunk = match &self.chunks {
            _ if !self.named_chunks.is_empty() => {
                let extents = with_named(&stored.chunk, &self.named_chunks, source)?;
                whole_where_open(&extents, shape, &vec![1; shape.len()], "chunks")?
            }
            Some(extents) => whole_where_open(extents, shape, &vec![1; shape.len()], "chunks")?,
            None => stored.chunk.clone(),
        };
        let shard = match &self.shards {
            _ if !self.named_shards.is_empty() => {
                let own = stored.shard.as_ref().unwrap_or(&chunk);
                let extents = with_named(own, &self.named_shards, source)?;
                Some(whole_where_open(&extents, shape, &chunk, "shards")?)
            }
            Some(Some(extents)) => Some(whole_where_open(extents, shape, &chunk, "shards")?),
            Some(None) => None,
            None if format == ZarrFormat::V2 => None,
            None => stored.shard.clone(),
        };
        if let Some(shard) = &shard {
            let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
            if format == ZarrFormat::V2 {
                return invalid("format 2 has no shards".into());
            }
            if shard.iter().zip(&chunk).any(|(shard, &chunk)| shard % chunk != 0) {
                let message = format!("shards of shape {shard:?} are not multiples of chunks of shape {chunk:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("set shards too, or to none"));
            }
        }
        Ok((chunk, shard))
    }

    fn codecs_v3(
        &self,
        source: &ArrayMetadata,
        stored: &Stored,
        chunk: &[u64],
        sharded: bool,
    ) -> Result<CodecsMetadata> {
        let mut codecs = match (&self.codecs, source.codecs()) {
            (Some(codecs), _) => {
                self.check_codecs(codecs)?;
                codecs.iter().map(|codec| completed(codec, source.data_type())).collect()
            }
            (None, CodecsMetadata::V3(_)) => stored.codecs.clone(),
            (None, CodecsMetadata::V2 { compressor, .. }) => {
                let compressor = compressor.as_ref().map(|codec| to_v3(codec, source.data_type()));
                [serializer(source.data_type())].into_iter().chain(compressor).collect()
            }
        };
        if let Some(compressors) = &self.compressors {
            let at = serializer_in(&codecs, source, chunk)?;
            codecs.truncate(at + 1);
            codecs.extend(compressors.iter().map(|codec| completed(codec, source.data_type())));
        }
        if sharded {
            return Ok(CodecsMetadata::V3(vec![encoding::sharding(chunk, &codecs, encoding::IndexLocation::End)?]));
        }
        Ok(CodecsMetadata::V3(codecs))
    }

    fn check_codecs(&self, codecs: &[Extension]) -> Result<()> {
        let invalid = |message: &str, hint| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        if self.compressors.is_some() {
            return invalid("got codecs and compressors", "add the compressors to the codecs");
        }
        if codecs.iter().any(|codec| codec.name == "sharding_indexed") {
            return invalid(
                "the codecs of a copy contain sharding",
                "set shards, and the codecs of the chunks in them",
            );
        }
        Ok(())
    }

    fn codecs_v2(&self, source: &ArrayMetadata, stored: &Stored) -> Result<CodecsMetadata> {
        if self.codecs.is_some() {
            let error = Error::new(ErrorKind::InvalidArgument, "format 2 has no list of codecs");
            return Err(error.with_hint("set the compressor instead"));
        }
        let given = match self.compressors.as_deref() {
            Some([]) => Some(None),
            Some([codec]) => Some(Some(to_v2(codec))),
            Some(more) => {
                let message = format!("format 2 has one compressor, got {}", more.len());
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            None => None,
        };
        if let CodecsMetadata::V2 { filters, compressor, order, endian } = source.codecs() {
            let compressor = given.unwrap_or_else(|| compressor.clone());
            return Ok(CodecsMetadata::V2 { filters: filters.clone(), compressor, order: *order, endian: *endian });
        }
        let kept = || -> Result<_> {
            let mut compressors = stored.codecs.iter().skip(serializer_in(&stored.codecs, source, &stored.chunk)? + 1);
            Ok(compressors.find(|codec| !is_checksum(&codec.name)).map(to_v2))
        };
        let object_codec = match source.data_type() {
            DataType::VariableString => Some("vlen-utf8"),
            DataType::VariableBytes => Some("vlen-bytes"),
            _ => None,
        };
        let filters = object_codec.map(|id| Map::from_iter([("id".to_string(), json!(id))])).into_iter().collect();
        Ok(CodecsMetadata::V2 {
            filters,
            compressor: given.map_or_else(kept, Ok)?,
            order: Order::C,
            endian: Endian::Little,
        })
    }
}

/// Parses a JSON list of all codecs of a chunk, as in v3 metadata.
///
/// # Errors
/// `InvalidArgument` for text that is not such a list.
pub fn codecs_from_json(text: &str) -> Result<Vec<Extension>> {
    let codecs: Vec<Value> = serde_json::from_str(text).map_err(|error| {
        let message = format!("'{text}' is not a JSON list of codecs");
        let hint =
            r#"write them like in zarr.json: [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 5}}]"#;
        Error::new(ErrorKind::InvalidArgument, message).with_hint(hint).with_source(error)
    })?;
    parse_codecs(&codecs, "codecs")
}

/// How an array is stored: its chunk shape, its shard shape and, in v3, its codecs.
struct Stored {
    chunk: Vec<u64>,
    shard: Option<Vec<u64>>,
    codecs: Vec<Extension>,
}

impl Stored {
    /// Reads the chunk shape, shard shape and codecs from an array's metadata. With nested shards, the outermost shards
    /// and the innermost chunks count.
    fn of(metadata: &ArrayMetadata) -> Stored {
        let outer = metadata.chunk_grid().chunk_shape().to_vec();
        let mut stored = Stored { chunk: outer.clone(), shard: None, codecs: Vec::new() };
        let CodecsMetadata::V3(codecs) = metadata.codecs() else { return stored };
        stored.codecs.clone_from(codecs);
        while let Some(sharding) = stored.codecs.iter().find(|codec| codec.name == "sharding_indexed") {
            let inner = |member: &str| sharding.configuration.get(member).and_then(Value::as_array);
            let extents = inner("chunk_shape").map(|all| all.iter().filter_map(Value::as_u64).collect::<Vec<_>>());
            let codecs =
                inner("codecs").map(|all| all.iter().filter_map(|one| Extension::from_json(one, "codecs").ok()));
            let (Some(extents), Some(codecs)) = (extents, codecs) else { break };
            let codecs = codecs.collect();
            (stored.chunk, stored.shard, stored.codecs) = (extents, Some(outer.clone()), codecs);
        }
        stored
    }
}

fn parse_codecs(codecs: &[Value], member: &str) -> Result<Vec<Extension>> {
    codecs.iter().map(|codec| Extension::from_json(codec, member)).collect()
}

fn parse_named(extents: &Map<String, Value>) -> Result<NamedExtents> {
    let named = extents.iter().map(|(name, extent)| {
        let extent = parse_extents(std::slice::from_ref(extent))?;
        Ok((name.clone(), extent.into_iter().next().flatten()))
    });
    named.collect()
}

/// Returns the extents `own`, with those replaced for which `named` has an extent under the dimension's name.
///
/// # Errors
/// `InvalidArgument` for a name that no dimension or several dimensions have.
fn with_named(own: &[u64], named: &NamedExtents, source: &ArrayMetadata) -> Result<Vec<Option<u64>>> {
    let mut extents: Vec<Option<u64>> = own.iter().copied().map(Some).collect();
    for (name, extent) in named {
        extents[axis_named(name, source)?] = *extent;
    }
    Ok(extents)
}

/// Returns the index of the dimension named `name`.
///
/// # Errors
/// `InvalidArgument` for a name that no dimension or several dimensions have.
fn axis_named(name: &str, source: &ArrayMetadata) -> Result<usize> {
    let names = source.xarray_dimensions().unwrap_or_default();
    let mut axes = (0..names.len()).filter(|&axis| names[axis].as_deref() == Some(name));
    let (Some(axis), None) = (axes.next(), axes.next()) else {
        let known: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let message = match known.contains(&name) {
            true => format!("several dimensions are named '{name}'"),
            false if known.is_empty() => format!("there is no dimension '{name}': the dimensions have no names"),
            false => format!("there is no dimension '{name}' among {known:?}"),
        };
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_nearest(name, known));
    };
    Ok(axis)
}

/// Parses a slice from the JSON list `[start, stop, step]`.
fn parse_slice(value: &Value) -> Option<SliceArg> {
    let [start, stop, step] = &value.as_array()?[..] else { return None };
    let bound = |value: &Value| if value.is_null() { Some(None) } else { value.as_i64().map(Some) };
    Some(SliceArg::Slice { start: bound(start)?, stop: bound(stop)?, step: bound(step)? })
}

/// Formats a slice like `0:120`.
fn slice_text(slice: &SliceArg) -> String {
    let text = |bound: Option<i64>| bound.map_or_else(String::new, |bound| bound.to_string());
    match slice {
        SliceArg::Index(index) => index.to_string(),
        SliceArg::Slice { start, stop, step: None } => format!("{}:{}", text(*start), text(*stop)),
        SliceArg::Slice { start, stop, step } => format!("{}:{}:{}", text(*start), text(*stop), text(*step)),
        SliceArg::Ellipsis => "...".to_string(),
    }
}

fn parse_extents(extents: &[Value]) -> Result<Vec<Option<u64>>> {
    let parse = |value: &Value| match value {
        Value::Null => Ok(None),
        value => match value.as_u64() {
            Some(extent) if extent > 0 => Ok(Some(extent)),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("an extent of chunks cannot be {value}"))),
        },
    };
    extents.iter().map(parse).collect()
}

/// Replaces each `None` in `extents` by the whole dimension, rounded up to a multiple of `unit`.
fn whole_where_open(extents: &[Option<u64>], shape: &[u64], unit: &[u64], what: &str) -> Result<Vec<u64>> {
    if extents.len() != shape.len() {
        let message = format!("{what} have {} dimensions, the array has {}", extents.len(), shape.len());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let whole = |(&len, &unit): (&u64, &u64)| len.div_ceil(unit).max(1).saturating_mul(unit);
    let axes = extents.iter().zip(shape.iter().zip(unit));
    Ok(axes.map(|(extent, axis)| extent.unwrap_or_else(|| whole(axis))).collect())
}

/// Returns the index in `codecs` of the codec that turns elements into bytes. Filters come before it, compressors after
/// it.
fn serializer_in(codecs: &[Extension], source: &ArrayMetadata, chunk: &[u64]) -> Result<usize> {
    let spec = ChunkSpec::new(chunk.to_vec(), source.data_type().clone(), source.fill_value().clone());
    Ok(Chain::from_extensions(codecs, spec)?.array_codec_count())
}

fn is_checksum(name: &str) -> bool {
    ["crc32c", "crc32", "adler32", "fletcher32"].contains(&name.trim_start_matches("numcodecs."))
}

/// Converts a v2 compressor or filter to the v3 codec that does the same.
fn to_v3(codec: &Map<String, Value>, data_type: &DataType) -> Extension {
    let get =
        |member: &str, default: Value| codec.get(member).filter(|value| !value.is_null()).cloned().unwrap_or(default);
    let size_bytes = data_type.size_bytes().unwrap_or(1);
    let configuration = match codec.get("id").and_then(Value::as_str) {
        Some("zstd") => json!({"level": get("level", json!(0)), "checksum": get("checksum", json!(false))}),
        Some("gzip") => json!({"level": get("level", json!(1))}),
        Some("blosc") => {
            let shuffle = match get("shuffle", json!(1)).as_i64() {
                Some(0) => "noshuffle",
                Some(2) => "bitshuffle",
                Some(-1) if size_bytes == 1 => "bitshuffle",
                _ => "shuffle",
            };
            json!({
                "cname": get("cname", json!("lz4")), "clevel": get("clevel", json!(5)), "shuffle": shuffle,
                "typesize": size_bytes.min(255), "blocksize": get("blocksize", json!(0)),
            })
        }
        _ => return encoding::default_compressor(),
    };
    let name = codec.get("id").and_then(Value::as_str).unwrap_or("zstd");
    match configuration {
        Value::Object(configuration) => Extension::new(name, configuration),
        _ => encoding::default_compressor(),
    }
}
