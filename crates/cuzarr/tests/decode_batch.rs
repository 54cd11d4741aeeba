//! Decoders of batches on every device with kernels, against the decoders of the host: frames of the reference libraries and
//! of a writer here that makes what those never do, then all kinds of damage.

mod frames;
mod model;

use std::ops::Range;

use cuzarr::ErrorKind;
use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::batch::{Batch, Unit};
use cuzarr::internal::codec::device::{Request, Task};
use cuzarr::internal::codec::{Chain, device_decoder};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr_device::internal::cpu::shuffle::{bitshuffle, shuffle};
use cuzarr_device::{Buffer, Device, Stream};
use frames::{Format, Frame, UNTOUCHED, assert_agrees, assert_decodes, damaged, devices, on_device, on_host, plain};
use lz4::block::CompressionMode;
use model::Dice;
use serde_json::{Value, json};

fn mode(random: &mut Dice) -> CompressionMode {
    match random.below(3) {
        0 => CompressionMode::FAST(1 + random.below(20) as i32),
        1 => CompressionMode::HIGHCOMPRESSION(1 + random.below(12) as i32),
        _ => CompressionMode::DEFAULT,
    }
}

fn lz4_frame(plain: &[u8], mode: CompressionMode) -> Frame {
    let block = lz4::block::compress(plain, Some(mode), false).unwrap();
    Frame { encoded: [&(plain.len() as u32).to_le_bytes()[..], &block].concat(), decoded_bytes: plain.len() }
}

/// How a container is written.
#[derive(Clone, Copy, Debug)]
struct Container {
    type_bytes: usize,
    block_bytes: usize,
    /// 0 none, 1 bytes, 2 bits.
    shuffling: u8,
    split: bool,
}

/// A Blosc container with LZ4 inside; streams that do not become smaller are stored.
fn blosc_frame(plain: &[u8], container: Container, random: &mut Dice) -> Frame {
    let Container { type_bytes, block_bytes, shuffling, split } = container;
    let mut flags = 1 << 5 | [0, 1, 4][usize::from(shuffling)];
    if !split {
        flags |= 16;
    }
    let mut frame = vec![2, 1, flags, type_bytes as u8];
    frame.extend((plain.len() as u32).to_le_bytes());
    frame.extend((block_bytes as u32).to_le_bytes());
    frame.extend([0; 4]);
    let blocks = plain.len().div_ceil(block_bytes);
    frame.resize(16 + 4 * blocks, 0);
    for (index, block) in plain.chunks(block_bytes).enumerate() {
        let start = (frame.len() as u32).to_le_bytes();
        frame[16 + 4 * index..][..4].copy_from_slice(&start);
        let mut shuffled = block.to_vec();
        match shuffling {
            1 => shuffle(block, &mut shuffled, type_bytes).unwrap(),
            2 if (block.len() / type_bytes).is_multiple_of(8) => bitshuffle(block, &mut shuffled, type_bytes).unwrap(),
            _ => {}
        }
        let splits = split && block.len() == block_bytes && type_bytes <= 16 && block_bytes / type_bytes >= 128;
        for part in shuffled.chunks(if splits { block_bytes / type_bytes } else { block.len() }) {
            let compressed = lz4::block::compress(part, Some(mode(random)), false).unwrap();
            let stream = if compressed.len() < part.len() { &compressed[..] } else { part };
            frame.extend((stream.len() as u32).to_le_bytes());
            frame.extend_from_slice(stream);
        }
    }
    let size = (frame.len() as u32).to_le_bytes();
    frame[12..16].copy_from_slice(&size);
    Frame { encoded: frame, decoded_bytes: plain.len() }
}

