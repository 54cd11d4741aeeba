//! Runs the plan of a write: the coordinator begins one stored object after another while there is memory. It begins
//! objects of the plan while there is memory, and workers gather, encode and deliver their chunks. One call never works
//! on an object twice at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::internal::Reader;
use cuzarr_device::{Device, NdBuffer};

use crate::cancellation::POLL_INTERVAL;
use crate::codec::VariableElements;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Coverage, Touched, WritePlacement, WritePlan, WriteRoute, memory_shape};
use crate::run::access::Access;
use crate::run::context::{CallArray, Context, FAR_WRITES};
use crate::run::options::Options;
use crate::run::schedule::budget::Reserved;
use crate::run::write::device::DeviceSource;
use crate::run::write::event::Event;
use crate::run::write::object::{Guard, Object, at_chunk};
use crate::run::write::place::{Place, WriteShard};
use crate::run::write::route::host::submit;
use crate::run::write::writing::{Leaf, LeafValue, MadeOnce, Writing};
use crate::store::StoreExt;

/// Number of shards from which chunks are taken in turn, if elements come from device memory. So several files are
/// written at a time: writing to one file is 20 times slower than writing to memory.
const LANES: usize = 8;
/// Number of stored objects (chunks or shards) that one write may have in flight for each thread.
const OBJECTS_A_THREAD: usize = 8;
/// If no object is completed in this time, chunks that wait on the device for more chunks are sent to the host. An
/// object may need one of them.
const PATIENCE: Duration = Duration::from_millis(2);
/// Number of attempts to write an object that other writers change at the same time; then the write fails. In each
/// round, one writer succeeds.
const MOST_ATTEMPTS: u32 = 24;
/// Half of the longest pause before the second attempt to write an object. The longest pause doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 6;
/// Memory for the maximum size of a stored object is reserved if that is at most the memory limit divided by this. Then
/// a far store is not asked for the real size.
const AFFORDABLE_SHARE: u64 = 16;
/// The elements that a write stores: of fixed size or of variable length.
#[derive(Clone)]
pub enum Value {
    /// Elements of fixed size, in memory of the selection's shape.
    Elements(NdBuffer),
    /// Elements of variable length, in the selection's C order.
    Variable(Arc<VariableElements>),
}

/// The part of a write call that concerns one array: its plan and its elements.
pub(crate) struct OfArray<'a> {
    /// The array's number among the arrays of the call.
    pub(crate) number: usize,
    pub(crate) access: &'a Access,
    /// The array's name in errors, if the call writes to several arrays.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) plan: WritePlan,
    pub(crate) placement: WritePlacement,
    pub(crate) value: Value,
}

/// Writes the elements for one array to its store, object by object. Failures after the beginning are reported to the
/// call.
///
/// # Errors
/// Failures that keep the write from beginning.
pub(crate) fn write(call: &Arc<Context>, of: OfArray<'_>, options: &Options) -> Result<()> {
    let OfArray { number, access, name, plan, placement, value } = of;
    let spacing = plan.spacing(&memory_shape(&plan.selection)?)?;
    let writing = Arc::new(Writing {
        call: Arc::clone(call),
        array: CallArray { call: Arc::clone(call), number, name },
        plan,
        spacing,
        fill: access.fill().to_vec(),
        packed_fill: MadeOnce::default(),
        blanks: Mutex::default(),
        write_empty: options.write_empty_chunks,
        variable_limit_bytes: options.variable_limit_bytes,
        submitted: AtomicUsize::new(0),
        lost: Arc::default(),
    });
    let (sender, receiver) = channel();
    let device = placement.device();
    let feeder = match (value, placement.route) {
        (Value::Variable(value), _) => Feeder::Variable(value),
        (Value::Elements(value), WriteRoute::Device(placement)) => {
            Feeder::Device(Box::new(DeviceSource::new(&writing, value, device, *placement, &sender)?))
        }
        (Value::Elements(value), _) if value.device() == Device::Cpu => Feeder::Host(value.reader()?),
        (Value::Elements(value), _) => Feeder::Host(value.to_device(Device::Cpu)?.reader()?),
    };
    let (under_way, begun) = (HashMap::new(), 0);
    let mut coordinator = Coordinator { writing, feeder, sender, receiver, under_way, begun };
    if let Err(error) = coordinator.run() {
        coordinator.writing.array.fail(error);
    }
    coordinator.wait_for_the_rest();
    Ok(())
}

