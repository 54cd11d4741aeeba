//! `cuzarr stats`: shows minimum, maximum, mean, standard deviation and histogram of arrays of any size, in one pass.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use cuzarr::meta::Decoding;
use cuzarr::node::{Array, Node};
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_compute::{ComputeOptions, Expr, Progress, Statistics};
use cuzarr_device::{DType, DTypeKind, Device};
use serde_json::{Value, json};

use crate::Verdict;
use crate::nodes;
use crate::output::{self, Output};
use crate::picture::{self, Picture};

/// Rows of a histogram on a terminal.
const ROWS: usize = 16;
const BAR: usize = 48;

#[derive(Args)]
pub struct Stats {
    /// Path or URL of an array, or of a group with all its arrays
    path: String,
    /// Device that decodes and counts: cpu or cuda:N
    #[arg(long)]
    device: Option<Device>,
    /// Draw the histogram as a PNG file; for one array only
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Take numbers as they are stored; do not apply _FillValue, scale_factor and add_offset
    #[arg(long)]
    raw: bool,
    /// Show what would be read and drawn, then stop
    #[arg(long)]
    dry_run: bool,
}

impl Stats {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let arrays = match nodes::open(output.registry(), &self.path, self.device)? {
            Node::Array(array) => vec![array],
            Node::Group(group) => {
                let (arrays, unreadable) = nodes::arrays_below(&group)?;
                if let Some((name, error)) = unreadable.into_iter().next() {
                    return Err(error.at(name));
                }
                arrays
            }
        };
        if let (Some(_), true) = (&self.png, arrays.len() != 1) {
            let message = format!("--png draws one array, got {}", arrays.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if let Some(path) = &self.png {
            picture::check_place(path)?;
        }
        let (mut documents, mut texts) = (Vec::new(), Vec::new());
        for array in &arrays {
            let name = nodes::name_below(&self.path, array);
            let known = match number(array) {
                Some(_) if self.dry_run => {
                    let bytes = array.nbytes_stored()?;
                    documents.push(json!({"array": name, "shape": array.shape(), "stored_bytes": bytes}));
                    texts.push(format!(
                        "{}: {} {:?}, {}",
                        cuzarr::printable(&name),
                        array.metadata().data_type(),
                        array.shape(),
                        output::bytes(bytes)
                    ));
                    continue;
                }
                Some(_) => Known::of(array, name, self.raw, output)?,
                None if arrays.len() > 1 => continue,
                None => {
                    let message = format!("{name}: cannot compute statistics of {}", array.metadata().data_type());
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            };
            if let Some(path) = &self.png {
                let (width, bins) = known.statistics.histogram(256);
                let unit = known.units.as_deref().unwrap_or("value");
                Picture::of_bins(&cuzarr::printable(&known.name), unit, width, &bins)?.save(path)?;
            }
            documents.push(known.to_json());
            let title =
                format!("{}: {} {:?}", cuzarr::printable(&known.name), array.metadata().data_type(), array.shape());
            texts.push(known.text(&title));
        }
        if texts.is_empty() {
            texts.push(format!("{}: no arrays of numbers", nodes::shown(&self.path)));
        }
        let mut document = json!({"arrays": documents});
        if let Some(path) = &self.png {
            document["png"] = json!(path);
            texts.push(format!("{} {}", if self.dry_run { "to be drawn in" } else { "drawn in" }, path.display()));
        }
        if self.dry_run {
            document["dry_run"] = json!(true);
        }
        output.answer(&document, &texts.join(if self.dry_run { "\n" } else { "\n\n" }));
        Ok(Verdict::Passed)
    }
}

/// The element type, if its elements are real numbers.
fn number(array: &Array) -> Option<DType> {
    let dtype = array.metadata().data_type().device_dtype()?;
    (!matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)).then_some(dtype)
}

/// The statistics of one array.
struct Known {
    name: String,
    dtype: DType,
    decoding: Option<String>,
    units: Option<String>,
    statistics: Statistics,
}

impl Known {
    fn of(array: &Array, name: String, raw: bool, output: &mut Output) -> Result<Known> {
        let (own, label) = (array.options().clone(), format!("stats {name}"));
        let shown = Mutex::new(output);
        let tell = |now: &Progress| {
            let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
            output.throughput(&label, now.bytes_done, now.bytes, now.seconds);
        };
        let options = ComputeOptions {
            device: own.device,
            memory_limit_bytes: own.memory_limit_bytes,
            threads: own.threads,
            progress: Some(&tell),
            ..Default::default()
        };
        let expr = nodes::numbers(Expr::array(array.clone()), raw).at(|| name.clone())?;
        let statistics = expr.statistics(&options).at(|| name.clone())?;
        let decoding = if raw { Decoding::default() } else { array.metadata().decoding()? };
        Ok(Known { name, dtype: expr.dtype(), decoding: decoding.describe(), units: decoding.units, statistics })
    }

    fn to_json(&self) -> Value {
        let known = &self.statistics;
        let (width, bins) = known.histogram(64);
        let finite = |value: f64| value.is_finite().then_some(value);
        json!({
            "array": self.name, "decoded": self.decoding, "units": self.units, "count": known.count(), "nan": known.nan, "infinite": known.infinite,
            "min": known.range.and_then(|range| finite(range.0)), "max": known.range.and_then(|range| finite(range.1)),
            "mean": known.mean().and_then(finite), "std": known.std().and_then(finite), "histogram": {
                "start": bins.first().map(|bin| bin.0), "width": width,
                "counts": bins.iter().map(|bin| bin.1).collect::<Vec<_>>(),
            },
        })
    }

    fn text(&self, title: &str) -> String {
        let known = &self.statistics;
        let units = self.units.as_ref().map_or_else(String::new, |units| format!(", {units}"));
        let decoded =
            self.decoding.as_ref().map_or_else(String::new, |what| format!("\n  decoded: {what} (--raw: as stored)"));
        let title = format!("{title}{units}{decoded}");
        let mut text = format!("{title}\n  count {}  nan {}  infinite {}\n", known.count(), known.nan, known.infinite);
        let Some((min, max)) = known.range else { return text + "  nothing to look at\n" };
        let [min, max] = [min, max].map(|value| output::element(value, Some(self.dtype)));
        text += &format!("  min {min}  max {max}");
        if let (Some(mean), Some(std)) = (known.mean(), known.std()) {
            let of = if known.infinite > 0 { " (of the finite ones)" } else { "" };
            text += &format!("  mean {}  std {}{of}", output::number(mean), output::number(std));
        }
        let (_, bins) = known.histogram(ROWS);
        let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0).max(1);
        let rows: Vec<Vec<String>> =
            bins.iter().map(|(start, count)| vec![output::number(*start), count.to_string()]).collect();
        if rows.is_empty() {
            return text + "\n";
        }
        let eighths = |count: u64| (count as f64 / most as f64 * (BAR * 8) as f64).ceil() as usize;
        let bars = std::iter::once(String::new()).chain(bins.iter().map(|bin| picture::bar(eighths(bin.1))));
        let table = output::table(&["from", "elements"], &rows);
        let lines: Vec<String> = table.lines().zip(bars).map(|(line, bar)| format!("{line}  {bar}")).collect();
        format!("{text}\n{}", lines.join("\n"))
    }
}
