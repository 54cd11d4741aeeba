//! An arena: one piece of memory that is cut into blocks of any size.
//!
//! A block is cut from the smallest hole that is large enough, if possible one without marks (events) to wait for. A
//! block that is given back is joined with neighbouring holes. A hole keeps the marks of its blocks: a stream that
//! takes a block of it must wait for them.

use std::collections::{BTreeMap, HashMap};

/// Alignment in bytes of the blocks that an arena gives, the same as the driver's.
const ALIGNMENT_BYTES: usize = 256;

/// Largest number of events (marks) that an unused range keeps before the events that have already happened are
/// dropped.
const MOST_MARKS: usize = 8;

pub(super) struct Arena<M> {
    address: usize,
    size_bytes: usize,
    /// The unused ranges (holes) of the arena's memory, by address. No two holes touch.
    holes: BTreeMap<usize, Hole<M>>,
    /// The size of each block of the arena that is in use, by address.
    blocks: HashMap<usize, usize>,
}

struct Hole<M> {
    size_bytes: usize,
    marks: Vec<M>,
}

impl<M: Clone> Arena<M> {
    /// Makes an arena of the memory at `address`, of which nothing is in use. `address` and `size_bytes` must be
    /// aligned.
    pub(super) fn new(address: usize, size_bytes: usize) -> Arena<M> {
        let holes = BTreeMap::from([(address, Hole { size_bytes, marks: Vec::new() })]);
        Arena { address, size_bytes, holes, blocks: HashMap::new() }
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Whether all blocks that were cut from this arena were given back.
    pub(super) fn is_unused(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a block at `address` was taken from this arena and is in use.
    pub(super) fn gave(&self, address: usize) -> bool {
        self.blocks.contains_key(&address)
    }

    /// Takes a block of `size_bytes` from the arena, and returns its address and the events (marks) that its user must
    /// wait for. `None` if no hole is large enough.
    pub(super) fn take(&mut self, size_bytes: usize, is_passed: impl Fn(&M) -> bool) -> Option<(usize, Vec<M>)> {
        let size_bytes = size_bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES)?;
        let large_enough = self.holes.iter_mut().filter(|(_, hole)| hole.size_bytes >= size_bytes);
        let best = large_enough.map(|(&address, hole)| {
            hole.marks.retain(|mark| !is_passed(mark));
            (!hole.marks.is_empty(), hole.size_bytes, address)
        });
        let (.., address) = best.min()?;
        let Hole { size_bytes: whole_bytes, marks } = self.holes.remove(&address)?;
        if whole_bytes > size_bytes {
            let rest = Hole { size_bytes: whole_bytes - size_bytes, marks: marks.clone() };
            self.holes.insert(address + size_bytes, rest);
        }
        self.blocks.insert(address, size_bytes);
        Some((address, marks))
    }

    /// Takes back the block at `address`, whose memory becomes an unused range (hole) of the arena. Its next user must
    /// wait for `mark`.
    pub(super) fn give_back(&mut self, address: usize, mark: M, is_passed: impl Fn(&M) -> bool) {
        let Some(mut size_bytes) = self.blocks.remove(&address) else { return };
        let (mut start, mut marks) = (address, vec![mark]);
        if let Some(next) = self.holes.remove(&(address + size_bytes)) {
            size_bytes += next.size_bytes;
            marks.extend(next.marks);
        }
        let before = self.holes.range(..address).next_back().map(|(&at, hole)| (at, at + hole.size_bytes));
        if let Some(before) = before.filter(|&(_, end)| end == address).and_then(|(at, _)| self.holes.remove(&at)) {
            start -= before.size_bytes;
            size_bytes += before.size_bytes;
            marks.extend(before.marks);
        }
        if marks.len() > MOST_MARKS {
            marks.retain(|mark| !is_passed(mark));
        }
        self.holes.insert(start, Hole { size_bytes, marks });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 1 << 30;

    /// Checks an arena against a model that records for each unit of memory whether it is in use. Blocks must never
    /// overlap or leave the piece. A block must come with every mark on its bytes that is not passed yet.
    #[test]
    fn blocks_never_overlap_and_carry_the_marks_of_their_bytes() {
        const UNITS: usize = 300;
        let mut seed = 12345u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        let mut arena = Arena::<usize>::new(BASE, UNITS * ALIGNMENT_BYTES);
        // For each unit: in use, and the mark behind which it is free.
        let mut units = vec![(false, 0usize); UNITS];
        let (mut held, mut passed, mut refused) = (Vec::new(), 0, 0);
        for turn in 1..20_000 {
            if random(50) == 0 {
                passed = turn;
            }
            if random(2) == 0 {
                let most = if random(20) == 0 { 60 } else { 9 } * ALIGNMENT_BYTES;
                let size_bytes = random(most);
                let taken = size_bytes.max(1).div_ceil(ALIGNMENT_BYTES);
                match arena.take(size_bytes, |&mark| mark <= passed) {
                    None => {
                        refused += 1;
                        assert!(units.windows(taken).all(|run| run.iter().any(|unit| unit.0)), "there was room");
                    }
                    Some((address, marks)) => {
                        let first = (address - BASE) / ALIGNMENT_BYTES;
                        assert_eq!((address - BASE) % ALIGNMENT_BYTES, 0);
                        for unit in &mut units[first..first + taken] {
                            assert!(!unit.0 && (unit.1 <= passed || marks.contains(&unit.1)));
                            *unit = (true, 0);
                        }
                        held.push((address, first, taken));
                    }
                }
            } else if !held.is_empty() {
                let (address, first, taken) = held.swap_remove(random(held.len()));
                assert!(arena.gave(address) && !arena.is_unused());
                arena.give_back(address, turn, |&mark| mark <= passed);
                units[first..first + taken].fill((false, turn));
            }
        }
        assert!(refused > 100);
        for (address, ..) in held {
            arena.give_back(address, 0, |_| true);
        }
        assert!(arena.is_unused() && arena.holes.len() == 1);
        assert_eq!(arena.take(UNITS * ALIGNMENT_BYTES, |_| true), Some((BASE, Vec::new())));
        assert_eq!(arena.take(1, |_| true), None);
        assert_eq!(arena.take(usize::MAX, |_| true), None);
    }

    #[test]
    fn a_hole_that_nobody_waits_for_goes_before_a_smaller_one() {
        let mut arena = Arena::<u8>::new(BASE, 10 * ALIGNMENT_BYTES);
        let (first, _) = arena.take(ALIGNMENT_BYTES, |_| false).unwrap();
        let (second, _) = arena.take(ALIGNMENT_BYTES, |_| false).unwrap();
        arena.give_back(first, 7, |_| false);
        assert_eq!(arena.take(1, |_| false), Some((second + ALIGNMENT_BYTES, Vec::new())));
        assert_eq!(arena.take(1, |_| true), Some((first, Vec::new())));
        let rest = 7 * ALIGNMENT_BYTES;
        assert!(arena.take(rest, |_| false).is_some());
        arena.give_back(first, 8, |_| false);
        assert_eq!(arena.take(1, |_| false), Some((first, vec![8])));
    }
}
