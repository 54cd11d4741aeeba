//! Launches of `deflate.cu`: one warp decodes each frame, then checksums are computed tile by tile. `split` decodes few
//! or large frames first.

use cuzarr_device::internal::checksum::{Checksum, CrcField, SUMS_BYTES};
use cuzarr_device::internal::{WARP, defined, pool, stated_size, upload_table};
use cuzarr_device::{Buffer, Device, Header, KernelSource};

use super::container::{self, Container, DAMAGE, HEADERS, STATE_BYTES};
use super::cost;
use super::members::members;
use super::split::cuda::DeflateSplit;
use crate::codec::batch::frames::{FrameEntry, table};
use crate::codec::batch::{self, STATUS_BYTES};
use crate::codec::cost::Speeds;
use crate::codec::device::{Decode, DeviceDecoder, Headers, Prepared, Request, Task, Unit};
use crate::codec::lz;
use crate::{Error, ErrorKind, Result};

static DEFLATE: KernelSource = KernelSource {
    name: "deflate",
    text: include_str!("deflate.cu"),
    headers: &[HEADERS, lz::HEADERS, batch::HEADERS],
};

/// Number of encoded bytes from which on the host, and not the device, decodes a deflate frame.
const MOST_BYTES: usize = defined(container::TEXT, "CUZARR_DEFLATE_MOST_BYTES") as usize;
/// Bytes of output whose checksum one warp computes at a time.
const TILE_BYTES: usize = defined(container::TEXT, "CUZARR_DEFLATE_TILE") as usize;
const TRAILER_BYTES: usize = stated_size(container::TEXT, "DeflateTrailer");
const MEMBERS_BYTES: usize = stated_size(DEFLATE.text, "DeflateMembers");
/// For the kernel that verifies checksums: number of thread blocks for each multiprocessor.
const CHECK_BLOCKS: u32 = 8;
/// Bytes that one warp decodes in a microsecond, measured on an H200 with float32 fields of gzip level 5.
/// `SPLIT_BYTES_PER_US` is for many warps a frame.
const WARP_BYTES_PER_US: usize = 45;
const SPLIT_BYTES_PER_US: usize = 24_000;
/// Minimum time in microseconds that it takes to split frames for decoding by many warps.
const SPLIT_US: usize = 900;

/// Kernels that decode deflate streams inside one kind of container.
#[derive(Debug)]
pub(crate) struct DeflateDecoder {
    name: &'static str,
    container: Container,
}

/// The decoder of gzip frames, which have one or more members, one after the other.
pub(crate) static GZIP: DeflateDecoder = DeflateDecoder { name: "gzip", container: Container::Gzip };
/// The decoder of frames that begin with one zlib stream. Bytes after it are ignored.
pub(crate) static ZLIB: DeflateDecoder = DeflateDecoder { name: "zlib", container: Container::Zlib };
/// The decoder of frames that begin with one deflate stream, without a container. Bytes after it are ignored.
pub(super) static RAW: DeflateDecoder = DeflateDecoder { name: "deflate", container: Container::Raw };

impl DeviceDecoder for DeflateDecoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn speeds(&self) -> &'static Speeds {
        &cost::SPEEDS
    }

    fn batch_factor(&self, decoded_bytes: usize) -> u64 {
        cost::batch_factor(decoded_bytes)
    }

    fn scratch_copies(&self, decoded_bytes: usize) -> u64 {
        cost::scratch_copies(decoded_bytes)
    }

    fn headers(&self, frame: &[u8], _: usize) -> Option<Headers> {
        (frame.len() < MOST_BYTES).then(Headers::known)
    }

    fn damages(&self) -> &'static [Header] {
        &[DAMAGE]
    }

    fn reads_frames(&self) -> bool {
        self.container == Container::Gzip
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        prepare(self.container, request)
    }
}

/// The gzip members of all frames, which are decoded at the same time.
struct DeflateMembers {
    /// For each frame, the number of its first gzip member, and how many members it has.
    spans: Vec<u8>,
    count: usize,
    frames: Box<DeflateFrames>,
}

struct DeflateFrames {
    container: Container,
    table: Vec<u8>,
    count: u32,
    /// Number of tiles in all frames together; a tile is the output whose checksum one warp computes at a time.
    tiles: u32,
    /// How frames are split for decoding by many warps each; `None` if one warp decodes each frame.
    split: Option<DeflateSplit>,
    members: Option<DeflateMembers>,
}