impl Value {
    /// The device in whose memory the elements to write lie.
    pub(crate) fn device(&self) -> Device {
        match self {
            Value::Elements(value) => value.device(),
            Value::Variable(_) => Device::Cpu,
        }
    }

    /// Size in bytes of the elements to write, if they have a fixed size; else 0.
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Value::Elements(value) => value.size_bytes() as u64,
            Value::Variable(_) => 0,
        }
    }
}

/// Where the elements of a write are: in host memory, in a table of variable-length elements, or on a device.
enum Feeder {
    Host(Reader),
    Variable(Arc<VariableElements>),
    Device(Box<DeviceSource>),
}

impl Feeder {
    /// Number of chunks that must be added before the device source passes on the first of them; 0 for host memory.
    fn chunks_wanted(&self) -> usize {
        match self {
            Feeder::Device(source) => source.chunks_wanted(),
            _ => 0,
        }
    }

    /// Whether chunks of this `coverage` (replaced fully or in part) go to the store from slabs, without other host
    /// memory.
    fn passes_by(&self, coverage: Coverage) -> bool {
        matches!(self, Feeder::Device(source) if source.passes_by(coverage))
    }

    /// Whether kernels encode chunks of this `coverage`, which says whether the write replaces all elements of a chunk
    /// or only some.
    fn encodes(&self, coverage: Coverage) -> bool {
        matches!(self, Feeder::Device(source) if source.encodes(coverage))
    }
}

/// The inner chunks of one shard that are still to be encoded.
type Lane = std::vec::IntoIter<Leaf>;

struct Coordinator {
    writing: Arc<Writing>,
    feeder: Feeder,
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    under_way: HashMap<usize, Reserved>,
    begun: usize,
}

/// A token that tells the coordinator, when it is dropped, that all work on one stored object has ended.
struct WriteTicket {
    number: usize,
    sender: Sender<Event>,
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        // The receiver lives longer than every object, unless its thread panics. Then no thread waits.
        let _ = self.sender.send(Event::Ended(self.number));
    }
}

