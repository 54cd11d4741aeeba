//! Views: some or all elements of an array in a store, as an input of an expression. Expressions read arrays through
//! them.

use std::fmt;
use std::sync::Arc;

use cuzarr::internal::plan::Parts;
use cuzarr::internal::plan::parts;
use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Region, Selection};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::NdBuffer;

use super::pick::Pick;
use crate::regions::memory_shape;

/// Some or all elements of an array in a store. Indices and shapes are those of the view.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) array: Array,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    All,
    Pick(Pick),
    Points(Points),
}

/// Single points of an array, arranged in a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Points {
    /// Along each dimension of the array, the indices of all points.
    indices: Vec<Arc<[u64]>>,
    /// The shape in which the points are arranged.
    shape: Vec<u64>,
}

/// Largest number of points that are read as an indivisible unit. Regions of a view of points consist of whole units.
const POINTS: u64 = 1 << 16;

impl View {
    /// Makes a view of all elements of an array.
    pub(crate) fn whole(array: Array) -> View {
        View { array, what: What::All }
    }

    /// Makes a view of the elements that `selection` selects.
    ///
    /// # Errors
    /// `SelectionInvalid` if the selection does not fit the array.
    pub(crate) fn new(array: Array, selection: &Selection) -> Result<View> {
        selection.check(array.shape())?;
        let pick = match parts(selection) {
            Parts::Points(_) => return View::points(array, selection, &selection.shape()),
            Parts::Box(axes) => {
                Pick::of_axes(&axes.iter().copied().map(cuzarr::plan::AxisIndex::Range).collect::<Vec<_>>())
            }
            Parts::Product(axes) => Pick::of_axes(axes),
        };
        Ok(View::whole(array).picked(&pick))
    }

    /// Makes a view of single points of an array; they fill the shape `shape` in C order.
    ///
    /// # Errors
    /// `SelectionInvalid` unless the selection is points of the array, as many as `shape` has elements.
    pub(crate) fn points(array: Array, selection: &Selection, shape: &[u64]) -> Result<View> {
        selection.check(array.shape())?;
        let count = shape.iter().try_fold(1u64, |all, &extent| all.checked_mul(extent));
        match parts(selection) {
            Parts::Points(indices) if count == indices.first().map(|own| own.len() as u64) => {
                let points = Points { indices: indices.clone(), shape: shape.to_vec() };
                Ok(View { array, what: What::Points(points) })
            }
            _ => {
                let message = format!("{selection} has not as many points as the shape {shape:?}");
                Err(Error::new(ErrorKind::SelectionInvalid, message))
            }
        }
    }

    /// Makes a view of the elements that `pick` chooses from this view. The pick must fit.
    pub(crate) fn picked(&self, pick: &Pick) -> View {
        let what = match &self.what {
            _ if pick.is_all(&self.shape()) => self.what.clone(),
            What::All => What::Pick(pick.clone()),
            What::Pick(own) => What::Pick(own.then(pick)),
            What::Points(points) => What::Points(points.picked(pick)),
        };
        View { array: self.array.clone(), what }
    }

