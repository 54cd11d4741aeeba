//! Rules for valid keys of stores, and functions that join keys.

use crate::error::{Error, ErrorKind, Result};

/// The name of a value in a store: segments joined by `/`, as in `images/c/0/1`. The empty key is the root prefix and
/// never names a value. See [`validate_key`] for the rules.
pub type Key = str;

/// Checks that `key` is a valid key for every store. It refuses the empty string, a leading, trailing or doubled `/`,
/// the segments `.` and `..`, NUL, and `\`, which is a separator on some systems.
///
/// # Errors
/// `KeyInvalid`, with the reason.
pub fn validate_key(key: &Key) -> Result<()> {
    if key.is_empty() {
        return Err(invalid(key, "it is empty"));
    }
    for segment in key.split('/') {
        let reason = match segment {
            "" => "a segment is empty",
            "." | ".." => "segments '.' and '..' are not allowed",
            _ if segment.bytes().any(|byte| byte == 0) => "it contains a NUL",
            _ if segment.contains('\\') => "it contains a backslash",
            _ if cfg!(windows) && segment.contains(':') => "it contains a colon",
            _ => continue,
        };
        return Err(invalid(key, reason));
    }
    Ok(())
}

/// Like [`validate_key`], for prefixes, which may be empty.
///
/// # Errors
/// `KeyInvalid`, with the reason.
pub fn validate_prefix(prefix: &Key) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { validate_key(prefix) }
}

/// Whether a key names a metadata document of an array or a group, in either Zarr format.
pub(super) fn is_document(key: &Key) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"].contains(&name)
}

/// Joins a prefix and a name: `prefix/name`, or `name` below the root.
pub fn join_key(prefix: &Key, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") }
}

fn invalid(key: &Key, reason: &str) -> Error {
    Error::new(ErrorKind::KeyInvalid, format!("{key:?} is not a valid key: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_keys_that_only_look_odd() {
        for key in ["a", "zarr.json", "c/0/1", "...", "..a/.b", "a b/ü/%2e", "~", "$HOME", "a\nb"] {
            assert!(validate_key(key).is_ok(), "{key:?}");
        }
    }

    #[test]
    fn refuses_what_could_leave_a_root() {
        for key in ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/./b", "a\0b", "..\\a", "a\\b"] {
            assert_eq!(validate_key(key).unwrap_err().kind(), ErrorKind::KeyInvalid, "{key:?}");
        }
    }
}
