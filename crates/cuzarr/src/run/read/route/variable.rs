//! The read route of variable-length elements, such as strings, into host memory. The host decodes them chunk by chunk,
//! then puts them in the order of the selection.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cuzarr_device::Device;
use cuzarr_device::internal::Lists;

use crate::codec::{Chain, VariableElements};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, ChunkLayout, Fill, Place, Room, Spacing, Unit, strides};
use crate::run::access::Access;
use crate::run::chunk_cache::KeptContent;
use crate::run::context::Context;
use crate::run::options::Options;
use crate::run::read::destination::{Destination, Launch};
use crate::run::read::in_flight::{BatchRoute, InFlight, Launcher, launch};
use crate::run::read::stored::{Stored, check_missing, foreign_memory};
use crate::run::report::Stage;
use crate::store::Lease;

/// Refuses an array whose elements have a fixed size.
///
/// # Errors
/// `Unsupported`
pub(crate) fn require(access: &Access) -> Result<()> {
    if access.leaf().is_variable() {
        return Ok(());
    }
    let message = "the elements have one size: read and write them as an nd-buffer";
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The elements that were read for one box of the result, in C order of the box.
struct Part {
    start: Vec<usize>,
    extent: Vec<usize>,
    elements: VariableElements,
}

struct Target {
    call: Arc<Context>,
    spacing: Spacing,
    read_missing: bool,
    /// Maximum decoded size of one chunk in bytes; a larger chunk is an error.
    limit_bytes: u64,
    /// A lock that a chunk takes for itself alone when its decoding needs more memory than usual. Then no other chunk
    /// takes memory.
    alone: RwLock<()>,
    parts: Mutex<Vec<Part>>,
}

/// Assumed ratio of a chunk's decoded size to its stored size. Chunks with a higher ratio are decoded alone.
const USUAL_RATIO: u64 = 16;
/// When a chunk is decoded beside other chunks, its elements may take at least this many bytes.
const USUAL_BYTES: u64 = 1 << 20;
/// A chunk that is decoded alone may take at least this many bytes for its elements, however little the memory limit
/// leaves.
const SMALL_BYTES: u64 = 1 << 16;
/// Number of copies of a decoded chunk that exist at the same time: as its codec made it, and as elements.
const COPIES: u64 = 2;

impl Target {
    fn collect(&self, start: &[usize], extent: &[usize], elements: VariableElements) {
        let part = Part { start: start.to_vec(), extent: extent.to_vec(), elements };
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    /// Decodes a chunk of variable-length elements, and keeps to the memory limit. Its decoded size is not known in
    /// advance. So the first attempt gets the memory that such chunks usually need. If that is not enough, the chunk is
    /// decoded again, alone and with all memory: a job cannot wait for memory that later jobs hold.
    fn decode(&self, chain: &Chain, stored: &[u8]) -> Result<VariableElements> {
        let usual = (stored.len() as u64).saturating_mul(USUAL_RATIO).max(USUAL_BYTES).min(self.limit_bytes);
        {
            let _with_others = self.alone.read().unwrap_or_else(PoisonError::into_inner);
            let memory = self.call.memory.host.try_take(usual.saturating_mul(COPIES), self.call.limit_bytes);
            match memory.map(|_memory| chain.decode_variable(stored, usual)) {
                Some(Err(error)) if error.kind() == ErrorKind::BudgetExceeded => {}
                Some(decoded) => return decoded,
                None => {}
            }
        }
        let _alone = self.alone.write().unwrap_or_else(PoisonError::into_inner);
        let left = self.call.limit_bytes.saturating_sub(self.call.memory.host.used_bytes()) / COPIES;
        let limit_bytes = left.max(SMALL_BYTES).min(self.limit_bytes);
        let _memory = self.call.memory.host.try_take(limit_bytes.saturating_mul(COPIES), self.call.limit_bytes);
        chain.decode_variable(stored, limit_bytes).map_err(|error| match error.kind() {
            ErrorKind::BudgetExceeded if limit_bytes < self.limit_bytes => error.with_hint("raise `memory_limit`"),
            ErrorKind::BudgetExceeded => {
                error.with_hint("if you trust the array, raise array.variable_chunk_max_bytes")
            }
            _ => error,
        })
    }
}

/// Collects variable-length elements that a read decodes, box by box, until the result can be put together.
pub(crate) struct VariableDestination {
    target: Arc<Target>,
    threads: usize,
    on_their_way: HashMap<usize, ()>,
}

impl VariableDestination {
    pub(crate) fn new(call: &Arc<Context>, spacing: Spacing, options: &Options) -> VariableDestination {
        let target = Target {
            call: Arc::clone(call),
            spacing,
            read_missing: options.read_missing_chunks,
            limit_bytes: options.variable_limit_bytes,
            alone: RwLock::new(()),
            parts: Mutex::default(),
        };
        VariableDestination { target: Arc::new(target), threads: call.threads, on_their_way: HashMap::new() }
    }

    /// Returns the elements that were read, box by box of the result.
    pub(crate) fn collected(self) -> Collected {
        let parts = std::mem::take(&mut *self.target.parts.lock().unwrap_or_else(PoisonError::into_inner));
        Collected { parts, lists: self.target.spacing.lists.clone() }
    }
}

/// The boxes of variable-length elements that one call read, and how they lie in the result.
pub(crate) struct Collected {
    parts: Vec<Part>,
    lists: Option<Arc<Lists>>,
}

/// Puts the elements of a whole selection in C order. Boxes without a chunk get `fill`.
///
/// # Errors
/// `OutOfMemory`
pub(crate) fn assemble(collected: &Collected, shape: &[u64], fill: &[u8]) -> Result<VariableElements> {
    let count = shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent));
    let no_memory = || Error::new(ErrorKind::OutOfMemory, format!("not enough memory for elements of shape {shape:?}"));
    let count = count.and_then(|count| usize::try_from(count).ok()).ok_or_else(no_memory)?;
    // Some systems grant more memory than they have, and kill the process that uses it. So the size is checked here.
    let there = Device::Cpu.memory_info().map_or(u64::MAX, |memory| memory.total_bytes);
    if (count as u64).saturating_mul(LEAST_ELEMENT_BYTES) > there {
        return Err(no_memory());
    }
    let Collected { parts, lists } = collected;
    // For each element, its part and its number in that part. Parts are counted from 1; 0 is the fill value.
    let mut places: Vec<(u32, u32)> = Vec::new();
    places.try_reserve_exact(count).map_err(|_| no_memory())?;
    places.resize(count, (0, 0));
    for (number, part) in parts.iter().enumerate() {
        for (position, place) in box_places(shape, lists.as_deref(), &part.start, &part.extent).enumerate() {
            places[place] = (number as u32 + 1, position as u32);
        }
    }
    let mut elements = VariableElements::try_with_capacity(count).ok_or_else(no_memory)?;
    elements.data.try_reserve(parts.iter().map(|part| part.elements.data.len()).sum()).map_err(|_| no_memory())?;
    for (part, position) in places {
        let element = match part {
            0 => Some(fill),
            part => parts[part as usize - 1].elements.get(position as usize),
        };
        elements.push(element.unwrap_or(fill));
    }
    Ok(elements)
}

