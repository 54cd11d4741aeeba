//! `cuzarr eval`: computes an expression of arrays, region by region.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use cuzarr::config::Config;
use cuzarr::meta::{ArrayMetadata, DataType};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::store::Registry;
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use cuzarr_compute::{Changes, ComputeOptions, Existing, Expr, Progress, parse};
use cuzarr_device::Device;
use serde_json::{Value, json};

use crate::copy::{Grid, grid, with_grids};
use crate::elements::Printed;
use crate::output::{self, Output};
use crate::{Verdict, arguments, destination, device, interrupt, nodes};

/// Largest number of elements of a result that is printed; a larger result must be stored.
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
    /// Shape of a chunk of the result, such as 1,-1,512, or dimensions by name, such as time=5; -1 is the whole dimension
    /// [default: as in the first array of the same shape]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    chunks: Option<Grid>,
    /// Shape of a shard of the result, such as 1,-1,1024 or time=-1, or none [default: as in the first array of the same shape,
    /// without --chunks]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    shards: Option<Grid>,
    /// Compressor of the result; see cuzarr copy --help
    #[arg(long, default_value = "zstd:1")]
    compressor: String,
    /// Device that computes: cpu or cuda:N [default: the first GPU for 64 MiB and more, else the host]
    #[arg(long)]
    device: Option<Device>,
    /// Largest amount of memory to use, such as '8 GiB'
    #[arg(long, value_parser = arguments::bytes)]
    memory_limit: Option<u64>,
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
        let limit_bytes = self.memory_limit.unwrap_or_else(|| config.memory_limit_bytes());
        let arrays = self.open(output.registry())?;
        let bytes = arrays.iter().map(|(_, array)| device::bytes_of(array)).fold(0, u64::saturating_add);
        let device = device::chosen(self.device, bytes, output)?;
        let mut names = BTreeMap::new();
        for (name, array) in &arrays {
            if !self.raw {
                nodes::refuse_times(array).at(|| name.clone())?;
            }
            let expr = nodes::numbers(Expr::array(array.clone()), self.raw).at(|| name.clone())?;
            names.insert(name.clone(), expr);
        }
        let expr = parse(&self.expression, &|name| names.get(name).cloned())?;
        let cancellation = interrupt::cancellation();
        let options = ComputeOptions::default()
            .with_device(device)
            .with_memory_limit_bytes(limit_bytes)
            .with_threads(config.threads())
            .with_cancellation(&cancellation);
        let mut document = json!({
            "expression": self.expression, "shape": expr.shape(), "dtype": expr.dtype().to_string(),
        });
        let Some(path) = self.output.clone() else { return self.print(&expr, &options, document, output) };
        let metadata = self.metadata(&expr, &arrays)?;
        document["output"] = json!(path);
        let what = format!("{} of shape {:?}", expr.dtype(), expr.shape());
        let sources = self.names.iter().filter_map(|name| Some(name.split_once('=')?.1));
        destination::refuse_inputs(&path, sources)?;
        let place = nodes::target(output.registry(), &path)?;
        let settings = ArrayOptions::from(&config)
            .with_memory_limit_bytes(limit_bytes)
            .with_cancellation(interrupt::cancellation());
        let bytes = metadata.elems()?.saturating_mul(expr.dtype().size_bytes() as u64);
        let planned = Array::from_metadata(Arc::clone(&place.store), "", metadata.clone(), settings.clone())?;
        let (chunk_shape, shard_shape) = (planned.chunk_shape()?, planned.shard_shape()?);
        document["chunk_shape"] = json!(chunk_shape);
        document["shard_shape"] = json!(shard_shape);
        let creation = expr.creation(Arc::clone(&place.store), "", metadata, self.existing(), settings)?;
        if self.dry_run {
            document["dry_run"] = json!(true);
            let shards = shard_shape.map_or_else(String::new, |shards| format!(", shards {shards:?}"));
            output.answer(&document, &format!("{}: {what}, chunks {chunk_shape:?}{shards}", self.expression));
            return Ok(Verdict::Passed);
        }
        let started = Instant::now();
        {
            let (shown, name) = (Mutex::new(&mut *output), format!("eval {path}"));
            let tell = |now: &Progress| {
                let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
                output.throughput(&name, now.bytes_done, now.bytes, now.seconds);
            };
            creation.run(&options.with_progress(&tell))?;
        }
        place.finish()?;
        let seconds = started.elapsed().as_secs_f64();
        let rate = output::gigabytes_per_second(bytes, seconds);
        document["seconds"] = json!(seconds);
        document["gigabytes_per_second"] = json!(rate);
        output.answer(&document, &format!("{what} in {path}: {seconds:.2} s, {rate:.2} GB/s"));
        Ok(Verdict::Passed)
    }

    /// Returns the path or URL at which the result is stored; `None` if it is printed.
    pub fn target(&self) -> Option<&str> {
        self.output.as_deref()
    }

    fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
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

    /// Prints the elements of a result that is small enough not to be stored.
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
        let mut text = self.expression.clone();
        if !self.dry_run {
            let shown = Mutex::new(&mut *output);
            let tell = |now: &Progress| {
                let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
                output.throughput("eval", now.bytes_done, now.bytes, now.seconds);
            };
            let options = options.with_progress(&tell);
            let result = expr.compute(&options)?.to_device(Device::Cpu)?;
            let printed = Printed::of(&result)?;
            document["values"] = printed.to_json();
            text = printed.to_text();
            if printed.has_nan() && !self.raw {
                let note = "the result has NaN; missing elements count as NaN";
                output.note(note, "nanmean, nansum, nanmax, … leave them out; --raw takes numbers as they are stored");
            }
        }
        output.answer(&document, &text);
        Ok(Verdict::Passed)
    }

    /// Returns the metadata of the array that stores the result.
    fn metadata(&self, expr: &Expr, arrays: &[(String, Array)]) -> Result<ArrayMetadata> {
        let shape = expr.shape();
        let like = arrays.iter().map(|(_, array)| array).find(|array| array.shape() == shape);
        let names = like.and_then(|array| array.metadata().xarray_dimensions());
        let mut array = Array::builder(shape, DataType::try_from(expr.dtype())?).compressor(&self.compressor);
        array = match like {
            Some(like) => {
                // The given chunks may not fit into the shards of another array.
                let shards = if self.chunks.is_some() { None } else { like.shard_shape()? };
                let array = array.chunks(like.chunk_shape()?);
                if let Some(shards) = shards { array.shards(shards) } else { array }
            }
            None => array.chunks(shape.iter().map(|&len| len.clamp(1, 256)).collect::<Vec<_>>()),
        };
        let mut metadata = array.metadata()?;
        if let Some(names) = names {
            metadata.set_dimension_names(names)?;
        }
        with_grids(Changes::default(), self.chunks.clone(), self.shards.clone()).apply(&metadata)
    }
}
