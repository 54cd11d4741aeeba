//! `cuzarr stats`: smallest, largest, mean, deviation and histogram of arrays of any size, in one pass.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use clap::Args;
use cuzarr::compute::{Regions, walk};
use cuzarr::node::{Array, ArrayOptions, Node};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::cpu::cast;
use cuzarr_device::{DType, DTypeKind, Device, NdBuffer};
use serde_json::{Value, json};

use crate::Verdict;
use crate::nodes;
use crate::output::{self, Output};
use crate::picture::{self, Picture};

/// Elements that are added up before they are joined with the others: the same ones whatever the threads are.
const SHARE: usize = 1 << 16;
/// Bins that are kept; there are more than half as many as soon as elements differ so much.
const MOST_BINS: i64 = 256;
/// Rows of a histogram on a terminal, and cells of its longest bar.
const ROWS: usize = 16;
const BAR: usize = 48;

#[derive(Args)]
pub struct Stats {
    /// Path of an array, or of a group: every array below it
    path: String,
    /// Where to decode: cpu, or cuda:N
    #[arg(long)]
    device: Option<Device>,
    /// Draw the histogram of one array as a PNG file
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
}

impl Stats {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let arrays = match nodes::open(&self.path, self.device)? {
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
            let message = format!("--png draws one array, there are {}", arrays.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (mut documents, mut texts) = (Vec::new(), Vec::new());
        for array in &arrays {
            let name = nodes::name_below(&self.path, array);
            let summary = match number(array) {
                Some(dtype) => summarise(array, &name, dtype, output)?,
                None if arrays.len() > 1 => continue,
                None => {
                    let message = format!("{name}: no statistics of {}", array.metadata().data_type());
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            };
            if let Some(path) = &self.png {
                histogram_picture(&summary).save(path)?;
            }
            documents.push(summary.to_json(&name));
            let title = format!("{name}: {} {:?}", array.metadata().data_type(), array.shape());
            texts.push(summary.text(&title, number(array)));
        }
        if texts.is_empty() {
            texts.push(format!("{}: no arrays of numbers", self.path));
        }
        output.answer(&json!({"arrays": documents}), &texts.join("\n\n"));
        Ok(Verdict::Passed)
    }
}

/// The element type, if it is a real number.
fn number(array: &Array) -> Option<DType> {
    let dtype = array.metadata().data_type().device_dtype()?;
    (!matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Opaque)).then_some(dtype)
}

/// What is known of some elements.
#[derive(Clone, Debug)]
pub struct Summary {
    count: u64,
    nan: u64,
    infinite: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sum of squared differences from the mean.
    squares: f64,
    /// Counts of bins by their number; bin `n` begins at `n * width`.
    bins: BTreeMap<i64, u64>,
    width: f64,
}

fn summarise(array: &Array, name: &str, dtype: DType, output: &mut Output) -> Result<Summary> {
    let own = *array.options();
    let limit = own.memory_limit_bytes;
    // A region is read while another one is looked at.
    let unit = array.chunk_shape()?;
    let regions = Regions::plan(array.shape(), dtype.size_bytes() as u64, &unit, &[&unit], limit / 4)?;
    let reading = array.with_options(ArrayOptions { memory_limit_bytes: limit / 2, ..own });
    let total = array.metadata().elems()?.saturating_mul(dtype.size_bytes() as u64);
    let (begun, mut done, name) = (Instant::now(), 0u64, format!("stats {name}"));
    let joined = Mutex::new(Summary::default());
    walk(
        regions.from(0),
        |region| reading.read(&region.selection()?),
        |region, elements: NdBuffer| {
            let packed = elements.to_device(Device::Cpu)?.as_buffer()?;
            let summary = Summary::of(packed.host_bytes()?, dtype, own.threads)?;
            done += region.elems() * dtype.size_bytes() as u64;
            output.throughput(&name, done, total, begun.elapsed().as_secs_f64());
            Ok(summary)
        },
        |_, summary| {
            joined.lock().unwrap_or_else(std::sync::PoisonError::into_inner).join(summary);
            Ok(())
        },
    )?;
    Ok(joined.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

impl Default for Summary {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Summary { count: 0, nan: 0, infinite: 0, min, max, mean: 0.0, squares: 0.0, bins: BTreeMap::new(), width: 0.0 }
    }
}

impl Summary {
    /// Of the elements in packed bytes, share by share, on several threads.
    fn of(packed: &[u8], dtype: DType, threads: usize) -> Result<Summary> {
        let shares: Vec<&[u8]> = packed.chunks(SHARE * dtype.size_bytes()).collect();
        let each = shares.len().div_ceil(threads.max(1)).max(1);
        let parts: Vec<Result<Vec<Summary>>> = std::thread::scope(|scope| {
            let work = |shares: &[&[u8]]| {
                let mut wide = Vec::with_capacity(SHARE);
                let one = |share: &&[u8]| {
                    widen(share, dtype, &mut wide)?;
                    Ok(Summary::of_share(&wide))
                };
                shares.iter().map(one).collect()
            };
            let threads: Vec<_> = shares.chunks(each).map(|shares| scope.spawn(move || work(shares))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<Summary>>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut joined = Summary::default();
        for part in parts {
            part?.into_iter().for_each(|part| joined.join(part));
        }
        Ok(joined)
    }

    fn of_share(elements: &[f64]) -> Summary {
        let mut summary = Summary::default();
        let finite = || elements.iter().copied().filter(|value| value.is_finite());
        for &value in elements {
            summary.nan += u64::from(value.is_nan());
            summary.infinite += u64::from(value.is_infinite());
            if !value.is_nan() {
                summary.min = summary.min.min(value);
                summary.max = summary.max.max(value);
            }
        }
        summary.count = elements.len() as u64 - summary.nan - summary.infinite;
        if summary.count > 0 {
            summary.mean = finite().sum::<f64>() / summary.count as f64;
            summary.squares = finite().map(|value| (value - summary.mean).powi(2)).sum();
            let (low, high) =
                finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
            summary.width = width_for(low, high);
            // The width leaves a few hundred bins between the two.
            let bin = |value: f64| (value / summary.width).floor() as i64;
            let first = bin(low);
            let mut counts = vec![0u64; (bin(high) - first + 1) as usize];
            for value in finite() {
                counts[(bin(value) - first) as usize] += 1;
            }
            let full = (first..).zip(counts).filter(|&(_, count)| count > 0);
            summary.bins = full.collect();
        }
        summary
    }

    /// Chan's way of joining means and deviations; bins become wider where the range grows.
    fn join(&mut self, other: Summary) {
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let mut other = other;
        if other.count == 0 {
            return;
        }
        let (own, theirs) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.squares += other.squares + difference * difference * own * theirs / (own + theirs);
        self.mean += difference * theirs / (own + theirs);
        self.count += other.count;
        if self.bins.is_empty() {
            (self.bins, self.width) = (other.bins, other.width);
            return;
        }
        while self.width < other.width {
            self.widen();
        }
        while other.width < self.width {
            other.widen();
        }
        for (bin, count) in other.bins {
            *self.bins.entry(bin).or_default() += count;
        }
        let span = |bins: &BTreeMap<i64, u64>| {
            bins.keys().next_back().unwrap_or(&0).saturating_sub(*bins.keys().next().unwrap_or(&0))
        };
        while span(&self.bins) >= MOST_BINS {
            self.widen();
        }
    }

    /// Joins pairs of bins.
    fn widen(&mut self) {
        self.width *= 2.0;
        let mut wide = BTreeMap::new();
        for (bin, count) in std::mem::take(&mut self.bins) {
            *wide.entry(bin.div_euclid(2)).or_default() += count;
        }
        self.bins = wide;
    }

    fn std(&self) -> f64 {
        if self.count > 0 { (self.squares / self.count as f64).sqrt() } else { f64::NAN }
    }

    /// Beginnings of bins and their counts, no more than `most`, those without elements between others too.
    fn histogram(&self, most: usize) -> (f64, Vec<(f64, u64)>) {
        let mut wide = self.clone();
        let ends = |bins: &BTreeMap<i64, u64>| Some((*bins.keys().next()?, *bins.keys().next_back()?));
        while ends(&wide.bins).is_some_and(|(first, last)| (last - first) as usize >= most) {
            wide.widen();
        }
        let Some((first, last)) = ends(&wide.bins) else { return (0.0, Vec::new()) };
        let bin = |bin: i64| (bin as f64 * wide.width, wide.bins.get(&bin).copied().unwrap_or(0));
        (wide.width, (first..=last).map(bin).collect())
    }

    fn to_json(&self, name: &str) -> Value {
        let (width, bins) = self.histogram(64);
        let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
        json!({
            "array": name, "count": self.count + self.nan + self.infinite, "nan": self.nan, "infinite": self.infinite,
            "min": finite(self.min), "max": finite(self.max), "mean": finite(if self.count > 0 { self.mean } else { f64::NAN }),
            "std": finite(self.std()), "histogram": {
                "start": bins.first().map(|bin| bin.0), "width": width,
                "counts": bins.iter().map(|bin| bin.1).collect::<Vec<_>>(),
            },
        })
    }

    fn text(&self, title: &str, dtype: Option<DType>) -> String {
        let (count, all) = (self.count, self.count + self.nan + self.infinite);
        let mut text = format!("{title}\n  count {all}  nan {}  infinite {}\n", self.nan, self.infinite);
        if count + self.infinite > 0 {
            text += &format!("  min {}  max {}", output::element(self.min, dtype), output::element(self.max, dtype));
        }
        if count > 0 {
            let of = if self.infinite > 0 { " (of the finite ones)" } else { "" };
            text += &format!("  mean {}  std {}{of}", output::number(self.mean), output::number(self.std()));
        }
        text += if count + self.infinite > 0 { "\n" } else { "  nothing to look at\n" };
        if count == 0 {
            return text;
        }
        let (_, bins) = self.histogram(ROWS);
        let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0).max(1);
        let rows: Vec<Vec<String>> =
            bins.iter().map(|(start, count)| vec![output::number(*start), count.to_string()]).collect();
        let eighths = |count: u64| (count as f64 / most as f64 * (BAR * 8) as f64).ceil() as usize;
        let bars = std::iter::once(String::new()).chain(bins.iter().map(|bin| picture::bar(eighths(bin.1))));
        let table = output::table(&["from", "elements"], &rows);
        let lines: Vec<String> = table.lines().zip(bars).map(|(line, bar)| format!("{line}  {bar}")).collect();
        text += &lines.join("\n");
        text
    }
}

/// The elements as binary64.
fn widen(packed: &[u8], dtype: DType, wide: &mut Vec<f64>) -> Result<()> {
    let mut bytes = vec![0; packed.len() / dtype.size_bytes() * size_of::<f64>()];
    cast::cast(dtype, DType::FLOAT64, packed, &mut bytes)?;
    wide.clear();
    wide.extend(bytes.as_chunks::<8>().0.iter().map(|&value| f64::from_ne_bytes(value)));
    Ok(())
}

/// A power of two of which the range has some hundred, that numbers of this size can tell apart.
fn width_for(low: f64, high: f64) -> f64 {
    let least = low.abs().max(high.abs()) * f64::EPSILON * 4.0;
    let parts = (MOST_BINS / 2) as f64;
    // Their difference may be too large for a number.
    let wanted = (high / parts - low / parts).max(least);
    if wanted > 0.0 { wanted.log2().ceil().exp2() } else { 1.0 }
}

fn histogram_picture(summary: &Summary) -> Picture {
    let (_, bins) = summary.histogram(256);
    let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0).max(1);
    let (cell, height) = ((768 / bins.len().max(1)).max(1), 320);
    let mut drawn = Picture::new(cell * bins.len().max(1), height, [255, 255, 255]);
    for (number, &(_, count)) in bins.iter().enumerate() {
        let bar = (count as f64 / most as f64 * (height - 8) as f64).round() as usize;
        drawn.fill(number * cell..(number + 1) * cell, height - bar..height, [46, 92, 160]);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], threads: usize) -> Summary {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Summary::of(&bytes, DType::FLOAT64, threads).unwrap()
    }

    #[test]
    fn joined_parts_are_what_the_whole_is() {
        let values: Vec<f64> = (0..200_000).map(|at| (f64::from(at) * 0.37).sin() * 1e3 + f64::from(at % 17)).collect();
        let whole = of(&values, 3);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let std = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!((whole.mean - mean).abs() < 1e-9 && (whole.std() - std).abs() < 1e-9);
        assert_eq!(whole.bins.values().sum::<u64>(), values.len() as u64);
        let (width, bins) = whole.histogram(40);
        for (start, count) in bins {
            let inside = values.iter().filter(|value| (start..start + width).contains(value)).count();
            assert_eq!(inside as u64, count, "from {start}");
        }
        let parts = values.chunks(777).map(|part| of(part, 1));
        let joined = parts.fold(Summary::default(), |mut all, part| {
            all.join(part);
            all
        });
        assert!((joined.std() - std).abs() < 1e-9 && joined.min == whole.min && joined.max == whole.max);
    }

    #[test]
    fn what_is_no_number_is_counted_apart() {
        let summary = of(&[f64::NAN, 1.0, f64::INFINITY, 1.0], 1);
        assert_eq!((summary.count, summary.nan, summary.infinite), (2, 1, 1));
        assert_eq!((summary.mean, summary.std(), summary.histogram(16).1.len()), (1.0, 0.0, 1));
        assert!(of(&[], 1).histogram(4).1.is_empty());
        let wide = of(&[-1e300, 1e300, 1e-300], 1);
        assert_eq!(wide.bins.values().sum::<u64>(), 3);
        let widest = of(&[f64::MIN, f64::MAX, 5e-324, -5e-324], 1);
        assert_eq!((widest.bins.values().sum::<u64>(), widest.count), (4, 4));
    }
}
