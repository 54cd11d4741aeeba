//! Writes the tables that kernels read, number by number, to existing memory.

/// A writer that puts numbers one after the other into a table that kernels will read. It holds the part of the table
/// that is not written yet.
pub(crate) struct Fields<'a> {
    rest: &'a mut [u8],
}

impl<'a> Fields<'a> {
    /// Makes a writer that begins at the first byte of `table`, which must have room for all numbers.
    pub(crate) fn new(table: &'a mut [u8]) -> Fields<'a> {
        Fields { rest: table }
    }

    /// Appends `bytes` to the table that kernels will read.
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((place, rest)) = std::mem::take(&mut self.rest).split_first_chunk_mut() {
            *place = bytes;
            self.rest = rest;
        }
    }

    /// Appends 8-byte numbers to the table that kernels will read, in native byte order.
    pub(crate) fn put64(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.put(number.to_ne_bytes()));
    }

    /// Appends 4-byte numbers to the table that kernels will read, in native byte order.
    pub(crate) fn put32(&mut self, numbers: &[u32]) {
        numbers.iter().for_each(|number| self.put(number.to_ne_bytes()));
    }
}
