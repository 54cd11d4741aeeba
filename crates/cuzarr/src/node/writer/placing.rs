//! Where rows are written: to their arrays, or among the inner chunks of shards that are not whole.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr_device::NdBuffer;

use super::rows::Rows;
use super::shards::Shards;
use super::stored::{Arrays, Part, StoredRows};
use crate::error::Result;
use crate::node::array::Array;
use crate::node::many::{ArrayWrite, write_all};

/// What a batch wrote.
#[derive(Default)]
pub(super) struct Written {
    /// The rows that are in the store.
    pub(super) stored: Vec<StoredRows>,
    /// The shards that are whole, by the number of their array and their own.
    pub(super) whole: Vec<(usize, u64)>,
}

/// Rows of one block that are to be written.
pub(super) struct Put {
    pub(super) array: usize,
    pub(super) span: Range<u64>,
    /// The rows that the program gave; the others in `span` have the fill value.
    pub(super) rows: Rows,
    pub(super) value: NdBuffer,
}

/// The shards of a writer's arrays that are not whole, and how long the arrays are.
pub(super) struct Placing {
    shards: Vec<Option<Shards>>,
    parts: Vec<Part>,
    /// For each array to which the program adds rows, its number and those of its coarser levels.
    images: Vec<Vec<usize>>,
    /// For each array, the first row that is not in the store.
    ends: Mutex<Vec<u64>>,
    /// Arrays that have shards or levels, each long enough for all rows that were given to threads.
    longest: Mutex<Arrays>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Placing {
    pub(super) fn new(shards: Vec<Option<Shards>>, parts: Vec<Part>, images: Vec<Vec<usize>>) -> Placing {
        Placing { shards, parts, images, ends: Mutex::default(), longest: Mutex::default() }
    }

    /// The first row of an array that is not in the store.
    pub(super) fn end(&self, array: usize) -> u64 {
        lock(&self.ends).get(array).copied().unwrap_or(0)
    }

    pub(super) fn set_ends(&self, ends: Vec<u64>) {
        *lock(&self.ends) = ends;
    }

    /// The arrays of an image, each long enough for the rows of all threads.
    pub(super) fn arrays_of(&self, image: usize) -> Arrays {
        let longest = lock(&self.longest);
        let own = |number: &usize| longest.get(number).map(|array| (*number, array.clone()));
        self.images[image].iter().filter_map(own).collect()
    }

    /// Notes how long the arrays are for a batch.
    pub(super) fn lengthen(&self, arrays: &Arrays) {
        let mut longest = lock(&self.longest);
        for (number, array) in arrays {
            let is_alone = self.images.get(*number).is_some_and(|image| image.len() == 1);
            let rows = |of: &Array| of.shape()[self.parts[*number].axis];
            let is_longer = longest.get(number).is_none_or(|own| rows(own) < rows(array));
            if is_longer && (self.shards[*number].is_some() || !is_alone) {
                longest.insert(*number, array.clone());
            }
        }
    }

    /// Stores the shards of these arrays of which rows have come, although they are not whole.
    pub(super) fn settle(&self, arrays: &Arrays, to: &mut Written) -> Result<()> {
        for (number, array) in arrays {
            self.shards[*number].as_ref().map_or(Ok(()), |shards| shards.settle(array, &mut to.stored))?;
        }
        Ok(())
    }

    /// Stores a shard that is whole, and adds its rows to those that are in the store.
    pub(super) fn finish(&self, number: usize, shard: u64, to: &mut Written) -> Result<()> {
        let array = lock(&self.longest).get(&number).cloned();
        match self.shards[number].as_ref().zip(array) {
            Some((shards, array)) => shards.finish(&array, shard, &mut to.stored),
            None => Ok(()),
        }
    }

    /// The number of the array to which the program adds the rows of `array`.
    pub(super) fn image_of(&self, array: usize) -> usize {
        self.images.iter().position(|image| image.contains(&array)).unwrap_or(array)
    }

    /// Writes rows to their arrays, or encodes them for shards that are not whole.
    pub(super) fn put(&self, arrays: &Arrays, puts: &[Put], to: &mut Written) -> Result<()> {
        let inner = |put: &Put| match &self.shards[put.array] {
            Some(shards) => shards.begin(&arrays[&put.array], &put.span),
            None => Ok(None),
        };
        let inner = puts.iter().map(inner).collect::<Result<Vec<Option<Array>>>>()?;
        let mut writes = Vec::with_capacity(puts.len());
        for (put, inner) in puts.iter().zip(&inner) {
            let selection = self.parts[put.array].selection(&put.span)?;
            writes.push(ArrayWrite::new(inner.as_ref().unwrap_or(&arrays[&put.array]), selection, put.value.clone()));
        }
        write_all(&writes)?;
        for (put, inner) in puts.iter().zip(inner) {
            match (&self.shards[put.array], inner) {
                (Some(shards), Some(_)) => to.whole.extend(shards.add(&put.rows).map(|shard| (put.array, shard))),
                _ => to.stored.push(StoredRows { array: put.array, rows: put.rows.clone() }),
            }
        }
        Ok(())
    }

    /// Reads rows of one block of an array, from where they were written last.
    pub(super) fn read(&self, arrays: &Arrays, array: usize, span: &Range<u64>) -> Result<NdBuffer> {
        match &self.shards[array] {
            Some(shards) => shards.read(&arrays[&array], span),
            None => arrays[&array].read_buffer(&self.parts[array].selection(span)?),
        }
    }
}
