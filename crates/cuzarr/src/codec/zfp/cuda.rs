//! Launches of `zfp.cu`: one thread decodes each block, for chunks whose blocks all have the same number of bits.

use cuzarr_device::internal::{WARP, stated_size, upload_table};
use cuzarr_device::{DType, Device, KernelSource, header};

use super::block::ZfpBlocks;
use super::cost;
use super::extents::Extents;
use crate::codec::cost::Speeds;
use crate::codec::damage::{corrupt, expect_encoded_size, expect_size};
use crate::codec::device::{Decode, DeviceDecoder, Headers, Prepared, Request, Task};
use crate::{Error, ErrorKind, Result};

static ZFP: KernelSource =
    KernelSource { name: "zfp", text: include_str!("zfp.cu"), headers: &[&[header!("codec/zfp/zfp_order.cuh")]] };

/// Number of threads in a thread block; each thread decodes one zfp block. `simt` uses a warp, because each thread is a
/// fiber.
const THREADS: u32 = 128;

/// The argument of the kernel that describes all zfp chunks: `ZfpChunks` in zfp.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct ZfpChunks {
    extents: [u32; 4],
    blocks: u32,
    groups: u32,
    frame_bytes: u32,
    bits: u32,
    planes: u32,
    least_exponent: i32,
}

const _: () = assert!(size_of::<ZfpChunks>() == stated_size(ZFP.text, "ZfpChunks"));

/// Kernels that decode zfp chunks of one array.
#[derive(Debug)]
pub(super) struct ZfpDecoder {
    kernel: &'static str,
    /// The kernel's argument that describes all chunks; the number of thread blocks in it is set for each launch.
    chunks: ZfpChunks,
    value_bytes: usize,
    decoded_bytes: usize,
}

impl ZfpDecoder {
    /// Makes the decoder for chunks of these zfp blocks; `None` if kernels cannot decode them. `dtype` is the type of
    /// the elements.
    pub(super) fn new(blocks: &ZfpBlocks, dtype: DType, extents: &Extents, encoded_bytes: u64) -> Option<ZfpDecoder> {
        let bits = blocks.parameters.fixed_bits()?;
        let kernel = kernel_name(dtype, blocks.ndim)?;
        let mut of_axes = [1; 4];
        for (axis, &extent) in of_axes.iter_mut().zip(&extents.0) {
            *axis = u32::try_from(extent).ok()?;
        }
        let count = u32::try_from(extents.block_count()?).ok().filter(|count| *count > 0)?;
        let chunks = ZfpChunks {
            extents: of_axes,
            blocks: count,
            groups: 0,
            frame_bytes: u32::try_from(encoded_bytes).ok()?,
            bits,
            planes: blocks.parameters.planes,
            least_exponent: blocks.parameters.least_exponent,
        };
        let elements = extents.0.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))?;
        // The kernels count elements in 32 bits.
        u32::try_from(elements).ok()?;
        let value_bytes = dtype.size_bytes();
        Some(ZfpDecoder { kernel, chunks, value_bytes, decoded_bytes: elements.checked_mul(value_bytes)? })
    }
}

fn kernel_name(dtype: DType, ndim: usize) -> Option<&'static str> {
    let names = match dtype {
        DType::INT32 => ["zfp_int32_1", "zfp_int32_2", "zfp_int32_3", "zfp_int32_4"],
        DType::INT64 => ["zfp_int64_1", "zfp_int64_2", "zfp_int64_3", "zfp_int64_4"],
        DType::FLOAT32 => ["zfp_float32_1", "zfp_float32_2", "zfp_float32_3", "zfp_float32_4"],
        DType::FLOAT64 => ["zfp_float64_1", "zfp_float64_2", "zfp_float64_3", "zfp_float64_4"],
        _ => return None,
    };
    names.get(ndim.checked_sub(1)?).copied()
}

impl DeviceDecoder for ZfpDecoder {
    fn name(&self) -> &'static str {
        "zfp"
    }

    fn speeds(&self) -> &'static Speeds {
        &cost::SPEEDS
    }

    fn scratch_copies(&self, _: usize) -> u64 {
        1
    }

    fn headers(&self, frame: &[u8], decoded_bytes: usize) -> Option<Headers> {
        let fits = frame.len() == self.chunks.frame_bytes as usize && decoded_bytes == self.decoded_bytes;
        fits.then(Headers::known)
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        let (mut places, mut refused, mut starts) = (Vec::new(), Vec::new(), 0);
        for (index, unit) in request.units.iter().enumerate() {
            let encoded = expect_encoded_size(unit.src.len(), self.chunks.frame_bytes as usize);
            match encoded.and_then(|()| expect_size(unit.dst.len(), self.decoded_bytes)) {
                Ok(()) => {
                    places.extend([unit.src.start, unit.dst.start]);
                    starts |= unit.dst.start;
                }
                Err(error) => refused.push((index, corrupt(error.message()))),
            }
        }
        let count = places.len() / 2;
        let threads = if request.device == Device::Simt { WARP } else { THREADS };
        let chunks = ZfpChunks { groups: self.chunks.blocks.div_ceil(threads), ..self.chunks };
        let groups = u32::try_from(count).ok().and_then(|count| count.checked_mul(chunks.groups));
        let Some(groups) = groups.filter(|groups| i32::try_from(*groups).is_ok()) else {
            let message = format!("{count} chunks of {} blocks are too many for one batch", chunks.blocks);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        let places = places.iter().flat_map(|place| (*place as u64).to_ne_bytes()).collect();
        let value_bytes = self.value_bytes;
        Prepared::new(
            request,
            ZfpFrames { kernel: self.kernel, places, starts, value_bytes, chunks, groups, threads },
            refused,
        )
    }
}

/// Zfp chunks that are ready to be decoded together.
struct ZfpFrames {
    kernel: &'static str,
    /// For each chunk, the offsets at which its frame and its elements begin.
    places: Vec<u8>,
    /// All offsets at which elements begin, combined by bitwise OR, which shows how they are aligned.
    starts: usize,
    value_bytes: usize,
    chunks: ZfpChunks,
    /// Number of thread blocks that decode all chunks together.
    groups: u32,
    threads: u32,
}

impl Decode for ZfpFrames {
    fn scratch_bytes(&self) -> usize {
        self.places.len()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        if self.groups == 0 {
            return Ok(());
        }
        let Task { stream, src, dst, .. } = *task;
        if !(dst.address() | self.starts).is_multiple_of(self.value_bytes) {
            let message = format!("values of {} bytes begin at no multiple of that", self.value_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let places = upload_table(&self.places, stream)?;
        let kernel = ZFP.kernel(stream.device(), self.kernel)?;
        let arguments = (src.address(), dst.address(), places.address(), self.chunks);
        // SAFETY: the parameters of the kernels, which read a frame of `frame_bytes`, and write elements of the chunk's extents, at each
        // of the places, which are aligned. `prepare` has compared both sizes with the units', and `Prepared` has checked that source
        // and target have room for every unit. There are `groups` blocks of threads for each chunk.
        unsafe { kernel.launch(stream, self.groups, self.threads, arguments, &[src, dst, &places]) }?;
        Ok(())
    }
}
