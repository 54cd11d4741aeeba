//! Eager computation of expressions whose inputs are in memory.

use cuzarr_device::{Device, NdBuffer, Stream};

use super::steps::{Input, Program, lower};
use super::{cpu, cuda};
use crate::expression::Expr;
use crate::regions::memory_shape;
use cuzarr::internal::cores;
use cuzarr::{Error, ErrorKind, Result};

/// The device that computes programs, with its CPU threads or its stream.
pub(crate) struct Processor {
    /// Number of CPU threads that compute programs.
    pub(crate) threads: usize,
    stream: Option<Stream>,
}

impl Processor {
    /// Makes a processor whose work runs in order with all other work on the device's default stream.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn eager(device: Device) -> Result<Processor> {
        let stream = if device == Device::Cpu { None } else { Some(Stream::legacy(device)?) };
        Ok(Processor { threads: cores(), stream })
    }

    /// Makes a processor that runs kernels on a stream of its own.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn apart(device: Device, threads: usize) -> Result<Processor> {
        let stream = if device == Device::Cpu { None } else { Some(Stream::new(device)?) };
        Ok(Processor { threads, stream })
    }

    /// Returns this processor, but with another number of CPU threads.
    pub(crate) fn with_threads(self, threads: usize) -> Processor {
        Processor { threads, ..self }
    }

    /// Waits until the GPU has finished all kernels.
    ///
    /// # Errors
    /// Those of [`Stream::synchronize`].
    pub(crate) fn finish(&self) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| Ok(stream.synchronize()?))
    }

    /// Returns the stream of a GPU; `None` if the CPU computes.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// Computes a program for operands that are in this device's memory and broadcast to `shape`.
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

impl Processor {
    /// Like [`Processor::run`] on the CPU, but writes to memory that the caller has: packed in C order, with the
    /// program's element type.
    ///
    /// # Errors
    /// Those of the evaluation; `MemorySpace` for memory of a GPU.
    pub(crate) fn run_into(&self, program: &Program, inputs: &[NdBuffer], result: &NdBuffer) -> Result<()> {
        cpu::evaluate_into(program, inputs, result, self.threads)
    }
}

impl Expr {
    /// Computes the expression on the device of its inputs, into new memory, packed in C order. On a GPU, the result is
    /// ready on every stream when this returns.
    ///
    /// # Errors
    /// `MemorySpace` when an input is on another device; `InvalidArgument` for elements without a result, such as 2 to
    /// the power of -1; `Unsupported` for inputs in a store; `OutOfMemory`.
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
        // A single number is copied to any device.
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
