//! The error type of the library. An error has a kind ([`ErrorKind`]), a trail to its place (array, chunk, codec), a
//! hint, a cause, and other errors of the same call.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Declares the enum [`ErrorKind`] and the list of all kinds of errors, from which bindings to other languages copy the
/// kinds.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The kind of an error, by which callers can tell what happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl ErrorKind {
            /// Every kind of error, in the order in which this enum declares them.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The name of this kind of error, such as `ChunkCorrupt`. It is the same in every language and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorKind::$name => stringify!($name),)*
                }
            }
        }
    };
}

kinds! {
    /// An argument is not valid.
    InvalidArgument,
    /// A number does not fit the element type.
    OutOfRange,
    /// A configuration key or value is not valid.
    ConfigInvalid,
    /// There is no array or group at this path.
    NodeNotFound,
    /// There is no array at this path.
    ArrayNotFound,
    /// There is no group at this path.
    GroupNotFound,
    /// An array already exists at the path.
    ContainsArray,
    /// A group already exists at the path.
    ContainsGroup,
    /// Metadata is not JSON, or violates its specification.
    MetadataInvalid,
    /// The name of a codec is not known.
    UnknownCodec,
    /// The name of a data type is not known.
    UnknownDataType,
    /// The metadata requires an extension or a feature that is not supported.
    UnsupportedFeature,
    /// The selection does not fit the array.
    SelectionInvalid,
    /// Shapes differ that must agree.
    ShapeMismatch,
    /// Data types differ that must agree.
    DTypeMismatch,
    /// Encoded bytes cannot be decoded.
    ChunkCorrupt,
    /// A stored checksum differs from the computed one.
    ChecksumMismatch,
    /// A chunk is missing, and missing chunks are not allowed.
    ChunkNotFound,
    /// A value cannot be encoded as the codec or data type requires.
    EncodeFailed,
    /// A key leads outside the store, or is not valid.
    KeyInvalid,
    /// The store (a file system, server or other backend) could not carry out a request.
    StoreFailed,
    /// The store denies the operation to this user.
    PermissionDenied,
    /// The store or array was opened for reading only.
    ReadOnly,
    /// The memory is on a device where the operation cannot use it.
    MemorySpace,
    /// The operation has no implementation for this data type or device.
    Unsupported,
    /// The device does not exist, or its driver cannot be used.
    DeviceUnavailable,
    /// A library for this operation was not found, or is too old.
    LibraryMissing,
    /// The operation needs more bytes than a limit, such as `memory_limit`, allows.
    BudgetExceeded,
    /// The device or the host is out of memory.
    OutOfMemory,
    /// A kernel did not compile.
    KernelCompileFailed,
    /// The device's driver reported a failure.
    DeviceFailed,
    /// A part of the read or write would have to run on the host instead of the device, and the setting `strict`
    /// forbids it.
    FallbackRefused,
    /// The call was stopped because its cancellation token was cancelled.
    Cancelled,
}

impl ErrorKind {
    /// Whether this kind of error means that the store failed or refused a request, so that it is not known what is
    /// stored.
    pub(crate) const fn is_of_store(self) -> bool {
        matches!(self, ErrorKind::StoreFailed | ErrorKind::PermissionDenied)
    }
}

/// An error of this library: its kind, a message, where it happened, a hint and a cause. It has the size of one
/// pointer.
///
/// `to_string` returns trail, message and hint. If the message repeats the text of an error, that error is left out of
/// the chain of [`source`](StdError::source). So a program that prints the chain prints nothing twice.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    trail: Vec<String>,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// Whether the error's message already contains the text of its cause `source`, so that this text is not printed
    /// twice.
    is_source_told: bool,
    others: Vec<Error>,
}

/// Maximum number of characters in an error message, and in each text that says where the error happened; longer texts
/// are cut. Such texts contain names, shapes and keys, which come from stored bytes.
const LONGEST_MESSAGE: usize = 2000;

