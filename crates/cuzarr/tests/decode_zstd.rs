//! Batches of zstd frames on every device with kernels: what libzstd writes with all its levels and parameters, what other
//! writers put together, and damage.

mod frames;
mod model;

use std::io::Write;

use cuzarr::ErrorKind;
use frames::{Format, Frame, assert_agrees, assert_decodes, damaged, devices, on_device, on_host, plain};
use model::Dice;
use zstd::zstd_safe::{CParameter, Strategy};

fn compress(plain: &[u8], parameters: &[CParameter]) -> Frame {
    let mut compressor = zstd::bulk::Compressor::new(3).unwrap();
    parameters.iter().for_each(|&parameter| compressor.set_parameter(parameter).unwrap());
    Frame { encoded: compressor.compress(plain).unwrap(), decoded_bytes: plain.len() }
}

fn level(plain: &[u8], level: i32) -> Frame {
    compress(plain, &[CParameter::CompressionLevel(level)])
}

/// One frame without its content's size, its blocks cut where the writer flushed.
fn streamed(plain: &[u8], level: i32, pieces: usize) -> Frame {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), level).unwrap();
    for piece in plain.chunks(plain.len().div_ceil(pieces).max(1)) {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
    }
    Frame { encoded: encoder.finish().unwrap(), decoded_bytes: plain.len() }
}

/// Frames one behind the other, which are one chunk.
fn joined(frames: &[Frame]) -> Frame {
    Frame {
        encoded: frames.iter().flat_map(|frame| frame.encoded.clone()).collect(),
        decoded_bytes: frames.iter().map(|frame| frame.decoded_bytes).sum(),
    }
}

fn skippable(size: usize) -> Frame {
    let mut encoded = (0x184d_2a50u32 + size as u32 % 16).to_le_bytes().to_vec();
    encoded.extend((size as u32).to_le_bytes());
    encoded.resize(8 + size, 7);
    Frame { encoded, decoded_bytes: 0 }
}

/// Floats of a smooth field with noise in their low bits.
fn field(count: usize, random: &mut Dice) -> Vec<u8> {
    let mut row = vec![280.0f32; 64];
    let mut bytes = Vec::new();
    while bytes.len() < 4 * count {
        for value in &mut row {
            *value += (random.below(1000) as f32 - 500.0) / 5000.0;
            bytes.extend(((*value * 100.0).round() / 100.0).to_le_bytes());
        }
    }
    bytes.truncate(4 * count);
    bytes
}

/// Few symbols, unevenly often and without repeats: what Huffman codes are for.
fn skewed(size: usize, random: &mut Dice) -> Vec<u8> {
    (0..size).map(|_| (random.below(16) * random.below(16) / 8) as u8).collect()
}

