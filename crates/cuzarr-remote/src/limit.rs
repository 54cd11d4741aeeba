//! How many requests a host has at once, and how many bytes they ask for.
//!
//! The number of requests begins at [`FIRST_REQUESTS`] and adapts. It is looked at once every request of a window was answered, a
//! window being as many requests as may be in flight:
//!
//! - When many of them were refused (status 429 or 503), the host gets fewer.
//! - When none had to wait for another reason than this limit, and answers began about as soon as ever, the host gets more.
//!
//! A few refusals are not a sign of overload: large clouds always send some.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most requests in flight to a host, unless `max_requests` says another number.
pub(crate) const MOST_REQUESTS: usize = 256;
/// Most bytes that requests in flight to a host ask for, unless `max_bytes` says another number.
pub(crate) const MOST_BYTES: u64 = 512 << 20;
/// Requests in flight to a host at the beginning.
pub(crate) const FIRST_REQUESTS: usize = 64;
/// Requests in flight that a host keeps however often it refuses.
const FEWEST_REQUESTS: usize = 4;
/// Shares of refused requests: above the first a host gets fewer requests, and below the second it may get more.
const MANY_REFUSED: f64 = 0.2;
const FEW_REFUSED: f64 = 0.1;
/// Answers that begin later than this many times the best mean time show that the host or the network is busy.
const BUSY: f64 = 2.0;
/// The best mean time is forgotten slowly, by this factor a window, because the way to a host can become longer.
const FORGETTING: f64 = 1.05;
/// The unit in which bytes are counted: a semaphore has 32 bits.
const UNIT_BYTES: u64 = 1 << 12;

/// The limit of one host.
pub(crate) struct Limit {
    requests: Semaphore,
    bytes: Semaphore,
    most_requests: usize,
    most_units: u32,
    window: Mutex<Window>,
}

struct Window {
    limit: usize,
    /// Permits that are taken out of use as soon as they are given back.
    surplus: usize,
    answers: usize,
    refusals: usize,
    seconds: f64,
    best_seconds: f64,
}

/// The right to make a request.
pub(crate) struct Permit<'a> {
    limit: &'a Limit,
    request: Option<SemaphorePermit<'a>>,
    _bytes: Option<SemaphorePermit<'a>>,
}

impl Limit {
    /// At most `most_requests` requests, for `most_bytes` bytes.
    pub(crate) fn new(most_requests: usize, most_bytes: u64) -> Limit {
        let limit = FIRST_REQUESTS.min(most_requests).max(1);
        let most_units = u32::try_from(most_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).max(1);
        Limit {
            requests: Semaphore::new(limit),
            bytes: Semaphore::new(most_units as usize),
            most_requests,
            most_units,
            window: Mutex::new(Window {
                limit,
                surplus: 0,
                answers: 0,
                refusals: 0,
                seconds: 0.0,
                best_seconds: f64::INFINITY,
            }),
        }
    }

    /// Waits until the host may have one more request, for this many bytes.
    pub(crate) async fn admit(&self, size_bytes: u64) -> Result<Permit<'_>> {
        let closed = |_| Error::new(ErrorKind::Cancelled, "the store was closed");
        let units = u32::try_from(size_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.most_units);
        // In this order, so that a request that waits for bytes keeps no other one waiting.
        let bytes = match units {
            0 => None,
            units => Some(self.bytes.acquire_many(units).await.map_err(closed)?),
        };
        let request = self.requests.acquire().await.map_err(closed)?;
        Ok(Permit { limit: self, request: Some(request), _bytes: bytes })
    }

    /// Notes an answer that began after `first_byte`.
    pub(crate) fn answered(&self, first_byte: Duration, is_refusal: bool) {
        let mut window = self.window();
        window.answers += 1;
        match is_refusal {
            true => window.refusals += 1,
            false => window.seconds += first_byte.as_secs_f64(),
        }
        if window.answers >= window.limit {
            self.adapt(&mut window);
        }
    }

    fn adapt(&self, window: &mut Window) {
        let (answers, refusals) = (window.answers as f64, window.refusals as f64);
        let mean = window.seconds / (answers - refusals).max(1.0);
        let is_full = self.requests.available_permits() == 0;
        if refusals > MANY_REFUSED * answers {
            let fewer = (window.limit * 7 / 10).max(FEWEST_REQUESTS.min(window.limit));
            window.surplus += window.limit - fewer;
            window.limit = fewer;
        } else if refusals < FEW_REFUSED * answers && is_full && mean <= BUSY * window.best_seconds {
            let more = (window.limit + window.limit.div_ceil(4)).min(self.most_requests);
            let added = more - window.limit;
            let kept = added.min(window.surplus);
            window.surplus -= kept;
            self.requests.add_permits(added - kept);
            window.limit = more;
        }
        if refusals < answers {
            window.best_seconds = (window.best_seconds * FORGETTING).min(mean);
        }
        (window.answers, window.refusals, window.seconds) = (0, 0, 0.0);
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests that the host may have now.
    #[cfg(test)]
    pub(crate) fn now(&self) -> usize {
        self.window().limit
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut window = self.limit.window();
        if window.surplus > 0
            && let Some(request) = self.request.take()
        {
            window.surplus -= 1;
            request.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Answers a window of requests while as many are in flight as may be.
    fn window(limit: &Limit, first_byte: Duration, refused: usize) {
        let count = limit.now();
        let held: Vec<_> = std::iter::from_fn(|| limit.requests.try_acquire().ok()).collect();
        (0..count).for_each(|number| limit.answered(first_byte, number < refused));
        for permit in held {
            drop(Permit { limit, request: Some(permit), _bytes: None });
        }
        assert_eq!(limit.requests.available_permits(), limit.now(), "permits are neither lost nor invented");
    }

    #[test]
    fn grows_while_answers_come_as_soon_and_stops_when_they_do_not() {
        let limit = Limit::new(256, 1 << 30);
        (0..20).for_each(|_| window(&limit, 30 * MS, 0));
        assert_eq!(limit.now(), 256);
        let limit = Limit::new(256, 1 << 30);
        window(&limit, 30 * MS, 0);
        let now = limit.now();
        assert!(now > FIRST_REQUESTS);
        window(&limit, 90 * MS, 0);
        assert_eq!(limit.now(), now);
        assert_eq!(Limit::new(5, 1).now(), 5);
    }

    #[test]
    fn shrinks_when_a_host_refuses_much_and_not_for_a_few_refusals() {
        let limit = Limit::new(64, 1 << 30);
        (0..10).for_each(|_| window(&limit, 30 * MS, 3));
        assert_eq!(limit.now(), 64);
        (0..20).for_each(|_| window(&limit, 30 * MS, limit.now()));
        assert_eq!(limit.now(), FEWEST_REQUESTS);
        (0..40).for_each(|_| window(&limit, 30 * MS, 0));
        assert_eq!(limit.now(), 64, "it recovers");
    }

    #[test]
    fn bytes_in_flight_have_a_bound_and_a_larger_request_goes_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let limit = Limit::new(64, 1 << 20);
            let first = limit.admit(3 << 18).await.unwrap();
            let mut second = Box::pin(limit.admit(1 << 30));
            assert!(futures_util::poll!(&mut second).is_pending());
            let small = limit.admit(0).await.unwrap();
            drop(first);
            assert!(futures_util::poll!(&mut second).is_ready());
            drop(small);
        });
    }
}
