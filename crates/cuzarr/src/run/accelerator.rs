//! The accelerator: a device that decodes and encodes although the elements are in host memory. Each read into host
//! memory asks here whether its chunks are decoded by a device. The costs come from the plan
//! (`crate::plan::placement`). Here it is decided whether the device can be used at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr_device::{Device, PerProcess, is_forked};

use crate::codec::VARIABLE;
use crate::config::Accelerator;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Acceleration, HOST_IS_FASTER, Offload, PLAIN, Plan, ReadPlacement, WritePlacement, WritePlan};
use crate::run::access::Access;
use crate::run::options::Options;
use crate::store::Store;

/// Under [`Accelerator::Auto`], a process that has not used the device yet begins to use it when its calls together
/// would have saved this much time and have moved this many bytes. Starting CUDA takes about 0.3 s.
const START_S: f64 = 0.3;
const START_BYTES: u64 = 64 << 20;

/// Under [`Accelerator::Auto`], the host decodes and encodes fewer bytes than this: so little is not worth the choice.
const LEAST_BYTES: u64 = 512 << 10;
/// A call that reads several arrays may decode all of them by the device if those that its kernels cannot decode have at
/// most this share of the bytes.
const MIXED_SHARE: u64 = 16;

/// What the calls of this process would have gained by a device that it has not used yet.
#[derive(Default)]
struct Missed {
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

static MISSED: PerProcess<Missed> = PerProcess::new();

/// The device that a call may use for elements in host memory, and whether the caller named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) device: Device,
    /// Whether the device does all that its kernels can. Otherwise it does what costs say it does faster.
    pub(crate) is_named: bool,
}

impl Wanted {
    /// The device that these options want for reads into host memory; `None` for the host.
    ///
    /// # Errors
    /// `ConfigInvalid` for `auto` together with `strict`.
    pub(crate) fn of_reads(options: &Options) -> Result<Option<Wanted>> {
        match options.accelerator {
            Accelerator::None => Ok(None),
            Accelerator::Auto if options.strict => {
                let message = "the accelerator 'auto' leaves work to the host, which strict forbids";
                Err(Error::new(ErrorKind::ConfigInvalid, message).with_hint("name a device, such as 'cuda:0'"))
            }
            Accelerator::Auto => Ok(Some(Wanted { device: Device::Cuda(0), is_named: false })),
            Accelerator::On(device) => Ok(Some(Wanted { device, is_named: true })),
        }
    }

    /// The device that these options want for writes from host memory; `None` for the host. Values for an array whose
    /// results are on a device are encoded there.
    ///
    /// # Errors
    /// Those of [`Wanted::of_reads`].
    pub(crate) fn of_writes(options: &Options) -> Result<Option<Wanted>> {
        let own = options.device;
        let by_own = (own != Device::Cpu).then_some(Wanted { device: own, is_named: false });
        Ok(Wanted::of_reads(options)?.or(by_own))
    }

    /// Checks that the device can be used for work that would save `saved_s` seconds, and starts it if that is worth
    /// it. Returns the reason if the host does the work. With `explains`, the work is not done now.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the caller named a device that cannot be used.
    fn started(self, saved_s: f64, size_bytes: u64, explains: bool) -> Result<Result<(), Left>> {
        if is_forked() {
            return Ok(Err(Left::fallback("this process was forked, and children leave the device to their parent")));
        }
        if self.is_named {
            self.device.initialize()?;
            return Ok(Ok(()));
        }
        if saved_s <= 0.0 {
            return Ok(Err(Left::fallback(HOST_IS_FASTER)));
        }
        let (saved_s, size_bytes) = if explains { (0.0, 0) } else { (saved_s, size_bytes) };
        if !self.device.is_initialized() && !MISSED.get().adds_up(saved_s, size_bytes) {
            let reason = "the calls of this process have not been worth the start of the device yet";
            return Ok(Err(Left::fallback(reason)));
        }
        Ok(self.device.initialize().map_err(|error| Left::fallback(error.message())))
    }

