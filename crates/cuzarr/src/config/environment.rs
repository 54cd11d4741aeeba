//! The environment of the process: its number of cores, and environment variables.

use std::str::FromStr;
use std::sync::OnceLock;

use crate::error::{Error, ErrorKind, Result};

/// Number of threads that this process can run at once. The system is asked only once: on Linux the answer comes from
/// files, and takes longer than reading a small chunk.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The environment variable of a key: `array.order` is `CUZARR_ARRAY__ORDER`.
pub fn environment_variable(name: &str) -> String {
    format!("CUZARR_{}", name.replace('.', "__").to_ascii_uppercase())
}

/// Parses a number of bytes as people write it: `1048576`, `1 MiB`, `0.5GB`, `64k`. With an `i`, the letters `K` to `T`
/// are powers of 1024, else of 1000.
///
/// # Errors
/// `ConfigInvalid` when the text is not a size, or not a whole number of bytes below 2⁶⁴.
pub fn parse_bytes(text: &str) -> Result<u64> {
    size(text).ok_or_else(|| {
        Error::new(ErrorKind::ConfigInvalid, format!("got '{text}', expected a number of bytes, as in '8 GiB'"))
    })
}

pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor: u64 = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1,
        "k" => 1000,
        "ki" => 1 << 10,
        "m" => 1_000_000,
        "mi" => 1 << 20,
        "g" => 1_000_000_000,
        "gi" => 1 << 30,
        "t" => 1_000_000_000_000,
        "ti" => 1 << 40,
        _ => return None,
    };
    let number = number.replace('_', "");
    if let Ok(whole) = u64::from_str(&number) {
        return whole.checked_mul(factor);
    }
    let bytes = f64::from_str(&number).ok()? * factor as f64;
    // Up to 2⁵³, every whole number is exact as an f64.
    (bytes.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&bytes)).then_some(bytes as u64)
}
