//! The chunks and shards of new arrays, from the user's arguments.

use super::grid::{ChunkGrid, RegularGrid};
use super::rectilinear::{Edges, RectilinearGrid};
use crate::{Error, ErrorKind, Result};

/// Lengths of chunks along one dimension, as the user gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// One length for all chunks; -1 means the whole dimension.
    Each(i64),
    /// The length of each chunk along the dimension, in order.
    Listed(Vec<i64>),
}

/// The chunk or shard argument for a new array, as the user gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunks {
    /// The library chooses the shape of the chunks or shards.
    Auto,
    /// One length for all dimensions; -1 means the whole dimension.
    Same(i64),
    /// The lengths of chunks along each dimension.
    Along(Vec<Lengths>),
    /// The chunk grid of another array, which is copied.
    Grid(ChunkGrid),
}

impl Chunks {
    /// Makes the argument for chunks that all have the shape `shape`.
    pub fn of_shape(shape: &[u64]) -> Chunks {
        let length = |&length: &u64| Lengths::Each(i64::try_from(length).unwrap_or(i64::MAX));
        Chunks::Along(shape.iter().map(length).collect())
    }

    /// Whether the lengths of the chunks are listed for any dimension.
    fn is_listed(&self) -> bool {
        match self {
            Chunks::Grid(_) => true,
            Chunks::Along(axes) => axes.iter().any(|axis| matches!(axis, Lengths::Listed(_))),
            Chunks::Auto | Chunks::Same(_) => false,
        }
    }
}

/// The shards of a new array, as the user gave them.
#[derive(Clone, Debug, PartialEq)]
pub struct Shards {
    /// The shape or the lengths of the shards.
    pub chunks: Chunks,
    /// Maximum size of a shard in bytes, if the library chooses the shard's shape.
    pub target_bytes: Option<u64>,
}

/// The chunks of a new array, and its shards if it has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunking {
    /// The shape of the smallest chunk: the one inside a shard, if there are shards. In a rectilinear grid without
    /// shards, the shape of the largest chunk.
    pub inner: Vec<u64>,
    /// The grid of stored objects, which are chunks or shards.
    pub stored: ChunkGrid,
    /// Whether the stored objects are shards.
    pub is_sharded: bool,
}

