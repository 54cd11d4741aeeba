//! One array of a writer, on the side of the program: the rows that are gathered, and where the next ones go.

use std::collections::BTreeMap;
use std::ops::Range;

use cuzarr_device::internal::transfer::fill_boxes_on;
use cuzarr_device::{DType, Device, Event, NdBuffer, Order, Stream};

use super::rows::Rows;
use super::storing::{Shared, Stored, Task};
use crate::error::{Error, ErrorKind, Result};

/// An array of a writer, as the program's thread knows it.
pub(super) struct Track {
    /// The array's number among those of the writer.
    number: usize,
    axis: usize,
    /// Rows of one stored object: a chunk, or a shard.
    height: u64,
    /// Shape of the part of the array that the writer fills, with `height` rows: that of the memory for one block.
    block_shape: Vec<usize>,
    /// The rows that the writer gathers: from the first one on that is not stored yet.
    bounds: Range<u64>,
    /// Whether earlier rows may be written, too.
    takes_earlier: bool,
    dtype: DType,
    /// Number of blocks for which there is memory.
    slots: usize,
    /// The row at which the next append begins.
    end: u64,
    /// Blocks of rows that are being gathered, by their number.
    open: BTreeMap<u64, Block>,
    /// Blocks that were handed over to be stored, by their number.
    handed: Rows,
    fill: Vec<u8>,
}

/// Rows that are being gathered until all rows of a stored object have come.
struct Block {
    memory: NdBuffer,
    rows: Rows,
    /// Whether all these rows are stored already.
    is_flushed: bool,
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
    pub(super) fn new(number: usize, of: &Stored, slots: usize, is_final: bool) -> Result<Track> {
        let Stored { array, axis, start, extent, height, .. } = of;
        let mut block_shape: Vec<usize> = extent.iter().map(|&extent| extent as usize).collect();
        block_shape[*axis] = *height as usize;
        let first = start[*axis];
        let end = if is_final { first + extent[*axis] } else { i64::MAX as u64 };
        Ok(Track {
            number,
            axis: *axis,
            height: *height,
            block_shape,
            bounds: first..end,
            takes_earlier: !is_final,
            dtype: array.device_dtype()?,
            slots,
            end: first,
            open: BTreeMap::new(),
            handed: Rows::default(),
            fill: array.access(array.device())?.fill().to_vec(),
        })
    }

    /// Allocates the memory for rows.
    pub(super) fn memory(&self, device: Device) -> Result<Vec<NdBuffer>> {
        let one = |_| Ok(NdBuffer::empty(device, self.dtype, &self.block_shape, Order::C)?);
        (0..self.slots).map(one).collect()
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
        let count = value.shape()[self.axis] as u64;
        let end = start.checked_add(count).filter(|end| *end <= self.bounds.end);
        let end = end.filter(|_| self.takes_earlier || start >= self.bounds.start);
        let rows = start..end.ok_or_else(|| self.outside(start, count))?;
        self.refuse_without_memory(&self.pieces(&rows))?;
        Ok(Checked { rows, value })
    }

    /// Adds rows that were checked. They are on their way when this returns.
    pub(super) fn add(&mut self, shared: &Shared, given: Checked, streams: &Streams<'_>) -> Result<()> {
        let Checked { rows, value } = given;
        for piece in self.pieces(&rows) {
            let mut from = vec![0; value.ndim()];
            from[self.axis] = (piece.start - rows.start) as usize;
            let mut extent = value.shape().to_vec();
            extent[self.axis] = (piece.end - piece.start) as usize;
            let part = value.region(&from, &extent, &vec![1; value.ndim()])?;
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
        let waiting = self.open.iter().filter(|(_, block)| !block.is_flushed);
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(block) = self.open.get(&number) else { continue };
            let spans = if self.takes_earlier {
                let gaps: Vec<_> = block.rows.gaps().map(|gap| self.place_of(number, &gap)).collect();
                if !gaps.is_empty() {
                    fill_boxes_on(&block.memory, None, &gaps, &self.fill, copies)?;
                }
                block.rows.span().into_iter().collect()
            } else {
                // Rows of a region may be stored already.
                block.rows.ranges().collect::<Vec<_>>()
            };
            for span in spans {
                let (start, extent) = self.place_of(number, &span);
                let value = block.memory.region(&start, &extent, &vec![1; start.len()])?;
                let rows = block.rows.within(&span);
                let task = Task { array: self.number, span, rows, value, ready: copies.record()?, slot: None };
                shared.add(task, usize::MAX)?;
            }
            if let Some(block) = self.open.get_mut(&number) {
                block.is_flushed = true;
            }
        }
        Ok(())
    }

    /// Frees the memory of rows that are gathered.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Returns `value` with the dimension of rows: a value without it is one row.
    fn with_rows(&self, value: &NdBuffer) -> Result<NdBuffer> {
        let others = |shape: &[usize]| -> Vec<usize> {
            shape.iter().enumerate().filter(|(at, _)| *at != self.axis).map(|(_, extent)| *extent).collect()
        };
        let (given, wanted) = (value.shape(), others(&self.block_shape));
        if given.len() == self.block_shape.len() && others(given) == wanted {
            return Ok(value.clone());
        }
        if given == wanted {
            let mut shape = given.to_vec();
            shape.insert(self.axis, 1);
            return Ok(value.reshape_copy(&shape)?);
        }
        let mut rows: Vec<String> = self.block_shape.iter().map(ToString::to_string).collect();
        rows[self.axis] = "n".into();
        let message = format!("rows of shape {given:?} do not fit, expected [{}] or {wanted:?}", rows.join(", "));
        Err(Error::new(ErrorKind::ShapeMismatch, message))
    }

