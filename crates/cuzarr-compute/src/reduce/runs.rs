//! Runs: neighbouring regions of a reduction that one task reduces together. The states of a run are joined first, then
//! those of different runs. A run is a task of a cluster.

use super::state::State;
use super::{beside_states, kept_shape};
use crate::expression::Expr;
use crate::options::ComputeOptions;
use crate::regions::hull_of;
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// A run of regions contains at least this many bytes of elements for each byte of its partial results. So a task sends
/// far less than it reads.
const ELEMENTS_OF_STATES: u64 = 256;

/// Least number of runs of a reduction if it has enough regions, so that many workers have something to do.
const LEAST_RUNS: usize = 16;

/// Size of partial results, in bytes, up to which sending them takes no noticeable time.
pub(super) const FEW_BYTES: u64 = 1 << 16;

/// The regions of a reduction, divided into runs: neighbouring regions that one task reduces. The division depends only
/// on the regions and the memory limit.
pub(super) struct Runs<'a> {
    regions: &'a [Region],
    length: usize,
    shape: &'a [u64],
    axes: &'a [usize],
}

impl<'a> Runs<'a> {
    /// Divides the regions of an expression whose `axes` are reduced into runs.
    pub(super) fn of(
        source: &'a Expr,
        regions: &'a [Region],
        axes: &'a [usize],
        options: &ComputeOptions<'_>,
    ) -> Runs<'a> {
        let product = |extent: &[u64]| extent.iter().fold(1u64, |all, &one| all.saturating_mul(one));
        let outputs = usize::try_from(product(&kept_shape(source.shape(), axes, false))).unwrap_or(usize::MAX);
        // A run needs states in addition to those of the result.
        let has_room = beside_states(outputs, options.memory_limit_bytes).is_some();
        let length = regions.first().map_or(1, |first| {
            let bytes =
                |extent: &[u64], each: usize| extent.iter().fold(each as u64, |all, &one| all.saturating_mul(one));
            let states = bytes(&kept_shape(&first.extent, axes, false), size_of::<State>());
            let elements = bytes(&first.extent, source.dtype().size_bytes()).max(1);
            let wanted = states.saturating_mul(ELEMENTS_OF_STATES).div_ceil(elements);
            let most = regions.len().div_ceil(LEAST_RUNS);
            if states <= FEW_BYTES || !has_room { 1 } else { usize::try_from(wanted).unwrap_or(most).clamp(1, most) }
        });
        Runs { regions, length, shape: source.shape(), axes }
    }

    pub(super) fn count(&self) -> usize {
        self.regions.len().div_ceil(self.length)
    }

    /// Returns the regions of one run, and the box that contains them and spans the reduced dimensions.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no run with this number.
    pub(super) fn numbered(&self, number: u64) -> Result<(&'a [Region], Region)> {
        let found = usize::try_from(number).ok().and_then(|number| self.regions.chunks(self.length).nth(number));
        let regions = found.ok_or_else(|| {
            let message = format!("got part number {number}, expected a number below {}", self.count());
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        Ok((regions, self.hull(regions)))
    }

    /// Returns for each region the box around all regions of its run, and whether it is the run's last region. `None`
    /// if each region is a run.
    pub(super) fn ends(&self) -> impl Iterator<Item = Option<(Region, bool)>> {
        self.regions.chunks(self.length).flat_map(|run| {
            let hull = (self.length > 1).then(|| self.hull(run));
            (1..=run.len()).map(move |number| hull.clone().map(|hull| (hull, number == run.len())))
        })
    }

    fn hull(&self, regions: &[Region]) -> Region {
        let mut hull = hull_of(regions);
        for &axis in self.axes {
            (hull.start[axis], hull.extent[axis]) = (0, self.shape[axis]);
        }
        hull
    }
}

#[cfg(test)]
mod tests {
    use super::Runs;
    use crate::expression::Expr;
    use crate::options::ComputeOptions;
    use cuzarr::plan::Region;
    use cuzarr_device::{DType, Device, NdBuffer, Order};

    fn source(shape: &[usize]) -> Expr {
        Expr::buffer(NdBuffer::empty(Device::Cpu, DType::FLOAT32, shape, Order::C).unwrap()).unwrap()
    }

    /// Returns regions with one index along the first dimension, and half of the second.
    fn halves(shape: &[usize]) -> Vec<Region> {
        let half = shape[1] as u64 / 2;
        let at = |number: u64| vec![number / 2, number % 2 * half, 0];
        let extent = vec![1, half, shape[2] as u64];
        (0..2 * shape[0] as u64).map(|number| Region { number, start: at(number), extent: extent.clone() }).collect()
    }

    #[test]
    fn few_states_are_never_joined_in_runs_nor_more_than_there_is_room_for() {
        for (shape, memory_limit_bytes) in [([40, 8, 10], 1 << 30), ([40, 200, 30], 1 << 20)] {
            let (source, regions) = (source(&shape), halves(&shape));
            let options = ComputeOptions { memory_limit_bytes, ..ComputeOptions::default() };
            let runs = Runs::of(&source, &regions, &[0], &options);
            assert_eq!(runs.count(), 80);
            assert!(runs.ends().all(|end| end.is_none()));
        }
    }

    #[test]
    fn runs_cover_all_regions_and_say_where_they_lie() {
        let shape = [40, 200, 30];
        let (source, regions) = (source(&shape), halves(&shape));
        let options = ComputeOptions { memory_limit_bytes: 1 << 30, ..ComputeOptions::default() };
        let runs = Runs::of(&source, &regions, &[0], &options);
        assert_eq!(runs.count(), 16);
        let (first, hull) = runs.numbered(0).unwrap();
        assert_eq!(first.len(), 5);
        assert_eq!((hull.start, hull.extent), (vec![0, 0, 0], vec![40, 200, 30]));
        assert!(runs.numbered(16).is_err());
        let last_ones = runs.ends().filter(|end| end.as_ref().is_some_and(|end| end.1)).count();
        assert_eq!((runs.ends().count(), last_ones), (80, 16));
        // Where the last dimension is reduced, a run of halves lies in the rows that it has.
        let one_by_one = Runs::of(&source, &regions[..3], &[2], &options);
        assert_eq!(one_by_one.count(), 3);
    }
}
