//! Which boxes of elements move, and the check that none of them leaves its memory.

use std::ops::Range;
use std::sync::Arc;

use crate::array::layout::check_box;
use crate::array::lists::Lists;
use crate::array::ndbuffer::NdBuffer;
use crate::error::{Error, Result};
use crate::ops::step::require_dtype;
use crate::ops::transfer::tail::{Packing, Tail};

/// One box to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferBox {
    /// Where the chunk's packed bytes begin in the packed buffer.
    pub packed_offset_bytes: usize,
    /// How many packed bytes the chunk has.
    pub packed_size_bytes: usize,
    /// Index, in the packed chunk, of the box's first element. With lists, what is added to their numbers; it may wrap around,
    /// where packed bytes begin behind the chunk's first element.
    pub packed_first_elem: usize,
    /// Where the box begins in the nd-buffer, per dimension; with a list, in the list.
    pub start: Vec<usize>,
    /// Elements per dimension.
    pub extent: Vec<usize>,
}

/// Many boxes between packed chunks of one kind and one nd-buffer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The steps that elements go through.
    pub tail: Tail,
    /// Elements between neighbours in a packed chunk, per dimension of the nd-buffer (selection steps and transposed
    /// axes included).
    pub packed_strides: Vec<isize>,
    /// Index lists of the dimensions whose elements are no neighbours. Their numbers count in the strides.
    pub lists: Option<Arc<Lists>>,
    /// The boxes; those of one transfer do not overlap in the nd-buffer (nor, when gathering, in packed memory).
    pub boxes: Vec<TransferBox>,
}

impl Transfer {
    /// Checks that no box leaves `packed_bytes` bytes of packed memory or the nd-buffer.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first box that does.
    pub fn check(&self, packed_bytes: usize, array: &NdBuffer) -> Result<()> {
        self.tail.check()?;
        require_dtype("the nd-buffer", array.dtype(), self.tail.dtype)?;
        if self.packed_strides.len() != array.ndim() {
            let (got, expected) = (self.packed_strides.len(), array.ndim());
            return Err(Error::invalid(format!("got {got} packed strides for {expected} dimensions")));
        }
        let shape = match &self.lists {
            Some(lists) => {
                lists.require(array.shape())?;
                lists.positions()
            }
            None => array.shape(),
        };
        for (number, item) in self.boxes.iter().enumerate() {
            check_box(&item.start, &item.extent, shape)
                .and_then(|()| self.check_packed(item, packed_bytes))
                .map_err(|error| Error::invalid(format!("box {number}: {}", error.message())))?;
        }
        Ok(())
    }

    fn check_packed(&self, item: &TransferBox, packed_bytes: usize) -> Result<()> {
        let end = item.packed_offset_bytes.checked_add(item.packed_size_bytes);
        if end.is_none_or(|end| end > packed_bytes) {
            let (size, offset) = (item.packed_size_bytes, item.packed_offset_bytes);
            return Err(Error::invalid(format!(
                "{size} bytes from byte {offset} are not in {packed_bytes} packed bytes"
            )));
        }
        if item.extent.contains(&0) {
            return Ok(());
        }
        let len = self.tail.packed_len(item.packed_size_bytes);
        match self.packed_reach(item) {
            Some((_, last)) if last < len => Ok(()),
            _ => {
                let (first, extent, strides) = (item.packed_first_elem, &item.extent, &self.packed_strides);
                Err(Error::invalid(format!(
                    "extent {extent:?} by {strides:?} from element {first} leaves a chunk of {len} elements"
                )))
            }
        }
    }

    /// The bytes between the first and the last element of all boxes, counted from where each one's packed bytes begin. With
    /// another packing than [`Packing::Plain`], all bytes.
    pub fn packed_range(&self) -> Range<usize> {
        let all = 0..self.boxes.iter().map(|item| item.packed_size_bytes).max().unwrap_or(0);
        let element_bytes = self.tail.packed.size_bytes();
        let filled = self.boxes.iter().filter(|item| !item.extent.contains(&0));
        let reach = filled.map(|item| {
            let (first, last) = self.packed_reach(item)?;
            Some((first.checked_mul(element_bytes)?, last.checked_add(1)?.checked_mul(element_bytes)?))
        });
        let join = |one: (usize, usize), next: (usize, usize)| (one.0.min(next.0), one.1.max(next.1));
        let joined: Option<(usize, usize)> = reach.reduce(|one, next| Some(join(one?, next?))).flatten();
        match joined {
            Some((first, end)) if self.tail.packing == Packing::Plain && end <= all.end => first..end,
            _ => all,
        }
    }