    fn outside(&self, start: u64, count: u64) -> Error {
        let Range { start: first, end } = self.bounds;
        let message = format!("rows {start} to {} lie outside rows {first} to {end}", start.saturating_add(count));
        Error::new(ErrorKind::OutOfRange, message)
    }

    /// Divides rows at the borders of blocks, and at the first row of the writer.
    fn pieces(&self, rows: &Range<u64>) -> Vec<Range<u64>> {
        let (mut pieces, mut at) = (Vec::new(), rows.start);
        while at < rows.end {
            let mut end = rows.end.min((at / self.height + 1).saturating_mul(self.height));
            if at < self.bounds.start {
                end = end.min(self.bounds.start);
            }
            pieces.push(at..end);
            at = end;
        }
        pieces
    }

    /// The rows of a block that must come before it is whole.
    fn whole(&self, block: u64) -> Range<u64> {
        let begin = block * self.height;
        begin.max(self.bounds.start)..begin.saturating_add(self.height).min(self.bounds.end)
    }

    /// Whether rows are written to a stored object at once: its block was handed over, or it was there before.
    fn is_late(&self, piece: &Range<u64>) -> bool {
        let block = piece.start / self.height;
        piece.start < self.bounds.start || self.handed.contains(&(block..block + 1))
    }

    /// Refuses rows that would begin more blocks than there is memory for. Nothing was added then.
    fn refuse_without_memory(&self, pieces: &[Range<u64>]) -> Result<()> {
        let mut after: BTreeMap<u64, Rows> =
            self.open.iter().map(|(number, block)| (*number, block.rows.clone())).collect();
        for piece in pieces.iter().filter(|piece| !self.is_late(piece)) {
            let block = piece.start / self.height;
            if !after.contains_key(&block) && after.len() >= self.slots {
                let (oldest, rows) = after.first_key_value().map_or((0, None), |(number, rows)| (*number, Some(rows)));
                let whole = self.whole(oldest);
                let missing = rows.map_or(whole.start, |rows| rows.first_missing(whole.start));
                let message = format!(
                    "row {} begins another block, and rows from {missing} on have not come yet; there is memory for {} blocks of {} rows",
                    piece.start, self.slots, self.height
                );
                let hint = "write the missing rows first, or open the writer with more slots";
                return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
            }
            let rows = after.entry(block).or_default();
            rows.insert(piece.clone());
            if rows.contains(&self.whole(block)) {
                after.remove(&block);
            }
        }
        Ok(())
    }

    /// Adds rows of one block.
    fn place(&mut self, shared: &Shared, piece: Range<u64>, part: &NdBuffer, streams: &Streams<'_>) -> Result<()> {
        let Streams { copies, keeps } = *streams;
        let number = piece.start / self.height;
        let whole = self.whole(number);
        let alone = |value: NdBuffer, ready: Event| {
            let mut rows = Rows::default();
            rows.insert(piece.clone());
            Task { array: self.number, span: piece.clone(), rows, value, ready, slot: None }
        };
        if self.is_late(&piece) {
            let memory = NdBuffer::empty(copies.device(), self.dtype, part.shape(), Order::C)?;
            memory.copy_from_on(part, copies)?;
            return shared.add(alone(memory, copies.record()?), self.slots);
        }
        if keeps && piece == whole && !self.open.contains_key(&number) {
            shared.add(alone(part.clone(), copies.record()?), self.slots)?;
            self.handed.insert(number..number + 1);
            return Ok(());
        }
        if !self.open.contains_key(&number) {
            let none = || Error::new(ErrorKind::OutOfMemory, "the writer has no memory for another block of rows");
            let memory = shared.slot(self.number)?.ok_or_else(none)?;
            self.open.insert(number, Block { memory, rows: Rows::default(), is_flushed: false });
        }
        let (start, extent) = self.place_of(number, &piece);
        let Some(block) = self.open.get_mut(&number) else { return Ok(()) };
        block.memory.region(&start, &extent, &vec![1; start.len()])?.copy_from_on(part, copies)?;
        block.rows.insert(piece);
        block.is_flushed = false;
        if !block.rows.contains(&whole) {
            return Ok(());
        }
        let Some(Block { memory, rows, .. }) = self.open.remove(&number) else { return Ok(()) };
        let (start, extent) = self.place_of(number, &whole);
        let value = memory.region(&start, &extent, &vec![1; start.len()])?;
        self.handed.insert(number..number + 1);
        let task = Task { array: self.number, span: whole, rows, value, ready: copies.record()?, slot: Some(memory) };
        shared.add(task, self.slots)
    }

    /// The box of rows in the memory of their block.
    fn place_of(&self, block: u64, rows: &Range<u64>) -> (Vec<usize>, Vec<usize>) {
        let (mut start, mut extent) = (vec![0; self.block_shape.len()], self.block_shape.clone());
        start[self.axis] = (rows.start - block * self.height) as usize;
        extent[self.axis] = (rows.end - rows.start) as usize;
        (start, extent)
    }
}
