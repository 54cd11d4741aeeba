//! A function that locks a mutex even if another thread panicked.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex, even if a thread panicked while it held the lock. The data are still consistent: each section under
/// these locks is a few plain assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
