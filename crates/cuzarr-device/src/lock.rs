//! Locks of this crate.

use std::sync::{Mutex, MutexGuard};

/// A lock whose holder panicked still guards consistent data here: every section under it is a few plain assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
