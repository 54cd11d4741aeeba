//! Reads of many arrays by one call, with one plan, one pipeline and shared kernel launches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::pool;
use cuzarr_device::{DType, Device, NdBuffer, Order};

use super::{Array, OfMany, in_calls, options_of, token_of};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Explanation, ResultOf, Selection};
use crate::run::{Access, ArrayRead, ArrayResult, Engine, Options, Report};

/// One read of a call of [`read_all`]: a selection of an array.
#[derive(Clone, Debug)]
pub struct ArraySelection<'a> {
    array: &'a Array,
    wanted: Wanted,
    dtype: Option<DType>,
    out: Option<NdBuffer>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Selection(Selection),
    Ranges(Vec<Range<u64>>),
}

impl<'a> ArraySelection<'a> {
    /// Makes a read of the selected elements of an array. They are read into new memory of its device.
    pub fn new(array: &'a Array, selection: Selection) -> Self {
        ArraySelection { array, wanted: Wanted::Selection(selection), dtype: None, out: None }
    }

    /// Makes a read of ranges of a one-dimensional array, such as rows of a sparse matrix. The result has them one
    /// after the other. They may overlap, and come in any order.
    ///
    /// ```
    /// use cuzarr::node::{ArraySelection, read_all};
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([10], DataType::UInt8).chunks([4]).create("memory://row")?;
    /// array.write_buffer(&Selection::all(&[10]), &NdBuffer::from_slice(Device::Cpu, &[0_u8, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[10])?)?;
    /// let results = read_all(&[ArraySelection::ranges(&array, vec![7..9, 2..2, 3..6])])?;
    /// assert_eq!(results[0].host_slice::<u8>()?, [7, 8, 3, 4, 5]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn ranges(array: &'a Array, ranges: Vec<Range<u64>>) -> Self {
        ArraySelection { array, wanted: Wanted::Ranges(ranges), dtype: None, out: None }
    }

    /// Converts the elements that are read to `dtype`, like NumPy's `astype`.
    #[must_use]
    pub fn with_dtype(self, dtype: DType) -> Self {
        ArraySelection { dtype: Some(dtype), ..self }
    }

    /// Sets the memory into which the elements are read. It may be on any device, and has the selection's shape.
    /// Elements are converted to its type.
    #[must_use]
    pub fn with_out(self, out: NdBuffer) -> Self {
        ArraySelection { out: Some(out), ..self }
    }

    /// Returns the array's codecs, bound to the device and the element type of the result. Checks that the selection
    /// fits.
    fn bound(&self) -> Result<Arc<Access>> {
        let work = || {
            if let Wanted::Selection(selection) = &self.wanted {
                self.array.result_shape(selection)?;
            }
            self.array.access_to(self.device(), self.result_dtype()?)
        };
        work().at(|| self.array.place())
    }

    /// Returns which elements of the array fill this read's result, for the engine.
    fn of(&self) -> ResultOf<'_> {
        match &self.wanted {
            Wanted::Selection(selection) => ResultOf::One(selection),
            Wanted::Ranges(ranges) => ResultOf::Ranges(ranges),
        }
    }

    /// Returns the data type of the elements in the result of this read.
    fn result_dtype(&self) -> Result<DType> {
        match (&self.out, self.dtype) {
            (Some(out), _) => Ok(out.dtype()),
            (None, Some(dtype)) => Ok(dtype),
            (None, None) => self.array.device_dtype(),
        }
    }
}

impl OfMany for ArraySelection<'_> {
    fn array(&self) -> &Array {
        self.array
    }

    fn device(&self) -> Device {
        self.out.as_ref().map_or(self.array.device(), NdBuffer::device)
    }
}

