//! Lets many threads read or write the elements of one nd-buffer in host memory at once.
//!
//! A [`Reader`] or [`Writer`] takes one lease for the whole call. A writer lends boxes of elements, one batch at a
//! time. It checks once that the boxes of a batch overlap neither each other nor those of batches that are still in
//! use. Each thread then takes the part of its chunk, without a lock.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::array::dtype::DType;
use crate::array::layout::{Layout, Order, check_box};
use crate::array::lists::Lists;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::{Access, Lease};

/// Lets several threads read the elements of an nd-buffer in host memory at the same time. While it or a clone of it
/// lives, writing these elements is refused.
#[derive(Clone)]
pub struct Reader(Arc<Held>);

struct Held {
    array: NdBuffer,
    lease: Arc<Lease>,
}

fn require_host(array: &NdBuffer) -> Result<()> {
    if array.device().is_host_accessible() {
        return Ok(());
    }
    let message = format!("the array is on {}, the host cannot reach it in place", array.device());
    Err(Error::new(ErrorKind::MemorySpace, message))
}

impl Reader {
    pub(crate) fn new(array: &NdBuffer) -> Result<Reader> {
        require_host(array)?;
        Ok(Reader(Arc::new(Held { array: array.clone(), lease: Arc::new(array.lease(Access::Read)?) })))
    }

    /// The nd-buffer whose elements this reader may read.
    pub fn array(&self) -> &NdBuffer {
        &self.0.array
    }

    /// Returns a reader for only a box of the elements that this reader may read. Takes no lock.
    ///
    /// # Errors
    /// `InvalidArgument` when the box does not lie inside.
    pub fn region(&self, start: &[usize], extent: &[usize]) -> Result<Reader> {
        let array = self.0.array.region(start, extent, &vec![1; extent.len()])?;
        Ok(Reader(Arc::new(Held { array, lease: Arc::clone(&self.0.lease) })))
    }
}

impl NdBuffer {
    /// Returns a reader, which lets many threads read the elements at the same time. The elements must be in host
    /// memory.
    ///
    /// # Errors
    /// `MemorySpace` when the elements are elsewhere; `InvalidArgument` while they are being written.
    pub fn reader(&self) -> Result<Reader> {
        Reader::new(self)
    }

    /// Returns a writer, which lends separate boxes of the elements to threads that write them. The elements must be in
    /// host memory.
    ///
    /// # Errors
    /// `MemorySpace` when the elements are elsewhere; `InvalidArgument` when they are read-only, in use, or overlap.
    pub fn writer(&self) -> Result<Writer> {
        Writer::new(self, None)
    }

    /// Like [`NdBuffer::writer`], but threads name boxes by positions in index lists instead of indices of the
    /// nd-buffer.
    ///
    /// # Errors
    /// Those of [`NdBuffer::writer`]; `InvalidArgument` also when the lists are for another shape.
    pub fn writer_by(&self, lists: Option<Arc<Lists>>) -> Result<Writer> {
        lists.as_ref().map_or(Ok(()), |lists| lists.require(self.shape()))?;
        Writer::new(self, lists)
    }
}

impl NdBuffer {
    /// Allocates an nd-buffer of zero bytes in pinned host memory, packed in `order`, like [`Buffer::pinned`].
    ///
    /// # Errors
    /// Those of [`Buffer::pinned`]; `InvalidArgument` when the size overflows.
    pub fn pinned(device: Device, dtype: DType, shape: &[usize], order: Order) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, dtype.size_bytes(), order)?;
        NdBuffer::from_parts(Buffer::pinned(device, layout.size_bytes())?, dtype, layout)
    }

    /// Lends the elements to kernels of `device`; `None` if they are not in pinned host memory. No other code reads or
    /// writes them while the result lives.
    ///
    /// # Errors
    /// Those of [`NdBuffer::writer`].
    pub fn lent_to(&self, device: Device) -> Result<Option<NdBuffer>> {
        if !self.buffer().is_reached_by(device)? {
            return Ok(None);
        }
        let writer = self.writer()?;
        // SAFETY: kernels of the device reach the memory, and the writer keeps it, and others from using it.
        let buffer = unsafe { self.buffer().seen_by(device, Box::new(writer)) };
        NdBuffer::from_parts(buffer, self.dtype(), self.layout().clone()).map(Some)
    }
}

/// A box of elements: its start and its extent in each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementBox {
    /// Index of the box's first element along each dimension.
    pub start: Vec<usize>,
    /// Number of elements of the box along each dimension.
    pub extent: Vec<usize>,
}

impl ElementBox {
    fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    fn range(&self, axis: usize) -> Range<usize> {
        self.start[axis]..self.start[axis] + self.extent[axis]
    }

