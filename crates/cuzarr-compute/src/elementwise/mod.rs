//! Element-wise kernels: the user writes one expression in CUDA C++ for whole arrays, as for `cupy.ElementwiseKernel`.
//! Types, shapes and memory of the arguments are checked. Then a kernel is generated (`source.rs`) and compiled for
//! each combination of operand types and layouts.

mod cuda;
mod parameter;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use cuzarr_device::internal::cpu::cast;
use cuzarr_device::{DType, DTypeKind, Device, Function, NdBuffer, Order};

use self::parameter::{Element, Parameter, c_type, is_name};
use self::source::Variant;
use crate::expression::broadcast;
use crate::regions::memory_shape;
use cuzarr::{Error, ErrorKind, Result};

/// Number of threads in a block of an element-wise kernel, unless the caller gives another one.
const THREADS: u32 = 256;

/// A CUDA kernel that computes one C++ expression of the user for each element of arrays, with broadcasting. Clones
/// share compiled code. Any thread may use it.
///
/// Parameters are written like `float32 x, T y, raw T z`. An element type is a NumPy name, or a letter that stands for
/// the argument's type. `raw` passes the whole array, which the operation may index freely; other parameters are the
/// current element. The operation is CUDA C++ for one element; `i` is the element's number in C order, and `n` the
/// number of elements.
///
/// ```no_run
/// use cuzarr_compute::{ElementwiseCall, ElementwiseKernel};
/// use cuzarr_device::{DType, Device, NdBuffer, Order, Stream};
/// # fn main() -> cuzarr::Result<()> {
/// let blend = ElementwiseKernel::new("T a, T b, float32 w", "T z", "z = a + w * (b - a)")?.named("blend")?;
/// let stream = Stream::new(Device::Cuda(0))?;
/// let a = NdBuffer::zeroed(Device::Cuda(0), DType::FLOAT64, &[512, 1], Order::C)?;
/// let b = NdBuffer::zeroed(Device::Cuda(0), DType::FLOAT64, &[1024], Order::C)?;
/// // SAFETY: the operation touches its own elements alone.
/// let z = unsafe { blend.run(&stream, &ElementwiseCall::new(&[(&a).into(), (&b).into(), 0.25f32.into()])) }?;
/// assert_eq!((z[0].shape(), z[0].dtype()), (&[512usize, 1024][..], DType::FLOAT64));
/// # stream.synchronize()?; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ElementwiseKernel {
    inputs: Vec<Parameter>,
    outputs: Vec<Parameter>,
    operation: String,
    name: String,
    preamble: String,
    options: Vec<String>,
    functions: Arc<Mutex<HashMap<(Device, Variant), Function>>>,
}

/// The value that the caller passes for one input of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum ElementwiseArgument<'a> {
    /// An array in the memory of the stream's device.
    Array(&'a NdBuffer),
    /// A number of the given type: its bytes, followed by unused bytes. It is converted to the parameter's type. A
    /// number that this type cannot hold (a fraction for an integer, or one that is too large) is refused.
    Value(DType, [u8; 8]),
}

impl<'a> From<&'a NdBuffer> for ElementwiseArgument<'a> {
    fn from(array: &'a NdBuffer) -> Self {
        ElementwiseArgument::Array(array)
    }
}

macro_rules! values {
    ($($name:ty: $dtype:ident;)*) => {$(
        impl From<$name> for ElementwiseArgument<'_> {
            fn from(value: $name) -> Self {
                let mut bytes = [0; 8];
                bytes[..size_of::<$name>()].copy_from_slice(&value.to_ne_bytes());
                ElementwiseArgument::Value(DType::$dtype, bytes)
            }
        }
    )*};
}

values! {
    i8: INT8; i16: INT16; i32: INT32; i64: INT64; u8: UINT8; u16: UINT16; u32: UINT32; u64: UINT64; f32: FLOAT32; f64: FLOAT64;
}

impl From<bool> for ElementwiseArgument<'_> {
    fn from(value: bool) -> Self {
        ElementwiseArgument::Value(DType::BOOL, [u8::from(value), 0, 0, 0, 0, 0, 0, 0])
    }
}

/// One call of an [`ElementwiseKernel`].
#[derive(Clone, Copy, Debug)]
pub struct ElementwiseCall<'a> {
    /// The value that the caller passes for each input of the kernel.
    pub inputs: &'a [ElementwiseArgument<'a>],
    /// Arrays to which the kernel writes its outputs; `None` allocates new ones. Outputs have the shape to which all
    /// inputs broadcast. An output may be one of the inputs, but must not overlap other memory.
    pub outputs: Option<&'a [&'a NdBuffer]>,
    /// Number of elements to compute, for a kernel whose arrays are all `raw`, so that they have no common shape.
    pub size: Option<usize>,
    /// Number of threads in a block of the kernel's launch.
    pub block_threads: u32,
}

