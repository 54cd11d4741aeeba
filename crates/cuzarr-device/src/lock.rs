//! Locks of this crate.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex, also after a holder panicked: every section under these locks is a few plain assignments, so the data
/// are consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
