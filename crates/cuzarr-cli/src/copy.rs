//! `cuzarr copy` and `cuzarr rechunk`: copy arrays and hierarchies, also to other chunks, codecs or the other format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use cuzarr::meta::ZarrFormat;
use cuzarr::node::{self, Node};
use cuzarr::plan::SliceArg;
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_compute::{Changes, Copied, Existing, NamedExtents, codecs_from_json, compressor_named, copy_node};
use cuzarr_device::Device;
use serde_json::{Value, json};

use crate::output::{self, Output};
use crate::{Verdict, arguments, destination, device, nodes, preview};

/// Source and target, and the options that `copy`, `rechunk` and `pyramid` share.
#[derive(Args)]
pub struct Place {
    /// Path or URL to read from
    pub source: String,
    /// Path or URL to write to
    pub target: String,
    /// Device that does the work: cpu or cuda:N [default: the first GPU for 64 MiB and more, else the host]
    #[arg(long)]
    device: Option<Device>,
    /// Largest amount of memory to use, such as '8 GiB'
    #[arg(long, value_parser = arguments::bytes)]
    memory_limit: Option<u64>,
    /// Replace an existing target
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Continue an interrupted call
    #[arg(long)]
    resume: bool,
    /// Show what would be done, then stop
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct Copy {
    /// Arrays and groups of a group to copy, such as t2m,surface/msl; others are left out [default: all]
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Options that copying and rechunking share.
#[derive(Args)]
pub struct Common {
    #[command(flatten)]
    place: Place,
    /// Part to copy along dimensions by name, such as time=0:120,lat=::2; other dimensions are copied whole. Numbers are indices, and
    /// the end is not part of it. Arrays of a group without such a dimension are copied whole
    #[arg(long, value_name = "NAME=RANGE", value_delimiter = ',', value_parser = range)]
    select: Vec<(String, SliceArg)>,
    /// Leave out nodes of a group that cannot be read, and name them. Without this option, such a node stops the copy
    /// before it begins
    #[arg(long)]
    skip_unreadable: bool,
    /// Zarr format of the copy: 2 or 3 [default: the source's]
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=3))]
    zarr_format: Option<u8>,
    #[command(flatten)]
    codecs: Codecs,
}

/// Options for how chunks are encoded.
#[derive(Args)]
pub struct Codecs {
    /// Compressor: none, zstd, gzip, lz4, blosc or blosc:zstd, with a level if you like (zstd:5), or a codec as JSON [default: the
    /// source's]
    #[arg(long)]
    compressor: Option<String>,
    /// The whole chain of codecs for format 3, as JSON like in zarr.json: '["bytes", {"name": "zstd", …}]'
    #[arg(long, value_name = "JSON", conflicts_with = "compressor")]
    codecs: Option<String>,
}

impl Codecs {
    /// Returns the changes of a copy that these options describe.
    pub fn changes(&self) -> Result<Changes> {
        Ok(Changes {
            compressors: self.compressor.as_deref().map(compressor_named).transpose()?,
            codecs: self.codecs.as_deref().map(codecs_from_json).transpose()?,
            ..Changes::default()
        })
    }
}

