//! Writers: they take rows of arrays from a running program, and store them behind its back.
//!
//! ```text
//! program   append ─> copy into a block ────────┐ (in the order of the program's stream)
//! writer              block is whole ─> encode ─> store ─> longer shape
//! ```
//!
//! A block has the rows of one stored object, a chunk or a shard, so each object is written once. The program waits only
//! while all memory for blocks is in use. The shape is stored after the rows, so a killed program leaves an array that
//! ends with its last whole block.

mod rows;
mod storing;
mod track;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use cuzarr_device::internal::pool;
use cuzarr_device::{Device, NdBuffer, Stream};

use self::storing::{Shared, Stored};
use self::track::{Checked, Streams, Track};
use super::array::Array;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::run::{Engine, WriterMark};
use crate::store::join_key;

/// Options of a [`Writer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// For each array, the number of blocks for which there is memory: one that is filled, and those that are being stored.
    /// More of them let a program that makes rows unevenly wait less, and rows come further out of order.
    pub slots: usize,
    /// Whether chunks behind the stored shape are deleted first. A program that was killed while it wrote may have left
    /// some.
    pub resume: bool,
    /// The part of the array that this writer fills, as the first element and the extent along each dimension; `None` for
    /// all rows from the array's end on. The array then keeps its shape, so several programs can fill one array.
    pub region: Option<(Vec<u64>, Vec<u64>)>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { slots: 2, resume: false, region: None }
    }
}

/// Takes rows of one or several arrays from a running program, and stores them on a thread of its own. A row is all
/// elements with one index along the writer's dimension.
///
/// A call that adds rows copies them and returns. Rows are gathered until a chunk, or a shard, is whole. So the last rows
/// are stored by [`Writer::flush`] or [`Writer::close`].
///
/// An error of the storing thread comes with the next call. Every later call fails with it, too. Rows before
/// [`Writer::position`] are stored. Dropping a writer without closing it stores nothing more than what is being stored.
///
/// ```
/// use cuzarr::node::WriterOptions;
/// use cuzarr::prelude::*;
///
/// let mut array = Array::builder([0, 2], DataType::UInt8).chunks([4, 2]).create("memory://steps")?;
/// let mut writer = array.writer(0, WriterOptions::default())?;
/// for step in 0..6_u8 {
///     writer.append(0, &NdBuffer::from_slice(Device::Cpu, &[step, 10 * step], &[2])?, None)?;
/// }
/// writer.close()?;
/// array.refresh()?;
/// assert_eq!(array.shape(), [6, 2]);
/// assert_eq!(array.read::<u8>(&Selection::region(&[4, 0], &[2, 2])?)?[..], [4, 40, 5, 50]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
pub struct Writer {
    shared: Arc<Shared>,
    tracks: Vec<Track>,
    device: Device,
    copies: Stream,
    thread: Option<JoinHandle<()>>,
    /// The process that opened the writer. In a forked child, its thread does not exist.
    process: u32,
}

impl Array {
    /// Opens a writer that adds rows to this array along dimension `axis`.
    ///
    /// # Errors
    /// Those of [`Writer::new`].
    pub fn writer(&self, axis: usize, options: WriterOptions) -> Result<Writer> {
        Writer::new(vec![(self.clone(), axis)], &options)
    }
}

