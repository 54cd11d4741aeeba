//! What kernels say about each unit.

use crate::codec::damage::corrupt;
use crate::{Error, ErrorKind, Result};

/// Bytes of a status.
pub(crate) const STATUS_BYTES: usize = 8;

/// What is wrong, by the code that a kernel reported. `cuzarr/status.cuh` names the same.
fn damage(code: u64) -> &'static str {
    match code {
        1 => "the stream is cut off",
        2 => "a match has the offset 0",
        3 => "a match begins before the stream's first byte",
        4 => "the stream decodes to more than its place",
        5 => "the stream decodes to less than its place",
        6 => "bytes follow the end of the stream",
        7 => "the header says another decoded size than expected",
        8 => "the header says what cannot be",
        10 => "a block or stream there leaves the frame",
        12 => "the element there has no value in the array's data type",
        32 => "a table of codes cannot be",
        33 => "a stream of codes does not end where its bits do",
        34 => "a block decodes to more than 128 KiB, or than its frame's window",
        64 => "the lengths of a block's codes are no code",
        65 => "bits that no code has",
        66 => "a block of no known type, or a stored one whose size contradicts itself",
        _ => "damaged in an unknown way",
    }
}

/// A container or compressor that kernels do not decode.
const OTHER_FORMAT: u64 = 9;

const WRONG_CHECKSUM: u64 = 11;

/// What a status means: the damage in the lowest byte, above it how far its place is from 2³² - 1.
pub(crate) fn result_of(status: u64) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let at = u32::MAX - (status >> 8) as u32;
    match status & 255 {
        OTHER_FORMAT => {
            let message = format!("byte {at}: a container or compressor that kernels do not decode");
            Err(Error::new(ErrorKind::Unsupported, message))
        }
        WRONG_CHECKSUM => {
            let message = format!("byte {at}: the checksum there is not that of the data");
            Err(Error::new(ErrorKind::ChecksumMismatch, message))
        }
        code => Err(corrupt(format!("byte {at}: {}", damage(code)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_host_name_the_same_damage() {
        let header = include_str!("../../../../cuzarr-device/kernels/include/cuzarr/status.cuh");
        let codes = header.lines().filter_map(|line| line.strip_prefix("#define CUZARR_")).filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_suffix('u')?.parse::<u64>().ok()?))
        });
        let codes: Vec<_> = codes.filter(|&(_, code)| code > 0).collect();
        assert!(codes.len() >= 10, "{codes:?}");
        for (name, code) in codes {
            assert!(code < 256, "{name}");
            let message = result_of(code).unwrap_err();
            assert!(!message.message().contains("unknown"), "{name} {code}: {message}");
        }
    }
}
