//! Plans and makes the copy of one array, with its metadata and attributes. A copy is planned, carried out in one or
//! two passes, and can be resumed.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::carrier::{Carrier, Here};
use super::pass::{Pass, Shrink, element_bytes, refuse_other_shape};
use crate::checkpoint::{Checkpoint, Found, PassNote, differences, refuse_resuming, settings};
use crate::progress::{Meter, Tell};
use crate::regions::{OBJECT_SHARE, REGION_SHARE, limit_for, plannable_bytes};
use cuzarr::internal::meta::encoding::serializer;
use cuzarr::internal::node::chain;
use cuzarr::internal::node::{OLD_COPY_CHECKPOINT, refuse_overlap};
use cuzarr::meta::{ArrayMetadata, CodecsMetadata, Extension, FillValue, NewArray};
use cuzarr::node;
use cuzarr::node::{Array, ArrayOptions, Node, normalize_path};
use cuzarr::plan::{Regions, Selection};
use cuzarr::store::{Store, StoreExt, join_key};
use cuzarr::{Error, ErrorKind, Order, Result};

/// Name of the temporary array that a copy in two passes writes first, below the target's path.
const BETWEEN: &str = ".cuzarr-between";

/// Estimated cost of writing all elements to a temporary array, relative to reading them once. For 4 GiB on an H200
/// with 16 cores, a second pass took 0.8 to 1.8 s and reading 0.2 s; without the GPU, 1.8 s and 0.4 s
/// (`bench/record/nvidia-h200/rechunk.json`, `22-rechunk`).
const WRITING_AGAIN: f64 = 4.0;

/// Fixed cost of each object of the temporary array, expressed as the bytes that could be read in the same time.
const OBJECT_BYTES: f64 = 65536.0;

/// How a copy treats a target that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Refuse the copy if there is an array or group at the target.
    #[default]
    Refuse,
    /// Delete the array or group at the target, and copy.
    Overwrite,
    /// Continue an interrupted copy of the same source to the same target. A complete copy is left unchanged.
    Resume,
}

/// A planned and checked copy of one array. Nothing is written yet.
pub struct Copy {
    source: Array,
    target: Array,
    checkpoint: Checkpoint,
    passes: Vec<Pass>,
    begin: Begin,
    shrink: Option<Shrink>,
    /// The selection of source elements that are copied; `None` means all.
    select: Option<Selection>,
    /// Options of the target array, such as its memory limit and cancellation; the copy obeys them too.
    options: ArrayOptions,
}

/// How a copy or a computation begins at its target: with nothing there, by deleting an older node, or by going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    Fresh,
    Delete,
    GoOn,
    Complete,
}

