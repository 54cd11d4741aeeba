//! Codecs used directly to encode, on every device: chunks of any shape, type and layout become frames that the host's libraries
//! decode.

mod model;

use cuzarr::ErrorKind;
use cuzarr::internal::codec::Chain;
use cuzarr::meta::ArrayMetadata;
use cuzarr::run::{Decoder, Encoder, EncoderBatch, Frames};
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, Stream};
use model::{Dice, devices, kernel_devices};
use serde_json::{Value, json};

fn zstd(level: i32) -> Value {
    json!({"name": "zstd", "configuration": {"level": level, "checksum": false}})
}

/// Chains with a device encoder and without one, with filters in front, and with codecs behind.
fn chains() -> Vec<Value> {
    let lz4 = json!({"name": "numcodecs.lz4"});
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}});
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}});
    let shuffle = json!({"name": "numcodecs.shuffle"});
    vec![
        json!([lz4]),
        json!([blosc]),
        json!([zstd(3)]),
        json!([{"name": "gzip", "configuration": {"level": 1}}]),
        json!([{"name": "crc32c"}]),
        json!([zstd(0), {"name": "crc32c"}]),
        json!([lz4, {"name": "numcodecs.crc32"}]),
        json!([lz4, {"name": "crc32c"}, {"name": "numcodecs.zlib", "configuration": {"level": 1}}]),
        json!([delta, zstd(3)]),
        json!([shuffle, lz4]),
        json!([{"name": "bytes", "configuration": {"endian": "big"}}, zstd(3)]),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, lz4]),
        json!([{"name": "numcodecs.bz2"}]),
    ]
}

const SHAPE: [usize; 2] = [20, 36];

fn elements(seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..(SHAPE[0] * SHAPE[1]) as i32).flat_map(|at| (at / 3 + dice.below(4) as i32).to_le_bytes()).collect()
}

fn chunk(device: Device, order: Order, seed: u64) -> NdBuffer {
    let chunk = NdBuffer::zeroed(device, DType::INT32, &SHAPE, order).unwrap();
    chunk
        .copy_from(&NdBuffer::from_host(Device::Cpu, DType::INT32, &SHAPE, Order::C, &elements(seed)).unwrap())
        .unwrap();
    chunk
}

/// Rows of one array.
fn rows(device: Device, count: usize) -> Vec<NdBuffer> {
    let bytes: Vec<u8> = (0..count as u64).flat_map(elements).collect();
    let all = NdBuffer::from_host(device, DType::INT32, &[count, SHAPE[0], SHAPE[1]], Order::C, &bytes).unwrap();
    (0..count).map(|row| all.index_axis(0, row).unwrap()).collect()
}

fn run(batch: &mut EncoderBatch, device: Device) -> Vec<Vec<u8>> {
    batch.run(&Stream::new(device).unwrap()).unwrap();
    batch.check().unwrap().into_iter().for_each(Result::unwrap);
    batch.frames().unwrap().iter().map(|frame| frame.to_vec().unwrap()).collect()
}

/// By the host's libraries.
fn assert_decodes(codecs: &Value, frames: &[Vec<u8>], seeds: impl Iterator<Item = u64>, context: &str) {
    let out = |_| NdBuffer::zeroed(Device::Cpu, DType::INT32, &SHAPE, Order::C).unwrap();
    let outs: Vec<_> = frames.iter().map(out).collect();
    let apart = Frames::Apart(frames.iter().map(|frame| Buffer::from_vec(frame.clone())).collect());
    let mut batch = Decoder::new(codecs, Device::Cpu).unwrap().prepare(apart, outs.clone(), None).unwrap();
    batch.run(&Stream::new(Device::Cpu).unwrap()).unwrap();
    batch.check().unwrap().into_iter().for_each(Result::unwrap);
    for (out, seed) in outs.iter().zip(seeds) {
        assert!(out.to_host_bytes(Order::C).unwrap() == elements(seed), "{context}: chunk {seed}");
    }
}

