//! Any bytes as a metadata file of Icechunk, or as the FlatBuffer of one: nothing may panic.

use cuzarr_remote::internal::{flat_content, read_as_every_kind};

/// Reads `bytes` as both. Returns how many kinds of file they can be.
pub fn check(bytes: &[u8]) -> usize {
    let content = flat_content(bytes);
    read_as_every_kind(content.as_deref().unwrap_or(bytes))
}
