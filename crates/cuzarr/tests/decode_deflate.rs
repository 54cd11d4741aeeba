//! gzip and zlib frames decoded by kernels, against the decoders of the host: frames of libdeflate and zlib-rs at every level,
//! streams written here bit by bit, then all kinds of damage.

mod frames;
#[path = "../examples/decode_campaign/campaign/levels.rs"]
mod levels;
mod model;

use std::io::Write;

use cuzarr::ErrorKind;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use frames::{Format, Frame, assert_agrees, assert_decodes, damaged, devices, on_device, plain};
use levels::by_levels;
use libdeflater::{CompressionLvl, Compressor};
use model::Dice;

fn frame(encoded: Vec<u8>, decoded_bytes: usize) -> Frame {
    Frame { encoded, decoded_bytes }
}

/// By libdeflate, levels 0 to 12.
fn libdeflate(format: Format, plain: &[u8], level: i32) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(level).unwrap());
    let mut encoded = vec![0; compressor.gzip_compress_bound(plain.len())];
    let size = match format {
        Format::Gzip => compressor.gzip_compress(plain, &mut encoded),
        Format::Deflate => compressor.deflate_compress(plain, &mut encoded),
        _ => compressor.zlib_compress(plain, &mut encoded),
    };
    encoded.truncate(size.unwrap());
    encoded
}

/// By zlib-rs, levels 0 to 9, with flushes in between.
fn zlib(format: Format, plain: &[u8], level: u32, flush_bytes: usize) -> Vec<u8> {
    fn all<W: Write>(mut to: W, plain: &[u8], flush_bytes: usize) -> W {
        for part in plain.chunks(flush_bytes) {
            to.write_all(part).unwrap();
            to.flush().unwrap();
        }
        to
    }
    let level = Compression::new(level);
    match format {
        Format::Gzip => all(GzEncoder::new(Vec::new(), level), plain, flush_bytes).finish(),
        Format::Deflate => all(DeflateEncoder::new(Vec::new(), level), plain, flush_bytes).finish(),
        _ => all(ZlibEncoder::new(Vec::new(), level), plain, flush_bytes).finish(),
    }
    .unwrap()
}

fn encoded(format: Format, plain: &[u8], random: &mut Dice) -> Vec<u8> {
    if random.chance(2) {
        libdeflate(format, plain, random.below(13) as i32)
    } else {
        let flush_bytes = if random.chance(3) { 1 + random.below(9000) as usize } else { usize::MAX };
        zlib(format, plain, random.below(10) as u32, flush_bytes)
    }
}

#[test]
fn frames_of_every_size_and_level_decode() {
    let mut random = Dice(11);
    for format in [Format::Gzip, Format::Zlib, Format::Deflate] {
        let sizes = [0, 1, 2, 3, 31, 257, 258, 259, 4096, 70_000];
        let mut plains: Vec<_> = sizes.map(|size| plain(size, &mut random)).into();
        plains
            .extend((0..26).map(|_| random.below(30_000) as usize).map(|size| plain(size, &mut Dice(size as u64 + 1))));
        plains.extend([vec![0; 100_000], (0..66_000).map(|_| random.below(256) as u8).collect()]);
        let mut frames: Vec<_> = plains.iter().map(|plain| encoded(format, plain, &mut random)).collect();
        let every = plain(25_000, &mut random);
        frames.extend((0..=12).map(|level| libdeflate(format, &every, level)));
        frames.extend((0..=9).map(|level| zlib(format, &every, level, usize::MAX)));
        plains.resize(frames.len(), every);
        // The same streams as zlib's: some of them.
        if format == Format::Deflate {
            frames = frames.into_iter().step_by(3).collect();
            plains = plains.into_iter().step_by(3).collect();
        }
        let frames: Vec<_> =
            frames.into_iter().zip(&plains).map(|(encoded, plain)| frame(encoded, plain.len())).collect();
        assert_decodes(format, &frames, &plains);
        // Without large frames, which are decoded another way, together with those beside them.
        let few: Vec<_> = (0..frames.len()).filter(|&index| plains[index].len() < 25_000).collect();
        let plains: Vec<_> = few.iter().map(|&index| plains[index].clone()).collect();
        assert_decodes(format, &few.iter().map(|&index| frames[index].clone()).collect::<Vec<_>>(), &plains);
    }
}

