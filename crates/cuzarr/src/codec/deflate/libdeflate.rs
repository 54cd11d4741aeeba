//! Keeps a compressor and a decompressor of libdeflate in each thread, so that later chunks use them again.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::Result;
use crate::codec::damage::unencodable;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::default();
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

/// Runs `work` with a libdeflate decompressor that this thread keeps.
pub(crate) fn with_decompressor<T>(
    work: impl FnOnce(&mut Decompressor) -> Result<T, DecompressionError>,
) -> Result<T, DecompressionError> {
    DECOMPRESSOR.with_borrow_mut(work)
}

/// Runs `work` with a libdeflate compressor of `level` that this thread keeps.
pub(crate) fn with_compressor<T>(level: i32, work: impl FnOnce(&mut Compressor) -> Result<T>) -> Result<T> {
    let wanted = CompressionLvl::new(level).map_err(|_| unencodable(format!("level {level} does not exist")))?;
    COMPRESSOR.with_borrow_mut(|kept| {
        let kept = match kept {
            Some(kept) if kept.0 == level => kept,
            other => other.insert((level, Compressor::new(wanted))),
        };
        work(&mut kept.1)
    })
}
