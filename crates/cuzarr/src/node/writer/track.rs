//! One array of a writer, on the side of the program: the rows that are gathered, and where the next ones go.

use std::collections::BTreeMap;
use std::ops::Range;
use std::slice;

use cuzarr_device::{Device, Event, NdBuffer, Stream};

use super::blocks::{Block, Blocks, rows_between};
use super::rows::Rows;
use super::stored::Stored;
use super::storing::Shared;
use super::tasks::{Given, Task, Work};
use crate::error::{Error, ErrorKind, Result};

/// An array of a writer, as the program's thread knows it.
pub(super) struct Track {
    /// The array's number among those of the writer.
    number: usize,
    /// The blocks that are gathered, and those that were handed over to be stored.
    blocks: Blocks,
    /// Rows of a shard, if inner chunks are encoded before their shard is whole.
    shard_height: Option<u64>,
    /// The shards of which some rows have come, but not all.
    shards: BTreeMap<u64, Rows>,
    /// Whether rows before the first one that is not stored may be written, too.
    takes_earlier: bool,
    /// Whether the storing thread gathers rows as well, which a flush has to store.
    settles: bool,
    /// Number of blocks for which there is memory.
    slots: usize,
    /// The row at which the next append begins.
    end: u64,
}

/// Rows that an array can take.
pub(super) struct Checked {
    pub(super) rows: Range<u64>,
    value: NdBuffer,
}

/// The streams of one call that adds rows.
pub(super) struct Streams<'a> {
    /// The stream on which the writer copies rows.
    pub(super) copies: &'a Stream,
    /// Whether the caller leaves its memory as it is, so that whole blocks of it are stored without a copy.
    pub(super) keeps: bool,
}

impl Track {
    pub(super) fn new(number: usize, of: &Stored, slots: usize, is_final: bool, settles: bool) -> Result<Track> {
        let first = of.part.start[of.part.axis];
        let end = of.end_of_rows(is_final);
        Ok(Track {
            number,
            blocks: Blocks::new(of, end)?,
            shard_height: of.sharding.as_ref().map(|sharding| sharding.height),
            shards: BTreeMap::new(),
            takes_earlier: !is_final,
            settles,
            slots,
            end: first,
        })
    }

    /// Allocates the memory for rows.
    pub(super) fn memory(&self, device: Device) -> Result<Vec<NdBuffer>> {
        (0..self.slots).map(|_| self.blocks.memory(device)).collect()
    }

    /// Lets the next append begin at `row`, because another array of the writer ends there.
    pub(super) fn begin_at(&mut self, row: u64) {
        self.end = row;
    }

    /// The row behind the last one that was added.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Checks that rows can be added: from row `at` on, or behind the last row that was added.
    pub(super) fn check(&self, at: Option<u64>, value: &NdBuffer) -> Result<Checked> {
        let value = self.with_rows(value)?;
        let start = at.unwrap_or(self.end);
        let count = value.shape()[self.blocks.axis] as u64;
        let end = start.checked_add(count).filter(|end| *end <= self.blocks.bounds.end);
        let end = end.filter(|_| self.takes_earlier || start >= self.blocks.bounds.start);
        let rows = start..end.ok_or_else(|| self.outside(start, count))?;
        self.refuse_without_memory(&self.blocks.pieces(&rows))?;
        Ok(Checked { rows, value })
    }

    /// Adds rows that were checked. They are on their way when this returns.
    pub(super) fn add(&mut self, shared: &Shared, given: Checked, streams: &Streams<'_>) -> Result<()> {
        let Checked { rows, value } = given;
        for piece in self.blocks.pieces(&rows) {
            let part = self.blocks.part(&value, &rows, &piece)?;
            self.place(shared, piece, &part, streams)?;
        }
        if !rows.is_empty() {
            self.end = self.end.max(rows.end);
        }
        Ok(())
    }

