//! The axes of pictures: the names of dimensions, and the positions of their elements.

use std::ops::Range;
use std::sync::Arc;

use cuzarr::Result;
use cuzarr::meta::{Decoding, ImageAxis, ImageLevel};
use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::store::join_key;
use cuzarr_compute::Expr;
use cuzarr_device::{DType, Device, Order};
use serde_json::{Value, json};

use crate::output;

/// Largest deviation at which positions count as evenly spaced, in multiples of the distance between two neighbours.
const UNEVEN: f64 = 1e-3;
/// Largest number of coordinates that are read to label an axis; those of a longer dimension are not read.
const MOST_PLACES: u64 = 1 << 24;

/// One axis of a picture: the dimension's name, and the positions of its elements.
pub struct Axis {
    /// The name of the axis, with the unit of its positions.
    pub name: String,
    /// Positions on the axis: from the edge of the first element to the edge of the last one. If positions are
    /// `uneven`, these are element numbers.
    pub range: Range<f64>,
    /// The position of each element, if the elements are not evenly spaced.
    uneven: Option<Vec<f64>>,
    count: u64,
}

/// One level of a multiscale image, and the image's axes.
pub struct Scaled<'a> {
    pub axes: &'a [ImageAxis],
    pub level: &'a ImageLevel,
}

impl Axis {
    /// Returns the axes for the dimensions that a selection keeps. Positions come from the image, if given, or else
    /// from the array that has the dimension's name and lies beside this one. Otherwise positions are indices.
    pub fn of(array: &Array, selection: &Selection, image: Option<&Scaled<'_>>) -> Vec<Axis> {
        let names = array.metadata().xarray_dimensions().unwrap_or_default();
        let axes = selection.axes().unwrap_or_default().iter().enumerate().filter(|(_, axis)| !axis.dropped);
        let axis = |(number, selected): (usize, &AxisSelection)| {
            let name = names.get(number).cloned().flatten();
            let scaled = image.and_then(|image| Some((image.axes.get(number), *image.level.scale.get(number)?, image)));
            if let Some((own, scale, image)) = scaled {
                let first = image.level.translation.get(number).copied().unwrap_or(0.0);
                let place = |index: u64| first + scale * index as f64;
                let places = (0..selected.count).map(|at| place(selected.start + at * selected.step)).collect();
                let name = own.map(|axis| axis.name.clone()).or(name).unwrap_or_else(|| unnamed(number));
                return Axis::at(name, own.and_then(|axis| axis.unit.clone()), places);
            }
            if let Some((places, unit)) = name.as_deref().and_then(|name| coordinate(array, name, number, selected)) {
                return Axis::at(name.unwrap_or_else(|| unnamed(number)), unit, places);
            }
            let places = (0..selected.count).map(|at| (selected.start + at * selected.step) as f64).collect();
            Axis::at(name.unwrap_or_else(|| unnamed(number)), None, places)
        };
        axes.map(axis).collect()
    }

    /// Makes an axis whose elements lie at the positions `places`.
    fn at(name: String, unit: Option<String>, places: Vec<f64>) -> Axis {
        let name = unit.filter(|unit| !unit.is_empty()).map_or_else(|| name.clone(), |unit| format!("{name} ({unit})"));
        let count = places.len() as u64;
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
            return Axis { name, range: 0.0..1.0, uneven: None, count };
        };
        let step = if count > 1 { (last - first) / (count - 1) as f64 } else { 1.0 };
        let is_even = |(at, place): (usize, &f64)| (first + step * at as f64 - place).abs() <= UNEVEN * step.abs();
        if step != 0.0 && places.iter().enumerate().all(is_even) {
            return Axis { name, range: first - step / 2.0..last + step / 2.0, uneven: None, count };
        }
        Axis { name, range: -0.5..count as f64 - 0.5, uneven: Some(places), count }
    }

    /// Returns where an element lies on the axis.
    pub fn place(&self, element: usize) -> f64 {
        let step = (self.range.end - self.range.start) / self.count.max(1) as f64;
        self.range.start + step * (element as f64 + 0.5)
    }

    /// Returns the text that labels a position on the axis.
    pub fn text(&self, place: f64) -> String {
        match &self.uneven {
            None => output::number(place),
            Some(places) => {
                let element = place.round().clamp(0.0, places.len().saturating_sub(1) as f64) as usize;
                places.get(element).map_or_else(String::new, |place| output::number(*place))
            }
        }
    }

    /// Returns the texts that label the first and the last element of this axis.
    fn ends(&self) -> [String; 2] {
        [0, self.count.saturating_sub(1) as usize].map(|element| self.text(self.place(element)))
    }

    /// Formats the axis for people: `latitude (degrees_north): 90 to -90`.
    pub fn to_text(&self) -> String {
        let ends = self.ends();
        let [first, last] = ends.each_ref().map(|end| end.strip_suffix(".0").unwrap_or(end));
        format!("{}: {first} to {last}", self.name)
    }

    /// Returns the axis as JSON, for programs.
    pub fn to_json(&self) -> Value {
        let number = |text: &String| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let [first, last] = &self.ends();
        json!({"name": self.name, "first": number(first), "last": number(last)})
    }
}