/// Bytes of a small alphabet that repeat what came before, now and then: symbols of all kinds, and never a period.
fn restless(size: usize, random: &mut Dice) -> Vec<u8> {
    let (mut plain, most) = (Vec::new(), 2 + random.below(254));
    while plain.len() < size {
        let (repeated, back) = (random.below(40) as usize, 1 + random.below(30_000) as usize);
        if random.chance(4) && back <= plain.len() {
            (0..repeated).for_each(|_| plain.push(plain[plain.len() - back]));
        } else {
            plain.extend((0..repeated).map(|_| random.below(most) as u8));
        }
    }
    plain.truncate(size);
    plain
}

#[test]
fn long_blocks_of_the_fixed_codes_decode_between_blocks_of_all_kinds() {
    let mut random = Dice(16);
    for format in [Format::Gzip, Format::Deflate] {
        let plains: Vec<_> = [30_000, 40_000, 50_000].map(|size| restless(size, &mut random)).into();
        let frames: Vec<_> = plains
            .iter()
            .enumerate()
            .map(|(index, plain)| {
                let piece = if index == 0 { plain.len() } else { 1 + random.below(20_000) as usize };
                let level = |random: &mut Dice| [1, 1, 1, 0, 6][random.below(if index == 0 { 3 } else { 5 }) as usize];
                let parts: Vec<_> = plain.chunks(piece).map(|part| (level(&mut random), part)).collect();
                frame(by_levels(format, &parts), plain.len())
            })
            .collect();
        assert_decodes(format, &frames, &plains);
        let mut damage = Vec::new();
        frames.iter().for_each(|intact| damage.extend(damaged(intact, &mut random, 1, 5)));
        assert!(assert_agrees(format, &damage) > 0 || devices().is_empty());
    }
}

#[test]
fn members_follow_each_other_and_zeros_follow_them() {
    let mut random = Dice(12);
    let plain: Vec<_> = [3000, 0, 1, 40_000, 500].map(|size| plain(size, &mut random)).into();
    // A header with everything in it: extra field, name, comment and a checksum of its own, which nobody looks at.
    let full = |member: &[u8]| {
        let mut header = vec![0x1f, 0x8b, 8, 4 | 8 | 16 | 2, 0, 0, 0, 0, 0, 3, 5, 0];
        header.extend(b"extra");
        header.extend([b'n'; 100]);
        header.extend(b"\0comment\0\x12\x34");
        [&header, &member[10..]].concat()
    };
    let mut members: Vec<_> = plain.iter().map(|plain| encoded(Format::Gzip, plain, &mut random)).collect();
    members[2] = full(&libdeflate(Format::Gzip, &plain[2], 6));
    members[3].extend([0; 100]);
    members[4].extend([0; 5]);
    let whole = plain.concat();
    assert_decodes(Format::Gzip, &[frame(members.concat(), whole.len())], std::slice::from_ref(&whole));
    // zlib streams may have anything behind them, and bare ones, too.
    for format in [Format::Zlib, Format::Deflate] {
        let stream = [encoded(format, &whole, &mut random), b"anything".to_vec()].concat();
        assert_decodes(format, &[frame(stream, whole.len())], std::slice::from_ref(&whole));
    }
}

/// A member as bgzip makes it, which says how long it is.
fn sized_member(plain: &[u8], random: &mut Dice) -> Vec<u8> {
    let member = libdeflate(Format::Gzip, plain, 1 + random.below(12) as i32);
    let mut header = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0];
    header.extend(*b"BC\x02\0");
    header.extend((member.len() as u16 + 7).to_le_bytes());
    [&header, &member[10..]].concat()
}

