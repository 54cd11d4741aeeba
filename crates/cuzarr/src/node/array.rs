//! Arrays: opening, creating and resizing them, and their metadata. `array_io` reads and writes their elements.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuzarr_device::Device;
use serde_json::{Map, Value};

use super::ArrayOptions;
use super::creation::{NewNodes, create_node};
use super::document::NodeLock;
use super::documents;
use super::path::normalize_path;
use crate::cancellation::CancellationToken;
use crate::codec::Chain;
use crate::error::{Result, ResultExt};
use crate::meta::{ArrayMetadata, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::run::{Access, Report};
use crate::store::{Identity, Store, StoreExt, join_key};

/// A Zarr array in a store, with its metadata and the options for its reads and writes. Cloning is cheap: each clone
/// has its own metadata and options.
#[derive(Clone)]
pub struct Array {
    store: Arc<dyn Store>,
    path: String,
    metadata: Arc<ArrayMetadata>,
    options: ArrayOptions,
    warnings: Vec<String>,
    chain: OnceLock<Arc<Chain>>,
    /// Whether the metadata came from the consolidated metadata of a group above the array. If so, that copy is checked
    /// as well as the array's own document.
    pub(super) trusts_consolidated: bool,
    pub(super) io: ArrayIo,
}

/// State that an array keeps between calls: its codec chain, bound to each device that was used, and the report of the
/// last call. A clone starts with the same state, but does not share later changes.
#[derive(Default)]
pub(super) struct ArrayIo {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) accesses: Vec<Arc<Access>>,
    pub(super) report: Option<Report>,
    pub(super) identity: Option<Identity>,
}

impl ArrayIo {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state for another `Array` of the same stored array, so that both share bound codecs and the last
    /// report.
    fn share(&self) -> ArrayIo {
        ArrayIo { state: Arc::clone(&self.state) }
    }
}

impl Clone for ArrayIo {
    fn clone(&self) -> Self {
        ArrayIo { state: Arc::new(Mutex::new(self.state().clone())) }
    }
}

impl Array {
    /// Opens the array at `path`, of format 2 or 3.
    ///
    /// # Errors
    /// `ArrayNotFound`; errors in the metadata or its codecs.
    pub fn open(store: Arc<dyn Store>, path: &str, options: ArrayOptions) -> Result<Array> {
        Array::open_format(store, path, None, options)
    }

    /// Opens the array at `path`, of Zarr format 2 or 3. With a `format`, only an array of that format is found.
    ///
    /// # Errors
    /// Those of [`Array::open`].
    pub fn open_format(
        store: Arc<dyn Store>,
        path: &str,
        format: Option<ZarrFormat>,
        options: ArrayOptions,
    ) -> Result<Array> {
        let path = normalize_path(path)?;
        let (metadata, warnings) = documents::find_array(&*store, &path, format)?;
        Array::opened(store, path, metadata, options, warnings)
    }

    pub(super) fn opened(
        store: Arc<dyn Store>,
        path: String,
        metadata: ArrayMetadata,
        options: ArrayOptions,
        warnings: Vec<String>,
    ) -> Result<Array> {
        let metadata = Arc::new(metadata);
        let (chain, io) = (OnceLock::new(), ArrayIo::default());
        let array = Array { store, path, metadata, options, warnings, chain, trusts_consolidated: false, io };
        array.chain()?;
        Ok(array)
    }

    /// Creates an array, and the groups above it.
    ///
    /// # Errors
    /// `ContainsArray` or `ContainsGroup` when `overwrite` is off and the path is taken, also by chunks without metadata (see
    /// [`Array::adopt`]); errors in the metadata's codecs, before anything is stored.
    pub fn create(
        store: Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        overwrite: bool,
        options: ArrayOptions,
    ) -> Result<Array> {
        let path = normalize_path(path)?;
        let array = Array::opened(store, path, metadata, options, Vec::new())?;
        let node = NodeMetadata::Array(Box::new((*array.metadata).clone()));
        create_node(&*array.store, &array.path, &node, overwrite)?;
        Ok(array)
    }

    /// Makes an array of chunks that are already stored at its path: stores its metadata, and creates the groups above
    /// it.
    ///
    /// A program can write all chunks through [`Array::from_metadata`], and then call this function. So readers see the
    /// whole array or nothing.
    ///
    /// # Errors
    /// Those of [`Array::create`] without `overwrite`, except for existing chunks.
    pub fn adopt(store: Arc<dyn Store>, path: &str, metadata: ArrayMetadata, options: ArrayOptions) -> Result<Array> {
        let path = normalize_path(path)?;
        let array = Array::opened(store, path, metadata, options, Vec::new())?;
        let node = NodeMetadata::Array(Box::new((*array.metadata).clone()));
        let node = (array.path.clone(), NodeDocuments::from(&node));
        NewNodes::adopt(&*array.store, vec![node])?.publish(&*array.store, Some(2))?;
        Ok(array)
    }