impl Copy {
    /// Plans a copy of `source` to an array with `metadata` at `path`. The device and the memory limit come from the
    /// source's options. Regions take at most half of the limit; reading and writing them takes the other half.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cuzarr_compute::{Changes, Copy, Existing};
    /// use cuzarr::meta::ArrayMetadata;
    /// use cuzarr::node::{Array, ArrayOptions};
    /// use cuzarr::plan::Selection;
    /// use cuzarr::store::MemoryStore;
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let metadata = ArrayMetadata::from_json(br#"{
    ///     "zarr_format": 3, "node_type": "array", "shape": [2, 4], "data_type": "uint8", "fill_value": 0,
    ///     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 4]}},
    ///     "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"]
    /// }"#)?;
    /// let source = Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, ArrayOptions::default())?;
    /// let everything = Selection::all(&[2, 4]);
    /// source.write_buffer(&everything, &NdBuffer::from_host(Device::Cpu, DType::UINT8, &[2, 4], Order::C, &[1, 2, 3, 4, 5, 6, 7, 8])?)?;
    /// let changes = Changes { chunks: Some(vec![None, Some(2)]), ..Changes::default() };
    /// let copy = Copy::new(&source, Arc::new(MemoryStore::new()), "b", changes.apply(source.metadata())?, Existing::Refuse)?;
    /// let target = copy.run(&|_| ())?;
    /// assert_eq!(target.chunk_shape()?, [2, 2]);
    /// assert_eq!(target.read_buffer(&everything)?.host_slice::<u8>()?, [1, 2, 3, 4, 5, 6, 7, 8]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when source and target overlap; `ShapeMismatch` and `DTypeMismatch` when the metadata does not fit the
    /// source; `ReadOnly`; `Unsupported` for a store that cannot delete values, like a ZIP file; `ContainsArray` and
    /// `ContainsGroup` when the target exists already; `BudgetExceeded` when one object of the target takes more than a sixth
    /// of the memory limit (large limits keep a part for gaps).
    pub fn new(
        source: &Array,
        store: Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        existing: Existing,
    ) -> Result<Copy> {
        Copy::planned(source, store, path, metadata, existing, None, None)
    }

    /// Like [`Copy::new`], but computes each target element from several source elements (`shrink`), or copies only the
    /// selected elements (`select`).
    pub(crate) fn planned(
        source: &Array,
        store: Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        existing: Existing,
        shrink: Option<Shrink>,
        select: Option<Selection>,
    ) -> Result<Copy> {
        let path = normalize_path(path)?;
        let expected = match (&shrink, &select) {
            (Some(shrink), _) => shrink.shape(source.shape()),
            (None, Some(select)) => select.shape(),
            (None, None) => source.shape().to_vec(),
        };
        check_alike(source.metadata(), &metadata, &expected)?;
        refuse_overlap((source.store(), source.path()), (&store, &path))?;
        Checkpoint::check_place(&*store, &path)?;
        if existing == Existing::Resume {
            refuse_resuming(&*store)?;
        }
        let own = source.options().clone();
        let plannable = plannable_bytes(own.memory_limit_bytes);
        // Readers disagree about the value of missing chunks when the fill value is undefined.
        let write_empty_chunks = own.write_empty_chunks || *metadata.fill_value() == FillValue::Undefined;
        let memory_limit_bytes = plannable / 2;
        let options = own
            .clone()
            .with_memory_limit_bytes(memory_limit_bytes)
            .with_order(Order::C)
            .with_write_empty_chunks(write_empty_chunks);
        let target = Array::from_metadata(store, &path, metadata, options.clone())?;
        chain(&target)?;
        let checkpoint = Checkpoint::new(&target, &origin(source, shrink.as_ref(), select.as_ref()));
        let (begin, noted) = look(&target, &checkpoint, existing)?;
        let source = source.with_options(options);
        let mut copy = Copy { source, target, checkpoint, passes: Vec::new(), begin, shrink, select, options: own };
        copy.passes = match begin {
            Begin::Fresh | Begin::Delete => copy.plan(plannable / REGION_SHARE)?,
            Begin::GoOn => copy.planned_before(noted, plannable / REGION_SHARE)?,
            Begin::Complete => Vec::new(),
        };
        if let Some(first) = copy.passes.first_mut() {
            first.select = copy.select.clone();
        }
        copy.checkpoint.passes = copy.passes.iter().map(note).collect();
        Ok(copy)
    }

    /// Returns the passes of the copy (each goes once through all elements); none if the copy is already complete.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Returns the size of all elements of the target, in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.target.metadata().elems().unwrap_or(u64::MAX).saturating_mul(element_bytes(&self.source))
    }

    /// Returns the plan of the copy as JSON: source, target, size and passes.
    pub fn to_json(&self) -> Value {
        let pass = |pass: &Pass| {
            json!({
                "regions": pass.regions.len(), "finished": pass.finished, "region_shape": pass.regions.shape(),
                "region_bytes": pass.regions.most_bytes(element_bytes(&self.source)), "source_reads": pass.reads,
                "objects": pass.target.metadata().chunk_grid().chunk_count(self.target.shape()).unwrap_or(u64::MAX),
                "target_chunks": pass.target.metadata().chunk_grid().chunk_shape(),
            })
        };
        json!({
            "source": format!("{}{}", self.source.store(), self.source.name()),
            "target": format!("{}{}", self.target.store(), self.target.name()),
            "array_bytes": self.array_bytes(), "complete": self.begin == Begin::Complete,
            "passes": self.passes.iter().map(pass).collect::<Vec<_>>(),
        })
    }

    /// Copies the elements and returns the target array. `progress` is called for every written region.
    ///
    /// # Errors
    /// Errors of reading and writing, with the region in the trail. Written chunks stay, and the copy can be resumed.
    pub fn run(self, progress: Tell<'_>) -> Result<Array> {
        self.run_by(&Here, progress)
    }

