//! Reductions on a GPU: kernels of the functions in `reduce/reduce.cuh`, generated for a type and a number of dimensions.

use cuzarr_device::internal::{defined, pool};
use cuzarr_device::{Buffer, DType, Header, LaunchShape, NdBuffer, Order, Stream, header};

use super::kept_shape;
use super::state::{Accumulator, State, Wide};
use super::view::{BLOCK_THREADS, KERNELS, View};
use crate::program::cuda::{address, function, kernel_name};
use crate::program::memory_type;
use crate::regions::memory_shape;
use cuzarr::Result;
use cuzarr::plan::Region;

const HEADERS: &[Header] =
    &[header!("program/arithmetic.cuh"), header!("reduce/accumulators.cuh"), header!("reduce/reduce.cuh")];
const MOST_BLOCKS: usize = 1 << 16;
/// Segments of an element of the result that blocks join sooner than one thread.
const MANY_SEGMENTS: usize = 64;
/// Elements of the result so few that blocks join any number of segments sooner than so few threads.
const FEW_OUTPUTS: usize = 64;
/// Segments that one block joins.
const JOINED: usize = defined(KERNELS, "CUZARR_REDUCE_JOINED") as usize * BLOCK_THREADS;

/// What kernels make of the state of each element of a result: arguments behind those of the walk.
struct End<'a> {
    /// C++ parameters behind others, and what is done with `output` and `state`.
    parameters: String,
    text: String,
    arguments: Vec<Vec<u8>>,
    memory: &'a Buffer,
}

