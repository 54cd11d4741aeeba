//! Access to an array: its chain bound to a device, and the description that plans need.

use std::sync::{Arc, OnceLock};

use cuzarr_device::{DType, Device, NdBuffer, Order, Packing};

use crate::codec::{Chain, Program};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::ArrayMetadata;
use crate::plan::{
    ChunkOrder, KeyOf, Level, Merging, PackedLayout, Placed, Placement, Selection, ShardLayout, Source,
    WriteCircumstances, check_strict, check_strict_writing, encoding, encoding_placements, least_coverage,
    merging_reason, placed,
};
use crate::run::options::Options;
use crate::run::read::indexes::Indexes;
use crate::store::ByteRange;

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
        let leaf = leaf(&chain);
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

    /// The places of codecs in a read of `chunks` innermost chunks, and the estimates behind them.
    pub fn placed(&self, options: &Options, chunks: u64) -> Placed {
        let program = self.program.as_deref();
        placed(&self.chain, program, self.device, &options.circumstances(self.device, chunks))
    }

    /// The places of codecs in a write of `chunks` innermost chunks from memory of `device`.
    pub fn encoding_placements(&self, device: Device, options: &Options, chunks: u64) -> Vec<Placement> {
        let given = self.write_circumstances(device, options, chunks);
        let left = self.program.as_ref().and_then(|program| encoding(program, &given).err());
        encoding_placements(&self.chain, device, left)
    }

    /// The place where parts of chunks are merged with old elements, in a write of these elements of `chunks` innermost chunks
    /// from memory of `device`; `None` when each chunk is replaced as a whole.
    pub(crate) fn merging(
        &self,
        device: Device,
        options: &Options,
        (order, chunks): (&ChunkOrder, u64),
    ) -> Option<Merging> {
        let program = self.program.as_ref()?;
        if !self.keeps_elements(order) {
            return None;
        }
        let given = self.write_circumstances(device, options, chunks);
        let on_host = if device == Device::Cpu { None } else { merging_reason(program, &given) };
        Some(Merging { via_host: on_host.map(String::from) })
    }

    fn write_circumstances(&self, device: Device, options: &Options, chunks: u64) -> WriteCircumstances {
        WriteCircumstances {
            device,
            threads: options.threads,
            strict: options.strict,
            chunks,
            chunk_elements: self.chunk_elements(),
            replaces: true,
            write_empty: options.write_empty_chunks,
            memory_limit_bytes: options.memory_limit_bytes,
            batch_bytes: options.slab_bytes as u64,
        }
    }

    /// Whether a write of these elements keeps old elements of some chunk.
    pub(crate) fn keeps_elements(&self, order: &ChunkOrder) -> bool {
        !least_coverage(&self.source, order).replaces()
    }

    /// Whether a write to `selection` keeps old elements of some chunk.
    ///
    /// # Errors
    /// `SelectionInvalid`
    pub fn keeps_elements_beside(&self, selection: &Selection) -> Result<bool> {
        Ok(self.keeps_elements(&ChunkOrder::of_last(selection, &self.source)?))
    }

    /// Refuses codecs that would run on the host although the written elements are on `device`: where they encode, and, if the
    /// write keeps old elements of some chunk, also where they decode.
    ///
    /// # Errors
    /// `FallbackRefused`, with each codec and its reason.
    pub fn check_strict_writing(&self, device: Device, keeps_elements: bool) -> Result<()> {
        let encoder = self.program.as_ref().and_then(|program| program.device_encoder().ok());
        check_strict_writing(&self.chain, device, encoder.and_then(|encoder| encoder.host_reason(device)))?;
        if keeps_elements { check_strict(&self.chain, device) } else { Ok(()) }
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
        leaf(&self.chain)
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

fn leaf(chain: &Chain) -> &Chain {
    let mut chain = chain;
    while let Some(sharding) = chain.sharding() {
        chain = sharding.inner();
    }
    chain
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
