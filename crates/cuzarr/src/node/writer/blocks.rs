//! Blocks of rows of one array, which are gathered until all rows of a block have come.

use std::collections::BTreeMap;
use std::ops::Range;

use cuzarr_device::internal::transfer::fill_boxes_on;
use cuzarr_device::{DType, Device, NdBuffer, Order, Stream};

use super::rows::Rows;
use super::stored::Stored;
use crate::error::Result;

/// The blocks of an array that are being gathered, and what is known of the others.
pub(super) struct Blocks {
    pub(super) axis: usize,
    /// Rows of a block.
    pub(super) height: u64,
    /// Shape of the part of the array that the writer fills, with `height` rows: that of the memory for one block.
    pub(super) shape: Vec<usize>,
    /// The rows that are gathered: from the first one on that is not stored yet.
    pub(super) bounds: Range<u64>,
    dtype: DType,
    fill: Vec<u8>,
    /// Blocks of rows that are being gathered, by their number.
    pub(super) open: BTreeMap<u64, Block>,
    /// Blocks that were whole, by their number.
    pub(super) handed: Rows,
}

/// Rows that are being gathered.
pub(super) struct Block {
    pub(super) memory: NdBuffer,
    pub(super) rows: Rows,
    /// Whether all these rows are stored already.
    pub(super) is_flushed: bool,
}

impl Block {
    pub(super) fn new(memory: NdBuffer) -> Block {
        Block { memory, rows: Rows::default(), is_flushed: false }
    }
}

impl Blocks {
    pub(super) fn new(of: &Stored, end: u64) -> Result<Blocks> {
        let Stored { array, part, height, .. } = of;
        let mut shape: Vec<usize> = part.extent.iter().map(|&extent| extent as usize).collect();
        shape[part.axis] = *height as usize;
        Ok(Blocks {
            axis: part.axis,
            height: *height,
            shape,
            bounds: part.start[part.axis]..end,
            dtype: array.device_dtype()?,
            fill: array.access(array.device())?.fill().to_vec(),
            open: BTreeMap::new(),
            handed: Rows::default(),
        })
    }

    /// Allocates memory for one block.
    pub(super) fn memory(&self, device: Device) -> Result<NdBuffer> {
        Ok(NdBuffer::empty(device, self.dtype, &self.shape, Order::C)?)
    }

    /// Allocates memory for a copy of rows.
    pub(super) fn copy(&self, rows: &NdBuffer, stream: &Stream) -> Result<NdBuffer> {
        let memory = NdBuffer::empty(stream.device(), self.dtype, rows.shape(), Order::C)?;
        memory.copy_from_on(rows, stream)?;
        Ok(memory)
    }

    /// Divides rows at the borders of blocks, and at the first row that is gathered.
    pub(super) fn pieces(&self, rows: &Range<u64>) -> Vec<Range<u64>> {
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
    pub(super) fn whole(&self, block: u64) -> Range<u64> {
        rows_between(block, self.height, &self.bounds)
    }

    /// Whether rows are written to a stored object at once: their block was whole, or it was there before.
    pub(super) fn is_late(&self, piece: &Range<u64>) -> bool {
        let block = piece.start / self.height;
        piece.start < self.bounds.start || self.handed.contains(&(block..block + 1))
    }

    /// The part of `value`, which has the rows `rows`, with the rows of `piece`.
    pub(super) fn part(&self, value: &NdBuffer, rows: &Range<u64>, piece: &Range<u64>) -> Result<NdBuffer> {
        let mut from = vec![0; value.ndim()];
        from[self.axis] = (piece.start - rows.start) as usize;
        let mut extent = value.shape().to_vec();
        extent[self.axis] = (piece.end - piece.start) as usize;
        Ok(value.region(&from, &extent, &vec![1; value.ndim()])?)
    }

    /// Copies rows to an open block. Returns whether the block is whole.
    pub(super) fn gather(&mut self, piece: Range<u64>, part: &NdBuffer, stream: &Stream) -> Result<bool> {
        let number = piece.start / self.height;
        let whole = self.whole(number);
        let (start, extent) = self.place(number, &piece);
        let Some(block) = self.open.get_mut(&number) else { return Ok(false) };
        block.memory.region(&start, &extent, &vec![1; start.len()])?.copy_from_on(part, stream)?;
        block.rows.insert(piece);
        block.is_flushed = false;
        Ok(block.rows.contains(&whole))
    }

    /// The rows of a block in its memory.
    pub(super) fn region(&self, number: u64, block: &Block, rows: &Range<u64>) -> Result<NdBuffer> {
        let (start, extent) = self.place(number, rows);
        Ok(block.memory.region(&start, &extent, &vec![1; start.len()])?)
    }

    /// Gives the fill value to rows that have not come, between rows that have.
    pub(super) fn fill_gaps(&self, number: u64, block: &Block, stream: &Stream) -> Result<()> {
        let gaps: Vec<_> = block.rows.gaps().map(|gap| self.place(number, &gap)).collect();
        match gaps.is_empty() {
            true => Ok(()),
            false => Ok(fill_boxes_on(&block.memory, None, &gaps, &self.fill, stream)?),
        }
    }

    /// The box of rows in the memory of their block.
    fn place(&self, block: u64, rows: &Range<u64>) -> (Vec<usize>, Vec<usize>) {
        let (mut start, mut extent) = (vec![0; self.shape.len()], self.shape.clone());
        start[self.axis] = (rows.start - block * self.height) as usize;
        extent[self.axis] = (rows.end - rows.start) as usize;
        (start, extent)
    }
}

/// The rows of a block or shard of `height` rows that lie in `bounds`.
pub(super) fn rows_between(number: u64, height: u64, bounds: &Range<u64>) -> Range<u64> {
    let begin = number * height;
    begin.max(bounds.start)..begin.saturating_add(height).min(bounds.end)
}
