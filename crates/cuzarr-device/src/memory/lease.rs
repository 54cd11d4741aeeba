//! Leases: records of which bytes of host memory are being read or written.
//!
//! Buffers share memory, and methods write through shared references, as with NumPy arrays. Still, safe code must never
//! read bytes while another thread writes them. So every access to host memory holds a lease of the bytes that it
//! touches: many may read a byte, or one may write it. A conflicting lease is refused immediately. Nothing waits, so
//! there are no deadlocks.
//!
//! Another library's memory may be imported several times, whole or in overlapping views. So all leases of such memory
//! are in one table of the process, by address.
//!
//! Memory of a GPU needs no leases: the host cannot reach it, and streams order its use.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::memory::footprint::Footprint;
use crate::process::PerProcess;

/// A value that keeps memory alive: the memory may be freed once the value is dropped. Dropping it gives the memory
/// back to its allocator or library.
pub type Owner = Box<dyn Any + Send + Sync>;

/// A block of memory on one device, and the leases that say which of its bytes are being read or written. All buffers
/// that view the block share it; the last one drops it.
pub(crate) struct Allocation {
    pub(crate) device: Device,
    pub(crate) address: usize,
    pub(crate) size_bytes: usize,
    pub(crate) owner: Owner,
    leases: Leases,
}

impl Allocation {
    /// Makes the record of a memory block that shares no byte with other blocks.
    pub(crate) fn new(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Allocation {
        Allocation { device, address, size_bytes, owner, leases: Leases::OfBlock(Mutex::default()) }
    }

    /// Makes the record of a memory block that belongs to another library. Other blocks may share its bytes.
    pub(crate) fn foreign(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Allocation {
        Allocation { device, address, size_bytes, owner, leases: Leases::OfProcess }
    }

    /// Locks the table that lists the current leases on the block's bytes.
    fn table(&self) -> MutexGuard<'_, Table> {
        match &self.leases {
            Leases::OfBlock(table) => lock(table),
            Leases::OfProcess => lock(FOREIGN.get()),
        }
    }

    /// The block's first byte, as its table of leases counts bytes: 0, or the address for memory of other libraries.
    fn base(&self) -> usize {
        match &self.leases {
            Leases::OfBlock(_) => 0,
            Leases::OfProcess => self.address,
        }
    }

    /// Whether two memory blocks may share bytes: they are the same block, or both belong to other libraries.
    fn shares_table_with(&self, other: &Allocation) -> bool {
        let is_foreign = |block: &Allocation| matches!(block.leases, Leases::OfProcess);
        std::ptr::eq(self, other) || (is_foreign(self) && is_foreign(other))
    }

    /// Whether no lease says that the memory block is being read or written at the moment.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.table().live.is_empty()
    }
}

/// The kind of access to memory that a lease allows: reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Where the record is kept of which bytes of a memory block are being read or written.
enum Leases {
    /// The record is kept in a table of leases for this memory block alone. Footprints are offsets in the block.
    OfBlock(Mutex<Table>),
    /// The record is kept in [`FOREIGN`], the process's one table for memory of other libraries. Footprints are
    /// addresses.
    OfProcess,
}

/// The leases on memory that belongs to other libraries. A forked child begins with an empty table: its parent's
/// threads do not exist there.
static FOREIGN: PerProcess<Mutex<Table>> = PerProcess::new();

/// The number by which lease tables will identify the next lease. Unique in a process; a forked child continues its
/// parent's numbers.
static NEXT: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Table {
    live: Vec<LeaseEntry>,
}

struct LeaseEntry {
    number: u64,
    access: Access,
    footprints: Vec<Footprint>,
}

impl LeaseEntry {
    /// Refuses a new access to bytes that this lease also covers. Called if one of the two writes.
    fn check(&self, footprints: &[Footprint], access: Access, base: usize) -> Result<()> {
        for footprint in footprints {
            if let Some(own) = self.footprints.iter().find(|own| own.overlaps(footprint)) {
                let what = if access == Access::Read { "read" } else { "written" };
                let how = if self.access == Access::Read { "read" } else { "written" };
                let (wanted, taken) = (footprint.text(base), own.text(base));
                let message =
                    format!("bytes {wanted} cannot be {what}: bytes {taken} of the same memory are being {how}");
                return Err(Error::invalid(message).with_hint("wait until the other use ends, or work on a copy"));
            }
        }
        Ok(())
    }
}