impl Writer {
    /// Opens a writer that adds rows to arrays of one store, each along its dimension. Allocates the memory for rows, on
    /// the device of the arrays.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no array, no dimension `axis` or no slot, when arrays have different stores or
    /// devices, when another writer of this process has an array, and when a region shares stored objects with its
    /// neighbours; `Unsupported` for elements of variable length and for chunks of several heights; `OutOfMemory`.
    pub fn new(arrays: Vec<(Array, usize)>, options: &WriterOptions) -> Result<Writer> {
        let Some((first, _)) = arrays.first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "a writer needs an array"));
        };
        let (device, memory_limit_bytes) = (first.device(), first.options().memory_limit_bytes);
        if options.slots == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "a writer needs at least 1 slot"));
        }
        let identity = first.store().identity();
        let apart = |array: &Array| array.device() != device || array.store().identity() != identity;
        if let Some((other, _)) = arrays.iter().find(|(array, _)| apart(array)) {
            let message = format!("{} and {} have different stores or devices", first.place(), other.place());
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("open a writer for each"));
        }
        let is_final = options.region.is_some();
        let region = options.region.as_ref().map(|(start, extent)| {
            let range = |(&start, &extent): (&u64, &u64)| start..start.saturating_add(extent);
            start.iter().zip(extent).map(range).collect::<Vec<_>>()
        });
        let mark = |(array, _): &(Array, usize)| {
            let mark = Engine::get().mark_writer(identity.below(array.path()), region.clone());
            let taken = || Error::new(ErrorKind::InvalidArgument, "another writer has these elements of the array");
            mark.ok_or_else(|| taken().at(array.place()).with_hint("close it first"))
        };
        // Before the shapes are read, so that nothing else in this process changes them in between.
        let marks = arrays.iter().map(mark).collect::<Result<Vec<WriterMark>>>()?;
        let stored =
            arrays.into_iter().map(|(array, axis)| stored(array, axis, options)).collect::<Result<Vec<_>>>()?;
        if options.resume && !is_final {
            stored.iter().try_for_each(|of| delete_behind(&of.array))?;
        }
        let mut sorted: Vec<usize> = (0..stored.len()).collect();
        sorted.sort_by(|&one, &other| stored[one].array.path().cmp(stored[other].array.path()));
        let track =
            |(number, of): (usize, &Stored)| Track::new(number, of, options.slots, is_final).at(|| of.array.place());
        let mut tracks = stored.iter().enumerate().map(track).collect::<Result<Vec<Track>>>()?;
        let starts: Vec<u64> = stored.iter().map(|of| of.start[of.axis]).collect();
        let begin = starts.iter().copied().min().unwrap_or(0);
        tracks.iter_mut().for_each(|track| track.begin_at(begin));
        let _within = pool::within(device, memory_limit_bytes);
        let memory = tracks.iter().map(|track| track.memory(device)).collect::<Result<Vec<_>>>()?;
        let shared = Shared::new(memory, starts, stored[0].array.options().cancellation.clone());
        let (copies, of_thread) = (Stream::new(device)?, Arc::clone(&shared));
        let run = move || {
            storing::run(&of_thread, stored, &sorted, is_final);
            // The arrays are free before the writer's end is known.
            drop(marks);
            of_thread.end();
        };
        let refused = |error| Error::new(ErrorKind::StoreFailed, format!("the system refuses a thread: {error}"));
        let thread = Builder::new().name("cuzarr-writer".into()).spawn(run).map_err(refused)?;
        let process = std::process::id();
        Ok(Writer { shared, tracks, device, copies, thread: Some(thread), process })
    }

    /// Adds rows behind the last rows of an array, given by its number among the writer's arrays. `value` has the array's
    /// shape but for the number of rows, or that of one row. Its elements are converted to the array's type.
    ///
    /// Work on `stream` that was submitted before comes before the copy of the rows, and later work on it after the copy,
    /// so the caller may change `value` there at once. Without a stream that is the legacy default stream. Values in host
    /// memory are copied when this returns.
    ///
    /// # Errors
    /// `ShapeMismatch`, `InvalidArgument` and `OutOfRange` for rows that the writer cannot take; it goes on then. The
    /// failure that ended the writer.
    pub fn append(&mut self, array: usize, value: &NdBuffer, stream: Option<&Stream>) -> Result<()> {
        self.add(&[(array, value.clone(), stream.cloned())], None, false)
    }

    /// Like [`Writer::append`], but from row `row` on. Rows may come out of order, as far as there is memory for them, and
    /// again. The array ends before the first row that did not come.
    ///
    /// # Errors
    /// Those of [`Writer::append`].
    pub fn write(&mut self, array: usize, row: u64, value: &NdBuffer, stream: Option<&Stream>) -> Result<()> {
        self.add(&[(array, value.clone(), stream.cloned())], Some(row), false)
    }

    /// Adds rows to several arrays, each with its number, its rows and the stream on which they are made. They begin at
    /// `row`, or behind the last rows of the arrays. All are checked before any is added. With `keeps`, the caller never
    /// changes the values again: they are kept as long as needed, and whole blocks of them are stored without a copy.
    ///
    /// # Errors
    /// Those of [`Writer::append`]; `ShapeMismatch` also when values without `row` have different numbers of rows.
    pub fn add(&mut self, given: &[(usize, NdBuffer, Option<Stream>)], row: Option<u64>, keeps: bool) -> Result<()> {
        self.check()?;
        let count = self.tracks.len();
        let none = |array| Error::new(ErrorKind::InvalidArgument, format!("there is no array {array} of {count}"));
        let check = |(array, value, _): &(usize, NdBuffer, Option<Stream>)| {
            self.tracks.get(*array).ok_or_else(|| none(*array))?.check(row, value)
        };
        let checked = given.iter().map(check).collect::<Result<Vec<Checked>>>()?;
        if let (None, Some(first)) = (row, checked.first())
            && let Some(other) = checked.iter().find(|other| other.rows != first.rows)
        {
            let message = format!("rows {:?} and {:?} are not the same", first.rows, other.rows);
            return Err(Error::new(ErrorKind::ShapeMismatch, message).with_hint("add rows of one array by `write`"));
        }
        for ((array, value, stream), checked) in given.iter().zip(checked) {
            let theirs = match stream {
                _ if value.device() == Device::Cpu => None,
                Some(stream) => Some(stream.clone()),
                None => Some(Stream::legacy(value.device())?),
            };
            if let Some(theirs) = &theirs {
                match theirs.device() == self.device {
                    true => self.copies.wait(&theirs.record()?)?,
                    false => theirs.synchronize()?,
                }
            }
            self.tracks[*array].add(&self.shared, checked, &Streams { copies: &self.copies, keeps })?;
            if let Some(theirs) = theirs.filter(|theirs| theirs.device() == self.device && !keeps) {
                theirs.wait(&self.copies.record()?)?;
            }
        }
        Ok(())
    }

    /// Stores all rows that were added, and waits until they are stored. Chunks that are not whole are written now, and
    /// again when they are.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.tracks.iter_mut().try_for_each(|track| track.flush(&self.shared, &self.copies))?;
        self.shared.drain()
    }

    /// Stores all rows that were added, waits for them, and ends the writer. A second call does nothing.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub fn close(&mut self) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        let outcome = self.flush();
        if self.process == std::process::id() {
            self.finish(outcome.is_err());
        }
        outcome
    }

    /// How far the writer has come, for other threads.
    pub fn progress(&self) -> WriterProgress {
        WriterProgress { shared: Arc::clone(&self.shared), arrays: self.tracks.len() }
    }

    /// The first row that is not stored yet; of several arrays the smallest.
    pub fn position(&self) -> u64 {
        self.progress().position()
    }

    /// The row behind the last one that was added; of several arrays the largest.
    pub fn end(&self) -> u64 {
        self.tracks.iter().map(Track::end).max().unwrap_or(0)
    }

    /// Refuses a call after a failure, after the end, and in a forked child.
    fn check(&self) -> Result<()> {
        if self.process != std::process::id() {
            let message = "the writer belongs to the process that opened it, and this is a forked child";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("open the array and a writer here"));
        }
        self.shared.failure()?;
        match self.thread {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::InvalidArgument, "the writer is closed")),
        }
    }

    /// Ends the storing thread, and frees the memory for rows.
    fn finish(&mut self, abandoned: bool) {
        self.shared.close(abandoned);
        // A thread that waits for a store without an answer ends by itself.
        drop(self.thread.take());
        self.tracks.iter_mut().for_each(Track::clear);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.thread.is_some() && self.process == std::process::id() {
            self.finish(true);
        }
    }
}