    /// Describes for an explanation what the accelerator does, or why the host does the work.
    pub(crate) fn explained(self, left: Option<&Left>) -> Acceleration {
        Acceleration { device: self.device.to_string(), via_host: left.map(|left| left.reason.clone()) }
    }
}

impl Options {
    /// The device for work on `size_bytes` whose elements stay inside the engine, such as a copy: that of the results,
    /// or the accelerator, because nobody sees in which memory the elements are. Under [`Accelerator::Auto`], work on
    /// few bytes is done by the host.
    ///
    /// # Errors
    /// Those of an accelerator that cannot be used, if it was named.
    pub fn working_device(&self, size_bytes: u64) -> Result<Device> {
        if self.device != Device::Cpu || is_forked() {
            return Ok(self.device);
        }
        let Some(wanted) = Wanted::of_reads(self)? else { return Ok(self.device) };
        let least_bytes = match wanted {
            Wanted { is_named: true, .. } => 0,
            Wanted { device, .. } if device.is_initialized() => LEAST_BYTES,
            _ => START_BYTES,
        };
        if size_bytes < least_bytes {
            return Ok(self.device);
        }
        match wanted.device.initialize() {
            Err(error) if wanted.is_named => Err(error.into()),
            started => Ok(if started.is_ok() { wanted.device } else { self.device }),
        }
    }
}

impl Missed {
    /// Adds what one call would have saved. Returns whether all calls together are worth the start of the device.
    fn adds_up(&self, saved_s: f64, size_bytes: u64) -> bool {
        let nanoseconds = (saved_s * 1e9) as u64;
        let saved = self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed) + nanoseconds;
        let bytes = self.bytes.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes;
        saved as f64 >= START_S * 1e9 && bytes >= START_BYTES
    }
}

/// Work that is left to the host although a device is wanted for it.
pub(crate) struct Left {
    /// The reason, shown to users.
    pub(crate) reason: String,
    /// Whether the device could have done something. If not, `strict` does not forbid it.
    is_fallback: bool,
}

impl Left {
    fn fallback(reason: impl Into<String>) -> Left {
        Left { reason: reason.into(), is_fallback: true }
    }

    fn nothing_to_do(reason: impl Into<String>) -> Left {
        Left { reason: reason.into(), is_fallback: false }
    }

    /// Refuses a fall-back under `strict`.
    fn checked(self, wanted: Wanted, options: &Options) -> Result<Left> {
        if !(self.is_fallback && options.strict && wanted.is_named) {
            return Ok(self);
        }
        let Left { reason, .. } = self;
        let device = wanted.device;
        let message =
            format!("the host would work instead of the accelerator {device}, which strict forbids: {reason}");
        let hint = "leave out `strict`, or set the accelerator to 'none'";
        Err(Error::new(ErrorKind::FallbackRefused, message).with_hint(hint))
    }
}

/// A read into host memory as a device would carry it out: the array's codecs, bound to the device, and the placement.
pub(crate) struct Offer {
    pub(crate) access: Arc<Access>,
    pub(crate) placement: ReadPlacement,
    offload: Offload,
    size_bytes: u64,
}

impl Offer {
    /// Returns how the wanted device would decode this read into host memory, or the reason why the host must.
    ///
    /// # Errors
    /// What the codecs report.
    fn new(
        wanted: Wanted,
        access: &Access,
        store: &dyn Store,
        plan: &Plan,
        options: &Options,
    ) -> Result<Result<Offer, Left>> {
        let chunks = plan.chunks();
        match access.source().layout().program.as_deref() {
            None => return Ok(Err(Left::nothing_to_do(VARIABLE))),
            Some(program) if program.stored_is_packed() => return Ok(Err(Left::nothing_to_do(PLAIN))),
            Some(program) => {
                let size_bytes = chunks.saturating_mul(program.packed_size_bytes() as u64);
                if !wanted.is_named && size_bytes < LEAST_BYTES {
                    return Ok(Err(Left::fallback(HOST_IS_FASTER)));
                }
            }
        }
        if access.cached_as(store, options).is_some() {
            return Ok(Err(Left::fallback("the chunk cache keeps the decoded chunks in host memory")));
        }
        let access = access.on(wanted.device)?;
        let program = access.program()?;
        let placement = match access.place_accelerated(store, chunks, options) {
            Ok(placement) => placement,
            Err(reason) => return Ok(Err(Left::fallback(reason))),
        };
        let offload = placement.offload(program, chunks);
        let size_bytes = chunks.saturating_mul(program.packed_size_bytes() as u64);
        Ok(Ok(Offer { access, placement, offload, size_bytes }))
    }
}

