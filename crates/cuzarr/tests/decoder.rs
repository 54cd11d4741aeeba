//! Codecs used directly, on every device: frames in one slab or apart, on the host or on the device, damaged or not.

mod model;

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::Chain;
use cuzarr::meta::{ArrayMetadata, DataType, Extension, FillValue};
use cuzarr::run::{Decoder, Frames};
use cuzarr::{CancellationToken, ErrorKind};
use cuzarr_device::internal::transfer::gather_host;
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order, Stream, Transfer, TransferBox};
use model::{Dice, devices, kernel_devices};
use serde_json::{Value, json};

const LEN: usize = 700;

/// What an array of this chain stores for these elements: through the tail, then the passes.
fn encode(codecs: &Value, shape: &[usize], elements: &[u8]) -> Vec<u8> {
    let codecs: Vec<Extension> =
        codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs").unwrap()).collect();
    let data_type = DataType::from_v3(&json!("int32")).unwrap();
    let extents = shape.iter().map(|&extent| extent as u64).collect();
    let spec = ChunkSpec::new(extents, data_type.clone(), FillValue::default_of(&data_type));
    let program = Chain::from_codecs(&codecs, spec).unwrap().bind(Device::Cpu).unwrap();
    let mut packed = vec![0; program.packed_size_bytes()];
    let (mut packed_strides, mut stride) = (vec![0; shape.len()], 1);
    for &axis in program.packed_axes().iter().rev() {
        packed_strides[axis] = stride;
        stride *= shape[axis] as isize;
    }
    let item = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: packed.len(),
        packed_first_elem: 0,
        start: vec![0; shape.len()],
        extent: shape.to_vec(),
    };
    let transfer = Transfer { tail: program.tail().clone(), packed_strides, lists: None, boxes: vec![item] };
    let source = NdBuffer::from_host(Device::Cpu, DType::INT32, shape, Order::C, elements).unwrap();
    gather_host(&source, &transfer, &mut packed).unwrap();
    program.encode(&packed).unwrap()
}

fn chains() -> Vec<Value> {
    let lz4 = json!({"name": "numcodecs.lz4"});
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}});
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}});
    let shuffle = json!({"name": "numcodecs.shuffle"});
    vec![
        json!([lz4]),
        json!([blosc]),
        json!([{"name": "numcodecs.zlib", "configuration": {"level": 1}}]),
        json!([{"name": "deflate"}]),
        json!([{"name": "lz4_raw"}]),
        json!([{"name": "zstd", "configuration": {"level": 3, "checksum": true}}]),
        json!([{"name": "crc32c"}]),
        json!([lz4, {"name": "crc32c"}]),
        json!([delta, lz4]),
        json!([shuffle, lz4]),
        json!([shuffle]),
        json!([{"name": "bytes", "configuration": {"endian": "big"}}, shuffle, {"name": "crc32c"}]),
        json!([{"name": "numcodecs.astype", "configuration": {"encode_dtype": "<i2", "decode_dtype": "<i4"}}]),
        json!([{"name": "numcodecs.bz2"}]),
        json!([delta, {"name": "numcodecs.bz2"}]),
    ]
}

fn elements(count: usize, dice: &mut Dice) -> Vec<u8> {
    (0..count as i32).flat_map(|at| (at / 3 + dice.below(4) as i32).to_le_bytes()).collect()
}

struct Case {
    plains: Vec<Vec<u8>>,
    encoded: Vec<Vec<u8>>,
}

fn case(codecs: &Value) -> Case {
    let mut dice = Dice(5);
    // Two shapes, so two groups, and one frame of nothing.
    let plains: Vec<Vec<u8>> = [LEN, LEN, 91, LEN, 91, 0].map(|count| elements(count, &mut dice)).into();
    let encoded = plains.iter().map(|plain| encode(codecs, &[plain.len() / 4], plain)).collect();
    Case { plains, encoded }
}

fn outs(case: &Case, device: Device) -> Vec<NdBuffer> {
    let out = |plain: &Vec<u8>| NdBuffer::zeroed(device, DType::INT32, &[plain.len() / 4], Order::C).unwrap();
    case.plains.iter().map(out).collect()
}

