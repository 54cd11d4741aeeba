//! Limits the requests that a host has at once, and the bytes that they ask for.
//!
//! The number of requests begins at [`FIRST_REQUESTS`] and adapts. It is checked once per window. A window has as many
//! answers as there may be requests in flight.
//!
//! - If the host refused many requests of the window (status 429 or 503), the limit falls.
//! - If it refused few, all places are taken, and answers began about as fast as before, the limit rises.
//!
//! A few refusals are not a sign of overload: large clouds always send some. While a host refuses few requests, a
//! refused request lends its place to another request during its pause, and takes precedence over all others
//! afterwards. If a host refuses many requests, refused requests keep their places, so that the host can recover.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Largest number of requests that a host may have to answer at a time, unless `max_requests` is given.
pub(crate) const MOST_REQUESTS: usize = 256;
/// Largest number of bytes that requests to a host may ask for at a time, unless `max_bytes` is given.
pub(crate) const MOST_BYTES: u64 = 512 << 20;
/// Number of requests that a host may have to answer at a time at first, until its answers show how many suit that
/// host.
pub(crate) const FIRST_REQUESTS: usize = 64;
/// Lower bound for the number of requests that a host may have to answer at a time, however often it refuses.
const FEWEST_REQUESTS: usize = 4;
/// Fractions of refused requests at which the number of requests that a host gets at a time changes. Above the first, a
/// host gets fewer requests; below the second, it may get more.
const MANY_REFUSED: f64 = 0.2;
const FEW_REFUSED: f64 = 0.1;
/// A host or its network counts as busy if answers begin later than this many times the best mean time.
const BUSY: f64 = 2.0;
/// Factor by which the remembered best mean time grows with every window of answers, because the route to a host can
/// become longer.
const FORGETTING: f64 = 1.05;
/// Unit in which requested bytes are counted, because a semaphore counts with 32 bits.
const UNIT_BYTES: u64 = 1 << 12;
/// Weight of the last answer in the mean round-trip time, as in TCP (RFC 6298, section 2).
const LAST_SHARE: f64 = 0.125;
/// The pause after a host's refusal while no round-trip time is known. [`LONGEST_PAUSE`] is the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The limit of requests that one host has to answer at a time, which adapts to how the host answers.
pub(crate) struct Limit {
    /// Places for requests that the host has to answer at the same time; each request needs one. Code that takes a
    /// place forgets the permit, and returns the place by [`Limit::give_back`].
    requests: Semaphore,
    /// Places that only refused requests may take: each was given back while a refused request waited to be sent again.
    again: Semaphore,
    bytes: Semaphore,
    most_requests: usize,
    most_units: u32,
    window: Mutex<Window>,
}

struct Window {
    limit: usize,
    /// Number of requests' places that are removed as soon as they are given back, because the host's limit was
    /// lowered.
    surplus: usize,
    /// Number of refused requests that wait for a place at the host, to be sent again.
    waiting_again: usize,
    answers: usize,
    refusals: usize,
    /// Whether the host refused many requests in the previous window of answers.
    refused_many: bool,
    seconds: f64,
    best_seconds: f64,
    /// The mean time until the host begins to answer, in which recent answers count more.
    round_trip_seconds: Option<f64>,
}

/// Permission to send one request to a host, until the value is dropped.
pub(crate) struct Permit<'a> {
    slot: Arc<Slot>,
    _bytes: Option<SemaphorePermit<'a>>,
}

/// One request's place in the limit of its host, which the request may give up during pauses.
pub(crate) struct Slot {
    limit: Arc<Limit>,
    is_held: AtomicBool,
    refusals: AtomicU32,
}

tokio::task_local! {
    static SLOT: Arc<Slot>;
}

impl Limit {
    /// Makes the limit of a host: at most `most_requests` requests, which ask for at most `most_bytes` bytes.
    pub(crate) fn new(most_requests: usize, most_bytes: u64) -> Limit {
        let limit = FIRST_REQUESTS.min(most_requests).max(1);
        let most_units = u32::try_from(most_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).max(1);
        Limit {
            requests: Semaphore::new(limit),
            again: Semaphore::new(0),
            bytes: Semaphore::new(most_units as usize),
            most_requests,
            most_units,
            window: Mutex::new(Window {
                limit,
                surplus: 0,
                waiting_again: 0,
                answers: 0,
                refusals: 0,
                refused_many: false,
                seconds: 0.0,
                best_seconds: f64::INFINITY,
                round_trip_seconds: None,
            }),
        }
    }