/// Determines the chunks and shards of a new array from the user's arguments.
///
/// # Errors
/// `InvalidArgument` for lengths below 1, lists that do not add up to the shape, shards that are not multiples of
/// chunks, and a wrong number of dimensions.
pub fn chunking(shape: &[u64], element_bytes: usize, chunks: &Chunks, shards: Option<&Shards>) -> Result<Chunking> {
    if shards.is_none() && chunks.is_listed() {
        let stored = listed(chunks, shape, None)?;
        return Ok(Chunking { inner: stored.chunk_shape().to_vec(), stored, is_sharded: false });
    }
    let inner = match chunks {
        Chunks::Auto => guess_chunks(shape, element_bytes, shards.is_some()),
        given => lengths(given, shape, None)?,
    };
    let Some(shards) = shards else {
        let stored = ChunkGrid::Regular(RegularGrid::new(inner.clone())?);
        return Ok(Chunking { inner, stored, is_sharded: false });
    };
    let stored = match &shards.chunks {
        Chunks::Auto => {
            let shards = guess_shards(shape, &inner, element_bytes, shards.target_bytes);
            ChunkGrid::Regular(RegularGrid::new(shards)?)
        }
        given if given.is_listed() => listed(given, shape, Some(&inner))?,
        given => ChunkGrid::Regular(RegularGrid::new(lengths(given, shape, Some(&inner))?)?),
    };
    check_multiples(&stored, &inner)?;
    Ok(Chunking { inner, stored, is_sharded: true })
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// The shape of the chunks, if all chunks have the same length along each dimension. A length of -1 becomes a multiple
/// of `unit` that covers the dimension.
fn lengths(chunks: &Chunks, shape: &[u64], unit: Option<&[u64]>) -> Result<Vec<u64>> {
    let same;
    let axes = match chunks {
        Chunks::Along(axes) => axes,
        Chunks::Same(length) => {
            same = vec![Lengths::Each(*length); shape.len()];
            &same
        }
        Chunks::Auto | Chunks::Grid(_) => return Err(wrong("chunks: expected a length for each dimension".into())),
    };
    check_ndim(axes.len(), shape)?;
    let axis = |(dim, (axis, &extent)): (usize, (&Lengths, &u64))| match axis {
        Lengths::Each(length) => each(*length, extent, unit.map_or(1, |unit| unit[dim])),
        Lengths::Listed(listed) => {
            let message =
                format!("got chunks of different sizes along one axis, {listed:?}, expected one size per axis");
            Err(wrong(message).with_hint("for shards, give the sizes of shards instead: shards=[[...], ...]"))
        }
    };
    axes.iter().zip(shape).enumerate().map(axis).collect()
}

fn check_ndim(got: usize, shape: &[u64]) -> Result<()> {
    if got == shape.len() {
        return Ok(());
    }
    Err(wrong(format!("got chunks for {got} dimensions, the shape has {}", shape.len())))
}

fn each(length: i64, extent: u64, unit: u64) -> Result<u64> {
    match length {
        -1 => Ok(unit.saturating_mul(extent.div_ceil(unit).max(1))),
        1.. => Ok(length.unsigned_abs()),
        _ => {
            let expected = "a positive number, or -1 for the whole axis";
            Err(wrong(format!("chunk size is {length}, expected {expected}")))
        }
    }
}

/// The grid of chunks whose lengths are listed along some dimension.
fn listed(chunks: &Chunks, shape: &[u64], unit: Option<&[u64]>) -> Result<ChunkGrid> {
    let axes = match chunks {
        Chunks::Grid(grid) => return Ok(grid.clone()),
        Chunks::Along(axes) => axes,
        Chunks::Auto | Chunks::Same(_) => return Err(wrong("chunks: expected lists of lengths".into())),
    };
    check_ndim(axes.len(), shape)?;
    let axis = |(dim, (axis, &extent)): (usize, (&Lengths, &u64))| match axis {
        Lengths::Each(length) => each(*length, extent, unit.map_or(1, |unit| unit[dim])).map(Edges::Even),
        Lengths::Listed(given) => edges(given, extent),
    };
    let axes = axes.iter().zip(shape).enumerate().map(axis).collect::<Result<Vec<_>>>()?;
    Ok(ChunkGrid::Rectilinear(RectilinearGrid::of(axes)))
}

fn edges(given: &[i64], extent: u64) -> Result<Edges> {
    let lengths: Option<Vec<u64>> = given.iter().map(|&length| u64::try_from(length).ok().filter(|&n| n > 0)).collect();
    let Some(lengths) = lengths.filter(|lengths| !lengths.is_empty()) else {
        return Err(wrong(format!("chunk sizes are {given:?}, expected at least one, and positive numbers")));
    };
    let sum = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
    // A dimension without elements may list the chunks into which it will grow.
    if extent > 0 && sum != extent {
        return Err(wrong(format!("chunk sizes {given:?} add up to {sum}, expected {extent} as in the shape")));
    }
    Edges::listed(&lengths)
}

/// Refuses shards whose lengths are not multiples of the chunks inside them.
fn check_multiples(shards: &ChunkGrid, chunks: &[u64]) -> Result<()> {
    let is_multiple = |length: u64, chunk: u64| length.checked_rem(chunk) == Some(0);
    let (fits, told) = match shards {
        ChunkGrid::Regular(grid) => {
            let shape = grid.chunk_shape();
            let fits = shape.iter().zip(chunks).all(|(&shard, &chunk)| is_multiple(shard, chunk));
            (fits && shape.len() == chunks.len(), tuple(shape))
        }
        ChunkGrid::Rectilinear(grid) => {
            let axes = grid.axes().iter().zip(chunks);
            let fits = |(axis, &chunk): (&Edges, &u64)| axis.distinct().iter().all(|&edge| is_multiple(edge, chunk));
            let shapes = &grid.to_json()["configuration"]["chunk_shapes"];
            (axes.clone().all(fits) && grid.ndim() == chunks.len(), super::abbreviate(shapes).replace(',', ", "))
        }
    };
    if fits {
        return Ok(());
    }
    let message = format!("shards {told} are not multiples of their chunks {}", tuple(chunks));
    Err(wrong(message).with_hint("set shards to multiples of the chunks"))
}

/// Writes a shape as Python writes a tuple, such as `(4, 6)`.
fn tuple(shape: &[u64]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Chooses the shape of shards: as many chunks as `target_bytes` hold; without it, two chunks along each long
/// dimension.
fn guess_shards(shape: &[u64], chunks: &[u64], element_bytes: usize, target_bytes: Option<u64>) -> Vec<u64> {
    let Some(target) = target_bytes else {
        let doubled = |(&extent, &chunk): (&u64, &u64)| if extent / chunk > 8 { chunk * 2 } else { chunk };
        return shape.iter().zip(chunks).map(doubled).collect();
    };
    let bytes = chunks.iter().map(|&chunk| chunk as f64).product::<f64>() * element_bytes as f64;
    let mut factor = 1u64;
    if !chunks.is_empty() && bytes > 0.0 {
        let fits = |factor: u64| {
            let many = (factor as f64).powi(i32::try_from(chunks.len()).unwrap_or(i32::MAX));
            let is_inside = |(&extent, &chunk): (&u64, &u64)| chunk.saturating_mul(factor) <= extent;
            bytes * many <= target as f64 && shape.iter().zip(chunks).all(is_inside)
        };
        while fits(factor + 1) {
            factor += 1;
        }
    }
    chunks.iter().map(|&chunk| chunk * factor).collect()
}

/// Maximum bytes of a chunk whose shape the library chooses: as a stored object, and inside a shard.
const LARGEST_CHUNK: [f64; 2] = [64.0 * 1024.0 * 1024.0, 1024.0 * 1024.0];

/// Chooses the shape of chunks that the user left to the library. zarr-python chooses the same.
///
/// The size of a chunk grows with the logarithm of the array's size, from 128 KiB to 64 MiB (1 MiB in shards).
/// Dimensions are halved in turn, beginning with the first, until a chunk is near enough to that size.
pub fn guess_chunks(shape: &[u64], element_bytes: usize, sharded: bool) -> Vec<u64> {
    const MIB: f64 = 1024.0 * 1024.0;
    let mut chunks: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
    if element_bytes == 0 || shape.is_empty() {
        return chunks;
    }
    let bytes = |chunks: &[u64]| chunks.iter().map(|&extent| extent as f64).product::<f64>() * element_bytes as f64;
    let largest = LARGEST_CHUNK[usize::from(sharded)];
    let target = (MIB / 4.0 * (bytes(&chunks) / MIB).log10().exp2()).max(MIB / 8.0).min(largest);
    let mut axis = 0;
    while chunks.iter().any(|&extent| extent > 1) {
        let size = bytes(&chunks);
        if (size < target || (size - target).abs() / target < 0.5) && size < largest {
            break;
        }
        chunks[axis] = chunks[axis].div_ceil(2);
        axis = (axis + 1) % chunks.len();
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_chunks_are_those_of_zarr_python() {
        for (shape, element_bytes, sharded, expected) in CHOSEN {
            assert_eq!(guess_chunks(shape, *element_bytes, *sharded), *expected, "{shape:?} {element_bytes} {sharded}");
        }
    }

    /// Shapes that `cuzarr.create_array` and zarr-python 3.4 choose in Python.
    const CHOSEN: &[(&[u64], usize, bool, &[u64])] = &[
        (&[], 4, false, &[]),
        (&[0], 8, false, &[1]),
        (&[10], 1, false, &[10]),
        (&[1000000], 4, false, &[125000]),
        (&[1000, 1000], 8, false, &[250, 250]),
        (&[4096, 4096], 4, true, &[256, 512]),
        (&[365, 721, 1440], 4, false, &[46, 91, 180]),
        (&[3, 100000, 7], 2, false, &[1, 50000, 4]),
        (&[1099511627776, 1048576], 8, false, &[2097152, 2]),
        (&[1099511627776, 1048576], 8, true, &[65536, 1]),
        (&[5, 0, 9], 4, false, &[5, 1, 9]),
        (&[1], 0, false, &[1]),
    ];

    fn along(lengths: &[Lengths]) -> Chunks {
        Chunks::Along(lengths.to_vec())
    }

    fn shards(chunks: Chunks) -> Option<Shards> {
        Some(Shards { chunks, target_bytes: None })
    }

    #[test]
    fn lengths_are_one_for_all_or_one_for_each_dimension() {
        let of = |chunks: &Chunks| chunking(&[10, 7], 4, chunks, None).map(|chosen| chosen.inner);
        assert_eq!(of(&Chunks::Same(3)).unwrap(), [3, 3]);
        assert_eq!(of(&Chunks::Same(-1)).unwrap(), [10, 7]);
        assert_eq!(of(&along(&[Lengths::Each(-1), Lengths::Each(2)])).unwrap(), [10, 2]);
        for wrong in [Chunks::Same(0), Chunks::Same(-2), along(&[Lengths::Each(3)])] {
            assert_eq!(of(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn listed_lengths_make_a_rectilinear_grid() {
        let given = along(&[Lengths::Listed(vec![4, 4, 2]), Lengths::Each(7)]);
        let chosen = chunking(&[10, 7], 4, &given, None).unwrap();
        assert_eq!((chosen.inner, chosen.is_sharded), (vec![4, 7], false));
        assert_eq!(chosen.stored.chunk_counts(&[10, 7]).unwrap(), [3, 1]);
        for lengths in [vec![], vec![4, 0, 6], vec![4, -1], vec![4, 4]] {
            let given = along(&[Lengths::Listed(lengths), Lengths::Each(7)]);
            assert_eq!(chunking(&[10, 7], 4, &given, None).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let grows = along(&[Lengths::Listed(vec![5]), Lengths::Each(7)]);
        assert!(chunking(&[0, 7], 4, &grows, None).is_ok());
    }

    #[test]
    fn shards_are_multiples_of_chunks() {
        let chosen = chunking(&[10, 7], 4, &Chunks::Same(3), shards(Chunks::Same(-1)).as_ref()).unwrap();
        assert_eq!((chosen.inner, chosen.stored.chunk_shape(), chosen.is_sharded), (vec![3, 3], &[12, 9][..], true));
        for given in [Chunks::Same(4), along(&[Lengths::Listed(vec![6, 4]), Lengths::Each(3)])] {
            let error = chunking(&[10, 7], 4, &Chunks::Same(3), shards(given).as_ref()).unwrap_err();
            assert!(error.message().contains("are not multiples of their chunks (3, 3)"), "{error}");
        }
        let listed = along(&[Lengths::Listed(vec![5, 5]), Lengths::Each(1)]);
        let error = chunking(&[10, 7], 4, &listed, shards(Chunks::Same(5)).as_ref()).unwrap_err();
        assert!(error.message().contains("different sizes along one axis"), "{error}");
    }

    #[test]
    fn chosen_shards_hold_as_many_chunks_as_their_target_or_two_along_long_dimensions() {
        let auto = |target_bytes| {
            let shards = Shards { chunks: Chunks::Auto, target_bytes };
            let chosen = chunking(&[1000, 60], 4, &Chunks::Same(10), Some(&shards)).unwrap();
            chosen.stored.chunk_shape().to_vec()
        };
        assert_eq!(auto(None), [20, 10]);
        assert_eq!(auto(Some(4 * 100 * 9)), [30, 30]);
        assert_eq!(auto(Some(1)), [10, 10]);
        assert_eq!(auto(Some(u64::MAX)), [60, 60]);
    }
}