#[test]
fn members_of_known_size_decode_side_by_side_and_lies_about_sizes_change_nothing() {
    let mut random = Dice(14);
    let (mut frames, mut plains) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let parts: Vec<_> = (0..2 + random.below(6)).map(|_| plain(random.below(9000) as usize, &mut random)).collect();
        let mut members: Vec<_> = parts.iter().map(|part| sized_member(part, &mut random)).collect();
        members.push(sized_member(&[], &mut random));
        let whole = parts.concat();
        frames.push(frame(members.concat(), whole.len()));
        // Sizes that lead elsewhere, or nowhere: who does not know of them reads the same.
        members[1][16] ^= 1 + random.below(255) as u8;
        frames.push(frame(members.concat(), whole.len()));
        plains.extend([whole.clone(), whole]);
    }
    assert_decodes(Format::Gzip, &frames, &plains);
    let mut damage = Vec::new();
    frames.iter().step_by(2).for_each(|intact| damage.extend(damaged(intact, &mut random, 3, 12)));
    assert!(assert_agrees(Format::Gzip, &damage) > 0 || devices().is_empty());
}

#[test]
fn members_that_do_not_tell_their_size_decode_side_by_side_whatever_looks_like_one() {
    let mut random = Dice(15);
    let (mut frames, mut plains) = (Vec::new(), Vec::new());
    for case in 0..4 {
        let parts: Vec<_> = (0..2 + random.below(4)).map(|_| plain(random.below(4000) as usize, &mut random)).collect();
        let mut members: Vec<_> = parts.iter().map(|part| encoded(Format::Gzip, part, &mut random)).collect();
        let mut whole = parts.concat();
        // Stored as it is, a frame has headers in it that are none.
        if case % 2 == 1 {
            let stored = members.concat();
            members.push(libdeflate(Format::Gzip, &stored, 0));
            whole.extend(stored);
        }
        frames.push(frame(members.concat(), whole.len()));
        plains.push(whole);
    }
    // Frames of one member beside them, of which one is large.
    for size in [100, 30_000] {
        let single = plain(size, &mut random);
        frames.push(frame(libdeflate(Format::Gzip, &single, 6), size));
        plains.push(single);
    }
    assert_decodes(Format::Gzip, &frames, &plains);
    let mut damage = Vec::new();
    frames.iter().for_each(|intact| damage.extend(damaged(intact, &mut random, 2, 4)));
    assert!(assert_agrees(Format::Gzip, &damage) > 0 || devices().is_empty());
}

/// Writes bits, lowest first, and words of codes, highest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn put(&mut self, value: u32, bits: usize) -> &mut Bits {
        for bit in 0..bits {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((u64::from(value) >> bit & 1) as u8) << (self.count % 8);
            self.count += 1;
        }
        self
    }

    fn code(&mut self, word: u32, bits: usize) -> &mut Bits {
        (0..bits).rev().fold(self, |to, bit| to.put(word >> bit & 1, 1))
    }

    /// A dynamic block's header: lengths are 0 to 15, each told on its own by a code of four bits.
    fn dynamic(&mut self, literals: &[u32], distances: &[u32]) -> &mut Bits {
        self.put(1, 1).put(2, 2).put(literals.len() as u32 - 257, 5).put(distances.len() as u32 - 1, 5).put(15, 4);
        // The order is 16 17 18 0 8 …: none for repetitions.
        self.put(0, 9);
        (0..16).for_each(|_| _ = self.put(4, 3));
        literals.iter().chain(distances).for_each(|&length| _ = self.code(length, 4));
        self
    }

    /// A literal of the fixed codes.
    fn literal(&mut self, byte: u8) -> &mut Bits {
        let byte = u32::from(byte);
        if byte < 144 { self.code(0x30 + byte, 8) } else { self.code(0x190 + byte - 144, 9) }
    }

    /// A block of the fixed codes.
    fn fixed(&mut self, last: bool, plain: &[u8]) -> &mut Bits {
        self.put(u32::from(last), 1).put(1, 2);
        plain.iter().fold(self, |to, &byte| to.literal(byte)).code(0, 7)
    }

    fn zlib(&self, plain: &[u8]) -> Frame {
        let (mut a, mut b) = (1, 0);
        for &byte in plain {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        frame([&[0x78, 0x9c], &self.bytes[..], &(b << 16 | a).to_be_bytes()].concat(), plain.len())
    }
}

