//! The thread of a writer that stores rows, and what it shares with the program's thread.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::{Event, NdBuffer};

use super::rows::Rows;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::{ArrayMetadata, NodeDocuments, NodeMetadata};
use crate::node::array::Array;
use crate::node::document::{NodeChange, NodeLocks, NodePlace, StoredNode};
use crate::node::lock::{MOST_ATTEMPTS, outrun, pause};
use crate::node::many::{ArrayWrite, write_all};
use crate::plan::Selection;

/// Rows of one array that are to be stored.
pub(super) struct Task {
    /// The number of the array among those of the writer.
    pub(super) array: usize,
    /// The rows of `value`.
    pub(super) span: Range<u64>,
    /// The rows that the program gave; the others in `span` have the fill value.
    pub(super) rows: Rows,
    pub(super) value: NdBuffer,
    /// After this event, `value` has its elements.
    pub(super) ready: Event,
    /// The memory that is free when the rows are stored.
    pub(super) slot: Option<NdBuffer>,
}

/// An array of a writer, as the storing thread knows it.
pub(super) struct Stored {
    pub(super) array: Array,
    pub(super) axis: usize,
    /// The part of the array that the writer fills: the first element and the extent along each dimension. Along `axis`,
    /// rows are counted from the beginning of the array.
    pub(super) start: Vec<u64>,
    pub(super) extent: Vec<u64>,
    /// Rows of one stored object.
    pub(super) height: u64,
    /// The shape that the stored document must have, because nobody else changes it.
    shape: Vec<u64>,
    /// The first row behind all rows that were stored.
    end: u64,
    /// The rows that were stored, beginning with those that were there before.
    rows: Rows,
}

impl Stored {
    pub(super) fn new(array: Array, axis: usize, start: Vec<u64>, extent: Vec<u64>, height: u64) -> Stored {
        let (shape, mut rows) = (array.shape().to_vec(), Rows::default());
        let first = start[axis];
        rows.insert(0..first);
        Stored { array, axis, start, extent, height, end: shape[axis], shape, rows }
    }

    /// The first row that is not stored.
    fn position(&self) -> u64 {
        self.rows.first_missing(0)
    }
}

/// What the program's thread and the storing thread share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Whether the storing thread is storing rows now.
    storing: bool,
    /// Memory for rows of each array that is not in use.
    free: Vec<Vec<NdBuffer>>,
    /// For each array, the first row that is not stored.
    positions: Vec<u64>,
    failure: Option<Error>,
    /// No tasks will be added; those that wait are dropped if `abandoned`.
    closing: bool,
    abandoned: bool,
    waited: Duration,
}

impl Shared {
    pub(super) fn new(free: Vec<Vec<NdBuffer>>, positions: Vec<u64>) -> Arc<Shared> {
        let state = Mutex::new(State { free, positions, ..State::default() });
        Arc::new(Shared { state, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that ended the writer; every later call fails with it.
    pub(super) fn failure(&self) -> Result<()> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn position(&self, array: usize) -> u64 {
        self.lock().positions.get(array).copied().unwrap_or(0)
    }

    pub(super) fn waited(&self) -> Duration {
        self.lock().waited
    }

    /// Takes memory for rows of an array. Waits until the storing thread gives some back, if it has any.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub(super) fn slot(&self, array: usize) -> Result<Option<NdBuffer>> {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if let Some(slot) = state.free[array].pop() {
                state.waited += begun.elapsed();
                return Ok(Some(slot));
            }
            if state.tasks.is_empty() && !state.storing {
                return Ok(None);
            }
            state = self.wait(state);
        }
    }

