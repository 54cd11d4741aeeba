//! The dimensions of an image: their names, and the factors by which they shrink from level to level.

use super::options::PyramidOptions;
use cuzarr::node::Array;
use cuzarr::{Error, ErrorKind, Result};

/// A pyramid gets no further level once no spatial dimension is longer than this.
const SMALL_EXTENT: u64 = 256;

/// Largest number of levels of a pyramid; a caller that asks for more gets an error.
pub(super) const MOST_LEVELS: usize = 16;

/// Largest number of elements that are combined into one: the limit of `cuzarr_device::downsample`.
const MOST_BOX_ELEMS: u64 = 1 << 16;

/// Dimension names that OME-Zarr 0.5 allows. Arrays without names get the first ones for their last dimensions.
const AXES: [&str; 5] = ["x", "y", "z", "c", "t"];

/// Returns the dimension names, in the order that OME-Zarr requires: time, channel, then two or three spatial
/// dimensions.
///
/// # Errors
/// `InvalidArgument`
pub(super) fn axis_names(source: &Array, options: &PyramidOptions) -> Result<Vec<String>> {
    let ndim = source.metadata().ndim();
    let invalid = |message: String| {
        let error = Error::new(ErrorKind::InvalidArgument, message);
        Err(error.with_hint("name the axes: t, c, z, y, x, in this order, without those that the array has not"))
    };
    if !(2..=5).contains(&ndim) {
        return invalid(format!("OME-Zarr has images of 2 to 5 dimensions, the array has {ndim}"));
    }
    let own: Option<Vec<String>> = source.metadata().xarray_dimensions().and_then(|names| names.into_iter().collect());
    let known = |names: &Vec<String>| names.iter().all(|name| AXES.contains(&name.as_str()));
    let names = match (&options.axes, own) {
        (Some(names), _) => names.clone(),
        (None, Some(names)) if known(&names) => names,
        _ => AXES[..ndim].iter().rev().map(|name| (*name).to_string()).collect(),
    };
    let places: Vec<Option<usize>> = names.iter().map(|name| AXES.iter().position(|axis| axis == name)).collect();
    let ordered = places.windows(2).all(|pair| pair[0] > pair[1]);
    let spatial = names.iter().filter(|name| is_spatial(name)).count();
    if names.len() != ndim || places.contains(&None) || !ordered || spatial < 2 {
        return invalid(format!("the axes {names:?} do not fit an image of {ndim} dimensions"));
    }
    Ok(names)
}

pub(super) fn is_spatial(name: &str) -> bool {
    matches!(name, "x" | "y" | "z")
}

/// Refuses options whose lists do not have one entry for each dimension, and numbers out of range.
///
/// # Errors
/// `InvalidArgument`
pub(super) fn check_lists(ndim: usize, options: &PyramidOptions) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    let lengths = [
        ("scale", options.scale.as_ref().map(Vec::len)),
        ("translation", options.translation.as_ref().map(Vec::len)),
        ("units", options.units.as_ref().map(Vec::len)),
        ("factors", options.factors.as_ref().map(Vec::len)),
    ];
    for (what, length) in lengths {
        if let Some(length) = length.filter(|length| *length != ndim) {
            return invalid(format!(
                "{what}: got {length} values, expected {ndim}, one for each dimension of the array"
            ));
        }
    }
    if let Some(scale) =
        options.scale.as_ref().filter(|scale| scale.iter().any(|size| !size.is_finite() || *size <= 0.0))
    {
        return invalid(format!("the scale {scale:?} has sizes that are not above 0"));
    }
    if let Some(places) = options.translation.as_ref().filter(|places| places.iter().any(|place| !place.is_finite())) {
        return invalid(format!("the translation {places:?} has places that are not finite"));
    }
    if let Some(factors) = &options.factors {
        let elems = factors.iter().try_fold(1u64, |elems, factor| elems.checked_mul(*factor));
        if elems.is_none_or(|elems| !(2..=MOST_BOX_ELEMS).contains(&elems)) {
            return invalid(format!(
                "factors are {factors:?}, expected numbers with a product of 2 to {MOST_BOX_ELEMS}"
            ));
        }
    }
    Ok(())
}

