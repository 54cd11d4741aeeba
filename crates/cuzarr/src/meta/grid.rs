//! Chunk grids: which chunk holds an element, and which region of the array a chunk covers. Counts and products are
//! checked, so no document makes this code overflow or panic.

use std::ops::Range;

use serde_json::{Value, json};

use super::extension::Extension;
use super::rectilinear::{Edges, RectilinearGrid};
use super::{invalid, parse_shape};
use crate::{Error, ErrorKind, Result};

/// The `chunk_grid` member of a v3 document as it is stored. A regular grid has the stored sizes, even zeros.
pub(crate) enum StoredGrid {
    Regular(Vec<u64>),
    Rectilinear(RectilinearGrid),
}

impl StoredGrid {
    pub(crate) fn from_v3(value: &Value) -> Result<StoredGrid> {
        let extension = Extension::from_json(value, "chunk_grid")?;
        match &*extension.name {
            "regular" => {
                extension.check_members("chunk_grid", &["chunk_shape"])?;
                match extension.configuration.get("chunk_shape") {
                    Some(shape) => parse_shape(shape, "chunk_grid.configuration.chunk_shape").map(StoredGrid::Regular),
                    None => Err(invalid("chunk_grid", value, "a configuration with chunk_shape")),
                }
            }
            "rectilinear" => {
                extension.check_members("chunk_grid", &["kind", "chunk_shapes"])?;
                RectilinearGrid::from_configuration(&extension.configuration).map(StoredGrid::Rectilinear)
            }
            other => {
                let message = format!("member 'chunk_grid': got '{other}', expected 'regular' or 'rectilinear'");
                Err(Error::new(ErrorKind::UnsupportedFeature, message))
            }
        }
    }
}

/// How an array is divided into chunks.
///
/// ```
/// use cuzarr::meta::{ChunkGrid, RegularGrid};
/// let grid = ChunkGrid::Regular(RegularGrid::new(vec![4, 3])?);
/// assert_eq!(grid.chunk_counts(&[10, 3])?, [3, 1]);
/// assert_eq!(grid.chunk_shape(), [4, 3]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChunkGrid {
    /// All chunks have one shape.
    Regular(RegularGrid),
    /// Chunks may differ in length along each dimension.
    Rectilinear(RectilinearGrid),
}

impl ChunkGrid {
    /// The grid as a rectilinear one; `None` if it is regular.
    pub fn rectilinear(&self) -> Option<&RectilinearGrid> {
        match self {
            ChunkGrid::Regular(_) => None,
            ChunkGrid::Rectilinear(grid) => Some(grid),
        }
    }

    /// The shape of the grid's chunks, or of its largest chunk if they differ in shape.
    pub fn chunk_shape(&self) -> &[u64] {
        match self {
            ChunkGrid::Regular(grid) => grid.chunk_shape(),
            ChunkGrid::Rectilinear(grid) => grid.largest_chunk(),
        }
    }

    /// Number of dimensions of the grid.
    pub fn ndim(&self) -> usize {
        self.chunk_shape().len()
    }

    /// For each dimension, how it is divided into chunks.
    pub fn axes(&self) -> Vec<Edges> {
        match self {
            ChunkGrid::Regular(grid) => grid.chunk_shape().iter().map(|&size| Edges::Even(size)).collect(),
            ChunkGrid::Rectilinear(grid) => grid.axes().to_vec(),
        }
    }

    /// Number of chunks along each dimension, for an array of `shape`. A dimension of length 0 has none.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs.
    pub fn chunk_counts(&self, shape: &[u64]) -> Result<Vec<u64>> {
        match self {
            ChunkGrid::Regular(grid) => grid.chunk_counts(shape),
            ChunkGrid::Rectilinear(grid) => grid.chunk_counts(shape),
        }
    }

    /// Number of chunks in an array of `shape`.
    ///
    /// # Errors
    /// Those of [`ChunkGrid::chunk_counts`]; `MetadataInvalid` if the number does not fit `u64`.
    pub fn chunk_count(&self, shape: &[u64]) -> Result<u64> {
        product(&self.chunk_counts(shape)?).ok_or_else(|| too_large("number of chunks", shape))
    }

    /// The position in the grid of the chunk that holds the element at `index`.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs.
    pub fn chunk_of(&self, index: &[u64]) -> Result<Vec<u64>> {
        match self {
            ChunkGrid::Regular(grid) => grid.chunk_of(index),
            ChunkGrid::Rectilinear(grid) => grid.chunk_of(index),
        }
    }

