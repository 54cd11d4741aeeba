//! Decodes and encodes pcodec files on the host, by the crate pco.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuzarr_device::DType;
use half::f16;
use pco::ChunkConfig;
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};

use crate::codec::damage::{corrupt, expect_size, unencodable};
use crate::codec::host::ArrayToBytes;
use crate::codec::size::Size;
use crate::{Error, ErrorKind, Result};

/// The element types that numcodecs' pcodec codec takes.
pub(super) const TYPES: [DType; 9] = [
    DType::INT16,
    DType::INT32,
    DType::INT64,
    DType::UINT16,
    DType::UINT32,
    DType::UINT64,
    DType::FLOAT16,
    DType::FLOAT32,
    DType::FLOAT64,
];

#[derive(Debug)]
pub(super) struct Pcodec {
    pub(super) config: ChunkConfig,
    pub(super) dtype: DType,
    /// Bytes of a chunk's elements together.
    pub(super) size_bytes: usize,
}

/// Runs `$body` with `$T` as the Rust type of the codec's elements.
macro_rules! typed {
    ($dtype:expr, $T:ident => $body:expr) => {{
        macro_rules! with {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            DType::INT16 => with!(i16),
            DType::INT32 => with!(i32),
            DType::INT64 => with!(i64),
            DType::UINT16 => with!(u16),
            DType::UINT32 => with!(u32),
            DType::UINT64 => with!(u64),
            DType::FLOAT16 => with!(f16),
            DType::FLOAT32 => with!(f32),
            DType::FLOAT64 => with!(f64),
            other => Err(Error::new(ErrorKind::Unsupported, format!("pcodec: got elements of {other}"))),
        }
    }};
}

impl ArrayToBytes for Pcodec {
    fn name(&self) -> &str {
        "numcodecs.pcodec"
    }

    fn encoded_size(&self) -> Size {
        Size::Exact(self.size_bytes as u64).compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        typed!(self.dtype, T => {
            const SIZE: usize = size_of::<T>();
            let elements = decompress::<T>(encoded, decoded.len() / SIZE)?;
            for (element, bytes) in elements.iter().zip(decoded.chunks_exact_mut(SIZE)) {
                bytes.copy_from_slice(&element.to_ne_bytes());
            }
            Ok(())
        })
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        typed!(self.dtype, T => {
            const SIZE: usize = size_of::<T>();
            let elements: Vec<T> = decoded.as_chunks::<SIZE>().0.iter().map(|bytes| T::from_ne_bytes(*bytes)).collect();
            simple_compress(&elements, &self.config).map_err(|error| unencodable(error.to_string()))
        })
    }
}

/// Decodes a pcodec file, which must contain `count` elements.
fn decompress<T: Number>(encoded: &[u8], count: usize) -> Result<Vec<T>> {
    // Room for one more shows whether there are too many elements.
    let mut elements = vec![T::default(); count + 1];
    // The library panics for some damaged bytes.
    let decoding = AssertUnwindSafe(|| simple_decompress_into(encoded, &mut elements));
    let progress = catch_unwind(decoding).map_err(|_| corrupt("pcodec cannot decode it"))?;
    let progress = progress.map_err(|error| corrupt(error.to_string()))?;
    expect_size(progress.n_processed, count)?;
    if !progress.finished {
        return Err(corrupt(format!("the bytes end, or go on, behind {count} elements")));
    }
    elements.truncate(count);
    Ok(elements)
}