/// Whether many warps should decode each frame: true if one warp takes longer for the largest frame than many warps
/// take for all frames.
fn splits(device: Device, units: &[Unit]) -> bool {
    let largest = units.iter().map(|unit| unit.dst.len()).max().unwrap_or(0);
    let total: usize = units.iter().map(|unit| unit.dst.len()).sum();
    match device {
        // A small limit, so that tests take both ways.
        Device::Simt => largest > 25_000,
        _ => largest / WARP_BYTES_PER_US > total / SPLIT_BYTES_PER_US + SPLIT_US,
    }
}

/// Prepares the decoding of deflate frames that all have the container `container`: gzip, zlib or none. Kernels parse
/// the headers, so the host reads nothing, except to look for gzip members if it has the bytes.
fn prepare(container: Container, request: &Request<'_>) -> Result<Prepared> {
    let mut frames = DeflateFrames::new(container, request.device, request.units, request.scratch_aim_bytes)?;
    if let (Container::Gzip, Some(host)) = (container, request.host) {
        frames.members = DeflateMembers::new(request.device, request.units, host, request.scratch_aim_bytes)?;
    }
    if frames.members.is_some() {
        frames.split = None;
    }
    Prepared::new(request, frames, Vec::new())
}

impl DeflateMembers {
    /// Finds the gzip members of all frames, so that they are decoded at the same time. A frame without known members
    /// counts as one. `None` if no frame has known members.
    fn new(device: Device, units: &[Unit], host: &[u8], scratch_aim_bytes: usize) -> Result<Option<DeflateMembers>> {
        let of = |unit: &Unit| host.get(unit.src.clone()).and_then(|encoded| members(encoded, unit));
        let known: Vec<_> = units.iter().map(of).collect();
        if known.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (mut all, mut spans) = (Vec::new(), Vec::with_capacity(units.len() * MEMBERS_BYTES));
        for (unit, known) in units.iter().zip(known) {
            let found = known.unwrap_or_else(|| vec![unit.clone()]);
            spans.extend([all.len() as u32, found.len() as u32].iter().flat_map(|number| number.to_ne_bytes()));
            all.extend(found);
        }
        let frames = Box::new(DeflateFrames::new(Container::Gzip, device, &all, scratch_aim_bytes)?);
        Ok(Some(DeflateMembers { spans, count: all.len(), frames }))
    }

    fn scratch_bytes(&self) -> usize {
        self.spans.len() + self.count * STATUS_BYTES + self.frames.scratch_bytes()
    }

    /// Decodes each gzip member like a frame, then marks in `states` the frames that are done.
    fn launch(&self, task: &Task<'_>, states: &Buffer, trailers: &Buffer) -> Result<()> {
        let stream = task.stream;
        let statuses = pool::allocate(self.count * STATUS_BYTES, stream)?;
        stream.memset(&statuses, 0)?;
        self.frames.launch(&Task { statuses: &statuses, ..*task })?;
        let spans = upload_table(&self.spans, stream)?;
        let kernel = DEFLATE.kernel(stream.device(), "deflate_join")?;
        let count = (self.spans.len() / MEMBERS_BYTES) as u32;
        let arguments = (spans.address(), count, statuses.address(), states.address(), trailers.address());
        // SAFETY: the parameters of deflate_join. A frame has a warp, and a state and a trailer that `launch` allocated; a
        // member has a status that was allocated here, and `members` has numbered the members of each frame.
        unsafe { kernel.launch(stream, count, WARP, arguments, &[&spans, &statuses, states, trailers]) }?;
        Ok(())
    }
}

