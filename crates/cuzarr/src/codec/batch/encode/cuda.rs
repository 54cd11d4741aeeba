//! Launches of `encoded.cu`, whose kernels the encoders of all codecs share.

use cuzarr_device::internal::{WARP, pool};
use cuzarr_device::{Buffer, Device, KernelSource, Stream};

use super::Blank;
use crate::codec::batch::HEADERS;
use crate::codec::device::FRAME_ENTRY_BYTES;
use crate::{Error, ErrorKind, Result};

static ENCODED: KernelSource = KernelSource { name: "encoded", text: include_str!("encoded.cu"), headers: &[HEADERS] };

/// Blocks of the kernels that only compare: what a multiprocessor holds at once.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// A word for each of `count` chunks: whether it is to be encoded.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(super) fn wanted(blank: Option<&Blank<'_>>, count: usize, stream: &Stream) -> Result<Buffer> {
    let wanted = pool::allocate(count * 4, stream)?;
    let Some(Blank { chunks, stride_bytes, blank }) = blank else {
        stream.memset(&wanted, 1)?;
        return Ok(wanted);
    };
    stream.memset(&wanted, 0)?;
    let kernel = ENCODED.kernel(stream.device(), "encode_differs")?;
    // Few threads in `simt`, where each is a fiber.
    let threads = if stream.device() == Device::Simt { WARP } else { 256 };
    let blocks = (count as u32).clamp(1, kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR);
    let (from, to, size_bytes) = (chunks.address(), blank.address(), blank.size_bytes() as u32);
    let arguments = (from, to, *stride_bytes as u64, count as u32, size_bytes, wanted.address());
    let buffers = [*chunks, *blank, &wanted];
    // SAFETY: the parameters of encode_differs. `run_unless_blank` has checked that as many chunks, each as large as `blank`, lie
    // in their memory as there are words, at multiples of 16 bytes.
    unsafe { kernel.launch(stream, blocks, threads, arguments, &buffers) }?;
    Ok(wanted)
}

/// Completes entries that say how large frames are ([`Launched::frames`](crate::codec::device::Launched::frames)): one frame
/// begins behind the other.
///
/// # Errors
/// `InvalidArgument` for read-only entries, and entries that do not begin at a multiple of 8 bytes; `MemorySpace` for a stream of
/// another device, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub fn place_frames(frames: &Buffer, stream: &Stream) -> Result<()> {
    if frames.is_read_only() || !frames.address().is_multiple_of(8) {
        return Err(Error::new(ErrorKind::InvalidArgument, "entries of frames are read-only, or not aligned"));
    }
    let count = (frames.size_bytes() / FRAME_ENTRY_BYTES) as u32;
    let kernel = ENCODED.kernel(stream.device(), "encode_places")?;
    // SAFETY: the parameters of encode_places, one warp for all entries. `count` is how many the buffer holds, which may be
    // written and is aligned, as was checked above.
    unsafe { kernel.launch(stream, 1, WARP, (frames.address(), count), &[frames]) }?;
    Ok(())
}
