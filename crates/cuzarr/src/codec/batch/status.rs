//! Statuses: the numbers in which kernels report whether a frame was decoded, or how it is damaged.

use cuzarr_device::Header;
use cuzarr_device::internal::{STATUS_HEADER, defined};

use crate::codec::damage::corrupt;
use crate::{Error, ErrorKind, Result};

/// The status of a frame whose container or compressor kernels do not decode.
const OTHER_FORMAT: u32 = defined(STATUS_HEADER.text, "CUZARR_OTHER_FORMAT");
const WRONG_CHECKSUM: u32 = defined(STATUS_HEADER.text, "CUZARR_WRONG_CHECKSUM");

/// Reads the status codes that a CUDA header defines, each with its message.
fn codes(header: &Header) -> impl Iterator<Item = (u32, &'static str)> {
    header.text.lines().filter_map(|line| {
        let (code, words) = line.strip_prefix("#define CUZARR_")?.split_once("// ")?;
        Some((code.split_whitespace().nth(1)?.strip_suffix('u')?.parse().ok()?, words))
    })
}

/// Turns the status that a kernel wrote for a frame into a result with an error message. The lowest byte is the code of
/// the damage. The bits above it hold 2³² - 1 minus the position of the damage in the frame. `damages` are headers with
/// codes beyond the common ones.
pub(crate) fn result_of(status: u64, damages: &[Header]) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let (at, code) = (u32::MAX - (status >> 8) as u32, status as u32 & 255);
    let mut known = [STATUS_HEADER].iter().chain(damages).flat_map(codes);
    let words = known.find(|(known, _)| *known == code).map_or("damaged in an unknown way", |(_, words)| words);
    let message = format!("byte {at}: {words}");
    Err(match code {
        OTHER_FORMAT => Error::new(ErrorKind::Unsupported, message),
        WRONG_CHECKSUM => Error::new(ErrorKind::ChecksumMismatch, message),
        _ => corrupt(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::registry::device_decoder;

    #[test]
    fn every_code_has_words_and_one_meaning() {
        let blosc = device_decoder("blosc").unwrap();
        let headers: Vec<Header> = [STATUS_HEADER].iter().chain(blosc.damages()).copied().collect();
        let mut seen = std::collections::BTreeMap::new();
        for header in &headers {
            let defined =
                header.text.lines().filter(|line| line.starts_with("#define ") && !line.ends_with("INTACT 0u"));
            assert_eq!(defined.count(), codes(header).count(), "{}: a code without words", header.name);
            for (code, words) in codes(header) {
                assert!((1..256).contains(&code) && (code < 32) == (header.name == STATUS_HEADER.name), "{code}");
                assert_eq!(seen.insert(code, words), None, "{code} means two things");
            }
        }
        assert!(seen.len() >= 18, "{seen:?}");
        for decoder in ["zstd", "gzip"].map(|name| device_decoder(name).unwrap()) {
            assert!(decoder.damages().iter().all(|own| blosc.damages().iter().any(|known| known.name == own.name)));
        }
    }

    #[test]
    fn statuses_become_errors_that_name_the_byte() {
        let of = |code: u64| result_of((u64::from(u32::MAX) - 7) << 8 | code, &[]).unwrap_err();
        assert_eq!((of(1).kind(), of(1).message()), (ErrorKind::ChunkCorrupt, "byte 7: the stream is cut off"));
        assert_eq!(of(9).kind(), ErrorKind::Unsupported);
        assert_eq!(of(11).kind(), ErrorKind::ChecksumMismatch);
        assert_eq!(of(250).message(), "byte 7: damaged in an unknown way");
        assert!(result_of(0, &[]).is_ok());
    }
}
