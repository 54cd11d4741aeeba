//! The heap against a model of a device whose streams pass their marks when a test lets them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::*;

const PAGE_BYTES: usize = 4096;
const STREAMS: usize = 3;
const BASE: usize = 1 << 20;
/// Where large blocks are.
const APART: usize = 1 << 40;

#[derive(Default)]
struct Device {
    created: usize,
    /// Pages that may be taken; none is no limit.
    most: Option<usize>,
    live: HashSet<Page>,
    mapped: HashMap<usize, Page>,
    /// Pages of large blocks, by their addresses.
    blocks: HashMap<usize, usize>,
    /// For each stream, what was put on it and how much of that it has passed.
    put: [usize; STREAMS],
    passed: [usize; STREAMS],
    events: Vec<(RawStream, usize)>,
    waits: Vec<(RawStream, (RawStream, usize))>,
    syncs: usize,
}

impl Device {
    fn held(&self) -> usize {
        self.live.len() + self.blocks.values().sum::<usize>()
    }
}

#[derive(Default)]
struct Model(RefCell<Device>);

impl System for Model {
    fn create(&self) -> Result<Page> {
        let mut device = self.0.borrow_mut();
        if device.most.is_some_and(|most| device.held() >= most) {
            return Err(Error::new(ErrorKind::OutOfMemory, "full"));
        }
        device.created += 1;
        let page = device.created as Page;
        device.live.insert(page);
        Ok(page)
    }

    fn release(&self, page: Page) -> Result<()> {
        let mut device = self.0.borrow_mut();
        assert!(!device.mapped.values().any(|&other| other == page), "released while mapped");
        assert!(device.live.remove(&page), "released twice");
        Ok(())
    }

    fn map(&self, first: usize, pages: &[Page]) -> Result<()> {
        let mut device = self.0.borrow_mut();
        for (number, &page) in (first..).zip(pages) {
            assert!(device.live.contains(&page) && !device.mapped.values().any(|&other| other == page));
            assert!(device.mapped.insert(number, page).is_none(), "mapped over another page");
        }
        Ok(())
    }

    fn unmap(&self, range: Range<usize>) -> Result<()> {
        let mut device = self.0.borrow_mut();
        range.for_each(|number| assert!(device.mapped.remove(&number).is_some(), "nothing was mapped"));
        Ok(())
    }

    fn create_block(&self, pages: usize) -> Result<usize> {
        let mut device = self.0.borrow_mut();
        if device.most.is_some_and(|most| device.held() + pages > most) {
            return Err(Error::new(ErrorKind::OutOfMemory, "full"));
        }
        device.created += pages;
        let address = APART + device.created * (1 << 20);
        device.blocks.insert(address, pages);
        Ok(address)
    }

    fn release_block(&self, address: usize, pages: usize) -> Result<()> {
        assert_eq!(self.0.borrow_mut().blocks.remove(&address), Some(pages));
        Ok(())
    }

    fn mark(&self, stream: RawStream, event: Option<RawEvent>) -> Result<Option<RawEvent>> {
        let mut device = self.0.borrow_mut();
        device.put[stream] += 1;
        let mark = (stream, device.put[stream]);
        let event = event.unwrap_or(device.events.len());
        if event == device.events.len() {
            device.events.push(mark);
        }
        device.events[event] = mark;
        Ok(Some(event))
    }

    fn has_passed(&self, event: RawEvent) -> Result<bool> {
        let device = self.0.borrow();
        let (stream, number) = device.events[event];
        Ok(device.passed[stream] >= number)
    }

    fn synchronize(&self, event: RawEvent) -> Result<()> {
        let mut device = self.0.borrow_mut();
        device.syncs += 1;
        let (stream, number) = device.events[event];
        device.passed[stream] = device.passed[stream].max(number);
        Ok(())
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let mut device = self.0.borrow_mut();
        let mark = device.events[event];
        device.waits.push((stream, mark));
        Ok(())
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end
    }
}

