//! Handles by which any thread stops calls.

use cuzarr::CancellationToken;

use crate::error::{call, cuzarr_error, cuzarr_status};
use crate::handle::{Kind, free, get, put, put_handle};

/// A cancellation: a handle that calls are given, and by which any thread stops them. A cancelled one stays cancelled.
/// Several calls may have the same one.
pub struct cuzarr_cancellation {
    _private: (),
}

impl Kind for cuzarr_cancellation {
    type Value = CancellationToken;
    const TAG: u64 = u64::from_ne_bytes(*b"czcancel");
    const NAME: &'static str = "a cuzarr_cancellation";
}

/// Returns the token of a call: that of the handle, or a new one for null.
pub unsafe fn token(cancellation: *const cuzarr_cancellation) -> cuzarr::Result<CancellationToken> {
    if cancellation.is_null() {
        return Ok(CancellationToken::new());
    }
    // SAFETY: the caller promises a live handle.
    unsafe { get(cancellation) }.cloned()
}

/// Makes a cancellation, and stores its handle in `cancellation`. Free it with cuzarr_cancellation_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_new(
    cancellation: *mut *mut cuzarr_cancellation,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    // SAFETY: the caller keeps the promises of the header's first page.
    unsafe { call(error, || put_handle(cancellation, || Ok(CancellationToken::new()))) }
}

/// Stops the calls that were given this cancellation. Returns at once; the calls end before the next stored object that
/// they would touch, with CUZARR_STATUS_CANCELLED. May be called from any thread, but not from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_cancel(
    cancellation: *const cuzarr_cancellation,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    // SAFETY: the caller keeps the promises of the header's first page.
    unsafe { call(error, || get(cancellation).map(CancellationToken::cancel)) }
}

/// Stores whether a cancellation was cancelled in `is_cancelled`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_is_cancelled(
    cancellation: *const cuzarr_cancellation,
    is_cancelled: *mut bool,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    // SAFETY: the caller keeps the promises of the header's first page.
    unsafe { call(error, || put(is_cancelled, "is_cancelled", get(cancellation)?.is_cancelled())) }
}

/// Frees a cancellation. Calls that were given it go on, and are no longer stopped by it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_free(cancellation: *mut cuzarr_cancellation) {
    // SAFETY: the caller keeps the promises of the header's first page.
    unsafe { free(cancellation) }
}
