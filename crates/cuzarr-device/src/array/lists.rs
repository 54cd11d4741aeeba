//! Index lists: where elements lie along dimensions that an index list chose, instead of at even distances.
//!
//! With lists, a box counts in positions of the lists: `start..start + extent` are entries of a dimension's list. Each entry says
//! where its element lies in its packed chunk, and at which index of the nd-buffer. No two entries of a list have one index of
//! the nd-buffer, so boxes with disjoint positions have disjoint elements.

use crate::error::{Error, Result};

/// The elements along one dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Where each element lies in its packed chunk, in elements.
    pub packed_elems: Vec<usize>,
    /// The index of each element in the nd-buffer.
    pub places: Vec<usize>,
}

/// A list for each dimension that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    axes: Vec<Option<List>>,
    array: Vec<usize>,
    positions: Vec<usize>,
}

impl Lists {
    /// Lists for nd-buffers of shape `array`.
    ///
    /// # Errors
    /// `InvalidArgument` when dimensions or lengths differ, or a list leaves the nd-buffer or names an index twice.
    pub fn new(axes: Vec<Option<List>>, array: &[usize]) -> Result<Lists> {
        if axes.len() != array.len() {
            return Err(Error::invalid(format!("got lists of {} dimensions for shape {array:?}", axes.len())));
        }
        let mut positions = array.to_vec();
        for (dim, list) in axes.iter().enumerate() {
            let Some(list) = list else { continue };
            let mut named = vec![false; array[dim]];
            let names = |&place: &usize| named.get_mut(place).is_some_and(|named| !std::mem::replace(named, true));
            if list.packed_elems.len() != list.places.len() || !list.places.iter().all(names) {
                let message =
                    format!("the list of dimension {dim} does not name distinct indices below {}", array[dim]);
                return Err(Error::invalid(message));
            }
            positions[dim] = list.places.len();
        }
        Ok(Lists { axes, array: array.to_vec(), positions })
    }

    /// The number of positions of each dimension.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Refuses nd-buffers of another shape.
    pub(crate) fn require(&self, array: &[usize]) -> Result<()> {
        match self.array == array {
            true => Ok(()),
            false => Err(Error::invalid(format!("lists for shape {:?}, the nd-buffer has {array:?}", self.array))),
        }
    }

    /// These lists for a packed side of a single element.
    pub(crate) fn of_one_element(&self) -> Lists {
        let one = |list: &List| List { packed_elems: vec![0; list.places.len()], places: list.places.clone() };
        let axes = self.axes.iter().map(|list| list.as_ref().map(one)).collect();
        Lists { axes, array: self.array.clone(), positions: self.positions.clone() }
    }

    /// A part of a dimension's list; `None` for a dimension without one.
    pub fn part(&self, dim: usize, start: usize, extent: usize) -> Option<(&[usize], &[usize])> {
        let list = self.axes.get(dim)?.as_ref()?;
        let range = start..start + extent;
        Some((&list.packed_elems[range.clone()], &list.places[range]))
    }
}