/// What the test knows: blocks in use, and what was given back and by which mark.
#[derive(Default)]
struct Story {
    model: Model,
    used: Vec<Range<usize>>,
    given_back: Vec<(Range<usize>, (RawStream, usize))>,
}

impl Story {
    fn allocate(&mut self, heap: &mut Heap, size_bytes: usize, stream: RawStream, allowed_bytes: u64) -> Result<()> {
        self.take(heap, size_bytes, stream, Terms { allowed_bytes, lasting: false })
    }

    fn take(&mut self, heap: &mut Heap, size_bytes: usize, stream: RawStream, terms: Terms) -> Result<()> {
        self.model.0.borrow_mut().waits.clear();
        let at = heap.allocate(&self.model, size_bytes, stream, terms)?;
        let block = at..at + size_bytes;
        let device = self.model.0.borrow();
        let overlaps = |other: &Range<usize>| block.start < other.end && other.start < block.end;
        assert!(!self.used.iter().any(overlaps), "two blocks at one place");
        match device.blocks.get(&at) {
            Some(pages) => assert!(terms.lasting && size_bytes <= pages * PAGE_BYTES),
            None => {
                assert!(pages_of(&block).all(|number| device.mapped.contains_key(&number)), "memory behind every byte")
            }
        }
        for (_, mark) in self.given_back.iter().filter(|(range, _)| overlaps(range)) {
            let passed = device.passed[mark.0] >= mark.1;
            let waited = device.waits.iter().any(|(by, other)| *by == stream && other.0 == mark.0 && other.1 >= mark.1);
            assert!(passed || waited, "used before {mark:?} had passed");
        }
        self.given_back.retain(|(range, _)| !overlaps(range));
        self.used.push(block);
        Ok(())
    }

    fn free(&mut self, heap: &mut Heap, number: usize, stream: RawStream) {
        let block = self.used.swap_remove(number);
        heap.free(&self.model, block.start, stream).unwrap();
        let mark = (stream, self.model.0.borrow().put[stream]);
        self.given_back.push((block, mark));
    }

    /// Pages that blocks in use are in.
    fn touched(&self) -> usize {
        self.used.iter().flat_map(pages_of).collect::<HashSet<_>>().len()
    }
}

/// Numbers of pages, which need not be the heap's for large blocks.
fn pages_of(block: &Range<usize>) -> Range<usize> {
    (block.start - BASE) / PAGE_BYTES..(block.end - BASE).div_ceil(PAGE_BYTES)
}

#[test]
fn blocks_never_meet_and_no_more_is_held_than_is_in_use_or_allowed() {
    for seed in 0..40 {
        let (mut dice, mut story) = (Dice(seed), Story::default());
        let mut heap = Heap::new(BASE, 4096 * PAGE_BYTES, PAGE_BYTES);
        for _ in 0..400 {
            let stream = dice.below(STREAMS);
            let allowed = dice.below(3) * 20 * PAGE_BYTES;
            match dice.below(4) {
                0 | 1 => {
                    let size_bytes = [1 + dice.below(600), 1 + dice.below(9 * PAGE_BYTES)][dice.below(2)];
                    let size_bytes = if dice.below(5) == 0 { (8 + dice.below(3)) * PAGE_BYTES } else { size_bytes };
                    let terms = Terms { allowed_bytes: allowed as u64, lasting: dice.below(2) == 0 };
                    let before = heap.held();
                    story.take(&mut heap, size_bytes, stream, terms).unwrap();
                    let bound = before.max(allowed / PAGE_BYTES).max(story.touched());
                    assert!(heap.held() <= bound, "{} pages held, {bound} would do", heap.held());
                }
                2 if !story.used.is_empty() => {
                    let number = dice.below(story.used.len());
                    story.free(&mut heap, number, stream);
                }
                _ => {
                    let mut device = story.model.0.borrow_mut();
                    let ahead = device.put[stream] - device.passed[stream];
                    device.passed[stream] += dice.below(ahead + 1);
                }
            }
            let device = story.model.0.borrow();
            assert_eq!((heap.mapped, heap.held()), (device.mapped.len(), device.held()));
        }
        (0..story.used.len()).rev().for_each(|number| story.free(&mut heap, number, 0));
        heap.settle(&story.model, true).unwrap();
        heap.shrink_to(&story.model, 0).unwrap();
        assert_eq!((heap.held_bytes(), story.model.0.borrow().held(), heap.free.len()), (0, 0, 2));
    }
}

