//! Georeferencing attributes, which say where the elements of an array lie on the earth. They follow the conventions
//! `spatial` (<https://github.com/zarr-conventions/spatial>) and `proj` (<https://github.com/zarr-conventions/proj>).
//!
//! A coordinate reference system holds for any array. `spatial:transform` and `spatial:shape` hold for the indices of
//! one array. An array with other indices, such as a part or a smaller level, gets its own values.

use cuzarr::plan::AxisSelection;
use serde_json::{Map, Value, json};

const PREFIXES: [&str; 2] = ["spatial:", "proj:"];

/// Names of attributes that refer to array indices, so that they are wrong for a part of the array. Drafts had some of
/// them below `proj:`.
const OF_INDICES: [&str; 6] =
    ["spatial:transform", "spatial:shape", "spatial:bbox", "proj:transform", "proj:shape", "proj:bbox"];

const DIMENSIONS: &str = "spatial:dimensions";
const TRANSFORM: &str = "spatial:transform";
const SHAPE: &str = "spatial:shape";
const BBOX: &str = "spatial:bbox";
/// Name of the attribute that lists the conventions that the other attributes follow.
pub(crate) const CONVENTIONS: &str = "zarr_conventions";

/// Where the elements of a new array lie in its source array, along one dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Source index at which the middle of the first new element lies.
    first: f64,
    /// Distance between neighbouring elements of the new array, in indices of the source.
    step: f64,
    count: u64,
    /// Whether the new elements cover the whole extent of the source.
    is_whole: bool,
}

impl Place {
    /// Returns where the elements that `range` selects lie in a dimension of `len` elements.
    pub(crate) fn selected(range: &AxisSelection, len: u64) -> Place {
        let is_whole = (range.start, range.step, range.count) == (0, 1, len);
        Place { first: range.start as f64, step: range.step as f64, count: range.count, is_whole }
    }

    /// Returns where elements lie that are each made from `factor` elements of a source with `len` elements.
    pub(crate) fn combined(factor: u64, len: u64) -> Place {
        let step = factor as f64;
        Place { first: (step - 1.0) / 2.0, step, count: len.div_ceil(factor), is_whole: len.is_multiple_of(factor) }
    }

    fn is_unchanged(&self) -> bool {
        self.step == 1.0 && self.is_whole
    }
}

/// Returns those of the attributes that georeference an array, with their entries in the list of conventions.
pub(crate) fn georeference(attributes: &Map<String, Value>) -> Map<String, Value> {
    let is_own = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut own: Map<String, Value> = attributes.clone().into_iter().filter(|(name, _)| is_own(name)).collect();
    let is_listed = |entry: &&Value| entry.get("name").and_then(Value::as_str).is_some_and(is_convention);
    let listed = attributes.get(CONVENTIONS).and_then(Value::as_array).into_iter().flatten();
    let listed: Vec<Value> = listed.filter(is_listed).cloned().collect();
    if !own.is_empty() && !listed.is_empty() {
        own.insert(CONVENTIONS.to_string(), Value::Array(listed));
    }
    own
}

/// Whether a name is that of one of the two georeferencing conventions. Drafts wrote `proj:` or `geo-proj` instead of
/// `proj`.
fn is_convention(name: &str) -> bool {
    matches!(name.trim_end_matches(':'), "spatial" | "proj" | "geo-proj" | "geo:proj")
}

/// Removes the attributes that refer to array indices.
pub(crate) fn remove_indices(attributes: &mut Map<String, Value>) {
    attributes.retain(|name, _| !OF_INDICES.contains(&name.as_str()));
}

/// Returns the names of the dimensions y and x, if the georeferencing attributes give them.
pub(crate) fn dimension_names(attributes: &Map<String, Value>) -> Option<[&str; 2]> {
    let [y, x] = &attributes.get(DIMENSIONS)?.as_array()?[..] else { return None };
    Some([y.as_str()?, x.as_str()?])
}

/// Returns the indices of the dimensions y and x in an array whose dimensions have these names.
fn dimensions(attributes: &Map<String, Value>, names: &[Option<String>]) -> Option<[usize; 2]> {
    let [y, x] = dimension_names(attributes)?.map(|name| names.iter().position(|other| other.as_deref() == Some(name)));
    Some([y?, x?])
}

/// Updates the names of y and x in the attributes when an array's dimensions are renamed.
pub(crate) fn rename(attributes: &mut Map<String, Value>, names: &[Option<String>], new: &[String]) {
    if let Some([y, x]) = dimensions(attributes, names) {
        attributes.insert(DIMENSIONS.to_string(), json!([new[y], new[x]]));
    }
}

/// Adapts the attributes of an array for a new array whose elements lie at `places` in it. Attributes that are not
/// known for the new array are removed.
pub(crate) fn relocate(attributes: &mut Map<String, Value>, names: &[Option<String>], places: &[Place]) {
    let Some([y, x]) = dimensions(attributes, names).map(|axes| axes.map(|axis| places[axis])) else {
        if places.iter().any(|place| !place.is_unchanged()) {
            remove_indices(attributes);
        }
        return;
    };
    if y.is_unchanged() && x.is_unchanged() {
        return;
    }
    let transform = attributes.get(TRANSFORM).and_then(|given| moved(given, attributes, y, x));
    let had_shape = attributes.contains_key(SHAPE);
    // If indices count from the middle of elements, the box ends at the middle of the outer ones, which moves.
    let bbox = attributes.get(BBOX).cloned().filter(|_| y.is_whole && x.is_whole && !counts_from_middle(attributes));
    remove_indices(attributes);
    attributes.extend(transform.map(|transform| (TRANSFORM.to_string(), transform)));
    attributes.extend(had_shape.then(|| (SHAPE.to_string(), json!([y.count, x.count]))));
    attributes.extend(bbox.map(|bbox| (BBOX.to_string(), bbox)));
}

