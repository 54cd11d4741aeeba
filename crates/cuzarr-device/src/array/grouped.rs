//! Grouping: a counting sort that puts the numbers `0..count` into the order of their groups, in several threads.
//!
//! ```text
//! each thread, for its part of the numbers: get group and element of each, count the numbers of each group
//! divide the memory of each group among the parts
//! each thread, for its part: put the pairs of element and number into the groups
//! each thread, for its groups: sort the pairs by element, if `within` says so
//! ```
//!
//! For points of an array the groups are chunks. A sort by comparison of 1,000,000 points takes ten times as long.

use std::ops::Range;
use std::slice::IterMut;

use super::lists::{Entries, List};
use crate::threads::{Threads, cores};

/// The order in which numbers of the same group are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The numbers of a group are sorted in rising order.
    Rising,
    /// The numbers of a group are sorted by the element that `numbering` gives each number. Numbers of the same element
    /// rise.
    ByElem,
    /// The numbers of a group are sorted by the element that `numbering` gives each; of numbers with the same element,
    /// only the last is kept.
    LastOfElem,
}

/// The result of `grouped`: pairs of an element and a number, sorted by the groups of the numbers.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// For each number, a pair: the element that `numbering` gave it, and the number as the index in the nd-buffer.
    pub list: List,
    /// The position in `list` where each non-empty group begins, rising; the last entry is the end of the last group.
    pub starts: Vec<usize>,
}

/// Number of numbers whose groups and elements one call of the caller's function `numbering` gives. Their groups and
/// elements stay in the L1 cache.
const BLOCK: usize = 4096;
/// Fewest numbers for which the sort uses one more thread. A thread takes some ten microseconds to start.
const THREAD_LEN: usize = 1 << 16;
/// Largest number of threads that one grouping sort uses. With more, they would wait for memory.
const MOST_THREADS: usize = 16;

/// A function that writes the group and the element of each number in a range. The memory it writes to is zeroed.
pub type Numbering<'a, E> = dyn Fn(Range<usize>, &mut [u32], &mut [u64]) -> Result<(), E> + Sync + 'a;

/// Sorts the numbers `0..count` by the group that `numbering` gives each of them. There are `groups` groups, and
/// elements are below `elem_end`.
///
/// # Errors
/// The errors of `numbering`.
///
/// # Panics
/// When `numbering` gives a group that is not below `groups`.
pub fn grouped<E: Send>(
    count: usize,
    groups: usize,
    elem_end: u64,
    within: Within,
    numbering: &Numbering<'_, E>,
) -> Result<Grouped, E> {
    let fits = |end: u64| end <= 1 << 32;
    let (entries, starts) = match fits(elem_end) && fits(count as u64) {
        true => {
            let (pairs, starts) = pairs::<u32, E>(count, groups, within, numbering)?;
            (Entries::Narrow(pairs), starts)
        }
        false => {
            let (pairs, starts) = pairs::<u64, E>(count, groups, within, numbering)?;
            (Entries::Wide(pairs), starts)
        }
    };
    Ok(Grouped { list: List::of_distinct(entries, count), starts })
}

/// The integer type in which `grouped` stores elements and numbers: `u32` if all of them fit, else `u64`.
trait Number: Copy + Default + Ord + Send + Sync {
    fn of(number: u64) -> Self;
}

impl Number for u32 {
    fn of(number: u64) -> u32 {
        number as u32
    }
}

impl Number for u64 {
    fn of(number: u64) -> u64 {
        number
    }
}

/// The range of numbers that one thread sorts, with the group and the element of each number.
struct GroupedPart<N> {
    first: usize,
    /// The group of each number; `elems` has the element of each.
    groups: Vec<u32>,
    elems: Vec<N>,
    /// For each group, how many of this thread's numbers belong to it.
    sizes: Vec<u32>,
}

