//! `cuzarr stats`: shows minimum, maximum, mean, standard deviation and histogram of arrays of any size, in one pass.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use cuzarr::internal::printable;
use cuzarr::meta::Decoding;
use cuzarr::node::{Array, Node};
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_compute::{ComputeOptions, Expr, Op, Progress, ReduceOp, Reduction, Statistics};
use cuzarr_device::{DType, DTypeKind, Device};
use serde_json::{Value, json};

use crate::elements::Element;
use crate::output::{self, Output};
use crate::picture::{self, Picture};
use crate::times::{NAT, Times};
use crate::{Verdict, device, nodes};

/// Number of rows of the histogram that is printed on a terminal.
const ROWS: usize = 16;
const BAR: usize = 48;

#[derive(Args)]
pub struct Stats {
    /// Path or URL of an array, or of a group with all its arrays
    path: String,
    /// Device that decodes and counts: cpu or cuda:N [default: the first GPU for 64 MiB and more, else the host]
    #[arg(long)]
    device: Option<Device>,
    /// Draw the histogram as a PNG file; for one array only
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Replace an existing file that is not a picture
    #[arg(long)]
    overwrite: bool,
    /// Take numbers as they are stored; do not apply _FillValue, scale_factor and add_offset
    #[arg(long)]
    raw: bool,
    /// Show what would be read and drawn, then stop
    #[arg(long)]
    dry_run: bool,
}

impl Stats {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let arrays = match device::open(output, &self.path, self.device)? {
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
            picture::check_place(path, &["png"], &self.path, self.overwrite)?;
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
                        printable(&name),
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
                Picture::of_bins(&printable(&known.name), unit, width, &bins)?.save(path)?;
            }
            documents.push(known.to_json());
            let title = format!("{}: {} {:?}", printable(&known.name), array.metadata().data_type(), array.shape());
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

/// Returns the array's element type, if the elements are real numbers.
fn number(array: &Array) -> Option<DType> {
    let dtype = array.metadata().data_type().device_dtype()?;
    (!matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)).then_some(dtype)
}

/// The statistics of one array, with what is needed to print them.
struct Known {
    name: String,
    dtype: DType,
    decoding: Option<String>,
    units: Option<String>,
    statistics: Statistics,
    /// The time unit of dates and durations; `None` for other elements.
    times: Option<Times>,
    /// The exact smallest and largest integer, date or duration; `None` for other elements.
    whole_range: Option<(i128, i128)>,
}

impl Known {
    fn of(array: &Array, name: String, raw: bool, output: &mut Output) -> Result<Known> {
        let (own, label) = (array.options().clone(), format!("stats {name}"));
        let shown = Mutex::new(output);
        let tell = |now: &Progress| {
            let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
            output.throughput(&label, now.bytes_done, now.bytes, now.seconds);
        };
        let options = ComputeOptions::default()
            .with_device(own.device)
            .with_memory_limit_bytes(own.memory_limit_bytes)
            .with_threads(own.threads)
            .with_cancellation(&own.cancellation)
            .with_progress(&tell);
        if let Some(times) = Times::of(array.metadata().data_type()).filter(|_| !raw) {
            let stored = Expr::array(array.clone())?;
            let (statistics, whole_range) = of_times(&stored, &options).at(|| name.clone())?;
            let units = Some(times.unit());
            return Ok(Known {
                name,
                dtype: stored.dtype(),
                decoding: None,
                units,
                statistics,
                times: Some(times),
                whole_range,
            });
        }
        let expr = nodes::numbers(Expr::array(array.clone()), raw).at(|| name.clone())?;
        let statistics = expr.statistics(&options).at(|| name.clone())?;
        let decoding = if raw { Decoding::default() } else { array.metadata().decoding()? };
        let whole_range = statistics.whole_range;
        let (decoded, units) = (decoding.describe(), decoding.units);
        Ok(Known { name, dtype: expr.dtype(), decoding: decoded, units, statistics, times: None, whole_range })
    }

