//! The coarser levels of an image, which are made of the rows of the level before as they pass.

use std::ops::Range;

use cuzarr_device::downsample::{Downsampling, downsample};
use cuzarr_device::{Device, NdBuffer, Order, Stream};

use super::blocks::{Block, Blocks};
use super::placing::{Placing, Put, Written};
use super::rows::Rows;
use super::stored::{Arrays, Stored};
use crate::error::Result;

/// The coarser levels of one array, from the finest on.
pub(super) struct Levels {
    levels: Vec<Level>,
    method: Downsampling,
    stream: Stream,
}

struct Level {
    /// The number of the array among those of the writer, and that of the level of which it is made.
    number: usize,
    finer: usize,
    /// Number of elements that become one, along each dimension.
    factors: Vec<usize>,
    blocks: Blocks,
    /// Memory of blocks that is not in use.
    free: Vec<NdBuffer>,
}

/// Rows of one level on their way to the next one.
struct Passed<'a> {
    span: Range<u64>,
    /// The rows that the program gave; the others in `span` have the fill value.
    rows: Rows,
    value: &'a NdBuffer,
}

impl Levels {
    /// Prepares the levels `coarser`: for each its number among the writer's `arrays`, and its factors.
    pub(super) fn new(
        arrays: &[Stored],
        finest: usize,
        coarser: &[(usize, Vec<u64>)],
        method: Downsampling,
        device: Device,
    ) -> Result<Levels> {
        let mut finer = finest;
        let level = |(number, factors): &(usize, Vec<u64>)| {
            let (of, before) = (&arrays[*number], std::mem::replace(&mut finer, *number));
            let blocks = Blocks::new(of, i64::MAX as u64)?;
            let (factors, free) =
                (factors.iter().map(|&factor| factor as usize).collect(), vec![blocks.memory(device)?]);
            Ok(Level { number: *number, finer: before, factors, blocks, free })
        };
        let levels = coarser.iter().map(level).collect::<Result<Vec<Level>>>()?;
        Ok(Levels { levels, method, stream: Stream::new(device)? })
    }

    /// Makes the coarser rows of rows that were written to the finest level.
    pub(super) fn pass(&mut self, to: &mut Sink<'_>, span: &Range<u64>, rows: &Rows, value: &NdBuffer) -> Result<()> {
        self.make(0, to, &Passed { span: span.clone(), rows: rows.clone(), value })
    }

    /// Makes the rows of a level again, of stored rows of the level `finer`.
    pub(super) fn remake(&mut self, to: &mut Sink<'_>, finer: usize, span: &Range<u64>) -> Result<()> {
        let Some(at) = self.levels.iter().position(|level| level.finer == finer) else { return Ok(()) };
        let value = to.placing.read(to.arrays, finer, span)?;
        self.make(at, to, &Passed { span: span.clone(), rows: span.clone().into(), value: &value })
    }

    /// Stores all rows that are gathered, although their blocks are not whole.
    pub(super) fn settle(&mut self, to: &mut Sink<'_>) -> Result<()> {
        for at in 0..self.levels.len() {
            let blocks = &self.levels[at].blocks;
            let waiting: Vec<u64> =
                blocks.open.iter().filter(|(_, block)| !block.is_flushed).map(|(number, _)| *number).collect();
            for number in waiting {
                let blocks = &self.levels[at].blocks;
                let Some(block) = blocks.open.get(&number) else { continue };
                let Some(span) = block.rows.span() else { continue };
                blocks.fill_gaps(number, block, &self.stream)?;
                self.stream.synchronize()?;
                let (value, rows) = (blocks.region(number, block, &span)?, block.rows.clone());
                self.store(at, to, &Passed { span, rows, value: &value })?;
                if let Some(block) = self.levels[at].blocks.open.get_mut(&number) {
                    block.is_flushed = true;
                }
            }
        }
        Ok(())
    }

