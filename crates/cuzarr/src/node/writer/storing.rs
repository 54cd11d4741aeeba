//! The thread of a writer that stores rows, and what it shares with the program's thread.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::NdBuffer;

use super::gathered::Gathered;
use super::placing::Written;
use super::stored::{Arrays, Stored, StoredRows};
use super::tasks::{Task, Work};
use crate::cancellation::{CancellationToken, POLL_INTERVAL};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::{ArrayMetadata, NodeDocuments, NodeMetadata};
use crate::node::array::Array;
use crate::node::document::{NodeChange, NodeLocks, NodePlace, StoredNode};
use crate::node::lock::{MOST_ATTEMPTS, outrun, pause};
use crate::store::Store;

/// Number of batches that are written at a time: while the files of one are written, the next one is encoded.
const BATCHES_AT_ONCE: usize = 2;
/// Number of batches whose shards are being stored, beside which others begin.
const FINISHING_AT_ONCE: usize = 2;
/// The longest time for which a writer keeps the locks of its arrays' documents, and the pause before it takes them again
/// if it did. A caller of another process asks for a lock 50 times a second.
const TURN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(25);
/// The longest time for which a writer that was closed, or dropped, waits for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the program's thread and the storing thread share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    cancellation: CancellationToken,
}

/// The batches that are being written: their numbers, and the stored objects that they touch.
type AtWork = Vec<(u64, Vec<Objects>)>;

/// A batch of tasks that was written, its number, the rows that are in the store, and the outcome.
type Done = (u64, Vec<Task>, Vec<StoredRows>, Result<()>);

/// What the storing thread does next.
enum Step {
    /// Begins to write tasks, which touch other stored objects than those that are being written.
    Begin(Vec<Task>),
    Written(Done),
    /// There is nothing to do until a task comes.
    Rest,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Number of batches that were begun, and whose rows do not count as stored yet.
    at_work: usize,
    /// Number of batches whose rows are encoded, and whose shards are being stored.
    finishing: usize,
    /// Batches that were written, with the outcome.
    written: Vec<Done>,
    /// Memory for rows of each array that is not in use.
    free: Vec<Vec<NdBuffer>>,
    /// For each array, the first row that is not stored.
    positions: Vec<u64>,
    failure: Option<Error>,
    /// No tasks will be added; those that wait are dropped if `abandoned`.
    closing: bool,
    abandoned: bool,
    /// Whether the storing thread has ended.
    ended: bool,
    waited: Duration,
}