    /// Returns the smallest and the largest element, as they are printed.
    fn range(&self) -> Option<[Extreme; 2]> {
        match (self.whole_range, self.statistics.range) {
            (Some((least, greatest)), _) => Some([least, greatest].map(|whole| match self.times {
                Some(times) => Extreme::Time(times.text(whole)),
                None => Extreme::Element(Element::Whole(whole)),
            })),
            (None, Some((least, greatest))) => {
                let is_short = self.dtype != DType::FLOAT64;
                Some([least, greatest].map(|number| Extreme::Element(Element::Number(number, is_short))))
            }
            (None, None) => None,
        }
    }

    /// Formats a number that need not be an element of the array, such as the mean of the elements.
    fn between(&self, number: f64) -> String {
        self.times.map_or_else(|| output::number(number), |times| times.text(number.round() as i128))
    }

    fn to_json(&self) -> Value {
        let known = &self.statistics;
        let (width, bins) = known.histogram(64);
        let [min, max] = self.range().map_or([Value::Null, Value::Null], |range| range.map(|one| one.to_json()));
        let number = |value: Option<f64>| value.map_or(Value::Null, |value| Element::Number(value, false).to_json());
        let mean = known.mean().filter(|_| self.times.is_some()).map(|mean| json!(self.between(mean)));
        json!({
            "array": self.name, "decoded": self.decoding, "units": self.units, "count": known.count(), "nan": known.nan, "infinite": known.infinite,
            "min": min, "max": max, "mean": mean.unwrap_or_else(|| number(known.mean())), "std": number(known.std()), "histogram": {
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
        let missing = if self.times.is_some() { "missing" } else { "nan" };
        let mut text =
            format!("{title}\n  count {}  {missing} {}  infinite {}\n", known.count(), known.nan, known.infinite);
        let Some(range) = self.range() else { return text + "  nothing to look at\n" };
        let [min, max] = range.map(Extreme::into_text);
        text += &format!("  min {min}  max {max}");
        if let (Some(mean), Some(std)) = (known.mean(), known.std()) {
            let of = if known.infinite > 0 { " (of the finite ones)" } else { "" };
            let unit = self.times.map_or_else(String::new, |times| format!(" {}", times.unit()));
            text += &format!("  mean {}  std {}{unit}{of}", self.between(mean), output::number(std));
        }
        let (_, bins) = known.histogram(ROWS);
        let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0).max(1);
        let rows: Vec<Vec<String>> =
            bins.iter().map(|(start, count)| vec![self.between(*start), count.to_string()]).collect();
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

/// The smallest or the largest element, as it is printed.
enum Extreme {
    Element(Element),
    /// The smallest or largest date or duration, formatted as text.
    Time(String),
}

impl Extreme {
    fn to_json(&self) -> Value {
        match self {
            Extreme::Element(element) => element.to_json(),
            Extreme::Time(text) => json!(text),
        }
    }

    fn into_text(self) -> String {
        match self {
            Extreme::Element(element) => element.to_text(),
            Extreme::Time(text) => text,
        }
    }
}

/// Computes the statistics of dates or durations, and the exact smallest and largest one. NaT counts as missing.
fn of_times(stored: &Expr, options: &ComputeOptions<'_>) -> Result<(Statistics, Option<(i128, i128)>)> {
    let is_nat = Expr::apply(Op::Equal, &[stored.clone().into(), NAT.into()])?;
    let floats = stored.astype(DType::FLOAT64)?;
    let numbers = Expr::apply(Op::Where, &[is_nat.clone().into(), f64::NAN.into(), floats.into()])?;
    let statistics = numbers.statistics(options)?;
    if statistics.finite == 0 {
        return Ok((statistics, None));
    }
    let without_nat = Expr::apply(Op::Where, &[is_nat.into(), i64::MAX.into(), stored.clone().into()])?;
    let extreme = |of: &Expr, which: ReduceOp| {
        let found = of.reduce(&Reduction::new(which, None), options)?.to_device(Device::Cpu)?;
        Ok::<_, Error>(found.host_slice::<i64>()?.first().map_or(0, |&whole| i128::from(whole)))
    };
    // NaT is the smallest integer, so it does not hide the largest date.
    let range = (extreme(&without_nat, ReduceOp::Min)?, extreme(stored, ReduceOp::Max)?);
    Ok((statistics, Some(range)))
}
