//! Checksum codecs, which put four bytes before or after the data: `crc32c`, `crc32`, `adler32` and `fletcher32`.

use std::borrow::Cow;

use cuzarr_device::internal::checksum;

use super::configuration::Configuration;
use super::damage::{above_limit, corrupt, expect_encoded_size};
use super::host::BytesToBytes;
use super::size::Size;
use super::step::{CHECKSUM_BYTES, Location, Step};
use crate::{Error, ErrorKind, Result};

/// Reads where the checksum stands from the configuration member `location`, which numcodecs has since version 0.13.
pub(crate) fn location(configuration: &Configuration<'_>, default: Location) -> Result<Location> {
    let choices = [("start", Location::Start), ("end", Location::End)];
    Ok(configuration.choice("location", &choices)?.unwrap_or(default))
}

/// Returns `data` with `checksum` before or after it.
pub(crate) fn seal(data: &[u8], checksum: u32, location: Location) -> Vec<u8> {
    let checksum = checksum.to_le_bytes();
    match location {
        Location::Start => [&checksum, data].concat(),
        Location::End => [data, &checksum].concat(),
    }
}

/// A codec that adds a checksum to each chunk, and verifies it.
#[derive(Debug)]
pub(crate) struct Checksum {
    pub(crate) name: &'static str,
    /// The checksum that kernels compute for this codec.
    pub(crate) kind: checksum::Checksum,
    pub(crate) location: Location,
    pub(crate) compute: fn(&[u8]) -> u32,
}

impl BytesToBytes for Checksum {
    fn name(&self) -> &str {
        self.name
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.plus(CHECKSUM_BYTES as u64)
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len().saturating_add(CHECKSUM_BYTES))?;
        decoded.copy_from_slice(self.check(encoded)?);
        Ok(())
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let payload = self.check(encoded)?;
        match payload.len() as u64 > limit_bytes {
            true => Err(above_limit(payload.len(), limit_bytes)),
            false => Ok(payload.to_vec()),
        }
    }

    fn view<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8]>> {
        Some(self.check(encoded))
    }

    fn native(&self, _decoded: Size) -> Option<Step> {
        Some(Step::Check { checksum: self.kind, location: self.location })
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let checksum = (self.compute)(&decoded);
        match self.location {
            Location::Start => Ok(seal(&decoded, checksum, Location::Start)),
            Location::End => {
                let mut encoded = decoded.into_owned();
                encoded.extend_from_slice(&checksum.to_le_bytes());
                Ok(encoded)
            }
        }
    }
}

impl Checksum {
    fn check<'a>(&self, encoded: &'a [u8]) -> Result<&'a [u8]> {
        let parts = match self.location {
            Location::Start => encoded.split_first_chunk::<CHECKSUM_BYTES>(),
            Location::End => encoded.split_last_chunk::<CHECKSUM_BYTES>().map(|(payload, stored)| (stored, payload)),
        };
        let Some((stored, payload)) = parts else {
            return Err(corrupt(format!("got {} bytes, expected a checksum of {CHECKSUM_BYTES}", encoded.len())));
        };
        let (stored, computed) = (u32::from_le_bytes(*stored), (self.compute)(payload));
        match stored == computed {
            true => Ok(payload),
            false => Err(Error::new(
                ErrorKind::ChecksumMismatch,
                format!("stored checksum is {stored:08x}, that of the {} bytes is {computed:08x}", payload.len()),
            )),
        }
    }
}
