//! The descent from the array through shards to a chunk: grids, shard indexes, and the byte ranges in them.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Label, Plan};
use crate::codec::ShardIndex;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::batch::ChunkName;
use crate::plan::geometry::number_in;
use crate::plan::source::{ChunkLayout, Source};
use crate::plan::tour::{Tour, places_of};
use crate::store::{ByteRange, Version};

/// For each inner chunk of one shard, its offset and size in the shard, by C-order number. Offsets count from the
/// shard's first byte.
pub trait Entries: Send + Sync {
    /// The offset and size of an inner chunk in the shard, or `None` when it does not exist.
    fn get(&self, linear: usize) -> Option<(u64, u64)>;

    /// Number of inner chunks in the shard, stored or not.
    fn len(&self) -> usize;

    /// Whether the shard has no inner chunks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the object to which this index belongs; `None` if it is not known. Chunks must come from the same
    /// version.
    fn version(&self) -> Option<Version> {
        None
    }
}

impl Entries for ShardIndex {
    fn get(&self, linear: usize) -> Option<(u64, u64)> {
        ShardIndex::get(self, linear)
    }

    fn len(&self) -> usize {
        ShardIndex::len(self)
    }
}

/// The location of a shard's index, by which [`Plan::learn`] knows the shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexPlace {
    /// The key of the object in which the shard lies.
    pub key: Arc<str>,
    /// The offset of the shard in the object.
    pub shard_offset: u64,
    /// The nesting depth of the shard: 0 if it is a stored object, more for a shard inside another. It is needed
    /// because the first inner shard may begin at the same byte as the outer one.
    pub level: usize,
}

/// A request for the index of one shard.
#[derive(Clone, Debug)]
pub struct IndexRead {
    /// The number of the shard's array among all arrays that the call reads.
    pub array: usize,
    /// The location of the shard's index, to be passed to [`Plan::learn`] with the index.
    pub place: IndexPlace,
    /// The range of the index in the object.
    pub range: ByteRange,
    /// Size of the encoded index in bytes.
    pub size_bytes: u64,
    /// The version that the stored object must still have, if the index of an outer shard told where this index lies.
    pub version: Option<Version>,
    /// How the stored object in which the index lies is divided into chunks and encoded.
    pub(crate) layout: Arc<ChunkLayout>,
    /// The name of the shard, for error messages.
    pub name: ChunkName,
}

/// A grid that the plan is visiting, on the way from the array down to the chunks that are decoded.
pub(super) struct OpenGrid {
    pub(super) level: usize,
    pub(super) tour: Tour,
    /// The shard whose inner chunks are visited; `None` for the array's own grid.
    pub(super) shard: Option<Shard>,
}

pub(super) struct Shard {
    pub(super) key: Arc<str>,
    pub(super) offset: u64,
    /// Size of the shard in bytes; `None` if the shard is a whole object, whose size is not known.
    pub(super) size_bytes: Option<u64>,
    pub(super) grid: Vec<u64>,
    pub(super) entries: Arc<dyn Entries>,
    pub(super) inner: Vec<u64>,
    /// How the stored object in which the shard lies is divided into chunks and encoded.
    pub(super) layout: Arc<ChunkLayout>,
}

impl OpenGrid {
    /// How the stored object that a grid cell is, or lies in, is divided into chunks and encoded. `origin` is the
    /// cell's first element.
    pub(super) fn layout(&self, source: &Source, origin: &[u64]) -> Result<Arc<ChunkLayout>> {
        match &self.shard {
            Some(shard) => Ok(Arc::clone(&shard.layout)),
            None => source.layout_at(origin),
        }
    }
}

/// A stored chunk: its name, and its byte range in the stored object.
pub(super) struct Found {
    pub(super) name: ChunkName,
    /// Offset and size of the chunk in its object; `None` if it is the whole object.
    pub(super) span: Option<(u64, u64)>,
    pub(super) version: Option<Version>,
}

