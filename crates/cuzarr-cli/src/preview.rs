//! `cuzarr preview`: draws a plane of an array, the channels of an image, or a line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cuzarr::meta::{Decoding, ImageAxis, Multiscales};
use cuzarr::node::{Array, Node};
use cuzarr::plan::{AxisSelection, Selection, SliceArg};
use cuzarr::store::Registry;
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_device::{DTypeKind, Device};
use serde_json::{Map, Value, json};

use crate::axes::{Axis, Scaled, stored_numbers};
use crate::output::{self, Output};
use crate::picture::{self, Channel, Colours, Legend, Limits, Picture};
use crate::{Verdict, arguments, nodes};

#[derive(Args)]
pub struct Preview {
    /// Path or URL of an array, or of a group that is an image of several scales
    path: String,
    /// Level of an image, 0 is the largest [default: the smallest that fills the picture; with --slice the largest]
    #[arg(long, value_parser = arguments::count)]
    level: Option<usize>,
    /// Plane or row to draw, as a NumPy index: '0,:,:' or '...,10:20,::2' [default: the last two dimensions, at index 0 of the others; of
    /// an image all channels, in the middle of z]
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    slice: Option<String>,
    /// Write a PNG file; without it, draw on the terminal
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Replace an existing file that is not a picture
    #[arg(long)]
    overwrite: bool,
    /// Largest width of the picture, in columns or pixels [default: that of the terminal, at most 100; 1024 in a file]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65536))]
    width: Option<u64>,
    /// Number drawn darkest [default: the minimum, or the limit that an image gives for a channel]
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::number)]
    min: Option<f64>,
    /// Number drawn lightest [default: the maximum, or the limit that an image gives for a channel]
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::number)]
    max: Option<f64>,
    /// Colours of numbers [default: viridis; labels for labels and for arrays with flag_values; of an image those of its channels]
    #[arg(long, value_enum)]
    cmap: Option<Colours>,
    /// Device that decodes: cpu or cuda:N
    #[arg(long)]
    device: Option<Device>,
    /// Take numbers as they are stored; do not apply _FillValue, scale_factor and add_offset
    #[arg(long)]
    raw: bool,
    /// Show what would be read and drawn, then stop
    #[arg(long)]
    dry_run: bool,
}

/// Number of rows of a terminal on which a line is drawn.
const LINE_ROWS: usize = 20;
/// Largest number of labels that a legend explains; further ones have no entry in it.
const MOST_LABELS: usize = 16;
/// Colours that are given in turn to channels without a colour. People who cannot tell red from green can still
/// distinguish neighbouring ones.
const CHANNEL_COLOURS: [[u8; 3]; 6] =
    [[0, 255, 0], [255, 0, 255], [0, 255, 255], [255, 255, 0], [255, 0, 0], [0, 0, 255]];

/// The array that is drawn, and the image that it is a level of.
struct View {
    array: Array,
    /// The image that the array is a level of, and the index of that level; `None` if the array is no part of an image.
    image: Option<(Multiscales, usize)>,
    /// The attribute `image-label`, if the image consists of labels.
    labels: Option<Map<String, Value>>,
}

/// A channel of an image that will be drawn, before its numbers are read.
struct Plan {
    index: u64,
    name: String,
    colour: [u8; 3],
    window: Option<Limits>,
}