#[test]
fn frames_of_every_level_decode() {
    let mut random = Dice(11);
    let (mut all, mut plains) = (Vec::new(), Vec::new());
    let levels = (-7..=22).chain([-100, -20, -131_072]);
    for (case, number) in levels.enumerate() {
        let size = if case % 6 == 0 { 20_000 } else { 500 + random.below(6000) as usize };
        let plain = match case % 3 {
            0 => plain(size, &mut random),
            1 => field(size / 4, &mut random),
            _ => [skewed(size / 2, &mut random), plain(size / 2, &mut random)].concat(),
        };
        all.push(level(&plain, number));
        plains.push(plain);
    }
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn frames_of_small_blocks_whose_parts_share_tables_decode() {
    let mut random = Dice(13);
    let (mut all, mut plains) = (Vec::new(), Vec::new());
    for number in [-1, 1, 3, 6, 13, 19] {
        for blocks in [4096, 10_000] {
            let plain = [field(2000, &mut random), skewed(5000, &mut random), plain(3000, &mut random)].concat();
            let small = [CParameter::MaxBlockSize(blocks), CParameter::TargetCBlockSize(1340)];
            let frame = compress(&plain, &[CParameter::CompressionLevel(number), small[0], small[1]]);
            assert!(frame.encoded.len() > 3 * 1340, "level {number}: there is nothing to divide");
            all.push(frame);
            plains.push(plain);
        }
    }
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn frames_of_every_strategy_decode() {
    let mut random = Dice(12);
    let strategies = [
        Strategy::ZSTD_fast,
        Strategy::ZSTD_dfast,
        Strategy::ZSTD_greedy,
        Strategy::ZSTD_lazy,
        Strategy::ZSTD_lazy2,
        Strategy::ZSTD_btlazy2,
        Strategy::ZSTD_btopt,
        Strategy::ZSTD_btultra,
        Strategy::ZSTD_btultra2,
    ];
    let (mut all, mut plains) = (Vec::new(), Vec::new());
    for (case, strategy) in strategies.into_iter().enumerate() {
        let plain = [field(1500, &mut random), plain(3000, &mut random)].concat();
        let parameters = [
            CParameter::Strategy(strategy),
            CParameter::MinMatch(3 + case as u32 % 5),
            CParameter::WindowLog(10 + case as u32),
            CParameter::ChecksumFlag(case % 2 == 0),
            CParameter::ContentSizeFlag(case % 3 != 0),
            CParameter::EnableLongDistanceMatching(case % 4 == 3),
        ];
        all.push(compress(&plain, &parameters));
        plains.push(plain);
    }
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn blocks_that_repeat_tables_and_offsets_decode() {
    let mut random = Dice(13);
    // Blocks of about 1 KiB, so that tables of the block before are used again, and repeat offsets cross blocks.
    let (mut all, mut plains) = (Vec::new(), Vec::new());
    for case in 0..12 {
        let plain = match case % 3 {
            0 => skewed(9000, &mut random),
            1 => field(2500, &mut random),
            _ => plain(9000, &mut random),
        };
        all.push(streamed(&plain, [1, 3, 9, 19][case % 4], 9));
        plains.push(plain);
    }
    // More blocks than a warp has lanes.
    let many = field(9000, &mut random);
    all.push(streamed(&many, 3, 80));
    plains.push(many);
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn frames_of_several_whole_blocks_decode() {
    let mut random = Dice(14);
    let plains: Vec<Vec<u8>> = vec![
        [field(40_000, &mut random), vec![5; 150_000], skewed(20_000, &mut random)].concat(),
        [(0..140_000).map(|_| random.below(256) as u8).collect(), plain(30_000, &mut random)].concat(),
        vec![0; 700_000],
    ];
    let all: Vec<Frame> = plains.iter().zip([3, 5, 1]).map(|(plain, number)| level(plain, number)).collect();
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn batches_of_very_many_frames_decode() {
    let mut random = Dice(20);
    let distinct: Vec<Vec<u8>> = (0..40).map(|_| field(300 + random.below(400) as usize, &mut random)).collect();
    let frames: Vec<Frame> = distinct.iter().map(|plain| level(plain, 3)).collect();
    let (all, plains): (Vec<_>, Vec<_>) = (0..250).map(|i| (frames[i % 40].clone(), distinct[i % 40].clone())).unzip();
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn tiny_frames_and_sizes_around_a_warp_decode() {
    let mut random = Dice(15);
    let sizes = [0, 1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1025];
    let plains: Vec<Vec<u8>> =
        sizes.iter().flat_map(|&size| [plain(size, &mut random), skewed(size, &mut random), vec![9; size]]).collect();
    let all: Vec<Frame> =
        plains.iter().map(|plain| compress(plain, &[CParameter::ChecksumFlag(plain.len() % 2 == 0)])).collect();
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn several_frames_and_skippable_ones_are_one_chunk() {
    let mut random = Dice(16);
    let parts: Vec<Vec<u8>> = [3000, 0, 700, 5000].iter().map(|&size| plain(size, &mut random)).collect();
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| match i % 2 {
        0 => compress(&parts[i], &[CParameter::ChecksumFlag(true)]),
        _ => streamed(&parts[i], 5, 3),
    });
    let all = [
        joined(&[skippable(0), a.clone(), b.clone(), skippable(33), c.clone(), d.clone(), skippable(5)]),
        joined(&[a, c.clone(), c]),
        skippable(9),
        Frame { encoded: Vec::new(), decoded_bytes: 0 },
    ];
    let plains = [parts.concat(), [&parts[0][..], &parts[2], &parts[2]].concat(), Vec::new(), Vec::new()];
    assert_decodes(Format::Zstd, &all, &plains);
}

#[test]
fn damaged_frames_are_refused_as_on_the_host() {
    let mut random = Dice(17);
    let mut all = Vec::new();
    let plains = [plain(300, &mut random), skewed(900, &mut random), field(400, &mut random), vec![3; 2000]];
    for (case, plain) in plains.iter().enumerate() {
        let checksum = CParameter::ChecksumFlag(case % 2 == 0);
        all.extend(damaged(&compress(plain, &[checksum]), &mut random, 40, 120));
        all.extend(damaged(&streamed(plain, 19, 3), &mut random, 20, 60));
    }
    let refused = assert_agrees(Format::Zstd, &all);
    assert!(devices().is_empty() || refused > 300, "{refused} of {} refused", all.len());
}

/// More of the same, of frames of all kinds: CUZARR_FUZZ_ROUNDS says how often, each time with other ones.
#[test]
fn random_damage_is_refused_as_on_the_host() {
    let rounds = std::env::var("CUZARR_FUZZ_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let first = std::env::var("CUZARR_FUZZ_SEED").map_or(0, |seed| seed.parse().unwrap());
    let (mut frames, mut refused) = (0, 0);
    for round in first..first + rounds {
        let mut random = Dice(1000 + round);
        let mut all = Vec::new();
        for _ in 0..12 {
            let size = 30 + random.below(700) as usize;
            let plain = match random.below(3) {
                0 => plain(size, &mut random),
                1 => skewed(size, &mut random),
                _ => field(size / 4, &mut random),
            };
            let number = random.pick(&[-5, 1, 3, 6, 12, 19]);
            let frame = match random.below(4) {
                0 => streamed(&plain, number, 1 + random.below(5) as usize),
                1 => joined(&[level(&plain, number), streamed(&plain, 3, 2)]),
                _ => compress(
                    &plain,
                    &[CParameter::CompressionLevel(number), CParameter::ChecksumFlag(random.chance(2))],
                ),
            };
            all.extend(damaged(&frame, &mut random, 3, 25));
        }
        refused += assert_agrees(Format::Zstd, &all);
        frames += all.len();
    }
    println!("{frames} frames, {refused} refused");
    assert!(devices().is_empty() || 2 * refused > frames, "{refused} of {frames} refused");
}

#[test]
fn damage_is_told_with_its_place() {
    let mut random = Dice(18);
    let plain = skewed(3000, &mut random);
    let whole = compress(&plain, &[CParameter::ChecksumFlag(true)]);
    let mut wrong_checksum = whole.clone();
    *wrong_checksum.encoded.last_mut().unwrap() ^= 1;
    let longer = Frame { decoded_bytes: plain.len() + 1, ..streamed(&plain, 3, 1) };
    let shorter = Frame { decoded_bytes: plain.len() - 1, ..streamed(&plain, 3, 1) };
    let mut dictionary = whole.clone();
    dictionary.encoded[4] |= 1;
    dictionary.encoded.splice(5..5, [77]);
    let checksum_at = whole.encoded.len() - 4;
    let cases = [
        (wrong_checksum, ErrorKind::ChecksumMismatch, format!("byte {checksum_at}: the checksum")),
        (longer, ErrorKind::ChunkCorrupt, "decodes to less".to_string()),
        (shorter, ErrorKind::ChunkCorrupt, "more than".to_string()),
        (dictionary, ErrorKind::Unsupported, "needs dictionary 77".to_string()),
        (
            Frame { encoded: b"no zstd".to_vec(), decoded_bytes: 3 },
            ErrorKind::ChunkCorrupt,
            "byte 0: not a zstd".to_string(),
        ),
    ];
    let all: Vec<Frame> = cases.iter().map(|(frame, ..)| frame.clone()).collect();
    for device in devices() {
        for (result, (_, kind, message)) in on_device(device, Format::Zstd, &all, true).into_iter().zip(&cases) {
            let error = result.unwrap_err();
            assert!(error.kind() == *kind && error.message().contains(message), "{device}: {error}, not {message}");
        }
    }
}

/// What a header claims costs no memory before it is compared with what metadata says.
#[test]
fn bombs_are_refused() {
    // A window of 2 TiB in the header and blocks of one byte that say 128 KiB each.
    let mut rle = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8];
    (0..500).for_each(|_| rle.extend([((128usize << 10 << 3 | 2) & 255) as u8, 0, 16, 7]));
    rle.extend([1, 0, 0]);
    // A block of 20 bytes that claims 43,000 sequences.
    let mut sequences = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58, 20 << 3 | 5, 0, 0, 0, 255, 0, 40, 0x54];
    sequences.resize(29, 1);
    let all: Vec<Frame> = [rle, sequences].into_iter().map(|encoded| Frame { encoded, decoded_bytes: 4000 }).collect();
    assert_eq!(assert_agrees(Format::Zstd, &all), if devices().is_empty() { 0 } else { 2 });
}

/// Found by a campaign: sequences that give more than the frame's window of 1792 bytes allows for a block.
#[test]
fn a_block_that_decodes_to_more_than_its_window_is_refused() {
    let mut encoded = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 6, 0x8d, 0, 0, 0x18, 0x8d, 0x96, 0xcb, 3, 0, 0x51, 0x40, 1];
    encoded.extend([0xae, 0xbf, 0xe6, 0xff, 0xee, 0xda, 0xef, 0xb0]);
    let frame = Frame { encoded, decoded_bytes: 3664 };
    assert_eq!(assert_agrees(Format::Zstd, &[frame]), if devices().is_empty() { 0 } else { 1 });
}

/// Found by a campaign: one literal and one match of 131,074 bytes in a window of 256 KiB, which libzstd decodes.
#[test]
fn a_block_that_decodes_to_more_than_128_kib_is_refused() {
    let mut encoded = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x40, 0x55, 0, 0];
    encoded.extend([9, b'a', 1, 0x54, 1, 2, 52, 0xff, 0xff, 4]);
    let frame = Frame { encoded, decoded_bytes: 131_075 };
    assert_eq!(assert_agrees(Format::Zstd, &[frame]), if devices().is_empty() { 0 } else { 1 });
}

/// Found by a campaign: the weights of a tree are coded with a place for one that cannot be, 29, which none of them is.
#[test]
fn a_weight_that_is_described_but_not_used_is_no_damage() {
    let mut encoded = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x40, 0x7d, 0, 0, 0x42, 0xc0, 2, 8, 0x90, 0x9a, 0xf7, 0xff, 0x1f];
    encoded.extend([0x5c, 0x70, 0xa2, 0x12, 0x6b, 0]);
    let frame = Frame { encoded, decoded_bytes: 4 };
    assert_eq!(on_host(Format::Zstd, &frame).unwrap(), [6, 2, 4, 8]);
    assert_eq!(assert_agrees(Format::Zstd, &[frame]), 0);
}

#[test]
fn one_damaged_frame_does_not_touch_the_others() {
    let mut random = Dice(19);
    let plains: Vec<Vec<u8>> = (0..20).map(|_| field(700, &mut random)).collect();
    let mut all: Vec<Frame> = plains.iter().map(|plain| level(plain, 3)).collect();
    let middle = all[7].encoded.len() / 2;
    all[7].encoded[middle] ^= 0x55;
    let expected = on_host(Format::Zstd, &all[7]);
    for device in devices() {
        for (index, result) in on_device(device, Format::Zstd, &all, true).into_iter().enumerate() {
            match (index, &expected) {
                (7, Err(_)) => assert!(result.is_err(), "{device}"),
                (7, Ok(other)) => assert_eq!(&result.unwrap(), other, "{device}"),
                _ => assert_eq!(result.unwrap(), plains[index], "{device}: {index}"),
            }
        }
    }
}