/// The same frames as a slab with gaps and as buffers of their own, on the host and on the device.
fn sources(case: &Case, device: Device) -> Vec<Frames> {
    let (mut slab, mut ranges) = (vec![0xee; 5], Vec::new());
    for frame in &case.encoded {
        ranges.push(slab.len()..slab.len() + frame.len());
        slab.extend_from_slice(frame);
        slab.extend([0xee; 3]);
    }
    let apart = |device| Frames::Apart(case.encoded.iter().map(|it| Buffer::from_bytes(device, it).unwrap()).collect());
    let together = |device| Frames::Slab { buffer: Buffer::from_bytes(device, &slab).unwrap(), ranges: ranges.clone() };
    vec![apart(Device::Cpu), apart(device), together(Device::Cpu), together(device)]
}

#[test]
fn frames_from_anywhere_decode_to_anywhere() {
    for codecs in chains() {
        let case = case(&codecs);
        for device in devices() {
            let decoder = Decoder::new(&codecs, device).unwrap();
            for (number, frames) in sources(&case, device).into_iter().enumerate() {
                let outs = outs(&case, device);
                let mut batch = decoder.prepare(frames, outs.clone(), None).unwrap();
                let stream = Stream::new(device).unwrap();
                // As often as wanted.
                for _ in 0..2 {
                    batch.run(&stream).unwrap();
                    batch.check().unwrap().into_iter().for_each(Result::unwrap);
                }
                for (out, plain) in outs.iter().zip(&case.plains) {
                    assert!(out.to_host_bytes(Order::C).unwrap() == *plain, "{device}, {codecs}, source {number}");
                }
            }
        }
    }
}

#[test]
fn outputs_of_any_layout_are_filled() {
    let codecs = json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "numcodecs.lz4"}]);
    let plains = [9, 10, 11].map(|seed| elements(600, &mut Dice(seed)));
    for device in devices() {
        // One frame; some that come to their places together, or each by itself, or both.
        for orders in [&[Order::C][..], &[Order::F], &[Order::C; 3], &[Order::C, Order::F, Order::C]] {
            let out = |&order| NdBuffer::zeroed(device, DType::INT32, &[20, 30], order).unwrap();
            let outs: Vec<_> = orders.iter().map(out).collect();
            let frames = plains[..orders.len()].iter().map(|plain| Buffer::from_vec(encode(&codecs, &[20, 30], plain)));
            let frames = Frames::Apart(frames.collect());
            let mut batch = Decoder::new(&codecs, device).unwrap().prepare(frames, outs.clone(), None).unwrap();
            batch.run(&Stream::new(device).unwrap()).unwrap();
            batch.check().unwrap().into_iter().for_each(Result::unwrap);
            for (out, plain) in outs.iter().zip(&plains) {
                assert!(out.to_host_bytes(Order::C).unwrap() == *plain, "{device}, {orders:?}");
            }
        }
    }
}

#[test]
fn devices_place_elements_that_no_compressor_stored() {
    let codecs = json!([{"name": "numcodecs.shuffle"}]);
    let plains = [12, 13, 14].map(|seed| elements(LEN, &mut Dice(seed)));
    let sources = plains.each_ref().map(|plain| Buffer::from_vec(encode(&codecs, &[LEN], plain)));
    for device in kernel_devices() {
        let layout = Layout::contiguous(&[LEN], 4, Order::C).unwrap();
        let memory = Buffer::zeroed(device, 3 * 4 * LEN + 40).unwrap();
        // Side by side, the last one first; and with gaps.
        for (at, apart) in [(8 * LEN as isize, -4 * LEN as isize), (0, 4 * LEN as isize + 20)] {
            let place = |number: isize| (at + number * apart) as usize;
            let out = |number| memory.slice(place(number)..place(number) + 4 * LEN).unwrap();
            let outs: Vec<_> = (0..3).map(out).collect();
            let arrays =
                outs.iter().map(|out| NdBuffer::from_parts(out.clone(), DType::INT32, layout.clone()).unwrap());
            let arrays: Vec<_> = arrays.collect();
            for (limit, len) in [(None, 3), (Some(8 * LEN), 2), (Some(1), 1)] {
                let frames = Frames::Apart(sources.to_vec());
                let mut batch = Decoder::new(&codecs, device).unwrap().prepare(frames, arrays.clone(), limit).unwrap();
                // Threads of the host would take none.
                assert_eq!((batch.via_host(), batch.scratch_bytes()), (None, len * 4 * LEN), "{device}");
                memory.copy_from(&Buffer::from_vec(vec![7; memory.size_bytes()])).unwrap();
                batch.run(&Stream::new(device).unwrap()).unwrap();
                batch.check().unwrap().into_iter().for_each(Result::unwrap);
                for (out, plain) in outs.iter().zip(&plains) {
                    assert!(out.to_vec().unwrap() == *plain, "{device}");
                }
                let all = memory.to_vec().unwrap();
                let within = |byte| (0..3).any(|number| (place(number)..place(number) + 4 * LEN).contains(&byte));
                assert!((0..all.len()).all(|byte| within(byte) || all[byte] == 7), "{device}");
            }
        }
    }
}

