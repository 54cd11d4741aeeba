//! How fast a device decodes batches of frames that are in its memory, or encodes chunks there, every byte checked.
//!
//!     cargo run --release -p cuzarr --example decode_bench -- --device cuda:0 --codec blosc --frame-kib 8192 --total-mib 512
//!
//! `--codec lz4|blosc|zstd|gzip|zlib|deflate`, `--level 5` (of the codec; `--clevel` is the same), `--cname lz4` (of blosc), `--by
//! libdeflate|zlib` (who makes gzip frames: zlib's blocks are much smaller), `--shuffle bytes|bits|none`, `--type-bytes 4`, `--data field|noise|zeros|FILE` (a file's bytes, frame by frame, again and again),
//! `--way decode|encode` (lz4, and blosc of lz4, are encoded; the line then compares sizes with what the host's encoder makes),
//! `--frames N` (of each size; else as many as `--total-mib` holds), `--scan host|device`, `--repeat 5`. `--frame-kib` takes
//! several sizes, separated by commas. Prints one line of JSON a size: GB/s of decoded bytes, the best and the median of the
//! repeats (time between two events around `Batch::run`, so with the upload of its table), the time that preparing took, which
//! with `--scan device` includes what the host waits for, and the ratio.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::batch::{Batch, EncodeBatch, Unit};
use cuzarr::internal::codec::{Chain, Program, device_decoder};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::internal::cpu::shuffle::shuffle;
use cuzarr_device::{Buffer, Device, Stream};
use serde_json::json;

struct Options {
    device: Device,
    codec: String,
    frames_kib: Vec<usize>,
    total_mib: usize,
    frames: Option<usize>,
    level: u64,
    cname: String,
    by: String,
    shuffle: String,
    type_bytes: usize,
    data: String,
    scan: String,
    way: String,
    repeat: usize,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn options() -> Result<Options> {
    let mut options = Options {
        device: Device::Cuda(0),
        codec: "blosc".into(),
        frames_kib: vec![8192],
        total_mib: 512,
        frames: None,
        level: 5,
        cname: "lz4".into(),
        by: "libdeflate".into(),
        shuffle: "bytes".into(),
        type_bytes: 4,
        data: "field".into(),
        scan: "host".into(),
        way: "decode".into(),
        repeat: 5,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| invalid(format!("'{name}' needs a value")))?;
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| invalid(format!("'{name}' needs numbers, got '{text}'")));
        match name.as_str() {
            "--device" => options.device = value.parse()?,
            "--codec" => options.codec = value,
            "--frame-kib" => options.frames_kib = value.split(',').map(number).collect::<Result<_>>()?,
            "--total-mib" => options.total_mib = number(&value)?,
            "--frames" => options.frames = Some(number(&value)?.max(1)),
            "--cname" => options.cname = value,
            "--by" => options.by = value,
            "--level" | "--clevel" => options.level = number(&value)? as u64,
            "--shuffle" => options.shuffle = value,
            "--type-bytes" => options.type_bytes = number(&value)?,
            "--data" => options.data = value,
            "--scan" => options.scan = value,
            "--way" => options.way = value,
            "--repeat" => options.repeat = number(&value)?.max(1),
            _ => return Err(invalid(format!("unknown option '{name}'"))),
        }
    }
    Ok(options)
}

/// A smooth field of floats with noise in its low bits: rows like the row before, moved a little.
fn field(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    const COLUMNS: usize = 1024;
    let mut row = vec![280.0f32; COLUMNS];
    let mut bytes = Vec::with_capacity(size + 4 * COLUMNS);
    while bytes.len() < size {
        let mut drift = 0.0;
        for value in &mut row {
            drift = 0.95 * drift + 0.1 * noise();
            *value += drift;
            // Measured to a thousandth, as packed archives are.
            bytes.extend_from_slice(&((*value * 1000.0).round() / 1000.0).to_le_bytes());
        }
    }
    bytes.truncate(size);
    bytes
}

fn plain(options: &Options, size: usize, seed: u64) -> Result<Vec<u8>> {
    Ok(match options.data.as_str() {
        "field" => field(size, seed),
        "zeros" => vec![0; size],
        "noise" => {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            };
            (0..size).map(|_| next()).collect()
        }
        file => {
            let failed = |error| invalid(format!("data '{file}': {error}"));
            let mut file = std::fs::File::open(file).map_err(failed)?;
            let frames = (file.metadata().map_err(failed)?.len() / size as u64).max(1);
            file.seek(SeekFrom::Start((seed - 1) % frames * size as u64)).map_err(failed)?;
            let mut bytes = vec![0; size];
            file.read_exact(&mut bytes).map_err(failed)?;
            bytes
        }
    })
}

