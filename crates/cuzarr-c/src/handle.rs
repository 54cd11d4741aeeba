//! Handles with tags, and values that cross the border. Errors of these functions are
//! `InvalidArgument`: a pointer is null, or does not point to what was expected.

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuzarr::{Error, ErrorKind, Result};

/// A type of handles, which C only knows by name. A handle points to a `Tagged` value of this kind.
pub trait Kind {
    /// The value that a handle of this kind owns. Several threads may use it at once.
    type Value: Send + Sync;
    /// The number at the start of every live handle of this kind.
    const TAG: u64;
    /// The name of the kind in messages.
    const NAME: &'static str;
}

/// The value that a handle points to, behind its tag.
#[repr(C)]
struct Tagged<V> {
    tag: u64,
    value: V,
}

/// The tag of a handle that was freed.
const FREED: u64 = 0xdead_c0de_dead_c0de;

/// Makes a handle that owns a value.
pub fn handle<K: Kind>(value: K::Value) -> *mut K {
    Box::into_raw(Box::new(Tagged { tag: K::TAG, value })).cast()
}

/// Returns the value of a handle.
pub unsafe fn get<'a, K: Kind>(handle: *const K) -> Result<&'a K::Value> {
    // SAFETY: the caller promises a handle; all begin with a tag, which says what follows.
    unsafe { check(handle) }?;
    // SAFETY: the tag is that of `K`, so `handle::<K>` made it.
    Ok(unsafe { &(*handle.cast::<Tagged<K::Value>>()).value })
}

/// Ends a handle and drops its value. Does nothing for null, and for a handle of another kind.
pub unsafe fn free<K: Kind>(handle: *mut K) {
    // SAFETY: as in `get`.
    if unsafe { check(handle) }.is_err() {
        return;
    }
    // SAFETY: `handle::<K>` leaked this box, as the tag says; the caller promises that nobody uses it.
    let mut boxed = unsafe { Box::from_raw(handle.cast::<Tagged<K::Value>>()) };
    // Not left out as a value that nobody reads: it makes most second frees visible.
    *std::hint::black_box(&mut boxed.tag) = FREED;
    // A panic must not reach C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(boxed)));
}

/// Checks that a handle is one of this kind.
unsafe fn check<K: Kind>(handle: *const K) -> Result<()> {
    let tag = handle.cast::<u64>();
    if tag.is_null() {
        return Err(invalid(format!("the handle is NULL, expected {}", K::NAME)));
    }
    // SAFETY: the caller promises a live handle, which begins with its tag; another pointer's alignment is checked.
    if !tag.is_aligned() || unsafe { *tag } != K::TAG {
        return Err(invalid(format!("the handle is not {}", K::NAME)));
    }
    Ok(())
}

/// Stores a result of a call.
pub unsafe fn put<T>(place: *mut T, name: &str, value: T) -> Result<()> {
    // SAFETY: the caller promises so; null was checked.
    unsafe { required(place, name).map(|place| place.write(value)) }
}

/// Stores a result that is a handle: null if the call fails.
pub unsafe fn put_handle<K: Kind>(place: *mut *mut K, make: impl FnOnce() -> Result<K::Value>) -> Result<()> {
    // SAFETY: the caller promises so; null was checked.
    unsafe {
        put(place, "the handle's place", std::ptr::null_mut())?;
        put(place, "the handle's place", handle(make()?))
    }
}

/// Stores a text, which the caller frees with `cuzarr_string_free`: null if the call fails.
pub unsafe fn put_text(place: *mut *mut c_char, make: impl FnOnce() -> Result<String>) -> Result<()> {
    // SAFETY: the caller promises so; null was checked.
    unsafe {
        put(place, "the text's place", std::ptr::null_mut())?;
        put(place, "the text's place", c_text(&make()?).into_raw())
    }
}

/// Returns a pointer that must be aligned and not be null.
pub fn required<T>(pointer: *mut T, name: &str) -> Result<*mut T> {
    match (pointer.is_null(), pointer.is_aligned()) {
        (true, _) => Err(invalid(format!("{name} is NULL"))),
        (_, false) => Err(invalid(format!("{name} is at {pointer:p}, which is not aligned"))),
        _ => Ok(pointer),
    }
}

/// Returns a text of the caller; `None` for null.
pub unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises so.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| invalid(format!("{name} is not UTF-8")))
}

/// Returns a text of the caller, which must not be null.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller promises so.
    unsafe { optional_text(text, name) }?.ok_or_else(|| invalid(format!("{name} is NULL")))
}

/// Returns `len` values of the caller; `None` for null.
pub unsafe fn optional_slice<'a, T>(first: *const T, len: usize, name: &str) -> Result<Option<&'a [T]>> {
    if first.is_null() {
        return Ok(None);
    }
    let is_possible = len.checked_mul(size_of::<T>()).is_some_and(|size| isize::try_from(size).is_ok());
    if !is_possible || !first.is_aligned() {
        return Err(invalid(format!("{name}: {len} values at {first:p} are not possible")));
    }
    // SAFETY: the caller promises `len` values; the address is aligned, and the size was checked.
    Ok(Some(unsafe { std::slice::from_raw_parts(first, len) }))
}

/// A text for C. Zero bytes, which end a text there, are replaced.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Makes the error of a wrong argument.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