    /// The region of the array that a chunk covers, cut off at the array's `shape`.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs, or there is no such chunk.
    pub fn chunk_region(&self, chunk: &[u64], shape: &[u64]) -> Result<Vec<Range<u64>>> {
        match self {
            ChunkGrid::Regular(grid) => grid.chunk_region(chunk, shape),
            ChunkGrid::Rectilinear(grid) => grid.chunk_region(chunk, shape),
        }
    }

    /// Bytes of the largest chunk as a whole, with elements of `elem_size_bytes`.
    ///
    /// # Errors
    /// `MetadataInvalid` if it is more than memory can hold.
    pub fn chunk_size_bytes(&self, elem_size_bytes: usize) -> Result<usize> {
        chunk_size_bytes(self.chunk_shape(), elem_size_bytes)
    }

    /// Writes the `chunk_grid` member of a v3 document.
    pub fn to_json(&self) -> Value {
        match self {
            ChunkGrid::Regular(grid) => {
                json!({"name": "regular", "configuration": {"chunk_shape": grid.chunk_shape()}})
            }
            ChunkGrid::Rectilinear(grid) => grid.to_json(),
        }
    }
}

fn chunk_elems(shape: &[u64]) -> Result<usize> {
    let elems = product(shape).and_then(|elems| usize::try_from(elems).ok());
    elems.ok_or_else(|| too_large("elements of a chunk", shape))
}

fn chunk_size_bytes(shape: &[u64], elem_size_bytes: usize) -> Result<usize> {
    chunk_elems(shape)?
        .checked_mul(elem_size_bytes)
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(|| too_large("bytes of a chunk", shape))
}

/// A grid of chunks of one shape, which begins at the array's origin. Chunks at the far edges may reach beyond the
/// array.
///
/// ```
/// use cuzarr::meta::RegularGrid;
/// let grid = RegularGrid::new(vec![4, 3]).unwrap();
/// assert_eq!(grid.chunk_counts(&[10, 3]).unwrap(), [3, 1]);
/// assert_eq!(grid.chunk_of(&[9, 2]).unwrap(), [2, 0]);
/// assert_eq!(grid.chunk_region(&[2, 0], &[10, 3]).unwrap(), [8..10, 0..3]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegularGrid {
    chunk_shape: Vec<u64>,
}

impl RegularGrid {
    /// Makes a grid of chunks of `chunk_shape`. Every extent must be at least 1.
    pub fn new(chunk_shape: Vec<u64>) -> Result<Self> {
        if chunk_shape.contains(&0) {
            return Err(invalid("chunk_shape", &json!(chunk_shape), "chunk sizes of at least 1"));
        }
        Ok(RegularGrid { chunk_shape })
    }

    /// The shape of every chunk in the grid.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Number of dimensions of the grid.
    pub fn ndim(&self) -> usize {
        self.chunk_shape.len()
    }

    /// Number of chunks along each dimension, for an array of `shape`. A dimension of length 0 has none.
    pub fn chunk_counts(&self, shape: &[u64]) -> Result<Vec<u64>> {
        self.check_ndim(shape.len(), "shape")?;
        Ok(shape.iter().zip(&self.chunk_shape).map(|(&size, &chunk)| size.div_ceil(chunk)).collect())
    }

    /// Number of chunks in an array of `shape`; an error if it does not fit `u64`.
    pub fn chunk_count(&self, shape: &[u64]) -> Result<u64> {
        product(&self.chunk_counts(shape)?).ok_or_else(|| too_large("number of chunks", shape))
    }

    /// The position in the grid of the chunk that holds the element at `index`.
    pub fn chunk_of(&self, index: &[u64]) -> Result<Vec<u64>> {
        self.check_ndim(index.len(), "element index")?;
        Ok(index.iter().zip(&self.chunk_shape).map(|(&at, &chunk)| at / chunk).collect())
    }

    /// The region of the array that a chunk covers, cut off at the array's `shape`.
    pub fn chunk_region(&self, chunk: &[u64], shape: &[u64]) -> Result<Vec<Range<u64>>> {
        self.check_ndim(chunk.len(), "chunk index")?;
        let counts = self.chunk_counts(shape)?;
        if chunk.iter().zip(&counts).any(|(at, count)| at >= count) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("chunk index: got {chunk:?}, expected one below {counts:?}"),
            ));
        }
        // A chunk number below the count means a start below the shape, so the product cannot overflow. The end might.
        let region = chunk.iter().zip(&self.chunk_shape).zip(shape).map(|((&at, &size), &limit)| {
            let start = at * size;
            start..start.saturating_add(size).min(limit)
        });
        Ok(region.collect())
    }

    /// Number of elements of a whole chunk; an error if memory cannot hold it.
    pub fn chunk_elems(&self) -> Result<usize> {
        chunk_elems(&self.chunk_shape)
    }

    /// Bytes of a whole chunk, with elements of `elem_size_bytes`; an error if memory cannot hold it.
    pub fn chunk_size_bytes(&self, elem_size_bytes: usize) -> Result<usize> {
        chunk_size_bytes(&self.chunk_shape, elem_size_bytes)
    }

    fn check_ndim(&self, got: usize, what: &str) -> Result<()> {
        if got == self.ndim() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{what}: got {got} dimensions, expected {} as in the chunk grid", self.ndim()),
        ))
    }
}

