//! Reads and writes the elements of an array. These calls pass their work to the engine.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use cuzarr_device::internal::{Threads, pool};
use cuzarr_device::{DType, Device, NdBuffer, Order};

use super::array::Array;
use super::many::{ArraySelection, read_all};
use crate::codec::VariableElements;
use crate::config::Accelerator;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Explanation, ResultOf, Selection, chunk_bounds, memory_shape};
use crate::run::{Access, Arrived, Engine, Objects, Report, Turn, reads_in_turn};
use crate::store::join_key;

impl Array {
    /// Reads the selected elements into new memory on the array's device.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([3, 4], DataType::UInt8).fill_value(9_u8).create("memory://rows")?;
    /// let row = NdBuffer::from_slice(Device::Cpu, &[1_u8, 2, 3, 4], &[4])?;
    /// array.write_buffer(&Selection::from_slices(&[SliceArg::Index(1)], array.shape())?, &row)?;
    /// let column = array.read_buffer(&Selection::from_slices(&[SliceArg::Ellipsis, SliceArg::Index(2)], array.shape())?)?;
    /// assert_eq!(column.host_slice::<u8>()?, [9, 3, 9]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `SelectionInvalid`; `Unsupported` for elements of variable length; `FallbackRefused` under `strict`; what the
    /// store and the codecs report, with the chunk in the trail.
    pub fn read_buffer(&self, selection: &Selection) -> Result<NdBuffer> {
        let work = || -> Result<NdBuffer> {
            let shape = self.result_shape(selection)?;
            let dtype = self.device_dtype()?;
            let _within = pool::within(self.device(), self.options().memory_limit_bytes);
            let out = self.new_result(dtype, &shape, self.options().order)?;
            pool::name_result(out.buffer(), || self.place());
            self.read_to(selection, &out)?;
            Ok(out)
        };
        work().at(|| self.place())
    }

    /// Allocates memory for a result on the array's device.
    pub(super) fn new_result(&self, dtype: DType, shape: &[usize], order: Order) -> Result<NdBuffer> {
        Engine::get().allocate(self.device(), || NdBuffer::empty(self.device(), dtype, shape, order))
    }

    /// Returns the shape that memory for a selection must have. Checks the selection first, so that no memory is
    /// allocated for a wrong one. Points are not checked here: their number does not depend on the array, and the plan
    /// checks each of them.
    pub(super) fn result_shape(&self, selection: &Selection) -> Result<Vec<usize>> {
        if !selection.is_points() {
            selection.check(self.shape())?;
        }
        memory_shape(selection)
    }

    /// Reads many selections with one plan, such as random crops for training. Returns one nd-buffer per selection,
    /// with the array's element type or converted to `dtype`. Selections of one shape and step share memory.
    ///
    /// # Errors
    /// Those of [`Array::read_into`].
    pub fn read_many(&self, selections: &[Selection], dtype: Option<DType>) -> Result<Vec<NdBuffer>> {
        let read = |selection: &Selection| {
            let read = ArraySelection::new(self, selection.clone());
            dtype.into_iter().fold(read, ArraySelection::with_dtype)
        };
        read_all(&selections.iter().map(read).collect::<Vec<_>>())
    }

    /// Reads selections of one shape and step into one nd-buffer, stacked along a new first dimension.
    ///
    /// # Errors
    /// Those of [`Array::read_into`]; `ShapeMismatch` when shapes or steps differ, or there are no selections.
    pub fn read_stack(&self, selections: &[Selection], dtype: Option<DType>) -> Result<NdBuffer> {
        self.stack(selections, dtype).at(|| self.place())
    }