/// Returns the positions that the elements of a box have in a C-order array of `shape`, in C order of the box. With
/// lists, the box is given in positions of the lists.
pub(crate) fn box_places(
    shape: &[u64],
    lists: Option<&Lists>,
    start: &[usize],
    extent: &[usize],
) -> impl Iterator<Item = usize> {
    let strides = strides(0..shape.len(), shape);
    let along = |dim: usize| {
        let (stride, start, end) = (strides[dim] as usize, start[dim], start[dim] + extent[dim]);
        match lists.and_then(|lists| lists.part(dim, start, extent[dim])) {
            Some(part) => (0..part.len()).map(|at| part.get(at).1 * stride).collect(),
            None => (start..end).map(|at| at * stride).collect(),
        }
    };
    sums(0, (0..shape.len()).map(along).collect())
}

impl Spacing {
    /// Returns the positions that the elements of a box have in the decoded chunk, in C order of the box.
    pub(crate) fn packed_places(
        &self,
        layout: &Arc<ChunkLayout>,
        first_elem: usize,
        start: &[usize],
        extent: &[usize],
    ) -> impl Iterator<Item = usize> + use<> {
        let strides = self.strides(layout);
        let along = |dim: usize| match self.lists.as_ref().and_then(|lists| lists.part(dim, start[dim], extent[dim])) {
            Some(part) => (0..part.len()).map(|at| part.get(at).0.wrapping_mul(strides[dim] as usize)).collect(),
            None => (0..extent[dim]).map(|at| at.wrapping_mul(strides[dim] as usize)).collect(),
        };
        sums(first_elem, (0..extent.len()).map(along).collect())
    }
}

