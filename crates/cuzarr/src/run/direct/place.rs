//! Moves decoded chunks from a decoder's buffer to its outputs, and an encoder's chunks into one contiguous buffer.
//! Outputs and chunks may lie anywhere in memory.
//!
//! A launch of the program's tail (its steps that work on single elements) moves many chunks, if they belong to one
//! array. Outputs that follow each other in memory are the rows of such an array. Other small outputs are first made as
//! rows of a temporary array, and copied from there.

use cuzarr_device::internal::pool;
use cuzarr_device::internal::transfer::{copy_pieces_on, gather_on, scatter_on};
use cuzarr_device::{Buffer, Layout, NdBuffer, Order, Stream, Transfer, TransferBox};

use crate::codec::Program;
use crate::error::Result;
use crate::plan::strides;

/// Outputs that do not follow each other in memory get one kernel launch each if they have at least this size. A launch
/// takes about 20 microseconds, as long as copying this many bytes.
const LAUNCH_EACH_BYTES: usize = 16 << 20;

/// Maximum size of the temporary array from which smaller outputs are copied.
const BETWEEN_BYTES: usize = 64 << 20;

/// How the decoded bytes of a chunk get from the decoder's buffer to the output array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceWay {
    /// The decoded bytes are copied to the output, because they are laid out as the output is.
    Copied,
    /// One kernel moves the elements of many chunks at once, each chunk to one row of a larger array.
    Rows,
    /// A kernel moves the elements of this chunk alone to its output.
    Scattered,
}

/// Whether the decoded bytes of a chunk are plain elements in C order, which need no conversion.
pub(crate) fn is_plain(program: &Program) -> bool {
    program.tail().is_plain() && program.packed_axes().is_sorted()
}

/// Groups the numbers of arrays that have the same shape and type.
pub(crate) fn kinds(arrays: &[NdBuffer]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (number, array) in arrays.iter().enumerate() {
        let alike = |other: &NdBuffer| (other.shape(), other.dtype()) == (array.shape(), array.dtype());
        match kinds.iter_mut().find(|numbers| alike(&arrays[numbers[0]])) {
            Some(numbers) => numbers.push(number),
            None => kinds.push(vec![number]),
        }
    }
    kinds
}

fn way(program: &Program, out: &NdBuffer) -> PlaceWay {
    match out.is_contiguous(Order::C) {
        true if is_plain(program) => PlaceWay::Copied,
        true => PlaceWay::Rows,
        false => PlaceWay::Scattered,
    }
}

/// How many decoded chunks of `size_bytes` are copied to their outputs through the temporary array at a time.
fn between_len(size_bytes: usize, count: usize, limit_bytes: usize) -> usize {
    (BETWEEN_BYTES.min(limit_bytes) / size_bytes.max(1)).min(count).max(1)
}

/// Maximum device memory that [`place`] uses for `outs`, which have one shape and type.
pub(crate) fn between_bytes<'a>(
    program: &Program,
    outs: impl Iterator<Item = &'a NdBuffer>,
    limit_bytes: usize,
) -> usize {
    let between = |out: &&NdBuffer| way(program, out) == PlaceWay::Rows && out.size_bytes() < LAUNCH_EACH_BYTES;
    let sizes = outs.filter(between).map(NdBuffer::size_bytes);
    let (size_bytes, count) = sizes.fold((0, 0), |(_, count), size_bytes| (size_bytes, count + 1));
    size_bytes * between_len(size_bytes, count, limit_bytes)
}

/// Describes how a kernel moves all elements of a decoded chunk to all elements of `out`.
pub(crate) fn transfer(program: &Program, out: &NdBuffer, packed_offset_bytes: usize) -> Transfer {
    let item = TransferBox {
        packed_offset_bytes,
        packed_size_bytes: program.packed_size_bytes(),
        packed_first_elem: 0,
        start: vec![0; out.ndim()],
        extent: out.shape().to_vec(),
    };
    Transfer {
        tail: program.tail().clone(),
        packed_strides: packed_strides(program, out),
        lists: None,
        boxes: vec![item],
    }
}

fn packed_strides(program: &Program, out: &NdBuffer) -> Vec<isize> {
    let shape: Vec<u64> = out.shape().iter().map(|&extent| extent as u64).collect();
    strides(program.packed_axes().iter().copied(), &shape).into_iter().map(|stride| stride as isize).collect()
}

/// Moves decoded chunks of one shape and type to their outputs, given by their offsets in the decoder's buffer. For
/// several chunks it uses at most about `limit_bytes` of device memory.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(crate) fn place(
    program: &Program,
    packed: &Buffer,
    outs: &[(&NdBuffer, usize)],
    limit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    let (mut pieces, mut rows) = (Vec::new(), Vec::new());
    for &(out, offset) in outs {
        match way(program, out) {
            PlaceWay::Copied => {
                pieces.push((packed.slice(offset..offset + program.packed_size_bytes())?, out.as_buffer()?))
            }
            PlaceWay::Rows => rows.push((out, offset)),
            PlaceWay::Scattered => scatter_on(packed, &transfer(program, out, offset), out, stream)?,
        }
    }
    copy_pieces_on(&pieces, stream)?;
    match &rows[..] {
        [] => Ok(()),
        [(out, offset)] => Ok(scatter_on(packed, &transfer(program, out, *offset), out, stream)?),
        rows => place_rows(program, packed, rows, limit_bytes, stream),
    }
}

