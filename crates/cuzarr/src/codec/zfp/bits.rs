//! Streams of bits: the lowest bit of the first byte first, in words of 64 bits.

/// Minimum number of bits that [`BitReader::peek`] returns.
const PEEKED_BITS: u32 = 57;

/// A reader of numbers of up to 64 bits from a stream of bits. After the end it reads zeros, and
/// [`BitReader::is_past_end`] is true.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// How many bits of the stream were read.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// The next [`PEEKED_BITS`] bits or some more, which are not skipped.
    fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        u64::from_le_bytes(word) >> (self.at % 8)
    }

    /// Reads the next `count` bits, at most 64, the first one lowest.
    pub(super) fn read(&mut self, count: u32) -> u64 {
        if count > PEEKED_BITS {
            let low = self.read(32);
            return low | self.read(count - 32) << 32;
        }
        let bits = self.peek() & ((1 << count) - 1);
        self.skip(count);
        bits
    }

    /// Counts zero bits up to and including the next 1, but reads no more than `limit` bits. Returns the number of
    /// zeros, and whether the 1 was read.
    pub(super) fn zeros(&mut self, limit: u32) -> (u32, bool) {
        let mut zeros = 0;
        while zeros < limit {
            let run = self.peek().trailing_zeros().min(PEEKED_BITS);
            let room = limit - zeros;
            if run < room.min(PEEKED_BITS) {
                self.skip(run + 1);
                return (zeros + run, true);
            }
            let read = run.min(room);
            self.skip(read);
            zeros += read;
        }
        (zeros, false)
    }

    pub(super) fn skip(&mut self, count: u32) {
        self.at += count as usize;
    }

    /// Whether more bits were read than the stream has.
    pub(super) fn is_past_end(&self) -> bool {
        self.at.div_ceil(8) > self.bytes.len()
    }

    /// Bytes of all words of the stream from which bits were read.
    pub(super) fn read_bytes(&self) -> usize {
        self.at.div_ceil(64) * 8
    }
}

/// A writer of numbers of up to 64 bits to a stream of bits.
#[derive(Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    /// Writes the lowest `count` bits of `bits`, at most 64. Those above must be 0.
    pub(super) fn write(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.held_bits;
        if self.held_bits + count < 64 {
            self.held_bits += count;
            return;
        }
        self.bytes.extend_from_slice(&self.held.to_le_bytes());
        self.held = bits.checked_shr(64 - self.held_bits).unwrap_or(0);
        self.held_bits = self.held_bits + count - 64;
    }

    pub(super) fn write_zeros(&mut self, count: u32) {
        (0..count / 64).for_each(|_| self.write(0, 64));
        self.write(0, count % 64);
    }

    /// Returns the written bytes, filled up with zero bits to whole words.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let last = self.held_bits;
        self.write_zeros((64 - last) % 64);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_as_they_were_written() {
        let pieces: Vec<(u64, u32)> = (0..400u64)
            .map(|at| {
                let count = (at * 7 % 65) as u32;
                (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) & u64::MAX.checked_shr(64 - count).unwrap_or(0), count)
            })
            .collect();
        let mut writer = BitWriter::default();
        pieces.iter().for_each(|&(bits, count)| writer.write(bits, count));
        writer.write_zeros(130);
        writer.write(1, 1);
        let bytes = writer.finish();
        let mut reader = BitReader::new(&bytes);
        assert!(pieces.iter().all(|&(bits, count)| reader.read(count) == bits));
        assert_eq!(reader.zeros(100), (100, false));
        assert_eq!(reader.zeros(31), (30, true));
        assert_eq!(reader.read_bytes(), bytes.len());
        assert!(!reader.is_past_end());
        reader.read(64);
        assert!(reader.is_past_end() && reader.read(64) == 0);
    }
}
