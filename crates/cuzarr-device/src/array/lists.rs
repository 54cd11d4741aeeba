//! Index lists: which elements a selection takes along a dimension, if they are not at even distances.
//!
//! With lists, the box of a chunk counts positions in the lists: `start..start + extent` are entries of a dimension's
//! list. Each entry is a pair: the element's number along the dimension in its packed chunk, and its index in the
//! nd-buffer. No two entries of a list have the same index in the nd-buffer, so boxes with disjoint positions have
//! disjoint elements.

use std::sync::Arc;

use crate::error::{Error, Result};

/// The elements that a selection takes along one dimension: each has its number in the packed chunk and its index in
/// the nd-buffer. An entry takes 8 bytes if all numbers fit 4 bytes, else 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    entries: Entries,
    /// If set, all indices in the nd-buffer are known to be distinct and below this number.
    distinct_below: Option<usize>,
}

/// Pairs of two numbers of one element: its index in the packed chunk, and its index in the nd-buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    Narrow(Vec<[u32; 2]>),
    Wide(Vec<[u64; 2]>),
}

/// Some or all pairs of an index list: an element's number in its packed chunk, and its index in the nd-buffer.
#[derive(Clone, Copy, Debug)]
pub enum ListPart<'a> {
    /// Pairs whose two numbers take 4 bytes each, for lists in which all numbers fit 4 bytes.
    Narrow(&'a [[u32; 2]]),
    /// Pairs whose two numbers take 8 bytes each, for lists in which some number does not fit 4 bytes.
    Wide(&'a [[u64; 2]]),
}

impl List {
    /// Makes a list of pairs: the number of the element in its packed chunk, and its index in the nd-buffer.
    pub fn new(pairs: Vec<[u64; 2]>) -> List {
        let narrow = |pair: &[u64; 2]| Some([u32::try_from(pair[0]).ok()?, u32::try_from(pair[1]).ok()?]);
        let entries = match pairs.iter().map(narrow).collect() {
            Some(pairs) => Entries::Narrow(pairs),
            None => Entries::Wide(pairs),
        };
        List { entries, distinct_below: None }
    }

    /// Makes an index list whose indices in the nd-buffer are known to be distinct and below `end`.
    pub(super) fn of_distinct(entries: Entries, end: usize) -> List {
        List { entries, distinct_below: Some(end) }
    }

    /// All pairs of this index list.
    pub fn all(&self) -> ListPart<'_> {
        match &self.entries {
            Entries::Narrow(pairs) => ListPart::Narrow(pairs),
            Entries::Wide(pairs) => ListPart::Wide(pairs),
        }
    }

    /// Returns the list with other indices in the nd-buffer: `index` becomes `places[index]`.
    ///
    /// # Panics
    /// When an index is not below the number of places.
    pub fn with_places(&self, places: &[usize]) -> List {
        let all = self.all();
        let pairs = (0..all.len()).map(|at| {
            let (elem, index) = all.get(at);
            [elem as u64, places[index] as u64]
        });
        let distinct = self.is_distinct(places.len()) && places.is_sorted_by(|one, next| one < next);
        let end = places.last().map_or(0, |last| last + 1);
        List { distinct_below: distinct.then_some(end), ..List::new(pairs.collect()) }
    }

    /// Whether the list's indices in the nd-buffer are distinct and below `extent`.
    fn is_distinct(&self, extent: usize) -> bool {
        if self.distinct_below.is_some_and(|end| end <= extent) {
            return true;
        }
        let mut named = vec![false; extent];
        let all = self.all();
        (0..all.len()).all(|at| named.get_mut(all.get(at).1).is_some_and(|named| !std::mem::replace(named, true)))
    }
}

impl<'a> ListPart<'a> {
    /// The number of pairs in this part of an index list.
    pub fn len(&self) -> usize {
        match self {
            ListPart::Narrow(pairs) => pairs.len(),
            ListPart::Wide(pairs) => pairs.len(),
        }
    }

    /// Whether this part of an index list has no pairs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the pair at position `at`: the element's number in its packed chunk, and its index in the nd-buffer.
    #[inline]
    pub fn get(&self, at: usize) -> (usize, usize) {
        match self {
            ListPart::Narrow(pairs) => (pairs[at][0] as usize, pairs[at][1] as usize),
            ListPart::Wide(pairs) => (pairs[at][0] as usize, pairs[at][1] as usize),
        }
    }

