//! Writing: objects of the plan are begun while memory lasts; their chunks are gathered, encoded and delivered by the
//! workers. One call never works on one object twice at a time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cuzarr_device::transfer::{gather_host, scatter_host};
use cuzarr_device::{Buffer, Device, NdBuffer, Order, Reader, Tail, Transfer, TransferBox};

use crate::codec::{Chain, Program, VariableElements, seal, with_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::write::{Target, inner, objects};
use crate::plan::{ChunkName, Selection, Source};
use crate::run::access::Access;
use crate::run::context::Context;
use crate::run::options::Options;
use crate::run::read::route::variable::{box_places, strided_places};
use crate::run::report::Stage;
use crate::run::schedule::budget::Reserved;
use crate::run::write::device::DeviceSource;
use crate::run::write::object::{Object, Place, Shard, at_chunk};
use crate::run::write::route::encode::Seal;

/// Objects under way at once, for every thread.
const OBJECTS_A_THREAD: usize = 8;
/// How long an object is waited for before chunks on the device are hurried, which may be what it waits for.
const PATIENCE: Duration = Duration::from_millis(2);
/// What a shard in the making keeps of each of its inner chunks, written or not: its new bytes, what the object will be made of,
/// and its entry in the old and in the new index.
const SLOT_BYTES: u64 = 96;
/// Lists of so few bytes are not counted: thousands of inner chunks.
const FREE_SLOTS_BYTES: u64 = 1 << 20;
/// Where an element of variable length comes from, and where it is.
const VARIABLE_PLACE_BYTES: u64 = 24;

/// What is written.
pub(crate) enum Value {
    /// Elements of one size, of the selection's shape.
    Elements(NdBuffer),
    /// Elements of variable length, in the selection's C order.
    Variable(Arc<VariableElements>),
}

/// What the chunks of one write share.
pub(crate) struct Writing {
    pub(crate) call: Arc<Context>,
    pub(crate) source: Arc<Source>,
    chain: Arc<Chain>,
    leaf: Chain,
    pub(crate) selection: Selection,
    /// Elements between neighbours in packed bytes, per dimension of the array.
    strides: Vec<u64>,
    pub(crate) program: Option<Arc<Program>>,
    pub(crate) fill: Vec<u8>,
    /// A packed chunk of nothing but the fill value.
    blank: OnceLock<Vec<u8>>,
    pub(crate) write_empty: bool,
    /// Bytes that a chunk of variable-length elements may have.
    variable_limit_bytes: u64,
    /// Chunks that workers encode or will.
    submitted: AtomicUsize,
}

/// A chunk to be encoded.
pub(crate) struct Leaf {
    pub(crate) name: ChunkName,
    pub(crate) target: Target,
    pub(crate) place: Place,
}

/// The elements that go into one chunk.
pub(crate) enum LeafValue {
    /// In host memory, of the shape of the chunk's part of the selection.
    Elements(Reader),
    /// A whole chunk, packed, in host memory.
    Packed(Buffer),
    /// A whole chunk that a device encoded, in host memory, and its checksum when that did, too; codecs behind that are left.
    Frame(Buffer, Option<Seal>),
    /// A whole chunk of nothing but the fill value, which is not stored.
    Blank,
    /// All elements of the call.
    Variable(Arc<VariableElements>),
}

/// Writes `value` to the selection.
///
/// # Errors
/// The first failure, with the others beside it.
pub(crate) fn write(
    call: &Arc<Context>,
    access: &Access,
    selection: &Selection,
    value: Value,
    options: &Options,
) -> Result<()> {
    let source = Arc::clone(access.source());
    let writing = Arc::new(Writing {
        call: Arc::clone(call),
        chain: Arc::clone(access.chain()),
        leaf: access.leaf().clone(),
        selection: selection.clone(),
        strides: source.packed.strides(&source.leaf().chunk_shape),
        source,
        program: access.program().ok().cloned(),
        fill: access.fill().to_vec(),
        blank: OnceLock::new(),
        write_empty: options.write_empty_chunks,
        variable_limit_bytes: options.variable_limit_bytes,
        submitted: AtomicUsize::new(0),
    });
    let feeder = match value {
        Value::Elements(value) if value.device() != Device::Cpu => {
            Feeder::Device(Box::new(DeviceSource::new(&writing, value, options)?))
        }
        Value::Elements(value) => Feeder::Host(value.reader()?),
        Value::Variable(value) => Feeder::Variable(value),
    };
    let (sender, receiver) = channel();
    let mut coordinator = Coordinator { writing, feeder, sender, receiver, under_way: HashMap::new(), begun: 0 };
    if let Err(error) = coordinator.run() {
        call.fail(error);
    }
    coordinator.wait_for_the_rest();
    call.outcome()
}

/// Where chunks get their elements from.
enum Feeder {
    Host(Reader),
    Variable(Arc<VariableElements>),
    Device(Box<DeviceSource>),
}

impl Feeder {
    /// Chunks that it takes before it hands the first ones on.
    fn chunks_wanted(&self) -> usize {
        match self {
            Feeder::Device(source) => source.chunks_wanted(),
            _ => 0,
        }
    }

    /// Whether kernels encode chunks that are replaced as a whole.
    fn encodes(&self) -> bool {
        matches!(self, Feeder::Device(source) if source.encodes())
    }
}

struct Coordinator {
    writing: Arc<Writing>,
    feeder: Feeder,
    sender: Sender<usize>,
    receiver: Receiver<usize>,
    under_way: HashMap<usize, Reserved>,
    begun: usize,
}

/// Says that nobody works on an object any more.
struct Ticket {
    number: usize,
    sender: Sender<usize>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The receiver outlives every object, except when its thread panics, and then nobody waits.
        let _ = self.sender.send(self.number);
    }
}

