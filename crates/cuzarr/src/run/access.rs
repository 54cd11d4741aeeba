//! An array that is ready for reads and writes on one device: its codec chain bound to the device, and its description
//! for plans.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuzarr_device::{DType, Device, NdBuffer, Order, Packing};

use crate::codec::{Chain, Program};
use crate::error::Result;
use crate::meta::ArrayMetadata;
use crate::plan::{
    ChunkLayout, Circumstances, KeyOf, Level, Offload, PackedLayout, Plan, PlanOptions, ReadPlacement, ShardLayout,
    Source, WriteCircumstances, WritePlacement, WritePlan, chunks_touched,
};
use crate::run::options::Options;
use crate::run::read::indexes::Indexes;
use crate::store::{ByteRange, Identity, Store};

/// An array, prepared for reads and writes in memory of one device: codecs, kernels and layouts. It is made once and
/// used by any number of calls.
pub struct Access {
    binding: Arc<Binding>,
    source: Arc<Source>,
    dtype: Option<DType>,
    fill: Vec<u8>,
    indexes: Indexes,
    /// The part that all chunks of this array share in their keys in the chunk cache, if the cache keeps any.
    cached_as: OnceLock<CachedAs>,
    /// Access to this array's chunks from the host, for small reads into another device's memory. It does not convert
    /// elements.
    host: OnceLock<Arc<Access>>,
    /// Access to this array's chunks from an accelerator, for results in host memory.
    accelerated: OnceLock<Arc<Access>>,
}

/// The part that all chunks of one array share in their chunk-cache keys: the store, and how chunks are coded.
#[derive(Clone)]
pub(crate) struct CachedAs {
    /// The identity of the store that holds the chunks.
    pub(crate) store: Identity,
    /// Text made from the element type, chunk grid, codecs and the store's view, such as a branch; it differs if any of
    /// them differs.
    pub(crate) coding: Arc<str>,
}

/// Facts about the result of a read, from which the engine chooses whether the host or the device decodes.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadResult {
    /// Size of the result in bytes, if it is contiguous in C order and has its own memory.
    pub(crate) contiguous_bytes: Option<usize>,
    /// Whether the read completes one region of the result after another, and hands each to the caller.
    pub(crate) in_turn: bool,
}

/// One array's codec chain, bound to a device; it makes the chunk layouts of stored objects of any shape.
struct Binding {
    device: Device,
    /// The type to which elements are converted when they are read.
    cast: Option<DType>,
    /// The codec chain for stored objects of the array's chunk shape; in a rectilinear grid, of the largest chunk's
    /// shape.
    chain: Arc<Chain>,
    /// Metadata and further chunk layouts of an array whose chunks or shards differ in shape; `None` for other arrays.
    uneven: Option<(ArrayMetadata, Layouts)>,
}

/// Uncompressed chunks up to the chunk cache's size divided by this are read whole, so that the cache can keep them.
const WHOLE_SHARE: u64 = 8;

/// The chunk layouts that were made for one array, keyed by the shape of the stored object (chunk or shard).
type Layouts = Mutex<HashMap<Vec<u64>, Arc<ChunkLayout>>>;

/// Maximum number of chunk layouts that an array keeps, one for each shape of its stored objects; beyond it, all are
/// dropped.
const KEPT_LAYOUTS: usize = 4096;

impl Binding {
    /// Makes the layout of chunks or shards that the codecs `chain` encode.
    fn layout(&self, chain: &Arc<Chain>) -> Result<ChunkLayout> {
        let leaf = chain.leaf();
        let program = if leaf.is_variable() { None } else { Some(leaf.bind(self.device)?) };
        let program = match (program, self.cast) {
            (Some(program), Some(dtype)) => Some(program.read_as(dtype)?),
            (program, _) => program,
        };
        let packed = packed_layout(program.as_ref(), leaf.spec().shape.len());
        Ok(ChunkLayout::new(levels(chain), packed, Arc::clone(chain), program.map(Arc::new)))
    }

    /// Returns the chunk layout of stored objects (chunks or shards) of the shape `shape`. It is made when it is first
    /// needed.
    fn layout_of(&self, shape: &[u64]) -> Result<Arc<ChunkLayout>> {
        let Some((metadata, made)) = &self.uneven else { return self.layout(&self.chain).map(Arc::new) };
        let made = || made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = made().get(shape) {
            return Ok(Arc::clone(layout));
        }
        let layout = Arc::new(self.layout(&Arc::new(Chain::for_chunks(metadata, shape.to_vec())?))?);
        let mut made = made();
        if made.len() >= KEPT_LAYOUTS {
            made.clear();
        }
        Ok(Arc::clone(made.entry(shape.to_vec()).or_insert(layout)))
    }

