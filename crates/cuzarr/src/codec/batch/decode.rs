//! The seam between batches and the formats they hold: a format prepares units into a [`Decode`], a batch runs it.
//!
//! A format offers, in its `cuda.rs`,
//!
//! ```text
//! pub(crate) fn prepare(request: &Request<'_>) -> Result<Prepared>
//! ```
//!
//! and [`super::Format`] names it. Nothing but ranges connects a decoder with where its bytes lie, so a container's decoder
//! (Blosc) prepares its inner streams as units of another format, whose targets are its own scratch, and launches that
//! before its own kernels.

use std::ops::Range;

use cuzarr_device::{Buffer, Device, Stream};

use crate::codec::zstd;
use crate::{Error, Result};

/// One frame: where its encoded bytes lie, and where its decoded bytes, exactly so many, go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Range of bytes in the source.
    pub src: Range<usize>,
    /// Range of bytes in the target; those of different units must not overlap.
    pub dst: Range<usize>,
}

/// What a format gets to prepare. Every range was checked: inside its buffer, and below 2 GiB.
pub(crate) struct Request<'a> {
    pub(crate) device: Device,
    pub(crate) units: &'a [Unit],
    /// The whole source as bytes of the host, when they are at hand. A format that [`super::Format::scans_on_host`] always
    /// gets them.
    pub(crate) host: Option<&'a [u8]>,
    /// The headers of all units where they were read before ([`super::Format::headers`]); else none.
    pub(crate) headers: &'a [Headers],
}

/// What the headers of one frame say, for formats whose headers take long to read: so that each frame's are read by the thread
/// that brought it, when it came.
pub(crate) enum Headers {
    /// Read again while a batch is prepared.
    Plain,
    Zstd(zstd::cuda::Headers),
}

/// Units that are ready to be decoded.
pub(crate) struct Prepared {
    pub(crate) decode: Box<dyn Decode>,
    /// What the host found wrong already: number of the unit, and why. The decoder leaves these out.
    pub(crate) refused: Vec<(usize, Error)>,
}

/// Decodes what it was prepared for, as often as it is launched.
pub(crate) trait Decode: Send + Sync {
    /// Most device memory that a launch takes beside source, target and statuses. Launches take it from
    /// [`cuzarr_device::pool`] in the order of the stream, so batches that follow each other use it again.
    fn scratch_bytes(&self) -> usize;

    /// Puts the decoding on the stream, without waiting for anything. Damage is told by statuses (`super::status`).
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    fn launch(&self, task: &Task<'_>) -> Result<()>;
}

/// One launch of a [`Decode`].
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) src: &'a Buffer,
    pub(crate) dst: &'a Buffer,
    /// A `u64` for each unit, 0 before the launch: see `report` in `cuzarr/status.cuh`.
    pub(crate) statuses: &'a Buffer,
}