#[test]
fn lz4_frames_of_every_kind_decode() {
    let mut random = Dice(1);
    let mut plains: Vec<Vec<u8>> = [0, 1, 2, 5, 12, 13, 14, 31, 32, 33, 64, 4096].map(|n| plain(n, &mut random)).into();
    plains.extend(
        (0..60).map(|_| random.below(3000) as usize).collect::<Vec<_>>().iter().map(|&n| plain(n, &mut random)),
    );
    plains.extend([plain(70_000, &mut random), vec![0; 100_000], plain(20_000, &mut random)]);
    // Periods around a warp and around what counts as far, over lengths that need all kinds of copies.
    for period in [1, 2, 3, 7, 16, 31, 32, 33, 63, 100, 287, 288, 289, 575, 576, 577, 1200] {
        let pattern = (0..period).map(|_| random.below(256) as u8).collect::<Vec<_>>();
        plains.push(pattern.iter().copied().cycle().take(period + 3000 + period % 17).collect());
    }
    // Literals whose length needs many bytes.
    plains.push((0..9000).map(|_| random.below(256) as u8).collect());
    let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, mode(&mut random))).collect();
    assert_decodes(Format::Lz4, &frames, &plains);
}

/// Frames whose tokens are far apart, whose lengths take many bytes, and whose literals look like lengths.
fn large_plains(random: &mut Dice) -> Vec<Vec<u8>> {
    let noise = |size: usize, random: &mut Dice| (0..size).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
    let mut rows = noise(700, random);
    for row in 1..60 {
        for column in 0..700 {
            let byte = rows[(row - 1) * 700 + column];
            rows.push(if random.chance(40) { byte.wrapping_add(1) } else { byte });
        }
    }
    vec![
        plain(60_000, random),
        noise(40_000, random),
        [noise(30_000, random), plain(9000, random), noise(5000, random)].concat(),
        vec![7; 90_000],
        [vec![255; 3000], noise(20, random), vec![255; 40_000], noise(3000, random)].concat(),
        (0..30_000).map(|i| if random.chance(9) { i as u8 } else { 255 }).collect(),
        rows,
    ]
}

#[test]
fn large_lz4_frames_decode_alone_and_together() {
    let mut random = Dice(21);
    let plains = large_plains(&mut random);
    let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, mode(&mut random))).collect();
    for (frame, plain) in frames.iter().zip(&plains) {
        assert_decodes(Format::Lz4, std::slice::from_ref(frame), std::slice::from_ref(plain));
    }
    assert_decodes(Format::Lz4, &frames, &plains);
    // Not so large that they are cut into segments.
    let plains: Vec<Vec<u8>> = plains.iter().map(|plain| plain[plain.len() - 15_000..].to_vec()).collect();
    let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, mode(&mut random))).collect();
    assert_decodes(Format::Lz4, &frames, &plains);
}

/// Tiles of literals alone are written at once, and what repeats them in the same segment, before or behind them waits.
#[test]
fn large_lz4_frames_that_repeat_their_literals_decode() {
    let mut random = Dice(29);
    for (stretch, least) in [(3_000, 60_000), (20_000, 300_000)] {
        let mut plain = Vec::new();
        while plain.len() < least {
            let literals: Vec<u8> = (0..stretch).map(|_| random.below(256) as u8).collect();
            for _ in 0..2 {
                plain.extend_from_slice(&literals);
                plain.extend_from_slice(&literals[random.below(100) as usize..stretch / 3]);
            }
        }
        let frame = lz4_frame(&plain, CompressionMode::DEFAULT);
        assert_decodes(Format::Lz4, &[frame], &[plain]);
    }
}

/// Floats near each other that are kept to 0.01: LZ4's sequences have some 10 bytes, and tokens are found by guesses.
fn floats(count: usize, random: &mut Dice) -> Vec<u8> {
    let float = |index: usize, random: &mut Dice| {
        let value = 250.0 + (index as f32 * 0.01).sin() + random.below(60) as f32 / 100.0;
        (value * 100.0).round() / 100.0
    };
    (0..count).flat_map(|index| float(index, random).to_le_bytes()).collect()
}

