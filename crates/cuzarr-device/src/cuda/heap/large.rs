//! Large blocks that last, as results do: each has memory of its own in one piece, which is kept for the next one of its size.
//!
//! Mapping pages of 2 MiB one by one takes 20 us a MiB, one piece of 256 MiB 2.5 (an H200): a result that is read at 50 GB/s
//! comes at 20 us a MiB, too.

use std::collections::HashMap;

use super::{Heap, Mark, System};
use crate::cuda::backend::RawStream;
use crate::error::Result;

/// A block of so many pages is large.
pub(super) const LEAST_PAGES: usize = 8;

#[derive(Default)]
pub(super) struct Large {
    /// Pages of all of them.
    pub(super) pages: usize,
    /// Pages of those in use, by their addresses.
    used: HashMap<usize, usize>,
    /// Given back, oldest first.
    kept: Vec<Kept>,
}

struct Kept {
    address: usize,
    pages: usize,
    mark: Option<Mark>,
}

impl Large {
    pub(super) fn has(&self, address: usize) -> bool {
        self.used.contains_key(&address)
    }

    /// Takes a block back, which others may use behind the mark.
    pub(super) fn keep(&mut self, address: usize, mark: Option<Mark>) {
        if let Some(pages) = self.used.remove(&address) {
            self.kept.push(Kept { address, pages, mark });
        }
    }

    /// Pages that nobody uses any more.
    pub(super) fn idle(&self) -> usize {
        self.kept.iter().filter(|kept| kept.mark.is_none()).map(|kept| kept.pages).sum()
    }

    /// Addresses and pages of all blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let used = self.used.iter().map(|(&address, &pages)| (address, pages));
        used.chain(self.kept.iter().map(|kept| (kept.address, kept.pages)))
    }

    /// A block that was given back, with the mark that must have passed.
    fn again(&mut self, pages: usize, may: impl Fn(&Kept) -> bool) -> Option<(usize, Option<Mark>)> {
        let at = self.kept.iter().position(|kept| kept.pages == pages && may(kept))?;
        let Kept { address, mark, .. } = self.kept.remove(at);
        self.used.insert(address, pages);
        Some((address, mark))
    }
}

impl Heap {
    /// As the heap's other blocks: one that nobody uses any more, else a new one where that is allowed or others give up as
    /// much, else one that the stream waits for.
    pub(super) fn allocate_large(
        &mut self,
        system: &dyn System,
        pages: usize,
        stream: RawStream,
        allowed: usize,
    ) -> Result<usize> {
        if let Some(address) = self.large_within(system, pages, stream, allowed)? {
            return Ok(address);
        }
        self.settle(system, true)?;
        if let Some((address, _)) = self.large.again(pages, |_| true) {
            return Ok(address);
        }
        self.create_large(system, pages, allowed)
    }

    fn large_within(
        &mut self,
        system: &dyn System,
        pages: usize,
        stream: RawStream,
        allowed: usize,
    ) -> Result<Option<usize>> {
        if let Some((address, _)) = self.large.again(pages, |kept| kept.mark.is_none()) {
            return Ok(Some(address));
        }
        let idle = self.large.idle() + self.idle(&(0..0)).count();
        if self.held().saturating_add(pages) <= allowed.saturating_add(idle) {
            return self.create_large(system, pages, allowed).map(Some);
        }
        let Some((address, mark)) = self.large.again(pages, |_| true) else { return Ok(None) };
        if let Some(mark) = mark {
            system.wait(stream, mark.event)?;
            self.spare_events.push(mark.event);
        }
        Ok(Some(address))
    }

    fn create_large(&mut self, system: &dyn System, pages: usize, allowed: usize) -> Result<usize> {
        self.release_idle(system, self.held().saturating_add(pages).saturating_sub(allowed))?;
        let address = system.create_block(pages)?;
        self.large.pages += pages;
        self.large.used.insert(address, pages);
        Ok(address)
    }

    /// Gives blocks that nobody uses back to the system until these are so many pages, and says how many they were.
    pub(super) fn release_large(&mut self, system: &dyn System, surplus: usize) -> Result<usize> {
        let mut released = 0;
        while released < surplus {
            let Some(at) = self.large.kept.iter().position(|kept| kept.mark.is_none()) else { break };
            let Kept { address, pages, .. } = self.large.kept.remove(at);
            self.large.pages -= pages;
            system.release_block(address, pages)?;
            released += pages;
        }
        Ok(released)
    }

    /// As [`Heap::settle`], for large blocks.
    pub(super) fn settle_large(&mut self, system: &dyn System, wait: bool) -> Result<()> {
        for kept in &mut self.large.kept {
            let Some(mark) = kept.mark else { continue };
            if wait {
                system.synchronize(mark.event)?;
            } else if !system.has_passed(mark.event)? {
                continue;
            }
            kept.mark = None;
            self.spare_events.push(mark.event);
        }
        Ok(())
    }
}
