//! Eager computation: an expression whose inputs are in memory.

use cuzarr_device::{Device, NdBuffer, Stream};

use super::steps::{Input, Program, lower};
use super::{cpu, cuda};
use crate::expression::Expr;
use crate::regions::memory_shape;
use cuzarr::internal::cores;
use cuzarr::{Error, ErrorKind, Result};

/// Where and with what programs run.
pub(crate) struct Processor {
    /// Threads, where the device is the host.
    pub(crate) threads: usize,
    stream: Option<Stream>,
}

impl Processor {
    /// A processor whose work runs in the order of everything on the device's default stream.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn eager(device: Device) -> Result<Processor> {
        let stream = if device == Device::Cpu { None } else { Some(Stream::legacy(device)?) };
        Ok(Processor { threads: cores(), stream })
    }

    /// A processor whose work runs beside everything else.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn apart(device: Device, threads: usize) -> Result<Processor> {
        let stream = if device == Device::Cpu { None } else { Some(Stream::new(device)?) };
        Ok(Processor { threads, stream })
    }

    /// The processor with so many threads.
    pub(crate) fn with_threads(self, threads: usize) -> Processor {
        Processor { threads, ..self }
    }

    /// Waits for kernels.
    ///
    /// # Errors
    /// Those of [`Stream::synchronize`].
    pub(crate) fn finish(&self) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| Ok(stream.synchronize()?))
    }

    /// The stream of a GPU; none on the host.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// Computes a program of operands, which are on this device and broadcast to `shape`.
    ///
    /// # Errors
    /// Those of the evaluation on its device.
    pub(crate) fn run(&self, program: &Program, shape: &[usize], inputs: &[NdBuffer]) -> Result<NdBuffer> {
        match &self.stream {
            None => cpu::evaluate(program, shape, inputs, self.threads),
            Some(stream) => cuda::evaluate(program, shape, inputs, stream),
        }
    }
}

impl Expr {
    /// Computes the expression on a device where its inputs are, into new memory packed in C order; on a GPU it is ready on
    /// every stream when this returns.
    ///
    /// # Errors
    /// `MemorySpace` when an input is elsewhere; `InvalidArgument` where elements have no answer; `Unsupported` for inputs
    /// that are in a store; `OutOfMemory`.
    pub fn evaluate(&self, device: Device) -> Result<NdBuffer> {
        let (program, inputs) = lower(self)?;
        let shape = memory_shape(self.shape())?;
        let inputs = inputs.iter().map(|input| in_memory(input, device)).collect::<Result<Vec<_>>>()?;
        Processor::eager(device)?.run(&program, &shape, &inputs)
    }
}

fn in_memory(input: &Input, device: Device) -> Result<NdBuffer> {
    match input {
        Input::Buffer(buffer) if buffer.device() == device => Ok(buffer.clone()),
        // One number goes anywhere.
        Input::Buffer(buffer) if buffer.ndim() == 0 => Ok(buffer.to_device(device)?),
        Input::Buffer(buffer) => {
            let message = format!("an operand is on {}, the others on {device}", buffer.device());
            Err(Error::new(ErrorKind::MemorySpace, message).with_hint(format!("move it there: .to(\"{device}\")")))
        }
        Input::Flat(flat) if flat.of.is_in_memory() => {
            let place = memory_shape(&[flat.from, flat.count])?;
            let elements = flat.of.evaluate(device)?;
            Ok(elements.reshape_copy(&[elements.len()])?.region(&place[..1], &place[1..], &[1])?)
        }
        Input::Running(running) if running.of.is_in_memory() => {
            let (all, _) = running.step(&running.of.evaluate(device)?, None)?;
            let (mut start, extent) = (vec![0; all.ndim()], memory_shape(&running.shape())?);
            start[running.axis] = memory_shape(&[running.from])?[0];
            Ok(all.region(&start, &extent, &vec![1; extent.len()])?)
        }
        Input::Reduced(..) | Input::Array(_) | Input::Joined(_) | Input::Flat(_) | Input::Running(_) => {
            let message = "an operand is yet to be read or computed";
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("compute the expression instead of evaluating it"))
        }
    }
}
