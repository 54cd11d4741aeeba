//! `cuzarr eval`: computes an expression of arrays, region by region.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use cuzarr::config::{Config, parse_bytes};
use cuzarr::meta::{ArrayMetadata, DataType};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::store::{Registry, Store};
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_compute::{ComputeOptions, Expr, Progress, parse};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

use crate::Verdict;
use crate::copy::{Extents, extents};
use crate::nodes;
use crate::output::{self, Output};

/// Most elements of a result that is printed instead of stored.
const MOST_PRINTED: u64 = 1000;

#[derive(Args)]
pub struct Eval {
    /// Expression of names and numbers, with Python's operators and NumPy's functions: 'sqrt(u**2 + v**2)', 'mean(u, axis=0)'.
    /// Missing elements are NaN, which nanmean, nansum, … leave out
    #[arg(allow_hyphen_values = true)]
    expression: String,
    /// Array that each name stands for, such as u=PATH
    #[arg(value_name = "NAME=PATH")]
    names: Vec<String>,
    /// Path or URL of the result; without it, a small result is printed
    #[arg(short, long)]
    output: Option<String>,
    /// Shape of a chunk of the result, such as 1,-1,512; -1 is the whole dimension [default: as in the first array of the same shape]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = extents)]
    chunks: Option<Extents>,
    /// Compressor of the result; see cuzarr copy --help
    #[arg(long, default_value = "zstd:1")]
    compressor: String,
    /// Device that computes: cpu or cuda:N
    #[arg(long)]
    device: Option<Device>,
    /// Largest amount of memory to use, such as '8 GiB'
    #[arg(long)]
    memory_limit: Option<String>,
    /// Replace an existing output
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Continue an interrupted call; give the same memory limit
    #[arg(long)]
    resume: bool,
    /// Take numbers as they are stored; do not apply _FillValue, scale_factor and add_offset
    #[arg(long)]
    raw: bool,
    /// Show what would be written, then stop
    #[arg(long)]
    dry_run: bool,
}