#[test]
fn chunks_of_any_layout_become_frames_that_decode() {
    for codecs in chains() {
        for device in devices() {
            let encoder = Encoder::new(&codecs, device).unwrap();
            let orders = [Order::C, Order::F, Order::C];
            let apart = orders.iter().zip(0..).map(|(&order, seed)| chunk(device, order, seed)).collect();
            let mut backward = rows(device, 3);
            backward.reverse();
            let strided = rows(device, 3).iter().map(|row| row.transpose(&[1, 0]).unwrap()).collect::<Vec<_>>();
            let strided = strided.iter().map(|row| row.transpose(&[1, 0]).unwrap()).collect();
            let mut first = None;
            for (what, chunks, seeds) in [
                ("rows", rows(device, 3), [0, 1, 2]),
                ("apart", apart, [0, 1, 2]),
                ("backward", backward, [2, 1, 0]),
                ("strided", strided, [0, 1, 2]),
            ] {
                let context = format!("{device}: {codecs}: {what}");
                let mut batch = encoder.prepare(chunks, None).unwrap();
                let frames = run(&mut batch, device);
                assert_decodes(&codecs, &frames, seeds.into_iter(), &context);
                assert_eq!(frames, run(&mut batch, device), "{context}: again");
                // The layout of a chunk does not change its frame.
                let first = first.get_or_insert(frames[0].clone());
                assert_eq!(*first, frames[seeds.iter().position(|&seed| seed == 0).unwrap()], "{context}");
            }
        }
    }
}

#[test]
fn chunks_of_different_shapes_and_types_are_one_batch() {
    for device in devices() {
        let chunks = vec![
            NdBuffer::from_host(device, DType::UINT8, &[300], Order::C, &[5; 300]).unwrap(),
            chunk(device, Order::C, 9),
            NdBuffer::from_host(device, DType::UINT8, &[0], Order::C, &[]).unwrap(),
            NdBuffer::from_host(device, DType::UINT8, &[300], Order::C, &[6; 300]).unwrap(),
        ];
        let mut batch = Encoder::new(&zstd(1), device).unwrap().prepare(chunks, None).unwrap();
        let frames = run(&mut batch, device);
        for (frame, expected) in frames.iter().zip([vec![5; 300], elements(9), vec![], vec![6; 300]]) {
            assert_eq!(zstd::decode_all(&frame[..]).unwrap(), expected, "{device}");
        }
    }
}

#[test]
fn memory_bounds_how_many_chunks_are_encoded_together() {
    for device in kernel_devices() {
        let encoder = Encoder::new(&zstd(3), device).unwrap();
        let mut whole = encoder.prepare(rows(device, 7), None).unwrap();
        let mut parts = encoder.prepare(rows(device, 7), Some(1)).unwrap();
        assert!(0 < parts.scratch_bytes() && parts.scratch_bytes() < whole.scratch_bytes(), "{device}");
        assert_eq!(run(&mut whole, device), run(&mut parts, device), "{device}");
    }
}

#[test]
fn frames_outlive_the_next_run_and_the_batch() {
    for device in devices() {
        let chunks = rows(device, 2);
        let mut batch = Encoder::new(&zstd(3), device).unwrap().prepare(chunks.clone(), None).unwrap();
        let stream = Stream::new(device).unwrap();
        batch.run(&stream).unwrap();
        let before = batch.frames().unwrap();
        chunks[0].copy_from(&chunks[1]).unwrap();
        batch.run(&stream).unwrap();
        let after = batch.frames().unwrap();
        drop(batch);
        let decoded = |frame: &Buffer| zstd::decode_all(&frame.to_vec().unwrap()[..]).unwrap();
        assert_eq!([decoded(&before[0]), decoded(&before[1])], [elements(0), elements(1)], "{device}");
        assert_eq!([decoded(&after[0]), decoded(&after[1])], [elements(1), elements(1)], "{device}");
    }
}