    fn stack(&self, selections: &[Selection], dtype: Option<DType>) -> Result<NdBuffer> {
        selections.iter().try_for_each(|selection| selection.check(self.shape()))?;
        let own = self.device_dtype()?;
        let first = selections.first().ok_or_else(|| Error::new(ErrorKind::ShapeMismatch, "got no selections"))?;
        let shape = [&[selections.len()], &memory_shape(first)?[..]].concat();
        let _within = pool::within(self.device(), self.options().memory_limit_bytes);
        // In C order, each selection is contiguous in the result.
        let out = self.new_result(dtype.unwrap_or(own), &shape, Order::C)?;
        pool::name_result(out.buffer(), || self.place());
        self.read_many_to(selections, &out)?;
        Ok(out)
    }

    /// Like [`Array::read_stack`], but into the caller's memory, on any device.
    ///
    /// # Errors
    /// Those of [`Array::read_into`], [`Array::read_stack`].
    pub fn read_stack_into(&self, selections: &[Selection], out: &NdBuffer) -> Result<()> {
        self.read_many_to(selections, out).at(|| self.place())
    }

    fn read_many_to(&self, selections: &[Selection], out: &NdBuffer) -> Result<()> {
        let access = self.access_to(out.device(), out.dtype())?;
        let of = ResultOf::Stack(selections);
        let report = Engine::get().read_one(&access, self.store(), of, out, self.options())?;
        self.set_report(report);
        Ok(())
    }

    /// Whether [`Array::read_in_turn`] can read from the array's store to the array's device.
    pub(crate) fn reads_in_turn(&self) -> bool {
        reads_in_turn(&**self.store(), self.device())
    }

    /// Reads boxes in order, in one pipeline, to the array's device, and hands each to `deliver` when it is complete.
    /// Memory is allocated for `at_once` boxes. After an error, no delivered box may be used.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`]; `MemorySpace` if [`Array::reads_in_turn`] is false.
    pub(crate) fn read_in_turn(
        &self,
        selections: Vec<Selection>,
        at_once: usize,
        deliver: Sender<Arrived>,
    ) -> Result<()> {
        let work = || -> Result<()> {
            let (access, options) = (self.access(self.device())?, self.options());
            let report = Engine::get().read_in_turn(&access, self.store(), selections, at_once, deliver, options)?;
            self.set_report(report);
            Ok(())
        };
        work().at(|| self.place())
    }

    /// Reads the selected elements into the caller's memory `out`, on any device. `out` has the shape of the selection.
    /// If its type differs from the array's, elements are converted like NumPy's `astype`.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`]; `ShapeMismatch` when `out` does not fit; `DTypeMismatch` when the types cannot be
    /// converted.
    pub fn read_into(&self, selection: &Selection, out: &NdBuffer) -> Result<()> {
        self.read_to(selection, out).at(|| self.place())
    }

    fn read_to(&self, selection: &Selection, out: &NdBuffer) -> Result<()> {
        let (engine, options) = (Engine::get(), self.options());
        let report =
            engine.read(&*self.access_to(out.device(), out.dtype())?, self.store(), selection, out, options)?;
        self.set_report(report);
        Ok(())
    }

    /// Writes `value`, which may be on any device, to the selected elements. Its shape is broadcast to the selection's.
    ///
    /// # Errors
    /// Those of [`Array::read_into`]; `ReadOnly`. Chunks that were written before a failure keep their new elements. No chunk is
    /// ever half written.
    pub fn write_buffer(&self, selection: &Selection, value: &NdBuffer) -> Result<()> {
        let _turn = self.turn(selection).at(|| self.place())?;
        self.write_alone(selection, value)
    }

    /// Like [`Array::write_buffer`], for a caller that already holds the lock of the selection's objects.
    pub(super) fn write_alone(&self, selection: &Selection, value: &NdBuffer) -> Result<()> {
        let work = || -> Result<()> {
            let access = self.access(Device::Cpu)?;
            let (engine, options) = (Engine::get(), self.options());
            let report = engine.write(&access, self.store(), selection, value, options)?;
            self.set_report(report);
            Ok(())
        };
        work().at(|| self.place())
    }