#[derive(Args)]
pub struct Rechunk {
    /// Shape of a chunk, such as 1,-1,512, or dimensions by name, such as time=-1,lat=10; -1 is the whole dimension. Other
    /// dimensions keep their extents
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    chunks: Grid,
    /// Shape of a shard, such as 1,-1,1024 or time=-1, or none
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    shards: Option<Grid>,
    /// Arrays of a group whose chunks change, such as t2m,surface/msl; the others are copied as they are [default: every array with
    /// these dimensions]
    #[arg(long, value_name = "ARRAYS", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Parses a range along a named dimension, such as `time=0:120`.
fn range(text: &str) -> Result<(String, SliceArg), String> {
    let wrong = || format!("'{text}' is no range of a dimension, expected NAME=START:STOP");
    let (name, part) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(wrong)?;
    match preview::slice_of(part) {
        Ok(slice @ SliceArg::Slice { .. }) => Ok((name.trim().to_string(), slice)),
        _ => Err(wrong()),
    }
}

/// The shape of chunks or shards: an extent for every dimension, or for some named dimensions.
#[derive(Clone)]
pub enum Grid {
    Listed(Extents),
    Named(NamedExtents),
}

pub fn grid(text: &str) -> Result<Grid, String> {
    if !text.contains('=') {
        return extents(text).map(Grid::Listed);
    }
    let mut named = NamedExtents::new();
    for one in text.split(',') {
        let Some((name, size)) = one.split_once('=') else {
            return Err(format!("'{one}' has no name, expected NAME=EXTENT for each dimension that changes"));
        };
        let Extents(Some(parsed)) = extents(size)? else {
            return Err(format!("'{size}' is not an extent, expected a number above 0, or -1 for a whole dimension"));
        };
        if named.insert(name.trim().to_string(), parsed.into_iter().next().flatten()).is_some() {
            return Err(format!("'{name}' is given twice"));
        }
    }
    Ok(Grid::Named(named))
}

/// Adds the shapes of chunks and shards to the changes of a copy.
pub fn with_grids(mut changes: Changes, chunks: Option<Grid>, shards: Option<Grid>) -> Changes {
    match chunks {
        Some(Grid::Listed(extents)) => changes.chunks = extents.0,
        Some(Grid::Named(named)) => changes.named_chunks = named,
        None => {}
    }
    match shards {
        Some(Grid::Listed(extents)) => changes.shards = Some(extents.0),
        Some(Grid::Named(named)) => changes.named_shards = named,
        None => {}
    }
    changes
}

/// An extent for each dimension; `None` means the whole dimension. The outer `None` stands for the word `none`.
#[derive(Clone)]
pub struct Extents(pub Option<Vec<Option<u64>>>);

pub fn extents(text: &str) -> Result<Extents, String> {
    if text == "none" {
        return Ok(Extents(None));
    }
    let parse = |one: &str| match one.trim() {
        "-1" => Ok(None),
        number => match number.parse() {
            Ok(extent) if extent > 0 => Ok(Some(extent)),
            _ => Err(format!("'{number}' is not an extent, expected a number above 0, or -1 for a whole dimension")),
        },
    };
    Ok(Extents(Some(text.split(',').map(parse).collect::<Result<_, _>>()?)))
}

impl Rechunk {
    /// Returns the path or URL of the copy.
    pub fn target(&self) -> Option<&str> {
        Some(&self.common.place.target)
    }

    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let mut changes = self.common.codecs.changes()?;
        let grids = with_grids(Changes::default(), Some(self.chunks), self.shards);
        if self.only.is_empty() {
            let Changes { chunks, shards, named_chunks, named_shards, .. } = grids;
            changes = Changes { chunks, shards, named_chunks, named_shards, ..changes };
        } else {
            changes.members = self.only.into_iter().map(|path| (path, grids.clone())).collect();
        }
        self.common.run_with(changes, output)
    }
}

impl Copy {
    /// Returns the path or URL of the copy.
    pub fn target(&self) -> Option<&str> {
        Some(&self.common.place.target)
    }

    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let only = self.only.iter().map(|path| path.trim_matches('/').to_string()).collect();
        let changes = Changes { only, ..self.common.codecs.changes()? };
        self.common.run_with(changes, output)
    }
}