    /// Like [`Copy::run`], but `carrier` copies the regions, for example with workers of a cluster.
    ///
    /// # Errors
    /// Those of [`Copy::run`] and of the carrier; `Unsupported` for a carrier other than [`Here`] with a store that
    /// commits all writes together.
    pub fn run_by(mut self, carrier: &dyn Carrier, progress: Tell<'_>) -> Result<Array> {
        self.options.cancellation.check()?;
        carrier.prepare(&self.options, self.target.store())?; // fails before anything is deleted
        let (store, path) = (Arc::clone(self.target.store()), self.target.path().to_string());
        if self.begin == Begin::Delete {
            node::delete_node(&*store, &path)?;
        }
        if matches!(self.begin, Begin::Fresh | Begin::Delete) {
            if self.is_committed_by_caller() {
                // The store only accepts chunks of existing arrays, and readers see nothing before the commit.
                let metadata = self.target.metadata().clone();
                Array::create(Arc::clone(&store), &path, metadata, false, self.options.clone())?;
            } else {
                self.checkpoint.write()?;
            }
        }
        let meter = Meter::new(progress);
        self.passes.iter().for_each(|pass| pass.announce(&meter));
        for number in 0..self.passes.len() {
            self.run_pass(number, carrier, &meter)?;
        }
        let metadata = self.target.metadata().clone();
        let array = match Array::open(Arc::clone(&store), &path, self.options.clone()) {
            Err(error) if error.kind() == ErrorKind::ArrayNotFound => {
                Array::adopt(Arc::clone(&store), &path, metadata, self.options.clone())?
            }
            opened => opened?,
        };
        if self.passes.len() > 1 {
            node::delete_node(&*store, &join_key(&path, BETWEEN))?;
        }
        if !self.is_committed_by_caller() {
            self.checkpoint.end()?;
        }
        Ok(array)
    }

    /// Whether the target array becomes visible only when the caller commits its store. Such a copy has no checkpoint.
    fn is_committed_by_caller(&self) -> bool {
        self.target.store().capabilities().transactional
    }

    fn run_pass(&mut self, number: usize, carrier: &dyn Carrier, meter: &Meter<'_>) -> Result<()> {
        let pass = self.passes[number].clone();
        let mut rest = pass.unfinished(self.begin == Begin::GoOn)?;
        carrier.carry(&pass, self.options.memory_limit_bytes, &mut rest, &mut |region, finished| {
            if let Some(finished) = finished.filter(|_| !self.is_committed_by_caller()) {
                self.checkpoint.note_pass(number, finished)?;
            }
            meter.note(u64::from(finished.is_some()), pass.bytes(region));
            Ok(())
        })
    }

    fn plan(&self, most_bytes: u64) -> Result<Vec<Pass>> {
        if let Some(shrink) = &self.shrink {
            return self.plan_shrinking(shrink, most_bytes).map(|pass| vec![pass]);
        }
        let (shape, bytes) = (self.target.shape().to_vec(), element_bytes(&self.source));
        let mut read_unit = self.source.chunk_shape()?;
        if let Some(axes) = self.select.as_ref().and_then(Selection::axes) {
            // Chunks of the source, measured in elements of the target.
            read_unit = read_unit.iter().zip(axes).map(|(chunk, axis)| chunk.div_ceil(axis.step.max(1))).collect();
        }
        let write_unit = self.target.metadata().chunk_grid().chunk_shape().to_vec();
        self.check_budget(&write_unit)?;
        let direct = Regions::plan(&shape, bytes, &write_unit, &[&read_unit], most_bytes)?;
        let direct_reads = direct.reads(&read_unit);
        // The array between two passes has no metadata. Stores that the caller commits do not accept its chunks.
        if !self.is_committed_by_caller()
            && let Ok(rows) = Regions::plan(&shape, bytes, &read_unit, &[direct.shape()], most_bytes)
        {
            let axes = rows.shape().iter().zip(direct.shape()).zip(&shape);
            let between: Vec<u64> = axes.map(|((&row, &column), &len)| row.min(column).min(len.max(1))).collect();
            let first = Regions::plan(&shape, bytes, &between, &[&read_unit], most_bytes)?;
            let second = Regions::plan(&shape, bytes, &write_unit, &[&between], most_bytes)?;
            let (reads_first, reads_second) = (first.reads(&read_unit), second.reads(&between));
            let between_bytes = between.iter().fold(bytes as f64, |bytes, &extent| bytes * extent as f64);
            let again = WRITING_AGAIN + OBJECT_BYTES / between_bytes.max(1.0);
            if reads_first + reads_second + again < direct_reads {
                let middle = self.between(&between)?;
                return Ok(vec![
                    Pass::new(&self.source, &middle, first, 0, reads_first),
                    Pass::new(&middle, &self.target, second, 0, reads_second),
                ]);
            }
        }
        Ok(vec![Pass::new(&self.source, &self.target, direct, 0, direct_reads)])
    }

