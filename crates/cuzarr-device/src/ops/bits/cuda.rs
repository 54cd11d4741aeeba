//! Launches the kernels of `bits.cu`, which pack and unpack numbers of a few bits. Arguments were checked by the public
//! functions (`crate::ops::bits`).

use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, Result};
use crate::kernel::defined;
use crate::memory::buffer::Buffer;
use crate::ops::bits::{Fields, Span};
use crate::ops::launch::{blocks, threads, upload};
use crate::stream::Stream;

static BITS: KernelSource = KernelSource { name: "bits", text: include_str!("bits.cu"), headers: &[] };

/// Where one chunk lies in the packed buffer and in the buffer of elements. `BitsSpan` in bits.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct BitsEntry {
    packed_offset: u64,
    elems_offset: u64,
}

// `BitsSpan` in bits.cu, which checks the size, too.
c_layout! { plain BitsEntry: 16 bytes { packed_offset at 0, elems_offset at 8 } }

/// Which bits a launch packs or unpacks, and of how many elements, in the form that kernels read. `BitsTask` in
/// bits.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct BitsTask {
    elems: u64,
    count: u32,
    elem_bytes: u32,
    elem_bits: u32,
    first: u32,
    width: u32,
    is_signed: u32,
    has_quads: u32,
    reserved: u32,
}

// `BitsTask` in bits.cu, which checks the size, too.
c_layout! {
    BitsTask: 40 bytes {
        elems at 0, count at 8, elem_bytes at 12, elem_bits at 16, first at 20, width at 24, is_signed at 28, has_quads at 32,
        reserved at 36,
    }
}

/// Number of groups of eight elements (octets) that a thread handles in a tile.
const OCTETS_PER_THREAD: usize = defined(BITS.text, "CUZARR_BITS_OCTETS") as usize;

/// Which of the two kernels of bits.cu a launch runs: the one that packs numbers, or the one that unpacks them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Unpack,
    Pack,
}

/// Packs or unpacks `elems` elements of each chunk; `spans` says where the chunks lie.
pub(super) fn launch(
    way: Way,
    fields: &Fields,
    packed: &Buffer,
    elements: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    if spans.is_empty() || elems == 0 {
        return Ok(());
    }
    let entry = |span: &Span| BitsEntry {
        packed_offset: span.packed_offset_bytes as u64,
        elems_offset: span.elems_offset_bytes as u64,
    };
    let count = u32::try_from(spans.len()).map_err(|_| Error::invalid("one launch has too many chunks"))?;
    let table = upload(&spans.iter().map(entry).collect::<Vec<_>>(), stream)?;
    let has_quads = spans.iter().all(|span| (elements.address() + span.elems_offset_bytes).is_multiple_of(16));
    let task = BitsTask {
        elems: elems as u64,
        count,
        elem_bytes: fields.elem_bytes as u32,
        elem_bits: fields.elem_bits,
        first: fields.first,
        width: fields.width,
        is_signed: fields.is_signed.into(),
        has_quads: has_quads.into(),
        reserved: 0,
    };
    let (name, src, dst) = match way {
        Way::Unpack => ("bits_unpack", packed, elements),
        Way::Pack => ("bits_pack", elements, packed),
    };
    let kernel = BITS.kernel(stream.device(), name)?;
    let threads = threads(stream.device());
    let tiles = elems.div_ceil(8 * OCTETS_PER_THREAD * threads as usize) as u64 * u64::from(count);
    let arguments = (src.address(), dst.address(), table.address(), task);
    // SAFETY: the parameters of bits_unpack and bits_pack; spans were checked to lie in both buffers, at whole elements.
    unsafe { kernel.launch(stream, blocks(&kernel, tiles), threads, arguments, &[src, dst, &table]) }
}
