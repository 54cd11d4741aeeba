//! Launches of a codec's [`HeaderWalk`], which lists the headers inside of frames for the host.

use cuzarr_device::internal::{Threads, WARP, defined, pool, stated_size, upload_table};
use cuzarr_device::{Buffer, Device, Stream};

use crate::codec::device::{DeviceDecoder, HeaderWalk, Headers, Request, Unit};
use crate::{Error, ErrorKind, Result};

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
/// Number of frames below which the headers are read by fewer threads of the host.
const FRAMES_PER_THREAD: usize = 8;

/// A list in device memory to which a kernel appends copies of the headers inside frames: `HeaderList` in headers.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct List {
    pieces: usize,
    count: usize,
    most: u32,
    reserved: u32,
}

/// The headers inside of frames, as pieces of the frames' bytes.
pub(super) struct Found {
    /// The pieces, in the order of frames.
    pub(super) pieces: Vec<Piece>,
    /// For each frame, and for the end, the number of pieces of the frames before it.
    first: Vec<usize>,
    /// Whether the list had no room for all pieces of a frame.
    full: Vec<bool>,
}

/// Some bytes of the source, with their place in it.
pub(super) struct Piece {
    at: usize,
    bytes: [u8; PIECE_DATA],
    pub(super) size: usize,
}

/// Reads the headers of frames that lie only on the device, in `src`, which must already hold its bytes. Only the bytes
/// that the decoder's scan reads come to the host. A frame that kernels cannot decode has the decoder's error.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(in crate::codec::batch) fn read(
    decoder: &dyn DeviceDecoder,
    walk: HeaderWalk,
    src: &Buffer,
    units: &[Unit],
) -> Result<Vec<Result<Headers>>> {
    read_within(most_pieces(units), decoder, walk, src, units)
}

/// Like [`read`], but with a list of at most `most` header pieces; frames with pieces beyond that are read whole.
pub(super) fn read_within(
    most: usize,
    decoder: &dyn DeviceDecoder,
    walk: HeaderWalk,
    src: &Buffer,
    units: &[Unit],
) -> Result<Vec<Result<Headers>>> {
    let found = Found::of(most, walk, src, units)?;
    let threads = Threads::workers();
    let each = units.len().div_ceil(threads.most().max(1)).max(FRAMES_PER_THREAD);
    // A thread reads its frames in one piece of memory, because pages of fresh memory cost more than the reading. All
    // bytes that are not headers are 0, whatever frame came before.
    let some = |from: usize| -> Result<Vec<Result<Headers>>> {
        let units = &units[from..units.len().min(from + each)];
        let mut memory = vec![0; units.iter().map(|unit| unit.src.len()).max().unwrap_or(0)];
        let read = |(index, unit): (usize, &Unit)| {
            let frame = &mut memory[..unit.src.len()];
            found.copy(from + index, unit, src, frame)?;
            let headers = headers_of(decoder, src.device(), frame, unit.dst.len());
            found.erase(from + index, unit, frame);
            Ok(headers)
        };
        units.iter().enumerate().map(read).collect()
    };
    let parts = threads.map(threads.most(), (0..units.len()).step_by(each), some);
    Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Reads a frame's headers. If kernels cannot decode it, returns the error with which the decoder refuses it.
fn headers_of(decoder: &dyn DeviceDecoder, device: Device, frame: &[u8], decoded_bytes: usize) -> Result<Headers> {
    if let Some(headers) = decoder.headers(frame, decoded_bytes) {
        return Ok(headers);
    }
    let units = [Unit { src: 0..frame.len(), dst: 0..decoded_bytes }];
    let request = Request { device, units: &units, host: Some(frame), headers: &[], scratch_aim_bytes: 0 };
    let (_, refused) = decoder.prepare(&request)?.into_parts();
    let unknown = || Error::new(ErrorKind::Unsupported, "kernels do not decode this frame");
    Err(refused.into_iter().next().map_or_else(unknown, |(_, error)| error))
}

/// The number of pieces for which a list of header pieces has room.
pub(super) fn most_pieces(units: &[Unit]) -> usize {
    let spanned: usize = units.iter().map(|unit| unit.src.len() + unit.dst.len()).sum();
    (units.len() * PIECES_PER_FRAME + spanned / BYTES_PER_PIECE).min(u32::MAX as usize / 2)
}

impl Found {
    /// Finds the headers of frames, at most `most` pieces of them.
    pub(super) fn of(most: usize, walk: HeaderWalk, src: &Buffer, units: &[Unit]) -> Result<Found> {
        let mut found = Found { pieces: Vec::new(), first: vec![0; units.len() + 1], full: vec![false; units.len()] };
        if units.is_empty() {
            return Ok(found);
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
        // SAFETY: the parameters of every walk, as headers.cuh says. Only decoders of this crate have walks, which stay in
        // their frame and in the list. `Batch::prepare_read` has checked that units lie in the source. Room for `most`
        // pieces, their count, and a word for each frame was allocated here.
        unsafe { kernel.launch(&stream, blocks, threads, arguments, &[src, &table, &pieces, &counts]) }?;
        stream.synchronize()?;
        let counts = counts.to_vec()?;
        let words: Vec<u32> = counts.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        found.full = words[1..].iter().map(|&word| word != 0).collect();
        let bytes = pieces.slice(..(words[0] as usize).min(most) * PIECE_BYTES)?.to_vec()?;
        let mut listed: Vec<(usize, Piece)> = bytes.as_chunks::<PIECE_BYTES>().0.iter().map(piece).collect();
        listed.sort_by_key(|(unit, _)| *unit);
        found.first = (0..=units.len()).map(|unit| listed.partition_point(|(of, _)| *of < unit)).collect();
        found.pieces = listed.into_iter().map(|(_, piece)| piece).collect();
        Ok(found)
    }

    /// Copies the headers of a frame to their places in `frame`, or the whole frame if the list had no room for all of
    /// its headers.
    fn copy(&self, index: usize, unit: &Unit, src: &Buffer, frame: &mut [u8]) -> Result<()> {
        if self.full[index] {
            frame.copy_from_slice(&src.slice(unit.src.clone())?.to_vec()?);
            return Ok(());
        }
        self.each(index, unit, frame, |to, bytes| to.copy_from_slice(bytes));
        Ok(())
    }

    /// Sets the bytes that [`Found::copy`] copied to 0.
    fn erase(&self, index: usize, unit: &Unit, frame: &mut [u8]) {
        if self.full[index] {
            return frame.fill(0);
        }
        self.each(index, unit, frame, |to, _| to.fill(0));
    }

    /// Calls `work` for each piece of a frame, with its place in `frame` and its bytes.
    fn each(&self, index: usize, unit: &Unit, frame: &mut [u8], work: impl Fn(&mut [u8], &[u8])) {
        for Piece { at, bytes, size } in &self.pieces[self.first[index]..self.first[index + 1]] {
            let to = at.checked_sub(unit.src.start).and_then(|at| frame.get_mut(at..at + size));
            to.into_iter().for_each(|to| work(to, &bytes[..*size]));
        }
    }
}

/// Returns a header piece, and the number of its frame.
fn piece(listed: &[u8; PIECE_BYTES]) -> (usize, Piece) {
    let (place, data) = listed.split_at(PIECE_BYTES - PIECE_DATA);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte));
    let mut bytes = [0; PIECE_DATA];
    bytes.copy_from_slice(data);
    let size = number(&place[8..12]).min(PIECE_DATA);
    (number(&place[12..16]), Piece { at: number(&place[..8]), bytes, size })
}
