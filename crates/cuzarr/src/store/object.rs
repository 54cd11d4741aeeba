//! Opened values of a store, of which ranges are read like those of a file.

use std::ops::Range;

use cuzarr_device::{Buffer, Device};

use super::Version;
use crate::error::Result;

/// A value of a store that was opened for reading, such as an open file.
pub(super) trait Object: Send + Sync {
    fn size_bytes(&self) -> u64;

    /// The version of the value when it was opened; `None` if it is not known.
    fn version(&self) -> Option<Version> {
        None
    }

    /// Fills `bytes` with the value's bytes from `offset` on, counted from the beginning of the value. The caller has
    /// checked the range against `size_bytes`.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()>;

    /// Returns the bytes of `range` of the value in memory of `device`: in the value's own memory, or copied to memory
    /// from `reserve`. `None` if the bytes must go through the host.
    fn on_device(
        &self,
        _device: Device,
        _range: Range<u64>,
        _reserve: &dyn Fn() -> Result<Buffer>,
    ) -> Result<Option<Buffer>> {
        Ok(None)
    }

    /// Whether several threads may fill the parts of one large read of this value.
    fn is_divisible(&self) -> bool {
        true
    }

    /// Fails if the value's bytes were overwritten since it was opened.
    fn check_unchanged(&self) -> Result<()>;
}
