//! The plan of a write: which objects are touched, and whether each is replaced as a whole.

use super::batch::ChunkName;
use super::selection::Selection;
use super::source::Source;
use super::walk::{Cell, Walk, covers};
use crate::codec::cost::EncodingSpeeds;
use crate::error::Result;

/// A chunk, shard or inner chunk that a write touches.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its place and the part of the selection inside it.
    pub cell: Cell,
    /// Whether every element that the array has there is written, so that old bytes are of no interest.
    pub covered: bool,
    /// Whether, besides, none of it hangs over the array's edge.
    pub full: bool,
}

impl Target {
    fn new(source: &Source, selection: &Selection, level: usize, cell: Cell) -> Target {
        let shape = &source.levels[level].chunk_shape;
        let (mut covered, mut full) = (true, true);
        for (dim, axis) in selection.axes().iter().enumerate() {
            let cell_end = cell.origin[dim].saturating_add(shape[dim]);
            covered &= covers(axis, cell.inside[dim], cell.origin[dim], cell_end.min(source.shape[dim]));
            full &= cell_end <= source.shape[dim];
        }
        Target { cell, covered, full: full && covered }
    }
}

/// The objects that a write touches, one after the other.
///
/// # Errors
/// `SelectionInvalid` when the selection does not fit the array.
pub(crate) fn objects<'a>(
    source: &'a Source,
    selection: &'a Selection,
) -> Result<impl Iterator<Item = (ChunkName, Target)> + 'a> {
    selection.check(&source.shape)?;
    let inside: Vec<_> = selection.axes().iter().map(|axis| (0, axis.count)).collect();
    let origin = vec![0; source.shape.len()];
    let walk = Walk::new(selection.axes(), &origin, &source.levels[0].chunk_shape, &inside);
    Ok(walk.map(|cell| {
        let name = ChunkName { key: (source.key)(&cell.at).into(), inner: Vec::new() };
        (name, Target::new(source, selection, 0, cell))
    }))
}

/// First and last of the objects that a write touches, along each dimension; `None` when it touches none.
///
/// # Errors
/// `SelectionInvalid` when the selection does not fit the array.
pub(crate) fn object_bounds(source: &Source, selection: &Selection) -> Result<Option<Vec<(u64, u64)>>> {
    selection.check(&source.shape)?;
    let axes = selection.axes().iter().zip(&source.levels[0].chunk_shape);
    Ok(axes
        .map(|(axis, extent)| {
            let last = axis.start + axis.count.checked_sub(1)? * axis.step;
            Some((axis.start / extent, last / extent))
        })
        .collect())
}

/// The inner chunks of a shard of `level` that a write touches, with their C-order numbers.
pub(crate) fn inner<'a>(
    source: &'a Source,
    selection: &'a Selection,
    level: usize,
    shard: &Cell,
) -> impl Iterator<Item = (usize, Target)> + 'a {
    let walk = Walk::new(selection.axes(), &shard.origin, &source.levels[level + 1].chunk_shape, &shard.inside);
    walk.map(move |cell| {
        let grid = source.levels[level].shard.as_ref().map_or(&[][..], |layout| &layout.grid);
        let linear = cell.at.iter().zip(grid).fold(0u64, |linear, (&at, &extent)| linear * extent + at);
        (linear as usize, Target::new(source, selection, level + 1, cell))
    })
}

/// Whole chunks that are to become frames, for the choice between kernels and the host's threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodingLoad {
    pub chunks: u64,
    pub chunk_bytes: usize,
    pub threads: usize,
}

impl EncodingLoad {
    /// Whether kernels are faster: chunks take turns on the host's threads, and bytes on the device.
    pub fn prefers_device(&self, speeds: &EncodingSpeeds) -> bool {
        let bytes = self.chunk_bytes as f64;
        let rounds = self.chunks.div_ceil(self.threads.max(1) as u64) as f64;
        let host = rounds * bytes / (speeds.host_thread_gb_s * 1e9);
        let device = speeds.device_s + self.chunks as f64 * bytes / (speeds.device_gb_s * 1e9);
        device < host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_encoded_by_the_host_and_much_by_the_device() {
        let speeds = EncodingSpeeds { host_thread_gb_s: 0.6, device_gb_s: 40.0, device_s: 1e-3 };
        let prefers =
            |chunks, chunk_bytes, threads| EncodingLoad { chunks, chunk_bytes, threads }.prefers_device(&speeds);
        assert!(!prefers(1, 64 << 10, 16) && !prefers(16, 256 << 10, 16));
        assert!(prefers(1, 16 << 20, 16), "the device divides one chunk, the host does not");
        assert!(prefers(512, 1 << 20, 16) && prefers(8192, 64 << 10, 16));
        assert!(!prefers(8192, 64 << 10, 200), "threads enough");
    }
}
