//! Kernels that decode zfp's blocks of a fixed size, against the decoder of the host: chunks of every type and shape, and bits at
//! random, which are blocks too.

mod model;

use cuzarr::ErrorKind;
use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::{Chain, Support};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::run::{Decoder, Frames};
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, Stream};
use model::{Dice, kernel_devices};
use serde_json::{Value, json};

const TYPES: [DType; 4] = [DType::INT32, DType::INT64, DType::FLOAT32, DType::FLOAT64];

fn zfp(configuration: Value) -> Value {
    json!({"name": "zfp", "configuration": configuration})
}

fn chain(codecs: &[Value], dtype: DType, shape: &[usize]) -> Chain {
    let data_type = DataType::from_v3(&Value::from(dtype.to_string())).unwrap();
    let fill_value = FillValue::default_of(&data_type);
    let codecs: Vec<_> = codecs.iter().map(|codec| Extension::from_json(codec, "codecs").unwrap()).collect();
    let shape = shape.iter().map(|&extent| extent as u64).collect();
    Chain::from_extensions(&codecs, ChunkSpec::new(shape, data_type, fill_value)).unwrap()
}

/// Numbers of one kind: smooth, sparse, of all magnitudes, or zeros.
fn elements(dtype: DType, count: usize, kind: u64, random: &mut Dice) -> Vec<u8> {
    let mut element = |at: usize| {
        let noise = random.below(1 << 30) as f64 / f64::from(1 << 29) - 1.0;
        let value = match kind {
            0 => (at as f64 / 9.0).sin() * 700.0 + noise,
            1 if random.chance(9) => noise * 40.0,
            2 if dtype == DType::FLOAT64 => noise * 2f64.powi(random.below(1900) as i32 - 900),
            2 if dtype == DType::FLOAT32 => noise * 2f64.powi(random.below(200) as i32 - 90),
            2 => noise * 2f64.powi(random.below(64) as i32),
            _ => 0.0,
        };
        match dtype {
            DType::INT32 => (value as i32).to_ne_bytes().to_vec(),
            DType::INT64 => (value as i64).to_ne_bytes().to_vec(),
            DType::FLOAT32 => (value as f32).to_ne_bytes().to_vec(),
            _ => value.to_ne_bytes().to_vec(),
        }
    };
    (0..count).flat_map(&mut element).collect()
}

/// What a device makes of frames, all in one batch.
fn on_device(
    codecs: &[Value],
    dtype: DType,
    shape: &[usize],
    frames: &[Vec<u8>],
    device: Device,
) -> Vec<cuzarr::Result<Vec<u8>>> {
    let decoder = Decoder::new(&Value::from(codecs.to_vec()), device).unwrap();
    let outs: Vec<_> = frames.iter().map(|_| NdBuffer::zeroed(device, dtype, shape, Order::C).unwrap()).collect();
    let frames = frames.iter().map(|frame| Buffer::from_bytes(device, frame).unwrap()).collect();
    let mut batch = decoder.prepare(Frames::Apart(frames), outs.clone(), None).unwrap();
    assert_eq!(batch.via_host(), None, "{device}: {codecs:?}");
    batch.run(&Stream::new(device).unwrap()).unwrap();
    let results = batch.check().unwrap().into_iter().zip(outs);
    results.map(|(result, out)| result.map(|()| out.to_host_bytes(Order::C).unwrap())).collect()
}

fn on_host(chain: &Chain, frame: &[u8]) -> cuzarr::Result<Vec<u8>> {
    let program = chain.bind(Device::Cpu)?;
    let mut decoded = vec![0; program.packed_size_bytes()];
    program.decode(frame, &mut decoded).map(|()| decoded)
}

fn shapes(ndim: usize) -> Vec<Vec<usize>> {
    match ndim {
        0 => vec![vec![]],
        1 => vec![vec![1], vec![4], vec![701]],
        2 => vec![vec![3, 2], vec![8, 12], vec![33, 22]],
        3 => vec![vec![1, 1, 5], vec![4, 8, 4], vec![9, 7, 14]],
        _ => vec![vec![2, 3, 1, 6], vec![4, 4, 4, 4], vec![5, 6, 4, 7]],
    }
}