impl<'a> End<'a> {
    /// It never comes to that, as states are kept.
    fn none(states: &'a Buffer) -> End<'a> {
        End { parameters: String::new(), text: String::new(), arguments: Vec::new(), memory: states }
    }

    /// It is kept, in a table with a place for each.
    fn keep(states: &'a Buffer) -> End<'a> {
        End {
            parameters: ", reduce::State* joined".into(),
            text: "joined[output] = state;".into(),
            arguments: vec![address(states.address())],
            memory: states,
        }
    }

    /// It is merged with that of other regions.
    fn merge(part: &Part, all: &'a Buffer, state: &str) -> End<'a> {
        End {
            parameters: ", reduce::Part part, reduce::State* all".into(),
            text: format!("reduce::merge_part<reduce::{state}>(part, output, state, all);"),
            arguments: vec![part.bytes(), address(all.address())],
            memory: all,
        }
    }

    /// The element is made of it, in its widest type and converted.
    fn finish((answer, ddof): (Answer, f64), (wide, dtype): (DType, DType), out: &'a Buffer) -> End<'a> {
        let (wide, element) = (memory_type(wide), memory_type(dtype));
        End {
            parameters: format!(", u32 answer, double ddof, {element}* out"),
            text: format!("out[output] = reduce::finished<{wide}, {element}>(answer, ddof, state);"),
            arguments: vec![
                (answer as u32).to_ne_bytes().to_vec(),
                ddof.to_ne_bytes().to_vec(),
                address(out.address()),
            ],
            memory: out,
        }
    }

    /// The C++ that the kernels call.
    fn lambda(&self) -> String {
        match self.text.is_empty() {
            true => "[](u64, const reduce::State&) {}".into(),
            false => format!("[&](u64 output, const reduce::State& state) {{ {} }}", self.text),
        }
    }
}

/// The state of each element of the result.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler.
pub(crate) fn states(source: &NdBuffer, view: &View, what: (Accumulator, bool), stream: &Stream) -> Result<Vec<State>> {
    let states = pool::allocate(view.outputs * size_of::<State>(), stream)?;
    reduce(source, view, what, &End::keep(&states), stream)?;
    stream.synchronize()?;
    on_host(&states)
}

/// A copy of states.
fn on_host(states: &Buffer) -> Result<Vec<State>> {
    let bytes = states.to_vec()?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
    Ok(words.as_chunks::<3>().0.iter().map(|&state| State(state)).collect())
}

/// Puts the work on a stream: the walk through all segments, and a kernel that joins them where elements of the result have
/// several.
fn reduce(
    source: &NdBuffer,
    view: &View,
    (accumulator, skip_nan): (Accumulator, bool),
    end: &End<'_>,
    stream: &Stream,
) -> Result<()> {
    let count = view.outputs * view.segments;
    if count == 0 {
        return Ok(());
    }
    let state = state_type(accumulator, Wide::of(source.dtype()));
    let element = memory_type(source.dtype());
    // As many registers as keep loads on their way; moments take more.
    let kernel = match accumulator {
        Accumulator::Moments => "CUZARR_KERNEL(",
        _ if !view.by_blocks => "CUZARR_KERNEL(",
        _ => "CUZARR_KERNEL_SIZED(CUZARR_REDUCE_THREADS, 4, ",
    };
    let what = ((format!("{state}, {element}"), skip_nan), kernel, stream);
    if view.segments == 1 {
        return walk(source, view, &what, (&pool::allocate(0, stream)?, end));
    }
    let states = pool::allocate(count * size_of::<State>(), stream)?;
    walk(source, view, &what, (&states, &End::none(&states)))?;
    join((view.outputs, view.segments), (states, &state), end, stream)
}

/// The states of all segments, those of an element of the result together; each element is ended where it has one.
fn walk(
    source: &NdBuffer,
    view: &View,
    ((what, skip_nan), kernel, stream): &((String, bool), &str, &Stream),
    (states, end): (&Buffer, &End<'_>),
) -> Result<()> {
    let (kept, over) = (view.kept.shape.len(), view.over.shape.len());
    let name = kernel_name("reduction", &(what, skip_nan, kept, over, view.by_blocks, &end.parameters, &end.text));
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
    // SAFETY: the arguments are what the generated text declares. `View::new` made the walk of the source, whose constructor
    // checked that all elements lie in its memory. The callers in this file allocated `states`, one for each segment of each
    // element of the result where there are several, and the memory of `end`, with a place for each element of the result.
    unsafe { kernel.launch(stream, shape, arguments, &[source.buffer(), states, end.memory]) }?;
    Ok(())
}

/// Joins the states of segments, those of an element of the result together, and ends each.
fn join(
    (outputs, segments): (usize, usize),
    (states, state): (Buffer, &str),
    end: &End<'_>,
    stream: &Stream,
) -> Result<()> {
    if segments > JOINED {
        let rows = segments.div_ceil(JOINED);
        let joined = pool::allocate(outputs * rows * size_of::<State>(), stream)?;
        join_rows((outputs, segments), (&states, state), (&End::keep(&joined), true), stream)?;
        return join((outputs, rows), (joined, state), end, stream);
    }
    let by_blocks = segments >= MANY_SEGMENTS || outputs <= FEW_OUTPUTS;
    join_rows((outputs, segments), (&states, state), (end, by_blocks), stream)
}

/// States in one pass; where there are more segments than a block joins, `end` has a place for each block.
fn join_rows(
    (outputs, segments): (usize, usize),
    (states, state): (&Buffer, &str),
    (end, by_blocks): (&End<'_>, bool),
    stream: &Stream,
) -> Result<()> {
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
    // SAFETY: the arguments are what the text declares. `join`, the only caller, has a table with a row of segments for each
    // element of the result, and memory of `end` with a place for each thread that joins a row, or for each block that joins
    // a part of one.
    unsafe { kernel.launch(stream, line(threads), arguments, &[states, end.memory]) }?;
    Ok(())
}

/// `Where` in reduce.cuh, of as many dimensions as the view has.
pub(crate) fn place(source: &NdBuffer, view: &View) -> Vec<u8> {
    let mut words = vec![source.address() as u64, view.outputs as u64, view.reduced as u64, view.segments as u64];
    words.extend(view.kept.shape.iter().chain(&view.over.shape).map(|&extent| extent as u64));
    words.extend(view.kept.strides.iter().chain(&view.over.strides).map(|&stride| stride as u64));
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Enough blocks for so many threads.
fn line(threads: usize) -> LaunchShape {
    LaunchShape::line(threads.div_ceil(BLOCK_THREADS).clamp(1, MOST_BLOCKS) as u32, BLOCK_THREADS as u32)
}

/// Dimensions of a region at most.
const MOST_AXES: usize = defined(KERNELS, "CUZARR_REDUCE_AXES") as usize;

/// One dimension of a region: its extent and start, and the extent of the whole.
type Axis = [u64; 3];

/// `Part` in reduce.cuh.
struct Part {
    outputs: u64,
    kept: [Axis; MOST_AXES],
    reduced: [Axis; MOST_AXES],
    kept_axes: u32,
    reduced_axes: u32,
}

impl Part {
    /// A region of an array of this shape whose `axes` are reduced, to so many elements of the result, which lie in `hull`.
    fn new(region: &Region, (shape, hull): (&[u64], &Region), axes: &[usize], outputs: usize) -> Part {
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

/// What a result is made of its state: the numbers of `Answer` in reduce.cuh.
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

/// The states of the elements of a result on the device, or of those that a part of the array has, as far as regions came in.
pub(super) struct Gathered<'a> {
    shape: &'a [u64],
    hull: Region,
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

    /// States of no elements yet, for regions of an array of this shape that lie in `hull`: what is gathered, whether NaN is
    /// left out, and the widest type of the elements.
    pub(super) fn new(
        (shape, hull): (&'a [u64], Region),
        axes: &'a [usize],
        (accumulator, skip_nan, wide): (Accumulator, bool, Wide),
        stream: &'a Stream,
    ) -> Result<Gathered<'a>> {
        let outputs = memory_shape(&kept_shape(&hull.extent, axes, false))?.iter().product();
        Ok(Gathered { shape, hull, axes, what: (accumulator, skip_nan), wide, outputs, stream, states: None })
    }

    /// Takes the elements of a region; they are no longer needed when this returns.
    pub(super) fn take(&mut self, region: &Region, elements: &NdBuffer) -> Result<()> {
        let view = View::new(elements, self.axes)?;
        if view.outputs == 0 {
            return Ok(());
        }
        let all = self.all()?;
        let part = Part::new(region, (self.shape, &self.hull), self.axes, view.outputs);
        let end = End::merge(&part, &all, &state_type(self.what.0, self.wide));
        reduce(elements, &view, self.what, &end, self.stream)?;
        self.states = Some(all);
        Ok(self.stream.synchronize()?)
    }

    /// Takes the states of regions that lie in `hull`; they are no longer needed when this returns.
    pub(super) fn take_run(&mut self, hull: &Region, run: &Gathered<'_>) -> Result<()> {
        let Some(states) = &run.states else { return Ok(()) };
        let (all, state) = (self.all()?, state_type(self.what.0, self.wide));
        let part = Part::new(hull, (self.shape, &self.hull), self.axes, run.outputs);
        join_rows((run.outputs, 1), (states, &state), (&End::merge(&part, &all, &state), false), self.stream)?;
        self.states = Some(all);
        Ok(self.stream.synchronize()?)
    }

    /// The states, in host memory; those of no elements as the host has them.
    pub(super) fn states(&self) -> Result<Vec<State>> {
        let empty = self.what.0.empty(self.wide);
        let Some(states) = &self.states else { return Ok(vec![empty; self.outputs]) };
        let mut found = on_host(states)?;
        found.iter_mut().filter(|state| state.0[1] == 0).for_each(|state| *state = empty);
        Ok(found)
    }

    /// The memory of the states, taken out to be written to.
    fn all(&mut self) -> Result<Buffer> {
        match self.states.take() {
            Some(states) => Ok(states),
            None => Ok(Buffer::zeroed(self.stream.device(), self.outputs * size_of::<State>())?),
        }
    }

    /// The elements of the result of the only region, converted from their widest type to `dtype`.
    pub(super) fn finish_all(
        &self,
        elements: &NdBuffer,
        answer: (Answer, f64),
        (wide, dtype): (DType, DType),
    ) -> Result<NdBuffer> {
        let out = NdBuffer::empty(self.stream.device(), dtype, &[self.outputs], Order::C)?;
        let end = End::finish(answer, (wide, dtype), out.buffer());
        reduce(elements, &View::new(elements, self.axes)?, self.what, &end, self.stream)?;
        self.stream.synchronize()?;
        Ok(out)
    }

    /// The elements of the result, converted from their widest type to `dtype`.
    pub(super) fn finish(&self, answer: Answer, ddof: f64, (wide, dtype): (DType, DType)) -> Result<NdBuffer> {
        let out = NdBuffer::empty(self.stream.device(), dtype, &[self.outputs], Order::C)?;
        let Some(states) = &self.states else { return Ok(out) };
        let (wide, element) = (memory_type(wide), memory_type(dtype));
        let name = kernel_name("finishing", &(wide, element));
        let text = || {
            format!(
                "#include \"reduce/reduce.cuh\"\n\nCUZARR_KERNEL({name}, u64 outputs, u32 answer, double ddof, \
             const reduce::State* states, {element}* out) {{\n    \
             reduce::finish<{wide}, {element}>(outputs, answer, ddof, states, out);\n}}\n"
            )
        };
        let kernel = function(self.stream.device(), &name, HEADERS, text)?;
        let arguments = (self.outputs as u64, answer as u32, ddof, states.address(), out.address());
        // SAFETY: the arguments are what the text declares. `self.states` has a state for each result, and the result was
        // allocated here.
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

#[cfg(test)]
mod tests {
    use super::HEADERS;
    use crate::program::cuda::check_headers;

    #[test]
    fn kernels_have_the_headers_that_theirs_include() {
        check_headers("reduce/reduce.cuh", HEADERS);
    }
}
