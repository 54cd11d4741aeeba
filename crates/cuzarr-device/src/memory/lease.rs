//! Leases: who reads and who writes which bytes of host memory.
//!
//! Buffers share memory, and methods write through shared references, as those of NumPy's arrays do. So that safe code never
//! reads bytes while another thread writes them, every access to host memory holds a lease of the bytes that it touches: many
//! may read the same bytes, but only one may write them. A lease that would break this rule is refused at once. Nothing
//! waits, so no two threads can wait for each other.
//!
//! Memory of a GPU needs no leases: the host cannot reach it, and streams order its use.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::layout::Layout;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The leases of one block of memory.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    live: Vec<Entry>,
}

struct Entry {
    number: u64,
    access: Access,
    footprints: Vec<Footprint>,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic cannot leave the table half changed: each section below pushes or removes one entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody reads or writes the memory.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.lock().live.is_empty()
    }
}

impl Entry {
    /// Whether another use may go on beside this one, of which one writes.
    fn check(&self, footprints: &[Footprint], access: Access) -> Result<()> {
        for footprint in footprints {
            if let Some(own) = self.footprints.iter().find(|own| own.overlaps(footprint)) {
                let what = if access == Access::Read { "read" } else { "written" };
                let how = if self.access == Access::Read { "read" } else { "written" };
                let (wanted, taken) = (footprint.text(), own.text());
                let message =
                    format!("bytes {wanted} cannot be {what}: bytes {taken} of the same memory are being {how}");
                return Err(Error::invalid(message).with_hint("wait until the other use ends, or work on a copy"));
            }
        }
        Ok(())
    }
}

impl Table {
    fn take(&mut self, footprints: Vec<Footprint>, access: Access) -> Result<u64> {
        for entry in &self.live {
            if access == Access::Write || entry.access == Access::Write {
                entry.check(&footprints, access)?;
            }
        }
        self.next += 1;
        self.live.push(Entry { number: self.next, access, footprints });
        Ok(self.next)
    }

    fn end(&mut self, number: u64) {
        if let Some(at) = self.live.iter().position(|entry| entry.number == number) {
            self.live.swap_remove(at);
        }
    }
}

/// The right to read or write some bytes of a block, until it is dropped.
pub(crate) struct Lease {
    /// Keeps the block alive. `None` where no lease is needed: no bytes, or memory of a GPU.
    held: Option<(Buffer, u64)>,
}

impl Lease {
    /// A lease of bytes that lie at `footprints` of the block that `buffer` is a view of. Footprints of one lease may overlap: it
    /// is one user's.
    ///
    /// # Errors
    /// `InvalidArgument` when others use the bytes in a way that does not go together, or to write read-only memory.
    pub(crate) fn take(
        buffer: &Buffer,
        footprints: impl IntoIterator<Item = Footprint>,
        access: Access,
    ) -> Result<Lease> {
        if access == Access::Write {
            buffer.require_writable()?;
        }
        if !buffer.device().is_host_accessible() {
            return Ok(Lease { held: None });
        }
        let footprints: Vec<Footprint> = footprints.into_iter().collect();
        if footprints.is_empty() {
            return Ok(Lease { held: None });
        }
        let number = buffer.leases().lock().take(footprints, access)?;
        Ok(Lease { held: Some((buffer.clone(), number)) })
    }

    /// Leases for one copy, whose source and target may overlap: it reads and writes through pointers, one at a time.
    ///
    /// # Errors
    /// As [`Lease::take`].
    pub(crate) fn for_copy(
        (src, from): (&Buffer, Option<Footprint>),
        (dst, to): (&Buffer, Option<Footprint>),
    ) -> Result<(Lease, Lease)> {
        let overlap =
            src.shares_memory_with(dst) && from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from.overlaps(to));
        let written = Lease::take(dst, to, Access::Write)?;
        if !overlap {
            return Ok((Lease::take(src, from, Access::Read)?, written));
        }
        let Some((from, (_, own))) = from.zip(written.held.as_ref()) else {
            return Ok((Lease { held: None }, written));
        };
        // The source may overlap the lease that was just taken, and no other that writes.
        let mut table = src.leases().lock();
        let at = table.live.iter().position(|entry| entry.number == *own);
        let mine = at.map(|at| table.live.swap_remove(at));
        let read = table.take(vec![from], Access::Read);
        table.live.extend(mine);
        drop(table);
        Ok((Lease { held: Some((src.clone(), read?)) }, written))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((buffer, number)) = &self.held {
            buffer.leases().lock().end(*number);
        }
    }
}