/// Returns for each level after the first how many elements become one along each dimension.
///
/// # Errors
/// `InvalidArgument` for a number of levels out of range.
pub(super) fn factors_of_levels(shape: &[u64], axes: &[String], options: &PyramidOptions) -> Result<Vec<Vec<u64>>> {
    if let Some(count) = options.levels.filter(|count| !(1..=MOST_LEVELS).contains(count)) {
        let message = format!("a pyramid has 1 to {MOST_LEVELS} levels, got {count}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let (mut shape, mut sizes) = (shape.to_vec(), comparable_sizes(axes, options));
    let mut levels = Vec::new();
    while levels.len() + 1 < options.levels.unwrap_or(MOST_LEVELS) {
        let factors = options.factors.clone().unwrap_or_else(|| halved(&shape, axes, &sizes));
        let is_large = axes
            .iter()
            .zip(&factors)
            .zip(&shape)
            .any(|((name, &factor), &len)| factor > 1 && is_spatial(name) && len > SMALL_EXTENT);
        if options.levels.is_none() && !is_large {
            break;
        }
        for (at, factor) in factors.iter().enumerate() {
            shape[at] = shape[at].div_ceil(*factor);
            sizes[at] *= *factor as f64;
        }
        levels.push(factors);
    }
    Ok(levels)
}

/// Returns for each dimension an element size that can be compared with those of the other dimensions. All are 1 if no
/// scale was given or the units differ.
fn comparable_sizes(axes: &[String], options: &PyramidOptions) -> Vec<f64> {
    let unit = |at: usize| options.units.as_ref().map_or("", |units| units[at].as_str());
    let mut units = (0..axes.len()).filter(|&at| is_spatial(&axes[at])).map(unit);
    let first = units.next();
    let alike = units.all(|other| Some(other) == first);
    options.scale.clone().filter(|_| alike).unwrap_or_else(|| vec![1.0; axes.len()])
}

/// Returns the factors of the next level: 2 along spatial dimensions that can shrink, else 1. A dimension without
/// elements is one that will grow. A factor is also 1 where elements are already at least twice as large as along another
/// dimension. So levels become less stretched, as in other microscopy tools.
fn halved(shape: &[u64], axes: &[String], sizes: &[f64]) -> Vec<u64> {
    let shrinks = |at: usize| is_spatial(&axes[at]) && shape[at] != 1;
    let smallest = (0..axes.len()).filter(|&at| shrinks(at)).map(|at| sizes[at]).fold(f64::INFINITY, f64::min);
    let factor = |at: usize| if shrinks(at) && sizes[at] < 2.0 * smallest { 2 } else { 1 };
    (0..axes.len()).map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(shape: &[u64], scale: Option<&[f64]>, units: Option<[&str; 3]>) -> Vec<Vec<u64>> {
        let axes = ["z", "y", "x"].map(String::from);
        let options = PyramidOptions {
            scale: scale.map(<[f64]>::to_vec),
            units: units.map(|units| units.map(String::from).to_vec()),
            ..PyramidOptions::default()
        };
        factors_of_levels(shape, &axes, &options).unwrap()
    }

    #[test]
    fn a_coarser_dimension_is_left_alone_until_the_others_are_as_coarse() {
        let flat = vec![1, 2, 2];
        let all = vec![2, 2, 2];
        assert_eq!(factors(&[300, 900, 900], None, None), [&all[..], &all[..]]);
        assert_eq!(
            factors(&[300, 3000, 3000], Some(&[2.0, 0.5, 0.5]), None),
            [&flat, &flat, &all, &all].map(Vec::clone)
        );
        assert_eq!(factors(&[300, 900, 900], Some(&[0.7, 0.5, 0.5]), None).len(), 2);
        // Micrometres and nanometres are not compared.
        let units = Some(["micrometer", "nanometer", "nanometer"]);
        assert_eq!(factors(&[300, 900, 900], Some(&[1.0, 200.0, 200.0]), units), [&all[..], &all[..]]);
        // A dimension of one element cannot shrink.
        assert_eq!(factors(&[1, 900, 900], Some(&[0.1, 1.0, 1.0]), None), [&flat[..], &flat[..]]);
        // One without elements will grow.
        assert_eq!(factors(&[0, 900, 900], None, None), [&all[..], &all[..]]);
        assert!(factors(&[1000, 200, 200], Some(&[9.0, 1.0, 1.0]), None).is_empty(), "long along z alone");
    }
}