impl Coordinator {
    fn run(&mut self) -> Result<()> {
        let writing = Arc::clone(&self.writing);
        let most = (OBJECTS_A_THREAD * writing.call.threads).max(self.feeder.chunks_wanted());
        let by_kernels = self.feeder.encodes();
        for (name, target) in objects(&writing.source, &writing.selection)? {
            while self.under_way.len() >= most && !writing.call.is_cancelled() {
                self.wait_for_one()?;
            }
            let bytes = at_chunk(writing.bytes_in_flight(&name, &target, by_kernels), &name)?;
            let Some(reserved) = self.reserve(bytes)? else { break };
            let ticket = Ticket { number: self.begun, sender: self.sender.clone() };
            self.under_way.insert(self.begun, reserved);
            self.begun += 1;
            let object = Arc::new(Object {
                call: Arc::clone(&writing.call),
                chain: Arc::clone(&writing.chain),
                source: Arc::clone(&writing.source),
                key: Arc::clone(&name.key),
                covered: target.covered,
                _ticket: Box::new(ticket),
            });
            self.begin(0, name, target, Place::Object(object))?;
            while let Ok(number) = self.receiver.try_recv() {
                self.under_way.remove(&number);
            }
        }
        self.flush()?;
        match &mut self.feeder {
            Feeder::Device(source) => source.finish(&writing),
            _ => Ok(()),
        }
    }

    /// Memory for one more object; `None` when the call failed meanwhile.
    fn reserve(&mut self, bytes: u64) -> Result<Option<Reserved>> {
        let call = Arc::clone(&self.writing.call);
        while !call.is_cancelled() {
            if let Some(reserved) = call.memory.host.try_take(bytes, call.limit_bytes) {
                return Ok(Some(reserved));
            }
            if self.under_way.is_empty() {
                return call.memory.host.take(bytes, call.limit_bytes).map(Some);
            }
            self.wait_for_one()?;
        }
        Ok(None)
    }

    fn wait_for_one(&mut self) -> Result<()> {
        loop {
            // Chunks that wait for company on their way from the device would be waited for in vain.
            let number = match self.receiver.recv_timeout(PATIENCE) {
                Err(RecvTimeoutError::Timeout) if self.advance()? => continue,
                Err(RecvTimeoutError::Timeout) => self.receiver.recv().ok(),
                number => number.ok(),
            };
            if let Some(number) = number {
                self.under_way.remove(&number);
            }
            return Ok(());
        }
    }