impl Preview {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let view = self.open(output.registry())?;
        let array = &view.array;
        let dtype = array.metadata().data_type().device_dtype();
        if dtype.is_none_or(|dtype| matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)) {
            let message = format!("cannot draw elements of type {}", array.metadata().data_type());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if !self.raw {
            nodes::refuse_times(&view.array)?;
        }
        let selection = thinned(&self.plane(&view)?, self.columns())?;
        if let Some(path) = &self.png {
            picture::check_place(path, &["png"], &self.path, self.overwrite)?;
        }
        if self.dry_run {
            return self.show_plan(&selection, output);
        }
        let decoding = if self.raw { Decoding::default() } else { array.metadata().decoding()? };
        let image =
            view.image.as_ref().map(|(image, level)| Scaled { axes: &image.axes, level: &image.levels[*level] });
        let axes = Axis::of(array, &selection, image.as_ref());
        let channels = self.channels(&view);
        let drawn = match &axes[..] {
            [axis] => self.line(array, &selection, &decoding, axis, output)?,
            [down, across] if channels.is_empty() => {
                self.numbers(&view, &selection, &decoding, [down, across], output)?
            }
            [down, across] => self.composite(&view, &selection, &decoding, channels, [down, across], output)?,
            _ => return Err(not_a_picture(&selection)),
        };
        let shape = selection.shape();
        let (rows, columns) = if let [rows, columns] = shape[..] { (rows, columns) } else { (1, shape[0]) };
        let mut document = json!({
            "path": nodes::shown(&self.path), "array": array.name(), "selection": drawn.selection,
            "rows": rows, "columns": columns,
            "axes": axes.iter().map(Axis::to_json).collect::<Vec<_>>(), "units": decoding.units,
        });
        document.as_object_mut().into_iter().for_each(|members| members.extend(drawn.members.clone()));
        let title = format!("{} {}: {}", nodes::shown(&self.path), drawn.selection, drawn.range);
        if let Some(path) = &self.png {
            drawn.picture.save(path)?;
            document["png"] = json!(path);
            output.answer(&document, &format!("{title}, {columns} x {rows} pixels in {}", path.display()));
            return Ok(Verdict::Passed);
        }
        let places = match &axes[..] {
            [down, across] => format!("down {}, across {}", down.to_text(), across.to_text()),
            axes => axes.iter().map(Axis::to_text).collect(),
        };
        let pixels = if output::has_colours() { drawn.picture.in_colour() } else { drawn.picture.in_characters() };
        output.answer_with_picture(&document, &format!("{title}\n{places}\n"), &pixels);
        Ok(Verdict::Passed)
    }

    /// Draws a line through the elements of one dimension.
    fn line(
        &self,
        array: &Array,
        selection: &Selection,
        decoding: &Decoding,
        axis: &Axis,
        output: &mut Output,
    ) -> Result<Drawn> {
        let values = self.read(array, selection, decoding, output)?;
        let range = self.range(&values, None)?;
        let unit = decoding.units.as_deref().unwrap_or_default();
        let picture = match self.png {
            Some(_) => Picture::of_line(&self.title(selection), unit, axis, &values, range)?,
            None => Picture::of_points(LINE_ROWS, &values, range),
        };
        Ok(Drawn::new(picture, selection, range, decoding, array))
    }

    /// Draws a plane of numbers or of labels.
    fn numbers(
        &self,
        view: &View,
        selection: &Selection,
        decoding: &Decoding,
        axes: [&Axis; 2],
        output: &mut Output,
    ) -> Result<Drawn> {
        let values = self.read(&view.array, selection, decoding, output)?;
        let range = self.range(&values, None)?;
        let (rows, columns) = (selection.shape()[0] as usize, selection.shape()[1] as usize);
        let usual = if view.are_labels() { Colours::Labels } else { Colours::default() };
        let colours = self.cmap.unwrap_or(usual);
        let own = view.label_colours();
        let mut picture = match colours {
            Colours::Labels => Picture::of_labels(columns, rows, &values, &own),
            _ => Picture::of(columns, rows, &values, range, colours),
        };
        if self.png.is_some() {
            let unit = decoding.units.as_deref().unwrap_or_default();
            let names = view.label_names(&values, &own);
            let legend = match colours {
                Colours::Labels => Legend::Names(&names),
                _ => Legend::Bar { range, colours, unit },
            };
            picture = picture.with_axes(&self.title(selection), axes, &legend)?;
        }
        Ok(Drawn::new(picture, selection, range, decoding, &view.array))
    }

    /// Draws the channels of an image over each other, each in its colour.
    fn composite(
        &self,
        view: &View,
        selection: &Selection,
        decoding: &Decoding,
        plans: Vec<Plan>,
        axes: [&Axis; 2],
        output: &mut Output,
    ) -> Result<Drawn> {
        let (rows, columns) = (selection.shape()[0] as usize, selection.shape()[1] as usize);
        let axis = view.axis("channel", "c");
        let mut channels = Vec::new();
        for plan in plans {
            let plane = at_channel(selection, axis, Some(plan.index))?;
            let values = self.read(&view.array, &plane, decoding, output)?;
            let range = self.range(&values, plan.window)?;
            channels.push(Channel { name: plan.name, colour: plan.colour, values, range });
        }
        let selection = at_channel(selection, axis, None)?;
        let mut picture = Picture::of_channels(columns, rows, &channels);
        let texts = channels
            .iter()
            .map(|channel| format!("{} {}", channel.name, range_text(channel.range, decoding, &view.array)));
        let range = texts.collect::<Vec<_>>().join(", ");
        if self.png.is_some() {
            let names: Vec<_> = channels.iter().map(|channel| (channel.name.clone(), channel.colour)).collect();
            picture = picture.with_axes(&self.title(&selection), axes, &Legend::Names(&names))?;
        }
        let json = |channel: &Channel| {
            let [red, green, blue] = channel.colour;
            let Limits { low, high } = channel.range;
            let colour = format!("{red:02X}{green:02X}{blue:02X}");
            json!({"name": channel.name, "color": colour, "min": finite(low), "max": finite(high)})
        };
        let members = Map::from_iter([("channels".to_string(), channels.iter().map(json).collect())]);
        Ok(Drawn { picture, selection: selection.to_string(), range, members })
    }

    /// Returns the numbers that are drawn darkest and lightest: those that the user gave, else a channel's window, else
    /// the smallest and the largest number.
    fn range(&self, values: &[f64], window: Option<Limits>) -> Result<Limits> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let low = || window.map_or_else(|| finite().fold(f64::INFINITY, f64::min), |window| window.low);
        let high = || window.map_or_else(|| finite().fold(f64::NEG_INFINITY, f64::max), |window| window.high);
        let (low, high) = (self.min.unwrap_or_else(low), self.max.unwrap_or_else(high));
        if (self.min.is_some() || self.max.is_some()) && low > high {
            let message = format!("--min, {low}, is above --max, {high}");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("change --min or --max"));
        }
        Ok(Limits { low, high })
    }

    fn title(&self, selection: &Selection) -> String {
        format!("{} {selection}", nodes::shown(&self.path))
    }

    /// Returns the largest number of columns that the picture may have.
    fn columns(&self) -> u64 {
        let usual = if self.png.is_some() { 1024 } else { output::terminal_columns().unwrap_or(100).clamp(1, 100) };
        self.width.unwrap_or(usual)
    }

    /// Opens the array, or the level of an image, that is to be drawn.
    fn open(&self, registry: &Registry) -> Result<View> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let group = match nodes::open(registry, &self.path, self.device)? {
            Node::Array(_) if self.level.is_some() => {
                let error = invalid(format!("'{}' is an array, which has no levels", nodes::shown(&self.path)));
                return Err(error.with_hint("leave out --level"));
            }
            Node::Array(array) => return Ok(View { array, image: None, labels: None }),
            Node::Group(group) => group,
        };
        let attributes = group.metadata().attributes();
        let Some(image) = Multiscales::of(attributes)? else {
            let message =
                format!("'{}' is a group, expected an array or an image of several scales", nodes::shown(&self.path));
            return Err(Error::new(ErrorKind::ArrayNotFound, message).with_hint("use cuzarr tree to see what is in it"));
        };
        let ome = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
        let labels = ome.get("image-label").and_then(Value::as_object).cloned();
        let count = image.levels.len();
        let level = |number: usize| group.level(&image.levels[number].path).at(|| format!("level {number}"));
        let number = match self.level {
            Some(number) if number < count => number,
            Some(number) => {
                return Err(invalid(format!("--level is {number}, the image has the levels 0 to {}", count - 1)));
            }
            None if self.slice.is_some() => 0,
            None => {
                let mut found = 0;
                for number in (1..count).rev() {
                    if level(number)?.shape().last().is_some_and(|columns| *columns >= self.columns()) {
                        found = number;
                        break;
                    }
                }
                found
            }
        };
        Ok(View { array: level(number)?, image: Some((image, number)), labels })
    }

    /// Returns the channels of an image that are drawn over each other. There are none if options set the slice or the
    /// colours.
    fn channels(&self, view: &View) -> Vec<Plan> {
        let Some((image, _)) = &view.image else { return Vec::new() };
        if self.slice.is_some() || self.cmap.is_some() || view.are_labels() {
            return Vec::new();
        }
        let described = image.omero.as_ref().and_then(|omero| omero.get("channels")?.as_array());
        let count = view.axis("channel", "c").map_or(1, |axis| view.array.shape()[axis]);
        if count == 1 && described.is_none_or(Vec::is_empty) {
            return Vec::new();
        }
        let plan = |index: u64| {
            let own = described.and_then(|all| all.get(index as usize)).unwrap_or(&Value::Null);
            let name =
                own.get("label").and_then(Value::as_str).map_or_else(|| format!("channel {index}"), String::from);
            let colour = own.get("color").and_then(Value::as_str).and_then(hex_colour);
            let limit = |limit: &str| own.get("window")?.get(limit)?.as_f64();
            let usual = if count == 1 { [255; 3] } else { CHANNEL_COLOURS[index as usize % CHANNEL_COLOURS.len()] };
            let is_active = own.get("active") != Some(&Value::Bool(false));
            let window = limit("start")
                .zip(limit("end"))
                .filter(|(start, end)| start < end)
                .map(|(low, high)| Limits { low, high });
            (is_active, Plan { index, name, colour: colour.unwrap_or(usual), window })
        };
        let (active, others): (Vec<_>, Vec<_>) = (0..count).map(plan).partition(|(is_active, _)| *is_active);
        let drawn = if active.is_empty() { others } else { active };
        drawn.into_iter().map(|(_, plan)| plan).collect()
    }

    /// Reads the numbers of a plane or row, a few rows of chunks at a time.
    fn read(&self, array: &Array, plane: &Selection, decoding: &Decoding, output: &mut Output) -> Result<Vec<f64>> {
        let (begun, label, size) =
            (Instant::now(), format!("preview {}", nodes::shown(&self.path)), size_of::<f64>() as u64);
        let total = plane.shape().iter().product::<u64>() * size;
        let mut values = Vec::new();
        for band in bands(plane, &array.chunk_shape()?)? {
            values.extend(stored_numbers(array, &band, decoding)?);
            output.throughput(&label, values.len() as u64 * size, total, begun.elapsed().as_secs_f64());
        }
        Ok(values)
    }

    fn show_plan(&self, selection: &Selection, output: &mut Output) -> Result<Verdict> {
        let shape = selection.shape();
        let (rows, columns) = if let [rows, columns] = shape[..] { (rows, columns) } else { (1, shape[0]) };
        let mut document = json!({
            "path": nodes::shown(&self.path), "selection": selection.to_string(), "rows": rows, "columns": columns, "dry_run": true,
        });
        let mut text = format!("{} {selection}: {columns} x {rows} pixels", nodes::shown(&self.path));
        if let Some(path) = &self.png {
            document["png"] = json!(path);
            text += &format!(" in {}", path.display());
        }
        output.answer(&document, &text);
        Ok(Verdict::Passed)
    }

    /// Returns the plane or row that the user asked for, before it is thinned.
    fn plane(&self, view: &View) -> Result<Selection> {
        let shape = view.array.shape();
        let args: Vec<SliceArg> = match &self.slice {
            Some(text) => text.split(',').map(slice_of).collect::<Result<_>>()?,
            None => {
                let middle = view.axis("space", "z");
                let index = |axis: usize| if middle == Some(axis) { shape[axis] / 2 } else { 0 };
                (0..shape.len().saturating_sub(2)).map(|axis| SliceArg::Index(index(axis) as i64)).collect()
            }
        };
        let selection = Selection::from_slices(&args, shape)?;
        if !matches!(selection.shape().len(), 1 | 2) || selection.is_empty() {
            return Err(not_a_picture(&selection));
        }
        Ok(selection)
    }
}

