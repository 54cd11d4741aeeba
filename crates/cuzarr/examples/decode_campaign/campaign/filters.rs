//! Chains of filters and checksums, without compressors: any stored bytes are some elements there, so the device must give
//! those that the host gives, or refuse the frame with it.

use cuzarr::Result;
use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::{Chain, Program};
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
/// So many bytes of chunks, one behind the other, are of one kind.
const KIND_BYTES: usize = 8 << 10;
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

/// Filters that a campaign tries, as often each.
const FILTERS: [&str; 12] = [
    "none",
    "delta",
    "fixedscaleoffset",
    "astype",
    // Some of these have a fill value that cannot be encoded, and are left out.
    "scale_offset",
    "scale_offset",
    "cast_value",
    "cast_value",
    "quantize",
    "numcodecs.packbits",
    "packbits",
    "bitround",
];

/// A filter of elements of this type, and the bytes of an element that it gives; `None` where it takes none of them.
fn filter(filter: &str, (dtype, name): (DType, &str), random: &mut Random) -> Option<(Value, usize)> {
    let is_float = [DType::FLOAT32, DType::FLOAT64].contains(&dtype);
    let other = TYPES[random.below(TYPES.len())];
    let of = |name: &str, to: DType, configuration: Value| {
        Some((json!({"name": name, "configuration": configuration}), to.size_bytes()))
    };
    match filter {
        // A running sum of floats is the host's.
        "delta" if !is_float => {
            let own = (dtype, name);
            let astype = random.pick(&[own, own, TYPES[0], TYPES[1], TYPES[6]]);
            of("numcodecs.delta", astype.0, json!({"dtype": name, "astype": astype.1}))
        }
        "fixedscaleoffset" => {
            let (offset, scale) = match is_float {
                true => (json!(random.pick(&[0.0, 273.15, -1e3])), json!(random.pick(&[1.0, 10.0, 0.01]))),
                false => (json!(random.pick(&[0, 1, 100])), json!(random.pick(&[1, 2, 10]))),
            };
            let configuration = json!({"offset": offset, "scale": scale, "dtype": name, "astype": other.1});
            of("numcodecs.fixedscaleoffset", other.0, configuration)
        }
        "astype" => of("numcodecs.astype", other.0, json!({"encode_dtype": other.1, "decode_dtype": name})),
        "scale_offset" if is_float => of(
            "scale_offset",
            dtype,
            json!({"offset": random.pick(&[0.0, 0.1, -7.5]), "scale": random.pick(&[1.0, 0.3, 8.0])}),
        ),
        "scale_offset" => {
            of("scale_offset", dtype, json!({"offset": random.pick(&[0, 1, 9]), "scale": random.pick(&[1, 2, 5])}))
        }
        "cast_value" => {
            let rounding = random.pick(&["nearest-even", "towards-zero", "towards-positive", "nearest-away"]);
            let range = random.pick(&[Some("clamp"), Some("clamp"), None]);
            let map = random.pick(&["[]", "[[0, 1]]", "[[1, 7], [3, 0], [0, 3]]"]);
            let many: Vec<_> = (0..120).map(|at| json!([at, 119 - at])).collect();
            let map = if random.one_in(4) { json!(many) } else { map.parse().ok()? };
            let mut configuration = json!({"data_type": other.0.to_string(), "rounding": rounding,
                "scalar_map": {"decode": map}});
            if let Some(range) = range {
                configuration["out_of_range"] = json!(range);
            }
            of("cast_value", other.0, configuration)
        }
        "quantize" if is_float => of("numcodecs.quantize", dtype, json!({"digits": random.below(6), "dtype": name})),
        "bitround" if is_float => of("bitround", dtype, json!({"keepbits": random.below(20)})),
        _ => None,
    }
}