    /// Brings chunks that are on the device one step further; false when there are none.
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
            let Ok(number) = self.receiver.recv() else { break };
            self.under_way.remove(&number);
        }
    }

    /// Begins a chunk, or the inner chunks of a shard.
    fn begin(&mut self, level: usize, name: ChunkName, target: Target, place: Place) -> Result<()> {
        let writing = Arc::clone(&self.writing);
        if writing.source.levels[level].shard.is_none() {
            return self.feed(Leaf { name, target, place });
        }
        let touched = inner(&writing.source, &writing.selection, level, &target.cell).count();
        let shard = Arc::new(Shard::new(place, level, target.covered, touched));
        for (linear, part) in inner(&writing.source, &writing.selection, level, &target.cell) {
            let inner = name.inner.iter().chain(&part.cell.at).copied().collect();
            let name = ChunkName { key: Arc::clone(&name.key), inner };
            self.begin(level + 1, name, part, Place::Inner(Arc::clone(&shard), linear))?;
        }
        Ok(())
    }

    fn feed(&mut self, leaf: Leaf) -> Result<()> {
        match &mut self.feeder {
            Feeder::Host(value) => {
                let (start, extent) = self.writing.region(&leaf.target);
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

/// Lets a worker encode a chunk.
pub(crate) fn submit(writing: &Arc<Writing>, leaf: Leaf, value: LeafValue) {
    let writing = Arc::clone(writing);
    writing.submitted.fetch_add(1, Ordering::Relaxed);
    writing.call.pool.clone().submit(Box::new(move || {
        if writing.call.is_cancelled() {
            return;
        }
        let work = || match value {
            LeafValue::Frame(frame, seal) => writing.deliver_frame(&leaf, &frame.host_bytes()?, seal),
            value => leaf.place.deliver(writing.encode(&leaf, value)?),
        };
        let outcome = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::EncodeFailed, "a codec panicked; please report this")));
        writing.submitted.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = at_chunk(outcome, &leaf.name) {
            writing.call.fail(error);
        }
    }));
}

impl Writing {
    /// Bytes that work on an object may take: what it was, its packed and its encoded chunks.
    fn bytes_in_flight(&self, name: &ChunkName, target: &Target, by_kernels: bool) -> Result<u64> {
        let old = match target.covered {
            true => 0,
            false => self.call.store.size_bytes(&name.key)?.unwrap_or(0),
        };
        let leaf = &self.source.leaf().chunk_shape;
        // Of elements that differ in length, their places are counted: how long they are, nobody knows.
        let packed = match self.leaf.is_variable() {
            true => self.leaf.spec().elements().unwrap_or(u64::MAX).saturating_mul(VARIABLE_PLACE_BYTES),
            false => self.source.packed.size_bytes as u64,
        };
        let chunks = self.cells_touched(target, leaf);
        let scratch = match by_kernels && target.covered {
            true => 0,
            false => packed.saturating_mul(chunks.min(self.call.threads as u64)).saturating_mul(2),
        };
        let slots = self.slots_bytes(target).saturating_sub(FREE_SLOTS_BYTES);
        Ok(packed.saturating_mul(chunks).saturating_add(scratch).saturating_add(old).saturating_add(slots))
    }

    /// Bytes that the lists of inner chunks take, of all shards of an object that are touched.
    fn slots_bytes(&self, target: &Target) -> u64 {
        let slots = self.source.levels.iter().filter_map(|level| {
            let grid = &level.shard.as_ref()?.grid;
            let shards = self.cells_touched(target, &level.chunk_shape);
            Some(grid.iter().fold(shards, |count, &extent| count.saturating_mul(extent)))
        });
        slots.fold(0, u64::saturating_add).saturating_mul(SLOT_BYTES)
    }

    /// Cells of shape `cell` that the selection touches in an object.
    fn cells_touched(&self, target: &Target, cell: &[u64]) -> u64 {
        let axes = self.selection.axes().iter().zip(&target.cell.inside).zip(cell);
        let touched = axes.map(|((axis, &(from, to)), &cell)| {
            let (first, last) = (axis.start + from * axis.step, axis.start + (to - 1) * axis.step);
            (last / cell - first / cell + 1).min(to - from)
        });
        touched.fold(1, u64::saturating_mul)
    }

    /// The part of the value that goes to a chunk: starts and extents of the kept dimensions.
    pub(crate) fn region(&self, target: &Target) -> (Vec<usize>, Vec<usize>) {
        let kept = self.selection.axes().iter().zip(&target.cell.inside).filter(|(axis, _)| !axis.dropped);
        // The value is in memory, so its extents fit `usize`.
        kept.map(|(_, &(from, to))| (from as usize, (to - from) as usize)).unzip()
    }