impl Coordinator {
    fn run(&mut self) -> Result<()> {
        let writing = Arc::clone(&self.writing);
        self.write_all(writing.plan.objects())?;
        for attempt in 1.. {
            while !self.under_way.is_empty() && !writing.call.is_cancelled() {
                self.wait_for_one()?;
            }
            let lost = std::mem::take(&mut *writing.lost.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(first) = lost.first().filter(|_| !writing.call.is_cancelled()) else { break };
            if attempt > MOST_ATTEMPTS {
                let message = format!("other writers changed the object before each of {MOST_ATTEMPTS} attempts");
                let error = Error::new(ErrorKind::StoreFailed, message).at(first.name.to_string());
                return Err(error.with_hint("write whole chunks, or let one program write at a time"));
            }
            self.pause(attempt)?;
            self.write_all(lost.into_iter().map(Ok))?;
        }
        match &mut self.feeder {
            Feeder::Device(source) => source.finish(&writing),
            _ => Ok(()),
        }
    }

    /// Pauses before objects that other writers have changed are written again. The pause is a random part of a time
    /// that grows with each attempt, so that writers do not collide again.
    fn pause(&self, attempt: u32) -> Result<()> {
        let most_ns = (FIRST_PAUSE * 2_u32.pow(attempt.min(MOST_DOUBLINGS))).as_nanos() as u64;
        let end = Instant::now() + Duration::from_nanos(RandomState::new().hash_one(attempt) % most_ns);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.writing.call.check_cancelled()?;
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
        Ok(())
    }

    /// Begins to write the given objects, and passes their chunks to threads or kernels that encode them.
    fn write_all(&mut self, objects: impl Iterator<Item = Result<Touched>>) -> Result<()> {
        let writing = Arc::clone(&self.writing);
        let is_guarded = writing.array.is_far() && writing.array.store().capabilities().conditional_writes;
        let is_affordable =
            |bound: &u64| writing.array.is_far() && *bound <= writing.call.limit_bytes / AFFORDABLE_SHARE;
        let far = if writing.array.is_far() { 2 * FAR_WRITES } else { 0 };
        let most = (OBJECTS_A_THREAD * writing.call.threads).max(self.feeder.chunks_wanted()).max(far);
        let mut lanes = Vec::new();
        for touched in objects {
            let touched = touched?;
            writing.call.cancellation.check()?;
            while self.under_way.len() >= most && !writing.call.is_cancelled() {
                self.wait_for_one()?;
            }
            let replaces = touched.coverage.replaces();
            let old_bytes = match touched.layout.levels[0].bound_bytes.filter(is_affordable) {
                _ if replaces => Ok(None),
                // Asking a far store for the size takes longer than the exact size is worth.
                Some(bound) => Ok(Some(bound)),
                None => writing.array.store().size_bytes(&touched.name.key),
            };
            let old_bytes = at_chunk(old_bytes, &touched.name)?.unwrap_or(0);
            let threads = if self.feeder.encodes(touched.coverage) { 0 } else { writing.call.threads };
            let bytes = match self.feeder.passes_by(touched.coverage) {
                true => 0,
                false => writing.plan.bytes_in_flight(&touched, old_bytes, threads),
            };
            let reserved = match writing.call.memory.host.try_take(bytes, writing.call.limit_bytes) {
                Some(reserved) => reserved,
                None => {
                    // Shards that wait for their turn hold memory that this object waits for.
                    self.feed_in_turn(&mut lanes)?;
                    let Some(reserved) = self.reserve(bytes)? else { break };
                    reserved
                }
            };
            let ticket = WriteTicket { number: self.begun, sender: self.sender.clone() };
            self.under_way.insert(self.begun, reserved);
            self.begun += 1;
            let object = Arc::new(Object {
                array: writing.array.clone(),
                layout: Arc::clone(&touched.layout),
                key: Arc::clone(&touched.name.key),
                covered: replaces,
                guard: (is_guarded && !replaces).then(|| Guard::new(touched.clone(), Arc::clone(&writing.lost))),
                _ticket: Box::new(ticket),
            });
            self.begin(touched, Place::Object(object), &mut lanes)?;
            if lanes.len() >= LANES.min(writing.call.threads) {
                self.feed_in_turn(&mut lanes)?;
            }
            while let Ok(event) = self.receiver.try_recv() {
                self.take(event)?;
            }
        }
        self.feed_in_turn(&mut lanes)?;
        self.flush()
    }

    /// Passes on the inner chunks of several shards in turn, to be encoded: one chunk of each shard.
    fn feed_in_turn(&mut self, lanes: &mut Vec<Lane>) -> Result<()> {
        while !lanes.is_empty() {
            lanes.iter_mut().filter_map(Iterator::next).try_for_each(|leaf| self.feed(leaf))?;
            lanes.retain(|lane| lane.len() > 0);
        }
        Ok(())
    }

    /// Reserves host memory for one more stored object that the write makes; `None` if the call has failed.
    fn reserve(&mut self, bytes: u64) -> Result<Option<Reserved>> {
        let call = Arc::clone(&self.writing.call);
        while !call.is_cancelled() {
            if let Some(reserved) = call.memory.host.try_take(bytes, call.limit_bytes) {
                return Ok(Some(reserved));
            }
            if self.under_way.is_empty() {
                return call.memory.host.take(bytes, call.limit_bytes, &call.cancellation).map(Some);
            }
            self.wait_for_one()?;
        }
        Ok(None)
    }

    fn wait_for_one(&mut self) -> Result<()> {
        let mut patience = PATIENCE;
        loop {
            // The object may need chunks that wait on the device for more chunks.
            match self.receiver.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) if self.advance()? => patience = PATIENCE,
                Err(RecvTimeoutError::Timeout) => patience = POLL_INTERVAL,
                Err(RecvTimeoutError::Disconnected) => return Ok(()), // the coordinator has a sender itself
                Ok(event) => {
                    if self.take(event)? {
                        return Ok(());
                    }
                }
            }
            self.writing.call.cancellation.check()?;
        }
    }

    /// Handles an event. Returns whether an object ended.
    fn take(&mut self, event: Event) -> Result<bool> {
        match (event, &mut self.feeder) {
            (Event::Ended(number), _) => Ok(self.under_way.remove(&number).is_some()),
            (Event::Fetched, Feeder::Device(source)) => source.merge_fetched(&self.writing).map(|()| false),
            (Event::Fetched, _) => Ok(false),
        }
    }

    /// Moves chunks that wait on the device one step further towards the store. Returns false if there are none.
    fn advance(&mut self) -> Result<bool> {
        match &mut self.feeder {
            Feeder::Device(source) => source.advance(&self.writing),
            _ => Ok(false),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.feeder {
            Feeder::Device(source) => source.flush(&self.writing),
            _ => Ok(()),
        }
    }

    fn wait_for_the_rest(&mut self) {
        if let Feeder::Device(source) = &mut self.feeder {
            source.abandon();
        }
        while !self.under_way.is_empty() {
            let Ok(event) = self.receiver.recv() else { break };
            if let Event::Ended(number) = event {
                self.under_way.remove(&number);
            }
        }
    }

    /// Begins to write a chunk, or the inner chunks of a shard. If elements come from device memory and the shard is
    /// written as its chunks come, its chunks become a lane.
    fn begin(&mut self, chunk: Touched, place: Place, lanes: &mut Vec<Lane>) -> Result<()> {
        let writing = Arc::clone(&self.writing);
        if !chunk.is_shard() {
            return self.feed(Leaf { chunk, place });
        }
        let touched: Vec<_> = writing.plan.inner(&chunk).map(|inner| inner.number).collect();
        let shard = Arc::new(WriteShard::new(place, chunk.level, chunk.coverage.replaces(), &touched)?);
        let inner = writing.plan.inner(&chunk).map(|inner| {
            let place = Place::Inner(Arc::clone(&shard), inner.number);
            Leaf { chunk: inner, place }
        });
        let is_innermost = chunk.level + 2 == writing.plan.source.levels();
        if is_innermost && shard.flows() && matches!(self.feeder, Feeder::Device(_)) {
            lanes.push(inner.collect::<Vec<_>>().into_iter());
            return Ok(());
        }
        for Leaf { chunk, place } in inner {
            self.begin(chunk, place, lanes)?;
        }
        Ok(())
    }

    fn feed(&mut self, leaf: Leaf) -> Result<()> {
        match &mut self.feeder {
            Feeder::Host(value) if self.writing.spacing.lists.is_some() => {
                submit(&self.writing, leaf, LeafValue::Elements(value.clone()));
                Ok(())
            }
            Feeder::Host(value) => {
                let (start, extent) = self.writing.plan.region(&leaf.chunk);
                let part = value.region(&start, &extent)?;
                submit(&self.writing, leaf, LeafValue::Elements(part));
                Ok(())
            }
            Feeder::Variable(value) => {
                submit(&self.writing, leaf, LeafValue::Variable(Arc::clone(value)));
                Ok(())
            }
            Feeder::Device(source) => source.add(&self.writing, leaf),
        }
    }
}