impl DeflateFrames {
    fn new(container: Container, device: Device, units: &[Unit], scratch_aim_bytes: usize) -> Result<DeflateFrames> {
        let mut tiles = 0u32;
        let mut entries = Vec::with_capacity(units.len());
        for (index, unit) in units.iter().enumerate() {
            entries.push(FrameEntry {
                src_offset: unit.src.start as u64,
                dst_offset: unit.dst.start as u64,
                first_tile: tiles,
                ..FrameEntry::new(unit.src.len(), unit.dst.len())
            });
            let more = u32::try_from(unit.dst.len().div_ceil(TILE_BYTES)).ok();
            tiles = more.and_then(|more| tiles.checked_add(more)).ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, format!("unit {index}: the batch decodes to too many bytes"))
            })?;
        }
        let count = entries.len() as u32;
        let split = splits(device, units).then(|| DeflateSplit::new(device, units, &mut entries, scratch_aim_bytes));
        Ok(DeflateFrames { container, table: table(&entries, count.into()), count, tiles, split, members: None })
    }

    /// Compares the checksums that `trailers` holds with the checksums of the decoded bytes.
    fn check(&self, task: &Task<'_>, table: &Buffer, trailers: &Buffer, field: CrcField) -> Result<()> {
        let Task { stream, dst, statuses, .. } = *task;
        let (device, container) = (stream.device(), self.container as u32);
        let sums = pool::allocate(self.count as usize * SUMS_BYTES, stream)?;
        stream.memset(&sums, 0)?;
        // Few threads in `simt`, where each is a fiber.
        let threads = if device == Device::Simt { WARP } else { 256 };
        if self.tiles > 0 {
            let kernel = DEFLATE.kernel(device, "deflate_check")?;
            let blocks = self.tiles.div_ceil(threads / WARP).min(kernel.multiprocessors() * CHECK_BLOCKS);
            let (places, counts) = ((dst.address(), table.address()), (self.count, self.tiles));
            let arguments =
                (places.0, places.1, counts.0, counts.1, container, field, trailers.address(), sums.address());
            // SAFETY: the parameters of deflate_check, which reads targets; `Prepared` has checked that the target has room
            // for every frame. `deflate_frames` lets a trailer begin inside of its frame, and the sums of each frame were
            // allocated here.
            unsafe { kernel.launch(stream, blocks, threads, arguments, &[dst, table, trailers, &sums]) }?;
        }
        let kernel = DEFLATE.kernel(device, "deflate_compare")?;
        let arguments =
            (table.address(), self.count, container, trailers.address(), sums.address(), statuses.address());
        let buffers = [table, trailers, &sums, statuses];
        // SAFETY: the parameters of deflate_compare. Trailers and sums were allocated for each frame, and `Prepared` has
        // checked that there is a status for each.
        unsafe { kernel.launch(stream, self.count.div_ceil(threads), threads, arguments, &buffers) }?;
        Ok(())
    }
}

impl Decode for DeflateFrames {
    fn scratch_bytes(&self) -> usize {
        self.table.len()
            + self.count as usize * (TRAILER_BYTES + SUMS_BYTES)
            + self.split.as_ref().map_or(0, DeflateSplit::scratch_bytes)
            + self.members.as_ref().map_or(0, |members| self.count as usize * STATE_BYTES + members.scratch_bytes())
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        let field = CrcField::of(Checksum::Crc32).expect("CRC-32 has a polynomial");
        let table = upload_table(&self.table, stream)?;
        let trailers = pool::allocate(self.count as usize * TRAILER_BYTES, stream)?;
        let split = match (&self.split, &self.members) {
            (Some(split), _) => Some(split.launch(self.container, task, &table, &trailers)?),
            (None, Some(members)) => {
                let states = pool::allocate(self.count as usize * STATE_BYTES, stream)?;
                stream.memset(&states, 0)?;
                members.launch(task, &states, &trailers)?;
                let address = states.address();
                Some((states, address))
            }
            (None, None) => None,
        };
        let states = split.as_ref().map_or(0, |&(_, states)| states);
        let kernel = DEFLATE.kernel(stream.device(), "deflate_frames")?;
        let (from, to) = (src.address(), dst.address());
        let container = self.container as u32;
        let arguments =
            (from, to, table.address(), self.count, container, field, states, trailers.address(), statuses.address());
        let mut buffers = vec![src, dst, &table, &trailers, statuses];
        buffers.extend(split.iter().map(|(scratch, _)| scratch));
        // SAFETY: the parameters of deflate_frames, with one warp a block. `Prepared` has checked that source, target and
        // statuses have room for every frame, and a warp stays in the ranges of its own. A trailer was allocated for each
        // frame.
        unsafe { kernel.launch(stream, self.count, WARP, arguments, &buffers) }?;
        match self.container {
            Container::Raw => Ok(()),
            Container::Zlib | Container::Gzip => self.check(task, &table, &trailers, field),
        }
    }
}
