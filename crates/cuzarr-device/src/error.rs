//! The error type of this crate: what happened ([`ErrorKind`]), to what, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The kind of an error, for callers that handle kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong: a shape that overflows, axes that repeat, a range outside the memory.
    InvalidArgument,
    /// Memory is on another device than the operation needs.
    MemorySpace,
    /// The operation has no implementation for this dtype or device.
    Unsupported,
    /// There is no such device, or its driver cannot be used.
    DeviceUnavailable,
    /// A library that this operation needs was not found or is too old.
    LibraryMissing,
    /// The work needs more memory than the caller's memory limit allows.
    BudgetExceeded,
    /// The device or the host had no memory left.
    OutOfMemory,
    /// The CUDA C++ text of a kernel did not compile.
    KernelCompileFailed,
    /// The driver, or another library that works on the device, reported a failure.
    DeviceFailed,
}

/// An error in work with device memory, streams or kernels: its kind, its message, and often a hint. It is one pointer
/// in size.
#[derive(Clone)]
pub struct Error(Box<ErrorInner>);

#[derive(Clone)]
struct ErrorInner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind`. `message` says what, where, got and expected, in lower case without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorInner { kind, message: message.into(), hint: None, source: None }))
    }

    /// Adds a hint to the error: what the user can do about it, as an imperative.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a hint, which says what the user can do, if the error has none yet.
    pub(crate) fn or_hint(self, hint: &str) -> Self {
        match self.0.hint {
            Some(_) => self,
            None => self.with_hint(hint),
        }
    }

    /// Adds to this error the one that caused it. The message should not repeat its text.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error's message: what happened, and to what. Without hint and source.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The error's hint: what the user can do about it; `None` if it has no hint.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