    /// Index of the chunk's first element that is written, and the packed strides.
    fn packed_place(&self, target: &Target) -> (usize, Vec<isize>) {
        let axes = self.selection.axes().iter().enumerate();
        let first = axes.map(|(dim, axis)| {
            let element = axis.start + target.cell.inside[dim].0 * axis.step;
            (element - target.cell.origin[dim]) * self.strides[dim]
        });
        (first.sum::<u64>() as usize, self.packed_strides())
    }

    /// Elements between neighbours in packed bytes, per kept dimension.
    pub(crate) fn packed_strides(&self) -> Vec<isize> {
        let kept = self.selection.axes().iter().zip(&self.strides).filter(|(axis, _)| !axis.dropped);
        // A dimension with one element in the chunk needs no stride; others have strides inside the chunk.
        kept.map(|(axis, &stride)| isize::try_from(stride.saturating_mul(axis.step)).unwrap_or(isize::MAX)).collect()
    }

    fn encode(&self, leaf: &Leaf, value: LeafValue) -> Result<Option<Vec<u8>>> {
        match value {
            LeafValue::Elements(value) => self.encode_elements(leaf, &value),
            LeafValue::Packed(value) => self.encode_packed(&value.host_bytes()?),
            LeafValue::Variable(value) => self.encode_variable(leaf, &value),
            LeafValue::Frame(..) | LeafValue::Blank => Ok(None),
        }
    }

    /// Stores what a device encoded, behind the codecs that are left.
    fn deliver_frame(&self, leaf: &Leaf, frame: &[u8], sealed: Option<Seal>) -> Result<()> {
        if let Some((checksum, location)) = sealed {
            return leaf.place.deliver(Some(seal(frame, checksum, location)));
        }
        let rest = || self.program()?.encode_behind_device(frame);
        match self.call.counters.time(Stage::Encode, 0, rest)? {
            Some(encoded) => leaf.place.deliver(Some(encoded)),
            None => leaf.place.deliver_bytes(frame),
        }
    }

    /// Elements of a whole chunk.
    pub(crate) fn chunk_elements(&self) -> usize {
        self.source.leaf().chunk_shape.iter().product::<u64>() as usize
    }

    fn program(&self) -> Result<&Program> {
        let no_program = || Error::new(ErrorKind::Unsupported, "elements differ in length");
        self.program.as_deref().ok_or_else(no_program)
    }

    /// A whole chunk whose packed bytes tell whether it is empty.
    fn encode_packed(&self, packed: &[u8]) -> Result<Option<Vec<u8>>> {
        let program = self.program()?;
        if !self.write_empty && packed == self.blank(program)? {
            return Ok(None);
        }
        self.encode_whole(program, packed).map(Some)
    }

    /// Runs the codecs, with the threads that other chunks leave idle.
    fn encode_whole(&self, program: &Program, packed: &[u8]) -> Result<Vec<u8>> {
        let threads = self.call.threads / self.submitted.load(Ordering::Relaxed).max(1);
        let encode = || with_threads(threads, || program.encode(packed));
        self.call.counters.time(Stage::Encode, packed.len() as u64, encode)
    }

    fn encode_elements(&self, leaf: &Leaf, value: &Reader) -> Result<Option<Vec<u8>>> {
        let program = self.program()?;
        let is_blank = !self.write_empty && value.all_equal_element(&self.fill, true)?;
        if is_blank && leaf.target.covered {
            return Ok(None);
        }
        let mut packed = self.call.scratch.take(program.packed_size_bytes())?;
        let mut old = None;
        if !leaf.target.full {
            old = if leaf.target.covered { None } else { leaf.place.load()? };
            match &old {
                Some(old) => {
                    let (stored, size_bytes) = (old.bytes(), packed.len() as u64);
                    self.call.counters.time(Stage::Decode, size_bytes, || program.decode(stored, &mut packed))?;
                }
                None if is_blank => return Ok(None),
                None => packed.copy_from_slice(self.blank(program)?),
            }
        }
        self.gather(&leaf.target, program.tail(), value, &mut packed)?;
        if is_blank && old.is_some() && self.is_blank(program, &packed)? {
            return Ok(None);
        }
        self.encode_whole(program, &packed).map(Some)
    }

    fn gather(&self, target: &Target, tail: &Tail, value: &Reader, packed: &mut [u8]) -> Result<()> {
        let (packed_first_elem, packed_strides) = self.packed_place(target);
        let item = TransferBox {
            packed_offset_bytes: 0,
            packed_size_bytes: packed.len(),
            packed_first_elem,
            start: vec![0; value.array().ndim()],
            extent: value.array().shape().to_vec(),
        };
        let transfer = Transfer { tail: tail.clone(), packed_strides, boxes: vec![item] };
        let size_bytes = value.array().size_bytes() as u64;
        self.call.counters.time(Stage::Gather, size_bytes, || value.gather(&transfer, packed))?;
        Ok(())
    }

