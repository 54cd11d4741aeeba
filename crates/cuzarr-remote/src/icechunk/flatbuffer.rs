//! Reads FlatBuffers from untrusted bytes: tables, vectors and strings.
//!
//! Format: <https://flatbuffers.dev/internals/>. Every offset is checked when it is followed. Offsets only point
//! forwards, and the caller's schema limits the depth, so there are no loops.

use cuzarr::{Error, ErrorKind, Result};

pub(super) fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("a metadata file of the repository is damaged: {what}"))
}

fn cut_off() -> Error {
    damaged("it is cut off")
}

/// Returns the `N` bytes at position `at` of a FlatBuffer.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or_else(cut_off)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<usize> {
    field(bytes, at).map(|field| usize::from(u16::from_le_bytes(field)))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<usize> {
    field(bytes, at).map(|field| u32::from_le_bytes(field) as usize)
}

/// Returns the position in a FlatBuffer to which the offset stored at `at` points.
fn follow(bytes: &[u8], at: usize) -> Result<usize> {
    let offset = u32_at(bytes, at)?;
    at.checked_add(offset).filter(|&to| offset > 0 && to < bytes.len()).ok_or_else(|| damaged("an offset leaves it"))
}

/// A table inside a FlatBuffer. Its fields are numbered in the order of the schema; a union takes two numbers.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: usize,
    vtable_bytes: usize,
}

impl<'a> Table<'a> {
    pub(super) fn root(bytes: &'a [u8]) -> Result<Table<'a>> {
        Table::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Table<'a>> {
        let back = field(bytes, at).map(i32::from_le_bytes)?;
        let vtable = (at as i64).checked_sub(i64::from(back)).and_then(|vtable| usize::try_from(vtable).ok());
        let vtable = vtable.ok_or_else(|| damaged("a table's fields are not there"))?;
        Ok(Table { bytes, at, vtable, vtable_bytes: u16_at(bytes, vtable)? })
    }

    /// Returns the position of the table's field with this number; `None` if the table does not have it.
    fn position(&self, number: usize) -> Result<Option<usize>> {
        let entry = 4 + 2 * number;
        if entry + 2 > self.vtable_bytes {
            return Ok(None);
        }
        let offset = u16_at(self.bytes, self.vtable + entry)?;
        Ok((offset != 0).then_some(self.at + offset))
    }

    pub(super) fn u8(&self, number: usize) -> Result<u8> {
        self.position(number)?.map_or(Ok(0), |at| field::<1>(self.bytes, at).map(|[byte]| byte))
    }

    pub(super) fn u32(&self, number: usize) -> Result<u32> {
        self.position(number)?.map_or(Ok(0), |at| field(self.bytes, at).map(u32::from_le_bytes))
    }

    pub(super) fn u64(&self, number: usize) -> Result<u64> {
        self.position(number)?.map_or(Ok(0), |at| field(self.bytes, at).map(u64::from_le_bytes))
    }

    /// Returns the table's field with this number, a struct of `N` bytes.
    pub(super) fn array<const N: usize>(&self, number: usize) -> Result<Option<[u8; N]>> {
        self.position(number)?.map(|at| field(self.bytes, at)).transpose()
    }

    pub(super) fn table(&self, number: usize) -> Result<Option<Table<'a>>> {
        self.position(number)?.map(|at| Table::at(self.bytes, follow(self.bytes, at)?)).transpose()
    }

    /// Returns the position and the bytes of a vector in the table, whose elements have `size_bytes` each.
    fn vector(&self, number: usize, size_bytes: usize) -> Result<Option<(usize, &'a [u8])>> {
        let Some(at) = self.position(number)? else { return Ok(None) };
        let at = follow(self.bytes, at)?;
        let len_bytes = u32_at(self.bytes, at)?.checked_mul(size_bytes).ok_or_else(cut_off)?;
        let elements = self.bytes.get(at + 4..).and_then(|rest| rest.get(..len_bytes)).ok_or_else(cut_off)?;
        Ok(Some((at + 4, elements)))
    }

    pub(super) fn bytes(&self, number: usize) -> Result<Option<&'a [u8]>> {
        Ok(self.vector(number, 1)?.map(|(_, bytes)| bytes))
    }

    pub(super) fn text(&self, number: usize) -> Result<Option<&'a str>> {
        let text = self.bytes(number)?.map(std::str::from_utf8).transpose();
        text.map_err(|_| damaged("a text is not UTF-8"))
    }

    /// Returns the table's field with this number, a vector of structs of `N` bytes; empty if the table does not have
    /// it.
    pub(super) fn arrays<const N: usize>(&self, number: usize) -> Result<&'a [[u8; N]]> {
        Ok(self.vector(number, N)?.map_or(&[], |(_, bytes)| bytes.as_chunks().0))
    }

    /// Returns the table's field with this number, a vector of tables; empty if the table does not have it.
    pub(super) fn tables(&self, number: usize) -> Result<impl ExactSizeIterator<Item = Result<Table<'a>>> + use<'a>> {
        let (at, elements) = self.vector(number, 4)?.unwrap_or((0, &[]));
        let bytes = self.bytes;
        Ok((0..elements.len() / 4).map(move |index| Table::at(bytes, follow(bytes, at + 4 * index)?)))
    }
}