impl Plan {
    /// The shard indexes that the plan needs now: of the current shard, and of the shards after it in the same grid.
    pub(crate) fn wanted_indexes(&self, level: usize) -> Result<Vec<IndexRead>> {
        let Some(open) = self.stack.last() else { return Ok(Vec::new()) };
        let most = if self.is_of_several() { 4096 } else { 256 };
        let (mut wanted, mut places, mut wanted_bytes) = (Vec::new(), HashSet::new(), 0);
        // If boxes are read in order, indexes for later boxes are requested too, so that one round serves many boxes.
        let later = self.selections[self.next..].iter().filter(|_| self.in_turn && level == 0);
        let later = later.flat_map(|selection| places_of(selection.walk_all(self.source.cells(0))));
        for (at, origin) in open.tour.places().chain(later) {
            let layout = open.layout(&self.source, &origin)?;
            let Some(shard) = &layout.levels[level].shard else { continue };
            let size_bytes = shard.index_size_bytes;
            if wanted.len() >= most
                || (!wanted.is_empty() && wanted_bytes + size_bytes > self.options.index_window_bytes)
            {
                break;
            }
            let Some(found) = find(&self.source, &self.label, open, &at)? else { continue };
            let (shard_offset, range) = match (found.span, shard.index_range) {
                (None, range) => (0, range),
                (Some((offset, shard_bytes)), range) => {
                    let begin = match range {
                        ByteRange::Suffix { .. } => shard_bytes.checked_sub(size_bytes).map(|at| offset + at),
                        _ => (shard_bytes >= size_bytes).then_some(offset),
                    };
                    let Some(offset_of_index) = begin else {
                        let message = format!("shard has {shard_bytes} bytes, but its index alone has {size_bytes}");
                        return Err(Error::new(ErrorKind::ChunkCorrupt, message).at(found.name.to_string()));
                    };
                    (offset, ByteRange::Span { offset: offset_of_index, size_bytes })
                }
            };
            let place = IndexPlace { key: Arc::clone(&found.name.key), shard_offset, level };
            if !self.known.contains_key(&place) && places.insert(place.clone()) {
                wanted_bytes += size_bytes;
                let array = self.array;
                wanted.push(IndexRead {
                    array,
                    place,
                    range,
                    size_bytes,
                    version: found.version,
                    layout,
                    name: found.name,
                });
            }
        }
        Ok(wanted)
    }
}

/// Looks up where the chunk in a grid cell is stored; `None` if the shard's index says that there is none.
pub(super) fn find(source: &Source, label: &Label, open: &OpenGrid, at: &[u64]) -> Result<Option<Found>> {
    let Some(shard) = &open.shard else {
        return Ok(Some(Found { name: missing_name(source, label, open, at), span: None, version: None }));
    };
    let Some((offset, size_bytes)) = shard.entries.get(number_in(&shard.grid, at)) else { return Ok(None) };
    let name = missing_name(source, label, open, at);
    let end =
        offset.checked_add(size_bytes).filter(|&end| shard.size_bytes.is_none_or(|shard_bytes| end <= shard_bytes));
    match (shard.offset.checked_add(offset), end.and_then(|end| shard.offset.checked_add(end))) {
        (Some(begin), Some(_)) => {
            Ok(Some(Found { name, span: Some((begin, size_bytes)), version: shard.entries.version() }))
        }
        _ => {
            let what =
                shard.size_bytes.map_or("any object".into(), |size_bytes| format!("its shard of {size_bytes} bytes"));
            let message = format!("index places {size_bytes} bytes at byte {offset}, behind the end of {what}");
            Err(Error::new(ErrorKind::ChunkCorrupt, message).at(name.to_string()))
        }
    }
}

pub(super) fn missing_name(source: &Source, label: &Label, open: &OpenGrid, at: &[u64]) -> ChunkName {
    let array = label.clone();
    match &open.shard {
        None => ChunkName { array, key: (source.key)(at).into(), inner: Vec::new() },
        Some(shard) => {
            let inner = shard.inner.iter().chain(at).copied().collect();
            ChunkName { array, key: Arc::clone(&shard.key), inner }
        }
    }
}