#[test]
fn lz4_frames_of_short_sequences_decode_and_their_damage_is_refused() {
    let mut random = Dice(25);
    // Some with what guesses do not find back from: runs of literals, and tokens that repeat with a period.
    let noise = (0..12_000).map(|_| random.below(256) as u8).collect::<Vec<_>>();
    let zeros = vec![0; 400_000];
    let mut plains: Vec<Vec<u8>> = [60_000, 9000, 300, 17_000].map(|count| floats(count, &mut random)).into();
    plains.push([floats(5000, &mut random), noise.clone(), floats(9000, &mut random), noise].concat());
    plains.push([floats(30_000, &mut random), zeros, floats(12_000, &mut random)].concat());
    let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, mode(&mut random))).collect();
    for (frame, plain) in frames.iter().zip(&plains) {
        assert_decodes(Format::Lz4, std::slice::from_ref(frame), std::slice::from_ref(plain));
    }
    assert_decodes(Format::Lz4, &frames, &plains);
    let damaged = [&frames[1], &frames[4]].map(|frame| damaged(frame, &mut random, 10, 30)).concat();
    let refused = assert_agrees(Format::Lz4, &damaged);
    assert!(devices().is_empty() || refused > damaged.len() / 4, "{refused} of {} refused", damaged.len());
}

/// A size from 1 to `most`, as often between 1 and 2 as between half of `most` and `most`.
fn log_uniform(most: usize, random: &mut Dice) -> usize {
    let bits = random.below(u64::from(most.ilog2()) + 1);
    ((1 << bits) + random.below(1 << bits) as usize).min(most)
}

#[test]
fn generated_frames_of_all_sizes_decode() {
    let mut random = Dice(23);
    // Many on a GPU; few where every thread is a fiber.
    let gpu = devices().iter().any(|device| matches!(device, Device::Cuda(_)));
    let (batches, count, most) = if gpu { (20, 250, 1 << 20) } else { (4, 12, 1 << 15) };
    for batch in 0..batches {
        // Batches of one frame, of several, and of many, as the way to decode depends on how many there are.
        let count = [1, 5, count][batch % 3];
        let most = if count > 100 { most / 8 } else { most };
        let sizes: Vec<usize> = (0..count).map(|_| log_uniform(most, &mut random)).collect();
        let plains: Vec<Vec<u8>> = sizes.iter().map(|&size| plain(size, &mut random)).collect();
        let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, mode(&mut random))).collect();
        assert_decodes(Format::Lz4, &frames, &plains);
        let container = |random: &mut Dice, size: usize| {
            let type_bytes = random.pick(&[1, 2, 4, 8, 12]);
            let block_bytes = type_bytes * (1 + log_uniform(size, random) / type_bytes);
            Container { type_bytes, block_bytes, shuffling: random.below(3) as u8, split: random.chance(2) }
        };
        let frames = plains.iter().map(|plain| blosc_frame(plain, container(&mut random, plain.len()), &mut random));
        assert_decodes(Format::Blosc, &frames.collect::<Vec<_>>(), &plains);
    }
}

#[test]
fn damaged_large_lz4_frames_are_refused_as_on_the_host() {
    let mut random = Dice(22);
    for (index, plain) in large_plains(&mut random).into_iter().enumerate() {
        let plain = &plain[..if index % 2 == 0 { 24_000 } else { 9000 }];
        let frame = lz4_frame(plain, mode(&mut random));
        let frames = damaged(&frame, &mut random, 12, 25);
        assert_agrees(Format::Lz4, &frames);
        // Each alone is decoded another way.
        frames[..10].iter().for_each(|frame| {
            assert_agrees(Format::Lz4, std::slice::from_ref(frame));
        });
    }
}

