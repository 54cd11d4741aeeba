//! How fast a whole array comes from a directory into memory, by sizes of chunks, codecs and options of the engine; every
//! byte checked.
//!
//!     cargo run --release -p cuzarr --example read_bench -- --device cuda:0 --chunk 1,512,512/4,512,1024 --codec none/blosc
//!
//! Lists are separated by `/`: `--chunk`, `--shard` (one, or none), `--codec none|zstd|gzip|blosc|bitshuffle|lz4`,
//! `--decode-mib 64` (packed bytes of a batch that kernels decode). One of each: `--rows 128` (4 MiB of float32 each),
//! `--threads`, `--limit-mib 4096`, `--strict true`, `--repeat 5`, `--folder`. Prints a line of JSON for each: GB/s of the
//! fastest repeat, the median, and what that repeat's stages did.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use cuzarr::internal::run::tuning;
use cuzarr::internal::run::{Access, Engine};
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::run::Options;
use cuzarr::store::{LocalStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

const SIDE: usize = 1024;

struct Bench {
    device: Device,
    rows: usize,
    chunks: Vec<String>,
    shard: Option<String>,
    codecs: Vec<String>,
    decode_mib: Vec<u64>,
    repeat: usize,
    folder: PathBuf,
    options: Options,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn arguments() -> Result<Bench> {
    let mut bench = Bench {
        device: Device::Cuda(0),
        rows: 128,
        chunks: vec!["4,512,1024".into()],
        shard: None,
        codecs: vec!["none".into()],
        decode_mib: vec![64],
        repeat: 5,
        folder: std::env::temp_dir().join("cuzarr-read-bench"),
        options: Options::default().with_memory_limit_bytes(4 << 30),
    };
    let list = |value: &str| value.split('/').map(String::from).collect::<Vec<_>>();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| invalid(format!("'{name}' needs a value")))?;
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| invalid(format!("'{name}' needs a number: '{text}'")));
        match name.as_str() {
            "--device" => bench.device = value.parse()?,
            "--rows" => bench.rows = number(&value)? as usize,
            "--chunk" => bench.chunks = list(&value),
            "--shard" => bench.shard = Some(value),
            "--codec" => bench.codecs = list(&value),
            "--decode-mib" => bench.decode_mib = list(&value).iter().map(|text| number(text)).collect::<Result<_>>()?,
            "--threads" => bench.options.threads = number(&value)?.max(1) as usize,
            "--limit-mib" => bench.options.memory_limit_bytes = number(&value)? << 20,
            "--slab-mib" => tuning(&mut bench.options).slab_bytes = (number(&value)? as usize) << 20,
            "--strict" => tuning(&mut bench.options).force_device = value == "true",
            "--repeat" => bench.repeat = number(&value)?.max(1) as usize,
            "--folder" => bench.folder = value.into(),
            _ => return Err(invalid(format!("unknown option '{name}'"))),
        }
    }
    Ok(bench)
}

/// Rows of a smooth field like the row before, moved a little, measured to a thousandth as packed archives are.
fn field(rows: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut line = vec![280.0f32; SIDE];
    let mut bytes = Vec::with_capacity(rows * SIDE * SIDE * 4);
    for _ in 0..rows * SIDE {
        let mut drift = 0.0;
        for value in &mut line {
            drift = 0.95 * drift + 0.1 * noise();
            *value += drift;
            bytes.extend_from_slice(&((*value * 1000.0).round() / 1000.0).to_le_bytes());
        }
    }
    bytes
}

fn codecs(name: &str) -> Result<Vec<Value>> {
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let blosc = |shuffle: &str| {
        json!({"name": "blosc", "configuration":
            {"cname": "lz4", "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0}})
    };
    Ok(match name {
        "none" => vec![bytes],
        "zstd" => vec![bytes, json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}})],
        "gzip" => vec![bytes, json!({"name": "gzip", "configuration": {"level": 5}})],
        "blosc" => vec![bytes, blosc("shuffle")],
        "bitshuffle" => vec![bytes, blosc("bitshuffle")],
        "lz4" => vec![bytes, json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})],
        other => return Err(invalid(format!("unknown codec '{other}'"))),
    })
}

