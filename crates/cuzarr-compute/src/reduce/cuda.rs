//! Reduces arrays on a GPU, for example to sums. Kernels call the functions in `reduce/reduce.cuh`, and are generated
//! for an element type and a number of dimensions.

use cuzarr_device::internal::{defined, pool};
use cuzarr_device::{Buffer, DType, Header, LaunchShape, NdBuffer, Order, Stream, header};

use super::kept_shape;
use super::state::{Accumulator, Fold, State, Wide};
use super::view::{BLOCK_THREADS, KERNELS, View};
use crate::program::cuda::{address, function, kernel_name};
use crate::program::memory_type;
use crate::regions::memory_shape;
use cuzarr::Result;
use cuzarr::plan::Region;

const HEADERS: &[Header] =
    &[header!("program/arithmetic.cuh"), header!("reduce/accumulators.cuh"), header!("reduce/reduce.cuh")];
const MOST_BLOCKS: usize = 1 << 16;
/// Number of segments per result element from which whole blocks merge partial results faster than single threads do.
const MANY_SEGMENTS: usize = 64;
/// Number of result elements up to which whole blocks merge partial results faster than single threads do, for any
/// number of segments.
const FEW_OUTPUTS: usize = 64;
/// Number of segments whose partial results one block merges.
const JOINED: usize = defined(KERNELS, "CUZARR_REDUCE_JOINED") as usize * BLOCK_THREADS;

/// C++ code at the end of a reduction kernel, which uses the partial result for each element of the result. Its
/// arguments follow those of the walk.
struct End<'a> {
    /// Further C++ parameters of the kernel, which the code at its end needs. `text` is the C++ code that uses `output`
    /// and `state`.
    parameters: String,
    text: String,
    arguments: Vec<Vec<u8>>,
    memory: &'a Buffer,
}

