//! Parsers for values of options, with our own error messages.

use cuzarr::internal::parse_bytes;

/// Parses a number of bytes, such as `8 GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|_| "expected a number of bytes, as in '8 GiB'".to_string())
}

/// Parses the value of an option as a number.
pub fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "expected a number".to_string())
}

/// Parses the value of an option as a count, which may be 0.
pub fn count(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| "expected a whole number that is not negative".to_string())
}

/// Parses the value of an option as an integer above 0.
pub fn positive(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a whole number above 0".to_string()),
    }
}