impl<N: Number> GroupedPart<N> {
    fn new<E>(range: Range<usize>, groups: usize, numbering: &Numbering<'_, E>) -> Result<GroupedPart<N>, E> {
        let (first, len) = (range.start, range.len());
        let mut part =
            GroupedPart { first, groups: vec![0; len], elems: Vec::with_capacity(len), sizes: vec![0; groups] };
        let mut elems = vec![0; BLOCK.min(len)];
        for (at, groups) in part.groups.chunks_mut(BLOCK).enumerate() {
            let (start, elems) = (first + at * BLOCK, &mut elems[..groups.len()]);
            elems.fill(0);
            numbering(start..start + groups.len(), groups, elems)?;
            part.elems.extend(elems.iter().map(|&elem| N::of(elem)));
            for &group in &*groups {
                part.sizes[group as usize] += 1;
            }
        }
        Ok(part)
    }

    /// Calls `put(group, [element, number])` for each number of this thread's range.
    fn place(&self, mut put: impl FnMut(usize, [N; 2])) {
        let all = self.groups.iter().zip(&self.elems).enumerate();
        all.for_each(|(at, (&group, &elem))| put(group as usize, [elem, N::of((self.first + at) as u64)]));
    }
}

/// Pairs of element and number, sorted by group, and the position in this list where each group begins.
type Pairs<N> = (Vec<[N; 2]>, Vec<usize>);

fn pairs<N: Number, E: Send>(
    count: usize,
    groups: usize,
    within: Within,
    numbering: &Numbering<'_, E>,
) -> Result<Pairs<N>, E> {
    // The numbers of one part fit 4 bytes. The tables of all parts together are no longer than the list of numbers.
    let threads = cores().min(count / THREAD_LEN).min(count / (4 * groups).max(1)).clamp(1, MOST_THREADS);
    let each = count.div_ceil(threads).clamp(1, 1 << 31);
    let ranges = (0..count.div_ceil(each)).map(|at| at * each..((at + 1) * each).min(count));
    let parts = Threads::workers().map(threads, ranges, |range| GroupedPart::<N>::new(range, groups, numbering));
    let parts: Vec<GroupedPart<N>> = parts.into_iter().collect::<Result<_, E>>()?;
    let mut starts = Vec::with_capacity(groups + 1);
    let mut end = 0;
    for group in 0..groups {
        starts.push(end);
        end += parts.iter().map(|part| part.sizes[group] as usize).sum::<usize>();
    }
    starts.push(end);
    let mut pairs = vec![[N::default(); 2]; count];
    if let [part] = &parts[..] {
        let mut next = starts.clone();
        part.place(|group, pair| {
            pairs[next[group]] = pair;
            next[group] += 1;
        });
    } else {
        let work: Vec<_> = parts.iter().zip(rooms(&mut pairs, &parts, groups)).collect();
        Threads::workers().map(threads, work, |(part, mut rooms)| {
            part.place(|group, pair| {
                *rooms[group].next().expect("a group has as much room as numbers were counted") = pair;
            });
        });
    }
    if within != Within::Rising {
        Threads::workers().map(threads, shares(&mut pairs, &starts, threads), |(groups, mut rest)| {
            for group in groups {
                let (own, others) = rest.split_at_mut(starts[group + 1] - starts[group]);
                rest = others;
                own.sort_unstable();
            }
        });
    }
    if within == Within::LastOfElem {
        keep_last(&mut pairs, &mut starts);
    }
    starts.dedup();
    Ok((pairs, starts))
}

/// Divides the memory of the sorted pairs among threads: each thread's part gets one slice of each group to fill.
/// Within a group, the slices follow the order of the parts.
fn rooms<'a, N>(pairs: &'a mut [[N; 2]], parts: &[GroupedPart<N>], groups: usize) -> Vec<Vec<IterMut<'a, [N; 2]>>> {
    let mut rooms: Vec<Vec<IterMut<'a, [N; 2]>>> = parts.iter().map(|_| Vec::with_capacity(groups)).collect();
    let mut rest = pairs;
    for group in 0..groups {
        for (rooms, part) in rooms.iter_mut().zip(parts) {
            let (own, others) = rest.split_at_mut(part.sizes[group] as usize);
            rooms.push(own.iter_mut());
            rest = others;
        }
    }
    rooms
}

