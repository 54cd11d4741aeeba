//! Any text as the options and descriptions that C programs pass: nothing may panic, and what is accepted makes metadata.

use crate::json;

/// Parses `bytes` as each of them. Returns how many were accepted.
pub fn check(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
    let array = json::array(text).map(|(metadata, _)| assert!(!metadata.to_json().is_empty()));
    let group = json::group(Some(text)).and_then(|builder| builder.metadata());
    let options = json::Options::parse(Some(text), Some("cpu"));
    usize::from(array.is_ok()) + usize::from(group.is_ok()) + usize::from(options.is_ok())
}
