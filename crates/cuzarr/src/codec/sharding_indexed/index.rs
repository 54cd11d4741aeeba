//! Reads and writes the index of a shard, and joins encoded inner chunks to shards.

use super::Sharding;
use crate::codec::damage::{corrupt, expect_encoded_size, unencodable};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The offset and the size that stand in the index for a chunk that is not stored.
const EMPTY: u64 = u64::MAX;

/// The index of one shard: where its inner chunks lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    /// For each inner chunk, in C order, its offset in the shard and its size.
    entries: Vec<[u64; 2]>,
}

impl ShardIndex {
    /// Offset and size in bytes of the inner chunk with this number in C order; `None` if it is not stored.
    pub fn get(&self, linear: usize) -> Option<(u64, u64)> {
        match self.entries.get(linear) {
            None | Some([EMPTY, EMPTY]) => None,
            Some([offset, size_bytes]) => Some((*offset, *size_bytes)),
        }
    }

    /// Number of inner chunks in the shard, stored or not.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the shard has no inner chunks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Checks that every stored inner chunk lies inside a shard of this size.
    ///
    /// # Errors
    /// `ChunkCorrupt`, naming the inner chunk.
    pub fn validate(&self, object_size_bytes: u64) -> Result<()> {
        for (linear, [offset, size_bytes]) in self.entries.iter().enumerate() {
            let inside = offset.checked_add(*size_bytes).is_some_and(|end| end <= object_size_bytes);
            if !inside && [*offset, *size_bytes] != [EMPTY, EMPTY] {
                return Err(corrupt(format!(
                    "shard index: inner chunk {linear} of {size_bytes} bytes at byte {offset} leaves its shard of \
                     {object_size_bytes} bytes"
                )));
            }
        }
        Ok(())
    }
}

impl Sharding {
    /// Decodes the index of a shard from the bytes at [`Sharding::index_range`].
    ///
    /// # Errors
    /// `ChunkCorrupt` or `ChecksumMismatch`.
    pub fn decode_index(&self, bytes: &[u8]) -> Result<ShardIndex> {
        // The size is checked first, so that no more memory is allocated below than the index has bytes.
        let expected = usize::try_from(self.index_size_bytes).unwrap_or(usize::MAX);
        expect_encoded_size(bytes.len(), expected).at(|| "shard index")?;
        let mut packed = vec![0; self.index_program.packed_size_bytes()];
        self.index_program.decode(bytes, &mut packed).at(|| "shard index")?;
        let (words, _) = packed.as_chunks::<8>();
        let (entries, _) = words.as_chunks::<2>();
        let entries = entries.iter().map(|entry| entry.map(u64::from_ne_bytes)).collect();
        Ok(ShardIndex { entries })
    }

    fn encode_index(&self, entries: &[[u64; 2]]) -> Result<Vec<u8>> {
        let packed: Vec<u8> = entries.iter().flatten().flat_map(|half| half.to_ne_bytes()).collect();
        self.index_program.encode(&packed).at(|| "shard index")
    }

    /// Joins encoded inner chunks, given in C order, and their index to a shard; `None` if no chunk is stored.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of chunks is not the shard's.
    pub fn encode(&self, chunks: Vec<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>> {
        Ok(self.encode_pieces(chunks)?.map(|pieces| pieces.concat()))
    }

    /// Like [`Sharding::encode`], but returns the index and the inner chunks as separate pieces, in the order of the
    /// shard.
    pub(crate) fn encode_pieces(&self, chunks: Vec<Option<Vec<u8>>>) -> Result<Option<Vec<Vec<u8>>>> {
        match chunks.iter().all(Option::is_none) {
            true => Ok(None),
            false => self.pieces(chunks).map(Some),
        }
    }

    /// Like [`Sharding::encode`], but returns a shard even if no chunk is stored.
    pub(super) fn encode_object(&self, chunks: Vec<Option<Vec<u8>>>) -> Result<Vec<u8>> {
        Ok(self.pieces(chunks)?.concat())
    }

    /// Like [`Sharding::encode_pieces`], but returns the index even if no chunk is stored.
    pub(crate) fn pieces(&self, mut chunks: Vec<Option<Vec<u8>>>) -> Result<Vec<Vec<u8>>> {
        if chunks.len() != self.len() {
            let message = format!("got {} inner chunks for a shard of {}", chunks.len(), self.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let mut layout = self.layout();
        let mut pieces = Vec::with_capacity(chunks.len() + 1);
        while let Some(linear) = self.next_of(&layout) {
            let chunk = chunks[linear].take();
            layout.add(linear, chunk.as_ref().map(Vec::len));
            pieces.extend(chunk);
        }
        let index = self.encode_index(&layout.entries)?;
        usize::try_from(layout.end)
            .map_err(|_| unencodable(format!("a shard of {} bytes is too large", layout.end)))?;
        let at = if self.index_at_start { 0 } else { pieces.len() };
        pieces.insert(at, index);
        Ok(pieces)
    }

    /// Returns the layout of a new shard, in which no inner chunk has a place yet.
    pub(crate) fn layout(&self) -> Layout {
        let end = if self.index_at_start { self.index_size_bytes } else { 0 };
        Layout { at: 0, end, entries: vec![[EMPTY, EMPTY]; self.len()] }
    }

    /// The C-order number of the inner chunk that is written next; `None` after the last one.
    pub(crate) fn next_of(&self, layout: &Layout) -> Option<usize> {
        let at = (layout.at < self.len()).then_some(layout.at)?;
        Some(self.write_order.as_deref().map_or(at, |order| order[at] as usize))
    }

    /// Encodes the index of a shard in which all inner chunks have their place. Returns the index, its offset in the
    /// shard, and the size of the shard.
    ///
    /// # Errors
    /// Those of the index's codecs.
    pub(crate) fn index_of(&self, layout: &Layout) -> Result<(Vec<u8>, u64, u64)> {
        let index = self.encode_index(&layout.entries)?;
        let (at, size_bytes) = match self.index_at_start {
            true => (0, layout.end),
            false => (layout.end, layout.end + index.len() as u64),
        };
        Ok((index, at, size_bytes))
    }
}

/// Where inner chunks lie in a shard that is being written chunk by chunk.
pub(crate) struct Layout {
    /// Number of inner chunks that already have a place in the shard.
    at: usize,
    end: u64,
    entries: Vec<[u64; 2]>,
}

impl Layout {
    /// Places the next inner chunk at the end of the shard so far, and returns its offset. `size_bytes` is `None` for a
    /// chunk that is not stored.
    pub(crate) fn add(&mut self, linear: usize, size_bytes: Option<usize>) -> u64 {
        let offset = self.end;
        if let Some(size_bytes) = size_bytes {
            self.entries[linear] = [offset, size_bytes as u64];
            self.end = offset.saturating_add(size_bytes as u64);
        }
        self.at += 1;
        offset
    }
}
