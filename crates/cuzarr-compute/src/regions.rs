//! Divides an array into regions that fit the memory limit, along the grid of stored objects.

use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// Largest memory limit in bytes that plans of reads and computations may use in full. Limits from here to 512 MiB
/// count as this much. Memory for higher limits comes from CUDA's pools.
const PLANNED_WHOLE_BYTES: u64 = 448 << 20;
/// Bytes of a memory limit above `PLANNED_WHOLE_BYTES` that plans may not use: two pieces of 32 MiB of CUDA's memory
/// pools.
const GAPS_BYTES: u64 = 64 << 20;

/// Memory for copying one stored object, as a multiple of the size of the object's elements. It is for the elements
/// that are read, those of the previous object while it is written, one packed copy, and scratch memory of two.
pub(crate) const OBJECT_SHARE: u64 = 6;
/// The part of a memory limit that plans may use, divided by this, is the largest size of a copy's regions.
pub(crate) const REGION_SHARE: u64 = 4;

/// Converts a shape from 64-bit integers to `usize`.
///
/// # Errors
/// `OutOfMemory` when no memory could hold it.
pub(crate) fn memory_shape(shape: &[u64]) -> Result<Vec<usize>> {
    let extents = shape.iter().map(|&extent| usize::try_from(extent));
    extents.collect::<std::result::Result<_, _>>().map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("shape {shape:?} has more elements than memory can have"))
    })
}

/// Returns how many bytes of a memory limit the plans of reads and computations may use. The rest is for gaps between
/// blocks of different sizes on a device. The part is the same on every device, since results depend on it.
pub(crate) fn plannable_bytes(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_sub(GAPS_BYTES).max(limit_bytes.min(PLANNED_WHOLE_BYTES))
}

/// Returns the smallest memory limit of which plans may use `planned_bytes`.
pub(crate) fn limit_for(planned_bytes: u64) -> u64 {
    if planned_bytes <= PLANNED_WHOLE_BYTES { planned_bytes } else { planned_bytes.saturating_add(GAPS_BYTES) }
}

/// Returns the smallest memory limit with which `planned_bytes` are available, if work plans with `part_bytes` of a limit
/// of `whole_bytes`.
pub(crate) fn limit_for_part(planned_bytes: u64, part_bytes: u64, whole_bytes: u64) -> u64 {
    let needed = u128::from(limit_for(planned_bytes)) * u128::from(whole_bytes.max(1));
    u64::try_from(needed.div_ceil(u128::from(part_bytes.max(1)))).unwrap_or(u64::MAX)
}

/// Returns the smallest box that contains all regions.
pub(crate) fn hull_of(regions: &[Region]) -> Region {
    let Some((first, others)) = regions.split_first() else {
        return Region { number: 0, start: Vec::new(), extent: Vec::new() };
    };
    let mut hull = first.clone();
    for region in others {
        for axis in 0..hull.start.len() {
            let end = (hull.start[axis] + hull.extent[axis]).max(region.start[axis] + region.extent[axis]);
            hull.start[axis] = hull.start[axis].min(region.start[axis]);
            hull.extent[axis] = end - hull.start[axis];
        }
    }
    hull
}