/// A chain of codecs.
struct Tried {
    dtype: DType,
    codecs: Vec<Value>,
    names: [&'static str; 3],
    /// So many codecs of arrays stand in front.
    filters: usize,
    /// Bytes of an element behind them; `None` where there are less than one.
    encoded_width: Option<usize>,
}

fn chain(random: &mut Random) -> Tried {
    let filter_name = random.pick(&FILTERS);
    let (dtype, endian, mut codecs, encoded_width) = loop {
        if filter_name == "packbits" {
            let (dtype, _) = random.pick(&TYPES);
            let (first, padding) = (random.below(4), random.pick(&["none", "first_byte", "last_byte"]));
            let last = first + random.below(8 * dtype.size_bytes() - first);
            let configuration = json!({"first_bit": first, "last_bit": last, "padding_encoding": padding});
            break (dtype, None, vec![json!({"name": "packbits", "configuration": configuration})], None);
        }
        if filter_name == "numcodecs.packbits" {
            break (DType::BOOL, None, vec![json!({"name": "numcodecs.packbits"})], None);
        }
        let dtype = random.pick(&TYPES);
        let endian = random.pick(&["little", "little", "big"]);
        match filter(filter_name, dtype, random) {
            None if filter_name != "none" => continue,
            None => break (dtype.0, Some(endian), Vec::new(), Some(dtype.0.size_bytes())),
            Some((codec, width)) => break (dtype.0, Some(endian), vec![codec], Some(width)),
        }
    };
    let filters = codecs.len();
    codecs.extend(endian.map(|endian| json!({"name": "bytes", "configuration": {"endian": endian}})));
    let shuffled = random.one_in(3);
    if shuffled {
        let unit = random.pick(&[dtype.size_bytes(), dtype.size_bytes(), 2, 3, 16]);
        codecs.push(json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": unit}}));
    }
    let location = random.pick(&["start", "end"]);
    let placed = |name: &str| json!({"name": name, "configuration": {"location": location}});
    let (checksum_name, checksum) = match random.below(8) {
        0 => ("crc32c", Some(json!({"name": "crc32c"}))),
        1 => ("crc32c", Some(placed("numcodecs.crc32c"))),
        2 => ("crc32", Some(placed("numcodecs.crc32"))),
        3 => ("adler32", Some(placed("numcodecs.adler32"))),
        4 => ("fletcher32", Some(json!({"name": "numcodecs.fletcher32"}))),
        _ => ("none", None),
    };
    codecs.extend(checksum);
    let names = [filter_name, if shuffled { "shuffle" } else { "none" }, checksum_name];
    Tried { dtype, codecs, names, filters, encoded_width }
}

/// What is stored for `count` chunks of `len` elements: bytes of all kinds, with the checksums that belong to them.
fn stored(chain: &Tried, len: usize, count: usize, random: &mut Random) -> Result<Vec<Vec<u8>>> {
    let opened = open(&chain.codecs, chain.dtype, len)?;
    // Filters give any bytes, so any bytes stand for what they gave; but packed bits say how many there are.
    let program = match chain.encoded_width {
        Some(width) => open(&chain.codecs[chain.filters..], DType::UINT8, len * width)?,
        None => opened,
    };
    let size = program.packed_size_bytes();
    let mut plain = Vec::new();
    while plain.len() < count * size {
        // Some kinds take long to begin with.
        plain.extend(data::plain(random.below(data::KINDS.len()), KIND_BYTES, random));
    }
    (0..count).map(|at| program.encode(&plain[at * size..(at + 1) * size])).collect()
}

fn open(codecs: &[Value], dtype: DType, len: usize) -> Result<Program> {
    let data_type = DataType::from_v3(&Value::from(dtype.to_string()))?;
    let extensions = codecs.iter().map(|codec| Extension::from_json(codec, "codecs")).collect::<Result<Vec<_>>>()?;
    let fill_value = FillValue::default_of(&data_type);
    Chain::from_codecs(&extensions, ChunkSpec::new(vec![len as u64], data_type, fill_value))?.bind(Device::Cpu)
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
        let tried = chain(&mut random);
        let (dtype, codecs) = (tried.dtype, Value::from(tried.codecs.clone()));
        let width = dtype.size_bytes();
        let most = if random.one_in(8) { settings.most_bytes } else { 2000 };
        let len = random.log_uniform(1, (most / width).max(1));
        let count = (CHAIN_BYTES / (len * width + GAP_BYTES)).clamp(1, settings.batch / CHAINS + 1);
        // Some combinations have no meaning.
        let Ok(mut frames) = stored(&tried, len, count, &mut random) else { continue };
        for frame in frames.iter_mut().skip(1).step_by(2) {
            damage(frame, &mut random);
        }
        let apart = (len * width + GAP_BYTES).next_multiple_of(width) + width * random.below(3);
        let places: Vec<usize> = (0..count).map(|at| GAP_BYTES + at * apart).collect();
        let got = decode(&codecs, settings.device, dtype, len, &frames, &places)?;
        let expected = decode(&codecs, Device::Cpu, dtype, len, &frames, &places)?;
        outcome.batches += 1;
        for part in tried.names {
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
