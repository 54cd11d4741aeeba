//! Calls of the engine: each checks its arguments, makes a plan, and reads or writes.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use cuzarr_device::internal::Threads;
use cuzarr_device::{Device, NdBuffer, profile};

use crate::codec::VariableElements;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Plan, ResultOf, Selection, WritePlan, memory_shape};
use crate::run::accelerator;
use crate::run::access::Access;
use crate::run::context::{Context, FAR_WRITES};
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::call::{self, ArrayRead, ArrayResult};
use crate::run::read::out::{Arrived, InTurn, Out};
use crate::run::read::route::variable;
use crate::run::report::Report;
use crate::run::write;
use crate::run::write::coordinator::{OfArray, Value};
use crate::store::Store;

impl Engine {
    /// Reads `selection` of an array into `out`, which is on the device that `access` is bound to. When it returns,
    /// `out` is ready on every stream.
    ///
    /// # Errors
    /// `ShapeMismatch` and `DTypeMismatch` when `out` does not fit; else the first failure, with the others attached.
    pub fn read(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        out: &NdBuffer,
        options: &Options,
    ) -> Result<Report> {
        self.read_one(access, store, ResultOf::One(selection), out, options)
    }

    /// Like [`Engine::read`], but for any [`ResultOf`] that fills one result, such as a stack of selections.
    ///
    /// # Errors
    /// Those of [`Engine::read`]; `ShapeMismatch` also if the selections of a stack differ in shape.
    pub fn read_one(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        of: ResultOf<'_>,
        out: &NdBuffer,
        options: &Options,
    ) -> Result<Report> {
        check_array(access, &of.shape()?, out)?;
        check_device(access, out)?;
        let _range = profile::range("read", out.size_bytes() as u64);
        with_current_shards(options, || {
            let plan = Plan::of_results(Arc::clone(access.source()), &[of], access.plan_options(&**store, options))?;
            let (_, report) = call::read(self, access, store, plan, Out::Whole(out.clone()), options)?;
            Ok(report)
        })
    }

    /// Reads from several arrays in one pipeline, each into its own results. Chunks that are decoded in the same way
    /// share launches. All arrays are bound to one device. The first failure ends the whole call; the content of the
    /// results is then unspecified.
    ///
    /// # Errors
    /// Those of [`Engine::read`]; `MemorySpace` when arrays are bound to different devices; `InvalidArgument` when results in host
    /// memory overlap.
    pub fn read_all(&self, reads: &[ArrayRead<'_>], options: &Options) -> Result<Report> {
        let Some(first) = reads.first() else { return Ok(Report::default()) };
        let device = first.access.device();
        for ArrayRead { access, results, .. } in reads {
            if access.device() != device {
                let message = format!("arrays are bound to {device} and {}", access.device());
                return Err(
                    Error::new(ErrorKind::MemorySpace, message).with_hint("read those of each device by a call")
                );
            }
            for ArrayResult { of, out } in *results {
                check_array(access, &of.shape()?, out)?;
                check_device(access, out)?;
            }
        }
        let plan = |read: &ArrayRead<'_>| -> Result<Plan> {
            let ArrayRead { access, store, name, results } = read;
            let (of, limits): (Vec<ResultOf<'_>>, _) =
                (results.iter().map(|result| result.of).collect(), access.plan_options(&***store, options));
            Ok(Plan::of_results(Arc::clone(access.source()), &of, limits)?.labelled(name))
        };
        let _range = profile::range("read", bytes_of(reads));
        with_current_shards(options, || {
            let planned = reads.iter().map(|read| Ok((read, plan(read)?))).collect::<Result<Vec<_>>>()?;
            let wanted = planned.iter().map(|(read, plan)| (read.access, &**read.store, plan));
            let Some(accelerator) = accelerator::of_reads(wanted, options, false)? else {
                return call::read_all(self, device, planned, options);
            };
            let bound = reads.iter().map(|read| read.access.on(accelerator)).collect::<Result<Vec<Arc<Access>>>>()?;
            let on = |(read, access)| -> ArrayRead<'_> {
                let read: &ArrayRead<'_> = read;
                ArrayRead { access, ..*read }
            };
            let reads: Vec<ArrayRead<'_>> = reads.iter().zip(bound.iter().map(|access| &**access)).map(on).collect();
            let planned = reads.iter().map(|read| Ok((read, plan(read)?))).collect::<Result<Vec<_>>>()?;
            call::read_all(self, accelerator, planned, &options.clone().with_force_device())
        })
    }

