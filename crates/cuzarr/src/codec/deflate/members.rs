//! Finds the members of a gzip frame. Members of bgzip say where they end, in a subfield `BC` of the header's extra
//! field (SAM/BAM specification, section 4.1). Other members are guessed: their bytes look like a header, and the
//! decoded sizes of all members add up to the frame's. The answer is only a hint: members are decoded side by side, and
//! a frame with a wrong hint is decoded in order.

use std::ops::Range;

use crate::codec::batch::Unit;

/// Bytes of a gzip member's header up to its extra field. The trailer has `TRAILER_BYTES`.
const HEADER_BYTES: usize = 12;
const TRAILER_BYTES: usize = 8;
/// Maximum number of gzip members in a frame that is split into members, besides one for each `BYTES_PER_MEMBER` bytes.
/// bgzip's members have about 20 KiB.
const MOST_MEMBERS: usize = 64;
const BYTES_PER_MEMBER: usize = 512;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<N>()?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
}

/// The size in bytes of the gzip member at the beginning of `member`, if its header states it.
fn size_of(member: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, ..] = member else { return None };
    if flags & 4 == 0 {
        return None;
    }
    let extra = member.get(HEADER_BYTES..HEADER_BYTES + number::<2>(member, 10)?)?;
    let mut at = 0;
    while let Some(size) = number::<2>(extra, at + 2) {
        if extra[at..].starts_with(b"BC\x02\x00") {
            return Some(number::<2>(extra, at + 4)? + 1);
        }
        at += 4 + size;
    }
    None
}

/// The size in bytes of the gzip member that begins at `start`, by a search for the next member's header. It ends where
/// the next bytes look like a header, if the four bytes before them (its decoded size) are not 0. (An empty member's
/// size would say nothing.) The last member has all bytes that are left.
fn size_by_next_header(encoded: &[u8], start: usize) -> usize {
    let looks_like_one = |at: usize| {
        let [0x1f, 0x8b, 8, flags, ..] = encoded[at..] else { return false };
        flags & 0xe0 == 0 && number::<4>(encoded, at - 4) != Some(0)
    };
    let least = HEADER_BYTES + TRAILER_BYTES - 2;
    let next = (start + least..encoded.len()).find(|&at| encoded[at] == 0x1f && looks_like_one(at));
    next.unwrap_or(encoded.len()) - start
}

/// Finds the gzip members of a frame whose bytes are `encoded`. `None` unless there are several that decode to exactly
/// the unit's size.
pub(super) fn members(encoded: &[u8], unit: &Unit) -> Option<Vec<Unit>> {
    // If the last size is the unit's size, there is only one member, so no search is needed.
    let last = number::<4>(encoded, encoded.len().checked_sub(4)?)?;
    let told = |at: usize| size_of(&encoded[at..]).filter(|&size| size >= HEADER_BYTES + TRAILER_BYTES);
    let found = |at: usize| Some(size_by_next_header(encoded, at));
    let searched = || if last < unit.dst.len() { members_of_sizes(encoded, unit, found) } else { None };
    members_of_sizes(encoded, unit, told).or_else(searched)
}

fn members_of_sizes(encoded: &[u8], unit: &Unit, size_at: impl Fn(usize) -> Option<usize>) -> Option<Vec<Unit>> {
    let (mut members, mut at, mut decoded) = (Vec::new(), 0, 0);
    while at < encoded.len() {
        let size = size_at(at)?;
        if members.len() > MOST_MEMBERS + encoded.len() / BYTES_PER_MEMBER {
            return None;
        }
        let content = number::<4>(encoded.get(at..at + size)?, size - 4)?;
        if content > unit.dst.len() - decoded {
            return None;
        }
        let moved = |range: Range<usize>, by: usize| range.start + by..range.end + by;
        members.push(Unit {
            src: moved(at..at + size, unit.src.start),
            dst: moved(decoded..decoded + content, unit.dst.start),
        });
        (at, decoded) = (at + size, decoded + content);
    }
    (members.len() > 1 && decoded == unit.dst.len()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(content: usize, body: usize) -> Vec<u8> {
        let mut member = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 3, 11, 0];
        // Another subfield in front.
        member.extend(*b"XY\x01\x00zBC\x02\x00");
        let size = member.len() + 2 + body + TRAILER_BYTES;
        member.extend((size as u16 - 1).to_le_bytes());
        member.resize(member.len() + body + 4, 7);
        member.extend((content as u32).to_le_bytes());
        member
    }

    #[test]
    fn members_are_found_by_their_sizes() {
        let encoded = [member(10, 3), member(0, 2), member(5, 40)].concat();
        let unit = Unit { src: 100..100 + encoded.len(), dst: 50..65 };
        let found = members(&encoded, &unit).unwrap();
        assert_eq!(found.iter().map(|unit| unit.dst.clone()).collect::<Vec<_>>(), [50..60, 60..60, 60..65]);
        assert_eq!(found.iter().map(|unit| unit.src.len()).sum::<usize>(), encoded.len());
        assert_eq!(found[2].src.end, 100 + encoded.len());
    }

    /// Makes a gzip member without optional header fields, for tests.
    fn plain_member(content: usize, body: &[u8]) -> Vec<u8> {
        let size = (content as u32).to_le_bytes();
        [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], body, &[9; 4], &size].concat()
    }

    #[test]
    fn members_that_do_not_tell_their_sizes_are_found_by_their_headers() {
        let parts =
            [plain_member(10, &[7; 3]), plain_member(0, &[7]), plain_member(300, &[7; 40]), plain_member(5, &[])];
        let encoded = parts.concat();
        let unit = Unit { src: 100..100 + encoded.len(), dst: 50..365 };
        let found = members(&encoded, &unit).unwrap();
        // The empty one is taken together with the one after it.
        assert_eq!(found.iter().map(|unit| unit.dst.clone()).collect::<Vec<_>>(), [50..60, 60..360, 360..365]);
        let starts = [100, 100 + parts[0].len(), 100 + encoded.len() - parts[3].len()];
        assert_eq!(found.iter().map(|unit| unit.src.start).collect::<Vec<_>>(), starts);
        assert_eq!(found[2].src.end, unit.src.end);
        // Bytes inside of a member that look like a header make the sizes too large.
        let within = [9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 0, 0, 0, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0];
        let encoded = [plain_member(10, &within), plain_member(5, &[])].concat();
        assert!(members(&encoded, &Unit { src: 0..encoded.len(), dst: 0..15 }).is_none());
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        let encoded = [member(10, 3), member(5, 40)].concat();
        let of = |encoded: &[u8], size| members(encoded, &Unit { src: 0..encoded.len(), dst: 0..size });
        assert!(of(&encoded, 15).is_some());
        assert!(of(&encoded, 14).is_none() && of(&encoded, 16).is_none());
        assert!(of(&encoded[..encoded.len() - 1], 15).is_none());
        assert!(of(&[&encoded[..], &[0]].concat(), 15).is_none());
        assert!(of(&member(10, 3), 10).is_none());
        (0..encoded.len()).for_each(|cut| assert!(of(&encoded[..cut], 15).is_none()));
    }
}