/// Lengths of codes with `pairs` of (symbol, length), the others without.
fn lengths(count: usize, pairs: &[(usize, u32)]) -> Vec<u32> {
    let mut lengths = vec![0; count];
    pairs.iter().for_each(|&(symbol, length)| lengths[symbol] = length);
    lengths
}

#[test]
fn streams_that_no_compressor_makes_decode() {
    // Matches of two bits, more than a round's queue holds; then matches of 258 bytes.
    let (mut stream, mut plain) = (Bits::default(), vec![7; 1]);
    stream.dynamic(&lengths(286, &[(257, 1), (7, 3), (256, 3), (285, 2)]), &[1]);
    // Words: 257 is 0, 285 is 10, 7 is 110, 256 is 111.
    stream.code(6, 3);
    for _ in 0..5000 {
        stream.put(0, 2);
        plain.extend([7; 3]);
    }
    for _ in 0..700 {
        stream.code(2, 2).put(0, 1);
        plain.extend([7; 258]);
    }
    stream.code(7, 3);
    let two_bits = stream.zlib(&plain);
    // Codes of 1 to 15 bits, all of them used.
    let (mut stream, mut deep) = (Bits::default(), Vec::new());
    let mut ladder: Vec<_> = (0..14).map(|symbol| (symbol, symbol as u32 + 1)).collect();
    ladder.extend([(14, 15), (256, 15)]);
    stream.dynamic(&lengths(257, &ladder), &[0]);
    for round in 0..600 {
        let symbol = round * 7 % 15;
        // The word of the n-th symbol: n ones, then a zero.
        stream.code(((1 << symbol) - 1) << 1, symbol as usize + 1);
        deep.push(symbol as u8);
    }
    stream.code(0x7fff, 15);
    let deep_codes = stream.zlib(&deep);
    // Fixed codes with the longest match at the longest distance, then a stored block of nothing at the end.
    let (mut stream, mut far) = (Bits::default(), Vec::new());
    stream.put(0, 1).put(1, 2);
    for index in 0..32768u32 {
        let byte = ((index * 7 % 256) ^ (index >> 8)) as u8;
        stream.literal(byte);
        far.push(byte);
    }
    for _ in 0..9 {
        stream.code(0xc5, 8).code(29, 5).put(8191, 13);
        (0..258).for_each(|_| far.push(far[far.len() - 32768]));
    }
    stream.code(0, 7).put(1, 3);
    stream.put(0, (8 - stream.count % 8) % 8).put(0xffff_0000, 32);
    let far_matches = stream.zlib(&far);
    // Only the end of a block.
    let mut stream = Bits::default();
    let nothing = stream.dynamic(&lengths(257, &[(256, 1)]), &[0]).put(0, 1).zlib(&[]);
    assert_decodes(Format::Zlib, &[two_bits, deep_codes, far_matches, nothing], &[plain, deep, far, Vec::new()]);
}

#[test]
fn more_matches_than_many_warps_have_room_for_decode_in_order() {
    // One for three bytes, where there is room for one for four.
    let (mut stream, mut plain) = (Bits::default(), vec![7; 1]);
    stream.dynamic(&lengths(258, &[(257, 1), (7, 2), (256, 2)]), &[1]);
    // Words: 257 is 0, 7 is 10, 256 is 11.
    stream.code(2, 2);
    for _ in 0..14_000 {
        stream.put(0, 2);
        plain.extend([7; 3]);
    }
    stream.code(3, 2);
    let shortest = stream.zlib(&plain);
    assert_decodes(Format::Zlib, &[shortest], &[plain]);
}