/// Decides whether a device decodes the chunks of a read into host memory, and how. `None` if no accelerator is wanted,
/// or the result is on a device. The reason comes with it if the host decodes. With `explains`, nothing is read now.
///
/// # Errors
/// Those of [`Wanted::of_reads`]; `DeviceUnavailable` for a named device; `FallbackRefused` if the host decodes although
/// `strict` forbids it.
pub(crate) fn of_read(
    access: &Access,
    store: &dyn Store,
    plan: &Plan,
    options: &Options,
    explains: bool,
) -> Result<Option<(Wanted, Result<Offer, Left>)>> {
    if access.device() != Device::Cpu {
        return Ok(None);
    }
    let Some(wanted) = Wanted::of_reads(options)? else { return Ok(None) };
    let offer = match Offer::new(wanted, access, store, plan, options)? {
        Ok(offer) => wanted.started(offer.offload.saved_s(), offer.size_bytes, explains)?.map(|()| offer),
        refused => refused,
    };
    let offer = match offer {
        Err(left) => Err(left.checked(wanted, options)?),
        offer => offer,
    };
    Ok(Some((wanted, offer)))
}

/// Decides whether a device decodes the chunks of several reads into host memory, by one call. Returns the device, or
/// `None` if the host decodes. `reads` has the access, store and plan of each array; all results are on one device. With `explains`, nothing is read now.
///
/// # Errors
/// Those of [`of_read`].
pub(crate) fn of_reads<'a>(
    reads: impl Iterator<Item = (&'a Access, &'a dyn Store, &'a Plan)>,
    options: &Options,
    explains: bool,
) -> Result<Option<Device>> {
    let mut reads = reads.peekable();
    if reads.peek().is_none_or(|(access, ..)| access.device() != Device::Cpu) {
        return Ok(None);
    }
    let Some(wanted) = Wanted::of_reads(options)? else { return Ok(None) };
    let (mut all, mut taken_bytes, mut left_bytes) = (Offload::default(), 0, 0);
    for (access, store, plan) in reads {
        match Offer::new(wanted, access, store, plan, options)? {
            Ok(offer) => {
                all = all + offer.offload;
                taken_bytes += offer.size_bytes;
            }
            Err(left) => {
                left.checked(wanted, options)?;
                let chunk_bytes = access.source().layout().packed.size_bytes as u64;
                left_bytes += plan.chunks().saturating_mul(chunk_bytes);
            }
        }
    }
    // Chunks that the host must decode would cross the bus twice.
    let is_mixed = left_bytes > if wanted.is_named { taken_bytes } else { taken_bytes / MIXED_SHARE };
    if taken_bytes == 0 || is_mixed {
        return Ok(None);
    }
    match wanted.started(all.saved_s(), taken_bytes, explains)? {
        Ok(()) => Ok(Some(wanted.device)),
        Err(left) => left.checked(wanted, options).map(|_| None),
    }
}

