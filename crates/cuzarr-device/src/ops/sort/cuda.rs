//! Launches the kernels of `sort.cu`, which sort the lines of an array.

use crate::array::dtype::DType;
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::{WARP, defined};
use crate::memory::pool;
use crate::ops::launch::{blocks, sized_kernel, threads};
use crate::ops::lines::Lines;
use crate::ops::scan::{self, Scan};
use crate::ops::step::cuda::code;
use crate::stream::Stream;

const TEXT: &str = include_str!("sort.cu");
const DIGITS: u64 = defined(TEXT, "CUZARR_SORT_DIGITS") as u64;
const DIGIT_BITS: u32 = DIGITS.trailing_zeros();
/// Fewest elements in the tile of one warp; `MOST_TILES` is the largest number of tiles. That is enough for all warps
/// of a GPU, and keeps the table of counts small.
const LEAST_TILE: u64 = 1024;
const MOST_TILES: u64 = 1 << 15;

static SORT: KernelSource = KernelSource { name: "sort", text: TEXT, headers: &[] };

/// The parameters of one pass of the radix sort, in the form that its kernels read. `Pass` in sort.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pass {
    count: u64,
    tile: u64,
    tiles: u64,
    extent: u64,
    shift: u64,
}

// `Pass` in sort.cu.
c_layout! { Pass: 40 bytes { count at 0, tile at 8, tiles at 16, extent at 24, shift at 32 } }

/// Returns the indices that sort each line of `extent` packed elements, in stream order. There must be at least one
/// element.
pub(super) fn argsort(packed: &NdBuffer, extent: u64, is_descending: bool, stream: &Stream) -> Result<NdBuffer> {
    let (device, count, size) = (packed.device(), packed.len() as u64, packed.dtype().size_bytes());
    if count > u64::from(u32::MAX) {
        let message = format!("{count} elements are more than the {} that a GPU sorts at a time", u32::MAX);
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("sort parts of the array"));
    }
    let key_bytes = size.max(size_of::<u32>());
    let allocate = |bytes: usize| pool::allocate(count as usize * bytes, stream);
    let (mut keys, mut to_keys) = (allocate(key_bytes)?, allocate(key_bytes)?);
    let (mut places, mut to_places) = (allocate(size_of::<u32>())?, allocate(size_of::<u32>())?);
    let tile = count.div_ceil(MOST_TILES).max(LEAST_TILE).next_multiple_of(WARP.into());
    let tiles = count.div_ceil(tile);
    let counts = pool::allocate((DIGITS * tiles) as usize * size_of::<u64>(), stream)?;

    let threads = threads(device);
    let make = sized_kernel(&SORT, device, "sort_keys", key_bytes)?;
    let lines = count.div_ceil(threads.into());
    let code = u32::from(code(packed.dtype())?);
    let arguments =
        (packed.address(), keys.address(), places.address(), count, code, size as u32, u32::from(is_descending));
    // SAFETY: the parameters of sort_keys; all three have `count` elements, packed ones of `size` bytes.
    unsafe { make.launch(stream, blocks(&make, lines), threads, arguments, &[packed.buffer(), &keys, &places]) }?;

    let count_digits = sized_kernel(&SORT, device, "sort_count", key_bytes)?;
    let move_elements = sized_kernel(&SORT, device, "sort_move", key_bytes)?;
    let warps = tiles.div_ceil(u64::from(threads / WARP));
    let line_bits = u64::BITS - ((count - 1) / extent).leading_zeros();
    let by_key = (0..8 * size as u32).step_by(DIGIT_BITS as usize).map(|shift| (0, shift));
    let by_line = (0..line_bits).step_by(DIGIT_BITS as usize).map(|shift| (extent, shift));
    for (extent, shift) in by_key.chain(by_line) {
        let pass = Pass { count, tile, tiles, extent, shift: shift.into() };
        let arguments = (keys.address(), places.address(), counts.address(), pass);
        let memory = [&keys, &places, &counts];
        // SAFETY: the parameters of sort_count. Keys and places have `count` elements; each digit of each tile has a
        // count.
        unsafe { count_digits.launch(stream, blocks(&count_digits, warps), threads, arguments, &memory) }?;
        let all = Lines { outer: 1, extent: DIGITS * tiles, inner: 1 };
        scan::cuda::scan(&counts, DType::INT64, all, Scan::Sum, stream)?;
        let arguments =
            (keys.address(), places.address(), to_keys.address(), to_places.address(), counts.address(), pass);
        let memory = [&keys, &places, &to_keys, &to_places, &counts];
        // SAFETY: the parameters of sort_move. Keys and places have `count` elements on both sides. The sums of counts
        // were made from the same digits, so they send each element to its own place below `count`.
        unsafe { move_elements.launch(stream, blocks(&move_elements, warps), threads, arguments, &memory) }?;
        std::mem::swap(&mut places, &mut to_places);
        if extent == 0 {
            std::mem::swap(&mut keys, &mut to_keys);
        }
    }

    let order = NdBuffer::empty(device, DType::INT64, packed.shape(), Order::C)?;
    let finish = SORT.kernel(device, "sort_places")?;
    let arguments = (places.address(), order.address(), count, extent);
    // SAFETY: the parameters of sort_places; both have `count` elements, and lines are not empty.
    unsafe { finish.launch(stream, blocks(&finish, lines), threads, arguments, &[&places, order.buffer()]) }?;
    Ok(order)
}
