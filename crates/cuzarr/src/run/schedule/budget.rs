//! The budget of bytes in flight for one device, shared by all calls. Host memory, pinned memory and device memory are
//! each held below the limit of each call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cancellation::{CancellationToken, POLL_INTERVAL};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::raise_limit;

/// Counts the bytes of host, pinned and device memory that all calls have in flight for one device. Clones share the
/// counters.
#[derive(Clone, Default)]
pub struct Memory {
    pub(crate) host: Bytes,
    pub(crate) pinned: Bytes,
    pub(crate) device: Bytes,
}

/// How many bytes of host, pinned and device memory a batch of a read, or a stored object of a write, needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) host: u64,
    pub(crate) pinned: u64,
    pub(crate) device: u64,
}

/// Counts the bytes in flight of one kind of memory: host, pinned or device.
#[derive(Clone, Default)]
pub(crate) struct Bytes(Arc<Counter>);

#[derive(Default)]
struct Counter {
    state: Mutex<State>,
    returned: Condvar,
    /// A function that frees memory which no call needs now. Returns whether there was any.
    spare: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

#[derive(Default)]
struct State {
    used_bytes: u64,
    /// Number of calls that wait until other calls return reserved bytes. If it is 0, the system call that wakes them
    /// is skipped.
    waiting: usize,
}

/// A reservation of bytes of one kind of memory. Dropping it returns the bytes.
pub(crate) struct Reserved {
    memory: Bytes,
    bytes: u64,
}

/// A reservation of host, pinned and device memory together, by size in bytes. Dropping it returns the bytes.
pub(crate) struct Held {
    device: Reserved,
    _others: [Reserved; 2],
}

impl Memory {
    /// Number of bytes in flight now for the device, in host, pinned and device memory together.
    pub fn used_bytes(&self) -> u64 {
        self.host.used_bytes() + self.pinned.used_bytes() + self.device.used_bytes()
    }

    /// Number of bytes in flight now in the device's memory.
    pub fn device_bytes(&self) -> u64 {
        self.device.used_bytes()
    }

    /// Reserves host, pinned and device memory for `cost`; `None` if one of the three would exceed `limit_bytes`.
    pub(crate) fn try_take(&self, cost: Cost, limit_bytes: u64) -> Option<Held> {
        let pinned = self.pinned.try_take(cost.pinned, limit_bytes)?;
        let device = self.device.try_take(cost.device, limit_bytes)?;
        let host = self.host.try_take(cost.host, limit_bytes)?;
        Some(Held { device, _others: [pinned, host] })
    }

    /// Like [`Bytes::take`], for host, pinned and device memory together. All calls reserve the kinds in the same
    /// order, so no two calls wait for each other.
    pub(crate) fn take(&self, cost: Cost, limit_bytes: u64, cancellation: &CancellationToken) -> Result<Held> {
        let most = cost.pinned.max(cost.device).max(cost.host);
        if most > limit_bytes {
            return Err(exceeded(most, limit_bytes));
        }
        let pinned = self.pinned.take(cost.pinned, limit_bytes, cancellation)?;
        let device = self.device.take(cost.device, limit_bytes, cancellation)?;
        let host = self.host.take(cost.host, limit_bytes, cancellation)?;
        Ok(Held { device, _others: [pinned, host] })
    }
}

/// The error for a reservation that exceeds the limit even when no other call runs.
pub(crate) fn exceeded(bytes: u64, limit_bytes: u64) -> Error {
    let message = format!("work on one chunk takes {bytes} bytes at once, the memory limit is {limit_bytes}");
    let hint = format!("{}, or store smaller chunks", raise_limit(bytes, limit_bytes));
    Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint)
}