impl Table {
    /// Adds a lease of the bytes `footprints` to this memory's table of leases, unless it conflicts with another lease.
    /// Error messages count bytes from `base`.
    fn take(&mut self, footprints: Vec<Footprint>, access: Access, base: usize) -> Result<u64> {
        for entry in &self.live {
            if access == Access::Write || entry.access == Access::Write {
                entry.check(&footprints, access, base)?;
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.live.push(LeaseEntry { number, access, footprints });
        Ok(number)
    }

    fn end(&mut self, number: u64) {
        if let Some(at) = self.live.iter().position(|entry| entry.number == number) {
            self.live.swap_remove(at);
        }
    }
}

/// A reservation of bytes of a memory block for reading or writing; other accesses that conflict are refused meanwhile.
pub(crate) struct Lease {
    /// The leased block, which is kept alive, and the number of the lease in the block's table. `None` if no lease is
    /// needed: for no bytes, and for GPU memory.
    held: Option<(Arc<Allocation>, u64)>,
}

impl Lease {
    /// Reserves the bytes `footprints` of a memory block for reading or writing, until the lease is dropped. Footprints
    /// of one lease may overlap, since they have one user.
    ///
    /// # Errors
    /// `InvalidArgument` when another use of the bytes conflicts.
    pub(crate) fn take(
        block: &Arc<Allocation>,
        footprints: impl IntoIterator<Item = Footprint>,
        access: Access,
    ) -> Result<Lease> {
        if !block.device.is_host_accessible() {
            return Ok(Lease { held: None });
        }
        let base = block.base();
        let footprints: Vec<Footprint> = footprints.into_iter().map(|footprint| footprint.moved_by(base)).collect();
        if footprints.is_empty() {
            return Ok(Lease { held: None });
        }
        let number = block.table().take(footprints, access, base)?;
        Ok(Lease { held: Some((Arc::clone(block), number)) })
    }

    /// Reserves, for one copy, the bytes that it reads in `src` and the bytes that it writes in `dst`. Source and
    /// target may overlap, since the copy reads and writes through pointers.
    ///
    /// # Errors
    /// Those of [`Lease::take`].
    pub(crate) fn for_copy(
        src: &Arc<Allocation>,
        from: Option<Footprint>,
        dst: &Arc<Allocation>,
        to: Option<Footprint>,
    ) -> Result<(Lease, Lease)> {
        let own = |footprint: &Option<Footprint>, block: &Allocation| Some(footprint.clone()?.moved_by(block.base()));
        let overlap = src.shares_table_with(dst)
            && own(&from, src).zip(own(&to, dst)).is_some_and(|(from, to)| from.overlaps(&to));
        let written = Lease::take(dst, to, Access::Write)?;
        if !overlap {
            return Ok((Lease::take(src, from, Access::Read)?, written));
        }
        let Some((from, (_, own))) = from.zip(written.held.as_ref()) else {
            return Ok((Lease { held: None }, written));
        };
        // The source may overlap the lease that was just taken, but no other lease for writing.
        let mut table = src.table();
        let at = table.live.iter().position(|entry| entry.number == *own);
        let mine = at.map(|at| table.live.swap_remove(at));
        let read = table.take(vec![from.moved_by(src.base())], Access::Read, src.base());
        table.live.extend(mine);
        drop(table);
        Ok((Lease { held: Some((Arc::clone(src), read?)) }, written))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((block, number)) = &self.held {
            block.table().end(*number);
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
    fn blocks_of_one_memory_of_another_library_lease_it_together() {
        let memory = [0u8; 100];
        let block = |range: Range<usize>| {
            // SAFETY: the array outlives the blocks, and nothing is read or written through them.
            unsafe { Buffer::foreign(Device::Cpu, memory.as_ptr() as usize + range.start, range.len(), Box::new(())) }
        };
        let (whole, part, other) = (block(0..100), block(40..60), block(60..100));
        let writer = whole.lease_of(Footprint::range(50..60), Access::Write).unwrap();
        assert!(part.lease(Access::Read).is_err() && block(50..51).lease(Access::Write).is_err());
        let error = part.lease(Access::Write).err().unwrap();
        assert_eq!(error.message(), "bytes 0..20 cannot be written: bytes 10..20 of the same memory are being written");
        drop((part.lease_of(Footprint::range(0..10), Access::Write).unwrap(), other.lease(Access::Write).unwrap()));
        drop(writer);
        let (from, to) = (Footprint::range(0..60), Footprint::range(0..20));
        drop(Buffer::lease_for_copy(&whole, from, &part, to).unwrap());
        drop(whole.lease(Access::Write).unwrap());
    }

    #[test]
    fn a_copy_within_a_block_may_overlap_itself_but_no_other_use() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let copy = |from: Range<usize>, to: Range<usize>| {
            Buffer::lease_for_copy(&buffer, Footprint::range(from), &buffer, Footprint::range(to))
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