/// Moves the elements of decoded chunks to several outputs in C order, which have one shape and type. Outputs that
/// follow each other in memory take one launch. Otherwise each large output takes a launch. Small outputs are made as
/// rows of other memory, and copied from there.
fn place_rows(
    program: &Program,
    packed: &Buffer,
    outs: &[(&NdBuffer, usize)],
    limit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    let (like, _) = outs[0];
    let size_bytes = like.size_bytes();
    let places = outs.iter().map(|(out, _)| out.as_buffer()).collect::<cuzarr_device::Result<Vec<_>>>()?;
    if let Some((memory, offsets)) = Buffer::joined(&places) {
        let rows = offsets.iter().zip(outs).map(|(at, (_, packed_offset))| (at / size_bytes, *packed_offset));
        return scatter_rows(program, packed, rows, &memory, like, stream);
    }
    if size_bytes >= LAUNCH_EACH_BYTES {
        for (out, offset) in outs {
            scatter_on(packed, &transfer(program, out, *offset), out, stream)?;
        }
        return Ok(());
    }
    let len = between_len(size_bytes, outs.len(), limit_bytes);
    let memory = pool::allocate((len * size_bytes).max(1), stream)?;
    for (outs, places) in outs.chunks(len).zip(places.chunks(len)) {
        let memory = memory.slice(..outs.len() * size_bytes)?;
        let rows = outs.iter().enumerate().map(|(row, (_, packed_offset))| (row, *packed_offset));
        scatter_rows(program, packed, rows, &memory, like, stream)?;
        let pieces = places.iter().enumerate().map(|(row, place)| {
            let at = row * size_bytes;
            Ok((memory.slice(at..at + size_bytes)?, place.clone()))
        });
        copy_pieces_on(&pieces.collect::<Result<Vec<_>>>()?, stream)?;
    }
    Ok(())
}

/// Moves the elements of decoded chunks to the rows of an array that lies in `memory`. Each chunk is given by its row
/// and its offset. All rows have the shape and type of `like`.
fn scatter_rows(
    program: &Program,
    packed: &Buffer,
    rows: impl Iterator<Item = (usize, usize)>,
    memory: &Buffer,
    like: &NdBuffer,
    stream: &Stream,
) -> Result<()> {
    let (array, transfer) = as_rows(program, rows, memory, like)?;
    Ok(scatter_on(packed, &transfer, &array, stream)?)
}

/// Returns an array over `memory` whose rows have the shape and type of `like`, and how decoded chunks are moved to its
/// rows. Each chunk is given by its row and its offset.
fn as_rows(
    program: &Program,
    rows: impl Iterator<Item = (usize, usize)>,
    memory: &Buffer,
    like: &NdBuffer,
) -> Result<(NdBuffer, Transfer)> {
    let (shape, dtype) = (like.shape(), like.dtype());
    let layout = Layout::contiguous(
        &[&[memory.size_bytes() / like.size_bytes()][..], shape].concat(),
        dtype.size_bytes(),
        Order::C,
    )?;
    let array = NdBuffer::from_parts(memory.clone(), dtype, layout)?;
    let boxes = rows.map(|(row, packed_offset_bytes)| TransferBox {
        packed_offset_bytes,
        packed_size_bytes: program.packed_size_bytes(),
        packed_first_elem: 0,
        start: [&[row][..], &vec![0; shape.len()]].concat(),
        extent: [&[1][..], shape].concat(),
    });
    let packed_strides = [&[0][..], &packed_strides(program, like)].concat();
    let transfer = Transfer { tail: program.tail().clone(), packed_strides, lists: None, boxes: boxes.collect() };
    Ok((array, transfer))
}

/// Copies chunks of one shape and type into the buffer `packed`, each to its offset, for kernels to encode.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(crate) fn gather(program: &Program, chunks: &[(&NdBuffer, usize)], packed: &Buffer, stream: &Stream) -> Result<()> {
    let (mut pieces, mut rows) = (Vec::new(), Vec::new());
    for &(chunk, offset) in chunks {
        match way(program, chunk) {
            PlaceWay::Copied => {
                pieces.push((chunk.as_buffer()?, packed.slice(offset..offset + program.packed_size_bytes())?))
            }
            PlaceWay::Rows => rows.push((chunk, offset)),
            PlaceWay::Scattered => gather_on(chunk, &transfer(program, chunk, offset), packed, stream)?,
        }
    }
    copy_pieces_on(&pieces, stream)?;
    let places = rows.iter().map(|(chunk, _)| chunk.as_buffer()).collect::<cuzarr_device::Result<Vec<_>>>()?;
    match Buffer::joined(&places) {
        Some((memory, offsets)) => {
            let like = rows[0].0;
            let rows = offsets.iter().zip(&rows).map(|(at, (_, offset))| (at / like.size_bytes(), *offset));
            let (array, transfer) = as_rows(program, rows, &memory, like)?;
            gather_on(&array, &transfer, packed, stream)?;
        }
        None => {
            for (chunk, offset) in rows {
                gather_on(chunk, &transfer(program, chunk, offset), packed, stream)?;
            }
        }
    }
    Ok(())
}