    /// If rows did not come, makes the last row of each level again, without the rows behind those.
    pub(super) fn trim(&mut self, to: &mut Sink<'_>) -> Result<()> {
        let mut is_changed = false;
        for Level { number, finer, factors, blocks, .. } in &self.levels {
            let (end, factor) = (to.placing.end(*finer), factors[blocks.axis] as u64);
            is_changed |= end < to.arrays[finer].shape()[blocks.axis] && !end.is_multiple_of(factor);
            if end == 0 || !is_changed {
                continue;
            }
            let last = (end - 1) / factor;
            let value = to.placing.read(to.arrays, *finer, &(last * factor..end))?;
            let (value, span) = (downsample(&value, factors, self.method)?, last..last + 1);
            let put = Put { array: *number, span: span.clone(), rows: span.into(), value };
            to.placing.put(to.arrays, &[put], to.written)?;
        }
        Ok(())
    }

    /// Makes the rows of level `at` of rows of the level before.
    fn make(&mut self, at: usize, to: &mut Sink<'_>, passed: &Passed<'_>) -> Result<()> {
        let Some(level) = self.levels.get(at) else { return Ok(()) };
        let factor = level.factors[level.blocks.axis] as u64;
        let coarse = |rows: &Range<u64>| rows.start / factor..rows.end.div_ceil(factor);
        let span = coarse(&passed.span);
        if passed.span.is_empty() {
            return Ok(());
        }
        // Boxes that lie partly outside of these rows need the rows beside them.
        let end = (span.end * factor).min(to.arrays[&level.finer].shape()[level.blocks.axis]).max(passed.span.end);
        let source = span.start * factor..end;
        let dtype = to.arrays[&level.finer].device_dtype()?;
        let value = match () {
            () if source != passed.span => to.placing.read(to.arrays, level.finer, &source)?,
            () if passed.value.dtype() != dtype => passed.value.astype(dtype, Order::C)?,
            () => passed.value.clone(),
        };
        let value = downsample(&value, &level.factors, self.method)?;
        let mut rows = Rows::default();
        passed.rows.ranges().for_each(|range| rows.insert(coarse(&range)));
        self.take(at, to, &Passed { span, rows, value: &value })
    }

    /// Gathers rows of level `at`, and stores blocks that are whole.
    fn take(&mut self, at: usize, to: &mut Sink<'_>, made: &Passed<'_>) -> Result<()> {
        for piece in self.levels[at].blocks.pieces(&made.span) {
            let Level { blocks, free, .. } = &mut self.levels[at];
            let part = blocks.part(made.value, &made.span, &piece)?;
            let rows = made.rows.within(&piece);
            if blocks.is_late(&piece) {
                self.store(at, to, &Passed { span: piece, rows, value: &part })?;
                continue;
            }
            let number = piece.start / blocks.height;
            if !blocks.open.contains_key(&number) {
                let memory = free.pop().map_or_else(|| blocks.memory(self.stream.device()), Ok)?;
                blocks.open.insert(number, Block::new(memory));
            }
            let is_whole = blocks.gather(piece, &part, &self.stream)?;
            self.stream.synchronize()?;
            let whole = blocks.whole(number);
            let Some(block) = blocks.open.get(&number).filter(|_| is_whole) else { continue };
            let (value, rows) = (blocks.region(number, block, &whole)?, block.rows.clone());
            self.store(at, to, &Passed { span: whole, rows, value: &value })?;
            let Level { blocks, free, .. } = &mut self.levels[at];
            blocks.handed.insert(number..number + 1);
            free.extend(blocks.open.remove(&number).map(|block| block.memory));
        }
        Ok(())
    }

    /// Stores rows of level `at`, and makes those of the next level.
    fn store(&mut self, at: usize, to: &mut Sink<'_>, made: &Passed<'_>) -> Result<()> {
        let Passed { span, rows, value } = made;
        let put =
            Put { array: self.levels[at].number, span: span.clone(), rows: rows.clone(), value: (*value).clone() };
        to.placing.put(to.arrays, &[put], to.written)?;
        self.make(at + 1, to, made)
    }
}

/// Where levels write their rows.
pub(super) struct Sink<'a> {
    pub(super) placing: &'a Placing,
    /// The arrays of the image, long enough for the rows.
    pub(super) arrays: &'a Arrays,
    pub(super) written: &'a mut Written,
}