    /// Reads elements of variable length, in C order, into host memory.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`]; `Unsupported` when the elements have one size.
    pub fn read_variable(&self, selection: &Selection) -> Result<VariableElements> {
        let work = || -> Result<VariableElements> {
            let access = self.access(Device::Cpu)?;
            let (engine, options) = (Engine::get(), self.options());
            let (elements, report) = engine.read_variable(&access, self.store(), selection, options)?;
            self.set_report(report);
            Ok(elements)
        };
        work().at(|| self.place())
    }

    /// Writes elements of variable length, in C order of the selection.
    ///
    /// # Errors
    /// Those of [`Array::write_buffer`]; `Unsupported` when the elements have one size.
    pub fn write_variable(&self, selection: &Selection, value: &VariableElements) -> Result<()> {
        let _turn = self.turn(selection).at(|| self.place())?;
        self.write_variable_alone(selection, value)
    }

    /// Like [`Array::write_variable`], for a caller that already holds the lock of the selection's objects.
    pub(super) fn write_variable_alone(&self, selection: &Selection, value: &VariableElements) -> Result<()> {
        let work = || -> Result<()> {
            let (access, options) = (self.access(Device::Cpu)?, self.options());
            let report = Engine::get().write_variable(&access, self.store(), selection, value, options)?;
            self.set_report(report);
            Ok(())
        };
        work().at(|| self.place())
    }

    /// Waits until no other write of this process touches the selection's stored objects, and locks them. `None` if the
    /// selection touches no objects.
    pub(super) fn turn(&self, selection: &Selection) -> Result<Option<Turn>> {
        let Some(objects) = self.objects(selection)? else { return Ok(None) };
        Engine::get().turn(vec![objects], &self.options().cancellation).map(Some)
    }

    /// The stored objects that a selection touches, as a box in the array's grid. `None` if the selection is empty.
    pub(super) fn objects(&self, selection: &Selection) -> Result<Option<Objects>> {
        let Some(bounds) = chunk_bounds(self.metadata().chunk_grid(), self.shape(), selection)? else {
            return Ok(None);
        };
        let identity = || self.store().identity().below(self.path());
        let array = self.io.state().identity.get_or_insert_with(identity).clone();
        Ok(Some(Objects { array, bounds }))
    }

    /// Explains where the chunks of the selection would be decoded, on the host or by kernels, and why. Nothing is
    /// read.
    ///
    /// # Errors
    /// `SelectionInvalid`; what the codecs report.
    pub fn explain(&self, selection: &Selection) -> Result<Explanation> {
        let work = || -> Result<Explanation> {
            let access = self.access(self.device())?;
            Engine::explain(&access, self.store(), selection, self.options())
        };
        work().at(|| self.place())
    }

    /// Explains where the chunks of a write to the selection would be encoded, on the host or by kernels, and why.
    /// Nothing is written.
    ///
    /// # Errors
    /// Those of [`Array::explain`].
    pub fn explain_write(&self, selection: &Selection) -> Result<Explanation> {
        let work = || -> Result<Explanation> {
            let access = self.access(self.device())?;
            Engine::explain_write(&access, self.store(), selection, self.options())
        };
        work().at(|| self.place())
    }

    /// The measurements of the last read or write through this array.
    pub fn last_report(&self) -> Option<Report> {
        self.io.state().report.clone()
    }

    /// Decodes every stored chunk, to find damaged ones. Returns the keys (relative to the array) of chunks that cannot
    /// be read, each with its error. `on_chunk` is called for each checked object, from any thread.
    ///
    /// # Errors
    /// When the store cannot list its keys, or a codec is unknown. Damaged chunks are not an error here.
    pub fn verify(&self, on_chunk: &(dyn Fn(&str, Option<&Error>) + Sync)) -> Result<Vec<(String, Error)>> {
        self.access(Device::Cpu).at(|| self.place())?;
        let keys = self.stored_chunks()?;
        let check = |key: String| {
            let outcome = self.verify_object(&key);
            on_chunk(&key, outcome.as_ref().err());
            outcome.err().map(|error| (key, error))
        };
        // Each read is a separate call, and waits for workers.
        let checked = Threads::callers().map(self.options().threads, keys, check);
        let mut damaged: Vec<_> = checked.into_iter().flatten().collect();
        damaged.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(damaged)
    }

