//! The records at the end of a ZIP file: where its directory lies, and the members in it.

use std::sync::{Arc, OnceLock};

use super::super::key::validate_key;
use super::Archive;
use crate::error::{Error, ErrorKind, Result};

/// Size in bytes of a ZIP file's end record, without its comment; the constants below are sizes of other records.
pub(super) const END_BYTES: usize = 22;
pub(super) const END64_BYTES: usize = 56;
pub(super) const LOCATOR64_BYTES: usize = 20;
pub(super) const ENTRY_BYTES: usize = 46;
pub(super) const LOCAL_BYTES: u64 = 30;

/// Maximum size of the comment that follows the end record.
const COMMENT_BYTES: usize = u16::MAX as usize;

/// Number of bytes at the end of a ZIP file that are read first, if its store is reached over a network. They contain
/// the whole directory of most files, so one read is enough.
const FAR_TAIL_BYTES: u64 = 256 << 10;

/// Maximum size in bytes of the directory of a ZIP file; a file with a larger one cannot be opened. It has more than
/// two million members with names of usual length.
const DIRECTORY_MAX_BYTES: u64 = 256 << 20;

/// The flag bit of an encrypted ZIP member; `DESCRIBED_BEHIND` is that of members whose sizes follow their bytes.
const ENCRYPTED: u16 = 1;
const DESCRIBED_BEHIND: u16 = 1 << 3;

/// Size in bytes of the record after a ZIP member's bytes; `DESCRIPTOR64_BYTES` is the size with 64-bit numbers.
const DESCRIPTOR_BYTES: u64 = 16;
const DESCRIPTOR64_BYTES: u64 = 24;

/// Maximum number of bytes to which one byte of deflate data can decompress (zlib's technical details).
const DEFLATE_MOST: u64 = 1032;

/// A member of a ZIP file, as the file's directory describes it.
#[derive(Debug)]
pub(super) struct ZipMember {
    pub(super) is_deflated: bool,
    /// Offset of the member's header in the ZIP file.
    pub(super) header_at: u64,
    /// Offset at which the member must have ended: that of the next member, or of the directory after the last one.
    pub(super) limit: u64,
    pub(super) packed_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) checksum: u32,
    /// Offset of the member's bytes in the ZIP file, after the member's header. It is set once the member's own header
    /// has been read.
    pub(super) data_at: OnceLock<u64>,
    /// Size of the member's name in bytes; the member's header repeats the name.
    name_bytes: u64,
    is_described_behind: bool,
}

impl ZipMember {
    /// The offset of the member's bytes, assuming that the file has no gaps between its members. Only the header or the
    /// checksum can confirm it.
    pub(super) fn expected_at(&self) -> Option<u64> {
        let gap = self.gap()?;
        let behind = match gap {
            _ if !self.is_described_behind => 0,
            // The record alone, or together with the ZIP64 field of a header.
            24 | 44 => DESCRIPTOR64_BYTES,
            _ => gap.min(DESCRIPTOR_BYTES),
        };
        let at = self.header_at + LOCAL_BYTES + self.name_bytes + gap - behind;
        (gap - behind <= u64::from(u16::MAX)).then_some(at)
    }

    /// Number of bytes from the start of this member's header to the next member of the ZIP file.
    pub(super) fn span_bytes(&self) -> u64 {
        self.limit - self.header_at
    }

    /// Number of bytes up to the next member that are neither this member's fixed header, nor its name, nor its data.
    fn gap(&self) -> Option<u64> {
        self.span_bytes().checked_sub(LOCAL_BYTES + self.name_bytes)?.checked_sub(self.packed_bytes)
    }

    /// Returns the offset in `header` at which the member's data begin; `header` begins with the member's header.
    ///
    /// # Errors
    /// When these bytes are not a header, or the data would reach into the next member.
    pub(super) fn data_begin(&self, header: &[u8]) -> Result<u64> {
        let names_bytes = u64::from(u16_at(header, 26)?) + u64::from(u16_at(header, 28)?);
        let begin = LOCAL_BYTES + names_bytes;
        let fits = begin.checked_add(self.packed_bytes).is_some_and(|end| end <= self.span_bytes());
        if !header.starts_with(b"PK\x03\x04") || !fits {
            return Err(damaged("a member's header contradicts the directory"));
        }
        Ok(begin)
    }
}