/// Returns every sum of `first` and one number from each of the lists. The last list varies fastest.
fn sums(first: usize, lists: Vec<Vec<usize>>) -> impl Iterator<Item = usize> {
    let count: usize = lists.iter().map(Vec::len).product();
    let mut index = vec![0; lists.len()];
    (0..count).map(move |_| {
        let sum = index.iter().zip(&lists).fold(first, |sum, (&index, list)| sum.wrapping_add(list[index]));
        for dim in (0..lists.len()).rev() {
            index[dim] += 1;
            if index[dim] < lists[dim].len() {
                break;
            }
            index[dim] = 0;
        }
        sum
    })
}

impl Destination for VariableDestination {
    type Route = VariableBatch;

    fn room(&self, _group: usize) -> Room {
        // The decoded size of such chunks is not known in advance, so only a few are in flight at once.
        Room { packed_bytes: usize::MAX, units: self.threads * 2, alignment_bytes: 1 }
    }

    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<Self::Route>> {
        if !alone && self.on_their_way.len() > 1 {
            return Ok(Launch::NoMemory(batch));
        }
        self.on_their_way.insert(launcher.number, ());
        let route = VariableBatch(Arc::clone(&self.target));
        Ok(Launch::Launched(launch(launcher, batch, route)))
    }

    fn close(&mut self, _flight: Arc<InFlight<Self::Route>>, number: usize) -> Result<()> {
        self.on_their_way.remove(&number);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct VariableBatch(Arc<Target>);

/// Minimum memory per element while the result is put together, in bytes: for its origin and its offset.
const LEAST_ELEMENT_BYTES: u64 = 16;

impl BatchRoute for VariableBatch {
    fn lease(&self, _batch: &Batch, _read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        Ok(Stored::take(&self.0.call, size_bytes, 0)?)
    }

    fn arrived(&self, _batch: &Batch, _read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        lease.into_any().downcast::<Stored>().map(Some).map_err(|_| foreign_memory())
    }

    fn land(&self, batch: &Batch, unit: usize, stored: &[u8]) -> Result<()> {
        let (target, unit) = (&*self.0, &batch.units[unit]);
        let size_bytes = stored.len() as u64;
        let chunk =
            target.call.counters.time(Stage::Decode, size_bytes, || target.decode(unit.layout.chain.leaf(), stored))?;
        if let Some(cache) = target.call.cache.get().filter(|_| unit.keep)
            && let Some(reserved) = cache.reserve(chunk.size_bytes())
        {
            cache.keep(unit, KeptContent::Elements(chunk.clone()), reserved);
        }
        target.place(unit, Cow::Owned(chunk))
    }

    fn places_kept(&self) -> bool {
        true
    }

    fn place_kept(&self, batch: &Batch, kept: usize) -> Result<()> {
        let (unit, chunk) = &batch.kept[kept];
        let Some(KeptContent::Elements(chunk)) = KeptContent::of(&**chunk) else { return Ok(()) };
        self.0.place(unit, Cow::Borrowed(chunk))
    }

    fn fill(&self, _number: usize, fill: &Fill) -> Result<()> {
        check_missing(self.0.read_missing, fill)
    }
}

impl Target {
    /// Collects the elements of a decoded chunk for each box of the result that the chunk fills.
    fn place(&self, unit: &Unit, mut chunk: Cow<'_, VariableElements>) -> Result<()> {
        for Place { first_elem, start, extent, .. } in &unit.places {
            // If there is one place that takes all elements in their order, they need no copy.
            let in_order = unit.places.len() == 1
                && (0..chunk.len()).eq(self.spacing.packed_places(&unit.layout, *first_elem, start, extent));
            if in_order {
                self.collect(start, extent, std::mem::take(chunk.to_mut()));
                break;
            }
            let mut elements = VariableElements::with_capacity(extent.iter().product());
            for place in self.spacing.packed_places(&unit.layout, *first_elem, start, extent) {
                let missing = || Error::new(ErrorKind::ChunkCorrupt, format!("the chunk has no element {place}"));
                elements.push(chunk.get(place).ok_or_else(missing)?);
            }
            self.collect(start, extent, elements);
        }
        Ok(())
    }
}
