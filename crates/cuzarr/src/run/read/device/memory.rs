//! Memory of reads into device memory: what batches reserve before they are fetched, what decoding reserves beside it, and
//! how both come back.
//!
//! A batch reserves its slab, the bytes that come of it and their packed bytes when it is launched, and scratch memory of
//! its decoder only when it decodes, as many bytes as its headers ask for. So that batches on their way never take what the
//! first of them needs to go on, a call keeps scratch memory for one batch (`spare`) from its first launch on. A call that
//! holds something waits for no other call: without scratch memory a batch is decoded in parts within the spare, or by the host.

use std::sync::Arc;

use cuzarr_device::Slab;

use super::{DeviceDestination, InDecoding};
use crate::codec::native::Native;
use crate::error::Result;
use crate::plan::{PLAIN_COPIES, Route};
use crate::run::read::in_flight::DeviceRoute;
use crate::run::schedule::budget::{Cost, Held, Reserved};

/// Scratch memory while a batch decodes.
pub(super) struct Scratch {
    reserved: Reserved,
    is_spare: bool,
}

impl DeviceDestination {
    /// Gives back the memory of batches whose elements are in their place; with `wait`, of at least one.
    pub(super) fn collect(&mut self, wait: bool) -> Result<()> {
        let mut wait = wait;
        while let Some(placing) = self.decoding.front() {
            if std::mem::take(&mut wait) {
                placing.done.synchronize()?;
            } else if !placing.done.is_done()? {
                break;
            }
            if let Some(placing) = self.decoding.pop_front() {
                self.check(placing)?;
            }
        }
        Ok(())
    }

    /// Asks what became of the frames of a batch that is done.
    pub(super) fn check(&mut self, placing: InDecoding) -> Result<()> {
        if let Some(Scratch { reserved, is_spare: true }) = placing.scratch {
            self.spare = Some(reserved);
        }
        let again = placing.flight.route.check()?;
        if again.is_empty() { Ok(()) } else { self.put(again, Vec::new()) }
    }

    /// Memory for a batch, and `scratch_bytes` to spare where the call has none yet; `None` when there is none now.
    pub(super) fn reserve(&mut self, cost: Cost, scratch_bytes: u64, alone: bool) -> Result<Option<Held>> {
        let call = Arc::clone(&self.target.call);
        let is_lent = |placing: &InDecoding| placing.scratch.as_ref().is_some_and(|scratch| scratch.is_spare);
        let with = |spare: u64| Cost { device: cost.device.saturating_add(spare), ..cost };
        loop {
            self.collect(false)?;
            let has_spare = self.spare.is_some() || self.decoding.iter().any(is_lent);
            let missing = if has_spare { 0 } else { scratch_bytes };
            let held = match call.memory.try_take(with(missing), call.limit_bytes) {
                None if self.decoding.is_empty() && alone => {
                    // Others may wait for what this call keeps while it waits for what they keep.
                    self.spare = None;
                    Some((call.memory.take(with(scratch_bytes), call.limit_bytes)?, scratch_bytes))
                }
                held => held.map(|held| (held, missing)),
            };
            if let Some((mut held, spare_bytes)) = held {
                if spare_bytes > 0 {
                    self.spare = Some(held.split_off_device(spare_bytes));
                }
                return Ok(Some(held));
            }
            if self.decoding.is_empty() {
                return Ok(None);
            }
            self.collect(true)?;
        }
    }

    /// What a batch with a slab of so many bytes takes: on the device as much again, and where kernels decode the packed
    /// bytes beside it; on the host what is stored, where it is decoded there (counted as many as packed bytes). Scratch
    /// memory of decoders that begin where the host ends is with it; of those that do everything it is reserved apart.
    pub(super) fn cost(&self, slab_bytes: usize, packed_bytes: usize) -> Cost {
        let (slab, packed) = (slab_bytes as u64, packed_bytes as u64);
        let chunk_bytes = self.target.program.packed_size_bytes().max(1) as u64;
        let decoding = |native: &Native, copies: u64| {
            let between = packed.div_ceil(chunk_bytes).saturating_mul(native.extra_bytes() as u64);
            copies.saturating_mul(packed).saturating_add(between)
        };
        let (decoding, is_kernels) = match &self.route {
            Route::Kernels(native) => (decoding(native, PLAIN_COPIES - 1), true),
            Route::Hybrid(Some((_, native))) => (decoding(native, PLAIN_COPIES - 1 + native.scratch_copies()), false),
            _ => (0, false),
        };
        let stored_as_is = is_kernels || self.target.program.stored_is_packed();
        Cost { host: if stored_as_is { 0 } else { packed }, pinned: slab, device: slab.saturating_add(decoding) }
    }

    /// Memory for a batch, with a slab.
    pub(super) fn acquire(
        &mut self,
        slab_bytes: usize,
        cost: Cost,
        scratch_bytes: u64,
        alone: bool,
    ) -> Result<Option<(Slab, Held)>> {
        while let Some(held) = self.reserve(cost, scratch_bytes, alone)? {
            if let Some(slab) = self.ring.try_acquire(slab_bytes)? {
                return Ok(Some((slab, held)));
            }
            if !self.decoding.is_empty() {
                self.collect(true)?;
            } else if alone {
                return Ok(Some((self.ring.acquire(slab_bytes)?, held)));
            } else {
                break;
            }
        }
        Ok(None)
    }

    /// Scratch memory for the kernels of a batch that came, which is left to the host where there is too little.
    pub(super) fn scratch(&mut self, route: &dyn DeviceRoute) -> Result<Option<Scratch>> {
        let call = Arc::clone(&self.target.call);
        let mut is_whole = true;
        while let bytes @ 1.. = route.scratch_bytes() {
            self.collect(false)?;
            if let Some(reserved) = call.memory.device.try_take(bytes, call.limit_bytes) {
                return Ok(Some(Scratch { reserved, is_spare: false }));
            }
            if let Some(reserved) = self.spare.take_if(|spare| spare.bytes() >= bytes) {
                return Ok(Some(Scratch { reserved, is_spare: true }));
            }
            match &self.spare {
                _ if !self.decoding.is_empty() => self.collect(true)?,
                Some(spare) if is_whole => {
                    is_whole = false;
                    route.lay_out(Some(spare.bytes() as usize))?;
                }
                _ => route.lay_out(None)?,
            }
        }
        Ok(None)
    }
}