/// Reads selections of any number of arrays by one call. Chunks that are decoded in the same way share launches, even
/// if they belong to different arrays or stores. Results are in the order of `reads`: new memory of the array's device,
/// or the caller's memory.
///
/// The call uses the smallest memory limit and the smallest number of threads of all arrays. Cancelling any of them
/// ends the call. A chunk that several selections of one [`Array`] need is decoded once.
///
/// ```
/// use std::sync::Arc;
///
/// use cuzarr::node::{ArraySelection, read_all};
/// use cuzarr::prelude::*;
/// use cuzarr::store::{MemoryStore, Store};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let rows = Array::builder([2, 3], DataType::UInt8).fill_value(7_u8).create_in(Arc::clone(&store), "rows")?;
/// let time = Array::builder([4], DataType::Int64).fill_value(5_i64).create_in(store, "time")?;
/// let reads = [
///     ArraySelection::new(&rows, Selection::all(rows.shape())),
///     ArraySelection::new(&time, Selection::from_slices(&[SliceArg::Index(3)], time.shape())?),
/// ];
/// let results = read_all(&reads)?;
/// assert_eq!(results[0].shape(), [2, 3]);
/// assert_eq!(results[1].host_slice::<i64>()?, [5]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// Those of [`Array::read_into`] for each read; `SelectionInvalid` for ranges outside their array, or of an array that
/// is not one-dimensional; `InvalidArgument` when memory for results overlaps. The first failure ends the whole call,
/// with the array in its trail. The content of the caller's memory is then unspecified.
pub fn read_all(reads: &[ArraySelection<'_>]) -> Result<Vec<NdBuffer>> {
    refuse_overlaps(reads)?;
    let token = token_of(reads);
    let mut found: Vec<Option<NdBuffer>> = vec![None; reads.len()];
    for (numbers, results) in in_calls(reads, &token, |numbers| call(reads, numbers, &token))? {
        numbers.into_iter().zip(results).for_each(|(at, result)| found[at] = Some(result));
    }
    Ok(found.into_iter().flatten().collect())
}

/// Explains how [`read_all`] would execute these reads, without reading. Selections whose chunks are decoded in the
/// same way form a group, which shares batches. Returns each group with the numbers of its reads. Nothing is read.
///
/// ```
/// use cuzarr::node::{ArraySelection, explain_all};
/// use cuzarr::prelude::*;
///
/// let array = Array::builder([10], DataType::UInt8).chunks([4]).create("memory://explained")?;
/// let reads = [0..4, 5..10].map(|range| ArraySelection::ranges(&array, vec![range]));
/// let groups = explain_all(&reads)?;
/// assert_eq!((groups.len(), groups[0].1.chunks), (1, 3));
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// Those of [`Array::explain`], with the array in the trail; `Unsupported` for elements of variable length.
pub fn explain_all(reads: &[ArraySelection<'_>]) -> Result<Vec<(Vec<usize>, Explanation)>> {
    let token = token_of(reads);
    let explain = |numbers: &[usize]| {
        let options = options_of(numbers.iter().map(|&at| reads[at].array), &token)?;
        let bound = numbers.iter().map(|&at| reads[at].bound()).collect::<Result<Vec<Arc<Access>>>>()?;
        let of =
            |(access, &at): (&'_ Arc<Access>, &usize)| (Arc::clone(access), reads[at].array.store(), reads[at].of());
        let wanted: Vec<_> = bound.iter().zip(numbers).map(of).collect();
        let wanted: Vec<_> = wanted.iter().map(|(access, store, of)| (&**access, *store, *of)).collect();
        let groups = Engine::explain_all(&wanted, &options)?.into_iter();
        Ok(groups.map(|(group, told)| (group.into_iter().map(|at| numbers[at]).collect(), told)).collect::<Vec<_>>())
    };
    let explained = in_calls(reads, &token, explain)?;
    Ok(explained.into_iter().flat_map(|(_, groups)| groups).collect())
}

/// Executes the reads `reads[n]` for each `n` in `numbers`, by one call of the engine.
fn call(reads: &[ArraySelection<'_>], numbers: &[usize], token: &CancellationToken) -> Result<Vec<NdBuffer>> {
    let options = options_of(numbers.iter().map(|&at| reads[at].array), token)?;
    let _within = pool::within(reads[numbers[0]].device(), options.memory_limit_bytes);
    let (mut arrays, mut places) = (Vec::<OfArray<'_>>::new(), HashMap::new());
    for &at in numbers {
        let read = &reads[at];
        let dtype = read.result_dtype().at(|| read.array.place())?;
        let place = *places.entry((read.array.handle(), dtype)).or_insert_with(|| {
            arrays.push(OfArray { array: read.array, dtype, numbers: Vec::new(), parts: Vec::new() });
            arrays.len() - 1
        });
        arrays[place].numbers.push(at);
    }
    let device = reads[numbers[0]].device();
    let mut bound: Vec<(Arc<Access>, String)> = Vec::with_capacity(arrays.len());
    for array in &mut arrays {
        let place = array.array.place();
        array.take_memory(reads).at(|| place.clone())?;
        bound.push((array.array.access_to(device, array.dtype).at(|| place.clone())?, place));
    }
    let report = run(&arrays, &bound, &options)?;
    let mut found: Vec<Option<NdBuffer>> = vec![None; reads.len()];
    for array in &arrays {
        array.array.set_report(report.clone());
        for part in &array.parts {
            for (index, &at) in part.numbers.iter().enumerate() {
                found[at] = Some(match part.origin {
                    OutParts::Stack(_) => part.out.index_axis(0, index)?,
                    OutParts::One(_) | OutParts::Ranges(_) => part.out.clone(),
                });
            }
        }
    }
    Ok(numbers.iter().filter_map(|&at| found[at].take()).collect())
}

/// Executes the reads of these arrays by one call of the engine. A single result of a single
/// array takes the path of a single read.
fn run(arrays: &[OfArray<'_>], bound: &[(Arc<Access>, String)], options: &Options) -> Result<Report> {
    let engine = Engine::get();
    if let ([array], [(access, place)]) = (arrays, bound)
        && let [part] = &array.parts[..]
    {
        let report = engine.read_one(access, array.array.store(), part.origin.of(), &part.out, options);
        return report.at(|| place.clone());
    }
    let results: Vec<Vec<ArrayResult<'_>>> = arrays.iter().map(OfArray::results).collect();
    let parts = arrays.iter().zip(bound).zip(&results);
    let reads: Vec<ArrayRead<'_>> = parts
        .map(|((array, (access, name)), results)| ArrayRead { access, store: array.array.store(), name, results })
        .collect();
    engine.read_all(&reads, options)
}

/// The reads of a call that are from one array and give elements of one type.
struct OfArray<'a> {
    array: &'a Array,
    dtype: DType,
    numbers: Vec<usize>,
    parts: Vec<OfOut>,
}

/// Reads of one array that fill one memory together: a single result, or a stack of results in one nd-buffer.
struct OfOut {
    numbers: Vec<usize>,
    origin: OutParts,
    out: NdBuffer,
}

enum OutParts {
    One(Selection),
    Stack(Vec<Selection>),
    Ranges(Vec<Range<u64>>),
}

impl OfArray<'_> {
    /// Allocates memory for the results of this array's reads, as far as the caller gave none. Selections of one shape
    /// and step share it.
    fn take_memory(&mut self, reads: &[ArraySelection<'_>]) -> Result<()> {
        let (mut new, mut selections) = (Vec::new(), Vec::new());
        for &at in &self.numbers {
            let ArraySelection { wanted, out, .. } = &reads[at];
            let origin = match wanted {
                Wanted::Selection(selection) => {
                    self.array.result_shape(selection)?;
                    OutParts::One(selection.clone())
                }
                Wanted::Ranges(ranges) => {
                    self.check_ranges()?;
                    OutParts::Ranges(ranges.clone())
                }
            };
            match (out.clone(), origin) {
                (Some(out), origin) => self.parts.push(OfOut { numbers: vec![at], origin, out }),
                (None, OutParts::One(selection)) => {
                    new.push(at);
                    selections.push(selection);
                }
                (None, origin) => self.parts.push(self.in_new_memory(vec![at], origin)?),
            }
        }
        for mut group in alike(&selections) {
            let numbers = group.iter().map(|&at| new[at]).collect();
            let origin = match group.len() {
                1 => OutParts::One(selections[group.remove(0)].clone()),
                _ => OutParts::Stack(group.into_iter().map(|at| selections[at].clone()).collect()),
            };
            self.parts.push(self.in_new_memory(numbers, origin)?);
        }
        Ok(())
    }

    fn in_new_memory(&self, numbers: Vec<usize>, origin: OutParts) -> Result<OfOut> {
        let order = match origin {
            OutParts::One(_) => self.array.options().order,
            // In C order, each selection of a stack is contiguous.
            OutParts::Stack(_) | OutParts::Ranges(_) => Order::C,
        };
        let out = self.array.new_result(self.dtype, &origin.of().shape()?, order)?;
        pool::name_result(out.buffer(), || self.array.place());
        Ok(OfOut { numbers, origin, out })
    }

    fn check_ranges(&self) -> Result<()> {
        match self.array.shape().len() {
            1 => Ok(()),
            other => {
                let message = format!("ranges are of an array of one dimension, this one has {other}");
                Err(Error::new(ErrorKind::SelectionInvalid, message))
            }
        }
    }

    fn results(&self) -> Vec<ArrayResult<'_>> {
        self.parts.iter().map(|part| ArrayResult { of: part.origin.of(), out: &part.out }).collect()
    }
}

impl OutParts {
    fn of(&self) -> ResultOf<'_> {
        match self {
            OutParts::One(selection) => ResultOf::One(selection),
            OutParts::Stack(selections) => ResultOf::Stack(selections),
            OutParts::Ranges(ranges) => ResultOf::Ranges(ranges),
        }
    }
}

/// Groups the numbers of selections that have one shape and step, so that they can be read as a stack. Returns the
/// numbers of the selections in each group.
fn alike(selections: &[Selection]) -> Vec<Vec<usize>> {
    let (mut groups, mut places) = (Vec::<Vec<usize>>::new(), HashMap::new());
    for (at, selection) in selections.iter().enumerate() {
        let place = match selection.likeness() {
            Some(likeness) => *places.entry(likeness).or_insert(groups.len()),
            None => groups.len(),
        };
        match groups.get_mut(place) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Refuses reads of one call whose results would overlap in memory. On a device, nothing else would detect it.
fn refuse_overlaps(reads: &[ArraySelection<'_>]) -> Result<()> {
    let mut outs: Vec<(usize, &NdBuffer)> =
        reads.iter().enumerate().filter_map(|(at, read)| Some((at, read.out.as_ref()?))).collect();
    outs.sort_by_key(|(_, out)| out.address_span());
    for (place, (at, out)) in outs.iter().enumerate() {
        let end = out.address_span().1;
        let behind = outs[place + 1..].iter().take_while(|(_, next)| next.address_span().0 < end);
        if let Some((other, _)) = behind.into_iter().find(|(_, next)| out.overlaps(next)) {
            let message = format!("the memory for results {} and {} overlaps", at.min(other), at.max(other));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::DataType;
    use crate::store::{MemoryStore, Store, StoreExt};

    fn array(store: &Arc<dyn Store>, path: &str, shape: &[u64]) -> Array {
        let builder = Array::builder(shape.to_vec(), DataType::UInt16).chunks(vec![4; shape.len()]).fill_value(9_u16);
        let array = builder.create_in(Arc::clone(store), path).unwrap();
        let count = shape.iter().product::<u64>() as u16;
        let values: Vec<u16> = (0..count).collect();
        let memory: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
        let value = NdBuffer::from_slice(Device::Cpu, &values, &memory).unwrap();
        array.write_buffer(&Selection::all(shape), &value).unwrap();
        array
    }

    fn values(result: &NdBuffer) -> Vec<u16> {
        result.copy(Order::C).unwrap().host_slice::<u16>().unwrap().to_vec()
    }

    #[test]
    fn results_are_those_of_single_reads() {
        let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
        let arrays = [array(&stores[0], "a", &[9, 7]), array(&stores[1], "a", &[30]), array(&stores[0], "b", &[5, 5])];
        let region = |start: &[u64], extent: &[u64]| Selection::region(start, extent).unwrap();
        let reads = [
            ArraySelection::new(&arrays[0], region(&[1, 2], &[3, 3])),
            ArraySelection::new(&arrays[1], region(&[4], &[20])),
            ArraySelection::new(&arrays[0], region(&[5, 0], &[3, 3])),
            ArraySelection::new(&arrays[2], Selection::all(&[5, 5])),
            ArraySelection::new(&arrays[0], region(&[0, 0], &[9, 1])),
            ArraySelection::new(&arrays[0], region(&[1, 2], &[3, 3])),
        ];
        let results = read_all(&reads).unwrap();
        for (read, result) in reads.iter().zip(&results) {
            let Wanted::Selection(selection) = &read.wanted else { continue };
            assert_eq!(values(result), values(&read.array.read_buffer(selection).unwrap()), "{read:?}");
        }
        assert!(read_all(&[]).unwrap().is_empty());
        // The stacked selections lie in one piece of memory, each in C order.
        assert_eq!(results[0].buffer().address(), results[2].buffer().address());
        assert!(results[2].is_contiguous(Order::C));
    }

    #[test]
    fn memory_and_types_are_the_callers() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let array = array(&store, "a", &[10]);
        let table = NdBuffer::zeroed(Device::Cpu, DType::FLOAT32, &[10, 2], Order::C).unwrap();
        let column = |at| table.index_axis(1, at).unwrap();
        let read = |at| ArraySelection::new(&array, Selection::all(&[10])).with_out(column(at));
        let wide = ArraySelection::new(&array, Selection::region(&[3], &[2]).unwrap()).with_dtype(DType::INT64);
        let results = read_all(&[read(0), read(1), wide]).unwrap();
        assert_eq!(results[2].host_slice::<i64>().unwrap().to_vec(), [3, 4]);
        let expected: Vec<f32> = (0..10).flat_map(|value| [value as f32; 2]).collect();
        assert_eq!(table.host_slice::<f32>().unwrap().to_vec(), expected);
        let error = read_all(&[read(0), read(1), read(0)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, "the memory for results 0 and 2 overlaps")
        );
    }

    #[test]
    fn an_error_names_its_array() {
        let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
        let (whole, damaged) = (array(&stores[0], "a", &[9]), array(&stores[1], "b", &[9]));
        stores[1].write("b/c/1", b"short").unwrap();
        let reads = [&whole, &damaged].map(|array| ArraySelection::new(array, Selection::all(&[9])));
        let text = read_all(&reads).unwrap_err().to_string();
        assert!(text.contains("array '/b': chunk 'b/c/1'"), "{text}");
        let outside = ArraySelection::new(&damaged, Selection::region(&[5], &[5]).unwrap());
        let text = read_all(&[ArraySelection::new(&whole, Selection::all(&[9])), outside]).unwrap_err().to_string();
        assert!(text.contains("array '/b'"), "{text}");
        let stopped = CancellationToken::new();
        stopped.cancel();
        let damaged = damaged.under(stopped);
        let reads = [&whole, &damaged].map(|array| ArraySelection::new(array, Selection::all(&[9])));
        assert_eq!(read_all(&reads).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
