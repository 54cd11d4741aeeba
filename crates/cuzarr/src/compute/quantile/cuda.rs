//! Quantiles of many short rows on a GPU: kernels of the functions in `cuzarr/rows.cuh`, generated for a type and a number of
//! dimensions.

use cuzarr_device::{Buffer, Device, LaunchShape, NdBuffer, Stream, pool};

use super::method::QuantileMethod;
use super::{Keys, Quantile};
use crate::compute::count::KeyWords;
use crate::compute::cuda::{address, function, kernel_name};
use crate::compute::reduce::cuda::place;
use crate::compute::reduce::view::View;
use crate::compute::source::memory_type;
use crate::error::Result;

/// `TILE_BYTES` in rows.cuh.
const TILE_BYTES: usize = 32 << 10;
/// `TILE_ROWS` there.
const TILE_ROWS: usize = 256;
const THREADS: u32 = 256;
const MOST_BLOCKS: usize = 1 << 16;

/// Elements of a row up to which it is sorted in shared memory; few where each thread is a fiber.
pub(super) fn short_row_elems(device: Device) -> u64 {
    if device == Device::Simt { 40 } else { (TILE_BYTES / size_of::<u64>()) as u64 }
}

/// The answers of all rows for each probability in turn: elements where they are among them, else binary64. A row is what an
/// element of the result is made of.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(super) fn of_rows(
    source: &NdBuffer,
    view: &View,
    (quantile, keys, nan): (&Quantile, Keys, u64),
    stream: &Stream,
) -> Result<Vec<u8>> {
    let probabilities = &quantile.probabilities;
    let is_element = quantile.method.is_discrete();
    let element = memory_type(source.dtype());
    let answer_bytes = if is_element { source.dtype().size_bytes() } else { size_of::<f64>() };
    let out = pool::allocate(view.outputs * probabilities.len() * answer_bytes, stream)?;
    // `Place` in rows.cuh. Without NaN every row has all its elements.
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
    let tile_rows = (TILE_BYTES / key_bytes / width).clamp(1, TILE_ROWS);
    // `Rows` there.
    let mut rows = KeyWords::of(keys).bytes();
    rows.extend([nan, places.address() as u64].iter().flat_map(|word| word.to_ne_bytes()));
    let is_middle = quantile.method == QuantileMethod::Median;
    let truths = [view.is_across(), quantile.skip_nan, is_middle].map(usize::from);
    let words = [probabilities.len(), width, tile_rows].into_iter().chain(truths);
    rows.extend(words.flat_map(|word| (word as u32).to_ne_bytes()));
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let name = kernel_name("rows", &(element, is_element, kept, over));
    let text = format!(
        "#include \"cuzarr/rows.cuh\"\n\ntypedef reduce::Where<{kept}, {over}> Where;\ntypedef rows::Answer<{element}, \
         {is_element}> Answer;\nCUZARR_KERNEL({name}, Where where, rows::Rows rows, Answer::type* out) {{\n    \
         CUZARR_SHARED(rows::Key<sizeof({element})>::type, tile, rows::TILE_BYTES / \
         sizeof(rows::Key<sizeof({element})>::type));\n    CUZARR_SHARED(u32, nans, rows::TILE_ROWS);\n    \
         rows::select<{element}, {is_element}>(where, rows, out, tile, nans);\n}}\n"
    );
    let kernel = function(stream.device(), &name, text)?;
    let blocks = view.outputs.div_ceil(tile_rows).clamp(1, MOST_BLOCKS) as u32;
    let threads = if stream.device() == Device::Simt { 32 } else { THREADS };
    let arguments = vec![place(source, view), rows, address(out.address())];
    // SAFETY: the arguments are what the text declares: places inside the source's layout, what is looked for, and room for one
    // answer of each row and probability. No row is longer than a tile, and places are below the lengths of rows.
    unsafe { kernel.launch(stream, LaunchShape::line(blocks, threads), arguments, &[source.buffer(), &places, &out]) }?;
    stream.synchronize()?;
    Ok(out.to_vec()?)
}