    /// Reads boxes of one array in order, in one pipeline, to the device that `access` is bound to. Hands each box to
    /// `deliver` when it is complete. Beside the memory limit, there is memory for `at_once` boxes. The receiver must
    /// return boxes without waiting for memory of reads and writes. Damage in a box may be noticed after later boxes
    /// were delivered. So a box is only valid once this call has returned without an error.
    ///
    /// # Errors
    /// `MemorySpace` on the host, or for a store on the device; else those of [`Engine::read`].
    pub(crate) fn read_in_turn(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selections: Vec<Selection>,
        at_once: usize,
        deliver: Sender<Arrived>,
        options: &Options,
    ) -> Result<Report> {
        let device = access.device();
        if !reads_in_turn(&**store, device) {
            let message = format!("boxes cannot be read in turn from this store to {device}");
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        let dtype =
            access.dtype().ok_or_else(|| Error::new(ErrorKind::Unsupported, "elements have variable length"))?;
        let _range = profile::range("read", 0);
        let out = Out::InTurn(InTurn::new(dtype, &selections, at_once, deliver)?);
        // Each chunk of a stream is read once, so it would only push other chunks out of the chunk cache.
        let options = &options.clone().with_chunk_cache(false);
        let plan = Plan::in_turn(Arc::clone(access.source()), selections, access.plan_options(&**store, options))?;
        let (_, report) = call::read(self, access, store, plan, out, options)?;
        Ok(report)
    }

    /// Reads elements of variable length into host memory, in C order of the selection.
    ///
    /// # Errors
    /// Those of [`Engine::read`].
    pub fn read_variable(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        options: &Options,
    ) -> Result<(VariableElements, Report)> {
        variable::require(access)?;
        let _range = profile::range("read", 0);
        with_current_shards(options, || {
            let limits = access.plan_options(&**store, options);
            let plan = Plan::new(Arc::clone(access.source()), selection.clone(), limits)?;
            let out = Out::Elements(selection.shape());
            let (elements, report) = call::read(self, access, store, plan, out, options)?;
            Ok((elements.unwrap_or_default(), report))
        })
    }

    /// Writes `value`, which may be on any device, to a selection of an array. Its shape is broadcast to the
    /// selection's.
    ///
    /// # Errors
    /// `ShapeMismatch` and `DTypeMismatch` when the value does not fit; else the first failure, with the others attached.
    /// Objects that were written before it keep their new bytes. No object is half written.
    pub fn write(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        value: &NdBuffer,
        options: &Options,
    ) -> Result<Report> {
        let value = &Value::Elements(value.clone());
        self.write_all(&[EngineWrite { access, store, name: None, selection, value }], options)
    }

    /// Writes elements of variable length, given in the C order of the selection.
    ///
    /// # Errors
    /// Those of [`Engine::write`].
    pub fn write_variable(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        value: &VariableElements,
        options: &Options,
    ) -> Result<Report> {
        let value = &Value::Variable(Arc::new(value.clone()));
        self.write_all(&[EngineWrite { access, store, name: None, selection, value }], options)
    }

    /// Writes to several arrays by one call, from values on one device. The arrays must not share stored objects.
    /// Nothing is written unless all values fit. The first failure ends the whole call.
    ///
    /// # Errors
    /// Those of [`Engine::write`].
    pub fn write_all(&self, writes: &[EngineWrite<'_>], options: &Options) -> Result<Report> {
        if writes.is_empty() {
            return Ok(Report::default());
        }
        let mut checked = Vec::with_capacity(writes.len());
        for (number, write) in writes.iter().enumerate() {
            checked.push(write.checked(number, options).at_array(write.name)?);
        }
        let _range = profile::range("write", checked.iter().map(|of: &OfArray<'_>| of.value.size_bytes()).sum());
        let stores: Vec<&Arc<dyn Store>> = writes.iter().map(|write| write.store).collect();
        let device = checked.iter().map(|of| of.placement.device()).find(|device| *device != Device::Cpu);
        let call = self.call(&stores, device.unwrap_or(Device::Cpu), options);
        // Each array has its own coordinator, which waits for the workers.
        Threads::callers().map(writes_at_once(&call), checked, |of| {
            let name = of.name.clone();
            if let Err(error) = write::coordinator::write(&call, of, options).at_array(name.as_deref()) {
                call.fail(error);
            }
        });
        call.outcome()?;
        Ok(call.report())
    }
}

/// Number of arrays that one call writes at a time in local stores; further arrays wait.
const WRITES_AT_ONCE: usize = 16;

/// Number of arrays, or of shards that are encoded, which a call writes at a time.
pub(super) fn writes_at_once(call: &Context) -> usize {
    if call.is_far() { FAR_WRITES } else { WRITES_AT_ONCE }
}

/// One write of a call that may write to several arrays: the new elements, and the selection of an array that gets
/// them.
#[derive(Clone, Copy)]
pub struct EngineWrite<'a> {
    /// The array that is written, bound to a device.
    pub access: &'a Access,
    /// The store that holds the array's chunks.
    pub store: &'a Arc<dyn Store>,
    /// The array's name in errors, if the call writes to several arrays.
    pub name: Option<&'a str>,
    /// The elements of the array that are overwritten.
    pub selection: &'a Selection,
    /// The elements that are written to the array. Their shape is broadcast to the selection's.
    pub value: &'a Value,
}

impl<'a> EngineWrite<'a> {
    /// Checks that the value fits, and chooses where it is encoded.
    fn checked(&self, number: usize, options: &Options) -> Result<OfArray<'a>> {
        let EngineWrite { access, store, name, selection, value } = *self;
        let value = match value {
            Value::Variable(elements) => {
                variable::require(access)?;
                check_variable(selection, elements)?;
                value.clone()
            }
            Value::Elements(elements) => {
                let shape = memory_shape(selection)?;
                let elements = broadcast(elements, &shape)?;
                check_array(access, &shape, &elements)?;
                Value::Elements(elements)
            }
        };
        let plan = WritePlan::new(Arc::clone(access.source()), selection.clone())?;
        let placement = accelerator::place_write(access, &**store, &plan, value.device(), options)?;
        Ok(OfArray { number, access, name: name.map(Arc::from), plan, placement, value })
    }
}

/// Adds the name of an array to an error, if the array has a name.
trait AtArray<T> {
    fn at_array(self, name: Option<&str>) -> Result<T>;
}

impl<T> AtArray<T> for Result<T> {
    fn at_array(self, name: Option<&str>) -> Result<T> {
        match name {
            Some(name) => self.at(|| name.to_owned()),
            None => self,
        }
    }
}

/// Whether reads from this store to this device can complete regions in order, as [`Engine::read_in_turn`] does. It
/// does not work if frames come in the device's memory: those are checked last, and their elements may be placed again.
pub(crate) fn reads_in_turn(store: &dyn Store, device: Device) -> bool {
    device != Device::Cpu && !store.is_on(device)
}

/// Checks that a value of variable-length elements has as many elements as the selection.
///
/// # Errors
/// `ShapeMismatch`
fn check_variable(selection: &Selection, value: &VariableElements) -> Result<()> {
    if selection.len() == Some(value.len() as u64) {
        return Ok(());
    }
    let message = format!("got {} elements for selection {selection}", value.len());
    Err(Error::new(ErrorKind::ShapeMismatch, message))
}

fn broadcast(value: &NdBuffer, shape: &[usize]) -> Result<NdBuffer> {
    value.broadcast_to(shape).map_err(|error| {
        let message = format!("a value of shape {:?} does not broadcast to shape {shape:?}", value.shape());
        Error::new(ErrorKind::ShapeMismatch, message).with_source(error)
    })
}

fn bytes_of(reads: &[ArrayRead<'_>]) -> u64 {
    reads.iter().flat_map(|read| read.results).map(|result| result.out.size_bytes() as u64).sum()
}

fn check_device(access: &Access, out: &NdBuffer) -> Result<()> {
    if out.device() == access.device() {
        return Ok(());
    }
    let message = format!("the array is bound to {}, the result is on {}", access.device(), out.device());
    let hint = format!("open the array with device '{}', or read without out", out.device());
    Err(Error::new(ErrorKind::MemorySpace, message).with_hint(hint))
}

/// Runs a read, and repeats it if the chunk cache trusted the index of a shard that another program has replaced. The
/// cache has dropped that index by then, so the second read succeeds.
fn with_current_shards<T>(options: &Options, read: impl Fn() -> Result<T>) -> Result<T> {
    match read() {
        Err(error) if options.chunk_cache && Context::is_replaced(&error) => read(),
        done => done,
    }
}

fn check_array(access: &Access, shape: &[usize], array: &NdBuffer) -> Result<()> {
    access.program()?;
    if array.shape() != shape {
        let message = format!("got shape {:?}, the selection has {shape:?}", array.shape());
        return Err(Error::new(ErrorKind::ShapeMismatch, message));
    }
    match access.dtype() {
        Some(dtype) if dtype != array.dtype() => {
            let message = format!("got elements of {}, the array has {dtype}", array.dtype());
            Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint("convert them first"))
        }
        _ => Ok(()),
    }
}