/// Whether the attributes say that coordinates refer to the middle of an element, not to its corner.
fn counts_from_middle(attributes: &Map<String, Value>) -> bool {
    attributes.get("spatial:registration").and_then(Value::as_str) == Some("node")
}

/// Returns the affine transformation for the new array; `None` for transformations of other types.
fn moved(given: &Value, attributes: &Map<String, Value>, y: Place, x: Place) -> Option<Value> {
    let kind = attributes.get("spatial:transform_type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind != "affine") {
        return None;
    }
    let given: Vec<f64> = given.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    let [a, b, c, d, e, f]: [f64; 6] = given.try_into().ok()?;
    let is_middle = counts_from_middle(attributes);
    let origin = |place: Place| if is_middle { place.first } else { place.first + 0.5 - place.step / 2.0 };
    let (column, row) = (origin(x), origin(y));
    let (c, f) = (a * column + b * row + c, d * column + e * row + f);
    Some(json!([a * x.step, b * y.step, c, d * x.step, e * y.step, f]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<Option<String>> {
        ["band", "y", "x"].map(|name| Some(name.to_string())).to_vec()
    }

    fn attributes(registration: &str) -> Map<String, Value> {
        let attributes = json!({
            "spatial:dimensions": ["y", "x"], "spatial:transform": [10.0, 0.0, 500.0, 0.0, -10.0, 900.0], "spatial:shape": [40, 31],
            "spatial:bbox": [500, 500, 810, 900], "spatial:registration": registration, "proj:code": "EPSG:32633", "units": "m",
        });
        attributes.as_object().unwrap().clone()
    }

    #[test]
    fn levels_keep_the_corner_of_pixels_and_move_the_middle_of_nodes() {
        let places = [Place::combined(1, 3), Place::combined(2, 40), Place::combined(2, 31)];
        let mut pixels = attributes("pixel");
        relocate(&mut pixels, &names(), &places);
        assert_eq!(pixels["spatial:transform"], json!([20.0, 0.0, 500.0, 0.0, -20.0, 900.0]));
        assert_eq!((&pixels["spatial:shape"], &pixels["proj:code"]), (&json!([20, 16]), &json!("EPSG:32633")));
        assert!(!pixels.contains_key("spatial:bbox"), "the last column reaches beyond the box");
        let mut nodes = attributes("node");
        relocate(&mut nodes, &names(), &places);
        assert_eq!(nodes["spatial:transform"], json!([20.0, 0.0, 505.0, 0.0, -20.0, 895.0]));
        let mut exact = attributes("pixel");
        relocate(&mut exact, &names(), &[places[0], places[1], Place::combined(1, 31)]);
        assert_eq!(exact["spatial:bbox"], json!([500, 500, 810, 900]));
        let mut nodes = attributes("node");
        relocate(&mut nodes, &names(), &[places[0], places[1], Place::combined(1, 31)]);
        assert!(!nodes.contains_key("spatial:bbox"), "the middles of the outer rows moved");
    }

    #[test]
    fn parts_begin_where_their_first_element_lies() {
        let range = |start, step, count| AxisSelection { start, count, step, dropped: false };
        let places = [
            Place::selected(&range(0, 1, 3), 3),
            Place::selected(&range(4, 1, 6), 40),
            Place::selected(&range(1, 3, 9), 31),
        ];
        let mut part = attributes("pixel");
        relocate(&mut part, &names(), &places);
        // The middle of the first element is at column 1.5 of the source, but the element is three columns wide.
        assert_eq!(part["spatial:transform"], json!([30.0, 0.0, 500.0, 0.0, -10.0, 860.0]));
        assert_eq!(part["spatial:shape"], json!([6, 9]));
        assert!(!part.contains_key("spatial:bbox"));
        let mut bands = attributes("pixel");
        let whole = [Place::selected(&range(1, 1, 1), 3), Place::combined(1, 40), Place::combined(1, 31)];
        relocate(&mut bands, &names(), &whole);
        assert_eq!(bands, attributes("pixel"), "a part of the bands lies at the same place");
    }

    #[test]
    fn transformations_that_are_not_known_are_left_out() {
        let places = [Place::combined(2, 40), Place::combined(2, 31)];
        for (member, value) in [
            ("spatial:transform_type", json!("rpc")),
            ("spatial:transform", json!([1.0])),
            ("spatial:dimensions", json!(["lat", "lon"])),
        ] {
            let mut other = attributes("pixel");
            other.insert(member.to_string(), value);
            relocate(&mut other, &names()[1..], &places);
            assert!(!other.contains_key("spatial:transform"), "{member}");
            assert_eq!(other["units"], "m");
        }
    }

    #[test]
    fn the_conventions_of_a_georeference_are_listed_with_it() {
        let listed = json!([{"name": "multiscales"}, {"name": "spatial:"}, {"name": "proj"}]);
        let mut all = attributes("pixel");
        all.insert("zarr_conventions".into(), listed);
        let own = georeference(&all);
        assert_eq!(own["zarr_conventions"], json!([{"name": "spatial:"}, {"name": "proj"}]));
        assert!(!own.contains_key("units"));
        let without = json!({"zarr_conventions": [{"name": "proj"}], "units": "m"});
        assert!(georeference(without.as_object().unwrap()).is_empty());
    }
}