fn not_a_picture(selection: &Selection) -> Error {
    let shape = selection.shape();
    let message =
        format!("a picture has 1 or 2 dimensions with elements, the selection {selection} has shape {shape:?}");
    Error::new(ErrorKind::SelectionInvalid, message).with_hint("choose a plane with --slice '0,:,:'")
}

impl View {
    /// Returns the index of the image's dimension with this name and kind, if it lies before the last two.
    fn axis(&self, kind: &str, name: &str) -> Option<usize> {
        let (image, _) = self.image.as_ref()?;
        let planes = self.array.shape().len().saturating_sub(2);
        let axes = image.axes.iter().take(planes).enumerate().filter(|_| image.axes.len() == self.array.shape().len());
        let is_kind = |axis: &ImageAxis| axis.kind.as_deref().is_none_or(|own| own == kind);
        axes.filter(|(_, axis)| axis.name == name && is_kind(axis)).map(|(number, _)| number).next()
    }

    /// Whether the array's numbers identify objects or classes, instead of measuring amounts.
    fn are_labels(&self) -> bool {
        let dtype = self.array.metadata().data_type().device_dtype();
        let is_whole = dtype.is_some_and(|dtype| matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt));
        is_whole && (self.labels.is_some() || self.array.metadata().attributes().contains_key("flag_values"))
    }

    /// Returns the colours that the attributes of a label image give to labels.
    fn label_colours(&self) -> BTreeMap<u64, [u8; 3]> {
        let colours = self.labels.as_ref().and_then(|labels| labels.get("colors")?.as_array());
        let colour = |one: &Value| {
            let part = |at: usize| u8::try_from(one.get("rgba")?.get(at)?.as_u64()?).ok();
            Some((one.get("label-value")?.as_u64()?, [part(0)?, part(1)?, part(2)?]))
        };
        colours.into_iter().flatten().filter_map(colour).collect()
    }

    /// Returns the first labels that occur among numbers, each with its meaning (if the array gives one) and its
    /// colour.
    fn label_names(&self, values: &[f64], own: &BTreeMap<u64, [u8; 3]>) -> Vec<(String, [u8; 3])> {
        let attributes = self.array.metadata().attributes();
        let flags: Vec<f64> = attributes
            .get("flag_values")
            .and_then(Value::as_array)
            .map_or_else(Vec::new, |flags| flags.iter().map(|flag| flag.as_f64().unwrap_or(f64::NAN)).collect());
        let meanings = attributes.get("flag_meanings").and_then(Value::as_str).unwrap_or_default();
        let meanings: Vec<&str> = meanings.split_whitespace().collect();
        let mut labels: Vec<f64> = values.iter().copied().filter(|value| value.is_finite() && *value != 0.0).collect();
        labels.sort_by(f64::total_cmp);
        labels.dedup();
        let name = |label: f64| {
            let meaning = flags.iter().position(|flag| *flag == label).and_then(|at| meanings.get(at));
            meaning.map_or_else(|| format!("{label}"), |meaning| format!("{label} {meaning}"))
        };
        labels.into_iter().take(MOST_LABELS).map(|label| (name(label), picture::colour_of_label(label, own))).collect()
    }
}