impl Eval {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let config = Config::from_environment()?;
        let device = self.device.unwrap_or_else(|| config.device());
        let limit = self.memory_limit.as_deref().map(parse_bytes).transpose()?;
        let limit_bytes = limit.unwrap_or_else(|| config.memory_limit_bytes());
        let arrays = self.open(output.registry())?;
        let mut names = BTreeMap::new();
        for (name, array) in &arrays {
            let expr = nodes::numbers(Expr::array(array.clone()), self.raw).at(|| name.clone())?;
            names.insert(name.clone(), expr);
        }
        let expr = parse(&self.expression, &|name| names.get(name).cloned())?;
        let options =
            ComputeOptions { device, memory_limit_bytes: limit_bytes, threads: config.threads(), ..Default::default() };
        let mut document = json!({
            "expression": self.expression, "shape": expr.shape(), "dtype": expr.dtype().to_string(),
        });
        let Some(path) = self.output.clone() else { return self.print(&expr, &options, document, output) };
        let metadata = self.metadata(&expr, &arrays)?;
        document["output"] = json!(path);
        document["chunk_shape"] = json!(metadata.chunk_grid().chunk_shape());
        let what = format!("{} of shape {:?}", expr.dtype(), expr.shape());
        let place = nodes::target(output.registry(), &path)?;
        // Before the old output is deleted: it may be one of the sources.
        expr.refuse_overlap(&place.store, "")?;
        if self.dry_run {
            document["dry_run"] = json!(true);
            let text = format!("{}: {what}, chunks {:?}", self.expression, metadata.chunk_grid().chunk_shape());
            output.answer(&document, &text);
            return Ok(Verdict::Passed);
        }
        let bytes = metadata.elems()?.saturating_mul(expr.dtype().size_bytes() as u64);
        let started = Instant::now();
        let settings = ArrayOptions { memory_limit_bytes: limit_bytes, ..ArrayOptions::from(&config) };
        let target = self.target(Arc::clone(&place.store), metadata, settings)?;
        {
            let (shown, name) = (Mutex::new(&mut *output), format!("eval {path}"));
            let tell = |now: &Progress| {
                let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
                output.throughput(&name, now.bytes_done, now.bytes, now.seconds);
            };
            let options = ComputeOptions { progress: Some(&tell), ..options };
            // Resumable without being asked: users ask for --resume only after an interruption. A store that commits all writes at
            // once has nothing to resume then.
            match place.store.capabilities().transactional && !self.resume {
                true => expr.store(&target, &options)?,
                false => expr.store_resumable(&target, &options)?,
            }
        }
        place.finish()?;
        let seconds = started.elapsed().as_secs_f64();
        let rate = output::gigabytes_per_second(bytes, seconds);
        document["seconds"] = json!(seconds);
        document["gigabytes_per_second"] = json!(rate);
        output.answer(&document, &format!("{what} in {path}: {seconds:.2} s, {rate:.2} GB/s"));
        Ok(Verdict::Passed)
    }

    /// The array to store into: a new one, or with --resume the one that is there already.
    fn target(&self, store: Arc<dyn Store>, metadata: ArrayMetadata, settings: ArrayOptions) -> Result<Array> {
        let known = match self.resume {
            true => Array::open(Arc::clone(&store), "", settings.clone()),
            false => return Array::create(store, "", metadata, self.overwrite, settings),
        };
        match known {
            Err(error) if error.kind() == ErrorKind::ArrayNotFound => {
                Array::create(store, "", metadata, false, settings)
            }
            Ok(array) if array.metadata().documents() != metadata.documents() => {
                let message = "the array at the output does not fit this expression";
                Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("use --overwrite instead of --resume"))
            }
            known => known,
        }
    }

    fn open(&self, registry: &Registry) -> Result<Vec<(String, Array)>> {
        let open = |given: &String| {
            let Some((name, path)) = given.split_once('=') else {
                let message = format!("'{given}' does not name an array");
                return Err(
                    Error::new(ErrorKind::InvalidArgument, message).with_hint("write NAME=PATH, as in u=u.zarr")
                );
            };
            Ok((name.to_string(), nodes::open_array(registry, path, Some(Device::Cpu))?))
        };
        let mut arrays: Vec<(String, Array)> = Vec::new();
        for given in &self.names {
            let (name, array) = open(given)?;
            if arrays.iter().any(|(other, _)| *other == name) {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("the name '{name}' is given twice")));
            }
            arrays.push((name, array));
        }
        Ok(arrays)
    }

    /// Prints the elements of a small result.
    fn print(
        &self,
        expr: &Expr,
        options: &ComputeOptions<'_>,
        mut document: Value,
        output: &mut Output,
    ) -> Result<Verdict> {
        let elems = expr.shape().iter().fold(1u64, |elems, &extent| elems.saturating_mul(extent));
        if elems > MOST_PRINTED && !self.dry_run {
            let message = format!("the result has {elems} elements, of shape {:?}", expr.shape());
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("store it with -o PATH"));
        }
        if !self.dry_run {
            let shown = Mutex::new(&mut *output);
            let tell = |now: &Progress| {
                let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
                output.throughput("eval", now.bytes_done, now.bytes, now.seconds);
            };
            let options = ComputeOptions { progress: Some(&tell), ..*options };
            let result = expr.astype(DType::FLOAT64)?.compute(&options)?.to_device(Device::Cpu)?;
            let result = result.copy(Order::C)?;
            let has_nan = result.host_slice::<f64>()?.iter().any(|value| value.is_nan());
            document["values"] = nested(&result)?;
            if has_nan && !self.raw {
                let note = "the result has NaN; missing elements count as NaN";
                output.note(note, "nanmean, nansum, nanmax, … leave them out; --raw takes numbers as they are stored");
            }
        }
        let text = document.get("values").map_or_else(|| self.expression.clone(), shown);
        output.answer(&document, &text);
        Ok(Verdict::Passed)
    }

    /// The metadata of the new array.
    fn metadata(&self, expr: &Expr, arrays: &[(String, Array)]) -> Result<ArrayMetadata> {
        let shape = expr.shape();
        let like = arrays.iter().map(|(_, array)| array).find(|array| array.shape() == shape);
        let chunk_shape = match (&self.chunks, like) {
            (Some(Extents(Some(extents))), _) if extents.len() == shape.len() => {
                extents.iter().zip(shape).map(|(extent, &len)| extent.unwrap_or(len.max(1))).collect()
            }
            (Some(_), _) => {
                let message = format!("--chunks does not fit a result of {} dimensions", shape.len());
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            (None, Some(array)) => array.chunk_shape()?,
            (None, None) => shape.iter().map(|&len| len.clamp(1, 256)).collect(),
        };
        let names = like.and_then(|array| array.metadata().xarray_dimensions());
        let array = Array::builder(shape, DataType::try_from(expr.dtype())?).chunks(chunk_shape);
        let mut metadata = array.compressor(&self.compressor).metadata()?;
        if let Some(names) = names {
            metadata.set_dimension_names(names)?;
        }
        Ok(metadata)
    }
}

/// Nested lists as text, with the names that expressions have for NaN and infinities.
fn shown(values: &Value) -> String {
    match values {
        Value::Array(values) => format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::String(name) => match name.as_str() {
            "Infinity" => "inf".to_owned(),
            "-Infinity" => "-inf".to_owned(),
            _ => "nan".to_owned(),
        },
        value => value.to_string(),
    }
}

/// The elements as nested lists. Values that are not JSON numbers are the strings that fill values have for them: "NaN", "Infinity",
/// "-Infinity".
fn nested(array: &NdBuffer) -> Result<Value> {
    fn lists(shape: &[usize], values: &[f64]) -> Value {
        match shape {
            [] => values.first().map_or(Value::Null, |&value| number(value)),
            [len, inner @ ..] => {
                let size: usize = inner.iter().product();
                (0..*len).map(|at| lists(inner, &values[at * size..(at + 1) * size])).collect()
            }
        }
    }
    Ok(lists(array.shape(), &array.host_slice::<f64>()?))
}

fn number(value: f64) -> Value {
    match value {
        _ if value.is_finite() => json!(value),
        _ if value.is_nan() => json!("NaN"),
        _ if value > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    }
}
