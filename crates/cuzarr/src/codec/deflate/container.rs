//! The container around a deflate stream (gzip, zlib or none), and constants for all kernels that decode deflate.

use cuzarr_device::internal::{defined, stated_size};
use cuzarr_device::{Header, header};

pub(super) const TEXT: &str = include_str!("deflate_container.cuh");

/// The CUDA header with the codes that kernels report for damaged deflate streams.
pub(crate) const DAMAGE: Header = header!("codec/deflate/deflate_damage.cuh");
/// CUDA headers in `codec/deflate` that kernels include.
pub(super) const HEADERS: &[Header] = &[
    header!("codec/deflate/deflate.cuh"),
    header!("codec/deflate/deflate_bits.cuh"),
    header!("codec/deflate/deflate_container.cuh"),
    DAMAGE,
    header!("codec/deflate/deflate_matches.cuh"),
    header!("codec/deflate/deflate_tables.cuh"),
    header!("codec/deflate/split/deflate_split.cuh"),
];

/// Bytes of a `DeflateState`, in which kernels keep how far a frame is decoded.
pub(super) const STATE_BYTES: usize = stated_size(include_str!("split/deflate_split.cuh"), "DeflateState");

/// The container around a deflate stream: gzip, zlib or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Raw = defined(TEXT, "CUZARR_DEFLATE_RAW") as isize,
    Zlib = defined(TEXT, "CUZARR_DEFLATE_ZLIB") as isize,
    Gzip = defined(TEXT, "CUZARR_DEFLATE_GZIP") as isize,
}
