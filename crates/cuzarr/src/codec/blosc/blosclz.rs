//! Decodes and encodes BloscLZ streams: a descendant of FastLZ by Hidayat, with two-byte far distances.
//!
//! ```text
//! the first byte is an instruction whose upper three bits are ignored
//! 000nnnnn                             n + 1 literal bytes follow
//! lllddddd [255 … n] d [far far]       copy l + 2 bytes (l = 7: plus each following byte up to the first below 255)
//!                                      from ddddd·256 + d + 1 bytes back; all ones (8191): the big-endian far + 8192 back
//! ```

use crate::Result;
use crate::codec::damage::corrupt;

const NEAR_DISTANCE: usize = 8191;
const FAR_DISTANCE: usize = 65535 + NEAR_DISTANCE;
const MAX_LITERALS: usize = 32;
const MIN_MATCH: usize = 4;
/// Number of bytes at the end of the input that are always literals: c-blosc's decoder does not carry out a match that
/// ends its stream.
const LAST_LITERALS: usize = 12;
const HASH_BITS: u32 = 13;

fn cut_off(at: usize) -> crate::Error {
    corrupt(format!("byte {at}: the BloscLZ stream is cut off"))
}

/// Decodes a BloscLZ stream to exactly `decoded.len()` bytes.
pub(super) fn decompress(stream: &[u8], decoded: &mut [u8]) -> Result<()> {
    let (mut at, mut out) = (0, 0);
    let mut first_mask = 31;
    while at < stream.len() {
        let control = stream[at] & first_mask;
        first_mask = 255;
        at += 1;
        if control < 32 {
            let count = usize::from(control) + 1;
            let source = stream.get(at..at + count).ok_or_else(|| cut_off(at))?;
            let target = decoded.get_mut(out..out + count).ok_or_else(|| too_long(at))?;
            target.copy_from_slice(source);
            (at, out) = (at + count, out + count);
            continue;
        }
        let (length, distance, next) = read_match(stream, at, control)?;
        at = next;
        if distance > out {
            return Err(corrupt(format!("byte {at}: a match reaches {distance} bytes back, only {out} are there")));
        }
        if length > decoded.len() - out {
            return Err(too_long(at));
        }
        copy_match(decoded, out, distance, length);
        out += length;
    }
    crate::codec::damage::expect_size(out, decoded.len())
}

fn too_long(at: usize) -> crate::Error {
    corrupt(format!("byte {at}: the BloscLZ stream decodes to more than its block"))
}

/// Reads a match whose first byte is `control`. Returns its length, its distance, and where the next instruction
/// begins.
fn read_match(stream: &[u8], mut at: usize, control: u8) -> Result<(usize, usize, usize)> {
    let mut next = || {
        let byte = stream.get(at).copied().ok_or_else(|| cut_off(at))?;
        at += 1;
        Ok::<_, crate::Error>(usize::from(byte))
    };
    let mut length = usize::from(control >> 5) + 2;
    if length == 7 + 2 {
        loop {
            let more = next()?;
            length += more;
            if more < 255 {
                break;
            }
        }
    }
    let mut distance = usize::from(control & 31) * 256 + next()?;
    if distance == NEAR_DISTANCE {
        distance += next()? * 256 + next()?;
    }
    Ok((length, distance + 1, at))
}

/// Appends a match to `decoded`: repeats the bytes that lie `distance` bytes back. Source and target may overlap.
fn copy_match(decoded: &mut [u8], out: usize, distance: usize, length: usize) {
    let start = out - distance;
    let mut copied = 0;
    // Each round doubles the number of bytes that can be copied.
    while copied < length {
        let count = (distance + copied).min(length - copied);
        decoded.copy_within(start..start + count, out + copied);
        copied += count;
    }
}

/// Encodes `plain` to a BloscLZ stream; `None` if the stream would not be shorter than `limit` bytes.
pub(super) fn compress(plain: &[u8], level: u8, limit: usize) -> Option<Vec<u8>> {
    let mut stream = Vec::with_capacity(limit);
    let mut table = vec![0u32; 1 << HASH_BITS];
    let (mut at, mut literals) = (1.min(plain.len()), 0);
    // In data without matches, the steps of the search grow; at a higher level, they grow more slowly.
    let patience = 4 + u32::from(level);
    let mut misses = 0usize;
    let end = plain.len().saturating_sub(LAST_LITERALS);
    while at + MIN_MATCH <= end {
        let word = u32::from_le_bytes(*plain[at..].first_chunk()?);
        let slot = (word.wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize;
        let candidate = std::mem::replace(&mut table[slot], at as u32) as usize;
        let distance = at - candidate;
        let matches =
            candidate < at && distance <= FAR_DISTANCE && plain[candidate..candidate + 4] == plain[at..at + 4];
        let length = if matches { match_length(&plain[..end], candidate, at) } else { 0 };
        // A far match costs two bytes more.
        if length < MIN_MATCH + if distance > NEAR_DISTANCE { 2 } else { 0 } {
            misses += 1;
            at += 1 + (misses >> patience);
            continue;
        }
        misses = 0;
        push_literals(&mut stream, &plain[literals..at]);
        push_match(&mut stream, length, distance - 1);
        at += length;
        literals = at;
        if stream.len() >= limit {
            return None;
        }
    }
    push_literals(&mut stream, &plain[literals..]);
    (stream.len() < limit).then_some(stream)
}

fn match_length(plain: &[u8], from: usize, at: usize) -> usize {
    plain[from..].iter().zip(&plain[at..]).take_while(|(a, b)| a == b).count()
}

fn push_literals(stream: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(MAX_LITERALS) {
        stream.push((run.len() - 1) as u8);
        stream.extend_from_slice(run);
    }
}

/// Writes a match of `length` bytes that lie `distance` bytes back. `distance` is one less than the number of bytes
/// back.
fn push_match(stream: &mut Vec<u8>, length: usize, distance: usize) {
    let near = distance.min(NEAR_DISTANCE);
    let short = (length - 2).min(7);
    stream.push((short << 5 | near >> 8) as u8);
    if short == 7 {
        let mut more = length - 9;
        while more >= 255 {
            stream.push(255);
            more -= 255;
        }
        stream.push(more as u8);
    }
    stream.push(near as u8);
    if near == NEAR_DISTANCE {
        stream.extend_from_slice(&((distance - NEAR_DISTANCE) as u16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_matches_of_every_length_round_trip() {
        let noise: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (4..600).step_by(7) {
            for gap in [0, 1, 300, 8185, 8192, 8999] {
                let plain = [&noise[..length], &noise[..gap], &noise[..length], &[7; 40]].concat();
                let Some(stream) = compress(&plain, 9, plain.len() + 1000) else { panic!("the limit is wide enough") };
                let mut back = vec![0; plain.len()];
                decompress(&stream, &mut back).unwrap();
                assert_eq!(back, plain, "length {length}, gap {gap}");
            }
        }
    }

    #[test]
    fn matches_before_the_beginning_are_refused() {
        let error = decompress(&[0, 65, 0b0010_0000, 5], &mut [0; 4]).unwrap_err();
        assert!(error.message().contains("reaches 6 bytes back, only 1"), "{error}");
    }
}
