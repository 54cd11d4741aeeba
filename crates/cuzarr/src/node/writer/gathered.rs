//! What threads that write batches share: rows that were taken, and are not stored yet.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use cuzarr_device::NdBuffer;

use super::levels::{Levels, Sink};
use super::rows::Rows;
use super::shards::Shards;
use super::storing::{StoredRows, Task, Work};
use crate::error::Result;
use crate::node::array::Array;
use crate::node::many::{ArrayWrite, write_all};
use crate::plan::Selection;

/// For each array of a writer, its shards that are not whole, and its coarser levels.
pub(super) struct Gathered {
    pub(super) shards: Vec<Option<Shards>>,
    pub(super) levels: Vec<Option<Mutex<Levels>>>,
    pub(super) parts: Vec<Part>,
    /// For each array, the first row that is not in the store.
    ends: Mutex<Vec<u64>>,
    /// The arrays, each long enough for all rows that were given to threads.
    longest: Mutex<Vec<Array>>,
}

/// The part of an array that a writer fills: the first element and the extent along each dimension. Along `axis`, rows
/// are counted from the beginning of the array.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) axis: usize,
    pub(super) start: Vec<u64>,
    pub(super) extent: Vec<u64>,
}

impl Part {
    /// The elements of rows.
    pub(super) fn selection(&self, rows: &Range<u64>) -> Result<Selection> {
        let (mut start, mut extent) = (self.start.clone(), self.extent.clone());
        (start[self.axis], extent[self.axis]) = (rows.start, rows.end - rows.start);
        Selection::region(&start, &extent)
    }
}

/// Rows of one block that are to be written.
pub(super) struct Put {
    pub(super) array: usize,
    pub(super) span: Range<u64>,
    /// The rows that the program gave; the others in `span` have the fill value.
    pub(super) rows: Rows,
    pub(super) value: NdBuffer,
}

impl Gathered {
    pub(super) fn new(shards: Vec<Option<Shards>>, levels: Vec<Option<Mutex<Levels>>>, parts: Vec<Part>) -> Gathered {
        Gathered { shards, levels, parts, ends: Mutex::default(), longest: Mutex::default() }
    }

    /// The arrays, each long enough for the rows of all threads.
    pub(super) fn arrays(&self) -> Vec<Array> {
        self.longest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lengthen(&self, arrays: &[Array]) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        if longest.is_empty() {
            longest.extend_from_slice(arrays);
        }
        for ((own, of), Part { axis, .. }) in longest.iter_mut().zip(arrays).zip(&self.parts) {
            if own.shape()[*axis] < of.shape()[*axis] {
                *own = of.clone();
            }
        }
    }

    /// The first row of an array that is not in the store.
    pub(super) fn end(&self, array: usize) -> u64 {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).get(array).copied().unwrap_or(0)
    }

    pub(super) fn set_ends(&self, ends: Vec<u64>) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    /// Writes a batch, and adds the rows that are in the store then to `stored`, also if it fails. `arrays` are those of
    /// the writer, long enough for all rows of the batch.
    pub(super) fn write(&self, batch: &[Task], arrays: &[Array], stored: &mut Vec<StoredRows>) -> Result<()> {
        self.lengthen(arrays);
        let mut puts = Vec::new();
        for task in batch {
            if let Work::Rows(given) = &task.work {
                given.ready.synchronize()?;
                let (rows, value) = (given.rows.clone(), given.value.clone());
                puts.push(Put { array: task.array, span: task.span.clone(), rows, value });
            }
        }
        self.put(arrays, &puts, stored)?;
        for task in batch {
            let levels = self.levels[task.array].as_ref();
            let mut levels = levels.map(|levels| levels.lock().unwrap_or_else(PoisonError::into_inner));
            let mut sink = Sink { gathered: self, arrays: &self.arrays(), stored };
            match (&task.work, &mut levels) {
                (Work::Rows(given), Some(levels)) => levels.pass(&mut sink, &task.span, &given.rows, &given.value)?,
                (Work::Remake(finer), Some(levels)) => levels.remake(&mut sink, *finer, &task.span)?,
                (Work::Settle | Work::Trim, _) => {
                    match (&task.work, &mut levels) {
                        (_, None) => {}
                        (Work::Trim, Some(levels)) => levels.trim(&mut sink)?,
                        (_, Some(levels)) => levels.settle(&mut sink)?,
                    }
                    let own = self.shards.iter().flatten().filter(|shards| shards.image == task.array);
                    own.into_iter().try_for_each(|shards| shards.settle(&sink.arrays[shards.number], sink.stored))?;
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Writes rows to their arrays, or encodes them for shards that are not whole. Adds the rows that are in the store
    /// then to `stored`.
    pub(super) fn put(&self, arrays: &[Array], puts: &[Put], stored: &mut Vec<StoredRows>) -> Result<()> {
        let inner = |put: &Put| match &self.shards[put.array] {
            Some(shards) => shards.begin(&arrays[put.array], &put.span),
            None => Ok(None),
        };
        let inner = puts.iter().map(inner).collect::<Result<Vec<Option<Array>>>>()?;
        let mut writes = Vec::with_capacity(puts.len());
        for (put, inner) in puts.iter().zip(&inner) {
            let selection = self.parts[put.array].selection(&put.span)?;
            writes.push(ArrayWrite::new(inner.as_ref().unwrap_or(&arrays[put.array]), selection, put.value.clone()));
        }
        write_all(&writes)?;
        for (put, inner) in puts.iter().zip(inner) {
            match (&self.shards[put.array], inner) {
                (Some(shards), Some(_)) => {
                    stored.extend(shards.add(&put.rows, || self.arrays().swap_remove(put.array))?)
                }
                _ => stored.push(StoredRows { array: put.array, rows: put.rows.clone() }),
            }
        }
        Ok(())
    }

    /// Reads rows of one block of an array, from where they were written last.
    pub(super) fn read(&self, arrays: &[Array], array: usize, span: &Range<u64>) -> Result<NdBuffer> {
        match &self.shards[array] {
            Some(shards) => shards.read(&arrays[array], span),
            None => arrays[array].read_buffer(&self.parts[array].selection(span)?),
        }
    }
}
