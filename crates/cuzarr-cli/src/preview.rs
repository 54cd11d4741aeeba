//! `cuzarr preview`: a plane of an array as a picture.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Selection, SliceArg};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, DTypeKind, Device, Order};
use serde_json::json;

use crate::Verdict;
use crate::nodes;
use crate::output::{self, Output};
use crate::picture::Picture;

#[derive(Args)]
pub struct Preview {
    /// Path of an array
    path: String,
    /// Which plane, as in NumPy: '0,:,:' or '...,10:20,::2' [default: the last two dimensions, at 0 of the others]
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    slice: Option<String>,
    /// Write a PNG file instead of drawing on the terminal
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Columns of the picture at most [default: 100 on a terminal, 1024 in a file]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65536))]
    width: Option<u64>,
    /// The number that is darkest [default: the smallest]
    #[arg(long, allow_hyphen_values = true)]
    min: Option<f64>,
    /// The number that is lightest [default: the largest]
    #[arg(long, allow_hyphen_values = true)]
    max: Option<f64>,
    /// Where to decode: cpu, or cuda:N
    #[arg(long)]
    device: Option<Device>,
}

impl Preview {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let array = nodes::open_array(&self.path, self.device)?;
        let dtype = array.metadata().data_type().device_dtype();
        if dtype.is_none_or(|dtype| matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)) {
            let message = format!("no picture of elements of {}", array.metadata().data_type());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let width = self.width.unwrap_or(if self.png.is_some() { 1024 } else { 100 });
        let selection = thinned(&self.plane(&array)?, width)?;
        let plane = array.read(&selection)?.to_device(Device::Cpu)?.astype(DType::FLOAT64, Order::C)?;
        let (rows, columns) = (plane.shape()[0], plane.shape()[1]);
        let values = plane.host_slice::<f64>()?;
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let low = self.min.unwrap_or_else(|| finite().fold(f64::INFINITY, f64::min));
        let high = self.max.unwrap_or_else(|| finite().fold(f64::NEG_INFINITY, f64::max));
        if (self.min.is_some() || self.max.is_some()) && low > high {
            let message = format!("the darkest number, {low}, is above the lightest, {high}");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("change --min or --max"));
        }
        let picture = Picture::of(columns, rows, values, (low, high));
        let mut document = json!({
            "path": self.path, "selection": selection.to_string(), "rows": rows, "columns": columns,
            "min": low.is_finite().then_some(low), "max": high.is_finite().then_some(high),
        });
        let range = if low <= high {
            format!("{} to {}", output::element(low, dtype), output::element(high, dtype))
        } else {
            "no finite element".into()
        };
        let title = format!("{} {selection}: {range}", self.path);
        if let Some(path) = &self.png {
            picture.save(path)?;
            document["png"] = json!(path);
            output.answer(&document, &format!("{title}, {columns} x {rows} pixels in {}", path.display()));
            return Ok(Verdict::Passed);
        }
        let colour = std::io::stdout().is_terminal();
        let drawn = if colour { picture.in_colour() } else { picture.in_characters() };
        output.answer(&document, &format!("{title}\n{drawn}"));
        Ok(Verdict::Passed)
    }

    /// The plane that was asked for, in full.
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
            return Err(Error::new(ErrorKind::SelectionInvalid, message).with_hint("say --slice, as in '0,:,:'"));
        }
        Ok(selection)
    }
}

/// Every so many elements, so that there are no more than `width` columns; pixels stay square.
fn thinned(selection: &Selection, width: u64) -> Result<Selection> {
    let columns = selection.shape()[1];
    let step = columns.div_ceil(width);
    let axes = selection.axes().iter().map(|axis| match axis.dropped {
        true => *axis,
        false => AxisSelection { count: axis.count.div_ceil(step), step: axis.step.saturating_mul(step), ..*axis },
    });
    Selection::new(axes.collect())
}

/// A slice as NumPy writes it.
fn parse_slice(text: &str) -> Result<Vec<SliceArg>> {
    let wrong = |part: &str| {
        let message = format!("'{part}' is no part of a slice");
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