pub(super) fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::StoreFailed, message)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().ok_or_else(|| damaged("a record of the ZIP file is cut off"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

/// Facts about a ZIP file's directory, from the records at the file's end.
pub(super) struct DirectoryEnd {
    /// Offset in the file at which the directory ends.
    pub(super) at: u64,
    pub(super) offset: u64,
    pub(super) size_bytes: u64,
    count: Count,
    /// The comment of the ZIP file.
    pub(super) comment: Vec<u8>,
}

/// The number of members that the records at the end of a ZIP file state. It is only used to check the directory.
#[derive(Clone, Copy)]
enum Count {
    /// The exact number of members, from the ZIP64 record.
    Exact(u64),
    /// The 16-bit number of members from the end record. Writers without ZIP64 drop the higher bits, or set all bits.
    Low(u16),
}

impl Count {
    /// Whether a directory in which `found` members were found agrees with the number that the file states.
    fn allows(self, found: usize) -> bool {
        match self {
            Count::Exact(count) => found as u64 == count,
            Count::Low(count) => found as u16 == count || (count == u16::MAX && found > usize::from(count)),
        }
    }

    fn told(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Low(count) => count.into(),
        }
    }
}

impl DirectoryEnd {
    /// Searches backwards for the end record in `tail`, the last part of the file, which begins at byte `tail_at`.
    pub(super) fn find(tail: &[u8], tail_at: u64) -> Result<DirectoryEnd> {
        let starts = (0..=tail.len().saturating_sub(END_BYTES)).rev();
        let is_end = |&at: &usize| {
            let comment_bytes = u16_at(tail, at + 20).map(usize::from);
            tail[at..].starts_with(b"PK\x05\x06")
                && comment_bytes.is_ok_and(|bytes| at + END_BYTES + bytes == tail.len())
        };
        let at =
            starts.into_iter().find(is_end).ok_or_else(|| damaged("this is no ZIP file, or its end is missing"))?;
        let comment = tail[at + END_BYTES..].to_vec();
        let (disk, count) = (u16_at(tail, at + 4)?, u16_at(tail, at + 10)?);
        let (size_bytes, offset) = (u32_at(tail, at + 12)?, u32_at(tail, at + 16)?);
        let is_large = count == u16::MAX || size_bytes == u32::MAX || offset == u32::MAX;
        let locator = at.checked_sub(LOCATOR64_BYTES).filter(|&locator| tail[locator..].starts_with(b"PK\x06\x07"));
        if let Some(locator) = locator.filter(|_| is_large) {
            let at = locator.checked_sub(END64_BYTES).filter(|&at| tail[at..].starts_with(b"PK\x06\x06"));
            let at = at.ok_or_else(|| damaged("its ZIP64 record is not before its locator"))?;
            return Ok(DirectoryEnd {
                at: tail_at + at as u64,
                count: Count::Exact(u64_at(tail, at + 32)?),
                size_bytes: u64_at(tail, at + 40)?,
                offset: u64_at(tail, at + 48)?,
                comment,
            });
        }
        if disk != 0 && disk != u16::MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the ZIP file is divided into several files"));
        }
        let (offset, size_bytes) = (u64::from(offset), u64::from(size_bytes));
        Ok(DirectoryEnd { at: tail_at + at as u64, offset, size_bytes, count: Count::Low(count), comment })
    }
}

/// The directory of a ZIP file: the list of its members, at the file's end.
pub(super) struct Directory {
    bytes: Vec<u8>,
    /// Offset of the directory in the ZIP file. Members must end before it.
    pub(super) at: u64,
    /// Number of bytes in the file before the ZIP archive, such as a program that unpacks it. Offsets in the archive do
    /// not count them.
    pub(super) moved: u64,
    pub(super) end: DirectoryEnd,
}

