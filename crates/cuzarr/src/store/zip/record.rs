//! The records of a ZIP file, as bytes to write.
//!
//! All times are the earliest time of the format, so that files with equal contents are equal.

use crate::error::{Error, ErrorKind, Result};

/// The version of the ZIP format (2.0) that a reader needs for folders and deflate; `VERSION64` (4.5) is for ZIP64.
const VERSION: u16 = 20;
const VERSION64: u16 = 45;

/// The value of the "version made by" field for members whose attributes are those of a Unix file.
const MADE_BY_UNIX: u16 = 3 << 8;
const PLAIN_FILE: u32 = 0o100_644 << 16;

/// The flag that says that a member's name is UTF-8.
const UTF8: u16 = 1 << 11;

/// The date that every member gets: the earliest one of the format, 1980-01-01.
const DATE: u16 = 0x21;

/// A member of a ZIP file, with the fields that its header and its directory entry need.
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    pub(super) is_deflated: bool,
    pub(super) checksum: u32,
    pub(super) packed_bytes: u64,
    pub(super) size_bytes: u64,
}

/// Converts a number for a 32-bit field of the ZIP format; a number that does not fit becomes 0xFFFFFFFF. Then the
/// value is in the ZIP64 field.
fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Whether a value does not fit a 32-bit field, and must be in the ZIP64 field.
fn is_large(value: &u64) -> bool {
    *value >= u64::from(u32::MAX)
}

impl Described<'_> {
    fn name_bytes(&self) -> Result<u16> {
        u16::try_from(self.name.len()).map_err(|_| {
            let message = format!("names in ZIP files have at most {} bytes, got {}", u16::MAX, self.name.len());
            Error::new(ErrorKind::KeyInvalid, message)
        })
    }

    /// Makes the fields that a member's header and its directory entry have in common: from the version to the sizes.
    fn shared(&self, version: u16) -> Vec<u8> {
        let flags = if self.name.is_ascii() { 0 } else { UTF8 };
        let method = if self.is_deflated { 8u16 } else { 0 };
        let mut bytes: Vec<u8> =
            [version, flags, method, 0, DATE].iter().flat_map(|field| field.to_le_bytes()).collect();
        let sizes = [self.checksum, small(self.packed_bytes), small(self.size_bytes)];
        bytes.extend(sizes.iter().flat_map(|field| field.to_le_bytes()));
        bytes
    }

    /// Makes the header that precedes the member's bytes in the ZIP file.
    ///
    /// # Errors
    /// `KeyInvalid` for a name that is too long.
    pub(super) fn header(&self) -> Result<Vec<u8>> {
        // If one size is large, both are in the ZIP64 field.
        let is_large = is_large(&self.packed_bytes) || is_large(&self.size_bytes);
        let (extra, version) = match is_large {
            true => (zip64(&[self.size_bytes, self.packed_bytes]), VERSION64),
            false => (Vec::new(), VERSION),
        };
        let mut shared = self.shared(version);
        if is_large {
            shared[14..22].fill(0xff);
        }
        let lengths = [self.name_bytes()?, extra.len() as u16].map(u16::to_le_bytes).concat();
        Ok([b"PK\x03\x04", &shared[..], &lengths, self.name.as_bytes(), &extra].concat())
    }

    /// Makes the directory entry of a member whose header begins at `header_at`.
    ///
    /// # Errors
    /// `KeyInvalid` for a name that is too long.
    pub(super) fn entry(&self, header_at: u64) -> Result<Vec<u8>> {
        let large: Vec<u64> = [self.size_bytes, self.packed_bytes, header_at].into_iter().filter(is_large).collect();
        let extra = if large.is_empty() { Vec::new() } else { zip64(&large) };
        let version = if large.is_empty() { VERSION } else { VERSION64 };
        let lengths = [self.name_bytes()?, extra.len() as u16, 0, 0, 0].map(u16::to_le_bytes).concat();
        Ok([
            b"PK\x01\x02",
            &(MADE_BY_UNIX | VERSION64).to_le_bytes()[..],
            &self.shared(version),
            &lengths,
            &PLAIN_FILE.to_le_bytes(),
            &small(header_at).to_le_bytes(),
            self.name.as_bytes(),
            &extra,
        ]
        .concat())
    }
}

/// Makes the ZIP64 field of a record, which holds values that do not fit 32-bit fields.
fn zip64(values: &[u64]) -> Vec<u8> {
    let head = [1, 8 * values.len() as u16].map(u16::to_le_bytes).concat();
    head.into_iter().chain(values.iter().flat_map(|value| value.to_le_bytes())).collect()
}

/// Makes the records after a directory, which has `count` entries in `size_bytes` bytes at `offset`.
pub(super) fn end(count: u64, size_bytes: u64, offset: u64, comment: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if count >= u64::from(u16::MAX) || is_large(&size_bytes) || is_large(&offset) {
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([MADE_BY_UNIX | VERSION64, VERSION64].map(u16::to_le_bytes).concat());
        bytes.extend([0; 8]);
        bytes.extend([count, count, size_bytes, offset].map(u64::to_le_bytes).concat());
        bytes.extend(b"PK\x06\x07");
        bytes.extend([0; 4]);
        bytes.extend((offset + size_bytes).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
    }
    let small_count = u16::try_from(count).unwrap_or(u16::MAX);
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0, 0, small_count, small_count].map(u16::to_le_bytes).concat());
    bytes.extend([small(size_bytes), small(offset)].map(u32::to_le_bytes).concat());
    bytes.extend((comment.len() as u16).to_le_bytes());
    bytes.extend(comment);
    bytes
}
