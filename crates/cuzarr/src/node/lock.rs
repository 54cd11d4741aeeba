//! Locks on arrays and groups while their metadata changes, and the pauses of callers that wait for a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::internal::Threads;

use super::documents::{REQUESTS_AT_ONCE, each};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Engine, Turn};
use crate::store::{LOCK_NAME, Lock, Store, join_key};

/// Maximum number of attempts to change a document that other writers change first; then the change fails. One writer
/// succeeds each time.
pub(super) const MOST_ATTEMPTS: u32 = 64;
/// First pause of a caller that waits until another process releases a lock. Pauses grow up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_FAR_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time to wait until another client releases a lock on a server; then the change fails.
const MOST_FAR_PATIENCE: Duration = Duration::from_secs(60);

/// Locks on the metadata documents of some nodes: the locks that the store granted, and the locks inside this process.
/// They are released in this order.
pub(super) struct HeldDocuments {
    _locks: StoreLocks,
    _turn: Turn,
}

/// The locks on nodes that the store granted, which keep out other processes. A server is asked to release all of them
/// at once.
struct StoreLocks {
    locks: Vec<Lock>,
    is_far: bool,
}

impl Drop for StoreLocks {
    fn drop(&mut self) {
        self.locks.retain(|lock| matches!(lock, Lock::Held(_)));
        if self.is_far && self.locks.len() > 1 {
            let locks: Vec<_> = self.locks.drain(..).map(|lock| Mutex::new(Some(lock))).collect();
            let release = |lock: &Mutex<Option<Lock>>| drop(lock.lock().unwrap_or_else(PoisonError::into_inner).take());
            Threads::callers().map(REQUESTS_AT_ONCE, &locks, release);
        }
    }
}

impl HeldDocuments {
    /// Waits for the locks of the nodes at `paths`, which must be sorted. With `owns_chunks`, no other caller changes
    /// the shape of these arrays.
    pub(super) fn take(
        store: &dyn Store,
        paths: &[&str],
        owns_chunks: bool,
        cancellation: &CancellationToken,
    ) -> Result<HeldDocuments> {
        let identity = store.identity();
        let turn = Engine::get().node_turn(paths.iter().map(|path| identity.below(path)).collect(), cancellation)?;
        let capabilities = store.capabilities();
        let mut held = StoreLocks { locks: Vec::new(), is_far: capabilities.far };
        if capabilities.conditional_writes && !owns_chunks {
            return Ok(HeldDocuments { _locks: held, _turn: turn });
        }
        let longest = if capabilities.far { LONGEST_FAR_PAUSE } else { LONGEST_PAUSE };
        let (mut since, mut pause, mut is_waiting) = (Instant::now(), FIRST_PAUSE, false);
        while let Some(next) = paths.get(held.locks.len()) {
            // While another caller holds the next lock, only this one is asked for.
            let most = if is_waiting { 1 } else { paths.len() };
            let wanted = &paths[held.locks.len()..paths.len().min(held.locks.len() + most)];
            let tried = each(store, wanted, |path| store.try_lock(path))?;
            let mut tried = StoreLocks { locks: tried, is_far: capabilities.far };
            // A waiting caller only holds locks of earlier paths, so no two callers wait for each other.
            let free = tried.locks.iter().take_while(|lock| !matches!(lock, Lock::Busy)).count();
            held.locks.extend(tried.locks.drain(..free));
            is_waiting = free < wanted.len();
            if free > 0 {
                (since, pause) = (Instant::now(), FIRST_PAUSE);
            } else if capabilities.far && since.elapsed() > MOST_FAR_PATIENCE {
                // The operating system releases the locks of a dead process. A server does not.
                return Err(held_elsewhere(store, next));
            }
            if is_waiting {
                drop(tried);
                cancellation.check()?;
                std::thread::sleep(pause);
                pause = (2 * pause).min(longest);
            }
        }
        Ok(HeldDocuments { _locks: held, _turn: turn })
    }
}

fn held_elsewhere(store: &dyn Store, path: &str) -> Error {
    let seconds = MOST_FAR_PATIENCE.as_secs();
    let message =
        format!("{store}: another program has been changing '/{path}' for more than {seconds} s, or died meanwhile");
    let key = join_key(path, LOCK_NAME);
    Error::new(ErrorKind::StoreFailed, message)
        .with_hint(format!("try again later, or delete '{key}' if no program runs"))
}

/// Pauses for a random time, so that two writers that collided do not collide again.
pub(super) fn pause(attempt: u32, cancellation: &CancellationToken) -> Result<()> {
    let most = LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.saturating_pow(attempt.min(16)));
    let nanoseconds = RandomState::new().hash_one(attempt) % (most.as_nanos() as u64).max(1);
    std::thread::sleep(Duration::from_nanos(nanoseconds));
    cancellation.check()
}

/// The error of a metadata change for which other writers were faster at every attempt.
pub(super) fn outrun(store: &dyn Store, path: &str) -> Error {
    let message =
        format!("{store}: the metadata of '/{path}' was changed by other writers at each of {MOST_ATTEMPTS} attempts");
    Error::new(ErrorKind::StoreFailed, message).with_hint("try again when they are done")
}