impl<'a> ElementwiseCall<'a> {
    /// Makes a call of an element-wise kernel with these inputs. Its outputs are allocated.
    pub fn new(inputs: &'a [ElementwiseArgument<'a>]) -> Self {
        ElementwiseCall { inputs, outputs: None, size: None, block_threads: THREADS }
    }
}

/// The value that was passed for one parameter, after it was checked and converted.
enum KernelOperand {
    Array(NdBuffer),
    Value(Vec<u8>),
}

/// A call whose arguments were checked, with the types and the shape that follow from them.
struct Bound {
    types: Vec<(char, DType)>,
    shape: Vec<usize>,
    /// The values and arrays for all inputs, then the arrays for all outputs.
    operands: Vec<KernelOperand>,
    /// Whether the memory of an output is also that of an input.
    in_place: bool,
}

fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message.into())
}

impl ElementwiseKernel {
    /// Makes a kernel from a list of inputs, a list of outputs and the operation, all as C++ text.
    ///
    /// # Errors
    /// `InvalidArgument` for parameters that cannot be parsed, for a name that is used twice, and without outputs;
    /// `DTypeMismatch` for element types that kernels do not support.
    pub fn new(inputs: &str, outputs: &str, operation: &str) -> Result<ElementwiseKernel> {
        let (inputs, outputs) = (Parameter::list(inputs)?, Parameter::list(outputs)?);
        let mut names: Vec<&str> = inputs.iter().chain(&outputs).map(|parameter| parameter.name.as_str()).collect();
        names.sort_unstable();
        if outputs.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) {
            let message =
                format!("got the parameters {names:?}: each needs a name of its own, and one must be an output");
            return Err(error(ErrorKind::InvalidArgument, message));
        }
        Ok(ElementwiseKernel {
            inputs,
            outputs,
            operation: operation.to_string(),
            name: "elementwise".to_string(),
            preamble: String::new(),
            options: Vec::new(),
            functions: Arc::default(),
        })
    }

    /// Sets the kernel's name, which error messages and profilers show.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not valid in C++.
    pub fn named(self, name: &str) -> Result<ElementwiseKernel> {
        if !is_name(name) {
            return Err(error(ErrorKind::InvalidArgument, format!("'{name}' is not a valid name of a kernel")));
        }
        Ok(ElementwiseKernel { name: name.to_string(), functions: Arc::default(), ..self })
    }

    /// Puts C++ text before the kernel, such as functions that the operation calls.
    pub fn with_preamble(self, text: &str) -> ElementwiseKernel {
        ElementwiseKernel { preamble: text.to_string(), functions: Arc::default(), ..self }
    }

    /// Sets options for NVRTC (`--fmad=false`, `-I…`).
    pub fn with_options(self, options: &[String]) -> ElementwiseKernel {
        ElementwiseKernel { options: options.to_vec(), functions: Arc::default(), ..self }
    }

    /// Returns the number of inputs and the number of outputs.
    pub fn counts(&self) -> (usize, usize) {
        (self.inputs.len(), self.outputs.len())
    }

    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// Checks the arguments of a call, and allocates outputs for which none were passed.
    fn bind(&self, device: Device, call: &ElementwiseCall<'_>) -> Result<Bound> {
        let given = call.outputs.map_or(self.outputs.len(), <[_]>::len);
        if (call.inputs.len(), given) != (self.inputs.len(), self.outputs.len()) {
            let message = format!(
                "kernel '{}' has {} inputs and {} outputs, got {} and {given}",
                self.name,
                self.inputs.len(),
                self.outputs.len(),
                call.inputs.len(),
            );
            return Err(error(ErrorKind::InvalidArgument, message));
        }
        let outputs = call.outputs.unwrap_or_default().iter().map(|output| ElementwiseArgument::Array(output));
        let arguments: Vec<ElementwiseArgument<'_>> = call.inputs.iter().copied().chain(outputs).collect();
        let passed: Vec<(&Parameter, ElementwiseArgument<'_>)> = self.parameters().zip(arguments).collect();
        for (parameter, argument) in &passed {
            check_memory(parameter, argument, device)?;
        }
        let types = self.types(&passed)?;
        let shape = self.shape(&passed, call.size)?;
        let mut operands = passed
            .iter()
            .map(|(parameter, argument)| match argument {
                ElementwiseArgument::Array(array) => Ok(KernelOperand::Array((*array).clone())),
                ElementwiseArgument::Value(from, bytes) => {
                    let to = dtype_of(parameter, &types)?;
                    converted(&parameter.name, *from, bytes, to).map(KernelOperand::Value)
                }
            })
            .collect::<Result<Vec<_>>>()?;
        for parameter in self.outputs.iter().filter(|_| call.outputs.is_none()) {
            let made = NdBuffer::empty(device, dtype_of(parameter, &types)?, &shape, Order::C)?;
            operands.push(KernelOperand::Array(made));
        }
        let in_place = self.check_outputs(&operands, &shape)?;
        Ok(Bound { types, shape, operands, in_place })
    }

    /// Returns for each letter in the kernel's parameters, such as `T`, the element type that it stands for in this
    /// call. The first array with that letter decides.
    fn types(&self, passed: &[(&Parameter, ElementwiseArgument<'_>)]) -> Result<Vec<(char, DType)>> {
        let mut types: Vec<(char, DType)> = Vec::new();
        for arrays in [true, false] {
            for (parameter, argument) in passed {
                let dtype = match argument {
                    ElementwiseArgument::Array(array) if arrays => array.dtype(),
                    ElementwiseArgument::Value(dtype, _) if !arrays => *dtype,
                    _ => continue,
                };
                let expected = match parameter.element {
                    Element::Known(known) => known,
                    Element::Open(letter) => match types.iter().find(|(known, _)| *known == letter) {
                        Some((_, known)) => *known,
                        None => {
                            types.push((letter, dtype));
                            dtype
                        }
                    },
                };
                if (arrays && dtype != expected) || c_type(expected).is_none() {
                    let expected = c_type(expected).map_or("those of a plain type".into(), |_| expected.to_string());
                    let message = format!("'{}' has elements of {dtype}, expected {expected}", parameter.name);
                    return Err(error(ErrorKind::DTypeMismatch, message));
                }
            }
        }
        types.sort_unstable_by_key(|(letter, _)| *letter);
        Ok(types)
    }

    /// Returns the shape to which all arrays that are not raw broadcast.
    fn shape(&self, passed: &[(&Parameter, ElementwiseArgument<'_>)], size: Option<usize>) -> Result<Vec<usize>> {
        let walked = passed.iter().filter_map(|(parameter, argument)| match argument {
            ElementwiseArgument::Array(array) if !parameter.is_raw => {
                Some(array.shape().iter().map(|&extent| extent as u64).collect::<Vec<_>>())
            }
            _ => None,
        });
        let walked: Vec<Vec<u64>> = walked.collect();
        let wrong = |message: String| Err(error(ErrorKind::InvalidArgument, message));
        match size {
            Some(size) if walked.is_empty() => Ok(vec![size]),
            None if walked.is_empty() => wrong(format!("every array of kernel '{}' is raw: say the size", self.name)),
            size => {
                let shape = memory_shape(&broadcast(walked.iter().map(Vec::as_slice))?)?;
                match size.filter(|&size| size != shape.iter().product::<usize>()) {
                    Some(size) => wrong(format!("got a size of {size} beside arrays of shape {shape:?}")),
                    None => Ok(shape),
                }
            }
        }
    }

    /// Checks that the outputs can be written, and returns whether one of them is also an input. Any other way of
    /// sharing memory is refused.
    fn check_outputs(&self, operands: &[KernelOperand], shape: &[usize]) -> Result<bool> {
        let mut in_place = false;
        for (at, parameter) in self.parameters().enumerate().skip(self.inputs.len()) {
            let KernelOperand::Array(output) = &operands[at] else { continue };
            if !parameter.is_raw && output.shape() != shape {
                let message = format!("'{}' has shape {:?}, the result {shape:?}", parameter.name, output.shape());
                return Err(error(ErrorKind::ShapeMismatch, message));
            }
            if output.is_read_only() || overlaps_itself(output) {
                let message =
                    format!("'{}' cannot be written: it is read-only, or a view of repeated elements", parameter.name);
                return Err(error(ErrorKind::InvalidArgument, message).with_hint("write to another array"));
            }
            for ((number, other), operand) in self.parameters().enumerate().zip(operands).take(at) {
                let KernelOperand::Array(operand) = operand else { continue };
                if !overlap(operand, output) {
                    continue;
                }
                let is_same = (operand.address(), operand.layout().shape(), operand.strides())
                    == (output.address(), output.layout().shape(), output.strides());
                if other.is_raw || parameter.is_raw || number >= self.inputs.len() || !is_same {
                    let message = format!("the memory of '{}' overlaps that of '{}'", parameter.name, other.name);
                    return Err(error(ErrorKind::InvalidArgument, message).with_hint("write to another array"));
                }
                in_place = true;
            }
        }
        Ok(in_place)
    }
}

/// Returns the element type of a kernel's parameter: the fixed type, or the type that its letter stands for.
fn dtype_of(parameter: &Parameter, types: &[(char, DType)]) -> Result<DType> {
    match parameter.element {
        Element::Known(dtype) => Ok(dtype),
        Element::Open(letter) => {
            types.iter().find(|(known, _)| *known == letter).map(|(_, dtype)| *dtype).ok_or_else(|| {
                error(ErrorKind::DTypeMismatch, format!("no argument tells the type {letter}"))
                    .with_hint("pass the output")
            })
        }
    }
}

fn check_memory(parameter: &Parameter, argument: &ElementwiseArgument<'_>, device: Device) -> Result<()> {
    let name = &parameter.name;
    match argument {
        ElementwiseArgument::Value(..) if parameter.is_raw => {
            Err(error(ErrorKind::MemorySpace, format!("'{name}' is a number, expected an array on {device}")))
        }
        ElementwiseArgument::Array(array) if array.device() != device => {
            let message = format!("'{name}' is on {}, the kernel runs on {device}", array.device());
            Err(error(ErrorKind::MemorySpace, message).with_hint("move it there first"))
        }
        ElementwiseArgument::Array(array) => {
            let size = array.dtype().size_bytes();
            let strides = array.strides().iter().zip(array.shape()).filter(|(_, extent)| **extent > 1);
            if array.address() % size == 0 && strides.into_iter().all(|(stride, _)| stride % size as isize == 0) {
                return Ok(());
            }
            let message = format!("elements of '{name}' do not begin at multiples of their size");
            Err(error(ErrorKind::InvalidArgument, message).with_hint("copy it first"))
        }
        ElementwiseArgument::Value(..) => Ok(()),
    }
}

/// Converts a number to another type, and refuses numbers that the type cannot hold.
fn converted(name: &str, from: DType, bytes: &[u8; 8], to: DType) -> Result<Vec<u8>> {
    if matches!(from.kind(), DTypeKind::Complex | DTypeKind::Opaque) {
        return Err(error(ErrorKind::DTypeMismatch, format!("'{name}' is of type {to}, got a number of type {from}")));
    }
    let own = &bytes[..from.size_bytes()];
    let (mut value, mut back) = (vec![0; to.size_bytes()], vec![0; own.len()]);
    cast::cast(from, to, own, &mut value)?;
    cast::cast(to, from, &value, &mut back)?;
    if to.kind() != DTypeKind::Float && back != own {
        let mut shown = [0; 8];
        cast::cast(from, DType::FLOAT64, own, &mut shown)?;
        let message = format!("'{name}' is of type {to}, which cannot hold {}", f64::from_ne_bytes(shown));
        return Err(error(ErrorKind::InvalidArgument, message));
    }
    Ok(value)
}

fn overlap(a: &NdBuffer, b: &NdBuffer) -> bool {
    let span = |array: &NdBuffer| {
        // The range of a layout in its memory was determined when the layout was made.
        let (start, end) = array.layout().span_bytes().unwrap_or((0, array.buffer().size_bytes()));
        (array.buffer().address() + start, array.buffer().address() + end)
    };
    let ((first, first_end), (second, second_end)) = (span(a), span(b));
    !a.is_empty() && !b.is_empty() && first < second_end && second < first_end
}

/// Whether two elements of an output array may share memory, so that writing one changes the other.
fn overlaps_itself(array: &NdBuffer) -> bool {
    let axes = array.shape().iter().zip(array.strides()).filter(|(extent, _)| **extent > 1);
    let mut axes: Vec<(usize, usize)> = axes.map(|(&extent, stride)| (stride.unsigned_abs(), extent)).collect();
    axes.sort_unstable();
    let mut reach = array.dtype().size_bytes();
    !array.is_empty()
        && axes.into_iter().any(|(stride, extent)| {
            let overlaps = stride < reach;
            reach = reach.saturating_add(stride.saturating_mul(extent - 1));
            overlaps
        })
}

impl fmt::Debug for ElementwiseKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ElementwiseKernel({}: {})", self.name, self.operation)
    }
}
