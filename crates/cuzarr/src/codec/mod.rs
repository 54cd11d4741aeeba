//! Codecs, and the chains of codecs that metadata describes.
//!
//! ```
//! use cuzarr::internal::codec::Chain;
//! use cuzarr::meta::ArrayMetadata;
//! use cuzarr_device::Device;
//!
//! let metadata = ArrayMetadata::from_json(br#"{
//!     "zarr_format": 3, "node_type": "array", "shape": [6], "data_type": "uint16", "fill_value": 0,
//!     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}},
//!     "chunk_key_encoding": {"name": "default"},
//!     "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
//! }"#)?;
//! let program = Chain::new(&metadata)?.bind(Device::Cpu)?;
//! let stored = program.encode(&[1, 0, 2, 0, 3, 0])?;
//! assert_eq!(stored.len(), 6 + 4);
//! let mut packed = vec![0; program.packed_size_bytes()];
//! program.decode(&stored, &mut packed)?;
//! assert_eq!(packed, [1, 0, 2, 0, 3, 0]);
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! # How a chain runs
//!
//! A [`Chain`] is validated once per array: array→array codecs, exactly one array→bytes codec, bytes→bytes codecs. Each
//! is opened for the shape, data type and fill value that the codec before it outputs. A chain that is bound to a
//! device is a [`Program`]: **passes**, which run one chunk at a time, and a **tail**. The tail is the longest run of
//! codecs, counted from the array, that only move elements or change them one by one (unshuffle, byte order, casts,
//! scale and offset, transposition). The copy that writes elements to their place applies the tail too, on any device.
//! Between passes and tail lies the **packed** chunk; metadata alone decides its size. A GPU runs the last passes
//! itself, as many as it has kernels for, each over a whole batch of chunks: checksums, decoders of frames
//! (`codec::batch`), running sums. The passes before them run on the host.
//!
//! # Sizes
//!
//! No codec trusts the size that a frame states. If metadata fixes a decoded size ([`Size::Exact`](size::Size::Exact)),
//! a codec decodes into memory of that size or fails. If metadata only bounds the size
//! ([`Size::AtMost`](size::Size::AtMost): a compressor over a compressor), the output grows with the bytes that really
//! come. Variable-length elements are bounded only by the setting `array.variable_chunk_max_bytes`.
//!
//! # Names
//!
//! Each codec has a folder, named by its Zarr v3 name; its `mod.rs` is its documentation. [`names`] lists the built-in
//! codecs; others may come from [`ExternalCodecs`].

mod adler32;
mod array;
mod astype;
pub(crate) mod batch;
pub(crate) mod binding;
mod bitround;
mod blosc;
mod builder;
mod bytes;
mod bz2;
mod cast_value;
pub(crate) mod chain;
mod checksum;
mod conditional;
mod configuration;
pub(crate) mod cost;
mod crc32;
mod crc32c;
mod damage;
mod deflate;
mod delta;
pub(crate) mod device;
mod elements;
mod external;
mod fixedscaleoffset;
mod fletcher32;
mod gzip;
pub(crate) mod host;
mod lz;
mod lz4;
mod lzma;
mod n5_default;
pub(crate) mod native;
mod open;
mod packbits;
mod pcodec;
pub(crate) mod program;
mod quantize;
pub(crate) mod registry;
mod reinterpret;
mod reshape;
mod scale_offset;
mod scratch;
pub(crate) mod sharding_indexed;
mod shuffle;
pub(crate) mod size;
mod spec;
pub(crate) mod step;
mod threads;
mod transpose;
mod v2;
mod vlen;
mod vlen_bytes;
mod vlen_utf8;
mod zfp;
mod zlib;
mod zstd;

pub use external::{ExternalCodec, ExternalCodecs, ExternalKind, ExternalRequest, HostCodec, set_external};
pub use registry::{is_built_in, names};
pub use spec::{ChunkSpec, VariableElements};

// How chains of codecs are bound and run: for the Python package, for tests of codecs and for fuzzing.
pub(crate) use binding::{Stage, Support, VARIABLE};
pub(crate) use chain::{Chain, Sharding};
pub(crate) use program::{Program, Work};
pub(crate) use sharding_indexed::Layout;
pub(crate) use sharding_indexed::ShardIndex;

pub(crate) use checksum::seal;
pub(crate) use damage::above_bound;
pub(crate) use program::{Division, leave_nothing};
pub(crate) use step::{CHECKSUM_BYTES, Location};
pub(crate) use threads::with_threads;