impl Bytes {
    /// Number of bytes in flight now in this kind of memory.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes
    }

    /// Sets the function that frees unused memory when there is too little. Only the first function is kept.
    pub(crate) fn set_spare(&self, spare: impl Fn() -> bool + Send + Sync + 'static) {
        // A cache is made once for each device.
        let _ = self.0.spare.set(Box::new(spare));
    }

    /// Frees memory that no call needs now, such as unused entries of the chunk cache. Returns whether there was any.
    /// The caller does not hold the lock.
    fn make_room(&self) -> bool {
        self.0.spare.get().is_some_and(|spare| spare())
    }

    /// Reserves `bytes` if at most `limit_bytes` are then in flight; else returns `None`.
    pub(crate) fn try_take(&self, bytes: u64, limit_bytes: u64) -> Option<Reserved> {
        loop {
            {
                let mut state = self.lock();
                if let Some(total) = state.used_bytes.checked_add(bytes).filter(|&total| total <= limit_bytes) {
                    state.used_bytes = total;
                    return Some(Reserved { memory: self.clone(), bytes });
                }
            }
            if bytes > limit_bytes || !self.make_room() {
                return None;
            }
        }
    }

    /// Reserves `bytes` of this kind of memory; if that exceeds `limit_bytes`, waits until other calls have returned
    /// theirs. The caller must not hold a reservation itself.
    ///
    /// # Errors
    /// `BudgetExceeded` if the limit is too small even when no other call runs; `Cancelled`.
    pub(crate) fn take(&self, bytes: u64, limit_bytes: u64, cancellation: &CancellationToken) -> Result<Reserved> {
        if bytes > limit_bytes {
            return Err(exceeded(bytes, limit_bytes));
        }
        let mut state = self.lock();
        while state.used_bytes > limit_bytes - bytes {
            drop(state);
            let made_room = self.make_room();
            state = self.lock();
            if made_room || state.used_bytes <= limit_bytes - bytes {
                continue;
            }
            state.waiting += 1;
            let waited = self.0.returned.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            // The token may call back to the caller, so the lock is released first.
            drop(state);
            cancellation.check()?;
            state = self.lock();
        }
        state.used_bytes += bytes;
        Ok(Reserved { memory: self.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    /// Number of bytes that this reservation holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves up to `bytes` of this reservation to a new reservation.
    pub(crate) fn split_off(&mut self, bytes: u64) -> Reserved {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reserved { memory: self.memory.clone(), bytes }
    }
}

impl Held {
    /// Moves up to `bytes` of the reserved device memory to a new reservation.
    pub(crate) fn split_off_device(&mut self, bytes: u64) -> Reserved {
        self.device.split_off(bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.used_bytes -= self.bytes;
        if state.waiting > 0 {
            self.memory.0.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit_and_takes_back_what_ended() {
        let memory = Bytes::default();
        let first = memory.take(60, 100, &CancellationToken::new()).unwrap();
        assert!(memory.try_take(41, 100).is_none());
        let second = memory.try_take(40, 100).unwrap();
        assert_eq!(memory.used_bytes(), 100);
        assert_eq!(
            memory.take(101, 100, &CancellationToken::new()).err().map(|error| error.kind()),
            Some(ErrorKind::BudgetExceeded)
        );
        drop((first, second));
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn what_is_split_off_is_given_back_on_its_own() {
        let memory = Bytes::default();
        let mut first = memory.take(60, 100, &CancellationToken::new()).unwrap();
        let second = first.split_off(25);
        assert_eq!((first.bytes(), second.bytes(), memory.used_bytes()), (35, 25, 60));
        drop(first);
        assert_eq!(memory.used_bytes(), 25);
        drop(second);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn waits_for_other_calls() {
        let memory = Bytes::default();
        let held = memory.take(80, 100, &CancellationToken::new()).unwrap();
        let other = memory.clone();
        let waiter =
            std::thread::spawn(move || other.take(50, 100, &CancellationToken::new()).map(|reserved| reserved.bytes));
        drop(held);
        assert_eq!(waiter.join().unwrap().unwrap(), 50);
    }

    #[test]
    fn a_cancelled_call_does_not_wait_for_others() {
        let memory = Bytes::default();
        let held = memory.take(80, 100, &CancellationToken::new()).unwrap();
        let listening = CancellationToken::listening(|| true);
        let error = memory.take(50, 100, &listening).err().unwrap();
        assert_eq!((error.kind(), memory.used_bytes()), (ErrorKind::Cancelled, 80));
        drop(held);
    }
}