/// Decides whether a device encodes the chunks of a write from host memory, and how. The rest as for [`of_read`].
///
/// # Errors
/// Those of [`of_read`].
pub(crate) fn of_write(
    access: &Access,
    store: &dyn Store,
    plan: &WritePlan,
    options: &Options,
    explains: bool,
) -> Result<Option<(Wanted, Result<WritePlacement, Left>)>> {
    let Some(wanted) = Wanted::of_writes(options)? else { return Ok(None) };
    if plan.selection.len() == Some(1) {
        return Ok(Some((wanted, Err(Left::nothing_to_do("one element is not worth an upload")))));
    }
    match access.source().layout().program.as_deref() {
        None => return Ok(Some((wanted, Err(Left::nothing_to_do(VARIABLE))))),
        Some(program) if program.stored_is_packed() => return Ok(Some((wanted, Err(Left::nothing_to_do(PLAIN))))),
        _ => {}
    }
    let size_bytes = plan.selection.len().unwrap_or(0).saturating_mul(element_bytes(access));
    if !wanted.is_named && size_bytes < LEAST_BYTES {
        return Ok(Some((wanted, Err(Left::fallback(HOST_IS_FASTER)))));
    }
    let device = (wanted.device, wanted.is_named);
    let placement = match access.place_accelerated_write(store, plan, device, options) {
        Ok((placement, offload)) => wanted.started(offload.saved_s(), size_bytes, explains)?.map(|()| placement),
        Err(reason) => Err(Left::fallback(reason)),
    };
    let placement = match placement {
        Err(left) => Err(left.checked(wanted, options)?),
        placement => placement,
    };
    Ok(Some((wanted, placement)))
}

fn element_bytes(access: &Access) -> u64 {
    access.dtype().map_or(0, |dtype| dtype.size_bytes() as u64)
}

/// Chooses the placement of a write of elements in memory of `device`. An accelerator may encode elements in host
/// memory.
///
/// # Errors
/// Those of [`of_read`].
pub(crate) fn place_write(
    access: &Access,
    store: &dyn Store,
    plan: &WritePlan,
    device: Device,
    options: &Options,
) -> Result<WritePlacement> {
    let by = if device == Device::Cpu { of_write(access, store, plan, options, false)? } else { None };
    let (placement, is_wanted) = match by {
        Some((wanted, Ok(placement))) => (placement, wanted.is_named),
        _ => (access.place_write(store, plan, device, options), true),
    };
    if options.strict && is_wanted {
        placement.refuse_fallen(access.chain())?;
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_until_they_are_worth_the_start() {
        let missed = Missed::default();
        assert!(!missed.adds_up(0.2, 1 << 20) && !missed.adds_up(0.2, 1 << 20), "too few bytes");
        assert!(!missed.adds_up(0.0, 0), "asking adds nothing");
        assert!(missed.adds_up(0.0, 62 << 20));
        let missed = Missed::default();
        assert!(!missed.adds_up(0.1, 1 << 30) && !missed.adds_up(0.1, 1 << 30) && missed.adds_up(0.1, 1));
    }

    #[test]
    fn strict_needs_a_name() {
        let options = Options::default().with_strict(true).with_accelerator(Accelerator::Auto);
        assert_eq!(Wanted::of_reads(&options).unwrap_err().kind(), ErrorKind::ConfigInvalid);
        let named = options.clone().with_accelerator(Accelerator::On(Device::Cuda(1)));
        assert_eq!(Wanted::of_reads(&named).unwrap(), Some(Wanted { device: Device::Cuda(1), is_named: true }));
        let on_device = options.with_accelerator(Accelerator::None).with_device(Device::Cuda(2));
        assert_eq!(Wanted::of_reads(&on_device).unwrap(), None);
        let own = Wanted { device: Device::Cuda(2), is_named: false };
        assert_eq!(Wanted::of_writes(&on_device).unwrap(), Some(own));
    }

    #[test]
    fn work_inside_of_the_engine_goes_where_results_or_options_say() {
        let auto = Options::default().with_accelerator(Accelerator::Auto);
        assert_eq!(Options::default().working_device(u64::MAX).unwrap(), Device::Cpu);
        assert_eq!(auto.working_device(LEAST_BYTES - 1).unwrap(), Device::Cpu, "too few bytes");
        // Where results are on a device, the accelerator has nothing to say, not even that it needs a name.
        let on_device = auto.with_strict(true).with_device(Device::Cuda(5));
        assert_eq!(on_device.working_device(0).unwrap(), Device::Cuda(5));
        assert!(on_device.with_device(Device::Cpu).working_device(0).is_err());
        let missing = Options::default().with_accelerator(Accelerator::On(Device::Cuda(77)));
        assert_eq!(missing.working_device(0).unwrap_err().kind(), ErrorKind::DeviceUnavailable);
    }
}
