//! Handles by which any thread stops calls.

use cuzarr::CancellationToken;

use crate::error::{call, cuzarr_error, cuzarr_status, make};
use crate::handle::{free, get, kind, promised, put};

/// A cancellation: a handle that calls are given, and by which any thread stops them. A cancelled one stays cancelled.
/// Several calls may have the same one.
pub struct cuzarr_cancellation(());

kind!(cuzarr_cancellation owns CancellationToken, tag b"czcancel");

/// Returns the token of a call: that of the handle, or a new one for null.
pub unsafe fn token(cancellation: *const cuzarr_cancellation) -> cuzarr::Result<CancellationToken> {
    let is_none = cancellation.is_null();
    Ok(if is_none { CancellationToken::new() } else { CancellationToken::clone(promised!(get(cancellation))?) })
}

/// Makes a cancellation, and stores its handle in `cancellation`. Free it with cuzarr_cancellation_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_new(
    cancellation: *mut *mut cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(cancellation, error, || Ok(CancellationToken::new())))
}

/// Stops the calls that were given this cancellation. Returns at once; the calls end before the next stored object that
/// they would touch, with CUZARR_STATUS_CANCELLED. May be called from any thread, but not from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_cancel(
    cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || get(cancellation).map(|token| token.cancel())))
}

/// Stores whether a cancellation was cancelled in `is_cancelled`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_is_cancelled(
    cancellation: *const cuzarr_cancellation, is_cancelled: *mut bool, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put(is_cancelled, "is_cancelled", get(cancellation)?.is_cancelled())))
}

/// Frees a cancellation. Calls that were given it go on, and are no longer stopped by it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_cancellation_free(cancellation: *mut cuzarr_cancellation) {
    promised!(free(cancellation))
}