/// Damage of all kinds to frames of all sizes: one round by default, as many as `CUZARR_DAMAGE_ROUNDS` says for a campaign.
#[test]
fn damage_is_refused_as_on_the_host_round_after_round() {
    let rounds = std::env::var("CUZARR_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let (mut decoded, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut random = Dice(1000 + round);
        let (mut lz4, mut blosc) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let plain = plain(log_uniform(20_000, &mut random), &mut random);
            let frame = lz4_frame(&plain, mode(&mut random));
            lz4.extend(damaged(&frame, &mut random, 8, 30));
            let type_bytes = random.pick(&[1, 2, 4, 8, 12]);
            let block_bytes = type_bytes * (1 + log_uniform(plain.len(), &mut random) / type_bytes);
            let shuffling = random.below(3) as u8;
            let container = Container { type_bytes, block_bytes, shuffling, split: random.chance(2) };
            let frame = blosc_frame(&plain, container, &mut random);
            blosc.extend(damaged(&frame, &mut random, 8, 30));
        }
        decoded += lz4.len() + blosc.len();
        refused += assert_agrees(Format::Lz4, &lz4) + assert_agrees(Format::Blosc, &blosc);
    }
    println!("{decoded} frames, {refused} refused");
    assert!(devices().is_empty() || refused > decoded / 4, "{refused} of {decoded} refused");
}

#[test]
fn blosc_frames_of_c_blosc_decode() {
    let mut rest = &include_bytes!("data/numcodecs-0.17.1/blosc_lz4.bin")[..];
    let (mut frames, mut checksums) = (Vec::new(), Vec::new());
    let word = |at: usize, bytes: &[u8]| u32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
    while !rest.is_empty() {
        let (size, decoded_bytes) = (word(0, rest) as usize, word(1, rest) as usize);
        checksums.push(word(2, rest));
        frames.push(Frame { encoded: rest[12..12 + size].to_vec(), decoded_bytes });
        rest = &rest[12 + size..];
    }
    assert!(frames.len() > 100, "{} frames", frames.len());
    let plains: Vec<_> = frames.iter().map(|frame| on_host(Format::Blosc, frame).unwrap()).collect();
    for (plain, checksum) in plains.iter().zip(checksums) {
        assert_eq!(crc32fast::hash(plain), checksum, "the decoder of the host");
    }
    assert_decodes(Format::Blosc, &frames, &plains);
}

#[test]
fn blosc_frames_of_every_shape_decode() {
    let mut random = Dice(3);
    let (mut frames, mut plains) = (Vec::new(), Vec::new());
    for case in 0..250 {
        let type_bytes = 1 + random.below(if case % 9 == 0 { 255 } else { 17 }) as usize;
        let elements = 1 + random.below(if case % 25 == 0 { 3000 } else { 400 }) as usize;
        let container = Container {
            type_bytes,
            block_bytes: type_bytes * elements,
            shuffling: random.below(3) as u8,
            split: random.chance(2),
        };
        let size = 1 + random.below(3 * container.block_bytes as u64) as usize;
        let plain = plain(size, &mut random);
        frames.push(blosc_frame(&plain, container, &mut random));
        assert_eq!(on_host(Format::Blosc, &frames[case]).unwrap(), plain, "{container:?}");
        plains.push(plain);
    }
    assert_decodes(Format::Blosc, &frames, &plains);
}

#[test]
fn damaged_lz4_frames_are_refused_as_on_the_host() {
    let mut random = Dice(5);
    let mut frames = Vec::new();
    for size in [0, 1, 40, 300, 700] {
        let frame = lz4_frame(&plain(size, &mut random), mode(&mut random));
        frames.extend(damaged(&frame, &mut random, 60, 150));
    }
    let refused = assert_agrees(Format::Lz4, &frames);
    assert!(devices().is_empty() || refused > 300, "{refused} of {} refused", frames.len());
}