fn program(options: &Options, size: usize) -> Result<Program> {
    let name = match options.shuffle.as_str() {
        "bytes" => "shuffle",
        "bits" => "bitshuffle",
        "none" => "noshuffle",
        other => return Err(invalid(format!("unknown shuffle '{other}'"))),
    };
    let codec = match options.codec.as_str() {
        "lz4" => json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
        "blosc" => json!({"name": "blosc", "configuration": {"cname": options.cname, "clevel": options.level,
            "shuffle": name, "typesize": options.type_bytes, "blocksize": 0}}),
        "zstd" => json!({"name": "zstd", "configuration": {"level": options.level, "checksum": false}}),
        "gzip" => json!({"name": "gzip", "configuration": {"level": options.level}}),
        "zlib" => json!({"name": "numcodecs.zlib", "configuration": {"level": options.level}}),
        "lz4_raw" => json!({"name": "lz4_raw"}),
        "deflate" => json!({"name": "deflate", "configuration": {"level": options.level}}),
        other => return Err(invalid(format!("unknown codec '{other}'"))),
    };
    let codecs = [Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?];
    let data_type = DataType::from_v3(&json!("uint8"))?;
    let fill_value = FillValue::default_of(&data_type);
    Chain::from_codecs(&codecs, ChunkSpec::new(vec![size as u64], data_type, fill_value))?.bind(Device::Cpu)
}

/// A gzip frame as zlib makes it.
fn by_zlib(options: &Options, plain: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(options.level as u32));
    let encoded = encoder.write_all(plain).and_then(|()| encoder.finish());
    encoded.map_err(|error| invalid(format!("zlib: {error}")))
}

/// Most different frames: more are copies, so that making them does not take longer than decoding.
const DISTINCT_BYTES: usize = 64 << 20;

fn measure(options: &Options, frame_bytes: usize) -> Result<()> {
    let count = options.frames.unwrap_or((options.total_mib << 20) / frame_bytes).max(1);
    let distinct = (DISTINCT_BYTES / frame_bytes).clamp(1, count);
    let program = program(options, frame_bytes)?;
    let (mut frames, mut plains) = (Vec::new(), Vec::new());
    for seed in 0..distinct {
        let mut plain = plain(options, frame_bytes, seed as u64 + 1)?;
        if options.codec != "blosc" && options.shuffle == "bytes" {
            let mut shuffled = vec![0; plain.len()];
            shuffle(&plain, &mut shuffled, options.type_bytes)?;
            plain = shuffled;
        }
        frames.push(match (options.codec.as_str(), options.by.as_str()) {
            ("gzip", "zlib") => by_zlib(options, &plain)?,
            (_, "libdeflate") => program.encode(&plain)?,
            (codec, by) => return Err(invalid(format!("no '{codec}' by '{by}'"))),
        });
        plains.push(plain);
    }
    if options.way == "encode" {
        return measure_encoding(options, &program, &plains, &frames, count);
    }
    let (mut encoded, mut units) = (Vec::new(), Vec::new());
    for index in 0..count {
        let frame = &frames[index % distinct];
        let src = encoded.len()..encoded.len() + frame.len();
        units.push(Unit { src, dst: index * frame_bytes..(index + 1) * frame_bytes });
        encoded.extend_from_slice(frame);
    }
    let stream = Stream::new(options.device)?;
    let src = Buffer::from_bytes(options.device, &encoded)?;
    let dst = Buffer::empty(options.device, count * frame_bytes)?;
    stream.memset(&dst, 0xa5)?;
    let decoder = device_decoder(&options.codec)?;
    let host = (options.scan == "host").then_some(&encoded[..]);
    // Once for what is loaded and compiled at the first call.
    drop(Batch::prepare(decoder, &src, &dst, &units, host)?);
    let began = Instant::now();
    let mut batch = Batch::prepare(decoder, &src, &dst, &units, host)?;
    let prepare_ms = (began.elapsed().as_secs_f64() * 1e5).round() / 100.0;
    batch.run(&stream)?;
    batch.check()?.into_iter().collect::<Result<Vec<()>>>()?;
    let decoded = dst.to_vec()?;
    for (index, got) in decoded.chunks(frame_bytes).enumerate() {
        if let Some(wrong) = got.iter().zip(&plains[index % distinct]).position(|(got, expected)| got != expected) {
            return Err(Error::new(ErrorKind::ChunkCorrupt, format!("frame {index}: byte {wrong} is wrong")));
        }
    }
    let times = times(options, &stream, || batch.run(&stream))?;
    let bytes = (count * frame_bytes) as f64;
    let speed = |ms: f64| (bytes / ms / 1e4).round() / 100.0;
    println!(
        "{}",
        json!({"device": options.device.to_string(), "codec": options.codec, "level": options.level, "by": options.by, "shuffle": options.shuffle,
            "type_bytes": options.type_bytes, "data": options.data, "scan": options.scan, "frame_kib": frame_bytes / 1024,
            "frames": count, "ratio": (bytes / encoded.len() as f64 * 100.0).round() / 100.0, "gb_s": speed(times[0]),
            "median_gb_s": speed(times[times.len() / 2]), "best_ms": times[0], "prepare_ms": prepare_ms, "scratch_bytes": batch.scratch_bytes(),
            "verified": true})
    );
    Ok(())
}

