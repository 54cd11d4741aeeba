//! Damaged frames: what the host refuses the device must refuse, and what both take must be the same bytes.

use super::Format;
use cuzarr::{Error, ErrorKind, Result};
use serde_json::json;

use super::device::{Decoded, Frame, decode};
use super::random::Random;
use super::{Outcome, Settings, damage, data, parallel, reference, writers};

/// Intact frames that a round damages, again and again.
const BASES: usize = 256;
/// A round of few large frames at a time has so many batches.
const SMALL_BATCHES: usize = 48;

/// What the formats call damage, and libraries on the host take: `docs/notes/promises.md` lists it.
const STRICTER: [&str; 6] = [
    "offset 0",
    "does not end where",
    "do not make a code",
    "bits that match no code",
    "are allowed",
    "its frame's window",
];

struct Base {
    encoded: Vec<u8>,
    decoded_bytes: usize,
}

struct Case {
    encoded: Vec<u8>,
    decoded_bytes: usize,
    expected: Result<Vec<u8>>,
    how: &'static str,
}

fn base(settings: &Settings, round: u64, number: usize, sizes: (usize, usize)) -> Base {
    let mut random = Random::new(&[settings.seed, round, 1, number as u64]);
    let size = random.log_uniform(sizes.0, sizes.1);
    let plain = data::plain(random.below(data::KINDS.len()), size, &mut random);
    Base { encoded: writers::write(settings.format, &plain, &mut random).encoded, decoded_bytes: size }
}

fn case(settings: &Settings, bases: &[Base], round: u64, number: usize) -> Case {
    let (format, mut random) = (settings.format, Random::new(&[settings.seed, round, 2, number as u64]));
    let (base, other) = (&bases[random.below(bases.len())], &bases[random.below(bases.len())]);
    let (mut encoded, mut decoded_bytes) = (base.encoded.clone(), base.decoded_bytes);
    let mut how = damage::damage(format, &mut encoded, &other.encoded, &mut random);
    if random.one_in(4) {
        how = damage::damage(format, &mut encoded, &other.encoded, &mut random);
    }
    // Metadata says what it says; half of the time that is what the damaged frame holds, so that it is not refused for that.
    match random.below(16) {
        0 => decoded_bytes = decoded_bytes.saturating_add_signed(random.pick(&[-1, 1, 7, -64, 256])),
        1..9 => {
            let most = 2 * settings.most_bytes.min(4 * base.decoded_bytes + 1000);
            if let Some(size) = reference::decoded_bytes(format, &encoded, most) {
                decoded_bytes = size;
                reference::mend(format, &mut encoded, size);
            }
        }
        _ => {}
    }
    let expected = reference::decode(format, &encoded, decoded_bytes);
    Case { encoded, decoded_bytes, expected, how }
}

/// zlib-rs, which the host asks second, compares the checksum of a header where there is one; libdeflate and Python do not.
fn has_header_checksum(encoded: &[u8]) -> bool {
    encoded.windows(4).any(|header| header[..3] == [0x1f, 0x8b, 8] && header[3] & 2 != 0)
}

/// What is wrong with the device's answer, or what came of the frame.
fn judge(format: Format, case: &Case, decoded: &Decoded, index: usize) -> std::result::Result<&'static str, String> {
    if !decoded.is_untouched_around(index) {
        return Err("wrote outside of its place".to_string());
    }
    let stricter = |error: &Error| STRICTER.iter().find(|what| error.message().contains(*what));
    match (&decoded.results[index], &case.expected) {
        (Ok(()), Ok(expected)) if decoded.frame(index) == expected => Ok("both take"),
        (Ok(()), Ok(expected)) => {
            let at = decoded.frame(index).iter().zip(expected).position(|(got, expected)| got != expected);
            Err(format!("byte {at:?} differs from the host's"))
        }
        (Ok(()), Err(_)) if format == Format::Gzip && has_header_checksum(&case.encoded) => {
            Ok("a checksum of gzip's header, which kernels ignore")
        }
        (Ok(()), Err(error)) => Err(format!("decodes, on the host: {error}")),
        (Err(error), _) if error.kind() == ErrorKind::Unsupported => Ok("left to the host"),
        (Err(error), Err(_)) if [ErrorKind::ChunkCorrupt, ErrorKind::ChecksumMismatch].contains(&error.kind()) => {
            Ok("both refuse")
        }
        (Err(error), Ok(_)) => match stricter(error) {
            Some(what) => Ok(*what),
            None if error.message().contains("bytes follow") && reference::ends_in_a_match(format, &case.encoded) => {
                Ok("fewer than five literals at the end")
            }
            None if format == Format::Gzip && !reference::is_gzip_throughout(&case.encoded, case.decoded_bytes) => {
                Ok("more behind a member, which the host ignores")
            }
            None => Err(format!("the host decodes it, here: {error}")),
        },
        (Err(error), Err(_)) => Err(format!("an error of another kind: {error}")),
    }
}