    /// Hands over all rows that are gathered and not stored, although their blocks are not whole. Behind the array's end,
    /// rows between them that have not come get the fill value.
    pub(super) fn flush(&mut self, shared: &Shared, copies: &Stream) -> Result<()> {
        let waiting = self.blocks.open.iter().filter(|(_, block)| !block.is_flushed);
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(block) = self.blocks.open.get(&number) else { continue };
            let spans = if self.takes_earlier {
                self.blocks.fill_gaps(number, block, copies)?;
                block.rows.span().into_iter().collect()
            } else {
                // Rows of a region may be stored already.
                block.rows.ranges().collect::<Vec<_>>()
            };
            for span in spans {
                let (value, rows) = (self.blocks.region(number, block, &span)?, block.rows.within(&span));
                let given = Given { rows, value, ready: copies.record()?, slot: None, is_late: false };
                shared.add(Task { array: self.number, span, work: Work::Rows(Box::new(given)) }, usize::MAX)?;
            }
            if let Some(block) = self.blocks.open.get_mut(&number) {
                block.is_flushed = true;
            }
        }
        if self.settles {
            let span = self.blocks.bounds.start.min(self.end)..self.end;
            shared.add(Task { array: self.number, span: span.clone(), work: Work::Settle }, usize::MAX)?;
            shared.add(Task { array: self.number, span, work: Work::Trim }, usize::MAX)?;
        }
        Ok(())
    }

    /// Frees the memory of rows that are gathered.
    pub(super) fn clear(&mut self) {
        self.blocks.open.clear();
    }

    /// Returns `value` with the dimension of rows: a value without it is one row.
    fn with_rows(&self, value: &NdBuffer) -> Result<NdBuffer> {
        let others = |shape: &[usize]| -> Vec<usize> {
            shape.iter().enumerate().filter(|(at, _)| *at != self.blocks.axis).map(|(_, extent)| *extent).collect()
        };
        let (given, wanted) = (value.shape(), others(&self.blocks.shape));
        if given.len() == self.blocks.shape.len() && others(given) == wanted {
            return Ok(value.clone());
        }
        if given == wanted {
            let mut shape = given.to_vec();
            shape.insert(self.blocks.axis, 1);
            return Ok(value.reshape_copy(&shape)?);
        }
        let mut rows: Vec<String> = self.blocks.shape.iter().map(ToString::to_string).collect();
        rows[self.blocks.axis] = "n".into();
        let message = format!("rows of shape {given:?} do not fit, expected [{}] or {wanted:?}", rows.join(", "));
        Err(Error::new(ErrorKind::ShapeMismatch, message))
    }

    fn outside(&self, start: u64, count: u64) -> Error {
        let Range { start: first, end } = self.blocks.bounds;
        let message = format!("rows {start} to {} lie outside rows {first} to {end}", start.saturating_add(count));
        Error::new(ErrorKind::OutOfRange, message)
    }

    /// Refuses rows that would begin more blocks, or more shards, than there is memory for. Nothing was added then.
    fn refuse_without_memory(&self, pieces: &[Range<u64>]) -> Result<()> {
        let open = self.blocks.open.iter().map(|(number, block)| (*number, block.rows.clone())).collect();
        self.begin(open, self.blocks.height, "block", pieces)?;
        match self.shard_height {
            Some(height) => self.begin(self.shards.clone(), height, "shard", pieces).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Adds rows to the `begun` blocks or shards, each of `height` rows. Returns those that are not whole then.
    ///
    /// # Errors
    /// `InvalidArgument` when there are too many at a time.
    fn begin(
        &self,
        mut begun: BTreeMap<u64, Rows>,
        height: u64,
        what: &str,
        pieces: &[Range<u64>],
    ) -> Result<BTreeMap<u64, Rows>> {
        for piece in pieces.iter().filter(|piece| !self.blocks.is_late(piece)) {
            let number = piece.start / height;
            if !begun.contains_key(&number) && begun.len() >= self.slots {
                let (oldest, rows) = begun.first_key_value().map_or((0, None), |(number, rows)| (*number, Some(rows)));
                let whole = rows_between(oldest, height, &self.blocks.bounds);
                let missing = rows.map_or(whole.start, |rows| rows.first_missing(whole.start));
                let message = format!(
                    "row {} begins another {what}, and rows from {missing} on have not come yet; there is memory for {} {what}s of {height} rows",
                    piece.start, self.slots
                );
                let hint = "write the missing rows first, or open the writer with more slots";
                return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
            }
            let rows = begun.entry(number).or_default();
            rows.insert(piece.clone());
            if rows.contains(&rows_between(number, height, &self.blocks.bounds)) {
                begun.remove(&number);
            }
        }
        Ok(begun)
    }

    /// Adds rows of one block.
    fn place(&mut self, shared: &Shared, piece: Range<u64>, part: &NdBuffer, streams: &Streams<'_>) -> Result<()> {
        let Streams { copies, keeps } = *streams;
        let number = piece.start / self.blocks.height;
        let whole = self.blocks.whole(number);
        let task = |rows: Rows, value: NdBuffer, ready: Event, slot: Option<NdBuffer>, is_late: bool| {
            let given = Given { rows, value, ready, slot, is_late };
            Task { array: self.number, span: piece.clone(), work: Work::Rows(Box::new(given)) }
        };
        let own = || Rows::from(piece.clone());
        if self.blocks.is_late(&piece) {
            let memory = self.blocks.copy(part, copies)?;
            return shared.add(task(own(), memory, copies.record()?, None, true), self.slots);
        }
        if let Some(height) = self.shard_height {
            self.shards = self.begin(self.shards.clone(), height, "shard", slice::from_ref(&piece))?;
        }
        if keeps && piece == whole && !self.blocks.open.contains_key(&number) {
            shared.add(task(own(), part.clone(), copies.record()?, None, false), self.slots)?;
            self.blocks.handed.insert(number..number + 1);
            return Ok(());
        }
        if !self.blocks.open.contains_key(&number) {
            let none = || Error::new(ErrorKind::OutOfMemory, "the writer has no memory for another block of rows");
            let memory = shared.slot(self.number)?.ok_or_else(none)?;
            self.blocks.open.insert(number, Block::new(memory));
        }
        if !self.blocks.gather(piece, part, copies)? {
            return Ok(());
        }
        let Some(block) = self.blocks.open.remove(&number) else { return Ok(()) };
        let value = self.blocks.region(number, &block, &whole)?;
        self.blocks.handed.insert(number..number + 1);
        let Block { rows, memory, .. } = block;
        let given = Given { rows, value, ready: copies.record()?, slot: Some(memory), is_late: false };
        shared.add(Task { array: self.number, span: whole, work: Work::Rows(Box::new(given)) }, self.slots)
    }
}