/// Rows of one array, in their order or not, and rows with something between them.
#[test]
fn rows_of_an_array_are_decoded_where_they_lie() {
    let mut dice = Dice(21);
    let chains = [
        json!([{"name": "numcodecs.lz4"}]),
        json!([{"name": "crc32c"}, {"name": "numcodecs.zlib", "configuration": {"level": 1}}]),
    ];
    for codecs in chains {
        let plains: Vec<Vec<u8>> = (0..6).map(|_| elements(LEN, &mut dice)).collect();
        let frames = || Frames::Apart(plains.iter().map(|it| Buffer::from_vec(encode(&codecs, &[LEN], it))).collect());
        for device in devices() {
            let decoder = Decoder::new(&codecs, device).unwrap();
            let mut memory = Vec::new();
            for (order, row) in [([0, 1, 2, 3, 4, 5], LEN), ([3, 0, 5, 1, 4, 2], LEN), ([0, 1, 2, 3, 4, 5], LEN + 4)] {
                let array =
                    NdBuffer::from_host(device, DType::UINT8, &[6, row * 4], Order::C, &vec![7; 24 * row]).unwrap();
                let out = |at: usize| {
                    let bytes = array.buffer().slice(at * row * 4..at * row * 4 + LEN * 4).unwrap();
                    let layout = Layout::contiguous(&[LEN], 4, Order::C).unwrap();
                    NdBuffer::from_parts(bytes, DType::INT32, layout).unwrap()
                };
                let mut batch = decoder.prepare(frames(), order.map(out).into(), None).unwrap();
                batch.run(&Stream::new(device).unwrap()).unwrap();
                batch.check().unwrap().into_iter().for_each(Result::unwrap);
                let mut expected = vec![7; 24 * row];
                for (at, plain) in order.into_iter().zip(&plains) {
                    expected[at * row * 4..][..LEN * 4].copy_from_slice(plain);
                }
                assert!(array.to_host_bytes(Order::C).unwrap() == expected, "{device}, {codecs}, rows of {row}");
                memory.push(batch.scratch_bytes());
            }
            // LZ4 needs no memory for packed chunks where rows lie side by side.
            if device != Device::Cpu && codecs.as_array().unwrap().len() == 1 {
                assert!(memory[0] == memory[1] && memory[0] + 6 * LEN * 4 <= memory[2], "{device}: {memory:?}");
            }
        }
    }
}