    /// Waits until one more request, for `size_bytes` bytes, may be sent to the host.
    pub(crate) async fn admit(self: &Arc<Self>, size_bytes: u64) -> Result<Permit<'_>> {
        let units = u32::try_from(size_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.most_units);
        // Bytes come first, so that a request that waits for bytes does not occupy a place.
        let bytes = match units {
            0 => None,
            units => Some(self.bytes.acquire_many(units).await.map_err(closed)?),
        };
        self.requests.acquire().await.map_err(closed)?.forget();
        let slot = Slot { limit: Arc::clone(self), is_held: AtomicBool::new(true), refusals: AtomicU32::new(0) };
        Ok(Permit { slot: Arc::new(slot), _bytes: bytes })
    }

    /// Gives back a request's place in the host's limit, so that another request may be sent. A refused request that
    /// waits for a place gets it first.
    fn give_back(&self) {
        let mut window = self.window();
        if window.surplus > 0 {
            window.surplus -= 1;
        } else if window.waiting_again > 0 {
            window.waiting_again -= 1;
            self.again.add_permits(1);
        } else {
            self.requests.add_permits(1);
        }
    }

    /// Waits for a place in the host's limit, so that a refused request can be sent again.
    async fn take_again(&self) -> Result<()> {
        {
            let mut window = self.window();
            if let Ok(place) = self.requests.try_acquire() {
                place.forget();
                return Ok(());
            }
            window.waiting_again += 1;
        }
        let waiting = WaitingAgain(self);
        self.again.acquire().await.map_err(closed)?.forget();
        std::mem::forget(waiting);
        Ok(())
    }

    /// Whether the host refuses so many requests that it needs to recover, with nothing sent in place of a paused
    /// request.
    fn refuses_many(&self) -> bool {
        let window = self.window();
        window.refused_many || window.refusals as f64 > MANY_REFUSED * window.limit as f64
    }

    /// Returns the mean time until an answer begins, or a default if it is not known. The pause after a refusal is a
    /// multiple of it.
    fn round_trip(&self) -> Duration {
        let seconds = self.window().round_trip_seconds;
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(FIRST_PAUSE)
    }

    /// Records that the answer to a request began `first_byte` after it was sent.
    pub(crate) fn answered(&self, first_byte: Duration, is_refusal: bool) {
        let mut window = self.window();
        window.answers += 1;
        match is_refusal {
            true => window.refusals += 1,
            false => {
                let seconds = first_byte.as_secs_f64();
                let before = window.round_trip_seconds.unwrap_or(seconds);
                window.round_trip_seconds = Some(before + LAST_SHARE * (seconds - before));
                window.seconds += seconds;
            }
        }
        if window.answers >= window.limit {
            self.adapt(&mut window);
        }
    }

    fn adapt(&self, window: &mut Window) {
        let (answers, refusals) = (window.answers as f64, window.refusals as f64);
        let mean = window.seconds / (answers - refusals).max(1.0);
        let is_full = self.requests.available_permits() == 0;
        window.refused_many = refusals > MANY_REFUSED * answers;
        if window.refused_many {
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

    /// Returns the number of requests that the host may have to answer at the moment.
    #[cfg(test)]
    pub(crate) fn now(&self) -> usize {
        self.window().limit
    }
}

fn closed(_: tokio::sync::AcquireError) -> Error {
    Error::new(ErrorKind::Cancelled, "the store was closed")
}

/// A refused request that waits for a place in the host's limit; it stops waiting when the value is dropped.
struct WaitingAgain<'a>(&'a Limit);

impl Drop for WaitingAgain<'_> {
    fn drop(&mut self) {
        let mut window = self.0.window();
        // The place may have arrived already.
        match self.0.again.try_acquire() {
            Ok(place) => {
                place.forget();
                drop(window);
                self.0.give_back();
            }
            Err(_) => window.waiting_again -= 1,
        }
    }
}

impl Permit<'_> {
    /// Returns the request's place in the host's limit, which the transport may give up during pauses.
    pub(crate) fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.slot)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.slot.give_back();
    }
}

impl Slot {
    /// Returns the place, in the host's limit, of the request that the calling task makes.
    pub(crate) fn current() -> Option<Arc<Slot>> {
        SLOT.try_with(Arc::clone).ok()
    }