/// Cuts a text of an error to `LONGEST_MESSAGE` characters if it is longer.
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_MESSAGE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A `Result` whose error is this library's `Error`, unless another type `E` is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind`. `message` says what happened, and what was got and expected, in lower case without a
    /// full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: shortened(message.into()),
            trail: Vec::new(),
            hint: None,
            source: None,
            is_source_told: false,
            others: Vec::new(),
        }))
    }

    /// Adds `place`, such as the name of a chunk, to the front of the list that tells where the error happened (its
    /// "trail"). Each caller adds its place as the error passes, so the trail reads array → chunk → codec → device.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.0.trail.insert(0, shortened(place.into()));
        self
    }

    /// Adds a hint: what the user can do, as an imperative.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Spells the options that the hint names as a surface of the library does, such as `--overwrite` on a command line.
    /// Hints name options between backticks: "begin again with \`overwrite\`". `spelled` returns `None` for names that are
    /// no options.
    #[must_use]
    pub fn with_options_spelled(mut self, spelled: impl Fn(&str) -> Option<String>) -> Self {
        let parts = self.0.hint.iter().flat_map(|hint| hint.split('`')).enumerate();
        let hint = parts.map(|(number, part)| match (number % 2, spelled(part)) {
            (0, _) => part.to_string(),
            (_, Some(option)) => option,
            (_, None) => format!("`{part}`"),
        });
        self.0.hint = self.0.hint.is_some().then(|| hint.collect());
        self
    }

    /// Adds a hint with the known name that is most similar to a wrong name, if there is one.
    #[must_use]
    pub fn with_nearest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(name, known) {
            Some(near) => self.with_hint(format!("did you mean '{near}'?")),
            None => self,
        }
    }

    /// Adds the cause of this error, whose text the message does not contain.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self.0.is_source_told = false;
        self
    }

    /// Adds the cause of this error, whose text the message already contains. So `source` skips it and returns the
    /// cause of the cause, as [`std::io::Error`] does. [`Error::source_as`] returns the cause itself.
    ///
    /// ```
    /// # use std::error::Error as _;
    /// # use std::io;
    /// use cuzarr::{Error, ErrorKind};
    /// let full = io::Error::from(io::ErrorKind::StorageFull);
    /// let error = Error::new(ErrorKind::StoreFailed, format!("cannot write 'c/0': {full}")).telling(full);
    /// assert_eq!(error.to_string(), "cannot write 'c/0': no storage space");
    /// assert!(error.source().is_none());
    /// assert_eq!(error.source_as::<io::Error>().unwrap().kind(), io::ErrorKind::StorageFull);
    /// ```
    #[must_use]
    pub fn telling(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self = self.with_source(source);
        self.0.is_source_told = true;
        self
    }

    /// Adds errors that other threads of the same call reported.
    #[must_use]
    pub fn with_others(mut self, others: impl IntoIterator<Item = Error>) -> Self {
        self.0.others.extend(others);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message: what happened, without where it happened, the hint and the cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where the error happened, from the outermost place to the innermost, such as an array and then a chunk.
    pub fn trail(&self) -> &[String] {
        &self.0.trail
    }

    /// The hint: what the user can do about the error.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The cause of this error, if it is a `T`. It is returned even if the message repeats its text.
    pub fn source_as<T: StdError + 'static>(&self) -> Option<&T> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Errors that other threads of the same call reported.
    pub fn others(&self) -> &[Error] {
        &self.0.others
    }
}

/// A method of results that adds to an error where it happened: `result.at("chunk 'c/0'")`.
pub trait ResultExt<T> {
    /// Adds `place`, such as the name of a chunk, to the front of the list that tells where the error happened (its
    /// "trail"). `place` is only called if there is an error.
    fn at<P: Into<String>>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for Result<T, E> {
    fn at<P: Into<String>>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|error| error.into().at(place()))
    }
}

