//! Access to an array: its chain bound to a device, and the description that plans need.

use std::sync::{Arc, OnceLock};

use cuzarr_device::{DType, Device, NdBuffer, Order, Packing};

use crate::codec::{Chain, Program};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::ArrayMetadata;
use crate::plan::{
    Circumstances, KeyOf, Level, PackedLayout, Plan, ReadPlacement, ShardLayout, Source, WriteCircumstances,
    WritePlacement, WritePlan, chunks_touched,
};
use crate::run::options::Options;
use crate::run::read::indexes::Indexes;
use crate::store::{ByteRange, Store};

/// An array bound to a device. It is made once and used by any number of calls.
pub struct Access {
    chain: Arc<Chain>,
    device: Device,
    source: Arc<Source>,
    /// `None` for elements of variable length.
    program: Option<Arc<Program>>,
    dtype: Option<DType>,
    fill: Vec<u8>,
    indexes: Indexes,
    /// Access to this array on the host, for an array that is bound to another device. It does not convert elements.
    host: OnceLock<Arc<Access>>,
}

impl Access {
    /// Binds an array whose chunks have keys below `path`.
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
        let levels = levels(&chain);
        let leaf = chain.leaf();
        let program = if leaf.is_variable() { None } else { Some(Arc::new(leaf.bind(device)?)) };
        let packed = packed_layout(program.as_deref(), metadata.ndim());
        let data_type = metadata.data_type();
        Ok(Access {
            source: Arc::new(Source { shape: metadata.shape().to_vec(), levels, packed, key }),
            dtype: data_type.device_dtype(),
            fill: metadata.fill_value().element(data_type).into_owned(),
            indexes: Indexes::default(),
            host: OnceLock::new(),
            chain,
            device,
            program,
        })
    }

    /// Access to these chunks as part of an array of another shape, under other keys.
    #[must_use]
    pub fn with_chunks(&self, shape: Vec<u64>, key: KeyOf) -> Access {
        let source = Source { shape, key, ..(*self.source).clone() };
        Access {
            source: Arc::new(source),
            chain: Arc::clone(&self.chain),
            program: self.program.clone(),
            fill: self.fill.clone(),
            indexes: self.indexes.clone(),
            host: OnceLock::new(),
            ..*self
        }
    }

    /// This array with elements and fill value converted to `dtype`, like NumPy's `astype`. It is for reading only.
    ///
    /// # Errors
    /// `DTypeMismatch` when such elements cannot be converted, `Unsupported` for elements of variable length.
    pub fn reading_as(&self, dtype: DType) -> Result<Access> {
        let own = self.dtype.unwrap_or(dtype);
        let program =
            if own == dtype { Arc::clone(self.program()?) } else { Arc::new(self.program()?.read_as(dtype)?) };
        let fill = NdBuffer::from_host(Device::Cpu, own, &[1], Order::C, &self.fill)?;
        Ok(Access {
            chain: Arc::clone(&self.chain),
            device: self.device,
            source: Arc::clone(&self.source),
            program: Some(program),
            dtype: Some(dtype),
            fill: fill.astype(dtype, Order::C)?.to_host_bytes(Order::C)?,
            indexes: self.indexes.clone(),
            host: if self.device == Device::Cpu { OnceLock::new() } else { self.bound_to_host()?.into() },
        })
    }

    /// This array bound to the host, for small reads.
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

    fn bound_to_host(&self) -> Result<Arc<Access>> {
        if let Some(host) = self.host.get() {
            return Ok(Arc::clone(host));
        }
        let program = self.leaf().bind(Device::Cpu)?;
        let packed = packed_layout(Some(&program), self.source.shape.len());
        let host = Access {
            chain: Arc::clone(&self.chain),
            device: Device::Cpu,
            source: Arc::new(Source { packed, ..(*self.source).clone() }),
            program: Some(Arc::new(program)),
            dtype: self.dtype,
            fill: self.fill.clone(),
            indexes: self.indexes.clone(),
            host: OnceLock::new(),
        };
        Ok(Arc::clone(self.host.get_or_init(|| Arc::new(host))))
    }

    /// The device of results.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The array's codec chain.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// The description of the array for plans.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The bytes of the fill value.
    pub fn fill(&self) -> &[u8] {
        &self.fill
    }

    /// The element type on devices; `None` for elements of variable length.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The placement of a read by `plan` into memory of the access's device. `contiguous_bytes` are those of a result that is
    /// contiguous in C order. `in_turn` says that boxes are handed over one after the other.
    pub(crate) fn place_read(
        &self,
        store: &dyn Store,
        plan: &Plan,
        (contiguous_bytes, in_turn): (Option<usize>, bool),
        options: &Options,
    ) -> ReadPlacement {
        // On the host nothing depends on it, and many points take long to count.
        let chunks = if self.device == Device::Cpu { 0 } else { plan.chunks() };
        let is_one = || chunks == 1 && plan.is_of_one() && store.capabilities().divides_reads;
        let given = Circumstances {
            in_turn,
            is_resident: store.is_on(self.device),
            one_chunk_bytes: contiguous_bytes.filter(|_| self.device != Device::Cpu && is_one()),
            ..options.circumstances(self.device, chunks)
        };
        ReadPlacement::new(self.program.as_deref(), self.device, &given)
    }

    /// The placement of a write by `plan` from memory of `device`.
    pub(crate) fn place_write(
        &self,
        store: &dyn Store,
        plan: &WritePlan,
        device: Device,
        options: &Options,
    ) -> WritePlacement {
        let capabilities = store.capabilities();
        let given = WriteCircumstances {
            device,
            threads: options.threads,
            force_device: options.strict || options.force_device,
            chunks: if device == Device::Cpu { 0 } else { chunks_touched(&self.source, &plan.order) },
            chunk_elements: self.chunk_elements(),
            part_elements: plan.largest_part().iter().product::<u64>() as usize,
            least: plan.least_coverage(),
            has_lists: plan.order.has_lists(),
            write_empty: options.write_empty_chunks,
            is_resident: store.is_on(device),
            takes_parts: self.source.levels.len() == 1 && capabilities.writes_parts && !capabilities.far,
            memory_limit_bytes: options.memory_limit_bytes,
            batch_bytes: options.slab_bytes as u64,
            slab_bytes: options.batch_bytes(device),
        };
        WritePlacement::new(self.program.as_deref(), &given)
    }

    /// The decoded shard indexes.
    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// Elements of an innermost chunk.
    pub(crate) fn chunk_elements(&self) -> usize {
        self.leaf().spec().elements().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
    }

    /// The program that decodes and encodes the innermost chunks.
    ///
    /// # Errors
    /// `Unsupported` for elements of variable length.
    pub(crate) fn program(&self) -> Result<&Arc<Program>> {
        let message = "elements have variable length: use read_variable and write_variable";
        self.program.as_ref().ok_or_else(|| Error::new(ErrorKind::Unsupported, message))
    }

    /// The chain of the innermost chunks.
    pub(crate) fn leaf(&self) -> &Chain {
        self.chain.leaf()
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