    /// Makes the array's description for plans, with chunk layouts for the device and element type of this binding. The
    /// array has the grid of `like`.
    fn source(self: &Arc<Self>, like: &Source) -> Result<Source> {
        let source = Source::new(like.shape.clone(), Arc::clone(&like.key), Arc::new(self.layout(&self.chain)?));
        Ok(self.with_grid(source))
    }

    fn with_grid(self: &Arc<Self>, source: Source) -> Source {
        let grid = self.uneven.as_ref().and_then(|(metadata, _)| metadata.chunk_grid().rectilinear());
        let Some(grid) = grid else { return source };
        let binding = Arc::clone(self);
        source.with_grid(grid, Arc::new(move |shape| binding.layout_of(shape)))
    }

    /// Binds the array's codec chain again, to another device or for another element type.
    fn again(&self, device: Device, cast: Option<DType>) -> Arc<Binding> {
        let uneven = self.uneven.as_ref().map(|(metadata, _)| (metadata.clone(), Layouts::default()));
        Arc::new(Binding { device, cast, chain: Arc::clone(&self.chain), uneven })
    }
}

impl Access {
    /// Prepares an array for one device; its chunks have keys below `path`.
    ///
    /// # Errors
    /// What the chain reports.
    pub fn new(metadata: &ArrayMetadata, path: &str, chain: Arc<Chain>, device: Device) -> Result<Access> {
        let encoding = *metadata.chunk_key_encoding();
        let path = path.to_string();
        let key: KeyOf = Arc::new(move |at| {
            let key = encoding.key(at);
            if path.is_empty() { key } else { format!("{path}/{key}") }
        });
        let uneven = metadata.chunk_grid().rectilinear().map(|_| (metadata.clone(), Layouts::default()));
        let binding = Arc::new(Binding { device, cast: None, chain, uneven });
        let layout = Arc::new(binding.layout(&binding.chain)?);
        let data_type = metadata.data_type();
        Ok(Access {
            source: Arc::new(binding.with_grid(Source::new(metadata.shape().to_vec(), key, layout))),
            dtype: data_type.device_dtype(),
            fill: metadata.fill_value().element(data_type).into_owned(),
            indexes: Indexes::default(),
            cached_as: OnceLock::new(),
            host: OnceLock::new(),
            accelerated: OnceLock::new(),
            binding,
        })
    }

    /// Returns access to an array of another shape and with other keys, whose chunks have the same codecs and layouts.
    #[must_use]
    pub fn with_chunks(&self, shape: Vec<u64>, key: KeyOf) -> Access {
        let source = self.source.with_chunks(shape, key);
        Access {
            binding: Arc::clone(&self.binding),
            source: Arc::new(source),
            dtype: self.dtype,
            fill: self.fill.clone(),
            indexes: self.indexes.clone(),
            cached_as: OnceLock::new(),
            host: OnceLock::new(),
            accelerated: OnceLock::new(),
        }
    }

    /// Returns access that converts elements and fill value to `dtype`, like NumPy's `astype`. It is for reading only.
    ///
    /// # Errors
    /// `DTypeMismatch` when such elements cannot be converted, `Unsupported` for elements of variable length.
    pub fn reading_as(&self, dtype: DType) -> Result<Access> {
        self.program()?;
        let own = self.dtype.unwrap_or(dtype);
        let binding = self.binding.again(self.device(), (own != dtype).then_some(dtype));
        let fill = NdBuffer::from_host(Device::Cpu, own, &[1], Order::C, &self.fill)?;
        Ok(Access {
            source: Arc::new(binding.source(&self.source)?),
            dtype: Some(dtype),
            fill: fill.astype(dtype, Order::C)?.to_host_bytes(Order::C)?,
            indexes: self.indexes.clone(),
            cached_as: OnceLock::new(),
            host: if self.device() == Device::Cpu { OnceLock::new() } else { self.bound_to_host()?.into() },
            accelerated: OnceLock::new(),
            binding,
        })
    }

    /// Returns access to this array's chunks from the host, for small reads into another device's memory.
    ///
    /// # Errors
    /// Those of [`Access::new`] and [`Access::reading_as`].
    pub(crate) fn on_host(&self) -> Result<Arc<Access>> {
        let host = self.bound_to_host()?;
        match self.dtype {
            Some(dtype) if host.dtype != Some(dtype) => host.reading_as(dtype).map(Arc::new),
            _ => Ok(host),
        }
    }

