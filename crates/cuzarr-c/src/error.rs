//! The status of calls, handles of errors, and the call that lets no panic out.

use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuzarr::{Error, ErrorKind, Result};

use crate::handle::{Kind, c_text, free, get, handle, kind, promised, put_new};

/// The result of a call. Every value but CUZARR_STATUS_OK is an error, and names its kind. Numbers never change; later
/// versions may add some.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cuzarr_status {
    /// The call did what its page says.
    Ok = 0,
    /// An argument is not valid, such as NULL where a pointer is needed, or a handle of another kind.
    InvalidArgument = 1,
    /// A number does not fit the element type.
    OutOfRange = 2,
    /// A setting is not valid, such as an environment variable.
    ConfigInvalid = 3,
    /// There is no array or group at this path.
    NodeNotFound = 4,
    /// There is no array at this path.
    ArrayNotFound = 5,
    /// There is no group at this path.
    GroupNotFound = 6,
    /// An array already exists at the path.
    ContainsArray = 7,
    /// A group already exists at the path.
    ContainsGroup = 8,
    /// Metadata is not JSON, or violates its specification.
    MetadataInvalid = 9,
    /// The name of a codec is not known.
    UnknownCodec = 10,
    /// The name of a data type is not known.
    UnknownDataType = 11,
    /// The metadata requires an extension or a feature that is not supported.
    UnsupportedFeature = 12,
    /// The region does not fit the array.
    SelectionInvalid = 13,
    /// Shapes differ that must agree.
    ShapeMismatch = 14,
    /// Data types differ that must agree.
    DtypeMismatch = 15,
    /// Encoded bytes cannot be decoded.
    ChunkCorrupt = 16,
    /// A stored checksum differs from the computed one.
    ChecksumMismatch = 17,
    /// A chunk is missing, and the option read_missing_chunks is false.
    ChunkNotFound = 18,
    /// A value cannot be encoded as the codec or data type requires.
    EncodeFailed = 19,
    /// A key leads outside the store, or is not valid.
    KeyInvalid = 20,
    /// The store (a file system, server or other backend) could not carry out a request.
    StoreFailed = 21,
    /// The store denies the operation to this user.
    PermissionDenied = 22,
    /// The store or array was opened for reading only.
    ReadOnly = 23,
    /// The memory is on a device where the operation cannot use it.
    MemorySpace = 24,
    /// The operation has no implementation for this data type or device.
    Unsupported = 25,
    /// The device does not exist, or its driver cannot be used.
    DeviceUnavailable = 26,
    /// A library for this operation was not found, or is too old.
    LibraryMissing = 27,
    /// The operation needs more bytes than a limit, such as memory_limit_bytes, allows.
    BudgetExceeded = 28,
    /// The device or the host is out of memory.
    OutOfMemory = 29,
    /// A kernel did not compile.
    KernelCompileFailed = 30,
    /// The device's driver reported a failure.
    DeviceFailed = 31,
    /// A part of the call would have to run on the host instead of the device, and the option strict forbids it.
    FallbackRefused = 32,
    /// The call was stopped by its cancellation.
    Cancelled = 33,
    /// An error whose kind this version of the header does not name.
    Other = 999,
    /// A fault of cuzarr itself. The process may go on; report it.
    Panicked = 1000,
}

/// Relates the kinds of errors of the engine to statuses of the same names, and to these names.
macro_rules! kinds {
    ($($name:ident)*) => {
        const KINDS: &[(ErrorKind, cuzarr_status, &str)] = &[
            (ErrorKind::DTypeMismatch, cuzarr_status::DtypeMismatch, "DTypeMismatch\0"),
            $((ErrorKind::$name, cuzarr_status::$name, concat!(stringify!($name), "\0")),)*
        ];
    };
}

kinds! {
    InvalidArgument OutOfRange ConfigInvalid NodeNotFound ArrayNotFound GroupNotFound ContainsArray ContainsGroup
    MetadataInvalid UnknownCodec UnknownDataType UnsupportedFeature SelectionInvalid ShapeMismatch
    ChunkCorrupt ChecksumMismatch ChunkNotFound EncodeFailed KeyInvalid StoreFailed PermissionDenied ReadOnly MemorySpace
    Unsupported DeviceUnavailable LibraryMissing BudgetExceeded OutOfMemory KernelCompileFailed DeviceFailed
    FallbackRefused Cancelled
}

impl From<ErrorKind> for cuzarr_status {
    fn from(kind: ErrorKind) -> cuzarr_status {
        KINDS.iter().find(|(known, ..)| *known == kind).map_or(cuzarr_status::Other, |(_, status, _)| *status)
    }
}