    /// Plans the only pass of a copy that combines several source elements into one, in regions along the target's
    /// grid. The size of a region counts the source elements that are read for it.
    fn plan_shrinking(&self, shrink: &Shrink, most_bytes: u64) -> Result<Pass> {
        let unit = self.target.metadata().chunk_grid().chunk_shape();
        self.check_budget(unit)?;
        let bytes = shrink.bytes(element_bytes(&self.source), unit);
        let chunk: Vec<u64> = self
            .source
            .chunk_shape()?
            .iter()
            .zip(&shrink.factors)
            .map(|(chunk, factor)| chunk.div_ceil(*factor))
            .collect();
        let regions = Regions::plan(self.target.shape(), bytes, unit, &[&chunk], most_bytes)?;
        let reads = regions.reads(&chunk);
        Ok(Pass { shrink: Some(shrink.clone()), ..Pass::new(&self.source, &self.target, regions, 0, reads) })
    }

    fn check_budget(&self, object: &[u64]) -> Result<()> {
        let one = object.iter().fold(element_bytes(&self.source), |bytes, &extent| bytes.saturating_mul(extent));
        let (planned, limit) = (one.saturating_mul(OBJECT_SHARE), self.options.memory_limit_bytes);
        if planned <= plannable_bytes(limit) {
            return Ok(());
        }
        let needed = limit_for(planned);
        let message =
            format!("objects of shape {object:?} take {one} bytes and need a memory limit of {needed}, got {limit}");
        Err(Error::new(ErrorKind::BudgetExceeded, message)
            .with_hint(format!("raise `memory_limit` to {needed} bytes, or write smaller chunks or shards")))
    }

    /// Restores the passes of an interrupted copy from the notes in its checkpoint.
    fn planned_before(&self, noted: Vec<PassNote>, most_bytes: u64) -> Result<Vec<Pass>> {
        let mut steps = vec![self.source.clone(), self.target.clone()];
        if let [first, _] = &noted[..] {
            steps.insert(1, self.between(&first.chunk_shape)?);
        }
        let target_chunk = self.target.metadata().chunk_grid().chunk_shape();
        if noted.len() + 1 != steps.len() || noted.last().is_none_or(|last| last.chunk_shape != target_chunk) {
            return Err(self.checkpoint.unreadable());
        }
        let passes = steps.windows(2).zip(noted).map(|(step, PassNote { region_shape, finished, .. })| {
            let regions = Regions::new(self.target.shape(), region_shape)?;
            if finished > regions.len() {
                return Err(self.checkpoint.unreadable());
            }
            let bytes = regions.most_bytes(element_bytes(&self.source));
            if bytes > most_bytes {
                let message =
                    format!("the copy was begun with regions of {bytes} bytes, now they may have {most_bytes}");
                return Err(Error::new(ErrorKind::BudgetExceeded, message)
                    .with_hint("raise `memory_limit` to what it was, or begin again with `overwrite`"));
            }
            let reads = regions.reads(&step[0].chunk_shape()?);
            Ok(Pass { shrink: self.shrink.clone(), ..Pass::new(&step[0], &step[1], regions, finished, reads) })
        });
        passes.collect()
    }

    /// Returns the temporary array that the first of two passes writes and the second one reads. Only this copy opens
    /// it. It is compressed with the fastest codec.
    fn between(&self, chunk_shape: &[u64]) -> Result<Array> {
        let metadata = self.source.metadata();
        let codecs = match metadata.data_type().size_bytes() {
            Some(size_bytes) => {
                let blosc = json!({
                    "cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": size_bytes.min(255), "blocksize": 0,
                });
                vec![serializer(metadata.data_type()), extension("blosc", blosc)]
            }
            None => vec![serializer(metadata.data_type())],
        };
        let new = NewArray {
            data_type_words: None,
            shape: self.target.shape().to_vec(),
            data_type: metadata.data_type().clone(),
            chunk_shape: chunk_shape.to_vec(),
            fill_value: match metadata.fill_value() {
                FillValue::Undefined => FillValue::default_of(metadata.data_type()),
                value => value.clone(),
            },
            codecs: CodecsMetadata::V3(codecs),
            chunk_key_encoding: None,
            attributes: Map::new(),
            dimension_names: None,
        };
        let path = join_key(self.target.path(), BETWEEN);
        Array::from_metadata(
            Arc::clone(self.target.store()),
            &path,
            ArrayMetadata::new(new)?,
            self.target.options().clone(),
        )
    }
}

