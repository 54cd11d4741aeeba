//! Memory of one GPU, given and taken back in the order of streams: a long range of addresses, and pages of memory that are
//! mapped where blocks are in use; large blocks that last have memory of their own (`large.rs`).
//!
//! CUDA's own pools take memory from the system in pieces of 32 MiB, each of which stays while one block in it is in use: of
//! random blocks that filled a pool's limit, they held half as much more. Here pages move: where more memory than is allowed
//! would be taken, pages behind free addresses are mapped behind the block instead. So what the system counts is what is in
//! use, up to parts of pages. The idea is that of PyTorch's expandable segments, with marks of streams instead of a pool for
//! each stream.
//!
//! A block is placed so:
//!
//! ```text
//! of the free ranges that the stream may use at once, the one that lacks fewest pages, and of those the smallest
//! its pages: new ones as long as that is allowed, then those of other ranges that nobody uses any more
//! too few: the stream waits for a range that another stream still uses
//! none: wait until nobody uses any; then as above, and what is missing is taken although it is not allowed
//! ```

mod large;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use large::Large;

use super::backend::{RawEvent, RawStream, Terms};
use crate::error::{Error, ErrorKind, Result};

/// Blocks begin at multiples of this, as those of CUDA's pools do.
const BLOCK_BYTES: usize = 512;

/// One part in so many of the addresses is for blocks of less than a page.
const SMALL_SHARE: usize = 8;

/// A page of memory, as the driver names it.
pub(crate) type Page = u64;

/// What a heap needs of a device. Pages are numbered by their addresses.
pub(crate) trait System {
    /// Takes a page of memory from the system.
    ///
    /// # Errors
    /// `OutOfMemory`
    fn create(&self) -> Result<Page>;
    fn release(&self, page: Page) -> Result<()>;
    /// Puts pages behind addresses from that of page `first` on: all, or none when it fails.
    fn map(&self, first: usize, pages: &[Page]) -> Result<()>;
    fn unmap(&self, range: Range<usize>) -> Result<()>;
    /// Takes so many pages in one piece, and says at which address.
    ///
    /// # Errors
    /// `OutOfMemory`
    fn create_block(&self, pages: usize) -> Result<usize>;
    fn release_block(&self, address: usize, pages: usize) -> Result<()>;
    /// Marks all that was put on `stream`, by `event` if there is one; `None` when it has passed all of that.
    fn mark(&self, stream: RawStream, event: Option<RawEvent>) -> Result<Option<RawEvent>>;
    fn has_passed(&self, event: RawEvent) -> Result<bool>;
    fn synchronize(&self, event: RawEvent) -> Result<()>;
    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()>;
}

/// Where blocks are. Places are bytes from the first address on.
pub(crate) struct Heap {
    base: usize,
    page_bytes: usize,
    /// Where blocks of whole pages begin; before it are those of less than a page.
    whole_pages: usize,
    /// Mapped ones, by number.
    pages: Vec<Option<Page>>,
    mapped: usize,
    /// Sizes of blocks in use, by where they begin.
    used: HashMap<usize, usize>,
    /// Everything else, by where it begins.
    free: BTreeMap<usize, Free>,
    large: Large,
    spare_events: Vec<RawEvent>,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    size_bytes: usize,
    /// What must have passed before other streams use it.
    mark: Option<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    stream: RawStream,
    event: RawEvent,
}

impl Heap {
    /// A heap of so many bytes of addresses from `base` on, whole pages, which takes no memory yet.
    pub(crate) fn new(base: usize, addresses_bytes: usize, page_bytes: usize) -> Heap {
        let small_bytes = addresses_bytes / SMALL_SHARE / page_bytes * page_bytes;
        // A page that stays free of both keeps them from being joined.
        let whole_pages = small_bytes + page_bytes;
        let free = |size_bytes: usize| Free { size_bytes, mark: None };
        Heap {
            base,
            page_bytes,
            whole_pages,
            pages: Vec::new(),
            mapped: 0,
            used: HashMap::new(),
            free: BTreeMap::from([(0, free(small_bytes)), (whole_pages, free(addresses_bytes - whole_pages))]),
            large: Large::default(),
            spare_events: Vec::new(),
        }
    }