/// A picture that was drawn, and the information that the command prints with it.
struct Drawn {
    picture: Picture,
    selection: String,
    range: String,
    members: Map<String, Value>,
}

impl Drawn {
    fn new(picture: Picture, selection: &Selection, range: Limits, decoding: &Decoding, array: &Array) -> Drawn {
        let Limits { low, high } = range;
        let members = [("min", low), ("max", high)].map(|(name, value)| (name.to_string(), json!(finite(value))));
        let range = range_text(range, decoding, array);
        Drawn { picture, selection: selection.to_string(), range, members: members.into_iter().collect() }
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Formats the numbers that are drawn darkest and lightest as text for people, with the unit.
fn range_text(range: Limits, decoding: &Decoding, array: &Array) -> String {
    let Limits { low, high } = range;
    if low > high {
        return "no finite element".into();
    }
    let dtype = decoding.dtype.or(array.metadata().data_type().device_dtype());
    let units = decoding.units.as_ref().map_or_else(String::new, |units| format!(" {units}"));
    format!("{} to {}{units}", output::element(low, dtype), output::element(high, dtype))
}

/// Parses a colour as OME-Zarr writes it: `00FF00`.
fn hex_colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.trim_start_matches('#');
    let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    Some([part(0)?, part(2)?, part(4)?])
}

/// Returns the selection of one channel from that of a plane; with `None`, of the first channel, keeping the dimension.
fn at_channel(plane: &Selection, axis: Option<usize>, channel: Option<u64>) -> Result<Selection> {
    let mut axes = plane.axes().unwrap_or_default().to_vec();
    if let Some(own) = axis.and_then(|axis| axes.get_mut(axis)) {
        *own = AxisSelection { start: channel.unwrap_or(0), count: 1, step: 1, dropped: channel.is_some() };
    }
    Selection::new(axes)
}

/// Keeps only every n-th element of a plane along both dimensions, so that there are at most `width` columns and pixels
/// stay square.
fn thinned(selection: &Selection, width: u64) -> Result<Selection> {
    let columns = selection.shape().last().copied().unwrap_or(1);
    let step = columns.div_ceil(width);
    let axes = selection.axes().unwrap_or_default().iter().map(|axis| match axis.dropped {
        true => *axis,
        false => AxisSelection { count: axis.count.div_ceil(step), step: axis.step.saturating_mul(step), ..*axis },
    });
    Selection::new(axes.collect())
}

/// Largest number of bands of rows in which a plane is read.
const BANDS: u64 = 32;

/// Divides the selection of a plane into bands of rows, which are read one after the other. No chunk lies in two bands.
fn bands(plane: &Selection, chunk_shape: &[u64]) -> Result<Vec<Selection>> {
    let axes = plane.axes().unwrap_or_default();
    let Some(rows) = axes.iter().position(|axis| !axis.dropped) else { return Ok(vec![plane.clone()]) };
    let (all, chunk) = (axes[rows], chunk_shape[rows]);
    let (mut bands, mut first) = (Vec::new(), 0);
    while first < all.count {
        let last = (first + all.count.div_ceil(BANDS)).min(all.count) - 1;
        let next_chunk = ((all.start + last * all.step) / chunk + 1) * chunk;
        let end = (next_chunk - all.start).div_ceil(all.step).min(all.count);
        let mut band = axes.to_vec();
        band[rows] = AxisSelection { start: all.start + first * all.step, count: end - first, ..all };
        bands.push(Selection::new(band)?);
        first = end;
    }
    Ok(bands)
}

/// Parses what NumPy allows for one dimension between brackets, such as `0:10:2`.
///
/// # Errors
/// `InvalidArgument`
pub fn slice_of(part: &str) -> Result<SliceArg> {
    let wrong = |part: &str| {
        let message = format!("'{part}' is not a valid part of --slice");
        Error::new(ErrorKind::InvalidArgument, message).with_hint("use numbers, start:stop:step and '...', as in NumPy")
    };
    let number = |part: &str| part.trim().parse::<i64>().map_err(|_| wrong(part));
    let bound = |part: &str| if part.trim().is_empty() { Ok(None) } else { number(part).map(Some) };
    match part.split(':').collect::<Vec<_>>()[..] {
        [part] if part.trim() == "..." => Ok(SliceArg::Ellipsis),
        [part] => number(part).map(SliceArg::Index),
        [start, stop] => Ok(SliceArg::Slice { start: bound(start)?, stop: bound(stop)?, step: None }),
        [start, stop, step] => Ok(SliceArg::Slice { start: bound(start)?, stop: bound(stop)?, step: bound(step)? }),
        _ => Err(wrong(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_whole_rows_of_chunks_that_cover_the_plane_once() {
        for (start, count, step, chunk) in
            [(0, 1000, 1, 64), (5, 300, 7, 10), (3, 1, 1, 4), (0, 900, 1, 1), (9, 40, 100, 64)]
        {
            let rows = AxisSelection { start, count, step, dropped: false };
            let index = AxisSelection { start: 2, count: 1, step: 1, dropped: true };
            let columns = AxisSelection { start: 0, count: 8, step: 1, dropped: false };
            let plane = Selection::new(vec![index, rows, columns]).unwrap();
            let bands = bands(&plane, &[1, chunk, 8]).unwrap();
            let of = |band: &Selection| {
                let rows = band.axes().unwrap()[1];
                (0..rows.count).map(move |row| rows.start + row * rows.step).collect::<Vec<_>>()
            };
            let all: Vec<u64> = bands.iter().flat_map(of).collect();
            assert_eq!(all, of(&plane));
            assert!(bands.len() as u64 <= BANDS);
            for pair in bands.windows(2) {
                assert!(of(&pair[0]).last().unwrap() / chunk < of(&pair[1])[0] / chunk);
            }
        }
    }
}
