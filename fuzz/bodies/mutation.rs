//! Damage at random, for tests under stable Rust, which have no fuzzing engine.

use std::ops::Range;

/// xorshift64*: https://doi.org/10.1145/2845077
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        if limit == 0 { 0 } else { mixed as usize % limit }
    }
}

/// Damages each seed `rounds` times, and hands the results to `check`, which says how often they were accepted. Panics unless some
/// were accepted and some refused: both ways must have been gone.
pub fn campaign<S: AsRef<[u8]>>(seeds: &[S], tokens: &[&str], rounds: usize, mut check: impl FnMut(&[u8]) -> usize) {
    let mut random = Random(0x5eed);
    let (mut accepted, mut tried) = (0, 0);
    for seed in seeds {
        assert!(check(seed.as_ref()) > 0, "a seed is refused: {:?}", String::from_utf8_lossy(seed.as_ref()));
        for _ in 0..rounds {
            let mut damaged = seed.as_ref().to_vec();
            for _ in 0..=random.below(3) {
                mutate(&mut damaged, seeds, tokens, &mut random);
            }
            accepted += usize::from(check(&damaged) > 0);
            tried += 1;
        }
    }
    assert!(accepted * 50 > tried && accepted * 50 < tried * 49, "accepted {accepted} of {tried}");
}

/// The range of a token near `at`: up to the next of JSON's own characters on both sides.
fn token_at(text: &[u8], at: usize) -> Range<usize> {
    let ends = |byte: &u8| b",:[]{}\n".contains(byte);
    let start = text[..at].iter().rposition(ends).map_or(0, |last| last + 1);
    let end = text[at..].iter().position(ends).map_or(text.len(), |next| at + next);
    start..end
}

fn mutate<S: AsRef<[u8]>>(text: &mut Vec<u8>, others: &[S], tokens: &[&str], random: &mut Random) {
    let at = random.below(text.len());
    match random.below(7) {
        0 => text.insert(at, random.below(256) as u8),
        1 if !text.is_empty() => drop(text.remove(at)),
        2 if !text.is_empty() => text[at] ^= 1 << random.below(8),
        3 => text.truncate(at),
        4 => {
            let end = (at + random.below(40)).min(text.len());
            let piece = text[at..end].to_vec();
            let to = random.below(text.len());
            text.splice(to..to, piece);
        }
        5 => {
            let other = others[random.below(others.len())].as_ref();
            let from = token_at(other, random.below(other.len()));
            let range = token_at(text, at);
            text.splice(range, other[from].iter().copied());
        }
        _ => {
            let range = token_at(text, at);
            text.splice(range, tokens[random.below(tokens.len())].bytes());
        }
    }
}
