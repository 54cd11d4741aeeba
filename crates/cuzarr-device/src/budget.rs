//! A byte budget: memory in flight is bounded by asking before taking.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::error::{Error, ErrorKind, Result};

/// A limit on bytes that are in use at once. Clones are the same budget.
///
/// ```
/// use cuzarr_device::Budget;
/// let budget = Budget::new(100);
/// let lease = budget.try_take(80)?;
/// assert!(budget.try_take(30).is_err());
/// drop(lease);
/// assert_eq!((budget.used_bytes(), budget.peak_bytes()), (0, 80));
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    limit_bytes: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used_bytes: u64,
    peak_bytes: u64,
    next_ticket: u64,
    /// Tickets of those who wait, first come first served, so that a large request is not starved by small ones.
    waiting: VecDeque<u64>,
}

/// Bytes that were taken; dropping it gives them back.
pub struct Lease {
    budget: Budget,
    size_bytes: u64,
}

impl Budget {
    /// A budget of `limit_bytes` bytes.
    pub fn new(limit_bytes: u64) -> Budget {
        Budget(Arc::new(Shared { limit_bytes, state: Mutex::default(), freed: Condvar::new() }))
    }

    /// A budget that refuses nothing and only counts.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX)
    }

    /// Takes `size_bytes` bytes now, or not at all. Does not wait for its turn behind those who wait.
    ///
    /// # Errors
    /// `BudgetExceeded`, saying what was asked, used and allowed.
    pub fn try_take(&self, size_bytes: u64) -> Result<Lease> {
        let mut state = self.state();
        match self.fits(&state, size_bytes) {
            true => Ok(self.take(&mut state, size_bytes)),
            false => Err(self.refusal(size_bytes, state.used_bytes)),
        }
    }

    /// Takes `size_bytes` bytes, waiting until others give enough back. Whoever waits while holding leases that others
    /// wait for waits for ever: take all that one piece of work needs at once.
    ///
    /// # Errors
    /// `BudgetExceeded` at once when the budget could never allow it.
    pub fn take_blocking(&self, size_bytes: u64) -> Result<Lease> {
        let mut state = self.state();
        if size_bytes > self.0.limit_bytes {
            return Err(self.refusal(size_bytes, state.used_bytes));
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        while state.waiting.front() != Some(&ticket) || !self.fits(&state, size_bytes) {
            state = self.0.freed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.waiting.pop_front();
        // The next in line may fit as well.
        self.0.freed.notify_all();
        Ok(self.take(&mut state, size_bytes))
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes
    }

    /// Most bytes ever in use at once.
    pub fn peak_bytes(&self) -> u64 {
        self.state().peak_bytes
    }

    /// Bytes that may be in use at once.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    fn fits(&self, state: &State, size_bytes: u64) -> bool {
        state.used_bytes.checked_add(size_bytes).is_some_and(|used| used <= self.0.limit_bytes)
    }

    fn take(&self, state: &mut State, size_bytes: u64) -> Lease {
        state.used_bytes += size_bytes;
        state.peak_bytes = state.peak_bytes.max(state.used_bytes);
        Lease { budget: self.clone(), size_bytes }
    }

    fn refusal(&self, asked: u64, used: u64) -> Error {
        let allowed = self.0.limit_bytes;
        let message = format!("byte budget exceeded: asked {asked}, used {used}, allowed {allowed}");
        Error::new(ErrorKind::BudgetExceeded, message)
            .with_hint("raise the memory limit, or work on smaller pieces at a time")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The numbers are changed together and without panicking, so a poisoned lock still guards consistent ones.
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn give_back(&self, size_bytes: u64) {
        self.state().used_bytes -= size_bytes;
        self.0.freed.notify_all();
    }
}

impl Lease {
    /// Bytes that are held.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Gives back all but `size_bytes` bytes; does nothing when it holds no more than that.
    pub fn shrink_to(&mut self, size_bytes: u64) {
        let surplus = self.size_bytes.saturating_sub(size_bytes);
        self.size_bytes -= surplus;
        self.budget.give_back(surplus);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.give_back(self.size_bytes);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.used_bytes(), self.limit_bytes())
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_asked_used_and_allowed() {
        let budget = Budget::new(10);
        let _held = budget.try_take(7).unwrap();
        let error = budget.try_take(4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert_eq!(error.message(), "byte budget exceeded: asked 4, used 7, allowed 10");
        assert!(error.hint().is_some() && budget.try_take(u64::MAX).is_err() && budget.take_blocking(11).is_err());
    }

    #[test]
    fn many_threads_never_exceed_the_limit() {
        let budget = Budget::new(5);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let budget = &budget;
                scope.spawn(move || {
                    for turn in 0..200 {
                        let lease = budget.take_blocking(1 + (thread + turn) % 5).unwrap();
                        assert!(budget.used_bytes() <= 5 && lease.size_bytes() <= 5);
                    }
                });
            }
        });
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.peak_bytes() <= 5);
    }

    #[test]
    fn a_shrunk_lease_gives_the_rest_back_once() {
        let budget = Budget::new(10);
        let mut lease = budget.try_take(9).unwrap();
        lease.shrink_to(4);
        lease.shrink_to(6);
        assert_eq!((lease.size_bytes(), budget.used_bytes()), (4, 4));
        drop(lease);
        assert_eq!((budget.used_bytes(), budget.peak_bytes()), (0, 9));
    }
}
