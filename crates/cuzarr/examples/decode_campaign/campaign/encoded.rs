//! Chunks that the device's kernels encode: the format's library and the device's decoder must give every byte back, and a second
//! run the same frames.

use std::time::{Duration, Instant};

use cuzarr::Result;
use cuzarr::run::{Encoder, EncoderBatch};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order, Stream};
use serde_json::{Value, json};

use super::device::{self, Frame, Waiting};
use super::random::Random;
use super::{Format, Outcome, Settings, data, parallel, reference};

/// Bytes of a round's chunks, about.
const ROUND_BYTES: usize = 64 << 20;
/// So many bytes of chunks, one behind the other, are of one kind.
const KIND_BYTES: usize = 64 << 10;

/// A codec of the format whose frames the kernels make, at random.
fn codec(format: Format, random: &mut Random) -> Value {
    match format {
        Format::Zstd => json!({"name": "zstd", "configuration":
            {"level": random.pick(&[0, 1, 3, 9]), "checksum": random.one_in(3)}}),
        Format::Blosc => json!({"name": "blosc", "configuration": {
            "cname": random.pick(&["lz4", "zstd", "zlib"]), "clevel": 1 + random.below(5),
            "shuffle": random.pick(&["noshuffle", "shuffle", "bitshuffle"]), "typesize": random.pick(&[1, 2, 3, 4, 8]),
            "blocksize": 0}}),
        Format::Gzip => json!({"name": "gzip", "configuration": {"level": 1 + random.below(9)}}),
        Format::Zlib => json!({"name": "numcodecs.zlib", "configuration": {"level": 1 + random.below(9)}}),
        _ => reference::codec(format),
    }
}

/// Frames of a run, and how long the device took for them.
fn encode(batch: &mut EncoderBatch, stream: &Stream) -> Result<(Vec<Vec<u8>>, Duration)> {
    let (began, waiting) = (Instant::now(), Waiting::begin());
    batch.run(stream)?;
    stream.synchronize()?;
    drop(waiting);
    let took = began.elapsed();
    let frames = batch.frames()?.iter().map(|frame| Ok(frame.to_vec()?)).collect::<Result<_>>()?;
    Ok((frames, took))
}

/// Chunks of one size as arrays in memory of the device, so many bytes apart.
fn arrays(device: Device, plain: &[u8], (size, apart): (usize, usize)) -> Result<Vec<NdBuffer>> {
    let count = plain.len() / size;
    let mut spread = vec![0xff; count * (size + apart)];
    for (place, chunk) in spread.chunks_exact_mut(size + apart).zip(plain.chunks_exact(size)) {
        place[..size].copy_from_slice(chunk);
    }
    let memory = Buffer::from_bytes(device, &spread)?;
    let layout = Layout::contiguous(&[size], 1, Order::C)?;
    let array = |at: usize| {
        let part = memory.slice(at * (size + apart)..at * (size + apart) + size)?;
        Ok(NdBuffer::from_parts(part, DType::UINT8, layout.clone())?)
    };
    (0..count).map(array).collect()
}

/// Chunks of one size and all kinds, encoded together.
///
/// # Errors
/// When the device is lost.
pub fn round(settings: &Settings, round: u64, outcome: &mut Outcome) -> Result<()> {
    let mut random = Random::new(&[settings.seed, round, 6]);
    let most = if random.one_in(16) { settings.most_bytes } else { settings.most_bytes.min(4096) };
    let (size, codec) = (random.log_uniform(1, most), codec(settings.format, &mut random));
    let count = (ROUND_BYTES / size).clamp(1, settings.batch);
    let parts = (count * size).div_ceil(KIND_BYTES);
    let kinds = parallel(parts, settings.threads, |number| {
        let mut random = Random::new(&[settings.seed, round, 6, number as u64]);
        data::plain(random.below(data::KINDS.len()), KIND_BYTES, &mut random)
    });
    let plain = kinds.concat();
    let plain = &plain[..count * size];

    let stream = Stream::new(settings.device)?;
    let chunks = arrays(settings.device, plain, (size, random.pick(&[0, 0, 1, 8])))?;
    let mut batch = Encoder::new(&codec, settings.device)?.prepare(chunks, None)?;
    let (frames, took) = encode(&mut batch, &stream)?;
    outcome.slowest_batch = outcome.slowest_batch.max(took);
    let again = if random.one_in(4) { encode(&mut batch, &stream)?.0 } else { frames.clone() };

    let given: Vec<_> = frames.iter().map(|frame| Frame { encoded: frame, decoded_bytes: size }).collect();
    let decoded = device::decode(settings.device, settings.format, &given, &mut random)?;
    let program = reference::program(&codec, size)?;
    let wrong = parallel(count, settings.threads, |index| {
        let (chunk, mut on_host) = (&plain[index * size..(index + 1) * size], vec![0x5a; size]);
        if let Err(error) = program.decode(&frames[index], &mut on_host) {
            return Some(format!("the host refuses it: {error}"));
        }
        match &decoded.results[index] {
            _ if on_host != chunk => Some("the host decodes other bytes".to_string()),
            Err(error) => Some(error.to_string()),
            Ok(()) if decoded.frame(index) != chunk => Some("the device decodes other bytes".to_string()),
            Ok(()) if frames[index] != again[index] => Some("another frame the second time".to_string()),
            Ok(()) => None,
        }
    });
    outcome.batches += 1;
    outcome.frames += count as u64;
    outcome.decoded_bytes += plain.len() as u64;
    outcome.over_1_mib += if size > 1 << 20 { count as u64 } else { 0 };
    outcome.count_of("encoded bytes", frames.iter().map(|frame| frame.len() as u64).sum());
    outcome.count_of("via host", if batch.via_host().is_some() { count as u64 } else { 0 });
    for (index, wrong) in wrong.into_iter().enumerate() {
        let Some(wrong) = wrong else { continue };
        outcome.fail(json!({"round": round, "seed": settings.seed, "codec": codec, "bytes": size, "chunk": index,
            "wrong": wrong}));
    }
    Ok(())
}