impl Common {
    fn run_with(self, mut changes: Changes, output: &mut Output) -> Result<Verdict> {
        changes.skip_unreadable = self.skip_unreadable;
        for (name, slice) in self.select {
            if changes.select.insert(name.clone(), slice).is_some() {
                let message = format!("--select names '{name}' twice");
                return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("give one range for each name"));
            }
        }
        changes.zarr_format = self.zarr_format.map(|format| if format == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 });
        let source = self.place.open_source(output)?;
        let target = nodes::target(output.registry(), &self.place.target)?;
        let copied = copy_node(source, Arc::clone(&target.store), "", &changes, self.place.existing())?;
        for difference in copied.differences() {
            let note = format!("{}: {difference}; what is stored is copied", self.place.source);
            output.note(&note, "write the consolidated metadata anew with cuzarr validate --repair");
        }
        for (node, error) in copied.unreadable() {
            output.warn(&format!("{node} is left out: {error}"));
        }
        let unreadable = |(node, error): &(String, Error)| json!({"node": node, "kind": error.kind().name(), "error": error.message()});
        let unreadable: Vec<Value> = copied.unreadable().iter().map(unreadable).collect();
        let plan = copied.to_json();
        if self.place.dry_run {
            output.answer(&json!({"dry_run": true, "copies": plan, "unreadable": unreadable}), &plan_text(&copied));
            return Ok(Verdict::Passed);
        }
        let array_bytes: u64 = copied.copies().iter().map(|(_, copy)| copy.array_bytes()).sum();
        let complete = copied.copies().iter().all(|(_, copy)| copy.passes().is_empty());
        if complete && !copied.copies().is_empty() && self.place.resume {
            copied.run(&|_, _| ())?;
            let document = json!({
                "target": self.place.target, "array_bytes": array_bytes, "copies": plan, "unreadable": unreadable,
            });
            output.answer(&document, &format!("{} was complete already", self.place.target));
            return Ok(Verdict::Passed);
        }
        let started = Instant::now();
        let mut written = BTreeMap::new();
        {
            let shown = Mutex::new((&mut *output, &mut written));
            copied.run(&|name, now| {
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                let label = if name == "/" { &self.place.target } else { name };
                shown.0.throughput(label, now.bytes_done, now.bytes, now.seconds);
                shown.1.insert(name.to_string(), now.bytes_done);
            })?;
        }
        target.finish()?;
        let seconds = started.elapsed().as_secs_f64();
        // Only bytes that this run wrote to the target count, without bytes of an earlier attempt or between two
        // passes.
        let made_bytes = written.values().sum::<u64>().min(array_bytes);
        let gigabytes_per_second = output::gigabytes_per_second(made_bytes, seconds);
        let document = json!({
            "target": self.place.target, "array_bytes": array_bytes, "seconds": seconds, "gigabytes_per_second": gigabytes_per_second,
            "copies": carried_out(plan), "unreadable": unreadable,
        });
        let (made, rate) = (output::bytes(made_bytes), output::rate(made_bytes, seconds));
        let text = format!("{made} to {}: {seconds:.2} s, {rate}", self.place.target);
        output.answer(&document, &text);
        Ok(Verdict::Passed)
    }
}

/// Returns the JSON of a plan, changed to say that all of its copies are complete.
fn carried_out(mut copies: Value) -> Value {
    for copy in copies.as_array_mut().into_iter().flatten() {
        copy["complete"] = json!(true);
        for pass in copy["passes"].as_array_mut().into_iter().flatten() {
            pass["finished"] = pass["regions"].clone();
        }
    }
    copies
}

impl Place {
    /// Returns what to do if the target already exists: refuse, overwrite or resume.
    pub fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }

    /// Opens the source with the requested device and memory limit.
    pub fn open_source(&self, output: &mut Output) -> Result<Node> {
        let mut node = device::open(output, &self.source, self.device)?;
        destination::refuse_inputs(&self.target, [self.source.as_str()])?;
        if let Some(limit_bytes) = self.memory_limit {
            node = match node {
                Node::Array(array) => {
                    let options = array.options().clone();
                    Node::Array(array.with_options(options.with_memory_limit_bytes(limit_bytes)))
                }
                Node::Group(group) => {
                    let options = group.options().clone().with_memory_limit_bytes(limit_bytes);
                    node::open_existing(Arc::clone(group.store()), group.path(), None, options)?
                }
            };
        }
        Ok(node)
    }
}

fn plan_text(copied: &Copied) -> String {
    let mut rows = Vec::new();
    for (name, copy) in copied.copies() {
        let document = copy.to_json();
        let empty = Vec::new();
        let passes = document["passes"].as_array().unwrap_or(&empty);
        for (number, pass) in passes.iter().enumerate() {
            let left = pass["regions"].as_u64().unwrap_or(0) - pass["finished"].as_u64().unwrap_or(0);
            rows.push(vec![
                if number == 0 { name.clone() } else { String::new() },
                format!("{} of {}", number + 1, passes.len()),
                left.to_string(),
                pass["region_shape"].to_string(),
                output::bytes(pass["region_bytes"].as_u64().unwrap_or(0)),
                format!("{:.2}", pass["source_reads"].as_f64().unwrap_or(0.0)),
                pass["target_chunks"].to_string(),
            ]);
        }
        if document["complete"] == Value::Bool(true) {
            rows.push([name.as_str(), "complete", "0", "-", "-", "-", "-"].map(String::from).to_vec());
        }
    }
    output::table(&["array", "pass", "regions", "region", "bytes", "reads", "objects"], &rows)
}