impl Shared {
    pub(super) fn new(free: Vec<Vec<NdBuffer>>, positions: Vec<u64>, cancellation: CancellationToken) -> Arc<Shared> {
        let state = Mutex::new(State { free, positions, ..State::default() });
        Arc::new(Shared { state, changed: Condvar::new(), cancellation })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, in a call of the program that can be cancelled.
    fn wait_in_call<'a>(&self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        self.cancellation.check()?;
        let waited = self.changed.wait_timeout(state, POLL_INTERVAL);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
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
            if state.tasks.is_empty() && state.at_work == 0 {
                return Ok(None);
            }
            state = self.wait_in_call(state)?;
        }
    }

    /// Hands rows to the storing thread. Waits while it has `most` tasks whose memory is not the writer's.
    ///
    /// # Errors
    /// The failure that ended the writer.
    pub(super) fn add(&self, task: Task, most: usize) -> Result<()> {
        let begun = Instant::now();
        let mut state = self.lock();
        while !task.has_slot() && state.tasks.len() >= most && state.failure.is_none() {
            state = self.wait_in_call(state)?;
        }
        if !task.has_slot() {
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
        while (!state.tasks.is_empty() || state.at_work > 0) && state.failure.is_none() {
            state = self.wait_in_call(state)?;
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Lets the storing thread end, after the tasks that wait, or with `abandoned` after those that it is at. Waits for it,
    /// but not longer than [`PATIENCE`], and frees the memory for rows.
    pub(super) fn close(&self, abandoned: bool) {
        let mut state = self.lock();
        (state.closing, state.abandoned) = (true, state.abandoned || abandoned);
        self.changed.notify_all();
        let until = Instant::now() + PATIENCE;
        while !state.ended
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.free.iter_mut().for_each(Vec::clear);
    }

    /// Notes that the storing thread has ended.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until there is a task. Returns false when the writer ends.
    fn has_tasks(&self) -> bool {
        let mut state = self.lock();
        while state.tasks.is_empty() && !state.closing {
            state = self.wait(state);
        }
        if state.abandoned {
            state.tasks.clear();
        }
        !state.tasks.is_empty()
    }

    /// Waits for the next step, while the batches `at_work` are being written. No batch begins with `begins` off.
    fn step(&self, arrays: &[Stored], at_work: &AtWork, begins: bool) -> Step {
        let mut state = self.lock();
        loop {
            if let Some(written) = state.written.pop() {
                return Step::Written(written);
            }
            let is_free = at_work.len() < BATCHES_AT_ONCE + state.finishing.min(FINISHING_AT_ONCE);
            if begins && !state.abandoned && is_free {
                let batch = take(&mut state.tasks, arrays, at_work);
                if !batch.is_empty() {
                    state.at_work += 1;
                    return Step::Begin(batch);
                }
            }
            if at_work.is_empty() {
                return Step::Rest;
            }
            state = self.wait(state);
        }
    }

    /// Frees the memory of rows that are encoded, while their shards are stored. Returns what is to be done again if that
    /// fails.
    fn encoded(&self, batch: Vec<Task>) -> Vec<Task> {
        let mut state = self.lock();
        state.finishing += 1;
        let mut left = Vec::with_capacity(batch.len());
        for Task { array, span, work } in batch {
            if let Work::Rows(given) = work {
                state.free[array].extend(given.slot);
            }
            left.push(Task { array, span, work: Work::Settle });
        }
        drop(state);
        self.changed.notify_all();
        left
    }

    fn written(&self, written: Done) {
        self.lock().written.push(written);
        self.changed.notify_all();
    }

    /// Ends the writer with an error.
    fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.tasks.clear();
        state.failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Notes that a batch is stored, or why not.
    fn done(&self, batch: Vec<Task>, arrays: &[Stored], outcome: Result<()>) {
        let mut state = self.lock();
        state.at_work -= 1;
        state.positions = arrays.iter().map(Stored::position).collect();
        match outcome {
            Ok(()) => batch.into_iter().for_each(|task| {
                if let Work::Rows(given) = task.work {
                    state.free[task.array].extend(given.slot);
                }
            }),
            Err(error) => {
                state.tasks.clear();
                state.failure.get_or_insert(error);
            }
        }
        self.changed.notify_all();
    }
}

/// The stored objects that a task touches: the number of its array, and their rows.
#[derive(Clone, Copy)]
struct Objects {
    array: usize,
    first: u64,
    end: u64,
}

impl Objects {
    fn of(task: &Task, arrays: &[Stored]) -> Objects {
        let Stored { height, sharding, .. } = &arrays[task.array];
        // Rows of a block that was handed over before may come while its shard is stored.
        let unit = match (&task.work, sharding) {
            (Work::Rows(given), Some(sharding)) if given.is_late => sharding.height,
            (Work::Rows(_), _) => *height,
            _ => return Objects { array: task.array, first: 0, end: u64::MAX },
        };
        let (first, end) = (task.span.start / unit * unit, task.span.end.div_ceil(unit).saturating_mul(unit));
        Objects { array: task.array, first, end }
    }

    fn meets(self, other: Objects) -> bool {
        self.array == other.array && self.first < other.end && other.first < self.end
    }
}

/// Takes the first tasks that can be written together, beside the batches `at_work`: no two touch one stored object.
fn take(tasks: &mut VecDeque<Task>, arrays: &[Stored], at_work: &AtWork) -> Vec<Task> {
    let (mut batch, mut touched): (Vec<Task>, Vec<Objects>) = Default::default();
    touched.extend(at_work.iter().flat_map(|(_, objects)| objects));
    while let Some(next) = tasks.front().map(|task| Objects::of(task, arrays)) {
        if touched.iter().any(|objects| objects.meets(next)) {
            break;
        }
        touched.push(next);
        batch.extend(tasks.pop_front());
    }
    batch
}

/// Stores tasks until the writer is closed. The shapes of arrays do not change if they are final.
pub(super) fn run(shared: &Shared, mut arrays: Vec<Stored>, gathered: &Gathered, is_final: bool) {
    let sorted = if is_final { Vec::new() } else { sorted(&arrays) };
    while shared.has_tasks() {
        let caught = catch_unwind(AssertUnwindSafe(|| take_turn(shared, &mut arrays, gathered, &sorted)));
        match caught.unwrap_or_else(|_| Err(panicked())) {
            Ok(false) => {}
            // Other programs that change these documents get a turn.
            Ok(true) => std::thread::sleep(PAUSE),
            Err(error) => shared.fail(error),
        }
    }
}

/// The numbers of arrays by their paths.
fn sorted(arrays: &[Stored]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..arrays.len()).collect();
    sorted.sort_by(|&one, &other| arrays[one].array.path().cmp(arrays[other].array.path()));
    sorted
}

/// Stores shorter shapes of arrays that have more rows than `ends` says. Returns the locks of all arrays.
pub(super) fn shorten(arrays: &mut [Stored], ends: &[u64], locks: NodeLocks) -> Result<Option<NodeLocks>> {
    let is_over = |(of, end): (&Stored, &u64)| of.shape[of.part.axis] > *end;
    if !arrays.iter().zip(ends).any(is_over) {
        return Ok(Some(locks));
    }
    let sorted = sorted(arrays);
    let documents = Documents::of(arrays, &sorted, locks)?;
    documents.store_shapes(arrays, ends, |own, end| own > end)?;
    for (of, end) in arrays.iter_mut().zip(ends) {
        of.end = of.end.min(*end);
        of.array.refresh()?;
    }
    Ok(documents.locks)
}

/// Where the document of an array is.
pub(super) fn node_place(array: &Array) -> NodePlace {
    NodePlace { path: array.path().to_string(), format: array.metadata().zarr_format(), is_array: true }
}

fn panicked() -> Error {
    Error::new(ErrorKind::StoreFailed, "the writer panicked; please report this")
}

fn named(Range { start, end }: &Range<u64>) -> String {
    let rows = if end - start == 1 { format!("row {start}") } else { format!("rows {start} to {}", end - 1) };
    format!("{rows} of a writer, which stores no later rows")
}

/// Stores the tasks that wait, and those that come meanwhile, until none is left or for [`TURN`]. Meanwhile it holds the
/// locks of the documents of `numbers`. While one batch is written to the store, the next one is encoded. Returns whether
/// the time was over.
///
/// # Errors
/// Those of the documents; the first failure of a task.
fn take_turn(shared: &Shared, arrays: &mut [Stored], gathered: &Gathered, numbers: &[usize]) -> Result<bool> {
    let documents = Documents::take(arrays, numbers)?;
    let (begun, mut number) = (Instant::now(), 0);
    let (mut at_work, mut failed) = (AtWork::new(), Vec::new());
    std::thread::scope(|threads| {
        loop {
            let is_free = at_work.is_empty() || !documents.is_transactional();
            let begins = failed.is_empty() && is_free && begun.elapsed() < TURN;
            match shared.step(arrays, &at_work, begins) {
                Step::Rest => return,
                Step::Begin(batch) => {
                    number += 1;
                    at_work.push((number, batch.iter().map(|task| Objects::of(task, arrays)).collect()));
                    let longer = documents.prepare(arrays, &batch);
                    threads.spawn(move || {
                        let (mut batch, mut to) = (batch, Written::default());
                        let caught = catch_unwind(AssertUnwindSafe(|| {
                            gathered.write(&batch, &longer?, &mut to)?;
                            if to.whole.is_empty() {
                                return Ok(());
                            }
                            // The rows are encoded, so their memory is free while their shards are stored.
                            batch = shared.encoded(std::mem::take(&mut batch));
                            let outcome = gathered.finish(&mut to);
                            shared.lock().finishing -= 1;
                            outcome
                        }));
                        shared.written((number, batch, to.stored, caught.unwrap_or_else(|_| Err(panicked()))));
                    });
                }
                Step::Written((number, batch, stored, outcome)) => {
                    at_work.retain(|(of, _)| *of != number);
                    let published = documents.publish(arrays, &stored, gathered);
                    match outcome.and(published) {
                        Ok(()) => shared.done(batch, arrays, Ok(())),
                        Err(_) => failed.push(batch),
                    }
                }
            }
        }
    });
    // One after the other, so that all rows before the failure are stored and the failure names its rows.
    let mut outcome = Ok(());
    for batch in failed {
        let mut one = |task: &Task| {
            let task = slice::from_ref(task);
            let (longer, mut to) = (documents.prepare(arrays, task)?, Written::default());
            let outcome = gathered.write(task, &longer, &mut to).and_then(|()| gathered.finish(&mut to));
            documents.publish(arrays, &to.stored, gathered).and(outcome)
        };
        outcome = outcome.and_then(|()| batch.iter().try_for_each(|task| one(task).at(|| named(&task.span))));
        shared.done(batch, arrays, outcome.clone());
    }
    outcome.map(|()| begun.elapsed() >= TURN)
}

/// The documents of arrays, locked so that nobody else changes them. Without locks for arrays whose shape is final.
struct Documents<'a> {
    locks: Option<NodeLocks>,
    /// The numbers of the arrays, in the order of the locks.
    numbers: &'a [usize],
    /// The metadata of each array when the documents were locked.
    metadata: Vec<ArrayMetadata>,
    store: Arc<dyn Store>,
    cancellation: CancellationToken,
}

