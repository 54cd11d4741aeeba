//! Launches of `encoded.cu`, whose kernels the encoders of all codecs share.

use cuzarr_device::internal::{WARP, pool};
use cuzarr_device::{Buffer, Device, KernelSource, Stream};

use super::{Blank, SIZE_BYTES};
use crate::codec::batch::HEADERS;
use crate::codec::device::FRAME_ENTRY_BYTES;
use crate::{Error, ErrorKind, Result};

static ENCODED: KernelSource = KernelSource { name: "encoded", text: include_str!("encoded.cu"), headers: &[HEADERS] };

/// For the kernel that compares chunks: how many of its thread blocks a multiprocessor holds at once.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// Returns a `u32` for each chunk: its size from `chunk_bytes`, or 0 for a chunk that equals the blank chunk bit for
/// bit.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(super) fn sizes(blank: Option<&Blank<'_>>, chunk_bytes: &[usize], stream: &Stream) -> Result<Buffer> {
    let (count, words_bytes) = (chunk_bytes.len(), chunk_bytes.len() * SIZE_BYTES);
    let words = |sizes: &[usize]| sizes.iter().flat_map(|&size| (size as u32).to_ne_bytes()).collect::<Vec<u8>>();
    let sizes = pool::allocate(words_bytes, stream)?;
    let Some(Blank { chunks, stride_bytes, blank, compared_bytes }) = blank else {
        stream.h2d(&words(chunk_bytes), &sizes)?;
        return Ok(sizes);
    };
    let given = pool::allocate(2 * words_bytes, stream)?;
    stream.h2d(&[words(compared_bytes), words(chunk_bytes)].concat(), &given)?;
    stream.memset(&sizes, 0)?;
    let kernel = ENCODED.kernel(stream.device(), "encode_differs")?;
    // Few threads on `simt`, which runs each as a fiber.
    let threads = if stream.device() == Device::Simt { WARP } else { 256 };
    let blocks = (count as u32).clamp(1, kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR);
    let (compared, encoded) = (given.address(), given.address() + words_bytes);
    let arguments =
        (chunks.address(), blank.address(), *stride_bytes as u64, count as u32, compared, encoded, sizes.address());
    let buffers = [*chunks, *blank, &given, &sizes];
    // SAFETY: the parameters of encode_differs. `run_unless_blank` has checked that as many chunks as there are words lie in their
    // memory, at multiples of 16 bytes, and that they and `blank` have the bytes that are compared.
    unsafe { kernel.launch(stream, blocks, threads, arguments, &buffers) }?;
    Ok(sizes)
}

/// Computes where each frame begins, and fills this into entries
/// ([`Launched::frames`](crate::codec::device::Launched::frames)) that hold only the frames' sizes. Frames are placed
/// one after the other.
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
