//! Reductions on a GPU: kernels of the functions in `cuzarr/reduce.cuh`, generated for a type and a number of dimensions.

use cuzarr_device::{Buffer, LaunchShape, NdBuffer, Stream};

use super::state::{Accumulator, State, Wide};
use super::view::{BLOCK_LANES, View};
use crate::compute::cuda::{address, function, kernel_name};
use crate::compute::source::memory_type;
use crate::error::Result;

const MOST_BLOCKS: usize = 1 << 16;
/// The segments of fewer elements are joined by the host, sooner than by so few threads.
const FEW_OUTPUTS: usize = 64;

/// The state of each element of the result; or, where these are few, of each of its segments.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(crate) fn states(
    source: &NdBuffer,
    view: &View,
    (accumulator, skip_nan): (Accumulator, bool),
    stream: &Stream,
) -> Result<Vec<State>> {
    let device = stream.device();
    let count = view.outputs * view.segments;
    if count == 0 {
        return Ok(Vec::new());
    }
    let memory = Buffer::empty(device, count * size_of::<State>())?;
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let element = memory_type(source.dtype());
    let state = state_type(accumulator, Wide::of(source.dtype()));
    let what = format!("{state}, {element}, {skip_nan}");
    let name = kernel_name("reduction", &(&what, kept, over, view.by_blocks));
    let body = if view.by_blocks {
        format!(
            "    CUZARR_SHARED(u64, cells, {BLOCK_LANES} * sizeof(reduce::{state}) / 8);\n    \
             reduce::by_blocks<reduce::{what}>(where, states, (reduce::{state}*)cells);\n"
        )
    } else {
        format!("    reduce::by_threads<reduce::{what}>(where, states);\n")
    };
    let text = format!(
        "#include \"cuzarr/reduce.cuh\"\n\ntypedef reduce::Where<{kept}, {over}> Where;\n\
         CUZARR_KERNEL({name}, Where where, reduce::State* states) {{\n{body}}}\n"
    );
    let kernel = function(device, &name, text)?;
    let joining = kernel_name("joining", &state);
    let text = format!(
        "#include \"cuzarr/reduce.cuh\"\n\nCUZARR_KERNEL({joining}, u64 outputs, u64 segments, reduce::State* states, \
         reduce::State* joined) {{\n    reduce::join<reduce::{state}>(outputs, segments, states, joined);\n}}\n"
    );
    let mut words = vec![source.address() as u64, view.outputs as u64, view.reduced as u64, view.segments as u64];
    words.extend(view.kept.shape.iter().chain(&view.over.shape).map(|&extent| extent as u64));
    words.extend(view.kept.strides.iter().chain(&view.over.strides).map(|&stride| stride as u64));
    let place: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let jobs = if view.by_blocks { count } else { count.div_ceil(BLOCK_LANES) };
    let shape = LaunchShape::line(jobs.clamp(1, MOST_BLOCKS) as u32, BLOCK_LANES as u32);
    // SAFETY: the arguments are what the generated text declares: places by value, and room for one state a segment of each
    // element of the result. The places lie inside the source's layout.
    unsafe { kernel.launch(stream, shape, vec![place, address(memory.address())], &[source.buffer(), &memory]) }?;
    let joined = if view.segments == 1 || view.outputs < FEW_OUTPUTS {
        memory
    } else {
        let joined = Buffer::empty(device, view.outputs * size_of::<State>())?;
        let blocks = view.outputs.div_ceil(BLOCK_LANES).clamp(1, MOST_BLOCKS) as u32;
        let sizes = (view.outputs as u64, view.segments as u64, memory.address(), joined.address());
        let kernel = function(device, &joining, text)?;
        // SAFETY: the arguments are what the text declares; the first table has a row of segments for each element of the
        // result, the second one place.
        unsafe { kernel.launch(stream, LaunchShape::line(blocks, BLOCK_LANES as u32), sizes, &[&memory, &joined]) }?;
        joined
    };
    stream.synchronize()?;
    let bytes = joined.to_vec()?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
    Ok(words.as_chunks::<3>().0.iter().map(|&state| State(state)).collect())
}

fn state_type(accumulator: Accumulator, wide: Wide) -> String {
    let value = match wide {
        Wide::Signed => "i64",
        Wide::Unsigned => "u64",
        Wide::Float | Wide::Complex => "double",
    };
    match accumulator {
        Accumulator::Sum if wide == Wide::Complex => "ComplexSum".to_string(),
        Accumulator::Sum => format!("Sum<{value}>"),
        Accumulator::Product => format!("Product<{value}>"),
        Accumulator::Moments => "Moments".to_string(),
        Accumulator::Least => format!("Extreme<{value}, true>"),
        Accumulator::Greatest => format!("Extreme<{value}, false>"),
        Accumulator::Count => "Count".to_string(),
    }
}