    /// Returns access to this array's chunks from an accelerator, for results of the same element type in host memory.
    ///
    /// # Errors
    /// What the codecs report.
    pub(crate) fn on(&self, device: Device) -> Result<Arc<Access>> {
        if let Some(access) = self.accelerated.get().filter(|access| access.device() == device) {
            return Ok(Arc::clone(access));
        }
        let access = Arc::new(self.again(device, self.cast())?);
        // If another thread was faster, or for another device, its access is kept.
        let _ = self.accelerated.set(Arc::clone(&access));
        Ok(access)
    }

    /// Binds the array's codecs again, to another device.
    fn again(&self, device: Device, cast: Option<DType>) -> Result<Access> {
        let binding = self.binding.again(device, cast);
        Ok(Access {
            source: Arc::new(binding.source(&self.source)?),
            dtype: self.dtype,
            fill: self.fill.clone(),
            indexes: self.indexes.clone(),
            cached_as: OnceLock::new(),
            host: OnceLock::new(),
            accelerated: OnceLock::new(),
            binding,
        })
    }

    fn bound_to_host(&self) -> Result<Arc<Access>> {
        if let Some(host) = self.host.get() {
            return Ok(Arc::clone(host));
        }
        let host = self.again(Device::Cpu, None)?;
        Ok(Arc::clone(self.host.get_or_init(|| Arc::new(host))))
    }

    /// The device that this access is bound to, in whose memory results of reads are made.
    pub fn device(&self) -> Device {
        self.binding.device
    }

    /// The type to which elements are converted when they are read; `None` if they are not converted.
    pub(crate) fn cast(&self) -> Option<DType> {
        self.binding.cast
    }

