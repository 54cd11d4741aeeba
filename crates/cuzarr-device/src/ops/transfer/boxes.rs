//! The boxes of elements that a transfer moves, and the check that every box lies inside the memory on both sides.

use std::ops::Range;
use std::sync::Arc;

use crate::array::layout::check_box;
use crate::array::lists::Lists;
use crate::array::ndbuffer::NdBuffer;
use crate::error::{Error, Result};
use crate::ops::step::require_dtype;
use crate::ops::transfer::tail::{Packing, Tail};

/// One box of elements to move between a packed chunk and an nd-buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferBox {
    /// Byte offset of the chunk in the packed buffer.
    pub packed_offset_bytes: usize,
    /// Size in bytes of the packed chunk that contains the box.
    pub packed_size_bytes: usize,
    /// Index of the box's first element in the packed chunk. With lists, it is added to the element numbers in the
    /// lists, and is negative (wrapped around) if the packed bytes begin behind the chunk's first element.
    pub packed_first_elem: usize,
    /// Start of the box in the nd-buffer, along each dimension. With a list, its position in the list.
    pub start: Vec<usize>,
    /// Number of elements of the box in the nd-buffer along each dimension.
    pub extent: Vec<usize>,
}

/// Many boxes to move between packed chunks of the same kind and one nd-buffer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The packing of the chunks, and the steps that change elements.
    pub tail: Tail,
    /// Elements between neighbours in a packed chunk, for each dimension of the nd-buffer. Includes selection steps and
    /// transposed axes.
    pub packed_strides: Vec<isize>,
    /// Index lists of dimensions whose elements are not evenly spaced. The element numbers in the lists are multiplied
    /// by `packed_strides`.
    pub lists: Option<Arc<Lists>>,
    /// The boxes of elements to move. They do not overlap in the nd-buffer (nor, when gathering, in packed memory).
    pub boxes: Vec<TransferBox>,
}

impl Transfer {
    /// Checks that every box lies inside the nd-buffer, and inside `packed_bytes` bytes of packed memory.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the first box that does not.
    pub fn check(&self, packed_bytes: usize, array: &NdBuffer) -> Result<()> {
        self.check_some(0..self.boxes.len(), packed_bytes, array)
    }

    /// Like [`Transfer::check`], but checks only the boxes in `range`.
    pub(crate) fn check_some(&self, range: Range<usize>, packed_bytes: usize, array: &NdBuffer) -> Result<()> {
        let Some(boxes) = self.boxes.get(range.clone()) else {
            return Err(Error::invalid(format!("there are no boxes {range:?} among {}", self.boxes.len())));
        };
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
        for (number, item) in (range.start..).zip(boxes) {
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

    /// The smallest range of packed bytes that contains the elements of every box, counted from each box's own chunk.
    /// For packings other than [`Packing::Plain`], all bytes.
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

    /// Like [`Transfer::packed_range`], for a single box.
    pub fn packed_range_of(&self, item: &TransferBox) -> Range<usize> {
        let all = 0..item.packed_size_bytes;
        if self.tail.packing != Packing::Plain || item.extent.contains(&0) {
            return all;
        }
        let element_bytes = self.tail.packed.size_bytes();
        let range = self.packed_reach(item).and_then(|(first, last)| {
            Some(first.checked_mul(element_bytes)?..last.checked_add(1)?.checked_mul(element_bytes)?)
        });
        range.filter(|range| range.end <= all.end).unwrap_or(all)
    }

    /// Divides a box into boxes whose elements each span at most `most_bytes` packed bytes, as far as that is possible.
    /// It is not possible with index lists, and for packings other than [`Packing::Plain`].
    pub fn divided(&self, item: TransferBox, most_bytes: usize) -> Vec<TransferBox> {
        let element_bytes = self.tail.packed.size_bytes();
        let stride_bytes = |dim: &usize| self.packed_strides[*dim].unsigned_abs().saturating_mul(element_bytes);
        let dim = (0..item.extent.len()).filter(|&dim| item.extent[dim] > 1).max_by_key(stride_bytes);
        let Some(dim) = dim.filter(|_| self.lists.is_none() && self.tail.packing == Packing::Plain) else {
            return vec![item];
        };
        if self.packed_range_of(&item).len() <= most_bytes {
            return vec![item];
        }
        let rows = (most_bytes / stride_bytes(&dim).max(1)).max(1);
        let part = |from: usize| {
            let mut part = item.clone();
            part.start[dim] += from;
            part.extent[dim] = rows.min(item.extent[dim] - from);
            let first_elem = self.packed_strides[dim].wrapping_mul(from as isize);
            part.packed_first_elem = part.packed_first_elem.wrapping_add_signed(first_elem);
            part
        };
        (0..item.extent[dim]).step_by(rows).flat_map(|from| self.divided(part(from), most_bytes)).collect()
    }

    /// The lowest and the highest index of a box's elements in the packed chunk; `None` if an index is negative or does
    /// not fit.
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
    fn divided_boxes_are_the_box() {
        let elements = |transfer: &Transfer, item: &TransferBox| {
            let mut found = std::collections::BTreeMap::new();
            for row in 0..item.extent[0] {
                for column in 0..item.extent[1] {
                    let [down, across] = [transfer.packed_strides[0], transfer.packed_strides[1]];
                    let elem = item.packed_first_elem as isize + down * row as isize + across * column as isize;
                    let place = (item.start[0] + row, item.start[1] + column);
                    assert!(found.insert(place, elem).is_none());
                }
            }
            found
        };
        for strides in [[10, 1], [-10, 2], [1, 10], [3, -1]] {
            let first = if strides[0] < 0 { 70 } else { 9 };
            let whole = transfer(&strides, &[(first, &[5, 4])]);
            let item = &whole.boxes[0];
            for most_bytes in [1, 4, 16, 40, 100, 1000] {
                let parts = whole.divided(item.clone(), most_bytes);
                let spans = parts.iter().map(|part| whole.packed_range_of(part));
                assert!(spans.clone().all(|span| span.len() <= most_bytes.max(4)), "{strides:?} {most_bytes}");
                let together: std::collections::BTreeMap<_, _> =
                    parts.iter().flat_map(|part| elements(&whole, part)).collect();
                assert_eq!(together, elements(&whole, item), "{strides:?} {most_bytes}");
                assert_eq!(parts.iter().map(|part| part.extent[0] * part.extent[1]).sum::<usize>(), 20);
            }
        }
        let mut shuffled = transfer(&[10, 1], &[(30, &[2, 5])]);
        shuffled.tail.packing = Packing::Shuffled { unit_bytes: 4 };
        assert_eq!(shuffled.divided(shuffled.boxes[0].clone(), 4), shuffled.boxes);
        let scalar = transfer(&[], &[(42, &[])]);
        assert_eq!(scalar.divided(scalar.boxes[0].clone(), 1), scalar.boxes);
        assert_eq!(
            (scalar.packed_range_of(&scalar.boxes[0]), shuffled.packed_range_of(&shuffled.boxes[0])),
            (168..172, 0..400)
        );
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
