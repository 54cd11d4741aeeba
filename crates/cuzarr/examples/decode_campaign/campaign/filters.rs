//! Chains of filters and checksums, without compressors: any stored bytes are some elements there, so the device must give
//! those that the host gives, or refuse the frame with it.

use cuzarr::Result;
use cuzarr::codec::{Chain, ChunkSpec};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::run::{Decoder, Frames};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order, Stream};
use serde_json::{Value, json};

use super::random::Random;
use super::{Outcome, Settings, data};

/// Chains that a round tries.
const CHAINS: usize = 32;
/// Stored bytes of a chain's frames, about.
const CHAIN_BYTES: usize = 16 << 20;
const UNTOUCHED: u8 = 0xa5;
const GAP_BYTES: usize = 32;

/// Types, and numcodecs' names of them.
const TYPES: [(DType, &str); 10] = [
    (DType::INT8, "|i1"),
    (DType::INT16, "<i2"),
    (DType::INT32, "<i4"),
    (DType::INT64, "<i8"),
    (DType::UINT8, "|u1"),
    (DType::UINT16, "<u2"),
    (DType::UINT32, "<u4"),
    (DType::UINT64, "<u8"),
    (DType::FLOAT32, "<f4"),
    (DType::FLOAT64, "<f8"),
];

/// A filter of elements of this type, and its name.
fn filter(dtype: DType, name: &str, random: &mut Random) -> (&'static str, Option<Value>) {
    let is_float = [DType::FLOAT32, DType::FLOAT64].contains(&dtype);
    let other = TYPES[random.below(TYPES.len())];
    match random.below(8) {
        0 => ("none", None),
        // A running sum of floats is the host's.
        1 if !is_float => {
            let astype = random.pick(&[name, name, "|i1", "<i2", "<u4"]);
            ("delta", Some(json!({"name": "numcodecs.delta", "configuration": {"dtype": name, "astype": astype}})))
        }
        2 if is_float => {
            let (offset, scale) = (random.pick(&[0.0, 273.15, -1e3]), random.pick(&[1.0, 10.0, 0.01]));
            let configuration = json!({"offset": offset, "scale": scale, "dtype": name, "astype": other.1});
            ("fixedscaleoffset", Some(json!({"name": "numcodecs.fixedscaleoffset", "configuration": configuration})))
        }
        3 => {
            let configuration = json!({"encode_dtype": other.1, "decode_dtype": name});
            ("astype", Some(json!({"name": "numcodecs.astype", "configuration": configuration})))
        }
        4 if is_float => {
            let configuration =
                json!({"offset": random.pick(&[0.0, 0.1, -7.5]), "scale": random.pick(&[1.0, 0.3, 8.0])});
            ("scale_offset", Some(json!({"name": "scale_offset", "configuration": configuration})))
        }
        5 => {
            let rounding = random.pick(&["nearest-even", "towards-zero", "towards-positive", "nearest-away"]);
            let configuration =
                json!({"data_type": other.0.to_string(), "rounding": rounding, "out_of_range": "clamp"});
            ("cast_value", Some(json!({"name": "cast_value", "configuration": configuration})))
        }
        6 if is_float => {
            let configuration = json!({"digits": random.below(6), "dtype": name});
            ("quantize", Some(json!({"name": "numcodecs.quantize", "configuration": configuration})))
        }
        _ => ("none", None),
    }
}

/// A chain of codecs, and the names of its parts.
fn chain(random: &mut Random) -> (DType, Value, [&'static str; 3]) {
    if random.one_in(10) {
        return (DType::BOOL, json!([{"name": "numcodecs.packbits"}]), ["packbits", "none", "none"]);
    }
    let (dtype, name) = TYPES[random.below(TYPES.len())];
    let (filter_name, filter) = filter(dtype, name, random);
    let endian = random.pick(&["little", "little", "big"]);
    let mut codecs: Vec<Value> = filter.into_iter().collect();
    codecs.push(json!({"name": "bytes", "configuration": {"endian": endian}}));
    let shuffled = random.one_in(3);
    if shuffled {
        let unit = random.pick(&[dtype.size_bytes(), dtype.size_bytes(), 2, 3, 16]);
        codecs.push(json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": unit}}));
    }
    let location = random.pick(&["start", "end"]);
    let placed = |name: &str| json!({"name": name, "configuration": {"location": location}});
    let (checksum_name, checksum) = match random.below(6) {
        0 => ("crc32c", Some(json!({"name": "crc32c"}))),
        1 => ("crc32c", Some(placed("numcodecs.crc32c"))),
        2 => ("crc32", Some(placed("numcodecs.crc32"))),
        3 => ("adler32", Some(placed("numcodecs.adler32"))),
        4 => ("fletcher32", Some(json!({"name": "numcodecs.fletcher32"}))),
        _ => ("none", None),
    };
    codecs.extend(checksum);
    (dtype, Value::from(codecs), [filter_name, if shuffled { "shuffle" } else { "none" }, checksum_name])
}

/// What is stored for `count` chunks of `len` elements: bytes of all kinds.
fn stored(codecs: &Value, dtype: DType, len: usize, count: usize, random: &mut Random) -> Result<Vec<Vec<u8>>> {
    let data_type = DataType::from_v3(&Value::from(dtype.to_string()))?;
    let list = codecs.as_array().into_iter().flatten();
    let extensions = list.map(|codec| Extension::from_json(codec, "codecs")).collect::<Result<Vec<_>>>()?;
    let fill_value = FillValue::default_of(&data_type);
    let spec = ChunkSpec::new(vec![len as u64], data_type, fill_value);
    let program = Chain::from_codecs(&extensions, spec)?.bind(Device::Cpu)?;
    let size = program.packed_size_bytes();
    (0..count)
        .map(|_| {
            let kind = random.below(data::KINDS.len());
            program.encode(&data::plain(kind, size, random))
        })
        .collect()
}

fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    match random.below(4) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => (0..random.log_uniform(1, 40)).for_each(|_| frame.push(random.byte())),
        _ if frame.is_empty() => frame.push(0),
        _ => (0..1 + random.below(3)).for_each(|_| {
            let at = random.below(frame.len());
            frame[at] ^= 1 << random.below(8);
        }),
    }
}

