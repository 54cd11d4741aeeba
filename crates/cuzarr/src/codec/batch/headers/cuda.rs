//! Launches of a codec's [`HeaderWalk`], which lists the headers inside of frames for the host.

use cuzarr_device::internal::{WARP, defined, pool, stated_size, upload_table};
use cuzarr_device::{Buffer, Device, Stream};

use crate::Result;
use crate::codec::device::{HeaderWalk, Unit};

const HEADER: &str = include_str!("headers.cuh");
/// Bytes of a `HeaderPiece` in headers.cuh, which carries some bytes of a frame to the host. `PIECE_DATA` of them are
/// bytes of a frame.
const PIECE_BYTES: usize = stated_size(HEADER, "HeaderPiece");
const PIECE_DATA: usize = defined(HEADER, "CUZARR_HEADER_BYTES") as usize;
/// Number of header pieces per frame for which the list has room, besides one for each `BYTES_PER_PIECE` stored and
/// decoded bytes. Known writers make far larger blocks. A frame whose pieces have no room is read whole.
const PIECES_PER_FRAME: usize = 16;
const BYTES_PER_PIECE: usize = 1 << 10;
/// Threads in a thread block of the kernel that walks through frames. The walk through a frame takes
/// [`HeaderWalk::threads`] of them.
const THREADS: u32 = 128;

/// A list in device memory to which a kernel appends copies of the headers inside frames: `HeaderList` in headers.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct List {
    pieces: usize,
    count: usize,
    most: u32,
    reserved: u32,
}

/// Copies only the headers of frames from the device to the host, into a buffer as long as `src`. Only the bytes that a
/// scan of the units' headers reads are filled in. `src` must already hold its bytes.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(in crate::codec::batch) fn gather(walk: HeaderWalk, src: &Buffer, units: &[Unit]) -> Result<Vec<u8>> {
    let spanned: usize = units.iter().map(|unit| unit.src.len() + unit.dst.len()).sum();
    let most = (units.len() * PIECES_PER_FRAME + spanned / BYTES_PER_PIECE).min(u32::MAX as usize / 2);
    gather_within(most, walk, src, units)
}

/// Like [`gather`], but with a list of at most `most` header pieces; frames with pieces beyond that are copied whole.
pub(super) fn gather_within(most: usize, walk: HeaderWalk, src: &Buffer, units: &[Unit]) -> Result<Vec<u8>> {
    // Pages that are never written take no memory.
    let mut bytes = vec![0; src.size_bytes()];
    if units.is_empty() {
        return Ok(bytes);
    }
    let device = src.device();
    let stream = Stream::new(device)?;
    let table: Vec<u8> = units
        .iter()
        .flat_map(|unit| [unit.src.start as u64, unit.src.len() as u64])
        .flat_map(u64::to_ne_bytes)
        .collect();
    let table = upload_table(&table, &stream)?;
    let pieces = pool::allocate(most * PIECE_BYTES, &stream)?;
    let counts = pool::allocate((1 + units.len()) * 4, &stream)?;
    stream.memset(&counts, 0)?;
    let kernel = walk.source.kernel(device, walk.kernel)?;
    let walkers = units.len() as u32;
    let threads = if device == Device::Simt { WARP } else { THREADS };
    let blocks = walkers.div_ceil(threads / walk.threads);
    let list = List { pieces: pieces.address(), count: counts.address(), most: most as u32, reserved: 0 };
    let arguments = (src.address(), table.address(), walkers, list);
    // SAFETY: the parameters of every walk, as headers.cuh says. Only decoders of this crate have walks, which stay in their
    // frame and in the list. `Batch::prepare_read` has checked that units lie in the source. Room for `most` pieces, their
    // count, and a word for each frame was allocated here.
    unsafe { kernel.launch(&stream, blocks, threads, arguments, &[src, &table, &pieces, &counts]) }?;
    stream.synchronize()?;
    let counts = counts.to_vec()?;
    let words: Vec<u32> = counts.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let (count, full) = (words[0] as usize, &words[1..]);
    let pieces = pieces.slice(..count.min(most) * PIECE_BYTES)?.to_vec()?;
    for piece in pieces.as_chunks::<PIECE_BYTES>().0 {
        put(&mut bytes, piece);
    }
    for (unit, _) in units.iter().zip(full).filter(|&(_, &full)| full != 0) {
        bytes[unit.src.clone()].copy_from_slice(&src.slice(unit.src.clone())?.to_vec()?);
    }
    Ok(bytes)
}

/// Copies the bytes of one header piece into `bytes`, at the offset that the piece states.
fn put(bytes: &mut [u8], piece: &[u8; PIECE_BYTES]) {
    let (place, data) = piece.split_at(PIECE_DATA);
    let (at, size) = place.split_at(8);
    let at = at.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte));
    let size = usize::from(size[0]).min(PIECE_DATA);
    if let Some(to) = bytes.get_mut(at..at + size) {
        to.copy_from_slice(&data[..size]);
    }
}
