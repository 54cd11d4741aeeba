//! `cast_value` where it narrows or maps, and `scale_offset` on integers: every device gives the host's elements, and refuses
//! those that the host refuses.

mod model;

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::Chain;
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::run::{Decoder, Frames};
use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, Stream};
use model::Dice;
use serde_json::{Value, json};

/// Integers, then floats.
#[rustfmt::skip]
const TYPES: [DType; 12] = [
    DType::INT8, DType::INT16, DType::INT32, DType::INT64, DType::UINT8, DType::UINT16, DType::UINT32, DType::UINT64,
    DType::FLOAT16, DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64,
];

fn is_float(dtype: DType) -> bool {
    TYPES[8..].contains(&dtype)
}

/// Elements of the type: all kinds of bits, and what lies around the limits of every other type.
fn elements(dtype: DType, count: usize, random: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    let put = |from: DType, element: &[u8], bytes: &mut Vec<u8>| {
        let mut converted = vec![0; dtype.size_bytes()];
        cast(from, dtype, element, &mut converted).unwrap();
        bytes.extend(converted);
    };
    while bytes.len() < count * dtype.size_bytes() {
        let limit = 1i128 << random.pick(&[0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63]);
        let near = (limit - 2 + random.below(4) as i128) * if random.chance(2) { 1 } else { -1 };
        match random.below(4) {
            0 => bytes.extend((0..dtype.size_bytes()).map(|_| random.below(256) as u8)),
            1 => put(DType::INT64, &(near.clamp(i64::MIN.into(), i64::MAX.into()) as i64).to_ne_bytes(), &mut bytes),
            2 => {
                let half = near as f64 + random.pick(&[0.0, 0.5, 0.25, 0.75, 1e-9]);
                put(DType::FLOAT64, &half.to_ne_bytes(), &mut bytes);
            }
            _ => {
                let scale = 2f64.powi(random.below(320) as i32 - 160);
                let value = (random.below(1 << 30) as f64 - 5e8) * scale;
                let special =
                    random.pick(&[value, value, value, 0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
                put(DType::FLOAT64, &special.to_ne_bytes(), &mut bytes);
            }
        }
    }
    bytes.truncate(count * dtype.size_bytes());
    bytes
}

fn devices() -> Vec<Device> {
    model::kernel_devices()
}

/// What the host makes of stored elements; `None` where the fill value of the codec itself is refused.
fn on_host(codec: &Value, name: &str, stored: &[u8], len: usize) -> Option<cuzarr::Result<Vec<u8>>> {
    let data_type = DataType::from_v3(&Value::from(name)).unwrap();
    let codecs = [Extension::from_json(codec, "codecs").unwrap(), bytes_codec()];
    let fill_value = FillValue::default_of(&data_type);
    let chain = Chain::from_extensions(&codecs, ChunkSpec::new(vec![len as u64], data_type, fill_value)).ok()?;
    let program = chain.bind(Device::Cpu).unwrap();
    let mut decoded = vec![0; program.packed_size_bytes()];
    Some(program.decode(stored, &mut decoded).map(|()| decoded))
}

fn bytes_codec() -> Extension {
    Extension::from_json(&json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs").unwrap()
}

/// Chunks of stored elements, decoded together on each device, against the host. Returns how many were refused.
fn assert_agrees(codec: &Value, dtype: DType, chunks: &[Vec<u8>], len: usize) -> usize {
    let name = &dtype.to_string()[..];
    let expected: Option<Vec<_>> = chunks.iter().map(|stored| on_host(codec, name, stored, len)).collect();
    let Some(expected) = expected else { return 0 };
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    for device in devices() {
        let decoder = Decoder::new(&json!([codec, bytes]), device).unwrap();
        let outs: Vec<_> = chunks.iter().map(|_| NdBuffer::zeroed(device, dtype, &[len], Order::C).unwrap()).collect();
        let frames = chunks.iter().map(|stored| Buffer::from_bytes(device, stored).unwrap()).collect();
        let mut batch = decoder.prepare(Frames::Apart(frames), outs.clone(), None).unwrap();
        assert_eq!(batch.via_host(), None, "{device}: {codec} to {name}");
        batch.run(&Stream::new(device).unwrap()).unwrap();
        for (index, result) in batch.check().unwrap().into_iter().enumerate() {
            let what = || format!("{device}: {codec} to {name}: chunk {index} {:?}", chunks[index]);
            match (result, &expected[index]) {
                (Ok(()), Ok(decoded)) => {
                    assert_eq!(&outs[index].to_host_bytes(Order::C).unwrap(), decoded, "{}", what());
                }
                (Err(error), Err(on_host)) => {
                    let element = on_host.message().split([' ', ':']).nth(1).unwrap().parse::<usize>().unwrap();
                    let at = element * chunks[index].len() / len;
                    assert!(error.message().starts_with(&format!("byte {at}: ")), "{}: {error}, {on_host}", what());
                }
                (result, on_host) => panic!("{}: {result:?}, on the host {on_host:?}", what()),
            }
        }
    }
    expected.iter().filter(|expected| expected.is_err()).count()
}

#[test]
fn values_are_cast_exactly_or_refused_as_on_the_host() {
    let mut random = Dice(3);
    let (mut refused, mut cases) = (0, 0);
    for from in TYPES {
        for to in TYPES {
            for case in 0..3 {
                let rounding = random.pick(&[
                    "nearest-even",
                    "towards-zero",
                    "towards-positive",
                    "towards-negative",
                    "nearest-away",
                ]);
                let mut configuration = json!({"data_type": from.to_string(), "rounding": rounding});
                // Wrapping is of the codec's own type, which encoding makes.
                match case {
                    1 => configuration["out_of_range"] = "clamp".into(),
                    2 if !is_float(from) && !is_float(to) => configuration["out_of_range"] = "wrap".into(),
                    _ => {}
                }
                if is_float(from) && random.chance(2) {
                    configuration["scalar_map"] = json!({"decode": [["NaN", 7], ["Infinity", 9], [0.0, 1]]});
                } else if random.chance(2) {
                    // Many, several of one key, and zeros of both signs.
                    let key = |at: u64| {
                        if is_float(from) && at.is_multiple_of(5) { json!(-0.0) } else { json!(at * 7 % 100) }
                    };
                    let pairs: Vec<_> = (0..60).map(|at| json!([key(at), at])).collect();
                    configuration["scalar_map"] = json!({"decode": pairs});
                }
                let codec = json!({"name": "cast_value", "configuration": configuration});
                let count = if devices().contains(&Device::Cuda(0)) { 400 } else { 24 };
                let single: Vec<_> = (0..count).map(|_| elements(from, 1, &mut random)).collect();
                refused += assert_agrees(&codec, to, &single, 1);
                // Chunks of several elements say which one it was.
                let several: Vec<_> = (0..4).map(|_| elements(from, 70, &mut random)).collect();
                refused += assert_agrees(&codec, to, &several, 70);
                cases += single.len() + several.len();
            }
        }
    }
    assert!((cases / 20..cases).contains(&refused), "{refused} of {cases} refused");
}

#[test]
fn integers_are_unscaled_exactly_or_refused_as_on_the_host() {
    let mut random = Dice(4);
    let mut refused = 0;
    for dtype in &TYPES[..8] {
        for (offset, scale) in [(0, 1), (5, 3), (1, 7), (100, 1), (0, 2), (-3, -1), (-100, 3), (17, -5)] {
            if dtype.to_string().starts_with('u') && (offset < 0 || scale < 0) {
                continue;
            }
            let codec = json!({"name": "scale_offset", "configuration": {"offset": offset, "scale": scale}});
            let single: Vec<_> = (0..24).map(|_| elements(*dtype, 1, &mut random)).collect();
            refused += assert_agrees(&codec, *dtype, &single, 1);
            // Multiples, so that whole chunks have values.
            let multiples = |random: &mut Dice| {
                let small = |random: &mut Dice| (random.below(15) as i64 * scale).to_ne_bytes();
                (0..300).flat_map(|_| small(random)[..dtype.size_bytes()].to_vec()).collect::<Vec<u8>>()
            };
            let chunks: Vec<_> = (0..3).map(|_| multiples(&mut random)).collect();
            refused += assert_agrees(&codec, *dtype, &chunks, 300);
        }
    }
    assert!(refused > 100, "{refused}");
}