/// What came of each frame, and the memory that their elements went to.
struct Decoded {
    results: Vec<Result<()>>,
    memory: Vec<u8>,
    via_host: bool,
}

/// Decodes frames in one slab to elements in one buffer, with memory between them that nothing may touch.
fn decode(
    codecs: &Value,
    device: Device,
    dtype: DType,
    len: usize,
    frames: &[Vec<u8>],
    places: &[usize],
) -> Result<Decoded> {
    let (mut slab, mut ranges) = (Vec::new(), Vec::new());
    for (number, frame) in frames.iter().enumerate() {
        slab.resize(slab.len() + number % 5, 0xff);
        ranges.push(slab.len()..slab.len() + frame.len());
        slab.extend_from_slice(frame);
    }
    let size = len * dtype.size_bytes();
    let memory = Buffer::from_bytes(device, &vec![UNTOUCHED; places.last().map_or(0, |at| at + size) + GAP_BYTES])?;
    let layout = Layout::contiguous(&[len], dtype.size_bytes(), Order::C)?;
    let out = |&at: &usize| Ok(NdBuffer::from_parts(memory.slice(at..at + size)?, dtype, layout.clone())?);
    let outs = places.iter().map(out).collect::<Result<Vec<_>>>()?;
    let frames = Frames::Slab { buffer: Buffer::from_bytes(device, &slab)?, ranges };
    let mut batch = Decoder::new(codecs, device)?.prepare(frames, outs, None)?;
    batch.run(&Stream::new(device)?)?;
    let results = batch.check()?;
    Ok(Decoded { results, via_host: batch.via_host().is_some(), memory: memory.to_vec()? })
}

/// Chains at random, each for many chunks of one size; every other chunk is damaged.
///
/// # Errors
/// When the device is lost.
pub fn round(settings: &Settings, round: u64, outcome: &mut Outcome) -> Result<()> {
    let mut random = Random::new(&[settings.seed, round, 4]);
    for number in 0..CHAINS {
        let (dtype, codecs, names) = chain(&mut random);
        let width = dtype.size_bytes();
        let most = if random.one_in(8) { settings.most_bytes } else { 2000 };
        let len = random.log_uniform(1, (most / width).max(1));
        let count = (CHAIN_BYTES / (len * width + GAP_BYTES)).clamp(1, settings.batch / CHAINS + 1);
        // Some combinations have no meaning.
        let Ok(mut frames) = stored(&codecs, dtype, len, count, &mut random) else { continue };
        for frame in frames.iter_mut().skip(1).step_by(2) {
            damage(frame, &mut random);
        }
        let apart = (len * width + GAP_BYTES).next_multiple_of(width) + width * random.below(3);
        let places: Vec<usize> = (0..count).map(|at| GAP_BYTES + at * apart).collect();
        let got = decode(&codecs, settings.device, dtype, len, &frames, &places)?;
        let expected = decode(&codecs, Device::Cpu, dtype, len, &frames, &places)?;
        outcome.batches += 1;
        for part in names {
            outcome.count_of(part, count as u64);
        }
        outcome.count_of("via host", if got.via_host { count as u64 } else { 0 });
        for (index, &at) in places.iter().enumerate() {
            let (end, next) = (at + len * width, places.get(index + 1).copied().unwrap_or(got.memory.len()));
            outcome.frames += 1;
            outcome.decoded_bytes += (len * width) as u64;
            outcome.over_1_mib += u64::from(len * width > 1 << 20);
            let wrong = match (&got.results[index], &expected.results[index]) {
                _ if got.memory[end..next].iter().any(|&byte| byte != UNTOUCHED) => "wrote outside of its place",
                (Ok(()), Ok(())) if got.memory[at..end] != expected.memory[at..end] => "other elements than the host's",
                (Ok(()), Ok(())) => {
                    outcome.count("both take");
                    continue;
                }
                (Err(_), Err(_)) => {
                    outcome.count("both refuse");
                    continue;
                }
                (Ok(()), Err(_)) => "the host refuses it",
                (Err(_), Ok(())) => "the host takes it",
            };
            outcome.fail(
                json!({"round": round, "seed": settings.seed, "chain": number, "codecs": codecs, "frame": index,
                "elements": len, "wrong": wrong, "here": format!("{:?}", got.results[index]),
                "host": format!("{:?}", expected.results[index])}),
            );
        }
    }
    Ok(())
}