/// Which bytes of a block elements touch: `width` bytes at `start`, again and again by the strides of the axes.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    start: usize,
    width: usize,
    axes: Vec<Axis>,
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    stride: usize,
    extent: usize,
}

/// How many steps [`Footprint::overlaps`] takes before it gives up and answers yes.
const MOST_STEPS: usize = 4096;

impl Footprint {
    /// A range of bytes; `None` when it is empty.
    pub(crate) fn range(range: Range<usize>) -> Option<Footprint> {
        (!range.is_empty()).then(|| Footprint { start: range.start, width: range.len(), axes: Vec::new() })
    }

    /// The bytes of a layout's elements, in memory that begins at `offset_bytes` of its block; `None` when there are none.
    pub(crate) fn of(layout: &Layout, offset_bytes: usize) -> Option<Footprint> {
        if layout.is_empty() || layout.element_bytes() == 0 {
            return None;
        }
        let mut start = offset_bytes + layout.offset_bytes();
        let mut axes: Vec<Axis> = Vec::new();
        for (&extent, &stride) in layout.shape().iter().zip(layout.strides()) {
            if extent > 1 && stride != 0 {
                if stride < 0 {
                    start -= stride.unsigned_abs() * (extent - 1); // inside the memory, as the layout was checked
                }
                axes.push(Axis { stride: stride.unsigned_abs(), extent });
            }
        }
        axes.sort_unstable_by_key(|axis| axis.stride);
        let (mut width, mut apart) = (layout.element_bytes(), Vec::new());
        for axis in axes {
            // Neighbours that touch or overlap make one piece.
            match apart.is_empty() && axis.stride <= width {
                true => width += axis.stride * (axis.extent - 1),
                false => apart.push(axis),
            }
        }
        Some(Footprint { start, width, axes: apart })
    }

    fn end(&self) -> usize {
        self.start + self.width + self.axes.iter().map(|axis| axis.stride * (axis.extent - 1)).sum::<usize>()
    }

    fn text(&self) -> String {
        format!("{}..{}", self.start, self.end())
    }

    /// Whether two footprints have a byte in common. Exact but for layouts so odd that finding out would take long, where the
    /// answer is yes.
    ///
    /// A common byte is a solution of `Σ dᵢ·strideᵢ + e = distance`, where each `dᵢ` and `e` lies in an interval. Strides go
    /// from the largest to the smallest; what the smaller ones can reach bounds each `dᵢ`. NumPy's `shares_memory` solves the
    /// same problem (<https://numpy.org/doc/stable/reference/generated/numpy.shares_memory.html>).
    pub(crate) fn overlaps(&self, other: &Footprint) -> bool {
        if self.end() <= other.start || other.end() <= self.start {
            return false;
        }
        if self.axes.is_empty() && other.axes.is_empty() {
            return true;
        }
        let mut terms: Vec<Term> = Vec::new();
        let mine = self.axes.iter().map(|axis| (axis.stride, 0, axis.extent as i128 - 1));
        let theirs = other.axes.iter().map(|axis| (axis.stride, 1 - axis.extent as i128, 0));
        for (stride, low, high) in mine.chain(theirs) {
            match terms.iter_mut().find(|term| term.stride == stride as i128) {
                Some(term) => (term.low, term.high) = (term.low + low, term.high + high),
                None => terms.push(Term { stride: stride as i128, low, high }),
            }
        }
        terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.stride));
        let within = (1 - other.width as i128, self.width as i128 - 1);
        let mut steps = MOST_STEPS;
        has_solution(&terms, within, other.start as i128 - self.start as i128, &mut steps)
    }
}

/// `stride` times a whole number of `low..=high`.
struct Term {
    stride: i128,
    low: i128,
    high: i128,
}

