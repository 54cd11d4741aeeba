//! Memory budget of a read into device memory: reservations for fetching a batch and for decoding it, and their return.
//!
//! At its launch, a batch reserves its slab, memory for the slab's bytes on the device, and memory for packed bytes.
//! The scratch memory of its decoder is reserved only when it decodes, because the size depends on the headers. The
//! first batch must always be able to continue. So a call keeps scratch memory for one batch (`spare`) from its first
//! launch on. A call that holds memory never waits for another call. Without scratch memory, it decodes a batch in
//! parts within the spare, or on the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuzarr_device::internal::Slab;

use super::{DeviceDestination, DeviceFlight, GroupState, InDecoding, Outs, Placing, Scratch};
use crate::codec::native::Native;
use crate::error::Result;
use crate::plan::{PLAIN_COPIES, Route};
use crate::run::read::cached::Unchecked;
use crate::run::schedule::budget::{Cost, Held};

impl DeviceDestination {
    /// Frees the memory of batches whose elements have arrived in the results. Passes batches for the host that are
    /// decoded to the threads. With `wait`, it waits until at least one batch is free or passed on.
    pub(super) fn collect(&mut self, wait: bool) -> Result<()> {
        let mut wait = wait;
        for at in 0..self.decoding.len() {
            let Placing::Decoding(decoded, ..) = &self.decoding[at].placing else { continue };
            if std::mem::take(&mut wait) {
                decoded.synchronize()?;
            } else if !decoded.is_done()? {
                break;
            }
            self.bring_to_host(at)?;
        }
        while let Some(batch) = self.decoding.front() {
            let waits = std::mem::take(&mut wait);
            let is_done = match &batch.placing {
                Placing::OnDevice(done) if waits => done.synchronize().map(|()| true)?,
                Placing::OnDevice(done) => done.is_done()?,
                Placing::Decoding(..) => false,
                Placing::OnHost(placed) => {
                    if waits {
                        self.call.help_until(placed);
                    }
                    placed.is_done()
                }
            };
            if !is_done {
                break;
            }
            if let Some(batch) = self.decoding.pop_front() {
                self.check(batch)?;
            }
        }
        Ok(())
    }

    /// Passes the decoded chunks of the batch number `at` to threads, which bring them to results on the host.
    fn bring_to_host(&mut self, at: usize) -> Result<()> {
        let (Outs::Host(outs), Some(batch)) = (&mut self.outs, self.decoding.get_mut(at)) else { return Ok(()) };
        if let Placing::Decoding(_, packed, fills) = &mut batch.placing {
            let (packed, fills) = (std::mem::take(packed), std::mem::take(fills));
            batch.placing = Placing::OnHost(outs.place(&self.results, packed, fills)?);
        }
        Ok(())
    }

    /// Checks whether the kernels, which have ended, could decode all frames of a batch, and reports damaged frames.
    pub(super) fn check(&mut self, batch: InDecoding) -> Result<()> {
        if let Placing::OnHost(placed) = &batch.placing {
            self.call.help_until(placed);
        }
        if let Some(Scratch { reserved, is_spare: true }) = batch.scratch {
            self.spare = Some(reserved);
        }
        let again = batch.flight.route.check()?;
        if !again.is_empty() {
            return self.put(again, BTreeMap::new());
        }
        if let Some(cache) = self.call.cache.get().filter(|_| !self.call.is_cancelled()) {
            let keep = |Unchecked { unit, content, memory }| cache.keep(&unit, content, memory);
            batch.keep.into_iter().for_each(keep);
        }
        Ok(())
    }

    /// Reserves memory for a batch, and `scratch_bytes` of scratch memory that the call keeps, if the call has none
    /// yet. Returns `None` if there is no memory now.
    pub(super) fn reserve(&mut self, cost: Cost, scratch_bytes: u64, alone: bool) -> Result<Option<Held>> {
        let call = Arc::clone(&self.call);
        let is_lent = |batch: &InDecoding| batch.scratch.as_ref().is_some_and(|scratch| scratch.is_spare);
        let with = |spare: u64| Cost { device: cost.device.saturating_add(spare), ..cost };
        loop {
            self.collect(false)?;
            let has_spare = self.spare.is_some() || self.decoding.iter().any(is_lent);
            let missing = if has_spare { 0 } else { scratch_bytes };
            let held = match call.memory.try_take(with(missing), call.limit_bytes) {
                None if self.decoding.is_empty() && alone => {
                    // This call gives up its spare while it waits, because other calls may wait for that memory.
                    self.spare = None;
                    Some((call.memory.take(with(scratch_bytes), call.limit_bytes, &call.cancellation)?, scratch_bytes))
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

    /// Computes how much memory a batch with a slab of `slab_bytes` needs. On the device it needs the same size again,
    /// and the packed bytes if kernels decode. If the host decodes, stored bytes in host memory count as much as packed
    /// bytes. Scratch memory is included for decoders that continue the host's work. Decoders that do all the work
    /// reserve theirs separately.
    pub(super) fn cost(&self, group: usize, slab_bytes: usize, packed_bytes: usize) -> Cost {
        let GroupState { target, route, .. } = &self.groups[group];
        let (slab, packed) = (slab_bytes as u64, packed_bytes as u64);
        let chunk_bytes = target.chunk_bytes.max(1) as u64;
        let decoding = |native: &Native, copies: u64| {
            let between = packed.div_ceil(chunk_bytes).saturating_mul(native.extra_bytes() as u64);
            copies.saturating_mul(packed).saturating_add(between)
        };
        let (decoding, is_kernels) = match route {
            Route::Kernels(native) => (decoding(native, PLAIN_COPIES - 1), true),
            Route::Hybrid(Some((_, native))) => (decoding(native, PLAIN_COPIES - 1 + native.scratch_copies()), false),
            _ => (0, false),
        };
        let stored_as_is = is_kernels || target.stored_is_packed;
        Cost {
            host: if stored_as_is { 0 } else { packed },
            pinned: slab.saturating_add(self.pieces_bytes(group, packed_bytes)),
            device: slab.saturating_add(decoding),
        }
    }

    /// Size of the pinned memory in which decoded chunks of a batch come back to results on the host; 0 for results on
    /// the device.
    pub(super) fn pieces_bytes(&self, group: usize, packed_bytes: usize) -> u64 {
        match &self.outs {
            Outs::Host(outs) => outs.pinned_bytes(packed_bytes, self.groups[group].target.chunk_bytes) as u64,
            _ => 0,
        }
    }

    /// Reserves memory for a batch, and takes a slab of pinned host memory, which the batch's bytes pass through.
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

    /// Reserves scratch memory for the kernels that decode a fetched batch. If there is too little, the host decodes
    /// the batch.
    pub(super) fn scratch(&mut self, flight: &DeviceFlight) -> Result<Option<Scratch>> {
        let route = &flight.route;
        let call = Arc::clone(&self.call);
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
                    route.lay_out(&flight.batch, Some(spare.bytes() as usize))?;
                }
                _ => route.lay_out(&flight.batch, None)?,
            }
        }
        Ok(None)
    }
}