    /// Makes an array from known metadata, without reading its documents. The codecs are checked when they are first
    /// needed.
    ///
    /// # Errors
    /// `KeyInvalid` when the path is not valid.
    pub fn from_metadata(
        store: Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        options: ArrayOptions,
    ) -> Result<Array> {
        let path = normalize_path(path)?;
        Ok(Array {
            store,
            path,
            metadata: Arc::new(metadata),
            options,
            warnings: Vec::new(),
            chain: OnceLock::new(),
            trusts_consolidated: false,
            io: ArrayIo::default(),
        })
    }

    /// Marks that the array's metadata came, or may have come, from the consolidated metadata of a group above.
    #[must_use]
    pub(crate) fn trusting_consolidated(self) -> Array {
        Array { trusts_consolidated: true, ..self }
    }

    /// The store in which the array is.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The array's path in the store; the root's is empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The array's path with a leading `/`.
    pub fn name(&self) -> String {
        format!("/{}", self.path)
    }

    /// The array's metadata as it was read, with later changes through this `Array`.
    pub fn metadata(&self) -> &ArrayMetadata {
        &self.metadata
    }

    /// The options with which this `Array` reads and writes, such as the device and the memory limit.
    pub fn options(&self) -> &ArrayOptions {
        &self.options
    }

    /// Returns a clone of this `Array` that reads and writes with other options.
    #[must_use]
    pub fn with_options(&self, options: ArrayOptions) -> Array {
        Array { options, ..self.clone() }
    }

    /// Returns an `Array` of the same stored array whose reads and writes `cancellation` can stop. Both share
    /// the bound codecs and the last report.
    #[must_use]
    pub fn under(&self, cancellation: CancellationToken) -> Array {
        let mut array = self.sharing();
        array.options.cancellation = cancellation;
        array
    }

    /// Returns the array with another store object for the same data, such as one that counts requests. Both arrays
    /// share the bound codecs and the last report.
    #[must_use]
    pub(crate) fn with_store(&self, store: Arc<dyn Store>) -> Array {
        Array { store, ..self.sharing() }
    }

    /// Returns a clone of this array that shares its state with the original: the bound codecs and the last report.
    /// Small reads make two such clones, so copying the state would cost too much.
    fn sharing(&self) -> Array {
        Array {
            store: Arc::clone(&self.store),
            path: self.path.clone(),
            metadata: Arc::clone(&self.metadata),
            options: self.options.clone(),
            warnings: self.warnings.clone(),
            chain: self.chain.clone(),
            trusts_consolidated: self.trusts_consolidated,
            io: self.io.share(),
        }
    }

    /// Returns numbers that identify this `Array`: equal for two that share state, metadata and store, while both
    /// exist.
    pub(super) fn handle(&self) -> [usize; 3] {
        let store = Arc::as_ptr(&self.store).cast::<()>();
        [Arc::as_ptr(&self.io.state) as usize, Arc::as_ptr(&self.metadata) as usize, store as usize]
    }

    /// Warnings about the array's metadata documents.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The device in whose memory reads of this array make their results.
    pub fn device(&self) -> Device {
        self.options.device
    }

    /// Number of elements along each dimension.
    pub fn shape(&self) -> &[u64] {
        self.metadata.shape()
    }

    /// The codec chain of the array's chunks.
    ///
    /// # Errors
    /// `UnknownCodec` and others that the codecs report.
    pub(crate) fn chain(&self) -> Result<&Arc<Chain>> {
        if let Some(chain) = self.chain.get() {
            return Ok(chain);
        }
        let chain = Chain::new(&self.metadata).at(|| self.place())?;
        Ok(self.chain.get_or_init(|| Arc::new(chain)))
    }

    /// The shape of a chunk; chunks are decoded as a whole. In a sharded array, this is the shape of the inner chunks
    /// of the outermost shards.
    ///
    /// # Errors
    /// `UnknownCodec` and others that the codecs report.
    pub fn chunk_shape(&self) -> Result<Vec<u64>> {
        let chain = self.chain()?;
        Ok(chain.sharding().map_or(&chain.spec().shape, |sharding| &sharding.inner().spec().shape).clone())
    }

    /// The shape of a shard; `None` if chunks are stored without shards.
    ///
    /// # Errors
    /// `UnknownCodec` and others that the codecs report.
    pub fn shard_shape(&self) -> Result<Option<Vec<u64>>> {
        let chain = self.chain()?;
        Ok(chain.sharding().map(|_| chain.spec().shape.clone()))
    }

    /// Text with the store and the path, by which error messages name this array.
    pub(super) fn place(&self) -> String {
        format!("{}: array '/{}'", self.store, self.path)
    }