    /// Lowest and highest element index that a box touches, or `None` when one is negative or does not fit.
    fn packed_reach(&self, item: &TransferBox) -> Option<(usize, usize)> {
        let first = match self.lists {
            Some(_) => item.packed_first_elem as isize,
            None => isize::try_from(item.packed_first_elem).ok()?,
        };
        let (mut low, mut high) = (first, first);
        for (dim, (&extent, &stride)) in item.extent.iter().zip(&self.packed_strides).enumerate() {
            let part = self.lists.as_ref().and_then(|lists| lists.part(dim, item.start[dim], extent));
            let (least, most) = match part {
                Some(part) => {
                    let (least, most) = part.packed_reach()?;
                    let [one, other] = [least, most].map(|number| stride.checked_mul(isize::try_from(number).ok()?));
                    (one?.min(other?), one?.max(other?))
                }
                None => {
                    let reach = stride.checked_mul(isize::try_from(extent - 1).ok()?)?;
                    (reach.min(0), reach.max(0))
                }
            };
            (low, high) = (low.checked_add(least)?, high.checked_add(most)?);
        }
        Some((usize::try_from(low).ok()?, usize::try_from(high).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::dtype::DType;
    use crate::array::lists::List;

    /// Boxes of 100 elements of 4 bytes, by their first element and extent.
    fn transfer(packed_strides: &[isize], boxes: &[(usize, &[usize])]) -> Transfer {
        let item = |(first, extent): &(usize, &[usize])| TransferBox {
            packed_offset_bytes: 4000,
            packed_size_bytes: 400,
            packed_first_elem: *first,
            start: vec![0; extent.len()],
            extent: extent.to_vec(),
        };
        Transfer {
            tail: Tail::plain(DType::FLOAT32),
            packed_strides: packed_strides.to_vec(),
            lists: None,
            boxes: boxes.iter().map(item).collect(),
        }
    }

    #[test]
    fn packed_range_spans_all_boxes() {
        assert_eq!(transfer(&[10, 1], &[(30, &[2, 5])]).packed_range(), 120..180);
        assert_eq!(transfer(&[10, 1], &[(30, &[2, 5]), (7, &[1, 1]), (99, &[3, 0])]).packed_range(), 28..180);
        assert_eq!(transfer(&[-10, 2], &[(30, &[2, 5])]).packed_range(), 80..156);
        assert_eq!(transfer(&[], &[(42, &[])]).packed_range(), 168..172);
        let pairs = Arc::new(List::new(vec![[50, 0], [20, 1]]));
        let lists = Lists::new(vec![Some(pairs), None], &[2, 3]).unwrap();
        let listed = Transfer { lists: Some(Arc::new(lists)), ..transfer(&[1, 1], &[(5, &[2, 3])]) };
        assert_eq!(listed.packed_range(), 100..232);
        let falling = Transfer {
            packed_strides: vec![-1, 1],
            boxes: vec![TransferBox { packed_first_elem: 60, ..listed.boxes[0].clone() }],
            ..listed
        };
        assert_eq!(falling.packed_range(), 40..172);
    }

    #[test]
    fn packed_range_is_all_where_bytes_lie_apart_or_a_box_leaves_the_chunk() {
        let mut shuffled = transfer(&[10, 1], &[(30, &[2, 5])]);
        shuffled.tail.packing = Packing::Shuffled { unit_bytes: 4 };
        assert_eq!(shuffled.packed_range(), 0..400);
        assert_eq!(transfer(&[10, 1], &[(95, &[2, 5])]).packed_range(), 0..400);
        assert_eq!(transfer(&[-10, 1], &[(5, &[2, 5])]).packed_range(), 0..400);
        assert_eq!(transfer(&[1], &[(5, &[0])]).packed_range(), 0..400);
    }
}