/// An error: its kind, a message and a hint. A call that fails makes one, and its caller frees it with
/// cuzarr_error_free. It does not depend on the handles of the call.
pub struct cuzarr_error(());

/// The texts that a handle of an error owns.
pub struct Texts {
    status: cuzarr_status,
    message: CString,
    hint: Option<CString>,
    text: CString,
}

kind!(cuzarr_error owns Texts, tag b"czerror1");

/// Runs a call, stores the handle of its error in `error` unless that is null, and returns its status. No panic leaves
/// this function.
pub unsafe fn call(error: *mut *mut cuzarr_error, work: impl FnOnce() -> Result<()>) -> cuzarr_status {
    let (status, failure) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => (cuzarr_status::Ok, None),
        Ok(Err(failure)) => (failure.kind().into(), Some(failure)),
        Err(_) => {
            let message = "a fault of cuzarr itself; the program's standard error has its place";
            (cuzarr_status::Panicked, Some(Error::new(ErrorKind::Unsupported, message).with_hint("report it")))
        }
    };
    let texts = |failure: Error| {
        let (message, hint) = (c_text(failure.message()), failure.hint().map(c_text));
        Texts { status, message, hint, text: c_text(&failure.to_string()) }
    };
    if !error.is_null() {
        // SAFETY: the caller promises that it may be written.
        unsafe { *error = failure.map_or(std::ptr::null_mut(), |failure| handle(texts(failure))) };
    }
    status
}

/// Runs a call that makes a handle, and stores the handle in `place`: null if the call fails.
pub unsafe fn make<K: Kind>(
    place: *mut *mut K, error: *mut *mut cuzarr_error, work: impl FnOnce() -> Result<K::Value>,
) -> cuzarr_status {
    promised!(call(error, || put_new(place, "the handle's place", || work().map(handle))))
}

/// Returns the kind of an error, which is also what the call returned. Returns CUZARR_STATUS_OK for NULL, and
/// CUZARR_STATUS_INVALID_ARGUMENT for a handle of another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_error_status(error: *const cuzarr_error) -> cuzarr_status {
    if error.is_null() {
        return cuzarr_status::Ok;
    }
    promised!(get(error)).map_or(cuzarr_status::InvalidArgument, |texts| texts.status)
}

/// Returns the message of an error: what happened, what was given and what was expected, in English. The text belongs to
/// the error and lives as long as it. NULL for NULL and for a handle of another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_error_message(error: *const cuzarr_error) -> *const c_char {
    promised!(get(error)).map_or(std::ptr::null(), |texts| texts.message.as_ptr())
}

/// Returns the hint of an error: what to do about it. The text belongs to the error and lives as long as it. NULL if there
/// is no hint, for NULL and for a handle of another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_error_hint(error: *const cuzarr_error) -> *const c_char {
    let hint = promised!(get(error)).ok().and_then(|texts| texts.hint.as_ref());
    hint.map_or(std::ptr::null(), |hint| hint.as_ptr())
}

/// Returns all that an error says, to be printed: where it happened (array, chunk, codec), the message and the hint. The
/// text belongs to the error and lives as long as it. NULL for NULL and for a handle of another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_error_text(error: *const cuzarr_error) -> *const c_char {
    promised!(get(error)).map_or(std::ptr::null(), |texts| texts.text.as_ptr())
}

/// Frees an error, with its texts. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_error_free(error: *mut cuzarr_error) {
    promised!(free(error))
}

/// Returns the name of a status, such as "ChunkCorrupt"; "Other" for a number without a name. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn cuzarr_status_name(status: i32) -> *const c_char {
    let others = [(cuzarr_status::Ok, "Ok\0"), (cuzarr_status::Panicked, "Panicked\0")];
    let mut named = KINDS.iter().map(|(_, known, name)| (*known, *name)).chain(others);
    named.find(|(known, _)| *known as i32 == status).map_or("Other\0", |(_, name)| name).as_ptr().cast()
}

/// Returns the version of the library, such as "0.1.0". The text lives for ever. Compare it with CUZARR_VERSION_MAJOR and
/// its neighbours, which are those of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cuzarr_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Major version of this header.
pub const CUZARR_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const CUZARR_VERSION_MINOR: u32 = 1;
/// Patch version of this header.
pub const CUZARR_VERSION_PATCH: u32 = 0;

/// Frees a text that a function of this library made, such as cuzarr_array_attributes. Does nothing for NULL. Texts that
/// belong to a handle, such as those of errors, are not freed by it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises a text that `put_text` made, and that is freed once.
        drop(unsafe { CString::from_raw(text) });
    }
}