#[test]
fn blocks_of_the_fixed_codes_follow_each_other_bit_by_bit_and_end_with_the_last() {
    let mut random = Dice(17);
    let plain: Vec<_> = (0..30_000).map(|_| random.below(256) as u8).collect();
    let sizes = [14_000, 1, 0, 3_000, 9_999, 3_000];
    let (mut stream, mut ended, mut at) = (Bits::default(), Bits::default(), 0);
    for (index, size) in sizes.into_iter().enumerate() {
        stream.fixed(index == 5, &plain[at..at + size]);
        // What follows the last block here would be another one.
        ended.fixed(index == 4, &plain[at..at + size]);
        at += size;
    }
    let frames = [stream.zlib(&plain)];
    assert_decodes(Format::Zlib, &frames, std::slice::from_ref(&plain));
    let cases = [(stream.bytes.clone(), 30_000), (ended.bytes.clone(), 27_000)];
    let frames = cases.map(|(encoded, size)| frame(encoded, size));
    assert_decodes(Format::Deflate, &frames, &[plain.clone(), plain[..27_000].to_vec()]);
    // Who expects what would have followed learns that it does not.
    assert_eq!(assert_agrees(Format::Deflate, &[frame(ended.bytes, 30_000)]), usize::from(!devices().is_empty()));
}

#[test]
fn hostile_streams_are_refused_with_their_place() {
    let zeros = |write: &dyn Fn(&mut Bits)| {
        let mut stream = Bits::default();
        write(&mut stream);
        stream.zlib(&[0; 300])
    };
    let literals = |pairs: &[(usize, u32)]| lengths(257, pairs);
    let cases: &[(Frame, &str)] = &[
        (frame(vec![], 300), "byte 0: the stream is cut off"),
        (frame(vec![0x78, 0x9d, 1], 300), "byte 0: the header is invalid"),
        (frame(vec![0x78, 0x9c], 300), "byte 2: the stream is cut off"),
        (zeros(&|to| _ = to.put(7, 3)), "byte 2: a block of no known type"),
        (zeros(&|to| _ = to.put(1, 8).put(0xfff0_0010, 32)), "byte 2: a block of no known type, or a stored"),
        (zeros(&|to| _ = to.put(1, 8).put(0x0fff_f000, 32)), "byte 2: the stream is cut off"),
        // 288 codes of literals, 32 of distances, a repetition of nothing.
        (zeros(&|to| _ = to.put(5, 3).put(31, 5).put(0, 60)), "byte 2: the code lengths of a block"),
        (zeros(&|to| _ = to.put(5, 3).put(0, 5).put(31, 5).put(0, 60)), "byte 2: the code lengths of a block"),
        (
            zeros(&|to| _ = to.put(5, 3).put(0, 14).put(1, 3).put(1, 9).put(0, 60)),
            "byte 5: the code lengths of a block",
        ),
        (zeros(&|to| _ = to.dynamic(&literals(&[(0, 1), (1, 1), (256, 1)]), &[0])), "the code lengths of a block"),
        (zeros(&|to| _ = to.dynamic(&literals(&[(0, 2), (256, 2)]), &[0])), "the code lengths of a block"),
        (zeros(&|to| _ = to.dynamic(&literals(&[(0, 1), (1, 1)]), &[0])), "the code lengths of a block"),
        (zeros(&|to| _ = to.dynamic(&literals(&[(256, 1)]), &[2, 2]).put(0, 9)), "the code lengths of a block"),
        (zeros(&|to| _ = to.dynamic(&literals(&[(256, 1)]), &[0]).put(1, 1)), "bits that match no code"),
        (zeros(&|to| _ = to.put(3, 3).code(1, 7).code(0, 5)), "a match begins before"),
        (zeros(&|to| _ = to.put(3, 3).code(0x30, 8).code(1, 7).code(1, 5)), "a match begins before"),
        (zeros(&|to| _ = to.put(3, 3).code(0x30, 8).code(1, 7).code(30, 5)), "bits that match no code"),
        (zeros(&|to| _ = to.put(3, 3).code(0xc6, 8)), "bits that match no code"),
        (zeros(&|to| _ = to.put(3, 3).code(0x30, 8).code(0, 7)), "the stream decodes to less"),
        (
            zeros(&|to| _ = (0..400).fold(to.put(3, 3), |to, _| to.code(0x30, 8)).code(0, 7)),
            "the stream decodes to more",
        ),
        (zeros(&|to| _ = (0..300).fold(to.put(3, 3), |to, _| to.code(0x31, 8)).code(0, 7)), "the checksum there"),
    ];
    let frames: Vec<_> = cases.iter().map(|(frame, _)| frame.clone()).collect();
    for device in devices() {
        for ((decoded, (_, message)), frame) in
            on_device(device, Format::Zlib, &frames, true).iter().zip(cases).zip(&frames)
        {
            let error = decoded.as_ref().expect_err(message);
            assert!(error.message().contains(message), "{device}: {error}, expected {message}: {:02x?}", frame.encoded);
            assert!(matches!(error.kind(), ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch), "{error:?}");
        }
    }
}

