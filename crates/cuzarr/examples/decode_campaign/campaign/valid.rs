//! Intact frames: the device must give every byte back.

use cuzarr::{ErrorKind, Result};
use serde_json::json;

use super::device::{Frame, decode};
use super::random::Random;
use super::{Outcome, Settings, data, parallel, writers};

/// Decoded bytes of a round, about.
const ROUND_BYTES: usize = 192 << 20;

struct Case {
    plain: Vec<u8>,
    written: writers::Written,
    kind: &'static str,
}

fn case(settings: &Settings, round: u64, number: usize) -> Case {
    let mut random = Random::new(&[settings.seed, round, number as u64]);
    let size = random.log_uniform(1, settings.most_bytes) - usize::from(random.one_in(50));
    let kind = random.below(data::KINDS.len());
    let plain = data::plain(kind, size, &mut random);
    let written = writers::write(settings.format, &plain, &mut random);
    Case { plain, written, kind: data::KINDS[kind] }
}

/// Frames of all sizes, decoded together and in batches of few.
///
/// # Errors
/// When the device is lost.
pub fn round(settings: &Settings, round: u64, outcome: &mut Outcome) -> Result<()> {
    let mut random = Random::new(&[settings.seed, round]);
    let mean = settings.most_bytes / (settings.most_bytes.max(3).ilog2() as usize);
    let count = (ROUND_BYTES / mean.max(1)).clamp(1, settings.batch);
    let cases = parallel(count, settings.threads, |number| case(settings, round, number));
    let mut rest = &cases[..];
    while !rest.is_empty() {
        let batch = if random.one_in(2) { rest.len() } else { random.log_uniform(1, rest.len()) };
        let (some, others) = rest.split_at(batch);
        rest = others;
        let frames: Vec<_> =
            some.iter().map(|case| Frame { encoded: &case.written.encoded, decoded_bytes: case.plain.len() }).collect();
        let decoded = decode(settings.device, settings.format, &frames, &mut random)?;
        outcome.batches += 1;
        outcome.slowest_batch = outcome.slowest_batch.max(decoded.took);
        let wrong = parallel(some.len(), settings.threads, |index| {
            let plain = &some[index].plain[..];
            match &decoded.results[index] {
                Err(error) if error.kind() == ErrorKind::Unsupported => None,
                Err(error) => Some(error.to_string()),
                Ok(()) if !decoded.is_untouched_around(index) => Some("wrote outside of its place".to_string()),
                Ok(()) if decoded.frame(index) != plain => {
                    let at = decoded.frame(index).iter().zip(plain).position(|(got, expected)| got != expected);
                    Some(format!("byte {at:?} is wrong"))
                }
                Ok(()) => None,
            }
        });
        for (index, (case, wrong)) in some.iter().zip(wrong).enumerate() {
            outcome.frames += 1;
            outcome.decoded_bytes += case.plain.len() as u64;
            outcome.over_1_mib += u64::from(case.plain.len() > 1 << 20);
            outcome.count(case.written.writer);
            outcome.count(case.kind);
            if decoded.results[index].as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
                outcome.count("left to the host");
            }
            if let Some(wrong) = wrong {
                outcome
                    .fail(json!({"round": round, "seed": settings.seed, "bytes": case.plain.len(), "kind": case.kind,
                    "writer": case.written.writer, "how": case.written.how, "wrong": wrong}));
            }
        }
    }
    Ok(())
}