    /// The transfer of one whole chunk.
    fn whole_chunk(&self, program: &Program) -> (Transfer, Vec<usize>) {
        let shape: Vec<usize> = self.source.leaf().chunk_shape.iter().map(|&extent| extent as usize).collect();
        let item = TransferBox {
            packed_offset_bytes: 0,
            packed_size_bytes: program.packed_size_bytes(),
            packed_first_elem: 0,
            start: vec![0; shape.len()],
            extent: shape.clone(),
        };
        let packed_strides = self.strides.iter().map(|&stride| stride as isize).collect();
        (Transfer { tail: program.tail().clone(), packed_strides, boxes: vec![item] }, shape)
    }

    /// A packed chunk of nothing but the fill value.
    pub(crate) fn blank(&self, program: &Program) -> Result<&[u8]> {
        if let Some(blank) = self.blank.get() {
            return Ok(blank);
        }
        let (transfer, shape) = self.whole_chunk(program);
        let ones = vec![1; shape.len()];
        let fill = NdBuffer::full(Device::Cpu, program.tail().dtype, &ones, Order::C, &self.fill)?;
        let mut packed = vec![0; program.packed_size_bytes()];
        gather_host(&fill.broadcast_to(&shape)?, &transfer, &mut packed)?;
        Ok(self.blank.get_or_init(|| packed))
    }

    /// Whether all elements of a packed chunk are the fill value.
    fn is_blank(&self, program: &Program, packed: &[u8]) -> Result<bool> {
        let (transfer, shape) = self.whole_chunk(program);
        let elements = NdBuffer::empty(Device::Cpu, program.tail().dtype, &shape, Order::C)?;
        scatter_host(packed, &transfer, &elements)?;
        Ok(elements.all_equal_element(&self.fill, true)?)
    }

    fn encode_variable(&self, leaf: &Leaf, value: &VariableElements) -> Result<Option<Vec<u8>>> {
        let old = if leaf.target.covered { None } else { leaf.place.load()? };
        let old = match old {
            Some(old) => {
                let decode = || self.leaf.decode_variable(old.bytes(), self.variable_limit_bytes);
                Some(self.call.counters.time(Stage::Decode, old.bytes().len() as u64, decode)?)
            }
            None => None,
        };
        let too_large = || Error::new(ErrorKind::OutOfMemory, "the chunk has more elements than memory can hold");
        let count = self.leaf.spec().elements().and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
        // Where each element of the chunk comes from: the value, by number, or what was there.
        let mut from: Vec<Option<usize>> = Vec::new();
        from.try_reserve_exact(count).map_err(|_| too_large())?;
        from.resize(count, None);
        let (start, extent) = self.region(&leaf.target);
        let (first, strides) = self.packed_place(&leaf.target);
        let shape = self.selection.shape();
        for (place, number) in strided_places(first, strides, &extent).zip(box_places(&shape, &start, &extent)) {
            from[place] = Some(number);
        }
        let mut elements = VariableElements::try_with_capacity(count).ok_or_else(too_large)?;
        for (place, number) in from.into_iter().enumerate() {
            let element = match (number, &old) {
                (Some(number), _) => value.get(number),
                (None, Some(old)) => old.get(place),
                (None, None) => Some(&self.fill[..]),
            };
            elements.push(element.unwrap_or(&self.fill));
        }
        if !self.write_empty && elements.iter().all(|element| element == self.fill) {
            return Ok(None);
        }
        // As the codec stores them: their number, and each with its length. What readers would refuse is not written.
        let (size_bytes, most) = ((elements.data.len() + 4 * count + 4) as u64, self.variable_limit_bytes);
        if size_bytes > most {
            let message = format!(
                "a chunk of {size_bytes} bytes in {count} elements of variable length, at most {most} are read"
            );
            let hint = "use smaller chunks, or raise array.variable_chunk_max_bytes";
            return Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint));
        }
        let encode = || self.leaf.encode_variable(&elements);
        self.call.counters.time(Stage::Encode, elements.data.len() as u64, encode).map(Some)
    }
}