/// Neighbouring groups for one thread to sort, and the memory of the pairs in these groups.
type Share<'a, N> = (Range<usize>, &'a mut [[N; 2]]);

/// Divides neighbouring groups among `count` threads, with about as many pairs for each.
fn shares<'a, N>(pairs: &'a mut [[N; 2]], starts: &[usize], count: usize) -> Vec<Share<'a, N>> {
    let (len, groups) = (pairs.len(), starts.len() - 1);
    let (mut rest, mut first, mut shares) = (pairs, 0, Vec::with_capacity(count));
    for share in 1..=count {
        let end = match share == count {
            true => groups,
            false => starts.partition_point(|&start| start < len / count * share).clamp(first, groups),
        };
        let (own, others) = rest.split_at_mut(starts[end] - starts[first]);
        shares.push((first..end, own));
        (rest, first) = (others, end);
    }
    shares
}

/// Keeps, of all pairs with the same element in a group, only the last one. Pairs of the same element must follow each
/// other.
fn keep_last<N: Number>(pairs: &mut Vec<[N; 2]>, starts: &mut [usize]) {
    let mut kept = 0;
    for group in 0..starts.len() - 1 {
        // The start of the next group still counts all pairs.
        let (start, end) = (starts[group], starts[group + 1]);
        let first = kept;
        for at in start.max(first)..end {
            if at + 1 < end && pairs[at + 1][0] == pairs[at][0] {
                continue;
            }
            pairs[kept] = pairs[at];
            kept += 1;
        }
        starts[group] = first;
    }
    if let Some(end) = starts.last_mut() {
        *end = kept;
    }
    pairs.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives each number a pseudo-random group and element.
    fn numbering(groups: u32, elems: u64) -> impl Fn(Range<usize>, &mut [u32], &mut [u64]) -> Result<(), ()> + Sync {
        move |range, keys, values| {
            for ((number, key), elem) in range.zip(keys).zip(values) {
                let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                *key = (mixed % u64::from(groups)) as u32;
                *elem = mixed / 7 % elems;
            }
            Ok(())
        }
    }

    /// The result that `grouped` should give, computed by a sort by comparison.
    fn expected(count: usize, groups: u32, elems: u64, within: Within) -> (Vec<(usize, usize)>, Vec<usize>) {
        let (mut keys, mut values) = (vec![0; count], vec![0; count]);
        numbering(groups, elems)(0..count, &mut keys, &mut values).unwrap();
        let mut all: Vec<(u32, u64, usize)> = (0..count).map(|number| (keys[number], values[number], number)).collect();
        match within {
            Within::Rising => all.sort_by_key(|&(key, _, number)| (key, number)),
            _ => all.sort_unstable(),
        }
        if within == Within::LastOfElem {
            let last = |at: &usize| all.get(at + 1).is_none_or(|next| (next.0, next.1) != (all[*at].0, all[*at].1));
            all = (0..all.len()).filter(last).map(|at| all[at]).collect();
        }
        let begins = |at: &usize| *at == 0 || all[at - 1].0 != all[*at].0;
        let mut starts: Vec<usize> = (0..all.len()).filter(begins).collect();
        starts.push(all.len());
        (all.into_iter().map(|(_, elem, number)| (elem as usize, number)).collect(), starts)
    }

    #[test]
    fn numbers_are_grouped_as_a_sort_by_comparison_orders_them() {
        for (count, groups, elems) in [(0, 4, 9), (1, 1, 1), (1000, 7, 5), (200_000, 300, 50), (150_000, 1, 1 << 40)] {
            for within in [Within::Rising, Within::ByElem, Within::LastOfElem] {
                let found = grouped(count, groups as usize, elems, within, &numbering(groups, elems)).unwrap();
                let (pairs, starts) = expected(count, groups, elems, within);
                let all = found.list.all();
                assert_eq!(
                    (0..all.len()).map(|at| all.get(at)).collect::<Vec<_>>(),
                    pairs,
                    "{count} {groups} {within:?}"
                );
                assert_eq!(found.starts, starts, "{count} {groups} {within:?}");
            }
        }
    }
}