impl<'a> End<'a> {
    /// The kernel does nothing at its end: it has stored the partial result of each segment in `states`.
    fn none(states: &'a Buffer) -> End<'a> {
        End { parameters: String::new(), text: String::new(), arguments: Vec::new(), memory: states }
    }

    /// The kernel stores the partial result for each element of the result in `states`.
    fn keep(states: &'a Buffer) -> End<'a> {
        End {
            parameters: ", reduce::State* joined".into(),
            text: "joined[output] = state;".into(),
            arguments: vec![address(states.address())],
            memory: states,
        }
    }

    /// The kernel merges its partial result for each result element with those of other regions, in `all`.
    fn merge(part: &Part, all: &'a Buffer, state: &str) -> End<'a> {
        End {
            parameters: ", reduce::Part part, reduce::State* all".into(),
            text: format!("reduce::merge_part<reduce::{state}>(part, output, state, all);"),
            arguments: vec![part.bytes(), address(all.address())],
            memory: all,
        }
    }

    /// The kernel computes each element of the result from the partial result for it, and writes it to `out`.
    fn finish(finish: &Finish, out: &'a Buffer) -> End<'a> {
        let (wide, element) = (memory_type(finish.wide), memory_type(finish.dtype));
        End {
            parameters: format!(", u32 answer, double ddof, {element}* out"),
            text: format!("out[output] = reduce::finished<{wide}, {element}>(answer, ddof, state);"),
            arguments: vec![
                (finish.answer as u32).to_ne_bytes().to_vec(),
                finish.ddof.to_ne_bytes().to_vec(),
                address(out.address()),
            ],
            memory: out,
        }
    }

    /// Returns the C++ lambda that a kernel calls with each partial result.
    fn lambda(&self) -> String {
        match self.text.is_empty() {
            true => "[](u64, const reduce::State&) {}".into(),
            false => format!("[&](u64 output, const reduce::State& state) {{ {} }}", self.text),
        }
    }
}

/// Reduces an array on a GPU to a partial result for each element of the result, and returns these in host memory.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(crate) fn states(source: &NdBuffer, view: &View, fold: Fold, stream: &Stream) -> Result<Vec<State>> {
    let states = pool::allocate(view.outputs * size_of::<State>(), stream)?;
    reduce(source, view, fold, &End::keep(&states), stream)?;
    stream.synchronize()?;
    on_host(&states)
}

/// Copies partial results of a reduction from the GPU to host memory.
fn on_host(states: &Buffer) -> Result<Vec<State>> {
    let bytes = states.to_vec()?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
    Ok(words.as_chunks::<3>().0.iter().map(|&state| State(state)).collect())
}

/// Launches the kernels of a reduction: one for all segments and, if result elements have several, one that merges
/// them.
fn reduce(source: &NdBuffer, view: &View, fold: Fold, end: &End<'_>, stream: &Stream) -> Result<()> {
    let count = view.outputs * view.segments;
    if count == 0 {
        return Ok(());
    }
    if view.segments == 1 {
        return walk(source, view, fold, &pool::allocate(0, stream)?, end, stream);
    }
    let states = pool::allocate(count * size_of::<State>(), stream)?;
    walk(source, view, fold, &states, &End::none(&states), stream)?;
    let state = state_type(fold);
    StateTable { states: &states, state: &state, outputs: view.outputs, segments: view.segments }.join(end, stream)
}

/// Reduces each segment to a partial result, on the GPU; those of one result element lie together. Elements of the
/// result that have a single segment are finished immediately.
fn walk(source: &NdBuffer, view: &View, fold: Fold, states: &Buffer, end: &End<'_>, stream: &Stream) -> Result<()> {
    let what = format!("{}, {}", state_type(fold), memory_type(source.dtype()));
    // The number of registers is limited to what loads in flight need. Moments need more.
    let kernel = match fold.accumulator {
        Accumulator::Moments => "CUZARR_KERNEL(",
        _ if !view.by_blocks => "CUZARR_KERNEL(",
        _ => "CUZARR_KERNEL_SIZED(CUZARR_REDUCE_THREADS, 4, ",
    };
    let skip_nan = fold.skip_nan;
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let name = kernel_name("reduction", &(&what, skip_nan, kept, over, view.by_blocks, &end.parameters, &end.text));
    let text = || {
        let lambda = end.lambda();
        let body = if view.by_blocks {
            format!(
                "    typedef reduce::Lane<reduce::{what}>::State State;\n    \
                 CUZARR_SHARED(u64, cells, {BLOCK_THREADS} * sizeof(State) / 8);\n    \
                 reduce::by_blocks<reduce::{what}, {skip_nan}>(where, states, (State*)cells, {lambda});\n"
            )
        } else {
            format!("    reduce::by_threads<reduce::{what}, {skip_nan}>(where, states, {lambda});\n")
        };
        format!(
            "#include \"reduce/reduce.cuh\"\n\ntypedef reduce::Where<{kept}, {over}> Where;\n\
             {kernel}{name}, Where where, reduce::State* states{}) {{\n{body}}}\n",
            end.parameters
        )
    };
    let kernel = function(stream.device(), &name, HEADERS, text)?;
    let count = view.outputs * view.segments;
    let jobs = if view.by_blocks { count } else { count.div_ceil(BLOCK_THREADS) };
    let shape = LaunchShape::line(jobs.clamp(1, MOST_BLOCKS) as u32, BLOCK_THREADS as u32);
    let mut arguments = vec![place(source, view), address(states.address())];
    arguments.extend_from_slice(&end.arguments);
    // SAFETY: the arguments are those that the generated text declares. `View::new` made the walk of the source, whose
    // constructor checked that all elements lie in its memory. The callers in this file allocated `states`, with one
    // state for each segment if there are several per element of the result. They allocated the memory of `end`, with a
    // place for each element of the result.
    unsafe { kernel.launch(stream, shape, arguments, &[source.buffer(), states, end.memory]) }?;
    Ok(())
}

/// A table of partial results in GPU memory. Each element of the result has a row with one state for each segment.
struct StateTable<'a> {
    states: &'a Buffer,
    /// The name of the C++ type of a partial result.
    state: &'a str,
    outputs: usize,
    segments: usize,
}

impl StateTable<'_> {
    /// Merges the partial results in each row of the table, and passes the merged one to `end`.
    fn join(&self, end: &End<'_>, stream: &Stream) -> Result<()> {
        if self.segments > JOINED {
            let rows = self.segments.div_ceil(JOINED);
            let joined = pool::allocate(self.outputs * rows * size_of::<State>(), stream)?;
            self.join_rows(&End::keep(&joined), true, stream)?;
            return StateTable { states: &joined, segments: rows, ..*self }.join(end, stream);
        }
        let by_blocks = self.segments >= MANY_SEGMENTS || self.outputs <= FEW_OUTPUTS;
        self.join_rows(end, by_blocks, stream)
    }

    /// Merges the partial results in each row of the table in one kernel launch. If there are more segments than a
    /// block joins, `end` has a place for each block.
    fn join_rows(&self, end: &End<'_>, by_blocks: bool, stream: &Stream) -> Result<()> {
        let StateTable { states, state, outputs, segments } = *self;
        let name = kernel_name("joining", &(state, by_blocks, &end.parameters, &end.text));
        let text = || {
            let lambda = end.lambda();
            let body = if by_blocks {
                format!(
                    "    CUZARR_SHARED(u64, cells, {BLOCK_THREADS} * sizeof(reduce::{state}) / 8);\n    \
                     reduce::join_by_blocks(outputs, segments, states, (reduce::{state}*)cells, {lambda});\n"
                )
            } else {
                format!("    reduce::join<reduce::{state}>(outputs, segments, states, {lambda});\n")
            };
            format!(
                "#include \"reduce/reduce.cuh\"\n\n\
                 CUZARR_KERNEL({name}, u64 outputs, u64 segments, reduce::State* states{}) {{\n{body}}}\n",
                end.parameters
            )
        };
        let kernel = function(stream.device(), &name, HEADERS, text)?;
        let mut arguments = [outputs, segments, states.address()].map(address).to_vec();
        arguments.extend_from_slice(&end.arguments);
        let threads = match by_blocks {
            true => outputs.saturating_mul(segments.div_ceil(JOINED)).saturating_mul(BLOCK_THREADS),
            false => outputs,
        };
        // SAFETY: the arguments are those that the text declares. Callers in this file made the table with a row of
        // segments for each element of the result. Their `end` has memory with a place for each thread that joins a
        // row, or for each block that joins a part of a row.
        unsafe { kernel.launch(stream, line(threads), arguments, &[states, end.memory]) }?;
        Ok(())
    }
}

/// Encodes a reduction's memory layout as the kernels' struct `Where` of reduce.cuh.
pub(crate) fn place(source: &NdBuffer, view: &View) -> Vec<u8> {
    let mut words = vec![source.address() as u64, view.outputs as u64, view.reduced as u64, view.segments as u64];
    words.extend(view.kept.shape.iter().chain(&view.over.shape).map(|&extent| extent as u64));
    words.extend(view.kept.strides.iter().chain(&view.over.strides).map(|&stride| stride as u64));
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a launch with enough blocks for `threads` threads.
fn line(threads: usize) -> LaunchShape {
    LaunchShape::line(threads.div_ceil(BLOCK_THREADS).clamp(1, MOST_BLOCKS) as u32, BLOCK_THREADS as u32)
}

/// Largest number of kept dimensions, and of reduced ones, for which a region's partial results are merged on the GPU.
const MOST_AXES: usize = defined(KERNELS, "CUZARR_REDUCE_AXES") as usize;

/// A region's extent and start along one dimension, and the extent of the whole dimension.
type Axis = [u64; 3];

/// Where a region's partial results belong among all: the struct `Part` of reduce.cuh, in the same memory layout.
struct Part {
    outputs: u64,
    kept: [Axis; MOST_AXES],
    reduced: [Axis; MOST_AXES],
    kept_axes: u32,
    reduced_axes: u32,
}

impl Part {
    /// Describes where the `outputs` partial results of a region belong among those that are gathered for all regions.
    fn new(region: &Region, gathered: &Gathered<'_>, outputs: usize) -> Part {
        let Gathered { shape, hull, axes, .. } = gathered;
        let (kept, reduced) = ([[1, 0, 1]; MOST_AXES], [[1, 0, 1]; MOST_AXES]);
        let mut part = Part { outputs: outputs as u64, kept, reduced, kept_axes: 0, reduced_axes: 0 };
        for (axis, &whole) in shape.iter().enumerate() {
            let (row, count, place) = match axes.contains(&axis) {
                true => (&mut part.reduced, &mut part.reduced_axes, [region.start[axis], whole]),
                false => {
                    (&mut part.kept, &mut part.kept_axes, [region.start[axis] - hull.start[axis], hull.extent[axis]])
                }
            };
            row[*count as usize] = [region.extent[axis], place[0], place[1]];
            *count += 1;
        }
        part
    }

    fn bytes(&self) -> Vec<u8> {
        let axes = self.kept.iter().chain(&self.reduced).flatten();
        let words = [self.outputs].into_iter().chain(axes.copied());
        let counts = [self.kept_axes, self.reduced_axes].into_iter().flat_map(u32::to_ne_bytes);
        words.flat_map(u64::to_ne_bytes).chain(counts).collect()
    }
}

/// How an element of the result is computed from its partial result (state). The numbers are those of `Answer` in
/// reduce.cuh.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Value,
    Mean,
    MeanOfBoth,
    Variance,
    Deviation,
    NanVariance,
    NanDeviation,
    Extreme,
    Place,
    Any,
    All,
}

/// How a GPU computes the elements of the result from their partial results (states).
pub(super) struct Finish {
    pub(super) answer: Answer,
    /// NumPy's `ddof`: what is subtracted from the number of elements in the divisor of a variance.
    pub(super) ddof: f64,
    /// The type in which the result is computed, before it is converted.
    pub(super) wide: DType,
    /// The element type of the result.
    pub(super) dtype: DType,
}

/// A reduction's partial results in GPU memory, one for each element of the result or of a part of it. They cover the
/// regions that were added so far.
pub(super) struct Gathered<'a> {
    shape: &'a [u64],
    hull: Region,
    axes: &'a [usize],
    fold: Fold,
    outputs: usize,
    stream: &'a Stream,
    /// The GPU memory that holds the partial results; `None` before the first elements were added. They are zero where
    /// nothing was added; `None` before the first region.
    states: Option<Buffer>,
}

