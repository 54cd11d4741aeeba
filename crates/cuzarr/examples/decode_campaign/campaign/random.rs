//! Numbers that look random and follow from a seed.

/// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers of their own for each of `seeds`.
    pub fn new(seeds: &[u64]) -> Random {
        let mut random = Random(0);
        for seed in seeds {
            random.0 ^= seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
            random.0 = random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// From 0 up to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `least` to `most`, as often in each octave.
    pub fn log_uniform(&mut self, least: usize, most: usize) -> usize {
        let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64 + 1.0).ln());
        ((low + self.unit() * (high - low)).exp() as usize).clamp(least, most)
    }
}