/// How far a writer has come. It may be asked while another thread waits in a call of the writer.
#[derive(Clone)]
pub struct WriterProgress {
    shared: Arc<Shared>,
    arrays: usize,
}

impl WriterProgress {
    /// The first row that is not stored yet; of several arrays the smallest.
    pub fn position(&self) -> u64 {
        (0..self.arrays).map(|number| self.shared.position(number)).min().unwrap_or(0)
    }

    /// How long calls waited for memory, because rows came faster than they were stored.
    pub fn waited(&self) -> Duration {
        self.shared.waited()
    }
}

/// Checks where a writer adds rows to an array, and makes the array ready for it.
fn stored(mut array: Array, axis: usize, options: &WriterOptions) -> Result<Stored> {
    let place = array.place();
    let work = || -> Result<Stored> {
        let ndim = array.shape().len();
        if axis >= ndim {
            let message = format!("there is no dimension {axis} in shape {:?}", array.shape());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        array.device_dtype()?;
        if array.metadata().chunk_grid().rectilinear().is_some() {
            let message = "chunks of several extents are not written row by row";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use append or region writes"));
        }
        let chunks = array.metadata().chunk_grid().chunk_shape().to_vec();
        if let Some((start, extent)) = &options.region {
            array.refresh()?;
            check_region(array.shape(), &chunks, start, extent)?;
            return Ok(Stored::new(array, axis, start.clone(), extent.clone(), chunks[axis]));
        }
        array.refresh()?;
        let (mut start, mut extent) = (vec![0; ndim], array.shape().to_vec());
        start[axis] = std::mem::replace(&mut extent[axis], 0);
        Ok(Stored::new(array, axis, start, extent, chunks[axis]))
    };
    work().at(|| place)
}

/// Refuses a region that lies outside of the array, or that has a part of a stored object.
fn check_region(shape: &[u64], chunks: &[u64], start: &[u64], extent: &[u64]) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    if start.len() != shape.len() || extent.len() != shape.len() {
        return Err(invalid(format!("a region of {} dimensions in shape {shape:?}", start.len())));
    }
    for (dimension, (((&start, &extent), &size), &chunk)) in start.iter().zip(extent).zip(shape).zip(chunks).enumerate()
    {
        let end = start.checked_add(extent).filter(|end| *end <= size);
        let Some(end) = end else {
            let message = format!(
                "region {start}..{} along dimension {dimension} leaves its {size} elements",
                start.saturating_add(extent)
            );
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let chunk = chunk.max(1);
        if start.is_multiple_of(chunk) && (end.is_multiple_of(chunk) || end == size) {
            continue;
        }
        let (down, up) = (start / chunk * chunk, (end.div_ceil(chunk) * chunk).min(size));
        let message = format!(
            "region {start}..{end} along dimension {dimension} shares stored objects of {chunk} with its neighbours"
        );
        return Err(
            invalid(message).with_hint(format!("regions begin and end at multiples of {chunk}, such as {down}..{up}"))
        );
    }
    Ok(())
}

/// Deletes chunks that lie behind the array's shape, which a killed writer left.
fn delete_behind(array: &Array) -> Result<()> {
    let ndim = array.metadata().ndim();
    let is_chunk = |key: &String| array.metadata().chunk_key_encoding().parse_key(key, ndim).is_some();
    let keys = array.foreign_keys()?.into_iter().filter(is_chunk);
    let keys: Vec<String> = keys.map(|key| join_key(array.path(), &key)).collect();
    array.store().delete_many(&keys)?;
    Engine::get().forget(&**array.store(), keys.iter().map(String::as_str));
    Ok(())
}