#[test]
fn damaged_frames_are_refused_as_on_the_host() {
    let mut random = Dice(13);
    for format in [Format::Gzip, Format::Zlib, Format::Deflate] {
        let mut frames = Vec::new();
        let flips = if format == Format::Deflate { 20 } else { 60 };
        for size in [0, 1, 30, 300, 700, 20_000, 60_000] {
            let plain = plain(size, &mut random);
            let intact = frame(encoded(format, &plain, &mut random), plain.len());
            frames.extend(damaged(&intact, &mut random, 20, flips));
            frames.push(Frame { decoded_bytes: random.below(40_000) as usize, ..intact });
        }
        let (large, small): (Vec<_>, Vec<_>) = frames.iter().cloned().partition(|frame| frame.decoded_bytes > 25_000);
        let refused = assert_agrees(format, &large) + assert_agrees(format, &small);
        // Without a checksum, much damage to literals is none.
        let least = if format == Format::Deflate { 100 } else { 300 };
        assert!(devices().is_empty() || refused > least, "{refused} of {} refused", frames.len());
    }
}

/// A campaign found that what would have followed was written far behind the frame's place.
#[test]
fn nothing_is_written_behind_a_stream_that_is_cut_off_where_a_segment_ends() {
    let found = "\
        785e04c13d2884711c07f081c3a2febfdff7ffbacbe06552d84f29a4c482ab3b3a0c26493d0cb7298ec782eb36a20c57c8db\
        5dce244679b97b4cc72d72379864247c3e53e292024a5184b668973c7145e7e4d388e8a5330a28448bf446f794a527cad08a\
        d811f562549429424bd427bae8902c7d8a9cf8a302cfe197df11e50a7bc881398d22dfa18d3790c03847a1b819db68e03067\
        11e7341e904711a75ce512a6b1cc3760ec238c3d7e4680051c7082c790e71fbcc8a49c54295956ddea4226558d3c5631d522\
        67e597bad613ba513799820919981e53d2097da4878ca7d775a769d53366debceab8f1f59af930756ed506";
    let digits = |at: usize| u8::from_str_radix(&found[2 * at..2 * at + 2], 16).unwrap();
    let cut_off = frame((0..found.len() / 2).map(digits).collect(), 279);
    // Behind the stream lies what a stream could be, and behind its place others' places.
    let other = frame(cut_off.encoded[100..140].to_vec(), 5000);
    let frames = [cut_off, other.clone(), other];
    assert_eq!(assert_agrees(Format::Zlib, &frames), if devices().is_empty() { 0 } else { 3 });
}