#[test]
fn hostile_lz4_tokens_are_refused_with_their_place() {
    let frame = |decoded_bytes: usize, block: &[u8]| Frame {
        encoded: [&(decoded_bytes as u32).to_le_bytes()[..], block].concat(),
        decoded_bytes,
    };
    let long = [&[0xf0][..], &[255; 5000]].concat();
    let long_match = [&[0x1f, 7, 1, 0][..], &[255; 5000], &[0, 0x50, 1, 2, 3, 4, 5]].concat();
    let cases: &[(Frame, &str)] = &[
        (frame(100, &[]), "byte 4: the stream is cut off"),
        (frame(100, &[0x10, 7, 0, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 8]), "byte 4: a match has the offset 0"),
        (frame(100, &[0x10, 7, 2, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 8]), "byte 4: a match begins before"),
        (frame(100, &[0x10, 7, 0xff, 0xff, 0x80, 1, 2, 3, 4, 5, 6, 7, 8]), "byte 4: a match begins before"),
        (frame(20, &[0x1f, 7, 1, 0, 100, 0x80, 1, 2, 3, 4, 5, 6, 7, 8]), "byte 4: the stream decodes to more"),
        (frame(8, &[0x90, 1, 2, 3, 4, 5, 6, 7, 8, 9]), "byte 4: the stream decodes to more"),
        (frame(10, &[0x90, 1, 2, 3, 4, 5, 6, 7, 8, 9]), "byte 4: the stream decodes to less"),
        (frame(9, &[0x90, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]), "byte 4: bytes follow"),
        (frame(32, &[0xce, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 0, 0x2f, 1, 2]), "byte 4: bytes follow"),
        (frame(1 << 20, &long), "byte 4: the stream is cut off"),
        (frame(1 << 20, &long_match[..5004]), "byte 4:"),
        (frame(2 << 20, &long_match), "the stream decodes to less"),
        (frame(100, &[0xf0, 255, 255, 255, 255]), "byte 4: the stream is cut off"),
    ];
    let frames: Vec<Frame> = cases.iter().map(|(frame, _)| frame.clone()).collect();
    for device in devices() {
        let results = on_device(device, Format::Lz4, &frames, false);
        for (result, (frame, message)) in results.into_iter().zip(cases) {
            let error = result.unwrap_err();
            assert!(error.message().contains(message), "{device}: {error}, not {message}: {:.20?}", frame.encoded);
        }
    }
    assert_eq!(assert_agrees(Format::Lz4, &frames), if devices().is_empty() { 0 } else { cases.len() });
}

#[test]
fn damaged_blosc_frames_are_refused_as_on_the_host() {
    let mut random = Dice(6);
    let mut frames = Vec::new();
    for (size, type_bytes, shuffling, split) in
        [(1100, 4, 1, true), (900, 3, 2, false), (300, 1, 0, false), (520, 2, 1, true)]
    {
        let container = Container { type_bytes, block_bytes: type_bytes * 130, shuffling, split };
        let frame = blosc_frame(&plain(size, &mut random), container, &mut random);
        frames.extend(damaged(&frame, &mut random, 60, 150));
        // Words of the header, the table and the streams' sizes that lie about sizes.
        for at in (0..80.min(frame.encoded.len() - 4)).step_by(2) {
            for word in [u32::MAX, i32::MAX as u32, 0, 1, 1 << 30] {
                let mut lying = frame.clone();
                lying.encoded[at..at + 4].copy_from_slice(&word.to_le_bytes());
                frames.push(lying);
            }
        }
    }
    let refused = assert_agrees(Format::Blosc, &frames);
    assert!(devices().is_empty() || refused > 500, "{refused} of {} refused", frames.len());
}

