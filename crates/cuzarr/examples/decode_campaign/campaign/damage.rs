//! What happens to stored bytes, and what somebody hostile makes of them.

use super::Format;

use super::random::Random;

/// Kinds of damage.
pub const KINDS: [&str; 9] =
    ["bits", "bytes", "cut", "longer", "spliced", "moved", "removed", "hostile numbers", "hostile header"];

/// Numbers that readers stumble over.
const NUMBERS: [u32; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x0001_0000,
    0x00ff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// A place in the frame, often near its beginning.
fn place(size: usize, random: &mut Random) -> usize {
    match random.below(3) {
        0 => random.below(size.min(24)),
        1 => random.log_uniform(1, size) - 1,
        _ => random.below(size),
    }
}

/// Damages `frame`, with parts of `other` perhaps; says how.
pub fn damage(format: Format, frame: &mut Vec<u8>, other: &[u8], random: &mut Random) -> &'static str {
    let kind = random.below(KINDS.len());
    if frame.is_empty() {
        frame.extend_from_slice(&other[..random.below(other.len() + 1)]);
        return KINDS[4];
    }
    let size = frame.len();
    match kind {
        0 => (0..1 + random.below(4)).for_each(|_| {
            let at = place(size, random);
            frame[at] ^= 1 << random.below(8);
        }),
        1 => (0..1 + random.below(4)).for_each(|_| {
            let at = place(size, random);
            frame[at] =
                if random.one_in(2) { random.byte() } else { random.pick(&[0, 1, 0x0f, 0x7f, 0x80, 0xf0, 0xff]) };
        }),
        2 => frame.truncate(random.below(size)),
        3 => {
            let byte = random.pick(&[0, 0xff, 0x55]);
            let (more, fixed) = (random.log_uniform(1, 600), random.one_in(2));
            (0..more).for_each(|_| frame.push(if fixed { byte } else { random.byte() }));
        }
        4 if !other.is_empty() => {
            let from = random.below(other.len());
            frame.truncate(place(size, random));
            frame.extend_from_slice(&other[from..]);
        }
        5 => {
            let (from, to) = (random.below(size), place(size, random));
            let count = random.log_uniform(1, size).min(size - from);
            let part = frame[from..from + count].to_vec();
            if random.one_in(2) {
                drop(frame.splice(to..to, part));
            } else {
                let count = count.min(size - to);
                frame[to..to + count].copy_from_slice(&part[..count]);
            }
        }
        6 => {
            let from = place(size, random);
            let count = random.log_uniform(1, size).min(size - from);
            drop(frame.drain(from..from + count));
        }
        7 => {
            let (at, number) = (place(size, random), random.pick(&NUMBERS));
            let number = if random.one_in(3) { number.wrapping_add(size as u32) } else { number };
            let width = random.pick(&[2, 3, 4]).min(size - at);
            frame[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
        _ => header(format, frame, random),
    }
    KINDS[kind]
}

fn header(format: Format, frame: &mut Vec<u8>, random: &mut Random) {
    let size = frame.len();
    match format {
        // Lengths that go on and on, at any token.
        Format::Lz4 | Format::Lz4Raw => {
            let header = if format == Format::Lz4 { 4 } else { 0 };
            let at = if size > header { header + random.below(size - header) } else { size };
            let token = random.pick(&[0xf0, 0x0f, 0xff, 0x1f]);
            let count = random.log_uniform(1, 400);
            let bytes = std::iter::once(token).chain(std::iter::repeat_n(255, count)).collect::<Vec<u8>>();
            drop(frame.splice(at..at, bytes));
        }
        // Flags of the frame, its window, and the first block's type and size.
        Format::Zstd if size > 9 => match random.below(4) {
            0 => frame[4] = random.byte(),
            1 => frame[5] = random.byte(),
            2 => {
                let at = 5 + random.below(size.min(14) - 5);
                let block = (random.below(1 << 18) << 3 | random.below(4) << 1 | random.below(2)) as u32;
                let count = 3.min(size - at);
                frame[at..at + count].copy_from_slice(&block.to_le_bytes()[..count]);
            }
            // Sections of a block begin with how they are compressed.
            _ => {
                let at = 6 + random.below(size.min(30) - 6);
                frame[at] = random.byte();
            }
        },
        Format::Gzip if size > 12 => match random.below(3) {
            0 => frame[3] = random.byte(),
            1 => {
                frame[3] |= 4;
                let extra = random.pick(&[0u16, 1, 7, 255, 256, 0x7fff, 0xffff]);
                frame[10..12].copy_from_slice(&extra.to_le_bytes());
            }
            _ => frame[10] = frame[10] & !7 | random.below(8) as u8,
        },
        Format::Zlib if size > 3 => match random.below(2) {
            0 => {
                let method = random.byte();
                let rest = 31 - ((u32::from(method) << 8) | (u32::from(frame[1]) & 0xe0)) % 31;
                frame[0] = method;
                frame[1] = ((u32::from(frame[1]) & 0xe0) | (rest % 31)) as u8;
            }
            _ => frame[2] = frame[2] & !7 | random.below(8) as u8,
        },
        // The type of the first block, and the numbers of codes behind it.
        Format::Deflate => {
            let at = random.below(size.min(3));
            frame[at] = random.byte();
        }
        // A word of the header or of the table behind it; flags; the size of a type.
        Format::Blosc if size > 16 => match random.below(4) {
            0 => frame[2] = random.byte(),
            1 => frame[3] = random.byte(),
            which => {
                let words = (size / 4).min(if which == 2 { 4 } else { 24 });
                let at = 4 * random.below(words);
                let number = random.pick(&NUMBERS) ^ if random.one_in(2) { size as u32 } else { 0 };
                frame[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        },
        _ => frame[0] ^= 1 << random.below(8),
    }
}