/// Returns a text that identifies this copy: equal for the same work only.
fn origin(source: &Array, shrink: Option<&Shrink>, select: Option<&Selection>) -> String {
    let documents = source.metadata().documents();
    let documents: Vec<_> = documents.iter().map(|(name, bytes)| (name, String::from_utf8_lossy(bytes))).collect();
    let shrink = shrink.map(|shrink| json!([shrink.factors, shrink.method.name()]));
    let select = select.map(Selection::to_string);
    json!(["copy", source.store().to_string(), source.path(), documents, shrink, select]).to_string()
}

fn note(pass: &Pass) -> PassNote {
    PassNote {
        chunk_shape: pass.target.metadata().chunk_grid().chunk_shape().to_vec(),
        region_shape: pass.regions.shape().to_vec(),
        finished: pass.finished,
    }
}

/// Looks for a node or an interrupted copy at the target, and refuses those that `existing` does not allow. Returns the
/// action before the first pass, and the passes of a resumed copy.
pub(crate) fn look(target: &Array, checkpoint: &Checkpoint, existing: Existing) -> Result<(Begin, Vec<PassNote>)> {
    if existing == Existing::Overwrite {
        return Ok((Begin::Delete, Vec::new()));
    }
    let (store, path) = (target.store(), target.path());
    let contains =
        |kind: ErrorKind, what: &str| Error::new(kind, format!("{store}: there is {what} at '/{path}' already"));
    match (checkpoint.find()?, existing) {
        (Found::Same(passes), Existing::Resume) => return Ok((Begin::GoOn, passes)),
        (Found::Same(_), _) => {
            return Err(contains(ErrorKind::ContainsArray, "an unfinished array")
                .with_hint("go on with `resume`, or replace it with `overwrite`"));
        }
        (Found::Other(Some(differences)), _) => {
            let what = format!("an unfinished copy with other settings ({differences})");
            return Err(contains(ErrorKind::ContainsArray, &what)
                .with_hint("repeat the call that began it, or replace it with `overwrite`"));
        }
        (Found::Other(None), _) => {
            let what =
                "unfinished work: another computation, a copy of another source, or one to other chunks or codecs";
            return Err(contains(ErrorKind::ContainsArray, what)
                .with_hint("repeat the call that began it, or replace it with `overwrite`"));
        }
        (Found::Unreadable, _) => return Err(checkpoint.unreadable()),
        (Found::Nothing, _) if store.size_bytes(&join_key(path, OLD_COPY_CHECKPOINT))?.is_some() => {
            let what = "an unfinished copy that another version of cuzarr began";
            return Err(contains(ErrorKind::ContainsArray, what).with_hint("begin again with `overwrite`"));
        }
        (Found::Nothing, _) => {}
    }
    match node::open_existing(Arc::clone(store), path, None, target.options().clone()) {
        Ok(Node::Array(array)) => {
            let same = array.metadata().documents() == target.metadata().documents();
            if existing == Existing::Resume && same {
                return Ok((Begin::Complete, Vec::new()));
            }
            let differences = differences(&settings(array.metadata()), &settings(target.metadata()));
            let what = match existing {
                Existing::Resume if !differences.is_empty() => {
                    format!("a whole array with other settings ({differences})")
                }
                _ => "an array".to_string(),
            };
            Err(contains(ErrorKind::ContainsArray, &what)
                .with_hint("choose another place, or replace it with `overwrite`"))
        }
        Ok(Node::Group(_)) => Err(contains(ErrorKind::ContainsGroup, "a group")
            .with_hint("choose another place, or replace it with `overwrite`")),
        Err(error) if error.kind() != ErrorKind::NodeNotFound => Err(error),
        Err(_) if target.stored_chunks()?.is_empty() => Ok((Begin::Fresh, Vec::new())),
        Err(_) => Err(contains(ErrorKind::ContainsArray, "a set of chunks without metadata")
            .with_hint("choose another place, or replace it with `overwrite`")),
    }
}

fn check_alike(source: &ArrayMetadata, target: &ArrayMetadata, shape: &[u64]) -> Result<()> {
    refuse_other_shape(shape, target.shape())?;
    if source.data_type() != target.data_type() {
        let message =
            format!("the source has elements of {}, the target of {}", source.data_type(), target.data_type());
        return Err(Error::new(ErrorKind::DTypeMismatch, message));
    }
    Ok(())
}

fn extension(name: &str, configuration: Value) -> Extension {
    match configuration {
        Value::Object(configuration) => Extension::new(name, configuration),
        _ => Extension::new(name, Map::new()),
    }
}