impl From<cuzarr_device::Error> for Error {
    fn from(error: cuzarr_device::Error) -> Self {
        use cuzarr_device::ErrorKind as Device;
        let kind = match error.kind() {
            Device::InvalidArgument => ErrorKind::InvalidArgument,
            Device::MemorySpace => ErrorKind::MemorySpace,
            Device::Unsupported => ErrorKind::Unsupported,
            Device::DeviceUnavailable => ErrorKind::DeviceUnavailable,
            Device::LibraryMissing => ErrorKind::LibraryMissing,
            Device::BudgetExceeded => ErrorKind::BudgetExceeded,
            Device::OutOfMemory => ErrorKind::OutOfMemory,
            Device::KernelCompileFailed => ErrorKind::KernelCompileFailed,
            _ => ErrorKind::DeviceFailed,
        };
        let mut own = Error::new(kind, error.message());
        own.0.hint = error.hint().map(String::from);
        own.telling(error)
    }
}

/// Makes text safe to show on a terminal. Characters that control the terminal, end a line or change the direction of
/// writing are replaced by escapes such as `\u{1b}`. Names and attributes come from files of unknown authors.
///
/// ```
/// assert_eq!(cuzarr::internal::printable("tas\u{1b}]0;owned\u{7}"), "tas\\u{1b}]0;owned\\u{7}");
/// assert_eq!(cuzarr::internal::printable("Änderung"), "Änderung");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_printable(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// Like [`printable`], but keeps line feeds, for a text of several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if text.chars().all(|character| character == '\n' || is_printable(character)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(printable).collect::<Vec<_>>().join("\n"))
}

/// Whether a terminal shows this character as itself, and does not obey it as a control character. `str::escape_debug`
/// knows which characters are printable in Unicode. After an `a`, it does not escape combining characters.
pub fn is_printable(character: char) -> bool {
    match character.is_ascii() {
        true => !character.is_ascii_control(),
        false => String::from_iter(['a', character]).escape_debug().count() == 2,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.0.trail {
            write!(f, "{}: ", printable(place))?;
        }
        // Messages of a compiler have several lines.
        match self.0.kind {
            ErrorKind::KernelCompileFailed => f.write_str(&printable_lines(&self.0.message))?,
            _ => f.write_str(&printable(&self.0.message))?,
        }
        match self.0.others.len() {
            0 => {}
            1 => f.write_str(" (and 1 more failure)")?,
            n => write!(f, " (and {n} more failures)")?,
        }
        match &self.0.hint {
            Some(hint) => write!(f, "\nhint: {}", printable(hint)),
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
        let source = self.0.source.as_deref()?;
        if self.0.is_source_told { source.source() } else { Some(source) }
    }
}

/// Finds the known name that a wrong name probably means. The known name may differ in case or in a few letters (more
/// in longer names), begin with the wrong name, or have it after its last dot.
///
/// ```
/// assert_eq!(cuzarr::internal::nearest("flaot32", ["float32", "float64"]), Some("float32"));
/// assert_eq!(cuzarr::internal::nearest("jpeg", ["float32", "float64"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64; // names come from stored bytes, too
    let wrong: Vec<char> = name.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if wrong.len() > LONGEST {
        return None;
    }
    let allowed = (wrong.len() + 1) / 4;
    let ranked = known.into_iter().filter_map(|candidate| {
        let right: Vec<char> = candidate.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
        let is_last_part = right.ends_with(&wrong) && right.iter().rev().nth(wrong.len()) == Some(&'.');
        let distance = edits(&wrong, &right);
        let rank = match () {
            () if distance == 0 || is_last_part => 0,
            () if distance <= allowed => distance,
            () if wrong.len() >= 3 && right.starts_with(&wrong) => LONGEST + right.len(),
            () => return None,
        };
        Some((rank, candidate))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, candidate)| candidate)
}