fn shape(text: &str) -> Result<Vec<u64>> {
    let parts = text.split(',').map(|part| part.parse().map_err(|_| invalid(format!("'{text}' is no shape"))));
    parts.collect()
}

/// Writes the array and gives its store, metadata and stored size.
fn write(bench: &Bench, chunk: &str, codec: &str, plain: &[u8]) -> Result<(Arc<dyn Store>, ArrayMetadata, u64)> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(&bench.folder)?);
    store.delete_prefix("")?;
    let (chunk, codecs) = (shape(chunk)?, codecs(codec)?);
    let (grid, chain) = match &bench.shard {
        None => (chunk, codecs),
        Some(shard) => {
            let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
            let sharding = json!({"name": "sharding_indexed", "configuration":
                {"chunk_shape": chunk, "codecs": codecs, "index_codecs": index, "index_location": "end"}});
            (shape(shard)?, vec![sharding])
        }
    };
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [bench.rows, SIDE, SIDE], "data_type": "float32",
        "fill_value": 0.0, "chunk_key_encoding": {"name": "default"},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}}, "codecs": chain,
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes())?;
    let options = ArrayOptions::default().with_memory_limit_bytes(8 << 30);
    let array = Array::create(Arc::clone(&store), "a", metadata.clone(), false, options)?;
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[bench.rows, SIDE, SIDE], Order::C, plain)?;
    array.write_buffer(&Selection::all(array.shape()), &value)?;
    let mut stored = 0;
    for key in store.list("a")? {
        stored += store.size_bytes(&key)?.unwrap_or(0);
    }
    Ok((store, metadata, stored))
}

fn measure(bench: &Bench, plain: &[u8]) -> Result<()> {
    let engine = Engine::new(bench.options.threads);
    for codec in &bench.codecs {
        for chunk in &bench.chunks {
            let (store, metadata, stored) = write(bench, chunk, codec, plain)?;
            let chain = Arc::new(cuzarr::internal::codec::Chain::new(&metadata)?);
            let access = Access::new(&metadata, "a", chain, bench.device)?;
            let all = Selection::all(metadata.shape());
            let out = NdBuffer::empty(bench.device, DType::FLOAT32, &[bench.rows, SIDE, SIDE], Order::C)?;
            for &decode_mib in &bench.decode_mib {
                let mut options = bench.options.clone();
                tuning(&mut options).decode_batch_bytes = decode_mib << 20;
                let begun = Instant::now();
                engine.read(&access, &store, &all, &out, &options)?;
                let first_ms = begun.elapsed().as_secs_f64() * 1e3;
                if out.to_host_bytes(Order::C)? != plain {
                    return Err(Error::new(ErrorKind::ChunkCorrupt, format!("{codec} {chunk}: wrong elements")));
                }
                let mut times = Vec::new();
                for _ in 0..bench.repeat {
                    let begun = Instant::now();
                    let report = engine.read(&access, &store, &all, &out, &options)?;
                    times.push((begun.elapsed().as_secs_f64(), report));
                }
                times.sort_by(|left, right| left.0.total_cmp(&right.0));
                let speed = |seconds: f64| (plain.len() as f64 / seconds / 1e7).round() / 100.0;
                let (best, report) = &times[0];
                let stages = report.stages().map(|(stage, one)| {
                    let (ms, mib) = ((one.seconds * 1e5).round() / 100.0, one.size_bytes >> 20);
                    format!("{} {mib} MiB {ms} ms x{}", stage.name(), one.count)
                });
                let line = json!({"codec": codec, "chunk": chunk, "shard": bench.shard, "decode_mib": decode_mib,
                    "gb_s": speed(*best), "median_gb_s": speed(times[times.len() / 2].0), "first_ms": first_ms.round(),
                    "ratio": (plain.len() as f64 / stored as f64 * 100.0).round() / 100.0,
                    "stages": stages.collect::<Vec<_>>().join("; ")});
                println!("{line}");
            }
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let run = || {
        let bench = arguments()?;
        let plain = field(bench.rows);
        let measured = measure(&bench, &plain);
        // What is left of the benchmark's folder is no reason to fail it.
        let _ = std::fs::remove_dir_all(&bench.folder);
        measured
    };
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