impl Documents<'_> {
    /// Waits for the locks, and reads the documents.
    ///
    /// # Errors
    /// `InvalidArgument` when another program changed a shape.
    fn take<'a>(arrays: &[Stored], numbers: &'a [usize]) -> Result<Documents<'a>> {
        let first = &arrays[0].array;
        let (store, cancellation) = (Arc::clone(first.store()), first.options().cancellation.clone());
        if numbers.is_empty() {
            return Ok(Documents { locks: None, numbers, metadata: Vec::new(), store, cancellation });
        }
        let places = numbers.iter().map(|&number| node_place(&arrays[number].array)).collect();
        let locks = NodeLocks::take_as_writer(store, places, &cancellation)?;
        Documents::of(arrays, numbers, locks)
    }

    /// Reads the documents, which `locks` lock.
    ///
    /// # Errors
    /// `InvalidArgument` when another program changed a shape.
    fn of<'a>(arrays: &[Stored], numbers: &'a [usize], locks: NodeLocks) -> Result<Documents<'a>> {
        let first = &arrays[0].array;
        let (store, cancellation) = (Arc::clone(first.store()), first.options().cancellation.clone());
        let found = locks.read(&(0..numbers.len()).collect::<Vec<_>>())?;
        let metadata = numbers.iter().zip(&found).map(|(&number, found)| known(&arrays[number], found));
        let metadata = metadata.collect::<Result<Vec<_>>>()?;
        Ok(Documents { locks: Some(locks), numbers, metadata, store, cancellation })
    }

    /// Whether the store only accepts chunks of the stored shape, so that the shape must change first.
    fn is_transactional(&self) -> bool {
        self.locks.is_some() && self.store.capabilities().transactional
    }

    /// Returns the arrays of the images of a batch, long enough for its rows.
    fn prepare(&self, arrays: &mut [Stored], batch: &[Task]) -> Result<Arrays> {
        if self.is_transactional() {
            self.publish_ahead(arrays, batch)?;
        }
        // Rows of the same objects that are stored behind the shape stay.
        let ends = ends_of(arrays, batch, |of| of.end);
        let images: BTreeSet<usize> = batch.iter().map(|task| task.array).collect();
        let mut longer = Arrays::new();
        for (number, of) in arrays.iter_mut().enumerate().filter(|(_, of)| images.contains(&of.image)) {
            of.end = ends[number];
            let mut array = of.array.clone();
            if let Some(at) = self.numbers.iter().position(|other| *other == number) {
                let (mut metadata, mut shape) = (self.metadata[at].clone(), of.shape.clone());
                shape[of.part.axis] = shape[of.part.axis].max(of.end);
                metadata.set_shape(shape)?;
                array.set_metadata(metadata);
            }
            longer.insert(number, array);
        }
        Ok(longer)
    }

    /// Notes that rows are written, and stores the shapes of the arrays that grew by them.
    ///
    /// # Errors
    /// `InvalidArgument` when another program changed a shape.
    fn publish(&self, arrays: &mut [Stored], stored: &[StoredRows], gathered: &Gathered) -> Result<()> {
        for of in stored {
            of.rows.ranges().for_each(|rows| arrays[of.array].rows.insert(rows));
        }
        let mut ends: Vec<u64> = Vec::with_capacity(arrays.len());
        for of in &*arrays {
            // A coarser level is never longer than the finer one.
            let most = of.finer.map_or(u64::MAX, |(finer, factor)| ends[finer].div_ceil(factor));
            ends.push(of.end_of_prefix().min(most));
        }
        let outcome = self.store_shapes(arrays, &ends, |own, end| own < end);
        gathered.placing.set_ends(ends);
        outcome
    }

    /// Stores the shapes that the arrays have when a batch is written.
    fn publish_ahead(&self, arrays: &mut [Stored], batch: &[Task]) -> Result<()> {
        // Rows out of order are written beyond the shape, which such a store refuses, so the shape includes them.
        let ends = ends_of(arrays, batch, Stored::end_of_prefix);
        self.store_shapes(arrays, &ends, |own, end| own < end)
    }

    /// Stores new shapes of the arrays whose numbers of rows are `wrong` beside `ends`. If other writers change a document
    /// meanwhile, other than its shape, begins again.
    fn store_shapes(&self, arrays: &mut [Stored], ends: &[u64], wrong: fn(u64, u64) -> bool) -> Result<()> {
        let Some(locks) = &self.locks else { return Ok(()) };
        for attempt in 0..MOST_ATTEMPTS {
            let is_wrong = |&at: &usize| {
                let of = &arrays[self.numbers[at]];
                wrong(of.shape[of.part.axis], ends[self.numbers[at]])
            };
            let changed: Vec<usize> = (0..self.numbers.len()).filter(is_wrong).collect();
            if changed.is_empty() {
                return Ok(());
            }
            let found = locks.read(&changed)?;
            let change = |(&at, found): (&usize, &StoredNode)| {
                let of = &arrays[self.numbers[at]];
                let (mut metadata, mut shape) = (known(of, found)?, of.shape.clone());
                shape[of.part.axis] = ends[self.numbers[at]];
                metadata.set_shape(shape)?;
                Ok(NodeDocuments::from(&NodeMetadata::Array(Box::new(metadata))))
            };
            let documents = changed.iter().zip(&found).map(change).collect::<Result<Vec<NodeDocuments>>>()?;
            let change = |((&number, stored), documents)| NodeChange { number, stored, documents };
            let changes: Vec<NodeChange<'_>> = changed.iter().zip(&found).zip(&documents).map(change).collect();
            let (mut is_done, mut outcome) = (true, Ok(()));
            for (&at, replaced) in changed.iter().zip(locks.replace(&changes, Some(2))?) {
                match replaced {
                    Ok(true) => {
                        let of = &mut arrays[self.numbers[at]];
                        of.shape[of.part.axis] = ends[self.numbers[at]];
                    }
                    Ok(false) => is_done = false,
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            outcome?;
            if is_done {
                return Ok(());
            }
            pause(attempt, &self.cancellation)?;
        }
        Err(outrun(&*self.store, arrays[self.numbers[0]].array.path()))
    }
}

/// Returns the stored metadata of an array, if its shape is what the writer stored last.
///
/// # Errors
/// `InvalidArgument` when another program changed the shape.
fn known(of: &Stored, found: &StoredNode) -> Result<ArrayMetadata> {
    let metadata = found.array().at(|| of.array.place())?;
    let (own, grid) = (of.array.metadata(), |of: &ArrayMetadata| of.chunk_grid().chunk_shape().to_vec());
    if metadata.data_type() != own.data_type() || metadata.codecs() != own.codecs() || grid(&metadata) != grid(own) {
        let error = Error::new(ErrorKind::InvalidArgument, "another program replaced the array by another one");
        return Err(error.at(of.array.place()));
    }
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

/// For each array, the first row behind those of a batch and those before `stored`. Coarser levels get as many rows as
/// the finer ones may have then.
fn ends_of(arrays: &[Stored], batch: &[Task], stored: impl Fn(&Stored) -> u64) -> Vec<u64> {
    let mut ends: Vec<u64> = arrays.iter().map(stored).collect();
    for task in batch.iter().filter(|task| matches!(task.work, Work::Rows(_))) {
        ends[task.array] = ends[task.array].max(task.span.end);
    }
    for (number, of) in arrays.iter().enumerate() {
        if let Some((finer, factor)) = of.finer {
            ends[number] = ends[number].max(ends[finer].div_ceil(factor));
        }
    }
    ends
}