/// Milliseconds of each repeat, the shortest first: on the device, or what the host waits for where that cannot be told.
fn times(options: &Options, stream: &Stream, mut run: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..options.repeat {
        let (start, began) = (stream.record_timed()?, Instant::now());
        run()?;
        let end = stream.record_timed()?;
        end.synchronize()?;
        let on_device = f64::from(start.elapsed_ms(&end)?);
        times.push(if on_device > 0.0 { on_device } else { began.elapsed().as_secs_f64() * 1e3 });
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The same chunks, encoded on the device and decoded by the host.
fn measure_encoding(
    options: &Options,
    program: &Program,
    plains: &[Vec<u8>],
    frames: &[Vec<u8>],
    count: usize,
) -> Result<()> {
    let encoder = program.device_encoder().map_err(invalid)?;
    let chunk_bytes = encoder.chunk_bytes();
    let stride = chunk_bytes.next_multiple_of(256);
    let mut bytes = vec![0; count * stride];
    for (index, chunk) in bytes.chunks_mut(stride).enumerate() {
        chunk[..chunk_bytes].copy_from_slice(&plains[index % plains.len()]);
    }
    let stream = Stream::new(options.device)?;
    let src = Buffer::from_bytes(options.device, &bytes)?;
    let prepare = || EncodeBatch::prepare(&**encoder, &src, stride, vec![chunk_bytes; count]);
    let mut batch = prepare()?;
    batch.run(&stream)?;
    let encoded = batch.finish()?;
    let out = encoded.buffer.to_vec()?;
    let (mut size_bytes, mut by_host, mut decoded) = (0, 0, vec![0; chunk_bytes]);
    for (index, range) in encoded.frames.iter().enumerate() {
        let frame = range.clone().map_or(&[][..], |range| &out[range]);
        size_bytes += frame.len();
        by_host += frames[index % frames.len()].len();
        program.decode(frame, &mut decoded)?;
        if decoded != plains[index % plains.len()] {
            return Err(Error::new(ErrorKind::EncodeFailed, format!("chunk {index} comes back as another")));
        }
    }
    let mut batch = prepare()?;
    let times = times(options, &stream, || batch.run(&stream))?;
    let bytes = (count * chunk_bytes) as f64;
    let two = |value: f64| (value * 100.0).round() / 100.0;
    println!(
        "{}",
        json!({"way": "encode", "device": options.device.to_string(), "codec": options.codec, "level": options.level,
            "shuffle": options.shuffle, "type_bytes": options.type_bytes, "data": options.data,
            "frame_kib": chunk_bytes / 1024, "frames": count, "ratio": two(bytes / size_bytes as f64),
            "ratio_of_host": two(bytes / by_host as f64), "gb_s": two(bytes / times[0] / 1e6),
            "median_gb_s": two(bytes / times[times.len() / 2] / 1e6), "best_ms": times[0], "verified": true})
    );
    Ok(())
}

fn main() -> std::process::ExitCode {
    let run =
        || options().and_then(|options| options.frames_kib.iter().try_for_each(|kib| measure(&options, kib << 10)));
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
