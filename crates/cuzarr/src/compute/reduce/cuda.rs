//! Reductions on a GPU: kernels of the functions in `cuzarr/reduce.cuh`, generated for a type and a number of dimensions.

use cuzarr_device::{Buffer, DType, LaunchShape, NdBuffer, Order, Stream, pool};

use super::state::{Accumulator, State, Wide};
use super::view::{BLOCK_THREADS, View};
use crate::compute::cuda::{address, function, kernel_name};
use crate::compute::grid::Region;
use crate::compute::source::memory_type;
use crate::error::Result;

const MOST_BLOCKS: usize = 1 << 16;
/// Segments of an element of the result that blocks join sooner than one thread.
const MANY_SEGMENTS: usize = 64;
/// Elements of the result so few that blocks join any number of segments sooner than so few threads.
const FEW_OUTPUTS: usize = 64;

/// The state of each element of the result.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(crate) fn states(source: &NdBuffer, view: &View, what: (Accumulator, bool), stream: &Stream) -> Result<Vec<State>> {
    let states = joined(source, view, what, stream)?;
    stream.synchronize()?;
    let bytes = states.to_vec()?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
    Ok(words.as_chunks::<3>().0.iter().map(|&state| State(state)).collect())
}

/// The states of all segments, those of an element of the result together.
fn of_segments(
    source: &NdBuffer,
    view: &View,
    (accumulator, skip_nan): (Accumulator, bool),
    stream: &Stream,
) -> Result<Buffer> {
    let device = stream.device();
    let count = view.outputs * view.segments;
    let memory = pool::allocate(count * size_of::<State>(), stream)?;
    if count == 0 {
        return Ok(memory);
    }
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let element = memory_type(source.dtype());
    let state = state_type(accumulator, Wide::of(source.dtype()));
    let what = format!("{state}, {element}, {skip_nan}");
    let name = kernel_name("reduction", &(&what, kept, over, view.by_blocks));
    let body = if view.by_blocks {
        format!(
            "    typedef reduce::Lane<reduce::{state}, {element}>::State State;\n    \
             CUZARR_SHARED(u64, cells, {BLOCK_THREADS} * sizeof(State) / 8);\n    \
             reduce::by_blocks<reduce::{what}>(where, states, (State*)cells);\n"
        )
    } else {
        format!("    reduce::by_threads<reduce::{what}>(where, states);\n")
    };
    let text = format!(
        "#include \"cuzarr/reduce.cuh\"\n\ntypedef reduce::Where<{kept}, {over}> Where;\n\
         CUZARR_KERNEL({name}, Where where, reduce::State* states) {{\n{body}}}\n"
    );
    let kernel = function(device, &name, text)?;
    let place = place(source, view);
    let jobs = if view.by_blocks { count } else { count.div_ceil(BLOCK_THREADS) };
    let shape = LaunchShape::line(jobs.clamp(1, MOST_BLOCKS) as u32, BLOCK_THREADS as u32);
    // SAFETY: the arguments are what the generated text declares: places by value, and room for one state a segment of each
    // element of the result. The places lie inside the source's layout.
    unsafe { kernel.launch(stream, shape, vec![place, address(memory.address())], &[source.buffer(), &memory]) }?;
    Ok(memory)
}

/// `Where` in reduce.cuh, of as many dimensions as the view has.
pub(crate) fn place(source: &NdBuffer, view: &View) -> Vec<u8> {
    let mut words = vec![source.address() as u64, view.outputs as u64, view.reduced as u64, view.segments as u64];
    words.extend(view.kept.shape.iter().chain(&view.over.shape).map(|&extent| extent as u64));
    words.extend(view.kept.strides.iter().chain(&view.over.strides).map(|&stride| stride as u64));
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The state of each element of the result.
fn joined(source: &NdBuffer, view: &View, what: (Accumulator, bool), stream: &Stream) -> Result<Buffer> {
    let mut states = of_segments(source, view, what, stream)?;
    let state = state_type(what.0, Wide::of(source.dtype()));
    let mut segments = view.segments;
    while segments > 1 && view.outputs > 0 {
        let by_blocks = segments >= MANY_SEGMENTS || view.outputs <= FEW_OUTPUTS;
        let left = if by_blocks { segments.div_ceil(BLOCK_THREADS) } else { 1 };
        let name = kernel_name("joining", &(&state, by_blocks));
        let body = if by_blocks {
            format!(
                "    CUZARR_SHARED(u64, cells, {BLOCK_THREADS} * sizeof(reduce::{state}) / 8);\n    reduce::join_by_blocks\
                 (outputs, segments, states, joined, (reduce::{state}*)cells);\n"
            )
        } else {
            format!("    reduce::join<reduce::{state}>(outputs, segments, states, joined);\n")
        };
        let text = format!(
            "#include \"cuzarr/reduce.cuh\"\n\nCUZARR_KERNEL({name}, u64 outputs, u64 segments, reduce::State* states, \
             reduce::State* joined) {{\n{body}}}\n"
        );
        let joined = pool::allocate(view.outputs * left * size_of::<State>(), stream)?;
        let sizes = (view.outputs as u64, segments as u64, states.address(), joined.address());
        let kernel = function(stream.device(), &name, text)?;
        let threads = if by_blocks { (view.outputs * left).saturating_mul(BLOCK_THREADS) } else { view.outputs };
        // SAFETY: the arguments are what the text declares; the first table has a row of segments for each element of the
        // result, the second a place for each thread that joins a row, or for each block that joins a part of one.
        unsafe { kernel.launch(stream, line(threads), sizes, &[&states, &joined]) }?;
        (states, segments) = (joined, left);
    }
    Ok(states)
}

/// Enough blocks for so many threads.
fn line(threads: usize) -> LaunchShape {
    LaunchShape::line(threads.div_ceil(BLOCK_THREADS).clamp(1, MOST_BLOCKS) as u32, BLOCK_THREADS as u32)
}

/// Dimensions of a region at most: `MOST_AXES` in reduce.cuh.
const MOST_AXES: usize = 8;

/// One dimension of a region: its extent and start, and the extent of the whole.
type Axis = [u64; 3];

/// `Part` in reduce.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct Part {
    outputs: u64,
    kept: [Axis; MOST_AXES],
    reduced: [Axis; MOST_AXES],
    kept_axes: u32,
    reduced_axes: u32,
}