    /// Runs `work`, whose requests share this place in the host's limit, one after the other.
    pub(crate) async fn run<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        SLOT.scope(self, work).await
    }

    /// Records that the request was refused, and returns the pause before it is repeated. The first pause is one round
    /// trip, and each further refusal doubles it. During the pause, another request may be made.
    pub(crate) fn refused(&self) -> Duration {
        let doublings = self.refusals.fetch_add(1, Ordering::Relaxed);
        if !self.limit.refuses_many() {
            self.give_back();
        }
        let longer = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.limit.round_trip().saturating_mul(longer).min(LONGEST_PAUSE)
    }

    /// Waits, after the pause that followed a refusal, until the request may be sent again.
    pub(crate) async fn resume(&self) -> Result<()> {
        if !self.is_held.load(Ordering::Relaxed) {
            self.limit.take_again().await?;
            self.is_held.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn give_back(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.limit.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn limit_of(most_requests: usize, most_bytes: u64) -> Arc<Limit> {
        Arc::new(Limit::new(most_requests, most_bytes))
    }

    /// Records a whole window of answers, of which `refused` are refusals.
    fn window(limit: &Limit, first_byte: Duration, refused: usize) {
        let count = limit.now();
        let held = std::iter::from_fn(|| limit.requests.try_acquire().ok().map(SemaphorePermit::forget)).count();
        (0..count).for_each(|number| limit.answered(first_byte, number < refused));
        (0..held).for_each(|_| limit.give_back());
        assert_eq!(limit.requests.available_permits(), limit.now(), "places are neither lost nor invented");
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    /// Returns permits for as many requests as a limit allows at the moment.
    async fn full(limit: &Arc<Limit>) -> Vec<Permit<'_>> {
        let mut permits = Vec::new();
        while permits.len() < limit.now() {
            permits.push(limit.admit(0).await.unwrap());
        }
        permits
    }

    #[test]
    fn grows_while_answers_come_as_soon_and_stops_when_they_do_not() {
        let limit = limit_of(256, 1 << 30);
        (0..20).for_each(|_| window(&limit, 30 * MS, 0));
        assert_eq!(limit.now(), 256);
        let limit = limit_of(256, 1 << 30);
        window(&limit, 30 * MS, 0);
        let now = limit.now();
        assert!(now > FIRST_REQUESTS);
        window(&limit, 90 * MS, 0);
        assert_eq!(limit.now(), now);
        assert_eq!(Limit::new(5, 1).now(), 5);
    }

    #[test]
    fn shrinks_when_a_host_refuses_much_and_not_for_a_few_refusals() {
        let limit = limit_of(64, 1 << 30);
        (0..10).for_each(|_| window(&limit, 30 * MS, 3));
        assert_eq!(limit.now(), 64);
        (0..20).for_each(|_| window(&limit, 30 * MS, limit.now()));
        assert_eq!(limit.now(), FEWEST_REQUESTS);
        (0..40).for_each(|_| window(&limit, 30 * MS, 0));
        assert_eq!(limit.now(), 64, "it recovers");
    }

    #[test]
    fn bytes_in_flight_have_a_bound_and_a_larger_request_goes_alone() {
        block_on(async {
            let limit = limit_of(64, 1 << 20);
            let first = limit.admit(3 << 18).await.unwrap();
            let mut second = Box::pin(limit.admit(1 << 30));
            assert!(poll!(&mut second).is_pending());
            let small = limit.admit(0).await.unwrap();
            drop(first);
            assert!(poll!(&mut second).is_ready());
            drop(small);
        });
    }

    #[test]
    fn a_refused_request_lends_its_place_and_then_goes_first() {
        block_on(async {
            let limit = limit_of(5, 1 << 30);
            let mut permits = full(&limit).await;
            let mut one = Box::pin(limit.admit(0));
            assert!(poll!(&mut one).is_pending());
            let permit = permits.pop().unwrap();
            let slot = permit.slot();
            limit.answered(30 * MS, true);
            assert_eq!(slot.refused(), FIRST_PAUSE, "nothing is known of the host yet");
            let later = one.await.unwrap();
            let mut third = Box::pin(limit.admit(0));
            assert!(poll!(&mut third).is_pending());
            let mut again = Box::pin(slot.resume());
            assert!(poll!(&mut again).is_pending());
            drop(later);
            assert!(poll!(&mut third).is_pending() && poll!(&mut again).is_ready());
            drop(again);
            drop(permit);
            drop(third.await.unwrap());
            drop(permits);
            assert_eq!((limit.requests.available_permits(), limit.again.available_permits()), (5, 0));
        });
    }

    #[test]
    fn a_read_that_is_dropped_while_it_waits_again_gives_up_its_turn() {
        block_on(async {
            let limit = limit_of(5, 1 << 30);
            for comes_first in [false, true] {
                let mut permits = full(&limit).await;
                let permit = permits.pop().unwrap();
                let slot = permit.slot();
                slot.refused();
                let another = limit.admit(0).await.unwrap();
                let mut again = Box::pin(slot.resume());
                assert!(poll!(&mut again).is_pending());
                if comes_first {
                    drop(permits.pop());
                }
                drop((again, permit));
                drop((permits, another));
                let left = (limit.requests.available_permits(), limit.again.available_permits());
                assert_eq!((left, limit.window().waiting_again), ((5, 0), 0));
            }
        });
    }

    #[test]
    fn places_are_not_lent_while_a_host_refuses_many() {
        block_on(async {
            let limit = limit_of(5, 1 << 30);
            let permits = full(&limit).await;
            (0..2).for_each(|_| limit.answered(30 * MS, true));
            permits[0].slot().refused();
            let mut next = Box::pin(limit.admit(0));
            assert!(poll!(&mut next).is_pending());
            drop(permits);
        });
    }

    #[test]
    fn pauses_begin_with_a_round_trip_and_double() {
        block_on(async {
            let limit = limit_of(5, 1 << 30);
            (0..100).for_each(|_| limit.answered(30 * MS, false));
            let permit = limit.admit(0).await.unwrap();
            let pauses: Vec<_> = (0..9).map(|_| permit.slot().refused().as_millis()).collect();
            assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 2000, 2000]);
        });
    }
}