#[test]
fn the_host_says_why_it_encodes_and_strict_forbids_it() {
    let prepare = |codecs: &Value, device, strict| {
        Encoder::new(codecs, device).unwrap().strict(strict).prepare(rows(device, 1), None)
    };
    let checked = json!([zstd(3), {"name": "crc32c"}]);
    let zlib = json!([zstd(3), {"name": "numcodecs.zlib", "configuration": {"level": 1}}]);
    for device in kernel_devices() {
        for codecs in [&zstd(3), &zstd(-1), &checked] {
            assert_eq!(prepare(codecs, device, true).unwrap().via_host(), None, "{device}: {codecs}");
        }
        for codecs in [&zstd(19), &zlib, &json!({"name": "numcodecs.bz2"})] {
            assert!(prepare(codecs, device, false).unwrap().via_host().is_some(), "{device}: {codecs}");
            let refused = prepare(codecs, device, true).err().map(|error| error.kind());
            assert_eq!(refused, Some(ErrorKind::FallbackRefused), "{device}: {codecs}");
        }
    }
    assert!(prepare(&zstd(3), Device::Cpu, true).unwrap().via_host().is_some());
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let unknown = Encoder::new(&json!({"name": "nonsense"}), Device::Cpu).unwrap().prepare(rows(Device::Cpu, 1), None);
    assert_eq!(unknown.err().map(|error| error.kind()), Some(ErrorKind::UnknownCodec));
    for device in devices() {
        let encoder = Encoder::new(&zstd(3), device).unwrap();
        let mut none = encoder.prepare(Vec::new(), None).unwrap();
        assert!(none.is_empty() && none.check().unwrap().is_empty() && none.frames().unwrap().is_empty());
        let mut batch = encoder.prepare(rows(device, 1), None).unwrap();
        assert_eq!(batch.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(batch.frames().unwrap_err().kind(), ErrorKind::InvalidArgument);
        batch.run(&Stream::new(device).unwrap()).unwrap();
        assert_eq!((batch.check().unwrap().len(), batch.frames().unwrap().len()), (1, 1));
        assert!(batch.check().is_err() && batch.frames().is_ok(), "frames may be asked for again");
        if device != Device::Cpu {
            let elsewhere = encoder.prepare(rows(Device::Cpu, 1), None).err().map(|error| error.kind());
            assert_eq!(elsewhere, Some(ErrorKind::MemorySpace), "{device}");
            assert_eq!(batch.run(&Stream::new(Device::Cpu).unwrap()).unwrap_err().kind(), ErrorKind::MemorySpace);
        }
    }
}

/// An element that a codec cannot encode is its chunk's error alone.
#[test]
fn a_chunk_that_cannot_be_encoded_is_told_and_the_others_are_frames() {
    let narrow = json!([{"name": "cast_value", "configuration": {"data_type": "int8"}}, zstd(3)]);
    for device in devices() {
        let array = |values: &[i32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            NdBuffer::from_host(device, DType::INT32, &[values.len()], Order::C, &bytes).unwrap()
        };
        let chunks = vec![array(&[1, 2, 3]), array(&[1, 1000, 3]), array(&[-5, 2, 3])];
        let mut batch = Encoder::new(&narrow, device).unwrap().prepare(chunks, None).unwrap();
        batch.run(&Stream::new(device).unwrap()).unwrap();
        let results = batch.check().unwrap();
        assert!(results[0].is_ok() && results[2].is_ok(), "{device}: {results:?}");
        let error = results[1].as_ref().unwrap_err();
        assert!(error.kind() == ErrorKind::EncodeFailed && error.to_string().contains("chunk 1"), "{device}: {error}");
        assert_eq!(batch.frames().unwrap_err().kind(), ErrorKind::EncodeFailed, "{device}");
    }
}

/// An array's metadata of format 2: big-endian, in Fortran order, behind a filter.
#[test]
fn chunks_of_an_array_are_encoded_by_its_own_chain() {
    let document = json!({"zarr_format": 2, "shape": [40, 36], "chunks": SHAPE, "dtype": ">i4", "fill_value": 0,
        "order": "F", "filters": [{"id": "delta", "dtype": ">i4"}], "compressor": {"id": "zstd", "level": 1}});
    let metadata = ArrayMetadata::from_json_v2(document.to_string().as_bytes(), None).unwrap();
    let chain = Chain::new(&metadata).unwrap();
    for device in devices() {
        let mut batch = Encoder::of_chunks(&chain, device).prepare(rows(device, 2), None).unwrap();
        let frames = run(&mut batch, device);
        let outs: Vec<_> =
            (0..2).map(|_| NdBuffer::zeroed(Device::Cpu, DType::INT32, &SHAPE, Order::C).unwrap()).collect();
        let frames = Frames::Apart(frames.into_iter().map(Buffer::from_vec).collect());
        let mut decoding = Decoder::of_chunks(&chain, Device::Cpu).prepare(frames, outs.clone(), None).unwrap();
        decoding.run(&Stream::new(Device::Cpu).unwrap()).unwrap();
        decoding.check().unwrap().into_iter().for_each(Result::unwrap);
        for (out, seed) in outs.iter().zip(0..) {
            assert!(out.to_host_bytes(Order::C).unwrap() == elements(seed), "{device}");
        }
        let other = NdBuffer::zeroed(device, DType::INT32, &[6, 20], Order::C).unwrap();
        let refused = Encoder::of_chunks(&chain, device).prepare(vec![other], None).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::ShapeMismatch), "{device}");
    }
}