    fn verify_object(&self, key: &str) -> Result<()> {
        let unknown = || Error::new(ErrorKind::KeyInvalid, format!("'{}' is not a chunk", join_key(self.path(), key)));
        let encoding = self.metadata().chunk_key_encoding();
        let chunk = encoding.parse_key(key, self.metadata().ndim()).ok_or_else(unknown)?;
        let region = self.metadata().chunk_grid().chunk_region(&chunk, self.shape())?;
        let (start, extent): (Vec<u64>, Vec<u64>) =
            region.into_iter().map(|one| (one.start, one.end - one.start)).unzip();
        let selection = Selection::region(&start, &extent)?;
        match self.metadata().data_type().device_dtype() {
            None => self.read_variable(&selection).map(|_| ()),
            Some(dtype) => {
                let shape: Vec<usize> = extent.iter().map(|&extent| extent as usize).collect();
                let out = NdBuffer::empty(Device::Cpu, dtype, &shape, Order::C)?;
                // A codec without kernels is no damage, even under `strict`.
                let options = self.options().clone().with_accelerator(Accelerator::None);
                Engine::get().read(&*self.access(Device::Cpu)?, self.store(), &selection, &out, &options).map(|_| ())
            }
        }
    }

    /// Returns the array's codecs, bound to `device`, for reads that convert elements to `dtype` if that is not the
    /// array's type.
    pub(super) fn access_to(&self, device: Device, dtype: DType) -> Result<Arc<Access>> {
        let access = self.access(device)?;
        match access.dtype() {
            Some(own) if own != dtype => {
                let access = self.bound(device, Some(dtype), || access.reading_as(dtype))?;
                self.allow_cache(&access);
                Ok(access)
            }
            _ => Ok(access),
        }
    }

    fn allow_cache(&self, access: &Access) {
        if self.options().chunk_cache {
            access.allow_cache(self.metadata(), &**self.store());
        }
    }

    /// Stores the measurements of a read or write, which replace those of the call before.
    pub(super) fn set_report(&self, report: Report) {
        self.io.state().report = Some(report);
    }

    /// Returns the array's codecs, bound to a device.
    pub(super) fn access(&self, device: Device) -> Result<Arc<Access>> {
        let chain = self.chain()?;
        let access =
            self.bound(device, None, || Access::new(self.metadata(), self.path(), Arc::clone(chain), device))?;
        self.allow_cache(&access);
        Ok(access)
    }

    /// Returns the array's codecs, bound to a device, for reads that convert elements to `cast`; calls `bind` if there
    /// are none yet. They are bound again if the metadata has changed.
    fn bound(&self, device: Device, cast: Option<DType>, bind: impl FnOnce() -> Result<Access>) -> Result<Arc<Access>> {
        let chain = self.chain()?;
        let current = |access: &Arc<Access>| Arc::ptr_eq(access.chain(), chain);
        let is_wanted = |access: &&Arc<Access>| access.device() == device && access.cast() == cast && current(access);
        if let Some(access) = self.io.state().accesses.iter().find(is_wanted) {
            return Ok(Arc::clone(access));
        }
        let access = Arc::new(bind()?);
        let mut state = self.io.state();
        state.accesses.retain(current);
        if state.accesses.len() >= KEPT_ACCESSES {
            state.accesses.remove(0);
        }
        state.accesses.push(Arc::clone(&access));
        Ok(access)
    }
}

/// Maximum number of pairs of device and element type for which an array keeps bound codecs; beyond it, the oldest go.
const KEPT_ACCESSES: usize = 16;