impl<'a> Gathered<'a> {
    /// Whether a GPU can gather the partial results (states) for an array of this shape.
    pub(super) fn suits(shape: &[u64], axes: &[usize]) -> bool {
        axes.len() <= MOST_AXES && shape.len() - axes.len() <= MOST_AXES
    }

    /// Makes partial results to which no element was added yet, for the regions of an array that lie in the box `hull`.
    pub(super) fn new(
        shape: &'a [u64],
        hull: Region,
        axes: &'a [usize],
        fold: Fold,
        stream: &'a Stream,
    ) -> Result<Gathered<'a>> {
        let outputs = memory_shape(&kept_shape(&hull.extent, axes, false))?.iter().product();
        Ok(Gathered { shape, hull, axes, fold, outputs, stream, states: None })
    }

    /// Adds the elements of a region to the partial results. The elements are no longer needed when this returns.
    pub(super) fn take(&mut self, region: &Region, elements: &NdBuffer) -> Result<()> {
        let view = View::new(elements, self.axes)?;
        if view.outputs == 0 {
            return Ok(());
        }
        let all = self.all()?;
        let part = Part::new(region, self, view.outputs);
        let end = End::merge(&part, &all, &state_type(self.fold));
        reduce(elements, &view, self.fold, &end, self.stream)?;
        self.states = Some(all);
        Ok(self.stream.synchronize()?)
    }

    /// Adds the partial results in `run`, which are those of regions that lie in `hull`, to the ones gathered here.
    /// `run` is no longer needed when this returns.
    pub(super) fn take_run(&mut self, hull: &Region, run: &Gathered<'_>) -> Result<()> {
        let Some(states) = &run.states else { return Ok(()) };
        let (all, state) = (self.all()?, state_type(self.fold));
        let part = Part::new(hull, self, run.outputs);
        let table = StateTable { states, state: &state, outputs: run.outputs, segments: 1 };
        table.join_rows(&End::merge(&part, &all, &state), false, self.stream)?;
        self.states = Some(all);
        Ok(self.stream.synchronize()?)
    }

    /// Copies the partial results that were gathered to host memory, and returns them. States without elements are
    /// converted to the host's form.
    pub(super) fn states(&self) -> Result<Vec<State>> {
        let empty = self.fold.accumulator.empty(self.fold.wide);
        let Some(states) = &self.states else { return Ok(vec![empty; self.outputs]) };
        let mut found = on_host(states)?;
        found.iter_mut().filter(|state| state.0[1] == 0).for_each(|state| *state = empty);
        Ok(found)
    }

    /// Takes the memory of the partial results out of `self` for writing, and allocates this memory if there is none.
    fn all(&mut self) -> Result<Buffer> {
        match self.states.take() {
            Some(states) => Ok(states),
            None => Ok(Buffer::zeroed(self.stream.device(), self.outputs * size_of::<State>())?),
        }
    }

    /// Computes the result of a reduction from all elements of the array at once.
    pub(super) fn finish_all(&self, elements: &NdBuffer, finish: &Finish) -> Result<NdBuffer> {
        let out = NdBuffer::empty(self.stream.device(), finish.dtype, &[self.outputs], Order::C)?;
        let end = End::finish(finish, out.buffer());
        reduce(elements, &View::new(elements, self.axes)?, self.fold, &end, self.stream)?;
        self.stream.synchronize()?;
        Ok(out)
    }

    /// Computes the result of a reduction from the partial results that were gathered.
    pub(super) fn finish(&self, finish: &Finish) -> Result<NdBuffer> {
        let out = NdBuffer::empty(self.stream.device(), finish.dtype, &[self.outputs], Order::C)?;
        let Some(states) = &self.states else { return Ok(out) };
        let (wide, element) = (memory_type(finish.wide), memory_type(finish.dtype));
        let name = kernel_name("finishing", &(wide, element));
        let text = || {
            format!(
                "#include \"reduce/reduce.cuh\"\n\nCUZARR_KERNEL({name}, u64 outputs, u32 answer, double ddof, \
             const reduce::State* states, {element}* out) {{\n    \
             reduce::finish<{wide}, {element}>(outputs, answer, ddof, states, out);\n}}\n"
            )
        };
        let kernel = function(self.stream.device(), &name, HEADERS, text)?;
        let arguments = (self.outputs as u64, finish.answer as u32, finish.ddof, states.address(), out.address());
        // SAFETY: the arguments are those that the text declares. `self.states` has a state for each result, and the
        // result was allocated here.
        unsafe { kernel.launch(self.stream, line(self.outputs), arguments, &[states, out.buffer()]) }?;
        self.stream.synchronize()?;
        Ok(out)
    }
}

/// Returns the name of the C++ type for a fold's partial results (states).
fn state_type(fold: Fold) -> String {
    let value = match fold.wide {
        Wide::Signed => "i64",
        Wide::Unsigned => "u64",
        Wide::Float | Wide::Complex => "double",
    };
    match fold.accumulator {
        Accumulator::Sum if fold.wide == Wide::Complex => "ComplexSum".to_string(),
        Accumulator::Sum => format!("Sum<{value}>"),
        Accumulator::Product => format!("Product<{value}>"),
        Accumulator::Moments => "Moments".to_string(),
        Accumulator::Least => format!("Extreme<{value}, true>"),
        Accumulator::Greatest => format!("Extreme<{value}, false>"),
        Accumulator::Count => "Count".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::HEADERS;
    use crate::program::cuda::check_headers;

    #[test]
    fn kernels_have_the_headers_that_theirs_include() {
        check_headers("reduce/reduce.cuh", HEADERS);
    }
}
