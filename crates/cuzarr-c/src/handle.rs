//! Handles with tags, and values that cross the border. Errors of these functions are
//! `InvalidArgument`: a pointer is null, or does not point to what was expected.

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError, RwLock};

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

/// Says what the handles of a type own, and which eight bytes are at their start.
macro_rules! kind {
    ($name:ident owns $value:ty, tag $tag:literal) => {
        impl $crate::handle::Kind for $name {
            type Value = $value;
            const TAG: u64 = u64::from_ne_bytes(*$tag);
            const NAME: &'static str = concat!("a ", stringify!($name));
        }
    };
}
pub(crate) use kind;

/// Passes pointers of the caller on to unsafe functions of this crate, or reads what one points to once it was checked. All
/// these functions ask the same of their pointers, so that each may pass on what it was promised.
macro_rules! promised {
    ($call:expr) => {{
        // SAFETY: the caller keeps the promises of the header's first page.
        unsafe { $call }
    }};
}
pub(crate) use promised;

/// The value that a handle points to, behind its tag.
#[repr(C)]
struct Tagged<V> {
    tag: u64,
    value: Arc<V>,
}

/// The tag of a handle that was freed.
const FREED: u64 = 0xdead_c0de_dead_c0de;

/// Makes a handle that owns a value.
pub fn handle<K: Kind>(value: K::Value) -> *mut K {
    Box::into_raw(Box::new(Tagged { tag: K::TAG, value: Arc::new(value) })).cast()
}

/// Returns the value of a handle of this kind.
pub unsafe fn get<'a, K: Kind>(handle: *const K) -> Result<&'a Arc<K::Value>> {
    let tag = handle.cast::<u64>();
    if tag.is_null() {
        return Err(invalid(format!("the handle is NULL, expected {}", K::NAME)));
    }
    // SAFETY: the caller promises a live handle, which begins with its tag; another pointer's alignment is checked.
    if !tag.is_aligned() || unsafe { *tag } != K::TAG {
        return Err(invalid(format!("the handle is not {}", K::NAME)));
    }
    // SAFETY: the tag is that of `K`, so `handle::<K>` made it.
    Ok(unsafe { &(*handle.cast::<Tagged<K::Value>>()).value })
}

/// Calls `look` with the array or group of a handle. Long calls take a clone of it, so that no call waits for another.
pub unsafe fn look<V, T>(of: *const impl Kind<Value = RwLock<V>>, look: impl FnOnce(&V) -> Result<T>) -> Result<T> {
    look(&promised!(get(of))?.read().unwrap_or_else(PoisonError::into_inner))
}

/// Calls `to` with the array or group of a handle, which no other call uses meanwhile.
pub unsafe fn change<V>(of: *const impl Kind<Value = RwLock<V>>, to: impl FnOnce(&mut V) -> Result<()>) -> Result<()> {
    to(&mut promised!(get(of))?.write().unwrap_or_else(PoisonError::into_inner))
}

/// Ends a handle and drops its value. Does nothing for null, and for a handle of another kind.
pub unsafe fn free<K: Kind>(handle: *mut K) {
    if promised!(get(handle)).is_err() {
        return;
    }
    // SAFETY: `handle::<K>` leaked this box, as the tag says; the caller promises that nobody uses it.
    let mut boxed = unsafe { Box::from_raw(handle.cast::<Tagged<K::Value>>()) };
    // Not left out as a value that nobody reads: it makes most second frees visible.
    *std::hint::black_box(&mut boxed.tag) = FREED;
    // A panic must not reach C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(boxed)));
}

/// Stores a result of a call.
pub unsafe fn put<T>(place: *mut T, name: &str, value: T) -> Result<()> {
    // SAFETY: the caller promises so; null was checked.
    unsafe { required(place, name).map(|place| place.write(value)) }
}

/// Stores a pointer to a result, which the caller frees: null if the call fails.
pub unsafe fn put_new<T>(place: *mut *mut T, name: &str, make: impl FnOnce() -> Result<*mut T>) -> Result<()> {
    promised!(put(place, name, null_mut()).and_then(|()| put(place, name, make()?)))
}

/// Stores a text, which the caller frees with `cuzarr_string_free`: null if the call fails.
pub unsafe fn put_text(place: *mut *mut c_char, make: impl FnOnce() -> Result<String>) -> Result<()> {
    promised!(put_new(place, "the text's place", || Ok(c_text(&make()?).into_raw())))
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
    promised!(optional_text(text, name))?.ok_or_else(|| invalid(format!("{name} is NULL")))
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

/// Returns `len` values of the caller, which must not be null unless there are none.
pub unsafe fn slice<'a, T>(first: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    match promised!(optional_slice(first, len, name))? {
        None if len > 0 => Err(invalid(format!("{name} is NULL"))),
        values => Ok(values.unwrap_or_default()),
    }
}

/// A text for C. Zero bytes, which end a text there, are replaced.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Makes the error of a wrong argument.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
