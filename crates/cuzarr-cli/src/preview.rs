//! `cuzarr preview`: draws a plane of an array.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cuzarr::meta::{Decoding, Multiscales};
use cuzarr::node::{Array, Node};
use cuzarr::plan::{AxisSelection, Selection, SliceArg};
use cuzarr::store::Registry;
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_compute::Expr;
use cuzarr_device::{DType, DTypeKind, Device, Order};
use serde_json::json;

use crate::output::{self, Output};
use crate::picture::{self, Colours, Picture};
use crate::{Verdict, arguments, nodes};

#[derive(Args)]
pub struct Preview {
    /// Path or URL of an array, or of a group that is an image of several scales
    path: String,
    /// Level of an image, 0 is the largest [default: the smallest that fills the picture; with --slice the largest]
    #[arg(long, value_parser = arguments::count)]
    level: Option<usize>,
    /// Plane to draw, as a NumPy index: '0,:,:' or '...,10:20,::2' [default: the last two dimensions, at index 0 of the others]
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
    /// Number drawn darkest [default: the minimum]
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::number)]
    min: Option<f64>,
    /// Number drawn lightest [default: the maximum]
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::number)]
    max: Option<f64>,
    /// Colours of numbers
    #[arg(long, value_enum, default_value_t)]
    cmap: Colours,
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

impl Preview {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let array = self.open(output.registry())?;
        let dtype = array.metadata().data_type().device_dtype();
        if dtype.is_none_or(|dtype| matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)) {
            let message = format!("cannot draw elements of type {}", array.metadata().data_type());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if !self.raw {
            nodes::refuse_times(&array)?;
        }
        let selection = thinned(&self.plane(&array)?, self.columns())?;
        if let Some(path) = &self.png {
            picture::check_place(path, &["png"], &self.path, self.overwrite)?;
        }
        if self.dry_run {
            return self.show_plan(&selection, output);
        }
        let (rows, columns) = (selection.shape()[0] as usize, selection.shape()[1] as usize);
        let decoding = if self.raw { Decoding::default() } else { array.metadata().decoding()? };
        let values = self.read(&array, &selection, &decoding, output)?;
        let dtype = decoding.dtype.or(dtype);
        let units = decoding.units;
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let low = self.min.unwrap_or_else(|| finite().fold(f64::INFINITY, f64::min));
        let high = self.max.unwrap_or_else(|| finite().fold(f64::NEG_INFINITY, f64::max));
        if (self.min.is_some() || self.max.is_some()) && low > high {
            let message = format!("--min, {low}, is above --max, {high}");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("change --min or --max"));
        }
        let picture = Picture::of(columns, rows, &values, (low, high), self.cmap);
        let mut document = json!({
            "path": nodes::shown(&self.path), "array": array.name(), "selection": selection.to_string(), "rows": rows, "columns": columns,
            "min": low.is_finite().then_some(low), "max": high.is_finite().then_some(high), "units": units,
        });
        let range = if low <= high {
            let units = units.as_ref().map_or_else(String::new, |units| format!(" {units}"));
            format!("{} to {}{units}", output::element(low, dtype), output::element(high, dtype))
        } else {
            "no finite element".into()
        };
        let title = format!("{} {selection}: {range}", nodes::shown(&self.path));
        if let Some(path) = &self.png {
            let texts = [&format!("{} {selection}", nodes::shown(&self.path)), units.as_deref().unwrap_or_default()];
            picture.with_axes(texts, &axes(&array, &selection), (low, high), self.cmap)?.save(path)?;
            document["png"] = json!(path);
            output.answer(&document, &format!("{title}, {columns} x {rows} pixels in {}", path.display()));
            return Ok(Verdict::Passed);
        }
        let drawn = if output::has_colours() { picture.in_colour() } else { picture.in_characters() };
        output.answer_with_picture(&document, &format!("{title}\n"), &drawn);
        Ok(Verdict::Passed)
    }

    /// Columns of the picture at most.
    fn columns(&self) -> u64 {
        let usual = if self.png.is_some() { 1024 } else { output::terminal_columns().unwrap_or(100).clamp(1, 100) };
        self.width.unwrap_or(usual)
    }

    /// Opens the array, or the level of an image that is drawn.
    fn open(&self, registry: &Registry) -> Result<Array> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let group = match nodes::open(registry, &self.path, self.device)? {
            Node::Array(_) if self.level.is_some() => {
                let error = invalid(format!("'{}' is an array, which has no levels", nodes::shown(&self.path)));
                return Err(error.with_hint("leave out --level"));
            }
            Node::Array(array) => return Ok(array),
            Node::Group(group) => group,
        };
        let Some(image) = Multiscales::of(group.metadata().attributes())? else {
            let message =
                format!("'{}' is a group, expected an array or an image of several scales", nodes::shown(&self.path));
            return Err(Error::new(ErrorKind::ArrayNotFound, message).with_hint("use cuzarr tree to see what is in it"));
        };
        let count = image.levels.len();
        let level = |number: usize| group.array(&image.levels[number].path).at(|| format!("level {number}"));
        if let Some(number) = self.level {
            let message = || invalid(format!("--level is {number}, the image has the levels 0 to {}", count - 1));
            return if number < count { level(number) } else { Err(message()) };
        }
        if self.slice.is_none() {
            for number in (1..count).rev() {
                let array = level(number)?;
                if array.shape().last().is_some_and(|columns| *columns >= self.columns()) {
                    return Ok(array);
                }
            }
        }
        level(0)
    }

    /// Reads the elements of a plane, a few rows of chunks at a time.
    fn read(&self, array: &Array, plane: &Selection, decoding: &Decoding, output: &mut Output) -> Result<Vec<f64>> {
        let (begun, label, size) =
            (Instant::now(), format!("preview {}", nodes::shown(&self.path)), size_of::<f64>() as u64);
        let total = plane.shape().iter().product::<u64>() * size;
        let mut values = Vec::new();
        for band in bands(plane, &array.chunk_shape()?)? {
            let part = Expr::buffer(array.read_buffer(&band)?.to_device(Device::Cpu)?)?.decoded_by(decoding, None)?;
            let part = part.astype(DType::FLOAT64)?.evaluate(Device::Cpu)?.copy(Order::C)?;
            values.extend_from_slice(&part.host_slice::<f64>()?);
            output.throughput(&label, values.len() as u64 * size, total, begun.elapsed().as_secs_f64());
        }
        Ok(values)
    }

    fn show_plan(&self, selection: &Selection, output: &mut Output) -> Result<Verdict> {
        let (rows, columns) = (selection.shape()[0], selection.shape()[1]);
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

    /// The plane that the user asked for, before it is thinned.
    fn plane(&self, array: &Array) -> Result<Selection> {
        let shape = array.shape();
        let args = match &self.slice {
            Some(text) => parse_slice(text)?,
            None => vec![SliceArg::Index(0); shape.len().saturating_sub(2)],
        };
        let selection = Selection::from_slices(&args, shape)?;
        if selection.shape().len() != 2 || selection.is_empty() {
            let message = format!(
                "a picture has 2 dimensions with elements, the selection {selection} has shape {:?}",
                selection.shape()
            );
            return Err(
                Error::new(ErrorKind::SelectionInvalid, message).with_hint("choose a plane with --slice '0,:,:'")
            );
        }
        Ok(selection)
    }
}