#[test]
fn a_damaged_frame_is_told_and_the_others_decode() {
    for codecs in [json!([{"name": "numcodecs.lz4"}, {"name": "crc32c"}]), json!([{"name": "crc32c"}])] {
        let mut case = case(&codecs);
        case.encoded[1][9] ^= 0x20;
        case.encoded[3].truncate(3);
        for device in devices() {
            for frames in sources(&case, device) {
                let outs = outs(&case, device);
                let mut batch = Decoder::new(&codecs, device).unwrap().prepare(frames, outs.clone(), None).unwrap();
                batch.run(&Stream::new(device).unwrap()).unwrap();
                let results = batch.check().unwrap();
                for (number, (result, out)) in results.iter().zip(&outs).enumerate() {
                    match (number, result) {
                        (1, Err(error)) => {
                            assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
                            assert!(error.to_string().contains("frame 1") && error.to_string().contains("crc32c"));
                        }
                        (3, Err(error)) => assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}"),
                        (1 | 3, Ok(())) => panic!("{device}: frame {number} decodes"),
                        (_, result) => {
                            assert!(result.is_ok(), "{device}: {result:?}");
                            assert!(out.to_host_bytes(Order::C).unwrap() == case.plains[number], "{device}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    let decoder = |codecs: Value| Decoder::new(&codecs, Device::Cpu).unwrap();
    let out = || NdBuffer::zeroed(Device::Cpu, DType::INT32, &[4], Order::C).unwrap();
    let frames = |count: usize| Frames::Apart((0..count).map(|_| Buffer::from_vec(vec![0; 20])).collect());
    let kind = |codecs, frames, outs| decoder(codecs).prepare(frames, outs, None).err().map(|error| error.kind());
    let lz4 = || json!({"name": "numcodecs.lz4"});
    assert_eq!(kind(lz4(), frames(2), vec![out()]), Some(ErrorKind::InvalidArgument));
    assert_eq!(kind(json!({"name": "nonsense"}), frames(1), vec![out()]), Some(ErrorKind::UnknownCodec));
    let slab = Frames::Slab { buffer: Buffer::from_vec(vec![0; 20]), ranges: std::iter::once(10..21).collect() };
    assert_eq!(kind(lz4(), slab, vec![out()]), Some(ErrorKind::InvalidArgument));
    for device in devices() {
        let elsewhere = if device == Device::Cpu { Device::Simt } else { Device::Cpu };
        let mut batch = Decoder::new(&lz4(), device).unwrap().prepare(frames(0), Vec::new(), None).unwrap();
        assert!(batch.is_empty() && batch.check().unwrap().is_empty());
        let out = NdBuffer::zeroed(device, DType::INT32, &[4], Order::C).unwrap();
        let mut unrun = Decoder::new(&lz4(), device).unwrap().prepare(frames(1), vec![out], None).unwrap();
        assert_eq!(unrun.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        if let Ok(stream) = Stream::new(elsewhere) {
            assert_eq!(batch.run(&stream).unwrap_err().kind(), ErrorKind::MemorySpace);
        }
    }
}

/// As an array's metadata of format 2 describes them: big-endian, in Fortran order, behind a filter.
#[test]
fn chunks_of_an_array_are_decoded_by_its_own_chain() {
    let document = json!({"zarr_format": 2, "shape": [40, 6], "chunks": [20, 6], "dtype": ">i4", "fill_value": 0,
        "order": "F", "filters": [{"id": "delta", "dtype": ">i4"}], "compressor": {"id": "zlib", "level": 1}});
    let metadata = ArrayMetadata::from_json_v2(document.to_string().as_bytes(), None).unwrap();
    let chain = Chain::new(&metadata).unwrap();
    let plain = elements(120, &mut Dice(3));
    // In Fortran order each difference is from the row above.
    let element = |at: usize| i32::from_le_bytes(plain[at * 4..at * 4 + 4].try_into().unwrap());
    let stored = (0..120).map(|at| element(at % 20 * 6 + at / 20));
    let mut last = 0;
    let deltas = stored.flat_map(|value| (value - std::mem::replace(&mut last, value)).to_be_bytes());
    let zlib = json!([{"name": "numcodecs.zlib", "configuration": {"level": 1}}]);
    let deltas: Vec<u8> = deltas.collect();
    let frame = encode(&zlib, &[120], &deltas);
    for device in devices() {
        let decoder = Decoder::of_chunks(&chain, device);
        let out = NdBuffer::zeroed(device, DType::INT32, &[20, 6], Order::C).unwrap();
        let frames = || Frames::Apart(vec![Buffer::from_vec(frame.clone())]);
        let mut batch = decoder.prepare(frames(), vec![out.clone()], None).unwrap();
        batch.run(&Stream::new(device).unwrap()).unwrap();
        batch.check().unwrap().into_iter().for_each(Result::unwrap);
        assert!(out.to_host_bytes(Order::C).unwrap() == plain, "{device}");
        let other = NdBuffer::zeroed(device, DType::INT32, &[6, 20], Order::C).unwrap();
        let refused = decoder.prepare(frames(), vec![other], None).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::ShapeMismatch), "{device}");
    }
}

#[test]
fn a_cancelled_run_ends_before_its_next_frame() {
    let codecs = json!([{"name": "crc32c"}]);
    let elements: Vec<u8> = (0..4).flat_map(i32::to_ne_bytes).collect();
    let frames = (0..8).map(|_| Buffer::from_vec(encode(&codecs, &[4], &elements))).collect();
    let outs: Vec<NdBuffer> =
        (0..8).map(|_| NdBuffer::zeroed(Device::Cpu, DType::INT32, &[4], Order::C).unwrap()).collect();
    let decoder = Decoder::new(&codecs, Device::Cpu).unwrap();
    let mut batch = decoder.prepare(Frames::Apart(frames), outs, None).unwrap();
    let stream = Stream::new(Device::Cpu).unwrap();
    let listening = CancellationToken::listening(|| true);
    assert_eq!(batch.run_under(&stream, &listening).unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(batch.check().is_err(), "a run that ended early is none");
    batch.run(&stream).unwrap();
    assert!(batch.check().unwrap().iter().all(Result::is_ok));
}
