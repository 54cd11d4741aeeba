//! Finds quantiles of many rows of elements on a GPU, by sorting or searching each row. Kernels call the functions in
//! `quantile/rows.cuh` and `quantile/long_rows.cuh`, and are generated for an element type and a number of dimensions.

use cuzarr_device::internal::defined;
use cuzarr_device::{Buffer, DType, Device, Header, LaunchShape, NdBuffer, Order, Stream, header};

use super::Quantile;
use super::method::QuantileMethod;
use super::select::Room;
use crate::count::KeyWords;
use crate::program::cuda::{address, function, kernel_name};
use crate::program::memory_type;
use crate::reduce::cuda::place;
use crate::reduce::view::View;
use cuzarr::Result;

const HEADERS: &[Header] = &[
    header!("program/arithmetic.cuh"),
    header!("reduce/accumulators.cuh"),
    header!("reduce/reduce.cuh"),
    header!("count/keys.cuh"),
    header!("quantile/rows.cuh"),
    header!("quantile/long_rows.cuh"),
];
const ROWS_TEXT: &str = include_str!("rows.cuh");
const TILE_BYTES: usize = defined(ROWS_TEXT, "CUZARR_TILE_BYTES") as usize;
const TILE_ROWS: usize = defined(ROWS_TEXT, "CUZARR_TILE_ROWS") as usize;
const THREADS: u32 = 256;
const MOST_BLOCKS: usize = 1 << 16;
/// Rows of at least this length are searched instead of sorted: `LONG_ROW` if their elements are neighbours in memory,
/// `LONG_COLUMN` if they lie a row apart. On an H200, rows of 2048 elements take equally long either way, and 65,536
/// columns of 1024 are searched three times as fast as sorted (`bench/compute.py`).
const LONG_ROW: u64 = 2049;
const LONG_COLUMN: u64 = 1024;
/// Least number of rows (`MANY_ROWS`) or columns (`MANY_COLUMNS`) that are divided among the blocks of threads. With
/// fewer, multiprocessors would be idle, so the whole GPU counts them one after the other.
const MANY_ROWS: usize = 128;
const MANY_COLUMNS: usize = 512;
/// Largest number of elements of a row whose quantile is computed by searching it, if NaN is left out. Longer rows take
/// another way: the search has a table with an entry for each possible number of remaining elements.
const MOST_LENGTHS: u64 = 1 << 16;
/// Number of columns that a block searches together: this one if there are few columns in all, else up to
/// `MOST_ACROSS`.
const FEWEST_ACROSS: usize = 8;
const MOST_ACROSS: usize = 32;
/// Longest row that a block of only [`THREADS`] threads searches. From [`MANY_BLOCKS`] blocks on, a block has half of
/// [`MOST_THREADS`].
const FEW_THREADS_ROW: usize = 8192;
const MANY_BLOCKS: usize = 512;
/// Largest number of threads in a block that searches rows for quantiles.
const MOST_THREADS: u32 = defined(include_str!("long_rows.cuh"), "CUZARR_SEARCH_THREADS");

/// How a GPU finds the quantiles of rows in its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The GPU sorts each row in shared memory, and takes the quantiles from the sorted row.
    Sort,
    /// The GPU searches each row for the quantiles with one block of threads, digit by digit of the elements' keys.
    Search,
}

impl Way {
    /// Returns whether to sort or to search a view's rows for quantiles; `None` if the general algorithm is needed.
    pub(super) fn of(device: Device, view: &View, quantile: &Quantile) -> Option<Way> {
        Way::for_rows(device, view.outputs, view.reduced as u64, view.is_across(), quantile)
    }

    /// Whether sorting or searching on the GPU may suit `rows` rows of `elems` elements, before their memory layout is
    /// known.
    pub(super) fn may_be(device: Device, rows: usize, elems: u64, quantile: &Quantile) -> bool {
        [false, true].into_iter().any(|is_across| Way::for_rows(device, rows, elems, is_across, quantile).is_some())
    }

    fn for_rows(device: Device, rows: usize, elems: u64, is_across: bool, quantile: &Quantile) -> Option<Way> {
        // Small limits on the simulator, where each thread is a fiber.
        let (short, long, many) = match (device, is_across) {
            (Device::Simt, _) => (40, 41, 3),
            (_, false) => ((TILE_BYTES / size_of::<u64>()) as u64, LONG_ROW, MANY_ROWS),
            (_, true) => ((TILE_BYTES / size_of::<u64>()) as u64, LONG_COLUMN, MANY_COLUMNS),
        };
        let most = if quantile.skip_nan { MOST_LENGTHS } else { u64::from(u32::MAX) };
        match () {
            () if quantile.probabilities.len() == 1 && rows >= many && (long..=most).contains(&elems) => {
                Some(Way::Search)
            }
            () if elems <= short => Some(Way::Sort),
            () => None,
        }
    }
}