/// Most bytes of a frame that is told.
const TOLD_BYTES: usize = 400;

/// Decodes cases together, of which the first has the number `first` in its round.
fn together(
    settings: &Settings,
    round: u64,
    first: usize,
    cases: &[Case],
    random: &mut Random,
    outcome: &mut Outcome,
) -> Result<()> {
    let frames: Vec<_> =
        cases.iter().map(|case| Frame { encoded: &case.encoded, decoded_bytes: case.decoded_bytes }).collect();
    let decoded = decode(settings.device, settings.format, &frames, random)?;
    outcome.batches += 1;
    outcome.slowest_batch = outcome.slowest_batch.max(decoded.took);
    let judged =
        parallel(cases.len(), settings.threads, |index| judge(settings.format, &cases[index], &decoded, index));
    for (index, (case, judged)) in cases.iter().zip(judged).enumerate() {
        outcome.frames += 1;
        outcome.decoded_bytes += case.decoded_bytes as u64;
        outcome.count(case.how);
        match judged {
            Ok(what) => outcome.count(what),
            Err(wrong) => {
                let told = &case.encoded[..case.encoded.len().min(TOLD_BYTES)];
                let hex: String = told.iter().map(|byte| format!("{byte:02x}")).collect();
                outcome.fail(
                    json!({"round": round, "seed": settings.seed, "frame": first + index, "together": cases.len(),
                    "damage": case.how, "decoded_bytes": case.decoded_bytes, "encoded_bytes": case.encoded.len(),
                    "wrong": wrong, "bytes": hex}),
                );
            }
        }
    }
    Ok(())
}

/// One large batch of small frames, or many batches of few and larger ones, which are decoded another way.
///
/// # Errors
/// When the device is lost.
pub fn round(settings: &Settings, round: u64, outcome: &mut Outcome) -> Result<()> {
    let mut random = Random::new(&[settings.seed, round, 3]);
    let few = round % 4 == 3;
    let sizes = |number: usize| match (few, number % 16) {
        (true, _) => (1 + settings.most_bytes / 64, settings.most_bytes),
        (false, 0) => (1, settings.most_bytes / 16),
        (false, _) => (1, settings.most_bytes / 256),
    };
    let bases = if few { BASES / 4 } else { BASES }.min(1 + settings.batch / 8);
    let bases = parallel(bases, settings.threads, |number| base(settings, round, number, sizes(number)));
    let count = if few { (12 * SMALL_BATCHES).min(settings.batch) } else { settings.batch };
    let numbers = settings.frame.map_or(0..count, |frame| frame.saturating_sub(1)..(frame + 2).min(count));
    let cases = parallel(numbers.len(), settings.threads, |at| case(settings, &bases, round, numbers.start + at));
    if settings.frame.is_some() {
        for case in &cases {
            let hex: String = case.encoded.iter().map(|byte| format!("{byte:02x}")).collect();
            let answer = case.expected.as_ref().map_or_else(ToString::to_string, |_| "decoded".to_string());
            eprintln!("{} {} bytes: {hex}: on the host: {answer}", case.how, case.decoded_bytes);
        }
    }
    let (mut rest, mut first) = (&cases[..], numbers.start);
    while !rest.is_empty() {
        let batch =
            if few && settings.frame.is_none() { random.log_uniform(1, 32).min(rest.len()) } else { rest.len() };
        let (some, others) = rest.split_at(batch);
        together(settings, round, first, some, &mut random, outcome)?;
        (rest, first) = (others, first + batch);
    }
    Ok(())
}