    /// The keys of the stored objects (chunks, or shards) that exist. Keys are relative to the array, and sorted.
    ///
    /// # Errors
    /// What the store reports.
    pub fn stored_chunks(&self) -> Result<Vec<String>> {
        let start = join_key(&self.path, "");
        let keys = self.store.list(&self.path)?;
        let relative = keys.iter().filter_map(|key| key.strip_prefix(&start));
        Ok(relative.filter(|key| self.chunk_at(key).is_some()).map(String::from).collect())
    }

    /// The grid coordinates of the chunk that is stored under `key`; `None` if the array's grid has no such chunk. The
    /// key is relative to the array.
    fn chunk_at(&self, key: &str) -> Option<Vec<u64>> {
        let chunk = self.metadata.chunk_key_encoding().parse_key(key, self.metadata.ndim())?;
        let counts = self.metadata.chunk_grid().chunk_counts(self.shape()).ok()?;
        chunk.iter().zip(counts).all(|(&at, count)| at < count).then_some(chunk)
    }

    /// Number of stored objects (chunks, or shards) that exist.
    ///
    /// # Errors
    /// What the store reports.
    pub fn nchunks_initialized(&self) -> Result<u64> {
        Ok(self.stored_chunks()?.len() as u64)
    }

    /// Number of bytes that are stored below the array's path, including metadata.
    ///
    /// # Errors
    /// What the store reports.
    pub fn nbytes_stored(&self) -> Result<u64> {
        let mut total = 0u64;
        for key in self.store.list(&self.path)? {
            total = total.saturating_add(self.store.size_bytes(&key)?.unwrap_or(0));
        }
        Ok(total)
    }

    /// Replaces all attributes, in this array and in the store.
    ///
    /// # Errors
    /// `ArrayNotFound` when the array is gone; what the store reports.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) -> Result<()> {
        let mut metadata = (*self.metadata).clone();
        metadata.set_attributes(attributes).at(|| self.place())?;
        self.store_attributes(metadata)
    }

    /// Like [`Array::set_attributes`], but takes the attributes as a JSON object in `text`. The spelling of numbers is
    /// kept.
    ///
    /// # Errors
    /// `MetadataInvalid` when the text is not a JSON object; those of [`Array::set_attributes`].
    pub fn set_attributes_json(&mut self, text: &str) -> Result<()> {
        let mut metadata = (*self.metadata).clone();
        metadata.set_attributes_json(text).at(|| self.place())?;
        self.store_attributes(metadata)
    }

    fn store_attributes(&mut self, metadata: ArrayMetadata) -> Result<()> {
        let new = NodeDocuments::from(&NodeMetadata::Array(Box::new(metadata.clone())));
        self.lock_documents()?.update(Some(2), &mut |documents| documents.take_attributes_of(&new))?;
        self.metadata = Arc::new(metadata);
        Ok(())
    }

    /// Waits for the lock that guards the array's documents.
    fn lock_documents(&self) -> Result<NodeLock> {
        let (format, cancellation) = (self.metadata.zarr_format(), &self.options.cancellation);
        NodeLock::take(Arc::clone(&self.store), &self.path, format, true, cancellation)
    }

    /// Reads the metadata again, in case other writers have changed it.
    ///
    /// # Errors
    /// Those of [`Array::open`].
    pub fn refresh(&mut self) -> Result<()> {
        let format = Some(self.metadata.zarr_format());
        let (metadata, warnings) = documents::find_array(&*self.store, &self.path, format)?;
        *self = Array::opened(Arc::clone(&self.store), self.path.clone(), metadata, self.options.clone(), warnings)?;
        Ok(())
    }

    pub(super) fn set_metadata(&mut self, metadata: ArrayMetadata) {
        self.metadata = Arc::new(metadata);
        self.chain = OnceLock::new();
    }

    /// The keys below the array's path that are neither metadata nor chunks of its grid, such as chunks of former
    /// shapes.
    ///
    /// # Errors
    /// What the store reports.
    pub fn foreign_keys(&self) -> Result<Vec<String>> {
        let start = join_key(&self.path, "");
        let chunks: BTreeSet<String> = self.stored_chunks()?.into_iter().collect();
        let is_document = |key: &str| crate::meta::node::DOCUMENT_NAMES.contains(&key);
        let keys = self.store.list(&self.path)?;
        let relative = keys.iter().filter_map(|key| key.strip_prefix(&start));
        Ok(relative.filter(|key| !is_document(key) && !chunks.contains(*key)).map(String::from).collect())
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, shape) = (self.name(), self.shape());
        write!(f, "Array({} '{name}' shape={shape:?} data_type={})", self.store, self.metadata.data_type())
    }
}