impl Directory {
    /// Reads the end of the file, and then the directory if the end does not contain all of it.
    ///
    /// # Errors
    /// `StoreFailed` when this is no ZIP file, or a damaged one; `BudgetExceeded` for a directory that is too large.
    pub(super) fn read(archive: &Archive) -> Result<Directory> {
        let near_bytes = (END_BYTES + COMMENT_BYTES + END64_BYTES + LOCATOR64_BYTES) as u64;
        let tail_at = archive.size_bytes.saturating_sub(if archive.is_far { FAR_TAIL_BYTES } else { near_bytes });
        let mut tail = archive.bytes(tail_at, archive.size_bytes - tail_at)?;
        let end = DirectoryEnd::find(&tail, tail_at)?;
        if end.size_bytes > DIRECTORY_MAX_BYTES {
            let message = format!("its directory has {} bytes, at most {DIRECTORY_MAX_BYTES} are read", end.size_bytes);
            return Err(Error::new(ErrorKind::BudgetExceeded, message));
        }
        let at = end.at.checked_sub(end.size_bytes).ok_or_else(|| damaged("its directory is cut off"))?;
        let moved = at.checked_sub(end.offset).ok_or_else(|| damaged("its directory is not where it says"))?;
        let bytes = match at.checked_sub(tail_at) {
            Some(begin) => tail.drain(begin as usize..(end.at - tail_at) as usize).collect(),
            None => archive.bytes(at, end.size_bytes)?,
        };
        Ok(Directory { bytes, at, moved, end })
    }

    /// Parses the directory's entries of all members, in the order of the directory.
    ///
    /// # Errors
    /// `StoreFailed` for a damaged directory; `Unsupported` for members that cannot be read.
    pub(super) fn entries(&self) -> Result<Vec<DirectoryEntry<'_>>> {
        parse_directory(&self.bytes, &self.end, self.moved, self.at)
    }
}

/// The entry of one member in the directory of a ZIP file.
pub(super) struct DirectoryEntry<'a> {
    /// The member's key; `None` for folders, and for names that are not valid keys.
    pub(super) key: Option<&'a str>,
    pub(super) member: Arc<ZipMember>,
    /// The bytes of this member's entry in the directory.
    pub(super) record: &'a [u8],
}

/// Parses the entries of the directory one by one. Members must lie before the directory, and must not overlap. The
/// directory must have the size that the end record gives. It must also have that record's number of members, because a
/// missing member would look like a chunk that was never written.
fn parse_directory<'a>(
    directory: &'a [u8],
    end: &DirectoryEnd,
    moved: u64,
    directory_at: u64,
) -> Result<Vec<DirectoryEntry<'a>>> {
    let mut members = Vec::with_capacity(directory.len() / ENTRY_BYTES);
    let mut rest = directory;
    while !rest.is_empty() && !is_signature(rest) {
        let (name, member, entry_bytes) = parse_entry(rest, moved)?;
        let record;
        (record, rest) = rest.split_at(entry_bytes);
        // At least the member's header, name and bytes must lie before the directory.
        let least_bytes = LOCAL_BYTES + name.len() as u64;
        let span_end = member.header_at.checked_add(least_bytes).and_then(|at| at.checked_add(member.packed_bytes));
        let span_end = span_end.filter(|&end| end <= directory_at);
        let span_end = span_end.ok_or_else(|| damaged(format!("member '{}' lies outside of it", shown(name))))?;
        // A name that is not a valid key cannot be requested.
        let key = std::str::from_utf8(name).ok().filter(|key| validate_key(key).is_ok());
        members.push((key, member, span_end, record));
    }
    if !end.count.allows(members.len()) {
        let message = format!("it claims {} members, but its directory has {}", end.count.told(), members.len());
        return Err(damaged(message));
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_unstable_by_key(|&place| (members[place].1.header_at, members[place].2));
    let mut limit = directory_at;
    for &place in order.iter().rev() {
        let (_, member, span_end, _) = &mut members[place];
        if *span_end > limit {
            return Err(damaged("two of its members overlap"));
        }
        member.limit = limit;
        limit = member.header_at;
    }
    let entry = |(key, member, _, record)| DirectoryEntry { key, member: Arc::new(member), record };
    Ok(members.into_iter().map(entry).collect())
}