/// Computes the quantiles on the device: those of all rows for the first probability, then for the next one. A row
/// consists of the elements that make up one element of the result. Answers are elements for discrete methods, else
/// binary64. `nan` is the bit pattern for rows without an answer.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(super) fn of_rows(
    source: &NdBuffer,
    view: &View,
    room: &Room<'_>,
    nan: u64,
    way: Way,
    stream: &Stream,
) -> Result<NdBuffer> {
    let Room { quantile, keys, .. } = *room;
    let probabilities = &quantile.probabilities;
    let is_element = quantile.method.is_discrete();
    let element = memory_type(source.dtype());
    let answer = if is_element { source.dtype() } else { DType::FLOAT64 };
    let out = NdBuffer::empty(stream.device(), answer, &[probabilities.len(), view.outputs], Order::C)?;
    // The counterpart of `Place` in rows.cuh. Without NaN, every row has all its elements.
    let lengths = if quantile.skip_nan { 1..=view.reduced } else { view.reduced..=view.reduced };
    let places =
        lengths.flat_map(|length| probabilities.iter().map(move |&q| quantile.method.places(length as u64, q)));
    let places: Vec<u8> = places
        .flat_map(|(first, second, share)| {
            [&(first as u32).to_ne_bytes()[..], &(second as u32).to_ne_bytes(), &share.to_ne_bytes()].concat()
        })
        .collect();
    let places = Buffer::from_bytes(stream.device(), &places)?;
    let width = view.reduced.next_power_of_two();
    let key_bytes = if keys.bits == 64 { size_of::<u64>() } else { size_of::<u32>() };
    let tile_rows = match way {
        Way::Sort => (TILE_BYTES / key_bytes / width).clamp(1, TILE_ROWS),
        Way::Search if !view.is_across() => 1,
        Way::Search => (view.outputs / THREADS as usize).clamp(FEWEST_ACROSS, MOST_ACROSS).next_power_of_two(),
    };
    // The counterpart of `Rows` in rows.cuh.
    let mut rows = KeyWords::of(keys).bytes();
    rows.extend([nan, places.address() as u64].iter().flat_map(|word| word.to_ne_bytes()));
    let is_middle = quantile.method == QuantileMethod::Median;
    let truths = [view.is_across(), quantile.skip_nan, is_middle].map(usize::from);
    let words = [probabilities.len(), width, tile_rows].into_iter().chain(truths);
    rows.extend(words.flat_map(|word| (word as u32).to_ne_bytes()));
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let name = kernel_name("rows", &(element, is_element, kept, over, way == Way::Sort));
    let (kind, header, shared, call) = match way {
        Way::Sort => (
            "CUZARR_KERNEL",
            "rows",
            format!(
                "    CUZARR_SHARED(rows::Key<sizeof({element})>::type, tile, CUZARR_TILE_BYTES / \
                 sizeof(rows::Key<sizeof({element})>::type));\n    CUZARR_SHARED(u32, nans, CUZARR_TILE_ROWS);\n"
            ),
            "select<{T}>(where, rows, out, tile, nans)",
        ),
        Way::Search => (
            "CUZARR_WIDE_KERNEL",
            "long_rows",
            "    CUZARR_SHARED(u32, words, rows::SEARCH_WORDS);\n".to_string(),
            "search<{T}>(where, rows, out, words)",
        ),
    };
    let call = call.replace("{T}", &format!("{element}, {is_element}"));
    let text = || {
        format!(
            "#include \"quantile/{header}.cuh\"\n\ntypedef reduce::Where<{kept}, {over}> Where;\ntypedef \
         rows::Answer<{element}, {is_element}> Answer;\n{kind}({name}, Where where, rows::Rows rows, \
         Answer::type* out) {{\n{shared}    rows::{call};\n}}\n"
        )
    };
    let kernel = function(stream.device(), &name, HEADERS, text)?;
    let blocks = view.outputs.div_ceil(tile_rows).clamp(1, MOST_BLOCKS);
    let threads = match stream.device() {
        Device::Simt => 32,
        _ if way == Way::Sort || (view.reduced <= FEW_THREADS_ROW && !view.is_across()) => THREADS,
        _ if blocks >= MANY_BLOCKS && !view.is_across() => MOST_THREADS / 2,
        _ => MOST_THREADS,
    };
    let arguments = vec![place(source, view), rows, address(out.buffer().address())];
    let shape = LaunchShape::line(blocks as u32, threads);
    // SAFETY: the arguments are those that the text declares. `View::new` made the walk of the source, whose
    // constructor checked that all elements lie in its memory. The result was allocated here, with an answer for each
    // row and probability. So was the table of places, which `QuantileMethod::places` keeps below the lengths of rows.
    // `Way` sorts no row that is longer than a tile.
    unsafe { kernel.launch(stream, shape, arguments, &[source.buffer(), &places, out.buffer()]) }?;
    stream.synchronize()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::HEADERS;
    use crate::program::cuda::check_headers;

    #[test]
    fn kernels_have_the_headers_that_theirs_include() {
        check_headers("quantile/rows.cuh", HEADERS);
        check_headers("quantile/long_rows.cuh", HEADERS);
    }
}