fn has_solution(terms: &[Term], within: (i128, i128), distance: i128, steps: &mut usize) -> bool {
    let Some((first, rest)) = terms.split_first() else { return (within.0..=within.1).contains(&distance) };
    let low: i128 = within.0 + rest.iter().map(|term| term.low * term.stride).sum::<i128>();
    let high: i128 = within.1 + rest.iter().map(|term| term.high * term.stride).sum::<i128>();
    // distance - number * stride has to lie in low..=high.
    let least =
        (distance - high).div_euclid(first.stride) + i128::from((distance - high).rem_euclid(first.stride) != 0);
    let most = (distance - low).div_euclid(first.stride);
    for number in least.max(first.low)..=most.min(first.high) {
        if *steps == 0 {
            return true;
        }
        *steps -= 1;
        if has_solution(rest, within, distance - number * first.stride, steps) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(shape: &[usize], strides: &[isize], offset_bytes: usize, element_bytes: usize) -> Footprint {
        let layout = Layout::strided(shape, strides, offset_bytes, element_bytes, 1 << 24).unwrap();
        Footprint::of(&layout, 0).unwrap()
    }

    /// Every byte that a layout touches.
    fn bytes(shape: &[usize], strides: &[isize], offset_bytes: usize, element_bytes: usize) -> Vec<usize> {
        let mut places = vec![offset_bytes as isize];
        for (&extent, &stride) in shape.iter().zip(strides) {
            places = places.iter().flat_map(|place| (0..extent as isize).map(move |at| place + at * stride)).collect();
        }
        places.iter().flat_map(|&place| (0..element_bytes).map(move |at| place as usize + at)).collect()
    }

    #[test]
    fn overlap_is_what_common_bytes_say() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut found = [0, 0];
        for _ in 0..20_000 {
            let mut side = || {
                let ndim = random(4) as usize;
                let shape: Vec<usize> = (0..ndim).map(|_| 1 + random(4) as usize).collect();
                let strides: Vec<isize> = (0..ndim).map(|_| random(41) as isize - 20).collect();
                (shape, strides, 300 + random(100) as usize * 2, 1 + random(4) as usize)
            };
            let (left, right) = (side(), side());
            let (mine, theirs) = (bytes(&left.0, &left.1, left.2, left.3), bytes(&right.0, &right.1, right.2, right.3));
            let expected = mine.iter().any(|byte| theirs.contains(byte));
            let (one, other) =
                (footprint(&left.0, &left.1, left.2, left.3), footprint(&right.0, &right.1, right.2, right.3));
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{left:?} {right:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 1000), "{found:?}");
    }

    #[test]
    fn columns_and_boxes_of_one_array_do_not_overlap() {
        // Two halves of the columns of 1000 x 1000 elements of 4 bytes, and a quarter that meets both.
        let left = footprint(&[500, 250], &[4000, 8], 0, 4);
        let right = footprint(&[500, 250], &[4000, 8], 4, 4);
        let across = footprint(&[2, 500], &[4000, 4], 1000, 4);
        assert!(!left.overlaps(&right) && left.overlaps(&across) && across.overlaps(&right));
    }

    #[test]
    fn many_may_read_and_only_one_may_write() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let take = |range: Range<usize>, access| Lease::take(&buffer, Footprint::range(range), access);
        let readers = (take(0..50, Access::Read).unwrap(), take(20..60, Access::Read).unwrap());
        assert!(take(59..61, Access::Write).is_err());
        let writer = take(60..100, Access::Write).unwrap();
        assert!(take(99..100, Access::Read).is_err() && take(60..61, Access::Write).is_err());
        drop((readers, writer));
        drop(take(0..100, Access::Write).unwrap());
        assert!(buffer.leases().is_free());
    }

    #[test]
    fn a_copy_within_a_block_may_overlap_itself_but_no_other_use() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let copy = |from: Range<usize>, to: Range<usize>| {
            Lease::for_copy((&buffer, Footprint::range(from)), (&buffer, Footprint::range(to)))
        };
        drop(copy(0..60, 30..90).unwrap());
        let reader = Lease::take(&buffer, Footprint::range(0..10), Access::Read).unwrap();
        drop(copy(0..60, 30..90).unwrap());
        assert!(copy(30..90, 0..60).is_err());
        drop(reader);
        let writer = Lease::take(&buffer, Footprint::range(0..10), Access::Write).unwrap();
        assert!(copy(0..60, 30..90).is_err());
        drop(writer);
        assert!(buffer.leases().is_free());
    }
}