    /// The pairs `start..start + extent` of this part of an index list.
    pub fn part(self, start: usize, extent: usize) -> ListPart<'a> {
        match self {
            ListPart::Narrow(pairs) => ListPart::Narrow(&pairs[start..start + extent]),
            ListPart::Wide(pairs) => ListPart::Wide(&pairs[start..start + extent]),
        }
    }

    /// The smallest and the largest element number in packed chunks; `None` if there are no pairs.
    pub(crate) fn packed_reach(&self) -> Option<(usize, usize)> {
        let reach = |elem: (u64, u64), next: u64| (elem.0.min(next), elem.1.max(next));
        let (least, most) = match self {
            ListPart::Narrow(pairs) => pairs.iter().fold((u64::MAX, 0), |so_far, pair| reach(so_far, pair[0].into())),
            ListPart::Wide(pairs) => pairs.iter().fold((u64::MAX, 0), |so_far, pair| reach(so_far, pair[0])),
        };
        (!self.is_empty()).then_some((least as usize, most as usize))
    }
}

/// The index lists of an array: one for each dimension that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    axes: Vec<Option<Arc<List>>>,
    array: Vec<usize>,
    positions: Vec<usize>,
}

impl Lists {
    /// Makes the index lists of a selection, one entry for each dimension, for nd-buffers of shape `array`.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs, or a list has an index outside the nd-buffer or the
    /// same index twice.
    pub fn new(axes: Vec<Option<Arc<List>>>, array: &[usize]) -> Result<Lists> {
        if axes.len() != array.len() {
            return Err(Error::invalid(format!("got lists of {} dimensions for shape {array:?}", axes.len())));
        }
        let mut positions = array.to_vec();
        for (dim, list) in axes.iter().enumerate() {
            let Some(list) = list else { continue };
            if !list.is_distinct(array[dim]) {
                let message =
                    format!("the list of dimension {dim} does not name distinct indices below {}", array[dim]);
                return Err(Error::invalid(message));
            }
            positions[dim] = list.all().len();
        }
        Ok(Lists { axes, array: array.to_vec(), positions })
    }

    /// Number of positions along each dimension: the length of its index list, or its extent if it has no list.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Refuses an nd-buffer whose shape `array` is not the one that the lists were made for.
    pub(crate) fn require(&self, array: &[usize]) -> Result<()> {
        match self.array == array {
            true => Ok(()),
            false => Err(Error::invalid(format!("lists for shape {:?}, the nd-buffer has {array:?}", self.array))),
        }
    }

    /// Returns the part of a dimension's list that begins at `start` and has `extent` entries; `None` if the dimension
    /// has no list.
    pub fn part(&self, dim: usize, start: usize, extent: usize) -> Option<ListPart<'_>> {
        Some(self.axes.get(dim)?.as_ref()?.all().part(start, extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_four_bytes_make_a_wide_list() {
        let narrow = List::new(vec![[5, 0], [u64::from(u32::MAX), 1]]);
        let wide = List::new(vec![[5, 0], [1 << 32, 1]]);
        assert!(matches!(narrow.all(), ListPart::Narrow(_)) && matches!(wide.all(), ListPart::Wide(_)));
        assert_eq!((narrow.all().get(0), wide.all().get(1)), ((5, 0), (1 << 32, 1)));
        assert_eq!(wide.all().packed_reach(), Some((5, 1 << 32)));
    }

    #[test]
    fn a_list_with_other_places_names_them_once() {
        let list = List::new(vec![[5, 1], [9, 0], [2, 2]]);
        let placed = list.with_places(&[3, 4, 8]);
        let all = placed.all();
        assert_eq!((0..3).map(|at| all.get(at)).collect::<Vec<_>>(), [(5, 4), (9, 3), (2, 8)]);
        assert!(placed.is_distinct(9) && !placed.is_distinct(8));
        assert!(!list.with_places(&[3, 3, 8]).is_distinct(9));
    }

    #[test]
    fn a_list_that_names_an_index_twice_or_leaves_the_array_is_refused() {
        let lists = |pairs: Vec<[u64; 2]>, extent| Lists::new(vec![Some(Arc::new(List::new(pairs)))], &[extent]);
        assert!(lists(vec![[0, 1], [1, 0]], 2).is_ok());
        assert!(lists(vec![[0, 1], [1, 1]], 2).is_err());
        assert!(lists(vec![[0, 2]], 2).is_err());
    }
}