/// Whether all of `rest` is the digital signature record that may follow the entries of a ZIP directory.
fn is_signature(rest: &[u8]) -> bool {
    rest.starts_with(b"PK\x05\x05") && u16_at(rest, 4).is_ok_and(|size_bytes| rest.len() == 6 + usize::from(size_bytes))
}

fn shown(name: &[u8]) -> String {
    crate::error::printable(&String::from_utf8_lossy(&name[..name.len().min(100)])).to_string()
}

/// Parses the directory entry at the beginning of `bytes`. Returns its name, its member and its size.
fn parse_entry(bytes: &[u8], moved: u64) -> Result<(&[u8], ZipMember, usize)> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return Err(damaged("its directory is damaged"));
    }
    let (flags, method) = (u16_at(bytes, 8)?, u16_at(bytes, 10)?);
    let (checksum, packed, size) = (u32_at(bytes, 16)?, u32_at(bytes, 20)?, u32_at(bytes, 24)?);
    let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|at| u16_at(bytes, at));
    let (name_end, header_at) = (ENTRY_BYTES + usize::from(name_bytes?), u32_at(bytes, 42)?);
    let extra_end = name_end + usize::from(extra_bytes?);
    let entry_bytes = extra_end + usize::from(comment_bytes?);
    let (Some(name), Some(extra)) = (bytes.get(ENTRY_BYTES..name_end), bytes.get(name_end..extra_end)) else {
        return Err(damaged("its directory is cut off"));
    };
    if bytes.len() < entry_bytes {
        return Err(damaged("its directory is cut off"));
    }
    let [size_bytes, packed_bytes, header_at] = zip64([size, packed, header_at], extra)?;
    let header_at = header_at.checked_add(moved).ok_or_else(|| damaged("a member lies outside of it"))?;
    let is_encrypted = flags & ENCRYPTED != 0;
    if is_encrypted || !matches!(method, 0 | 8) {
        let what = if is_encrypted { "encrypted".into() } else { format!("compressed by method {method}") };
        let message = format!("member '{}' is {what}; stored and deflated members are read", shown(name));
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let is_deflated = method == 8;
    let possible = if is_deflated { size_bytes / DEFLATE_MOST <= packed_bytes } else { size_bytes == packed_bytes };
    if !possible {
        let message = format!("member '{}' cannot have {size_bytes} bytes in {packed_bytes}", shown(name));
        return Err(damaged(message));
    }
    let member = ZipMember {
        is_deflated,
        header_at,
        limit: header_at,
        packed_bytes,
        size_bytes,
        checksum,
        data_at: OnceLock::new(),
        name_bytes: name.len() as u64,
        is_described_behind: flags & DESCRIBED_BEHIND != 0,
    };
    Ok((name, member, entry_bytes))
}

/// Returns the full values of a directory entry's two sizes and its offset, which have 32-bit fields. For those that
/// are all ones, the value is in the ZIP64 field of `extra`, in the same order.
fn zip64(fields: [u32; 3], extra: &[u8]) -> Result<[u64; 3]> {
    let mut rest = extra;
    let mut large: &[u8] = &[];
    while rest.len() >= 4 {
        let (id, size_bytes) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let Some(body) = rest.get(4..4 + size_bytes) else { break };
        if id == 1 {
            large = body;
            break;
        }
        rest = &rest[4 + size_bytes..];
    }
    let mut found = [0; 3];
    for (found, field) in found.iter_mut().zip(fields) {
        *found = u64::from(field);
        if field == u32::MAX {
            *found = u64_at(large, 0)?;
            large = &large[8..];
        }
    }
    Ok(found)
}