/// The names of the plane's dimensions, and the places that it shows.
fn axes(array: &Array, plane: &Selection) -> [(String, Range<f64>); 2] {
    let names = array.metadata().xarray_dimensions().unwrap_or_default();
    let axes = plane.axes().unwrap_or_default().iter().enumerate().filter(|(_, axis)| !axis.dropped);
    let mut shown = axes.map(|(at, axis)| {
        let name = names.get(at).cloned().flatten().unwrap_or_else(|| format!("dimension {at}"));
        (name, axis.start as f64..(axis.start + axis.count * axis.step) as f64)
    });
    std::array::from_fn(|_| shown.next().unwrap_or_else(|| (String::new(), 0.0..1.0)))
}

/// Keeps every n-th element along both dimensions, so that there are at most `width` columns and pixels stay square.
fn thinned(selection: &Selection, width: u64) -> Result<Selection> {
    let columns = selection.shape()[1];
    let step = columns.div_ceil(width);
    let axes = selection.axes().unwrap_or_default().iter().map(|axis| match axis.dropped {
        true => *axis,
        false => AxisSelection { count: axis.count.div_ceil(step), step: axis.step.saturating_mul(step), ..*axis },
    });
    Selection::new(axes.collect())
}

/// Most bands of rows.
const BANDS: u64 = 32;

/// Divides a plane into bands of rows so that no chunk lies in two bands.
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

/// Parses a slice in NumPy's form.
fn parse_slice(text: &str) -> Result<Vec<SliceArg>> {
    let wrong = |part: &str| {
        let message = format!("'{part}' is not a valid part of --slice");
        Error::new(ErrorKind::InvalidArgument, message).with_hint("use numbers, start:stop:step and '...', as in NumPy")
    };
    let number = |part: &str| part.trim().parse::<i64>().map_err(|_| wrong(part));
    let bound = |part: &str| if part.trim().is_empty() { Ok(None) } else { number(part).map(Some) };
    let parse = |part: &str| match part.split(':').collect::<Vec<_>>()[..] {
        [part] if part.trim() == "..." => Ok(SliceArg::Ellipsis),
        [part] => number(part).map(SliceArg::Index),
        [start, stop] => Ok(SliceArg::Slice { start: bound(start)?, stop: bound(stop)?, step: None }),
        [start, stop, step] => Ok(SliceArg::Slice { start: bound(start)?, stop: bound(stop)?, step: bound(step)? }),
        _ => Err(wrong(part)),
    };
    text.split(',').map(parse).collect()
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
