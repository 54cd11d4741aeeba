//! What arrays hold: bytes of every kind that compressors treat differently.

use super::random::Random;

/// Kinds of data.
pub const KINDS: [&str; 8] = ["random", "constant", "floats", "text", "sparse", "periodic", "integers", "mixed"];

/// `size` bytes of the kind of that number.
pub fn plain(kind: usize, size: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 16);
    match kind {
        0 => words(&mut bytes, size, |random| random.next(), random),
        1 => {
            let element: Vec<u8> = (0..random.pick(&[1, 2, 4, 8, 12])).map(|_| random.byte()).collect();
            bytes.extend(element.iter().cycle().take(size));
        }
        2 => floats(&mut bytes, size, random),
        3 => text(&mut bytes, size, random),
        4 => {
            let apart = 1 << (4 + random.below(9));
            bytes.resize(size, 0);
            let mut at = random.below(apart);
            while at < size {
                bytes[at] = random.byte();
                at += 1 + random.below(2 * apart);
            }
        }
        5 => {
            let period = random.log_uniform(1, 70_000);
            let pattern: Vec<u8> = (0..period).map(|_| random.byte()).collect();
            bytes.extend(pattern.iter().cycle().take(size));
            for _ in 0..random.below(1 + size / 512) {
                let at = random.below(size);
                bytes[at] = random.byte();
            }
        }
        6 => {
            let (step, noise, wide) = (random.below(70) as u64, 1 << random.below(10), random.one_in(2));
            let mut value = random.next() % 100_000;
            while bytes.len() < size {
                value = value.wrapping_add(step) ^ (random.next() % noise);
                match wide {
                    true => bytes.extend((value as u32).to_le_bytes()),
                    false => bytes.extend((value as u16).to_le_bytes()),
                }
            }
        }
        _ => {
            while bytes.len() < size {
                let (kind, part) = (random.below(7), random.log_uniform(1, size));
                bytes.extend(plain(kind, part, random));
            }
        }
    }
    bytes.truncate(size);
    bytes
}

fn words(bytes: &mut Vec<u8>, size: usize, mut word: impl FnMut(&mut Random) -> u64, random: &mut Random) {
    while bytes.len() < size {
        bytes.extend(word(random).to_le_bytes());
    }
}

/// A smooth field, its rows like the rows before; sometimes rounded, sometimes as planes of bytes.
fn floats(bytes: &mut Vec<u8>, size: usize, random: &mut Random) {
    let (digits, columns) = (random.pick(&[0.0f32, 10.0, 1000.0]), random.log_uniform(8, 2048));
    let mut row = vec![280.0f32; columns];
    while bytes.len() < size {
        let mut drift = 0.0;
        for value in &mut row {
            drift = 0.95 * drift + 0.1 * (random.unit() as f32 - 0.5);
            *value += drift;
            let kept = if digits > 0.0 { (*value * digits).round() / digits } else { *value };
            bytes.extend(kept.to_le_bytes());
        }
    }
    bytes.truncate(size);
    if random.one_in(3) {
        let (planes, count) = (bytes.clone(), size / 4);
        (0..4 * count).for_each(|at| bytes[at] = planes[at % count * 4 + at / count]);
    }
}

/// Words of a small language, the first ones often.
fn text(bytes: &mut Vec<u8>, size: usize, random: &mut Random) {
    let language: Vec<Vec<u8>> = (0..400)
        .map(|_| {
            (0..1 + random.below(9)).map(|_| b"etaoinshrdlucmfwypvbgkjqxz"[random.log_uniform(1, 26) - 1]).collect()
        })
        .collect();
    while bytes.len() < size {
        bytes.extend(&language[random.log_uniform(1, language.len()) - 1]);
        bytes.push(if random.one_in(12) { b'\n' } else { b' ' });
    }
}
