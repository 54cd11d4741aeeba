//! `cuzarr bench`: measures how fast one of the user's arrays is read.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use cuzarr::display::Gantt;
use cuzarr::node::Array;
use cuzarr::plan::Selection;
use cuzarr::run::Report;
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{Device, NdBuffer, Order};
use serde_json::json;

use crate::output::{self, Output};
use crate::picture::{self, Picture};
use crate::roofline::Roofline;
use crate::{Verdict, arguments, destination, nodes};

#[derive(Subcommand)]
pub enum Bench {
    /// Read a whole array into host or GPU memory
    Read(Read),
}

#[derive(Args)]
pub struct Read {
    /// Path or URL of the array
    path: String,
    /// Device to read into: cpu or cuda:N
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Number of reads. With more than one, the first is a warm-up and does not count
    #[arg(long, default_value_t = 4, value_parser = arguments::positive)]
    repeat: u64,
    /// Read again into host memory, chunk by chunk, and compare every element
    #[arg(long)]
    verify: bool,
    /// Draw the stages of the last read over time, beside the limits that --roofline measures
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,
    /// Replace an existing file that is not a picture
    #[arg(long)]
    overwrite: bool,
    /// Measure storage, bus and decoders each alone, and compare the read with them [default: with --plot]
    #[arg(long)]
    roofline: bool,
    /// Show what would be read and drawn, then stop
    #[arg(long)]
    dry_run: bool,
}

impl Bench {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        match self {
            Bench::Read(read) => read.run(output),
        }
    }
}

impl Read {
    fn run(self, output: &mut Output) -> Result<Verdict> {
        if let Some(path) = &self.plot {
            picture::check_place(path, &["svg", "png"], &self.path, self.overwrite)?;
        }
        let array = nodes::open_array(output.registry(), &self.path, Some(self.device))?;
        let shape = array.metadata().shape().to_vec();
        if self.dry_run {
            return self.show_plan(&array, output);
        }
        // Only the last read is traced, so that tracing does not slow the others.
        let traced = array.with_options(array.options().clone().with_trace(self.plot.is_some()));
        let everything = Selection::all(&shape);
        let mut seconds = Vec::new();
        let (mut array_bytes, mut verified) = (0, None);
        for turn in 0..self.repeat {
            output.progress("read", turn, self.repeat);
            let array = if turn + 1 == self.repeat { &traced } else { &array };
            let started = Instant::now();
            let values = array.read_buffer(&everything)?;
            seconds.push(started.elapsed().as_secs_f64());
            array_bytes = values.size_bytes() as u64;
            if self.verify && turn + 1 == self.repeat {
                verified = Some(self.agrees(array, &values)?);
            }
        }
        let counted = if seconds.len() > 1 { &seconds[1..] } else { &seconds[..] };
        let best = counted.iter().copied().fold(f64::INFINITY, f64::min);
        let rate = output::gigabytes_per_second(array_bytes, best);
        let report = traced.last_report();
        // An array without stored chunks has no roofline; its picture is drawn without limits.
        let measured = (self.roofline || self.plot.is_some()).then(|| Roofline::measure(&array, array_bytes));
        let roofline = if self.roofline { measured.transpose()? } else { measured.and_then(Result::ok) };
        let notes: Vec<String> = roofline.iter().map(|roofline| roofline.line(rate)).collect();
        if let (Some(path), Some(report)) = (&self.plot, &report) {
            let drawn = output::gigabytes_per_second(array_bytes, report.wall_seconds);
            let title = format!(
                "{} into {}: {}, {drawn:.1} GB/s",
                nodes::shown(&self.path),
                self.device,
                output::bytes(array_bytes)
            );
            let ceilings = roofline.as_ref().map_or(Vec::new(), |roofline| roofline.seconds(array_bytes));
            draw(&Gantt::new(report, &title, &notes, &ceilings), path)?;
        }
        let document = json!({
            "path": nodes::shown(&self.path), "device": self.device.to_string(), "array_bytes": array_bytes,
            "stored_bytes": array.nbytes_stored()?, "seconds": seconds, "gigabytes_per_second": rate,
            "verified": verified, "stages": report.as_ref().map(Report::to_json),
            "roofline": roofline.map(|roofline| roofline.to_json(rate)),
        });
        let mut text = format!(
            "{} into {}: {rate:.2} GB/s ({best:.4} s, best of {})\n",
            output::bytes(array_bytes),
            self.device,
            counted.len()
        );
        notes.iter().for_each(|note| text += &format!("{note}\n"));
        if let Some(report) = report {
            text += &format!("\n{report}\n");
        }
        if let Some(verified) = verified {
            text += if verified { "\nevery element was compared and is right" } else { "\nWRONG DATA" };
        }
        output.answer(&document, &text);
        Ok(if verified == Some(false) { Verdict::Failed } else { Verdict::Passed })
    }

    fn show_plan(&self, array: &Array, output: &mut Output) -> Result<Verdict> {
        let (dtype, shape, stored_bytes) = (array.metadata().data_type(), array.shape(), array.nbytes_stored()?);
        let document = json!({
            "path": nodes::shown(&self.path), "device": self.device.to_string(), "shape": shape, "stored_bytes": stored_bytes,
            "repeat": self.repeat, "plot": self.plot, "dry_run": true,
        });
        let (stored, device, times) = (output::bytes(stored_bytes), self.device, self.repeat);
        let mut text =
            format!("{}: {dtype} {shape:?}, {stored} stored, {times} times into {device}", nodes::shown(&self.path));
        if let Some(path) = &self.plot {
            text += &format!(", drawn in {}", path.display());
        }
        output.answer(&document, &text);
        Ok(Verdict::Passed)
    }

    /// Reads the array again into host memory, one row of chunks at a time, and returns whether it equals `values`.
    fn agrees(&self, array: &Array, values: &NdBuffer) -> Result<bool> {
        let mut options = array.options().clone();
        options.device = Device::Cpu;
        let host = array.with_options(options);
        let shape = array.metadata().shape().to_vec();
        let Some(&rows) = shape.first() else {
            return Ok(host.read_buffer(&Selection::all(&shape))?.to_host_bytes(Order::C)?
                == values.to_host_bytes(Order::C)?);
        };
        let step = array.metadata().chunk_grid().chunk_shape()[0].max(1);
        let mut first = 0;
        while first < rows {
            let (mut start, mut extent) = (vec![0; shape.len()], shape.clone());
            (start[0], extent[0]) = (first, step.min(rows - first));
            let expected = host.read_buffer(&Selection::region(&start, &extent)?)?;
            let part = values.region(&lens(&start)?, &lens(&extent)?, &vec![1; shape.len()])?;
            if expected.to_host_bytes(Order::C)? != part.to_host_bytes(Order::C)? {
                return Ok(false);
            }
            first += extent[0];
        }
        Ok(true)
    }
}

/// Draws the stages of a read over time to an SVG or PNG file, depending on the ending of its name.
fn draw(gantt: &Gantt, path: &Path) -> Result<()> {
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg")) {
        true => destination::write(path, gantt.to_svg().as_bytes()),
        false => Picture::of_stages(gantt)?.save(path),
    }
}

fn lens(extents: &[u64]) -> Result<Vec<usize>> {
    let convert = |&extent: &u64| usize::try_from(extent).ok();
    extents.iter().map(convert).collect::<Option<_>>().ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, format!("shape {extents:?} is too large for this machine"))
    })
}