    /// Hands rows to the storing thread. Waits while it has `most` tasks whose memory is not the writer's.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub(super) fn add(&self, task: Task, most: usize) -> Result<()> {
        let begun = Instant::now();
        let mut state = self.lock();
        while task.slot.is_none() && state.tasks.len() >= most && state.failure.is_none() {
            state = self.wait(state);
        }
        if task.slot.is_none() {
            state.waited += begun.elapsed();
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.tasks.push_back(task);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until all rows that were handed over are stored.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub(super) fn drain(&self) -> Result<()> {
        let mut state = self.lock();
        while (!state.tasks.is_empty() || state.storing) && state.failure.is_none() {
            state = self.wait(state);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Lets the storing thread end, after the tasks that wait, or with `abandoned` after the one that it is at.
    pub(super) fn close(&self, abandoned: bool) {
        let mut state = self.lock();
        (state.closing, state.abandoned) = (true, state.abandoned || abandoned);
        self.changed.notify_all();
    }

    /// Takes tasks that can be stored together: no two touch the same stored object. `None` if the writer ends.
    fn next(&self, arrays: &[Stored]) -> Option<Vec<Task>> {
        let mut state = self.lock();
        while state.tasks.is_empty() && !state.closing {
            state = self.wait(state);
        }
        if state.abandoned {
            state.tasks.clear();
        }
        let objects = |task: &Task| {
            let height = arrays[task.array].height;
            (task.array, task.span.start / height, task.span.end.div_ceil(height))
        };
        let mut batch: Vec<Task> = Vec::new();
        while let Some(next) = state.tasks.front() {
            let (array, first, end) = objects(next);
            let meets = |task: &Task| {
                let (of, begin, until) = objects(task);
                of == array && begin < end && first < until
            };
            if batch.iter().any(meets) {
                break;
            }
            batch.extend(state.tasks.pop_front());
        }
        state.storing = !batch.is_empty();
        (!batch.is_empty()).then_some(batch)
    }

    /// Notes that tasks were stored, or why not.
    fn done(&self, batch: Vec<Task>, arrays: &[Stored], outcome: Result<()>) {
        let mut state = self.lock();
        state.storing = false;
        state.positions = arrays.iter().map(Stored::position).collect();
        match outcome {
            Ok(()) => batch.into_iter().for_each(|task| state.free[task.array].extend(task.slot)),
            Err(error) => {
                state.tasks.clear();
                state.failure = Some(error);
            }
        }
        self.changed.notify_all();
    }
}

/// Stores tasks until the writer is closed. `sorted` has the numbers of the arrays by their paths.
pub(super) fn run(shared: &Shared, mut arrays: Vec<Stored>, sorted: &[usize], is_final: bool) {
    while let Some(batch) = shared.next(&arrays) {
        let mut store = |tasks: &[Task]| {
            let stored = catch_unwind(AssertUnwindSafe(|| store(&mut arrays, tasks, sorted, is_final)));
            let panicked = |_| Err(Error::new(ErrorKind::StoreFailed, "the writer panicked; please report this"));
            stored.unwrap_or_else(panicked)
        };
        let mut outcome = store(&batch);
        if outcome.is_err() {
            // One after the other, so that all rows before the failure are stored and the failure names its rows.
            outcome = batch.iter().try_for_each(|task| store(slice::from_ref(task)).at(|| named(&task.span)));
        }
        shared.done(batch, &arrays, outcome);
    }
}

fn named(Range { start, end }: &Range<u64>) -> String {
    let rows = if end - start == 1 { format!("row {start}") } else { format!("rows {start} to {}", end - 1) };
    format!("{rows} of a writer, which stores no later rows")
}

/// Stores rows, then the shapes of the arrays that grew.
fn store(arrays: &mut [Stored], batch: &[Task], sorted: &[usize], is_final: bool) -> Result<()> {
    batch.iter().try_for_each(|task| task.ready.synchronize())?;
    if is_final {
        write(arrays, batch, None)?;
        note(arrays, batch);
        return Ok(());
    }
    let has_task = |number: &usize| batch.iter().any(|task| task.array == *number);
    let numbers: Vec<usize> = sorted.iter().copied().filter(has_task).collect();
    let first = &arrays[numbers[0]].array;
    let (store, cancellation) = (Arc::clone(first.store()), first.options().cancellation.clone());
    let place = |&number: &usize| {
        let array = &arrays[number].array;
        NodePlace { path: array.path().to_string(), format: array.metadata().zarr_format(), is_array: true }
    };
    let locks =
        NodeLocks::take_as_writer(Arc::clone(&store), numbers.iter().map(place).collect(), true, &cancellation)?;
    let all: Vec<usize> = (0..numbers.len()).collect();
    let is_transactional = store.capabilities().transactional;
    let mut is_written = false;
    for attempt in 0..MOST_ATTEMPTS {
        let found = locks.read(&all)?;
        let known = numbers.iter().zip(&found).map(|(&number, found)| known(&arrays[number], found));
        let known = known.collect::<Result<Vec<ArrayMetadata>>>()?;
        // A transactional store only accepts chunks of the stored shape, so the shape must change first.
        if !is_transactional && !is_written {
            write(arrays, batch, Some((&numbers, &known)))?;
            is_written = true;
        }
        let shapes: Vec<Vec<u64>> = numbers.iter().map(|&number| grown(&arrays[number], number, batch)).collect();
        let documents = |(known, shape): (&ArrayMetadata, &Vec<u64>)| {
            let mut metadata = known.clone();
            metadata.set_shape(shape.clone())?;
            Ok(NodeDocuments::from(&NodeMetadata::Array(Box::new(metadata))))
        };
        let documents = known.iter().zip(&shapes).map(documents).collect::<Result<Vec<NodeDocuments>>>()?;
        let changes: Vec<NodeChange<'_>> = all
            .iter()
            .filter(|&&at| shapes[at] != arrays[numbers[at]].shape)
            .map(|&at| NodeChange { number: at, stored: &found[at], documents: &documents[at] })
            .collect();
        let replaced = locks.replace(&changes, Some(2))?;
        let mut is_done = true;
        for (change, replaced) in changes.iter().zip(replaced) {
            match replaced? {
                true => arrays[numbers[change.number]].shape.clone_from(&shapes[change.number]),
                false => is_done = false,
            }
        }
        if is_done {
            if is_transactional && !is_written {
                write(arrays, batch, Some((&numbers, &known)))?;
            }
            note(arrays, batch);
            return Ok(());
        }
        pause(attempt, &cancellation)?;
    }
    Err(outrun(&*store, arrays[numbers[0]].array.path()))
}

/// Notes that the rows of a batch are stored.
fn note(arrays: &mut [Stored], batch: &[Task]) {
    for task in batch {
        let array = &mut arrays[task.array];
        array.end = array.end.max(task.span.end);
        task.rows.ranges().for_each(|rows| array.rows.insert(rows));
    }
}

/// The shape of an array when the batch is stored: it ends behind the last row before which no row is missing.
fn grown(of: &Stored, number: usize, batch: &[Task]) -> Vec<u64> {
    let mut rows = of.rows.clone();
    let own = batch.iter().filter(|task| task.array == number);
    own.flat_map(|task| task.rows.ranges()).for_each(|range| rows.insert(range));
    let mut shape = of.shape.clone();
    shape[of.axis] = shape[of.axis].max(rows.first_missing(0));
    shape
}

/// Returns the stored metadata of an array, if its shape is what the writer stored last.
///
/// # Errors
/// `InvalidArgument` when another program changed the shape.
fn known(of: &Stored, found: &StoredNode) -> Result<ArrayMetadata> {
    let metadata = found.array().at(|| of.array.place())?;
    if metadata.shape() == of.shape {
        return Ok(metadata);
    }
    let message = format!(
        "another append or resize changed the shape to {:?}, the writer stored {:?}",
        metadata.shape(),
        of.shape
    );
    let error = Error::new(ErrorKind::InvalidArgument, message).at(of.array.place());
    Err(error.with_hint("let one program at a time change the shape of an array"))
}

/// Writes the rows of a batch, through arrays that are long enough for them.
fn write(arrays: &[Stored], batch: &[Task], known: Option<(&[usize], &[ArrayMetadata])>) -> Result<()> {
    let long = |task: &Task| -> Result<Array> {
        let of = &arrays[task.array];
        let mut array = of.array.clone();
        if let Some((numbers, known)) = known
            && let Some(at) = numbers.iter().position(|number| *number == task.array)
        {
            let mut metadata = known[at].clone();
            let mut shape = of.shape.clone();
            // Rows that are stored behind the shape stay.
            let ends = batch.iter().filter(|other| other.array == task.array).map(|other| other.span.end);
            shape[of.axis] = ends.fold(shape[of.axis].max(of.end), u64::max);
            metadata.set_shape(shape)?;
            array.set_metadata(metadata);
        }
        Ok(array)
    };
    let long = batch.iter().map(long).collect::<Result<Vec<Array>>>()?;
    let writes = batch.iter().zip(&long).map(|(task, array)| {
        let of = &arrays[task.array];
        let (mut start, mut extent) = (of.start.clone(), of.extent.clone());
        (start[of.axis], extent[of.axis]) = (task.span.start, task.span.end - task.span.start);
        Ok(ArrayWrite::new(array, Selection::region(&start, &extent)?, task.value.clone()))
    });
    write_all(&writes.collect::<Result<Vec<_>>>()?)
}