/// A frame that this library wrote.
fn written(cname: &str, shuffle: &str, type_bytes: usize, plain: &[u8]) -> Frame {
    let codec = json!({"name": "blosc", "configuration":
        {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": type_bytes, "blocksize": 3000}});
    let codecs = [Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs").unwrap()];
    let data_type = DataType::from_v3(&Value::from("uint8")).unwrap();
    let spec = ChunkSpec::new(vec![plain.len() as u64], data_type.clone(), FillValue::default_of(&data_type));
    let program = Chain::from_extensions(&codecs, spec).unwrap().bind(Device::Cpu).unwrap();
    Frame { encoded: program.encode(plain).unwrap(), decoded_bytes: plain.len() }
}

#[test]
fn blosc_frames_with_zstd_and_zlib_inside_decode() {
    let mut random = Dice(12);
    let (mut frames, mut plains) = (Vec::new(), Vec::new());
    for case in 0..24 {
        let plain = plain(1 + random.below(20_000) as usize, &mut random);
        let shuffle = ["noshuffle", "shuffle", "bitshuffle"][case % 3];
        let cname = ["zstd", "zlib", "lz4"][case / 3 % 3];
        frames.push(written(cname, shuffle, random.pick(&[1, 2, 3, 4, 8]), &plain));
        plains.push(plain);
    }
    assert_decodes(Format::Blosc, &frames, &plains);
}

#[test]
fn damage_inside_of_zstd_and_zlib_streams_is_refused_with_its_place() {
    let mut random = Dice(13);
    for cname in ["zstd", "zlib"] {
        let frame = written(cname, "shuffle", 4, &plain(4000, &mut random));
        let frames = damaged(&frame, &mut random, 20, 60);
        let refused = assert_agrees(Format::Blosc, &frames);
        assert!(devices().is_empty() || refused > 40, "{cname}: {refused} of {} refused", frames.len());
    }
}

#[test]
fn frames_of_other_compressors_are_left_to_the_host() {
    let frame = written("blosclz", "shuffle", 4, &[1; 4000]);
    for device in devices() {
        for scan_on_host in [true, false] {
            let results = on_device(device, Format::Blosc, std::slice::from_ref(&frame), scan_on_host);
            assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}

#[test]
fn batches_hold_none_one_and_many_frames() {
    let mut random = Dice(8);
    for count in [0, 1, 700] {
        let plains: Vec<Vec<u8>> = (0..count)
            .map(|_| random.below(60) as usize)
            .collect::<Vec<_>>()
            .iter()
            .map(|&n| plain(n, &mut random))
            .collect();
        let frames: Vec<Frame> = plains.iter().map(|plain| lz4_frame(plain, CompressionMode::DEFAULT)).collect();
        assert_decodes(Format::Lz4, &frames, &plains);
        let container = Container { type_bytes: 2, block_bytes: 40, shuffling: 1, split: true };
        let frames: Vec<Frame> = plains.iter().map(|plain| blosc_frame(plain, container, &mut random)).collect();
        assert_decodes(Format::Blosc, &frames, &plains);
    }
}

#[test]
fn batches_stay_within_the_scratch_memory_that_is_allowed() {
    let mut random = Dice(11);
    let container = Container { type_bytes: 4, block_bytes: 2048, shuffling: 1, split: true };
    let plains: Vec<Vec<u8>> = (0..9).map(|_| plain(5000, &mut random)).collect();
    let mut frames: Vec<Frame> = plains.iter().map(|plain| blosc_frame(plain, container, &mut random)).collect();
    frames[5].encoded[16] ^= 0x55;
    let src: Vec<u8> = frames.iter().flat_map(|frame| frame.encoded.clone()).collect();
    let mut at = 0;
    let units: Vec<Unit> = frames
        .iter()
        .enumerate()
        .map(|(index, frame)| {
            at += frame.encoded.len();
            Unit { src: at - frame.encoded.len()..at, dst: index * 5000..(index + 1) * 5000 }
        })
        .collect();
    for device in devices() {
        let (source, target) =
            (Buffer::from_bytes(device, &src).unwrap(), Buffer::from_bytes(device, &[UNTOUCHED; 45_000]).unwrap());
        let whole =
            Batch::prepare(Format::Blosc.decoder(), &source, &target, &units, Some(&src)).unwrap().scratch_bytes();
        for (limit, most) in [(usize::MAX, whole), (whole / 2, whole / 2 + 100), (1, whole / 4)] {
            let mut batch =
                Batch::prepare_within(Format::Blosc.decoder(), &source, &target, &units, Some(&src), limit).unwrap();
            assert!(batch.scratch_bytes() <= most, "{limit}: {} of {whole}", batch.scratch_bytes());
            batch.run(&Stream::new(device).unwrap()).unwrap();
            let results = batch.check().unwrap();
            let bytes = target.to_vec().unwrap();
            for (index, result) in results.iter().enumerate() {
                assert_eq!(result.is_err(), index == 5, "{device}, {limit}: frame {index}: {result:?}");
                assert!(index == 5 || bytes[units[index].dst.clone()] == plains[index], "{device}: frame {index}");
            }
        }
    }
}

/// Frames of a few hundred kilobytes in one buffer, and their places.
fn joined(frames: &[Frame]) -> (Vec<u8>, Vec<Unit>, usize) {
    let (mut src, mut units, mut end) = (Vec::new(), Vec::new(), 0);
    for Frame { encoded, decoded_bytes } in frames {
        units.push(Unit { src: src.len()..src.len() + encoded.len(), dst: end + 3..end + 3 + decoded_bytes });
        (src, end) = ([src, encoded.clone()].concat(), end + 3 + decoded_bytes);
    }
    (src, units, end)
}

/// Large frames are cut into segments, whose marks take 4 bytes for each byte. With less memory they are worked at in parts, in the
/// same memory: the bytes stay the same, and so does what is refused.
#[test]
fn large_frames_decode_within_a_part_of_the_memory_for_their_marks() {
    let zstd = |plain: &[u8]| zstd::bulk::compress(plain, 5).unwrap();
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        std::io::Write::write_all(&mut encoder, plain).unwrap();
        encoder.finish().unwrap()
    };
    let lz4 = |plain: &[u8]| lz4_frame(plain, CompressionMode::DEFAULT).encoded;
    for device in devices() {
        // Tiles are smaller in `simt`, and so are the rows that need no marks.
        let large = if device == Device::Simt { 135_000 } else { 1_500_000 };
        let plains: Vec<Vec<u8>> = [large, 21_001, large / 5].map(|size| plain(size, &mut Dice(21))).into();
        for format in [Format::Zstd, Format::Gzip, Format::Lz4] {
            let encode = |plain: &[u8]| match format {
                Format::Zstd => zstd(plain),
                Format::Gzip => gzip(plain),
                _ => lz4(plain),
            };
            let frame = |plain: &Vec<u8>| Frame { encoded: encode(plain), decoded_bytes: plain.len() };
            let mut frames: Vec<Frame> = plains.iter().map(frame).collect();
            let middle = frames[1].encoded.len() / 2;
            frames[1].encoded.truncate(middle);
            let (src, units, end) = joined(&frames);
            let source = Buffer::from_bytes(device, &src).unwrap();
            let target = Buffer::from_bytes(device, &vec![UNTOUCHED; end + 3]).unwrap();
            let prepare =
                |limit| Batch::prepare_within(format.decoder(), &source, &target, &units, Some(&src), limit).unwrap();
            let whole = prepare(usize::MAX).scratch_bytes();
            for limit in [whole * 3 / 4, whole / 2] {
                let mut batch = prepare(limit);
                assert!(batch.scratch_bytes() <= limit + limit / 8, "{} within {limit}", batch.scratch_bytes());
                batch.run(&Stream::new(device).unwrap()).unwrap();
                let results = batch.check().unwrap();
                let bytes = target.to_vec().unwrap();
                for (index, result) in results.iter().enumerate() {
                    assert_eq!(result.is_err(), index == 1, "{device}, {limit}: frame {index}: {result:?}");
                    let range = units[index].dst.clone();
                    assert!(index == 1 || bytes[range.clone()] == plains[index], "{device}, {limit}: frame {index}");
                    assert!(bytes[range.start - 3..range.start] == [UNTOUCHED; 3] && bytes[end..] == [UNTOUCHED; 3]);
                }
            }
        }
    }
}

#[test]
fn one_damaged_frame_does_not_touch_the_others() {
    let mut random = Dice(9);
    let container = Container { type_bytes: 4, block_bytes: 2048, shuffling: 1, split: true };
    let plains: Vec<Vec<u8>> = (0..20).map(|_| plain(5000, &mut random)).collect();
    let mut frames: Vec<Frame> = plains.iter().map(|plain| blosc_frame(plain, container, &mut random)).collect();
    frames[7].encoded[30] ^= 0x55;
    for (device, scan_on_host) in devices().into_iter().flat_map(|device| [(device, true), (device, false)]) {
        for (index, result) in on_device(device, Format::Blosc, &frames, scan_on_host).into_iter().enumerate() {
            assert!(if index == 7 { result.is_err() } else { result.unwrap() == plains[index] }, "{device}: {index}");
        }
    }
}

#[test]
fn what_cannot_be_a_batch_is_refused() {
    for device in devices() {
        let buffer = Buffer::zeroed(device, 100).unwrap();
        let prepare = |src, dst, host: Option<&[u8]>| {
            Batch::prepare(Format::Lz4.decoder(), &buffer, &buffer, &[Unit { src, dst }], host)
                .map_err(|error| error.kind())
        };
        assert_eq!(prepare(0..101, 0..1, None).unwrap_err(), ErrorKind::InvalidArgument);
        assert_eq!(prepare(0..1, 90..101, None).unwrap_err(), ErrorKind::InvalidArgument);
        assert_eq!(prepare(0..50, 50..100, Some(&[0; 99])).unwrap_err(), ErrorKind::InvalidArgument);
        let mut batch = prepare(0..50, 50..100, None).unwrap();
        assert_eq!(batch.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(batch.run(&Stream::new(Device::Cpu).unwrap()).unwrap_err().kind(), ErrorKind::MemorySpace);
    }
    let host = Buffer::zeroed(Device::Cpu, 100).unwrap();
    assert_eq!(
        Batch::prepare(Format::Lz4.decoder(), &host, &host, &[], None).unwrap_err().kind(),
        ErrorKind::MemorySpace
    );
}

/// The traits of decoders are public. Code that calls them without a batch reaches only the memory that was prepared.
#[test]
fn decoding_is_launched_only_with_memory_that_has_room_for_it() {
    let plain = vec![7; 5000];
    let Frame { encoded, decoded_bytes } = lz4_frame(&plain, CompressionMode::DEFAULT);
    let decoder = device_decoder("lz4").unwrap();
    for device in devices() {
        let request =
            |units| Request { device, units, host: Some(&encoded), headers: &[], scratch_aim_bytes: usize::MAX };
        let backwards = [Unit { src: 0..encoded.len(), dst: Range { start: 9, end: 3 } }];
        assert_eq!(decoder.prepare(&request(&backwards)).err().unwrap().kind(), ErrorKind::InvalidArgument);
        let units = [Unit { src: 0..encoded.len(), dst: 100..100 + decoded_bytes }];
        let (decode, refused) = decoder.prepare(&request(&units)).unwrap().into_parts();
        assert!(refused.is_empty());
        let stream = Stream::new(device).unwrap();
        let src = Buffer::from_bytes(device, &encoded).unwrap();
        let (dst, statuses) = (Buffer::zeroed(device, 5100).unwrap(), Buffer::zeroed(device, 16).unwrap());
        let task = Task { stream: &stream, src: &src, dst: &dst, statuses: &statuses };
        let refuses = |task: Task<'_>| decode.launch(&task).unwrap_err().kind();
        let part = |buffer: &Buffer, from, to| buffer.slice(from..to).unwrap();
        let short =
            [part(&src, 1, src.size_bytes()), part(&dst, 0, 5099), part(&statuses, 0, 4), part(&statuses, 4, 16)];
        assert_eq!(refuses(Task { src: &short[0], ..task }), ErrorKind::InvalidArgument);
        assert_eq!(refuses(Task { dst: &short[1], ..task }), ErrorKind::InvalidArgument);
        assert_eq!(refuses(Task { statuses: &short[2], ..task }), ErrorKind::InvalidArgument);
        assert_eq!(refuses(Task { statuses: &short[3], ..task }), ErrorKind::InvalidArgument);
        assert_eq!(refuses(Task { dst: &dst.clone().into_read_only(), ..task }), ErrorKind::ReadOnly);
        let host = Buffer::zeroed(Device::Cpu, 5100).unwrap();
        assert_eq!(refuses(Task { dst: &host, ..task }), ErrorKind::MemorySpace);
        decode.launch(&task).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(dst.to_vec().unwrap()[100..], plain);
    }
}