/// What a result is made of its state: the numbers of `Answer` in reduce.cuh.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Value,
    Mean,
    MeanOfBoth,
    Variance,
    Deviation,
    Extreme,
    Place,
    Any,
    All,
}

/// The states of all elements of a result on the device, as far as regions came in.
pub(super) struct Gathered<'a> {
    shape: &'a [u64],
    axes: &'a [usize],
    what: (Accumulator, bool),
    wide: Wide,
    outputs: usize,
    stream: &'a Stream,
    /// All zero where nothing came in; none before the first region.
    states: Option<Buffer>,
}

impl<'a> Gathered<'a> {
    /// Whether results of an array of this shape are gathered on the device.
    pub(super) fn suits(shape: &[u64], axes: &[usize]) -> bool {
        axes.len() <= MOST_AXES && shape.len() - axes.len() <= MOST_AXES
    }

    pub(super) fn new(
        (shape, axes): (&'a [u64], &'a [usize]),
        what: (Accumulator, bool),
        wide: Wide,
        outputs: usize,
        stream: &'a Stream,
    ) -> Result<Gathered<'a>> {
        Ok(Gathered { shape, axes, what, wide, outputs, stream, states: None })
    }

    /// Takes the elements of the only region; they are needed until the result is finished.
    pub(super) fn take_all(&mut self, elements: &NdBuffer) -> Result<()> {
        self.states = Some(joined(elements, &View::new(elements, self.axes)?, self.what, self.stream)?);
        Ok(())
    }

    /// Takes the elements of a region; they are no longer needed when this returns.
    pub(super) fn take(&mut self, region: &Region, elements: &NdBuffer) -> Result<()> {
        let view = View::new(elements, self.axes)?;
        if view.outputs == 0 {
            return Ok(());
        }
        let all = match self.states.take() {
            Some(states) => states,
            None => Buffer::zeroed(self.stream.device(), self.outputs * size_of::<State>())?,
        };
        let states = joined(elements, &view, self.what, self.stream)?;
        let mut part = Part {
            outputs: view.outputs as u64,
            kept: [[1, 0, 1]; MOST_AXES],
            reduced: [[1, 0, 1]; MOST_AXES],
            kept_axes: 0,
            reduced_axes: 0,
        };
        for axis in 0..self.shape.len() {
            let (row, count) = match self.axes.contains(&axis) {
                true => (&mut part.reduced, &mut part.reduced_axes),
                false => (&mut part.kept, &mut part.kept_axes),
            };
            row[*count as usize] = [region.extent[axis], region.start[axis], self.shape[axis]];
            *count += 1;
        }
        let state = state_type(self.what.0, self.wide);
        let name = kernel_name("merging", &state);
        let text = format!(
            "#include \"cuzarr/reduce.cuh\"\n\nCUZARR_KERNEL({name}, reduce::Part part, const reduce::State* states, \
             reduce::State* all) {{\n    reduce::merge_part<reduce::{state}>(part, states, all);\n}}\n"
        );
        let kernel = function(self.stream.device(), &name, text)?;
        let arguments = (part, states.address(), all.address());
        // SAFETY: the arguments are what the text declares; every element of the region's result has a state in the first
        // table, and a place inside of the second, which is one of the whole result's.
        unsafe { kernel.launch(self.stream, line(view.outputs), arguments, &[&states, &all]) }?;
        self.states = Some(all);
        Ok(self.stream.synchronize()?)
    }

    /// The elements of the result, converted from their widest type to `dtype`.
    pub(super) fn finish(&self, answer: Answer, ddof: f64, (wide, dtype): (DType, DType)) -> Result<NdBuffer> {
        let out = NdBuffer::empty(self.stream.device(), dtype, &[self.outputs], Order::C)?;
        let Some(states) = &self.states else { return Ok(out) };
        let (wide, element) = (memory_type(wide), memory_type(dtype));
        let name = kernel_name("finishing", &(wide, element));
        let text = format!(
            "#include \"cuzarr/reduce.cuh\"\n\nCUZARR_KERNEL({name}, u64 outputs, u32 answer, double ddof, \
             const reduce::State* states, {element}* out) {{\n    \
             reduce::finish<{wide}, {element}>(outputs, answer, ddof, states, out);\n}}\n"
        );
        let kernel = function(self.stream.device(), &name, text)?;
        let arguments = (self.outputs as u64, answer as u32, ddof, states.address(), out.address());
        // SAFETY: the arguments are what the text declares; there is a state and an element for each result.
        unsafe { kernel.launch(self.stream, line(self.outputs), arguments, &[states, out.buffer()]) }?;
        self.stream.synchronize()?;
        Ok(out)
    }
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