#[test]
fn other_streams_grow_the_heap_while_that_is_allowed_and_wait_when_it_is_not() {
    let (mut story, size_bytes) = (Story::default(), 4 * PAGE_BYTES);
    let mut heap = Heap::new(BASE, 64 * PAGE_BYTES, PAGE_BYTES);
    let allowed = 2 * size_bytes as u64;
    story.allocate(&mut heap, size_bytes, 0, allowed).unwrap();
    story.free(&mut heap, 0, 0);
    story.allocate(&mut heap, size_bytes, 1, allowed).unwrap();
    assert_eq!((heap.mapped, story.model.0.borrow().waits.len()), (8, 0));
    story.allocate(&mut heap, size_bytes, 1, allowed).unwrap();
    assert_eq!((heap.mapped, story.model.0.borrow().waits.len()), (8, 1));
    assert_eq!(story.model.0.borrow().syncs, 0);
}

#[test]
fn pages_move_to_where_a_large_block_fits() {
    let mut story = Story::default();
    let mut heap = Heap::new(BASE, 64 * PAGE_BYTES, PAGE_BYTES);
    let allowed = 8 * PAGE_BYTES as u64;
    for _ in 0..8 {
        story.allocate(&mut heap, PAGE_BYTES, 0, allowed).unwrap();
    }
    for number in [6, 4, 2, 0] {
        story.free(&mut heap, number, 0);
    }
    story.allocate(&mut heap, 4 * PAGE_BYTES, 1, allowed).unwrap();
    assert_eq!((heap.mapped, story.model.0.borrow().created), (8, 8));
}

#[test]
fn large_blocks_that_last_are_kept_for_the_next_of_their_size_as_long_as_that_is_allowed() {
    let mut story = Story::default();
    let mut heap = Heap::new(BASE, 64 * PAGE_BYTES, PAGE_BYTES);
    let terms = Terms { allowed_bytes: 20 * PAGE_BYTES as u64, lasting: true };
    for pages in [9, 9, 11, 10] {
        story.take(&mut heap, pages * PAGE_BYTES, 1, terms).unwrap();
        story.free(&mut heap, 0, 1);
        let put = story.model.0.borrow().put[1];
        story.model.0.borrow_mut().passed[1] = put;
    }
    // 9 pages were taken once, and given up for the 10.
    assert_eq!((story.model.0.borrow().created, heap.held()), (9 + 11 + 10, 10));
    story.allocate(&mut heap, 12 * PAGE_BYTES, 0, 20 * PAGE_BYTES as u64).unwrap();
    assert_eq!(heap.held(), 12);
}

#[test]
fn a_full_device_loses_nothing() {
    let mut story = Story::default();
    let mut heap = Heap::new(BASE, 64 * PAGE_BYTES, PAGE_BYTES);
    story.model.0.borrow_mut().most = Some(5);
    story.allocate(&mut heap, 3 * PAGE_BYTES, 0, u64::MAX).unwrap();
    let error = story.allocate(&mut heap, 3 * PAGE_BYTES, 0, u64::MAX).unwrap_err();
    assert_eq!((error.kind(), heap.mapped, story.model.0.borrow().live.len()), (ErrorKind::OutOfMemory, 3, 3));
    story.allocate(&mut heap, 2 * PAGE_BYTES, 0, u64::MAX).unwrap();
    assert!(heap.free(&story.model, BASE + 512, 0).is_err(), "not a block");
    assert_eq!(story.allocate(&mut heap, usize::MAX, 0, 0).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(story.allocate(&mut heap, 65 * PAGE_BYTES, 0, 0).unwrap_err().kind(), ErrorKind::OutOfMemory);
}
