//! Reads members of a ZIP file that are compressed with deflate.

use std::io::{self, Read};
use std::sync::Arc;

use flate2::read::DeflateDecoder;

use super::super::batch::Source;
use super::super::object::Object;
use super::super::{Key, Version};
use super::directory::{ZipMember, damaged};
use super::{Archive, ZipStore};
use crate::error::{Error, Result};

/// Number of compressed bytes of a member that are read at a time, before they are decompressed.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Opens the deflate-compressed members of a ZIP file, to read them window by window; reports missing keys.
pub(super) struct Deflated(pub(super) ZipStore);

pub(super) struct DeflatedMember {
    archive: Arc<Archive>,
    member: Arc<ZipMember>,
}

impl Source for Deflated {
    type Object = DeflatedMember;

    fn open(&self, key: &Key) -> Result<Option<DeflatedMember>> {
        let Some(member) = self.0.members.get(key)? else { return Ok(None) };
        self.0.locate(std::slice::from_ref(&member))?;
        Ok(Some(DeflatedMember { archive: Arc::clone(&self.0.archive), member }))
    }

    fn name(&self) -> String {
        self.0.to_string()
    }
}

impl Object for DeflatedMember {
    fn size_bytes(&self) -> u64 {
        self.member.size_bytes
    }

    fn version(&self) -> Option<Version> {
        self.archive.version.clone()
    }

    // A thread that fills a part would have to decompress everything before it.
    fn is_divisible(&self) -> bool {
        false
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let at = self.member.data_at.get().copied().unwrap_or(0);
        let packed =
            Packed { archive: &self.archive, at, end: at + self.member.packed_bytes, window: Vec::new(), used: 0 };
        inflate(packed, self.member.size_bytes, self.member.checksum, offset, bytes)
    }

    // Each window was checked against the version of the directory.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

/// Decompresses a member of a ZIP file, and fills `bytes` with its bytes from `offset` on. If they are all `size_bytes`
/// of the member, the checksum is verified.
pub(super) fn inflate(packed: impl Read, size_bytes: u64, checksum: u32, offset: u64, bytes: &mut [u8]) -> Result<()> {
    let mut decoder = DeflateDecoder::new(packed);
    let failed = |error: io::Error| match error.downcast::<Error>() {
        Ok(own) => own,
        Err(error) => damaged(format!("the member cannot be decompressed: {error}")),
    };
    let skipped = io::copy(&mut decoder.by_ref().take(offset), &mut io::sink()).map_err(failed)?;
    if skipped < offset {
        return Err(damaged("the member is shorter than the directory says"));
    }
    decoder.read_exact(bytes).map_err(failed)?;
    if bytes.len() as u64 == size_bytes && crc32fast::hash(bytes) != checksum {
        return Err(damaged("the member's checksum is wrong"));
    }
    Ok(())
}

/// Reads the compressed bytes of a member of a ZIP file, one window at a time.
struct Packed<'a> {
    archive: &'a Archive,
    at: u64,
    end: u64,
    window: Vec<u8>,
    used: usize,
}

impl Read for Packed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.used == self.window.len() {
            let size_bytes = (self.end - self.at).min(WINDOW_BYTES);
            self.window = self.archive.bytes(self.at, size_bytes).map_err(io::Error::other)?;
            (self.used, self.at) = (0, self.at + size_bytes);
        }
        let count = bytes.len().min(self.window.len() - self.used);
        bytes[..count].copy_from_slice(&self.window[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
