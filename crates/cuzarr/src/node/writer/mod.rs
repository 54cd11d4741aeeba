//! Writers: they take rows of arrays from a running program, and store them in the background.
//!
//! ```text
//! program   append ─> copy into a block ────────┐ (in the order of the program's stream)
//! writer              block is whole ─> encode ─> store ─> longer shape
//! ```
//!
//! A block has the rows of one stored object, a chunk or a shard, so each object is written once. The program waits only
//! while all memory for blocks is in use. The shape is stored after the rows, so a killed program leaves an array that
//! ends with its last whole block.

mod blocks;
mod gathered;
mod levels;
mod opening;
mod placing;
mod rows;
mod shards;
mod stored;
mod storing;
mod tasks;
mod track;

use std::collections::BTreeSet;
use std::iter;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use cuzarr_device::internal::pool;
use cuzarr_device::{Device, NdBuffer, Stream};

use self::gathered::Gathered;
use self::levels::Levels;
pub use self::opening::WriterArray;
use self::opening::{Image, Opened};
use self::placing::Placing;
use self::shards::Shards;
use self::stored::Stored;
use self::storing::Shared;
use self::tasks::{Task, Work};
use self::track::{Checked, Streams, Track};
use super::array::Array;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::run::{Engine, WriterMark};

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
    pub fn new<T: Into<WriterArray>>(arrays: Vec<T>, options: &WriterOptions) -> Result<Writer> {
        let arrays: Vec<WriterArray> = arrays.into_iter().map(Into::into).collect();
        let Some(first) = arrays.first().map(|of| &of.array) else {
            return Err(Error::new(ErrorKind::InvalidArgument, "a writer needs an array"));
        };
        let (device, memory_limit_bytes) = (first.device(), first.options().memory_limit_bytes);
        if options.slots == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "a writer needs at least 1 slot"));
        }
        let identity = first.store().identity();
        let all = || arrays.iter().flat_map(|of| iter::once(&of.array).chain(of.levels.iter().map(|(array, _)| array)));
        let apart = |array: &&Array| array.device() != device || array.store().identity() != identity;
        if let Some(other) = all().find(apart) {
            let message = format!("{} and {} have different stores or devices", first.place(), other.place());
            let hint = "open a writer for each, or open an image and its levels from one group";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        }
        let mut paths = BTreeSet::new();
        if let Some(twice) = all().find(|array| !paths.insert(array.path())) {
            let error = Error::new(ErrorKind::InvalidArgument, "the array is given twice");
            return Err(error.at(twice.place()));
        }
        let is_final = options.region.is_some();
        let region = options.region.as_ref().map(|(start, extent)| {
            let range = |(&start, &extent): (&u64, &u64)| start..start.saturating_add(extent);
            start.iter().zip(extent).map(range).collect::<Vec<_>>()
        });
        let mark = |array: &Array| {
            let mark = Engine::get().mark_writer(identity.below(array.path()), region.clone());
            let taken = || Error::new(ErrorKind::InvalidArgument, "another writer has these elements of the array");
            mark.ok_or_else(|| taken().at(array.place()).with_hint("close it first"))
        };
        // Before the shapes are read, so that nothing else in this process changes them in between.
        let marks = all().map(mark).collect::<Result<Vec<WriterMark>>>()?;
        let Opened { stored, images } = opening::open(arrays, options)?;
        let track = |(number, image): (usize, &Image)| {
            let of = &stored[number];
            let settles = of.sharding.is_some() || !image.levels.is_empty();
            Track::new(number, of, options.slots, is_final, settles).at(|| of.array.place())
        };
        let mut tracks = images.iter().enumerate().map(track).collect::<Result<Vec<Track>>>()?;
        let starts: Vec<u64> = stored.iter().map(|of| of.part.start[of.part.axis]).collect();
        let begin = starts[..tracks.len()].iter().copied().min().unwrap_or(0);
        tracks.iter_mut().for_each(|track| track.begin_at(begin));
        let _within = pool::within(device, memory_limit_bytes);
        let memory = tracks.iter().map(|track| track.memory(device)).collect::<Result<Vec<_>>>()?;
        let gathered = gathered(&stored, &images, is_final, device)?;
        let shared = Shared::new(memory, starts, stored[0].array.options().cancellation.clone());
        for (array, image) in images.into_iter().enumerate() {
            for (finer, span) in image.remade {
                shared.add(Task { array, span, work: Work::Remake(finer) }, usize::MAX)?;
            }
        }
        let (copies, of_thread) = (Stream::new(device)?, Arc::clone(&shared));
        let run = move || {
            storing::run(&of_thread, stored, &gathered, is_final);
            // The arrays are free before the writer's end is known.
            drop((marks, gathered));
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
            let added = self.tracks[*array].add(&self.shared, checked, &Streams { copies: &self.copies, keeps });
            // Some of the rows may be on their way, even after a failure.
            if let Some(theirs) = theirs.filter(|theirs| theirs.device() == self.device && !keeps) {
                theirs.wait(&self.copies.record()?)?;
            }
            added?;
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

/// Makes what is shared by the threads that write batches.
fn gathered(stored: &[Stored], images: &[Image], is_final: bool, device: Device) -> Result<Gathered> {
    let shards = |(number, of): (usize, &Stored)| {
        let sharding = of.sharding.clone();
        sharding.map(|sharding| Shards::new(number, of, sharding, of.end_of_rows(is_final))).transpose()
    };
    let levels = |number: usize| match images.get(number).filter(|image| !image.levels.is_empty()) {
        Some(image) => Levels::new(stored, number, &image.levels, image.method, device).map(|of| Some(Mutex::new(of))),
        None => Ok(None),
    };
    let shards = stored.iter().enumerate().map(shards).collect::<Result<_>>()?;
    let levels = (0..stored.len()).map(levels).collect::<Result<_>>()?;
    let members = |(number, image): (usize, &Image)| iter::once(number).chain(image.numbers()).collect();
    let (parts, images) = (stored.iter().map(|of| of.part.clone()).collect(), images.iter().enumerate().map(members));
    Ok(Gathered { placing: Placing::new(shards, parts, images.collect()), levels })
}