/// Divides `shape` into regions in C order: boxes of whole `unit`s (chunks, or stored objects). Each region is as large
/// as `limit_bytes` allows; `cost` gives the bytes that work on a region needs, and `needed` the memory limit for so many
/// bytes. Regions grow along the last dimension first, so that each is nearly one contiguous piece of the array. They do
/// not grow beyond `enough_bytes`, so that several can be in progress at the same time.
///
/// # Errors
/// `BudgetExceeded` when one unit takes more than the limit.
pub(crate) fn regions(
    shape: &[u64],
    unit: &[u64],
    cost: &dyn Fn(&[u64]) -> u64,
    limit_bytes: u64,
    enough_bytes: u64,
    needed: &dyn Fn(u64) -> u64,
) -> Result<Vec<Region>> {
    if shape.contains(&0) {
        return Ok(Vec::new());
    }
    let clip = |extent: &[u64]| -> Vec<u64> { extent.iter().zip(shape).map(|(&own, &whole)| own.min(whole)).collect() };
    let mut extent = clip(unit);
    let least = cost(&extent);
    if least > limit_bytes {
        let message = format!(
            "work on one chunk of shape {extent:?} takes {least} bytes at once, the memory limit leaves {limit_bytes}"
        );
        let hint =
            format!("raise `memory_limit` to at least {} bytes, or store smaller chunks or shards", needed(least));
        return Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint));
    }
    let allowed = limit_bytes.min(enough_bytes);
    for axis in (0..shape.len()).rev() {
        let grown = |units: u64| {
            let mut grown = extent.clone();
            grown[axis] = units.saturating_mul(unit[axis]).min(shape[axis]);
            grown
        };
        // The largest number of units along this dimension that fits.
        let (mut low, mut high) = (1, shape[axis].div_ceil(unit[axis]));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if cost(&grown(middle)) <= allowed { low = middle } else { high = middle - 1 }
        }
        extent = grown(low);
        if extent[axis] < shape[axis] {
            break;
        }
    }
    let counts: Vec<u64> = shape.iter().zip(&extent).map(|(&whole, &own)| whole.div_ceil(own)).collect();
    let total: u64 = counts.iter().product();
    let region = |number: u64| {
        let mut rest = number;
        let mut start = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            start[axis] = rest % counts[axis] * extent[axis];
            rest /= counts[axis];
        }
        let extent =
            start.iter().zip(&extent).zip(shape).map(|((&start, &own), &whole)| own.min(whole - start)).collect();
        Region { number, start, extent }
    };
    Ok((0..total).map(region).collect())
}

/// Returns the region of an operand of shape `shape` that a region of the result needs. The operand is broadcast to the
/// result.
pub(crate) fn operand_region(region: &Region, shape: &[u64]) -> Region {
    let skipped = region.start.len().saturating_sub(shape.len());
    let along = |values: &[u64], single: u64| -> Vec<u64> {
        values[skipped..].iter().zip(shape).map(|(&value, &whole)| if whole == 1 { single } else { value }).collect()
    };
    Region { number: region.number, start: along(&region.start, 0), extent: along(&region.extent, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(extent: &[u64]) -> u64 {
        extent.iter().product()
    }

    #[test]
    fn regions_are_whole_units_that_cover_everything_once() {
        for (shape, unit, limit) in [
            (vec![10, 7], vec![3, 2], 30),
            (vec![10, 7], vec![3, 2], 1000),
            (vec![5], vec![2], 2),
            (vec![4, 3, 9], vec![1, 3, 2], 20),
        ] {
            let regions = regions(&shape, &unit, &bytes, limit, limit, &|least| least).unwrap();
            let covered: u64 = regions.iter().map(|region| bytes(&region.extent)).sum();
            assert_eq!(covered, bytes(&shape));
            for region in &regions {
                assert!(bytes(&region.extent) <= limit);
                for axis in 0..shape.len() {
                    assert_eq!(region.start[axis] % unit[axis], 0);
                    let end = region.start[axis] + region.extent[axis];
                    assert!(end == shape[axis] || end % unit[axis] == 0);
                }
            }
        }
    }

    #[test]
    fn a_higher_limit_leaves_no_less_to_plan_with() {
        let mut before = 0;
        for limit in (0..20_000).map(|mib| mib << 20).chain([u64::MAX - GAPS_BYTES]) {
            let plannable = plannable_bytes(limit);
            assert!(plannable >= before && plannable <= limit && limit - plannable <= GAPS_BYTES, "{limit}");
            assert!(plannable_bytes(limit_for(limit)) >= limit, "{limit}");
            before = plannable;
        }
        assert_eq!([128 << 20, 500 << 20, 1 << 30].map(plannable_bytes), [128 << 20, 448 << 20, 960 << 20]);
    }

    #[test]
    fn a_unit_that_does_not_fit_is_an_error_that_says_what_it_takes() {
        let error = regions(&[100], &[50], &bytes, 49, 49, &|least| 2 * least).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert!(error.message().contains("takes 50 bytes"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("at least 100 bytes")), "{error}");
        assert!(regions(&[0, 5], &[1, 1], &bytes, 0, 0, &|least| least).unwrap().is_empty());
        assert_eq!(regions(&[], &[], &bytes, 1, 1, &|least| least).unwrap().len(), 1);
    }

    #[test]
    fn operands_that_broadcast_are_read_once_along_their_single_dimensions() {
        let region = Region { number: 0, start: vec![4, 6, 8], extent: vec![1, 2, 3] };
        let part = operand_region(&region, &[1, 20]);
        assert_eq!((part.start, part.extent), (vec![0, 8], vec![1, 3]));
    }
}