/// The product of `sizes`; `None` if it does not fit `u64`. If any size is zero, the product is zero.
pub(crate) fn product(sizes: &[u64]) -> Option<u64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size))
}

fn too_large(what: &str, shape: &[u64]) -> Error {
    Error::new(
        ErrorKind::MetadataInvalid,
        format!("{what}: got more than can be counted, for the shape {}", super::json::abbreviate(&json!(shape))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_every_element_once() {
        let grid = RegularGrid::new(vec![4, 1, 7]).unwrap();
        let shape = [9, 2, 7];
        let mut seen = vec![0; 9 * 2 * 7];
        let counts = grid.chunk_counts(&shape).unwrap();
        assert_eq!((counts.as_slice(), grid.chunk_count(&shape).unwrap()), ([3, 2, 1].as_slice(), 6));
        for (i, j, k) in (0..3).flat_map(|i| (0..2).flat_map(move |j| (0..1).map(move |k| (i, j, k)))) {
            let region = grid.chunk_region(&[i, j, k], &shape).unwrap();
            for index in region[0].clone().flat_map(|a| {
                let (second, third) = (region[1].clone(), region[2].clone());
                second.flat_map(move |b| third.clone().map(move |c| [a, b, c]))
            }) {
                assert_eq!(grid.chunk_of(&index).unwrap(), [i, j, k]);
                seen[((index[0] * 2 + index[1]) * 7 + index[2]) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
    }

    #[test]
    fn scalar_array_has_one_chunk() {
        let grid = RegularGrid::new(vec![]).unwrap();
        assert_eq!(grid.chunk_count(&[]).unwrap(), 1);
        assert_eq!(grid.chunk_region(&[], &[]).unwrap(), []);
        assert_eq!(grid.chunk_elems().unwrap(), 1);
    }

    #[test]
    fn empty_dimension_has_no_chunks() {
        let grid = RegularGrid::new(vec![5, 5]).unwrap();
        assert_eq!(grid.chunk_counts(&[0, 6]).unwrap(), [0, 2]);
        assert_eq!(grid.chunk_count(&[0, u64::MAX]).unwrap(), 0);
        assert_eq!(grid.chunk_region(&[0, 0], &[0, 6]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn largest_sizes_do_not_overflow() {
        let grid = RegularGrid::new(vec![u64::MAX - 1]).unwrap();
        assert_eq!(grid.chunk_region(&[1], &[u64::MAX]).unwrap(), [Range { start: u64::MAX - 1, end: u64::MAX }]);
        let grid = RegularGrid::new(vec![1 << 40, 1 << 40]).unwrap();
        assert_eq!(grid.chunk_elems().unwrap_err().kind(), ErrorKind::MetadataInvalid);
        let grid = RegularGrid::new(vec![1, 1]).unwrap();
        assert!(grid.chunk_count(&[1 << 40, 1 << 40]).is_err());
        let grid = RegularGrid::new(vec![1 << 62]).unwrap();
        assert!(grid.chunk_size_bytes(1).is_ok());
        assert!(grid.chunk_size_bytes(2).is_err());
    }

    #[test]
    fn other_grids_are_refused_by_name() {
        let value = json!({"name": "hexagonal", "configuration": {"chunk_shape": [1, 2]}});
        let error = StoredGrid::from_v3(&value).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
        assert_eq!(error.message(), "member 'chunk_grid': got 'hexagonal', expected 'regular' or 'rectilinear'");
    }

    #[test]
    fn zero_and_negative_chunk_sizes_are_refused() {
        assert_eq!(RegularGrid::new(vec![3, 0]).unwrap_err().kind(), ErrorKind::MetadataInvalid);
        for shape in [json!([-1]), json!([1.0]), json!(["1"]), json!(3), json!([1e30])] {
            let value = json!({"name": "regular", "configuration": {"chunk_shape": shape}});
            assert_eq!(StoredGrid::from_v3(&value).err().unwrap().kind(), ErrorKind::MetadataInvalid);
        }
    }
}