    /// Whether two boxes of one array overlap. Neither may be empty.
    fn overlaps(&self, other: &ElementBox) -> bool {
        (0..self.start.len()).all(|axis| {
            let (mine, theirs) = (self.range(axis), other.range(axis));
            mine.start < theirs.end && theirs.start < mine.end
        })
    }

    fn contains(&self, start: &[usize], extent: &[usize]) -> bool {
        let inside = |axis: usize| {
            start[axis] >= self.start[axis] && start[axis] + extent[axis] <= self.start[axis] + self.extent[axis]
        };
        start.len() == self.start.len() && extent.len() == start.len() && (0..start.len()).all(inside)
    }
}

/// Lets several threads write the elements of an nd-buffer in host memory, each in boxes of its own. No other code
/// reads or writes them while the writer or a part that it lent lives.
///
/// ```
/// use cuzarr_device::{DType, Device, NdBuffer, Order};
/// use cuzarr_device::internal::ElementBox;
/// let array = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[2, 3], Order::C)?;
/// let mut writer = array.writer()?;
/// let column = |at| vec![ElementBox { start: vec![0, at], extent: vec![2, 1] }];
/// let columns = writer.lend((0..3).map(column).collect())?;
/// std::thread::scope(|threads| {
///     for number in 0..3 {
///         let columns = &columns;
///         threads.spawn(move || columns.part(number)?.fill(&[0, number], &[2, 1], &[number as u8]));
///     }
/// });
/// assert!(array.host_slice::<u8>().is_err(), "the array is being written");
/// drop((writer, columns));
/// assert_eq!(array.host_slice::<u8>()?, [0, 1, 2, 0, 1, 2]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
pub struct Writer {
    grant: Arc<Grant>,
    /// Boxes that earlier calls of `lend` gave to threads, and that may still be in use.
    lent: Vec<Weak<Parts>>,
}

/// The record that an nd-buffer is being written, which a writer shares with the threads to which it lends boxes of
/// elements. It ends when the writer and all parts that threads hold are gone. A [`Lent`] may outlive it, but then
/// gives no parts.
struct Grant {
    array: NdBuffer,
    /// Index lists, if boxes count positions in them instead of indices of the nd-buffer.
    lists: Option<Arc<Lists>>,
    lease: Mutex<Option<Lease>>,
    /// Number of users of this record: the writer, and each part (list of boxes) that a thread holds.
    users: AtomicUsize,
}

impl Grant {
    /// Adds a user of the record and returns true, or returns false if all earlier users are gone.
    fn enter(&self) -> bool {
        let more = |users: usize| (users > 0).then_some(users + 1);
        self.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    fn leave(&self) {
        // The last user sees all writes of the others before it ends the lease.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.grant.leave();
    }
}

/// Boxes of elements that one call of a [`Writer`] lent to threads: a list of boxes for each thread. Clones share the
/// same parts.
#[derive(Clone)]
pub struct Lent(Arc<Parts>);

struct Parts {
    grant: Arc<Grant>,
    boxes: Vec<Vec<ElementBox>>,
    /// For each part (a list of boxes), whether a thread holds it now.
    taken: Vec<AtomicBool>,
}

impl Writer {
    fn new(array: &NdBuffer, lists: Option<Arc<Lists>>) -> Result<Writer> {
        if !array.layout().is_injective() {
            let message = format!("elements of an array with strides {:?} overlap", array.strides());
            return Err(Error::invalid(message).with_hint("copy it first"));
        }
        require_host(array)?;
        let lease = Mutex::new(Some(array.lease(Access::Write)?));
        let grant = Grant { array: array.clone(), lists, lease, users: AtomicUsize::new(1) };
        Ok(Writer { grant: Arc::new(grant), lent: Vec::new() })
    }