#[test]
fn blocks_of_every_type_and_shape_decode_to_the_hosts_bits() {
    let mut random = Dice(11);
    for (dtype, shape) in TYPES.iter().flat_map(|&dtype| (0..=4).flat_map(shapes).map(move |shape| (dtype, shape))) {
        let expert = |bits: u32, planes: u32, exponent: i32| {
            zfp(json!({"mode": "expert", "minbits": bits, "maxbits": bits, "maxprec": planes, "minexp": exponent}))
        };
        let rates = [1.5, 7.3, 16.0, 31.0, 65.0].map(|rate| zfp(json!({"mode": "fixed_rate", "rate": rate})));
        for codec in rates.into_iter().chain([expert(53, 12, -1074), expert(300, 64, -4), expert(12, 1, 1 << 30)]) {
            let (codecs, count) = ([codec], shape.iter().product());
            let chain = chain(&codecs, dtype, &shape);
            let program = chain.bind(Device::Cpu).unwrap();
            let chunks = (0..4).map(|kind| elements(dtype, count, kind, &mut random));
            let mut frames: Vec<_> = chunks.map(|chunk| program.encode(&chunk).unwrap()).collect();
            for _ in 0..3 {
                frames.push((0..frames[0].len()).map(|_| random.below(256) as u8).collect());
            }
            frames.push(vec![0xff; frames[0].len()]);
            let expected: Vec<_> = frames.iter().map(|frame| on_host(&chain, frame).unwrap()).collect();
            for device in kernel_devices() {
                for (at, (decoded, expected)) in
                    on_device(&codecs, dtype, &shape, &frames, device).into_iter().zip(&expected).enumerate()
                {
                    assert!(&decoded.unwrap() == expected, "{device}: {dtype} {shape:?} {codecs:?}: chunk {at}");
                }
            }
        }
    }
}

#[test]
fn frames_of_another_size_are_refused_alone() {
    let codecs = [zfp(json!({"mode": "fixed_rate", "rate": 6}))];
    let chain = chain(&codecs, DType::INT32, &[9, 10]);
    let program = chain.bind(Device::Cpu).unwrap();
    let mut random = Dice(5);
    let mut frames: Vec<_> =
        (0..5).map(|_| program.encode(&elements(DType::INT32, 90, 0, &mut random)).unwrap()).collect();
    frames[1].pop();
    frames[3].extend([0; 8]);
    frames[4].clear();
    for device in kernel_devices() {
        let decoded = on_device(&codecs, DType::INT32, &[9, 10], &frames, device);
        for (at, (frame, decoded)) in frames.iter().zip(decoded).enumerate() {
            match on_host(&chain, frame) {
                Ok(expected) => assert!(decoded.unwrap() == expected && [0, 2].contains(&at), "{device}: {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ChunkCorrupt);
                    assert_eq!(decoded.unwrap_err().kind(), ErrorKind::ChunkCorrupt, "{device}: {at}");
                }
            }
        }
    }
}

#[test]
fn codecs_around_the_blocks_run_on_the_device_too() {
    let (shape, mut random) = ([6, 12], Dice(17));
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let rate = zfp(json!({"mode": "fixed_rate", "rate": 12}));
    let codecs = [transpose, rate, json!({"name": "gzip", "configuration": {"level": 1}}), json!({"name": "crc32c"})];
    let chain = chain(&codecs, DType::FLOAT32, &shape);
    assert!(chain.describe(Device::Cuda(0)).iter().all(|stage| stage.support == Support::Native));
    let program = chain.bind(Device::Cpu).unwrap();
    let frames: Vec<_> =
        (0..9).map(|kind| program.encode(&elements(DType::FLOAT32, 72, kind % 4, &mut random)).unwrap()).collect();
    for device in kernel_devices() {
        for (frame, decoded) in frames.iter().zip(on_device(&codecs, DType::FLOAT32, &shape, &frames, device)) {
            // The program's chunk is the transposed one.
            let packed = on_host(&chain, frame).unwrap();
            let element = |at: usize| &packed[4 * (at % 12 * 6 + at / 12)..][..4];
            assert!(decoded.unwrap() == (0..72).flat_map(element).copied().collect::<Vec<_>>(), "{device}");
        }
    }
}

#[test]
fn blocks_of_any_size_and_small_types_are_the_hosts() {
    let reason = |configuration: Value, dtype: DType| {
        let stage = chain(&[zfp(configuration)], dtype, &[8, 8]).describe(Device::Cuda(0)).remove(0);
        match stage.support {
            Support::Native => None,
            Support::ViaHost(reason) => Some(reason),
        }
    };
    let rate = || json!({"mode": "fixed_rate", "rate": 8});
    assert_eq!(reason(rate(), DType::FLOAT32), None);
    for (configuration, dtype) in
        [(json!({"mode": "reversible"}), DType::INT32), (rate(), DType::UINT8), (rate(), DType::UINT32)]
    {
        assert!(reason(configuration, dtype).unwrap().contains("blocks of a fixed size"), "{dtype}");
    }
}
