//! A codec that is a folder and nothing else (`run_length/`), as docs/notes/add-a-codec.md tells it.

mod model;
mod run_length;

use std::sync::Arc;

use cuzarr::codec::{ChunkSpec, set_external};
use cuzarr::internal::codec::batch::{Batch, EncodeBatch, Unit};
use cuzarr::internal::codec::{Chain, Program, Support, device_decoder};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::{ErrorKind, Result};
use cuzarr_device::{Buffer, Device, Stream};
use model::{Dice, kernel_devices};
use serde_json::json;

const CHUNK_BYTES: usize = 3000;

fn chain() -> Chain {
    set_external(Some(Arc::new(run_length::Registration)));
    let codecs = [json!({"name": "bytes"}), json!({"name": "test.run_length"})];
    let codecs = codecs.map(|codec| Extension::from_json(&codec, "codecs").unwrap());
    let spec = ChunkSpec::new(vec![CHUNK_BYTES as u64], DataType::UInt8, FillValue::Element(vec![0]));
    Chain::from_extensions(&codecs, spec).unwrap()
}

fn program() -> Program {
    chain().bind(Device::Cpu).unwrap()
}

/// Chunks of runs of many lengths, also longer than a pair holds.
fn chunks(count: usize) -> Vec<Vec<u8>> {
    let mut dice = Dice(3);
    let mut chunk = || {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_BYTES {
            chunk.resize(chunk.len() + 1 + dice.below(600) as usize, dice.below(256) as u8);
        }
        chunk.truncate(CHUNK_BYTES);
        chunk
    };
    (0..count).map(|_| chunk()).collect()
}

/// Frames that lie behind each other, decoded together.
fn decode(device: Device, frames: &[Vec<u8>]) -> Vec<Result<Vec<u8>>> {
    let src = Buffer::from_bytes(device, &frames.concat()).unwrap();
    let dst = Buffer::empty(device, frames.len() * CHUNK_BYTES).unwrap();
    let mut end = 0;
    let units = frames.iter().enumerate().map(|(index, frame)| {
        end += frame.len();
        Unit { src: end - frame.len()..end, dst: index * CHUNK_BYTES..(index + 1) * CHUNK_BYTES }
    });
    let units: Vec<Unit> = units.collect();
    let decoder = device_decoder("test.run_length").unwrap();
    let mut batch = Batch::prepare(decoder, &src, &dst, &units, None).unwrap();
    batch.run(&Stream::new(device).unwrap()).unwrap();
    let (results, bytes) = (batch.check().unwrap(), dst.to_vec().unwrap());
    let decoded = units.into_iter().map(|unit| bytes[unit.dst].to_vec());
    results.into_iter().zip(decoded).map(|(result, decoded)| result.map(|()| decoded)).collect()
}

#[test]
fn frames_decode_on_every_device_to_what_the_host_decodes() {
    let (program, plain) = (program(), chunks(70));
    let frames: Vec<_> = plain.iter().map(|chunk| program.encode(chunk).unwrap()).collect();
    for (frame, chunk) in frames.iter().zip(&plain) {
        let mut decoded = vec![0; CHUNK_BYTES];
        program.decode(frame, &mut decoded).unwrap();
        assert_eq!(decoded, *chunk);
    }
    for device in kernel_devices() {
        let decoded: Result<Vec<_>> = decode(device, &frames).into_iter().collect();
        assert!(decoded.unwrap() == plain, "{device}");
    }
}

#[test]
fn damaged_frames_are_refused_alone() {
    let program = program();
    let mut frames: Vec<_> = chunks(6).iter().map(|chunk| program.encode(chunk).unwrap()).collect();
    frames[1][4] = 0;
    frames[2].pop();
    frames[4].extend([1, 1]);
    frames[5].truncate(2);
    let mut place = vec![0; CHUNK_BYTES];
    let expected: Vec<bool> = frames.iter().map(|frame| program.decode(frame, &mut place).is_ok()).collect();
    assert_eq!(expected, [true, false, false, true, false, false]);
    for device in kernel_devices() {
        for (result, expected) in decode(device, &frames).into_iter().zip(&expected) {
            assert_eq!(
                result.map_err(|error| error.kind()).map(drop),
                expected.then_some(()).ok_or(ErrorKind::ChunkCorrupt)
            );
        }
    }
}

#[test]
fn devices_encode_the_frames_of_the_host() {
    let (program, plain) = (program(), chunks(40));
    let frames: Vec<_> = plain.iter().map(|chunk| program.encode(chunk).unwrap()).collect();
    let encoder = program.device_encoder().unwrap();
    let stride = CHUNK_BYTES.next_multiple_of(16);
    let mut bytes = vec![0; plain.len() * stride];
    bytes.chunks_mut(stride).zip(&plain).for_each(|(place, chunk)| place[..CHUNK_BYTES].copy_from_slice(chunk));
    for device in kernel_devices() {
        let src = Buffer::from_bytes(device, &bytes).unwrap();
        let mut batch = EncodeBatch::prepare(&**encoder, &src, stride, vec![CHUNK_BYTES; plain.len()]).unwrap();
        batch.run(&Stream::new(device).unwrap()).unwrap();
        let encoded = batch.finish().unwrap();
        let out = encoded.buffer.to_vec().unwrap();
        let made: Vec<_> = encoded.frames.into_iter().map(|range| out[range.unwrap()].to_vec()).collect();
        assert!(made == frames, "{device}");
    }
}

#[test]
fn a_gpu_reads_and_writes_the_codec_by_itself() {
    let native =
        |stages: Vec<cuzarr::internal::codec::Stage>| stages.iter().all(|stage| stage.support == Support::Native);
    let chain = chain();
    assert!(native(chain.describe(Device::Cuda(0))) && native(chain.describe_encoding(Device::Cuda(0), None)));
}