    /// Lends boxes of elements, for threads to write. Each list of boxes is one part, which one thread at a time may
    /// hold.
    ///
    /// # Errors
    /// `InvalidArgument` when a box leaves the array, or overlaps a box of another part, also of parts that were lent
    /// before and still live.
    pub fn lend(&mut self, boxes: Vec<Vec<ElementBox>>) -> Result<Lent> {
        let shape = self.grant.lists.as_ref().map_or(self.grant.array.shape(), |lists| lists.positions());
        for one in boxes.iter().flatten() {
            check_box(&one.start, &one.extent, shape)?;
        }
        self.lent.retain(|parts| parts.strong_count() > 0);
        let living: Vec<Arc<Parts>> = self.lent.iter().filter_map(Weak::upgrade).collect();
        let others = living
            .iter()
            .enumerate()
            .flat_map(|(at, parts)| parts.boxes.iter().enumerate().map(move |(part, boxes)| ((at + 1, part), boxes)));
        let own = boxes.iter().enumerate().map(|(part, boxes)| ((0, part), boxes));
        let all = own.chain(others).flat_map(|(owner, boxes)| boxes.iter().map(move |one| (owner, one)));
        if let Some((one, other)) = first_overlap(all.filter(|(_, one)| !one.is_empty()).collect()) {
            let (from, extent) = (&one.start, &one.extent);
            let message = format!(
                "{from:?} + {extent:?} overlaps {:?} + {:?}, which another thread may write",
                other.start, other.extent
            );
            return Err(Error::invalid(message));
        }
        let taken = boxes.iter().map(|_| AtomicBool::new(false)).collect();
        let parts = Arc::new(Parts { grant: Arc::clone(&self.grant), boxes, taken });
        self.lent.push(Arc::downgrade(&parts));
        Ok(Lent(parts))
    }
}

/// Returns two overlapping boxes of different owners, if there are any. Sweeps along the axis with the most distinct
/// box starts.
fn first_overlap<O: PartialEq>(mut boxes: Vec<(O, &ElementBox)>) -> Option<(&ElementBox, &ElementBox)> {
    let ndim = boxes.first()?.1.start.len();
    let distinct = |&axis: &usize| {
        let mut starts: Vec<usize> = boxes.iter().map(|(_, one)| one.start[axis]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let Some(axis) = (0..ndim).max_by_key(distinct) else {
        // Without dimensions there is one element.
        return boxes.windows(2).find(|pair| pair[0].0 != pair[1].0).map(|pair| (pair[0].1, pair[1].1));
    };
    boxes.sort_unstable_by_key(|(_, one)| one.start[axis]);
    for (at, (owner, one)) in boxes.iter().enumerate() {
        let end = one.range(axis).end;
        let near = boxes[at + 1..].iter().take_while(|(_, other)| other.start[axis] < end);
        if let Some((_, other)) = near.into_iter().find(|(theirs, other)| theirs != owner && one.overlaps(other)) {
            return Some((one, other));
        }
    }
    None
}

impl Lent {
    /// Takes the boxes of part `number` for the calling thread, which then is the only one that may write them.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such part, another thread holds it, or the writer has ended.
    pub fn part(&self, number: usize) -> Result<Part> {
        let Some(taken) = self.0.taken.get(number) else {
            return Err(Error::invalid(format!("part {number} of {}", self.0.taken.len())));
        };
        if taken.swap(true, Ordering::Acquire) {
            return Err(Error::invalid(format!("part {number} is being written by another thread")));
        }
        if !self.0.grant.enter() {
            taken.store(false, Ordering::Release);
            return Err(Error::invalid(format!("part {number} is of a writer that has ended")));
        }
        Ok(Part { parts: Arc::clone(&self.0), number })
    }
}

/// Boxes of an nd-buffer in host memory that one thread may write, lent by a `Writer`.
pub struct Part {
    parts: Arc<Parts>,
    number: usize,
}

impl Part {
    fn boxes(&self) -> &[ElementBox] {
        &self.parts.boxes[self.number]
    }

    /// The nd-buffer to which the part's boxes belong. Its elements may only be reached through the part.
    pub(crate) fn array(&self) -> &NdBuffer {
        &self.parts.grant.array
    }

    /// Index lists, if the part's boxes count positions in them instead of indices of the nd-buffer.
    pub(crate) fn lists(&self) -> Option<&Lists> {
        self.parts.grant.lists.as_deref()
    }

    /// Refuses index lists other than those that the writer was made with.
    pub(crate) fn require_lists(&self, lists: Option<&Arc<Lists>>) -> Result<()> {
        match (lists, &self.parts.grant.lists) {
            (None, None) => Ok(()),
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => Ok(()),
            _ => Err(Error::invalid("the index lists are not those of the writer")),
        }
    }

    /// Returns the memory of the part's only box as bytes that the thread can write. They must be exactly the bytes
    /// `range` of the nd-buffer's memory.
    ///
    /// # Errors
    /// `InvalidArgument` when the part has several boxes, gaps, or other bytes.
    pub fn into_bytes(self, range: Range<usize>) -> Result<PartBytes> {
        let own = match self.boxes() {
            [one] if !one.is_empty() && self.lists().is_none() => {
                self.array().layout().box_bytes(&one.start, &one.extent)
            }
            _ => None,
        };
        if range.is_empty() || own.as_ref() == Some(&range) {
            let address = self.array().buffer().address() + range.start;
            return Ok(PartBytes { address, len: range.len(), _part: self });
        }
        Err(Error::invalid(format!("bytes {range:?} are not those of part {}", self.number)))
    }

    /// Refuses a box that does not lie inside one of the part's boxes.
    pub(crate) fn require(&self, start: &[usize], extent: &[usize]) -> Result<()> {
        match self.boxes().iter().any(|one| one.contains(start, extent)) {
            true => Ok(()),
            false => Err(Error::invalid(format!("{start:?} + {extent:?} is not in part {}", self.number))),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.parts.taken[self.number].store(false, Ordering::Release);
        self.parts.grant.leave();
    }
}

/// The memory of one box of an nd-buffer, as bytes that one thread may write.
pub struct PartBytes {
    address: usize,
    len: usize,
    _part: Part,
}

impl Deref for PartBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `into_bytes` checked that these are the bytes of the part. No other code has the part, and it keeps
        // the bytes alive.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

impl DerefMut for PartBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: like `deref`; in addition, `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::dtype::DType;
    use crate::array::layout::Order;
    use crate::device::Device;

    fn one(start: &[usize], extent: &[usize]) -> Vec<ElementBox> {
        vec![ElementBox { start: start.to_vec(), extent: extent.to_vec() }]
    }

    #[test]
    fn boxes_of_one_batch_and_of_living_batches_are_disjoint() {
        let array = NdBuffer::zeroed(Device::Cpu, DType::INT16, &[8, 8], Order::C).unwrap();
        let mut writer = array.writer().unwrap();
        assert!(writer.lend(vec![one(&[0, 0], &[4, 4]), one(&[3, 3], &[2, 2])]).is_err());
        assert!(writer.lend(vec![one(&[0, 0], &[9, 4])]).is_err());
        let first = writer.lend(vec![one(&[0, 0], &[4, 4]), one(&[0, 4], &[4, 4])]).unwrap();
        assert!(writer.lend(vec![one(&[3, 0], &[2, 1])]).is_err());
        let second = writer.lend(vec![one(&[4, 0], &[4, 8])]).unwrap();
        drop(first);
        assert!(writer.lend(vec![one(&[3, 0], &[2, 1])]).is_err(), "the second batch lives");
        drop(second);
        writer.lend(vec![one(&[3, 0], &[2, 1]), one(&[0, 0], &[0, 8])]).unwrap();
    }

    #[test]
    fn sweeps_find_what_pairs_find() {
        let mut state = 11u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % below) as usize
        };
        for round in 0..2000 {
            let ndim = round % 4;
            let boxes: Vec<Vec<ElementBox>> = (0..1 + random(6))
                .map(|_| {
                    let start: Vec<usize> = (0..ndim).map(|_| random(6)).collect();
                    let extent: Vec<usize> = (0..ndim).map(|_| 1 + random(2)).collect();
                    one(&start, &extent)
                })
                .collect();
            let flat: Vec<(usize, &ElementBox)> = boxes.iter().map(|boxes| &boxes[0]).enumerate().collect();
            let mut pairs = flat.iter().flat_map(|one| flat.iter().map(move |other| (one, other)));
            let expected = pairs.any(|(one, other)| one.0 < other.0 && one.1.overlaps(other.1));
            assert_eq!(first_overlap(flat.clone()).is_some(), expected, "{boxes:?}");
        }
    }

    #[test]
    fn a_part_is_one_threads_and_reaches_no_further() {
        let array = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[4, 4], Order::C).unwrap();
        let mut writer = array.writer().unwrap();
        let lent = writer.lend(vec![one(&[1, 0], &[2, 4]), one(&[0, 0], &[1, 2])]).unwrap();
        let part = lent.part(0).unwrap();
        assert!(lent.part(0).is_err() && lent.part(2).is_err());
        assert!(part.require(&[1, 1], &[2, 3]).is_ok() && part.require(&[0, 0], &[2, 2]).is_err());
        part.into_bytes(4..12).unwrap().fill(7);
        assert!(lent.part(0).unwrap().into_bytes(3..11).is_err());
        lent.part(1).unwrap().fill(&[0, 0], &[1, 2], &[9]).unwrap();
        assert!(array.buffer().host_bytes().is_err() && array.reader().is_err() && array.writer().is_err());
        let last = lent.part(0).unwrap();
        drop(writer);
        assert!(array.reader().is_err() && lent.part(1).is_ok(), "a thread has a part");
        drop(last);
        assert!(lent.part(1).is_err(), "the lease has ended");
        assert_eq!(array.buffer().host_bytes().unwrap(), [9, 9, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
    }

    #[test]
    fn arrays_whose_elements_lie_on_each_other_have_no_writer() {
        let array = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[16], Order::C).unwrap();
        let layout = crate::array::layout::Layout::strided(&[4, 4], &[2, 1], 0, 1, 16).unwrap();
        let folded = NdBuffer::from_parts(array.buffer().clone(), DType::UINT8, layout).unwrap();
        assert!(folded.writer().is_err() && folded.reader().is_ok());
    }
}