/// The number of edits that turn one word into another, for finding the most similar word. An edit inserts, deletes or
/// replaces a letter, or swaps two neighbours.
fn edits(from: &[char], to: &[char]) -> usize {
    // Three rows of the table: the one before the last, the last, and the current one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, &a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == to[j - 1] && from[i - 1] == b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names_are_few_letters_away() {
        let known = ["zstd", "gzip", "blosc", "array.order", "float16", "float32", "threading.max_workers"];
        let near = |name| nearest(name, known);
        assert_eq!(near("zsdt"), Some("zstd"));
        assert_eq!(near("ZSTD"), Some("zstd"));
        assert_eq!(near("blsc"), Some("blosc"));
        assert_eq!(near("order"), Some("array.order"));
        assert_eq!(near("thread"), Some("threading.max_workers"));
        assert_eq!(near("float23"), Some("float32"));
        for strange in ["", "x", "lzma", "float8", "jpeg2k", &"z".repeat(1 << 20)] {
            assert_eq!(near(strange), None, "{}", strange.len());
        }
    }

    #[test]
    fn trail_reads_from_array_to_codec() {
        let error: Result<()> = Err(Error::new(ErrorKind::ChunkCorrupt, "frame ends early: got 3 bytes, expected 20"));
        let error = error.at(|| "codec 'zstd'").at(|| "chunk 'c/0/1'").at(|| "array '/t'").unwrap_err();
        assert_eq!(
            error.to_string(),
            "array '/t': chunk 'c/0/1': codec 'zstd': frame ends early: got 3 bytes, expected 20"
        );
    }

    /// The text of an error with all its causes, as anyhow prints it.
    fn printed_chain(error: &Error) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(below) = next {
            text += &format!("\ncaused by: {below}");
            next = below.source();
        }
        text
    }

    #[test]
    fn clone_keeps_everything() {
        let error = Error::new(ErrorKind::StoreFailed, "broken").with_hint("mend it").at("key 'a'").at("store 's'");
        let error = error.with_source(fmt::Error).with_others([Error::new(ErrorKind::Cancelled, "cancelled")]);
        let clone = error.clone().at("array '/t'");
        assert_eq!(clone.trail(), ["array '/t'", "store 's'", "key 'a'"]);
        assert_eq!((clone.kind(), clone.message(), clone.hint()), (error.kind(), "broken", Some("mend it")));
        assert_eq!(clone.others()[0].kind(), ErrorKind::Cancelled);
        assert!(clone.source_as::<fmt::Error>().is_some());
        assert_eq!(printed_chain(&clone), format!("array '/t': {}", printed_chain(&error)));
    }

    #[test]
    fn hints_name_options_as_the_surface_does() {
        let error = Error::new(ErrorKind::ContainsArray, "an array is there");
        let spelled = |hint: &str| {
            let options = |name: &str| (name == "overwrite").then(|| "--overwrite".to_string());
            error.clone().with_hint(hint).with_options_spelled(options).hint().map(String::from)
        };
        assert_eq!(spelled("use `overwrite`").as_deref(), Some("use --overwrite"));
        assert_eq!(spelled("`astype` it, or `overwrite` it").as_deref(), Some("`astype` it, or --overwrite it"));
        assert_eq!(spelled("overwrite it").as_deref(), Some("overwrite it"));
        assert_eq!(error.clone().with_options_spelled(|_| None).hint(), None);
    }

    #[test]
    fn a_source_that_the_message_tells_is_not_printed_again() {
        use cuzarr_device::ErrorKind as Kind;
        let root = cuzarr_device::Error::new(Kind::DeviceFailed, "CUDA error 2");
        let below = cuzarr_device::Error::new(Kind::OutOfMemory, "cuda:0 has no 5 bytes left").with_source(root);
        let error = Error::from(below).at("array '/t'");
        assert_eq!(printed_chain(&error), "array '/t': cuda:0 has no 5 bytes left\ncaused by: CUDA error 2");
        assert_eq!(error.source_as::<cuzarr_device::Error>().unwrap().kind(), Kind::OutOfMemory);
    }

    #[test]
    fn device_errors_keep_kind_and_hint() {
        let device = cuzarr_device::Error::new(cuzarr_device::ErrorKind::BudgetExceeded, "asked 2, used 1, allowed 2");
        let error = Error::from(device.with_hint("raise memory_limit"));
        assert_eq!((error.kind(), error.hint()), (ErrorKind::BudgetExceeded, Some("raise memory_limit")));
    }
}