    /// Returns the shape of the view: the extent of each of its dimensions.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match &self.what {
            What::All => self.array.shape().to_vec(),
            What::Pick(pick) => pick.shape(),
            What::Points(points) => points.shape.clone(),
        }
    }

    /// Whether two views of the same array select the same elements.
    pub(crate) fn is_like(&self, other: &View) -> bool {
        self.what == other.what
    }

    /// Returns the largest number of the view's elements that lie in one chunk, along each dimension of the view.
    ///
    /// # Errors
    /// Those of [`Array::chunk_shape`].
    pub(crate) fn chunk_shape(&self) -> Result<Vec<u64>> {
        match &self.what {
            What::All => self.array.chunk_shape(),
            What::Pick(pick) => Ok(pick.chunk_shape(&self.array.chunk_shape()?, self.array.shape())),
            What::Points(points) => Ok(points.unit()),
        }
    }

    /// Reads the elements in a region of the view from the array's store.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`].
    pub(crate) fn read(&self, part: &Region) -> Result<NdBuffer> {
        match &self.what {
            What::All => self.array.read_buffer(&Selection::region(&part.start, &part.extent)?),
            What::Pick(pick) => {
                let pick = pick.part(part);
                pick.arranged(&self.array.read_buffer(&pick.selection()?)?)
            }
            What::Points(points) => {
                let points = points.picked(&Pick::all(&points.shape).part(part));
                let read = self.array.read_buffer(&Selection::points(points.indices)?)?;
                Ok(read.reshape(&memory_shape(&points.shape)?)?)
            }
        }
    }

    /// Returns the range along each dimension of the array that a region of the view needs; `None` for index lists and
    /// points.
    pub(crate) fn ranges(&self, part: &Region) -> Option<Vec<AxisSelection>> {
        match &self.what {
            What::All => {
                let axes = part.start.iter().zip(&part.extent);
                Some(axes.map(|(&start, &count)| AxisSelection { start, count, step: 1, dropped: false }).collect())
            }
            What::Pick(pick) => pick.part(part).ranges(),
            What::Points(_) => None,
        }
    }

    /// Arranges `elements`, which were read by the ranges of `part`, in the order of the view.
    ///
    /// # Errors
    /// `InvalidArgument` if `elements` do not have the shape of the ranges.
    pub(crate) fn arranged(&self, part: &Region, elements: &NdBuffer) -> Result<NdBuffer> {
        match &self.what {
            What::Pick(pick) => pick.part(part).arranged(elements),
            _ => Ok(elements.clone()),
        }
    }

    /// Returns the box of the array that has exactly the elements of a region of the view, in the same order. `None`
    /// for views that have gaps, drop dimensions or have another order.
    pub(crate) fn region(&self, part: &Region) -> Option<Region> {
        let axes = self.ranges(part).filter(|_| self.is_dense())?;
        let (start, extent) = axes.iter().map(|axis| (axis.start, axis.count)).unzip();
        Some(Region { number: part.number, start, extent })
    }

    /// Whether each region of the view is a box of the array.
    pub(crate) fn is_dense(&self) -> bool {
        match &self.what {
            What::All => true,
            What::Pick(pick) => pick.is_dense(),
            What::Points(_) => false,
        }
    }

    /// Returns the selection that reads the elements of the view from its array.
    ///
    /// # Errors
    /// Those of [`Selection::points`].
    pub(crate) fn selection(&self) -> Result<Selection> {
        match &self.what {
            What::All => Ok(Selection::all(self.array.shape())),
            What::Pick(pick) => pick.selection(),
            What::Points(points) => Selection::points(points.indices.clone()),
        }
    }

    /// Returns a text that distinguishes this view from other views of the same array.
    pub(crate) fn origin(&self) -> String {
        let text = format!("{:?}", self.what);
        if text.len() < 4096 {
            return text;
        }
        // FNV-1a, which is the same in every process and version.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{} {hash:x}", self.shown())
    }

    fn shown(&self) -> String {
        match &self.what {
            What::All => String::new(),
            What::Pick(pick) => pick.to_string(),
            What::Points(points) => format!("[{} points]", points.shape.iter().product::<u64>()),
        }
    }
}

impl Points {
    /// Returns those of the points that `pick` chooses. The pick must fit their shape.
    fn picked(&self, pick: &Pick) -> Points {
        let numbers = pick.numbers(&self.shape);
        let along = |own: &Arc<[u64]>| numbers.iter().map(|&number| own[number as usize]).collect();
        Points { indices: self.indices.iter().map(along).collect(), shape: pick.shape() }
    }

    /// Returns the shape of the smallest region that is read: whole last dimensions, up to [`POINTS`] points.
    fn unit(&self) -> Vec<u64> {
        let mut left = POINTS;
        let mut unit = vec![1; self.shape.len()];
        for (unit, &extent) in unit.iter_mut().zip(&self.shape).rev() {
            *unit = extent.clamp(1, left);
            left = (left / *unit).max(1);
        }
        unit
    }
}

/// Returns an array's name for texts: its path after the name of its store, such as `era5.zarr/u10`.
pub(crate) fn name(array: &Array) -> String {
    let path: Vec<&str> = array.path().split('/').filter(|part| !part.is_empty()).collect();
    let store = array.store().to_string();
    let place = store.split_once("://").map_or(&*store, |(_, place)| place);
    // Stores without a name show a number or a sentence.
    let is_named = !store.contains([' ', '<']) && !place.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/');
    let all: Vec<&str> =
        place.split('/').filter(|part| is_named && !part.is_empty()).chain(path.iter().copied()).collect();
    let hierarchy = all.iter().rposition(|part| part.contains(".zarr"));
    let first = hierarchy.unwrap_or_else(|| all.len().saturating_sub(path.len() + 1));
    if all.is_empty() { "array".to_owned() } else { all[first..].join("/") }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", name(&self.array), self.shown())
    }
}