    /// Bytes taken from the system.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.held() * self.page_bytes) as u64
    }

    fn held(&self) -> usize {
        self.mapped + self.large.pages
    }

    /// The address of a block for `stream`.
    ///
    /// # Errors
    /// `OutOfMemory`
    pub(crate) fn allocate(
        &mut self,
        system: &dyn System,
        size_bytes: usize,
        stream: RawStream,
        terms: Terms,
    ) -> Result<usize> {
        let Some(size_bytes) = size_bytes.max(1).checked_next_multiple_of(BLOCK_BYTES) else { return Err(full()) };
        let allowed = usize::try_from(terms.allowed_bytes / self.page_bytes as u64).unwrap_or(usize::MAX);
        self.settle(system, false)?;
        let pages = size_bytes.div_ceil(self.page_bytes);
        if terms.lasting && pages >= large::LEAST_PAGES {
            return self.allocate_large(system, pages, stream, allowed);
        }
        // Blocks that begin and end inside of pages would keep more of them from moving than they need.
        let size_bytes = if size_bytes < self.page_bytes { size_bytes } else { pages * self.page_bytes };
        Ok(self.base + self.allocate_among_others(system, size_bytes, stream, allowed)?)
    }

    fn allocate_among_others(
        &mut self,
        system: &dyn System,
        size_bytes: usize,
        stream: RawStream,
        allowed: usize,
    ) -> Result<usize> {
        for waited in [false, true] {
            let at_once = |free: &Free| free.mark.is_none_or(|mark| mark.stream == stream);
            if let Some(at) = self.place(size_bytes, at_once) {
                let range = at..at + size_bytes;
                let missing = self.missing(&range).count();
                let room = allowed.saturating_sub(self.held());
                if waited || missing <= room || missing <= room + self.large.idle() + self.idle(&range).count() {
                    self.fill(system, range, room)?;
                    return self.take(system, at, size_bytes, stream);
                }
            }
            let whole =
                self.place(size_bytes, |_| true).filter(|at| self.missing(&(*at..at + size_bytes)).count() == 0);
            if let Some(at) = whole {
                return self.take(system, at, size_bytes, stream);
            }
            self.settle(system, true)?;
        }
        Err(full())
    }

    /// Takes a block back; other streams use it once `stream` has passed what was put on it.
    ///
    /// # Errors
    /// `DeviceFailed`, also for what is no block; then it is lost.
    pub(crate) fn free(&mut self, system: &dyn System, address: usize, stream: RawStream) -> Result<()> {
        let at = address.wrapping_sub(self.base);
        if !self.used.contains_key(&at) && !self.large.has(address) {
            return Err(Error::new(ErrorKind::DeviceFailed, "memory was given back that the heap never gave"));
        }
        let event = system.mark(stream, self.spare_events.pop())?;
        let mark = event.map(|event| Mark { stream, event });
        match self.used.remove(&at) {
            Some(size_bytes) => {
                self.free.insert(at, Free { size_bytes, mark });
                self.join(at);
            }
            None => self.large.keep(address, mark),
        }
        Ok(())
    }

    /// Gives pages that nobody uses back to the system until it counts no more than `bytes`, as far as that goes.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn shrink_to(&mut self, system: &dyn System, bytes: u64) -> Result<()> {
        if self.held_bytes() <= bytes {
            return Ok(());
        }
        self.settle(system, false)?;
        let surplus = (self.held_bytes() - bytes).div_ceil(self.page_bytes as u64);
        self.release_idle(system, usize::try_from(surplus).unwrap_or(usize::MAX))
    }

    /// Gives so many pages that nobody uses back to the system, or all of them.
    fn release_idle(&mut self, system: &dyn System, surplus: usize) -> Result<()> {
        let surplus = surplus.saturating_sub(self.release_large(system, surplus)?);
        let idle: Vec<usize> = self.idle(&(0..0)).take(surplus).collect();
        give_back(system, &self.unmap(system, &idle)?)
    }

    /// Where memory is mapped: addresses and pages.
    pub(crate) fn mapped(&self) -> Vec<(usize, usize)> {
        let mapped = self.pages.iter().enumerate().filter_map(|(number, page)| page.map(|_| number));
        let runs = runs(&mapped.collect::<Vec<_>>()).into_iter();
        let among_others = runs.map(|run| (self.base + run.start * self.page_bytes, run.len()));
        among_others.chain(self.large.blocks()).collect()
    }

    /// Where a block goes, at one end of a free range that `may` be used.
    fn place(&self, size_bytes: usize, may: impl Fn(&Free) -> bool) -> Option<usize> {
        let is_small = size_bytes < self.page_bytes;
        let area = if is_small { self.free.range(..self.whole_pages) } else { self.free.range(self.whole_pages..) };
        let fitting = area.filter(|(_, free)| free.size_bytes >= size_bytes && may(free));
        let places = fitting.flat_map(|(&at, free)| {
            [at, at + free.size_bytes - size_bytes]
                .map(|at| (self.missing(&(at..at + size_bytes)).count(), free.size_bytes, at))
        });
        places.min().map(|(_, _, at)| at)
    }

    /// Numbers of the pages that bytes of `range` are in.
    fn pages_of(&self, range: &Range<usize>) -> Range<usize> {
        range.start / self.page_bytes..range.end.div_ceil(self.page_bytes)
    }

    /// Pages of `range` that are not mapped.
    fn missing(&self, range: &Range<usize>) -> impl Iterator<Item = usize> + '_ {
        self.pages_of(range).filter(|&number| self.pages.get(number).is_none_or(Option::is_none))
    }

    /// Mapped pages that nobody uses, those of `range` left out.
    fn idle(&self, range: &Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let except = self.pages_of(range);
        let clean = self.free.iter().filter(|(_, free)| free.mark.is_none());
        let inside = clean.flat_map(|(&at, free)| {
            let end = ((at + free.size_bytes) / self.page_bytes).min(self.pages.len());
            at.div_ceil(self.page_bytes)..end
        });
        inside.filter(move |number| !except.contains(number) && self.pages[*number].is_some())
    }

    /// Maps what is missing of `range`: `room` new pages, as many as large blocks give up, idle ones, then new ones.
    fn fill(&mut self, system: &dyn System, range: Range<usize>, room: usize) -> Result<()> {
        let missing: Vec<usize> = self.missing(&range).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let short = missing.len().saturating_sub(room);
        let short = short.saturating_sub(self.release_large(system, short)?);
        let idle: Vec<usize> = self.idle(&range).take(short).collect();
        let mut pages = self.unmap(system, &idle)?;
        while pages.len() < missing.len() {
            match system.create() {
                Ok(page) => pages.push(page),
                Err(error) => return give_back(system, &pages).and(Err(error)),
            }
        }
        self.pages.resize(self.pages.len().max(missing.last().map_or(0, |last| last + 1)), None);
        for run in runs(&missing) {
            let (now, later) = pages.split_at(run.len());
            if let Err(error) = system.map(run.start, now) {
                return give_back(system, &pages).and(Err(error));
            }
            run.zip(now).for_each(|(number, page)| self.pages[number] = Some(*page));
            self.mapped += now.len();
            pages = later.to_vec();
        }
        Ok(())
    }

    fn unmap(&mut self, system: &dyn System, numbers: &[usize]) -> Result<Vec<Page>> {
        let mut pages = Vec::with_capacity(numbers.len());
        for run in runs(numbers) {
            system.unmap(run.clone())?;
            self.mapped -= run.len();
            pages.extend(self.pages[run].iter_mut().filter_map(Option::take));
        }
        Ok(pages)
    }

    /// Makes a block of one end of a free range, which `stream` waits for.
    fn take(&mut self, system: &dyn System, at: usize, size_bytes: usize, stream: RawStream) -> Result<usize> {
        let Some((&start, &Free { size_bytes: whole_bytes, mark })) = self.free.range(..=at).next_back() else {
            return Err(full());
        };
        if let Some(mark) = mark {
            // Its own stream too: what has this handle now may be another one.
            system.wait(stream, mark.event)?;
        }
        self.free.remove(&start);
        let rest = if at == start { at + size_bytes } else { start };
        match (whole_bytes - size_bytes, mark) {
            (0, Some(mark)) => self.spare_events.push(mark.event),
            (0, None) => {}
            (rest_bytes, mark) => drop(self.free.insert(rest, Free { size_bytes: rest_bytes, mark })),
        }
        self.used.insert(at, size_bytes);
        Ok(at)
    }

    /// Forgets marks that streams have passed; with `wait`, all of them, once they are passed.
    fn settle(&mut self, system: &dyn System, wait: bool) -> Result<()> {
        let marked: Vec<(usize, Mark)> = self.free.iter().filter_map(|(&at, free)| Some((at, free.mark?))).collect();
        for (at, mark) in marked {
            if wait {
                system.synchronize(mark.event)?;
            } else if !system.has_passed(mark.event)? {
                continue;
            }
            if let Some(free) = self.free.get_mut(&at) {
                free.mark = None;
            }
            self.spare_events.push(mark.event);
            self.join(at);
        }
        self.settle_large(system, wait)
    }

    /// Makes one of a free range and its neighbours that nobody uses any more.
    fn join(&mut self, at: usize) {
        let before = self.free.range(..at).next_back().map(|(&start, _)| start);
        let start = before.filter(|&start| self.absorb(start)).unwrap_or(at);
        self.absorb(start);
    }

    /// Adds the range behind it to a free range.
    fn absorb(&mut self, at: usize) -> bool {
        let clean = |at: usize| self.free.get(&at).filter(|free| free.mark.is_none()).map(|free| free.size_bytes);
        let Some(size_bytes) = clean(at) else { return false };
        let Some(more_bytes) = clean(at + size_bytes) else { return false };
        self.free.remove(&(at + size_bytes));
        self.free.insert(at, Free { size_bytes: size_bytes + more_bytes, mark: None });
        true
    }
}

fn full() -> Error {
    Error::new(ErrorKind::OutOfMemory, "no addresses are left")
}

fn give_back(system: &dyn System, pages: &[Page]) -> Result<()> {
    pages.iter().try_for_each(|&page| system.release(page))
}

/// Neighbours among rising numbers, together.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
