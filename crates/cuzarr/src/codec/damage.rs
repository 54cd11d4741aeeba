//! Makes errors about encoded bytes, and reads decoded bytes without taking more memory than metadata allows.

use std::fmt;
use std::io::Read;

use crate::{Error, ErrorKind, Result};

/// Makes the error for encoded bytes that are damaged.
pub(crate) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::ChunkCorrupt, message)
}

/// Makes the error for data that a codec cannot encode.
pub(crate) fn unencodable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::EncodeFailed, message)
}

/// Refuses a decoded size other than the expected one.
pub(crate) fn expect_size(got: usize, expected: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(corrupt(format!("decodes to {got} bytes, expected {expected}"))),
    }
}

/// Refuses an encoded size other than the expected one.
pub(crate) fn expect_encoded_size(got: usize, expected: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(corrupt(format!("got {got} encoded bytes, expected {expected}"))),
    }
}

/// Makes the error for bytes that decode to more than the caller's limit.
pub(crate) fn above_limit(got: impl fmt::Display, limit_bytes: u64) -> Error {
    let message = format!("decodes to {got} bytes, at most {limit_bytes} are allowed");
    Error::new(ErrorKind::BudgetExceeded, message)
}

/// Turns the error for too many decoded bytes ([`above_limit`]) into `ChunkCorrupt`. For limits that
/// come from metadata: such a limit cannot be too low, so the chunk is damaged.
pub(crate) fn above_bound(error: Error) -> Error {
    if error.kind() == ErrorKind::BudgetExceeded { corrupt(error.message()) } else { error }
}

/// Reads everything that a decoder gives; an error if that is more than `limit_bytes`. Memory grows with the bytes that
/// the decoder really returns.
pub(crate) fn read_to_limit(decoder: impl Read, limit_bytes: u64) -> Result<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bounded = decoder.take(limit_bytes.saturating_add(1));
    bounded.read_to_end(&mut decoded).map_err(|error| corrupt(error.to_string()))?;
    match decoded.len() as u64 > limit_bytes {
        true => Err(above_limit("more", limit_bytes)),
        false => Ok(decoded),
    }
}

/// Reads exactly `decoded.len()` bytes from a decoder; an error if it gives fewer or more.
pub(crate) fn read_exactly(mut decoder: impl Read, decoded: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < decoded.len() {
        match decoder.read(&mut decoded[filled..]).map_err(|error| corrupt(error.to_string()))? {
            0 => return expect_size(filled, decoded.len()),
            count => filled += count,
        }
    }
    match decoder.read(&mut [0]).map_err(|error| corrupt(error.to_string()))? {
        0 => Ok(()),
        _ => Err(corrupt(format!("decodes to more than the expected {filled} bytes"))),
    }
}
