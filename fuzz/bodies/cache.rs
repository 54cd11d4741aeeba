//! Any lines as those of an entry of the cache, with their right checksum: nothing may panic, and no other bytes come back.

use std::path::Path;

use cuzarr_remote::internal::read_entry;

/// The bytes of every entry.
const BYTES: &[u8] = b"twelve bytes";

/// Their CRC-32C.
pub const CHECKSUM: u32 = 0xf22a_f478;

/// Reads an entry of these lines below `folder`. Returns whether its bytes came back.
pub fn check(folder: &Path, lines: &[u8]) -> usize {
    let found = read_entry(folder, lines, BYTES);
    assert!(found.as_deref().is_none_or(|found| found == BYTES), "{:?}", String::from_utf8_lossy(lines));
    usize::from(found.is_some())
}
