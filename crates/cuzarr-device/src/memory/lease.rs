//! Leases: who reads and who writes which bytes of host memory.
//!
//! Buffers share memory, and methods write through shared references, as those of NumPy's arrays do. So that safe code never
//! reads bytes while another thread writes them, every access to host memory holds a lease of the bytes that it touches: many
//! may read the same bytes, but only one may write them. A lease that would break this rule is refused at once. Nothing
//! waits, so no two threads can wait for each other.
//!
//! Memory of a GPU needs no leases: the host cannot reach it, and streams order its use.

use std::any::Any;
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::memory::footprint::Footprint;

/// Keeps memory alive: dropping it gives the memory back to the allocator or library that it came from.
pub type Owner = Box<dyn Any + Send + Sync>;

/// A block of memory on one device, and who uses which of its bytes. Every buffer that views it shares it; it ends with the last.
pub(crate) struct Allocation {
    pub(crate) device: Device,
    pub(crate) address: usize,
    pub(crate) size_bytes: usize,
    pub(crate) owner: Owner,
    leases: Leases,
}

impl Allocation {
    pub(crate) fn new(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Allocation {
        Allocation { device, address, size_bytes, owner, leases: Leases::default() }
    }

    /// Whether the memory is neither read nor written now.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        lock(&self.leases.0).live.is_empty()
    }
}

/// The kind of access that a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The leases of one block of memory.
#[derive(Default)]
struct Leases(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    live: Vec<Entry>,
}

struct Entry {
    number: u64,
    access: Access,
    footprints: Vec<Footprint>,
}

impl Entry {
    /// Whether this use allows another one beside it, when one of the two writes.
    fn check(&self, footprints: &[Footprint], access: Access) -> Result<()> {
        for footprint in footprints {
            if let Some(own) = self.footprints.iter().find(|own| own.overlaps(footprint)) {
                let what = if access == Access::Read { "read" } else { "written" };
                let how = if self.access == Access::Read { "read" } else { "written" };
                let (wanted, taken) = (footprint.text(), own.text());
                let message =
                    format!("bytes {wanted} cannot be {what}: bytes {taken} of the same memory are being {how}");
                return Err(Error::invalid(message).with_hint("wait until the other use ends, or work on a copy"));
            }
        }
        Ok(())
    }
}

impl Table {
    fn take(&mut self, footprints: Vec<Footprint>, access: Access) -> Result<u64> {
        for entry in &self.live {
            if access == Access::Write || entry.access == Access::Write {
                entry.check(&footprints, access)?;
            }
        }
        self.next += 1;
        self.live.push(Entry { number: self.next, access, footprints });
        Ok(self.next)
    }

    fn end(&mut self, number: u64) {
        if let Some(at) = self.live.iter().position(|entry| entry.number == number) {
            self.live.swap_remove(at);
        }
    }
}

/// The right to read or write some bytes of a block, until it is dropped.
pub(crate) struct Lease {
    /// Keeps the block alive. `None` where no lease is needed: no bytes, or memory of a GPU.
    held: Option<(Arc<Allocation>, u64)>,
}

impl Lease {
    /// A lease of the bytes at `footprints` of a block. Footprints of one lease may overlap: they are one user's.
    ///
    /// # Errors
    /// `InvalidArgument` when others use the bytes in a way that does not go together.
    pub(crate) fn take(
        block: &Arc<Allocation>,
        footprints: impl IntoIterator<Item = Footprint>,
        access: Access,
    ) -> Result<Lease> {
        if !block.device.is_host_accessible() {
            return Ok(Lease { held: None });
        }
        let footprints: Vec<Footprint> = footprints.into_iter().collect();
        if footprints.is_empty() {
            return Ok(Lease { held: None });
        }
        let number = lock(&block.leases.0).take(footprints, access)?;
        Ok(Lease { held: Some((Arc::clone(block), number)) })
    }

    /// Leases for one copy, whose source and target may overlap: it reads and writes through pointers, one at a time.
    ///
    /// # Errors
    /// Those of [`Lease::take`].
    pub(crate) fn for_copy(
        (src, from): (&Arc<Allocation>, Option<Footprint>),
        (dst, to): (&Arc<Allocation>, Option<Footprint>),
    ) -> Result<(Lease, Lease)> {
        let overlap =
            Arc::ptr_eq(src, dst) && from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from.overlaps(to));
        let written = Lease::take(dst, to, Access::Write)?;
        if !overlap {
            return Ok((Lease::take(src, from, Access::Read)?, written));
        }
        let Some((from, (_, own))) = from.zip(written.held.as_ref()) else {
            return Ok((Lease { held: None }, written));
        };
        // The source may overlap the lease that was just taken, and no other that writes.
        let mut table = lock(&src.leases.0);
        let at = table.live.iter().position(|entry| entry.number == *own);
        let mine = at.map(|at| table.live.swap_remove(at));
        let read = table.take(vec![from], Access::Read);
        table.live.extend(mine);
        drop(table);
        Ok((Lease { held: Some((Arc::clone(src), read?)) }, written))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((block, number)) = &self.held {
            lock(&block.leases.0).end(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::memory::buffer::Buffer;

    #[test]
    fn many_may_read_and_only_one_may_write() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let take = |range: Range<usize>, access| buffer.lease_of(Footprint::range(range), access);
        let readers = (take(0..50, Access::Read).unwrap(), take(20..60, Access::Read).unwrap());
        assert!(take(59..61, Access::Write).is_err());
        let writer = take(60..100, Access::Write).unwrap();
        assert!(take(99..100, Access::Read).is_err() && take(60..61, Access::Write).is_err());
        drop((readers, writer));
        drop(take(0..100, Access::Write).unwrap());
        assert!(buffer.is_free());
    }

    #[test]
    fn a_copy_within_a_block_may_overlap_itself_but_no_other_use() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let copy = |from: Range<usize>, to: Range<usize>| {
            Buffer::lease_for_copy((&buffer, Footprint::range(from)), (&buffer, Footprint::range(to)))
        };
        drop(copy(0..60, 30..90).unwrap());
        let reader = buffer.lease_of(Footprint::range(0..10), Access::Read).unwrap();
        drop(copy(0..60, 30..90).unwrap());
        assert!(copy(30..90, 0..60).is_err());
        drop(reader);
        let writer = buffer.lease_of(Footprint::range(0..10), Access::Write).unwrap();
        assert!(copy(0..60, 30..90).is_err());
        drop(writer);
        assert!(buffer.is_free());
    }
}