fn unnamed(number: usize) -> String {
    format!("dimension {number}")
}

/// Reads the coordinates of the selected part of a dimension from the array beside it that has the dimension's name.
/// Returns the numbers and their unit. `None` if there is no such array, or if its shape does not fit.
fn coordinate(
    array: &Array,
    name: &str,
    number: usize,
    selected: &AxisSelection,
) -> Option<(Vec<f64>, Option<String>)> {
    let options = array.options().clone();
    let found = match array.path().rsplit_once('/') {
        _ if name.contains('/') => return None,
        Some((_, own)) if own == name => return None,
        Some((group, _)) => Array::open(Arc::clone(array.store()), &join_key(group, name), options),
        None if array.path().is_empty() => {
            let (above, own) = array.store().above().filter(|(_, own)| own != name)?;
            drop(own);
            Array::open(above, name, options)
        }
        None if array.path() == name => return None,
        None => Array::open(Arc::clone(array.store()), name, options),
    };
    let found = found.ok()?;
    let extent = array.shape().get(number)?;
    if found.shape() != [*extent] || *extent > MOST_PLACES {
        return None;
    }
    let decoding = found.metadata().decoding().ok()?;
    let selection = Selection::new(vec![*selected]).ok()?;
    let places = stored_numbers(&found, &selection, &decoding).ok()?;
    places.iter().all(|place| place.is_finite()).then_some((places, decoding.units))
}

/// Returns the selected numbers of an array, with scale factor and offset applied.
///
/// # Errors
/// Those of reading, and of [`Expr::decoded_by`].
pub fn stored_numbers(array: &Array, selection: &Selection, decoding: &Decoding) -> Result<Vec<f64>> {
    let part = Expr::buffer(array.read_buffer(selection)?.to_device(Device::Cpu)?)?.decoded_by(decoding, None)?;
    let part = part.astype(DType::FLOAT64)?.evaluate(Device::Cpu)?.copy(Order::C)?;
    Ok(part.host_slice::<f64>()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_at_even_distances_have_edges_half_a_step_away() {
        let axis = Axis::at("latitude".into(), Some("degrees_north".into()), vec![90.0, 60.0, 30.0]);
        assert_eq!((axis.range.clone(), axis.name.as_str()), (105.0..15.0, "latitude (degrees_north)"));
        assert_eq!((axis.place(2), axis.text(60.0)), (30.0, "60.0".to_string()));
        assert_eq!(axis.to_text(), "latitude (degrees_north): 90 to 30");
    }

    #[test]
    fn elements_at_other_distances_are_counted_and_named_by_their_places() {
        let axis = Axis::at("depth".into(), None, vec![0.0, 10.0, 100.0, 1000.0]);
        assert_eq!(axis.range, -0.5..3.5);
        assert_eq!([0.0, 1.9, 3.4].map(|at| axis.text(at)), ["0.0", "100.0", "1000.0"]);
        assert_eq!(axis.to_json(), json!({"name": "depth", "first": 0.0, "last": 1000.0}));
    }
}