    /// The array's codec chain.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.binding.chain
    }

    /// The array's description, from which plans of reads and writes are made: shape, chunk keys and chunk layouts.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The bytes of one element that has the array's fill value.
    pub fn fill(&self) -> &[u8] {
        &self.fill
    }

    /// The type that the array's elements have in device memory; `None` for elements of variable length.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Chooses where the chunks of a read are decoded, on the host or by kernels, for a result on the access's device.
    pub(crate) fn place_read(
        &self,
        store: &dyn Store,
        plan: &Plan,
        result: ReadResult,
        options: &Options,
    ) -> ReadPlacement {
        // On the host, the placement does not depend on the number of chunks, which takes long to count for many
        // points.
        let chunks = if self.device() == Device::Cpu { 0 } else { plan.chunks() };
        let is_one = || chunks == 1 && plan.is_of_one() && store.capabilities().divides_reads;
        let given = Circumstances {
            in_turn: result.in_turn,
            is_resident: store.is_on(self.device()),
            one_chunk_bytes: result
                .contiguous_bytes
                .filter(|_| self.device() != Device::Cpu && self.cached_as(store, options).is_none() && is_one()),
            ..options.circumstances(self.device(), chunks)
        };
        ReadPlacement::new(self.source.layout().program.as_deref(), self.device(), &given)
    }

    /// Chooses how this access's device decodes `chunks` chunks of a read into host memory. Returns the reason if it
    /// cannot.
    pub(crate) fn place_accelerated(
        &self,
        store: &dyn Store,
        chunks: u64,
        options: &Options,
    ) -> Result<ReadPlacement, String> {
        let device = self.device();
        let given =
            Circumstances { is_resident: store.is_on(device), ..options.circumstances_of_accelerator(device, chunks) };
        let program = self.program().map_err(|error| error.message().to_string())?;
        ReadPlacement::accelerated(program, self.leaf(), device, &given)
    }

    /// Chooses where the chunks of a write are encoded, on the host or by kernels, for elements in memory of `device`.
    pub(crate) fn place_write(
        &self,
        store: &dyn Store,
        plan: &WritePlan,
        device: Device,
        options: &Options,
    ) -> WritePlacement {
        let given = self.write_circumstances(store, plan, device, options);
        WritePlacement::new(self.source.layout().program.as_deref(), &given)
    }

    /// Chooses how `device` encodes the chunks of a write from host memory, and estimates the times of both ways. If it is
    /// `forced`, it encodes all that it can.
    ///
    /// # Errors
    /// The reason why the host encodes.
    pub(crate) fn place_accelerated_write(
        &self,
        store: &dyn Store,
        plan: &WritePlan,
        (device, forced): (Device, bool),
        options: &Options,
    ) -> Result<(WritePlacement, Offload), &'static str> {
        let given = self.write_circumstances(store, plan, device, options);
        let given = WriteCircumstances { staged: true, force_device: forced, ..given };
        WritePlacement::accelerated(self.source.layout().program.as_deref(), &given)
    }

    fn write_circumstances(
        &self,
        store: &dyn Store,
        plan: &WritePlan,
        device: Device,
        options: &Options,
    ) -> WriteCircumstances {
        let capabilities = store.capabilities();
        WriteCircumstances {
            device,
            staged: false,
            threads: options.threads,
            force_device: options.force_device(),
            chunks: if device == Device::Cpu { 0 } else { chunks_touched(&self.source, &plan.order) },
            chunk_elements: self.source.layout().chunk_elements(),
            part_elements: plan.largest_part().iter().product::<u64>() as usize,
            least: plan.least_coverage(),
            has_lists: plan.order.has_lists(),
            write_empty: options.write_empty_chunks,
            is_resident: store.is_on(device),
            takes_parts: self.source.levels() == 1 && capabilities.writes_parts && !capabilities.far,
            memory_limit_bytes: options.memory_limit_bytes,
            batch_bytes: options.tuning.slab_bytes as u64,
            slab_bytes: options.batch_bytes(device),
        }
    }

    /// Allows the chunk cache to keep decoded chunks of this array, for reads whose options allow that too.
    pub(crate) fn allow_cache(&self, metadata: &ArrayMetadata, store: &dyn Store) {
        self.cached_as.get_or_init(|| {
            let (dtype, grid, codecs) = (metadata.data_type(), metadata.chunk_grid(), metadata.codecs());
            let store = store.identity();
            CachedAs { coding: format!("{dtype:?} {grid:?} {codecs:?} {}", store.view()).into(), store }
        });
    }

    /// The part that the array's chunks share in their keys in the chunk cache; `None` if reads with these options keep
    /// none. Uncompressed bytes of near stores are not kept in host memory a second time.
    pub(crate) fn cached_as(&self, store: &dyn Store, options: &Options) -> Option<&CachedAs> {
        let is_plain = self.device() == Device::Cpu && self.source.layout().packed.stored_is_packed;
        let can = store.capabilities();
        let pays = can.versions && options.chunk_cache_bytes > 0 && (can.far || !is_plain);
        self.cached_as.get().filter(|_| options.chunk_cache && pays)
    }

    /// Returns the size limits for plans of reads from `store`, such as the largest request.
    pub(crate) fn plan_options(&self, store: &dyn Store, options: &Options) -> PlanOptions {
        let limits = options.plan(&store.capabilities());
        let cached = self.cached_as(store, options);
        PlanOptions { whole_chunks_bytes: cached.map_or(0, |_| options.chunk_cache_bytes / WHOLE_SHARE), ..limits }
    }

    /// The array's shard indexes that are kept in memory between calls.
    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// The codecs of the innermost chunks, bound to the device. In an uneven grid, the program of the largest chunk.
    ///
    /// # Errors
    /// `Unsupported` for elements of variable length.
    pub(crate) fn program(&self) -> Result<&Arc<Program>> {
        self.source.layout().program()
    }

    /// The codec chain of the innermost chunks.
    pub(crate) fn leaf(&self) -> &Chain {
        self.chain().leaf()
    }
}

fn packed_layout(program: Option<&Program>, ndim: usize) -> PackedLayout {
    match program {
        Some(program) => PackedLayout {
            size_bytes: program.packed_size_bytes(),
            element_bytes: program.tail().packed.size_bytes(),
            axes: program.packed_axes().to_vec(),
            stored_is_packed: program.stored_is_packed(),
            divisible: program.tail().packing == Packing::Plain,
        },
        None => PackedLayout {
            size_bytes: 0,
            element_bytes: 0,
            axes: (0..ndim).collect(),
            stored_is_packed: false,
            divisible: false,
        },
    }
}

fn levels(chain: &Chain) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut chain = Some(chain);
    while let Some(current) = chain {
        let sharding = current.sharding();
        let shard = sharding.map(|sharding| ShardLayout {
            grid: sharding.grid().to_vec(),
            index_range: match sharding.index_range() {
                ByteRange::Suffix { size_bytes } => ByteRange::Suffix { size_bytes },
                _ => ByteRange::Span { offset: 0, size_bytes: sharding.index_size_bytes() },
            },
            index_size_bytes: sharding.index_size_bytes(),
        });
        levels.push(Level {
            chunk_shape: current.spec().shape.clone(),
            bound_bytes: current.encoded_bound_bytes(),
            shard,
        });
        chain = sharding.map(|sharding| sharding.inner());
    }
    levels
}
