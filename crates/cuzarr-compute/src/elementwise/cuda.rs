//! Compiles element-wise kernels for a GPU, and launches them.

use std::sync::PoisonError;

use cuzarr_device::{Buffer, Device, Function, LaunchShape, Module, NdBuffer, Stream};

use super::source::{self, Form, Variant};
use super::{Bound, ElementwiseCall, ElementwiseKernel, KernelOperand, error};
use crate::program::Joint;
use crate::program::cuda::{MOST_PARAMETER_BYTES, PACK_BYTES, address, most_blocks, threads};
use cuzarr::{ErrorKind, Result};

/// Largest number of neighbouring elements that a GPU thread loads, computes and stores together.
const MOST_LANES: usize = 4;

impl ElementwiseKernel {
    /// Launches the kernel on a stream and returns the outputs, which are filled once the stream has run it. The kernel
    /// is compiled once for each combination of operand types and layouts, and kept on disk.
    ///
    /// # Errors
    /// `InvalidArgument` for the wrong number of arguments, numbers that do not fit, and outputs that overlap; `ShapeMismatch`
    /// when shapes do not broadcast to the outputs' shape; `DTypeMismatch`; `MemorySpace` for memory of another device;
    /// `KernelCompileFailed` with the line of the operation that is wrong; `LibraryMissing` without a compiler; `Unsupported`
    /// on `cpu`, which runs no CUDA C++; `OutOfMemory`, `DeviceFailed`.
    ///
    /// # Safety
    /// The operation must only access its own elements and the memory of raw arrays.
    pub unsafe fn run(&self, stream: &Stream, call: &ElementwiseCall<'_>) -> Result<Vec<NdBuffer>> {
        let device = stream.device();
        if device == Device::Cpu {
            let message = format!("kernel '{}' is CUDA C++, which does not run on cpu", self.name);
            return Err(error(ErrorKind::Unsupported, message)
                .with_hint("give a stream of a GPU; expressions (compute::Expr) run on both"));
        }
        let bound = self.bind(device, call)?;
        if !bound.shape.contains(&0) {
            // SAFETY: the caller promises that the operation touches only allowed memory. `bind` has checked arguments
            // and memory.
            unsafe { self.launch(stream, &bound, call.block_threads) }?;
        }
        let outputs = bound.operands.into_iter().skip(self.inputs.len());
        Ok(outputs
            .filter_map(|operand| if let KernelOperand::Array(array) = operand { Some(array) } else { None })
            .collect())
    }

    /// Launches the kernel for a call whose arguments were checked.
    ///
    /// # Safety
    /// Runs a checked call; see [`ElementwiseKernel::run`].
    unsafe fn launch(&self, stream: &Stream, bound: &Bound, block_threads: u32) -> Result<()> {
        let device = stream.device();
        let arrays = |raw: bool| {
            let all = self.parameters().zip(&bound.operands).filter(move |(parameter, _)| raw || !parameter.is_raw);
            all.filter_map(|(_, operand)| if let KernelOperand::Array(array) = operand { Some(array) } else { None })
        };
        let walked: Vec<NdBuffer> = arrays(false).cloned().collect();
        let joint = Joint::new(&bound.shape, &walked)?;
        let form = self.form(&joint, &walked);
        let variant = Variant {
            types: bound.types.clone(),
            form,
            values: bound.operands.iter().map(|operand| matches!(operand, KernelOperand::Value(_))).collect(),
            in_place: bound.in_place,
            in_dialect: device == Device::Simt,
        };
        let function = self.function(device, variant)?;
        let block = if device == Device::Simt { threads(device) } else { block_threads };
        let per_block = match form {
            Form::Packed { lanes } => lanes as u64 * u64::from(block),
            Form::Strided { .. } => u64::from(block),
        };
        let blocks = (joint.len() as u64).div_ceil(per_block.max(1)).clamp(1, most_blocks(device));
        let buffers: Vec<&Buffer> = arrays(true).map(NdBuffer::buffer).collect();
        let arguments = self.arguments(bound, &joint, form)?;
        // SAFETY: the arguments are those that the generated text declares: the number of elements, the shape if there
        // are strides, and for each operand its value, or its address and strides. `Joint::new` broadcast the operands,
        // so all elements lie inside their memory. The caller promises that the operation touches only allowed memory.
        unsafe { function.launch(stream, LaunchShape::line(blocks as u32, block), arguments, &buffers) }?;
        Ok(())
    }

    fn function(&self, device: Device, variant: Variant) -> Result<Function> {
        // The lock is held during compilation, so that a thread that wants the same kernel waits instead of compiling
        // it.
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&(device, variant.clone())) {
            return Ok(function.clone());
        }
        let file = format!("{}.cu", self.name);
        let text = source::text(self, &variant);
        let function = Module::compile(device, &file, &text, &self.options)?.function(&source::name(self, &variant))?;
        functions.insert((device, variant), function.clone());
        Ok(function)
    }

    fn form(&self, joint: &Joint, walked: &[NdBuffer]) -> Form {
        let size = |array: &NdBuffer| array.dtype().size_bytes();
        if !walked.iter().enumerate().all(|(at, array)| joint.is_packed(at, size(array))) {
            return Form::Strided { rank: joint.shape.len(), wide: u32::try_from(joint.len()).is_err() };
        }
        let widest = walked.iter().map(size).max().unwrap_or(PACK_BYTES);
        let lanes = (PACK_BYTES / widest).clamp(1, MOST_LANES);
        let aligned = walked.iter().all(|array| array.address() % (lanes * size(array)) == 0);
        let mut words = self.operation.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        // With several lanes, a statement that leaves the loop over elements would only leave the loop over lanes.
        let leaves = words.any(|word| ["continue", "break", "return", "goto"].contains(&word));
        Form::Packed { lanes: if aligned && !leaves { lanes } else { 1 } }
    }

    fn arguments(&self, bound: &Bound, joint: &Joint, form: Form) -> Result<Vec<Vec<u8>>> {
        let extents = |words: &mut dyn Iterator<Item = u64>| {
            let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
            bytes.resize(bytes.len().max(size_of::<u64>()), 0);
            bytes
        };
        let is_strided = matches!(form, Form::Strided { .. });
        let mut arguments = vec![(joint.len() as u64).to_ne_bytes().to_vec()];
        if is_strided {
            arguments.push(extents(&mut joint.shape.iter().map(|&extent| extent as u64)));
        }
        let mut strides = joint.strides.iter();
        for (parameter, operand) in self.parameters().zip(&bound.operands) {
            match operand {
                KernelOperand::Value(bytes) => arguments.push(bytes.clone()),
                KernelOperand::Array(array) => {
                    arguments.push(address(array.address()));
                    let own = if parameter.is_raw { None } else { strides.next() };
                    if let Some(own) = own.filter(|_| is_strided) {
                        arguments.push(extents(&mut own.iter().map(|&stride| stride.cast_unsigned() as u64)));
                    }
                }
            }
        }
        if arguments.iter().map(Vec::len).sum::<usize>() > MOST_PARAMETER_BYTES {
            let message = format!("kernel '{}' has too many operands and dimensions for one launch", self.name);
            return Err(error(ErrorKind::Unsupported, message).with_hint("copy views, or pass fewer arrays"));
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use cuzarr_device::{DType, Order};

    use super::*;
    use crate::elementwise::ElementwiseArgument;

    /// Devices on which these tests run kernels.
    fn devices() -> Vec<Device> {
        let found: Vec<Device> =
            [Device::Simt, Device::Cuda(0)].into_iter().filter(|device| Stream::new(*device).is_ok()).collect();
        if found.is_empty() {
            assert!(std::env::var_os("CUZARR_REQUIRE_GPU").is_none(), "CUZARR_REQUIRE_GPU is set, and there is no GPU");
            println!("skipped: no GPU, no simt");
        }
        found
    }

    fn numbers(device: Device, shape: &[usize], dtype: DType) -> NdBuffer {
        let len: usize = shape.iter().product();
        let bytes: Vec<u8> = (0..len as i64).flat_map(i64::to_ne_bytes).collect();
        let host = NdBuffer::from_host(Device::Cpu, DType::INT64, shape, Order::C, &bytes).unwrap();
        host.astype(dtype, Order::C).unwrap().to_device(device).unwrap()
    }

    fn values(array: &NdBuffer) -> Vec<f64> {
        let host = array.to_device(Device::Cpu).unwrap().astype(DType::FLOAT64, Order::C).unwrap();
        host.host_slice::<f64>().unwrap().to_vec()
    }

    fn run(kernel: &ElementwiseKernel, device: Device, call: &ElementwiseCall<'_>) -> Result<Vec<NdBuffer>> {
        let stream = Stream::new(device)?;
        // SAFETY: the operations of these tests stay inside of their elements, and of raw arrays by `i` and `n`.
        let outputs = unsafe { kernel.run(&stream, call) }?;
        stream.synchronize()?;
        Ok(outputs)
    }

    fn of(inputs: &str, outputs: &str, operation: &str) -> ElementwiseKernel {
        ElementwiseKernel::new(inputs, outputs, operation).unwrap()
    }

    #[test]
    fn shapes_broadcast_whatever_the_strides_are() {
        let blend = of("T a, T b, float32 w", "T z, int64 at", "z = a * 10 + w * b; at = i").named("blend").unwrap();
        for device in devices() {
            for (a, b) in [
                (numbers(device, &[4, 6], DType::FLOAT32), numbers(device, &[4, 6], DType::FLOAT32)),
                (numbers(device, &[4, 6], DType::FLOAT32), numbers(device, &[6], DType::FLOAT32)),
                (numbers(device, &[3, 1, 5], DType::FLOAT64), numbers(device, &[4, 1], DType::FLOAT64)),
                (
                    numbers(device, &[6, 4], DType::FLOAT32).transpose(&[1, 0]).unwrap(),
                    numbers(device, &[1, 6], DType::FLOAT32),
                ),
                (numbers(device, &[], DType::FLOAT64), numbers(device, &[], DType::FLOAT64)),
                (numbers(device, &[0, 3], DType::FLOAT64), numbers(device, &[3], DType::FLOAT64)),
            ] {
                let outputs = run(&blend, device, &ElementwiseCall::new(&[(&a).into(), (&b).into(), 0.5f32.into()]));
                let outputs = outputs.unwrap();
                let shape = outputs[0].shape().to_vec();
                let [a, b] = [&a, &b].map(|x| values(&x.broadcast_to(&shape).unwrap().copy(Order::C).unwrap()));
                let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a * 10.0 + b / 2.0).collect();
                assert_eq!(values(&outputs[0]), expected, "{shape:?} on {device}");
                assert_eq!(values(&outputs[1]), (0..expected.len()).map(|i| i as f64).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn every_element_is_done_once_whatever_the_alignment() {
        let more = of("T x", "T z", "z += x + 1");
        for device in devices() {
            for dtype in [DType::INT8, DType::UINT16, DType::FLOAT32, DType::FLOAT64] {
                for len in [1, 2, 5, 120] {
                    for start in [0, 1] {
                        let part = |x: &NdBuffer| x.region(&[start], &[len], &[1]).unwrap();
                        let x = numbers(device, &[len + 1], dtype);
                        let z = NdBuffer::zeroed(device, dtype, &[len + 1], Order::C).unwrap();
                        let (from, to) = (part(&x), part(&z));
                        let from_alone = [ElementwiseArgument::Array(&from)];
                        let call = ElementwiseCall { outputs: Some(&[&to]), ..ElementwiseCall::new(&from_alone) };
                        run(&more, device, &call).unwrap();
                        let expected: Vec<f64> = values(&x).iter().map(|x| x + 1.0).collect();
                        assert_eq!(values(&to), expected[start..start + len], "{len} of {dtype} from {start}");
                        assert_eq!(values(&z)[if start == 0 { len } else { 0 }], 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn raw_arrays_numbers_and_early_ends_are_what_the_operation_makes_of_them() {
        let reversed = of("raw T x", "T z", "z = x[n - 1 - i]");
        let some = of("T x, bool all, T most", "T z", "z = x; if (!all && x > most) continue; z = -1");
        for device in devices() {
            let x = numbers(device, &[9], DType::INT32);
            let inputs = [ElementwiseArgument::Array(&x)];
            let call = ElementwiseCall { size: Some(9), ..ElementwiseCall::new(&inputs) };
            assert_eq!(
                values(&run(&reversed, device, &call).unwrap()[0]),
                (0..9).rev().map(f64::from).collect::<Vec<_>>()
            );
            let inputs = [(&x).into(), false.into(), 5.0f64.into()];
            let z = run(&some, device, &ElementwiseCall::new(&inputs)).unwrap();
            assert_eq!(values(&z[0]), [-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 6.0, 7.0, 8.0]);
            let in_place = ElementwiseCall { outputs: Some(&[&x]), ..ElementwiseCall::new(&inputs) };
            run(&some, device, &in_place).unwrap();
            assert_eq!(values(&x), values(&z[0]));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let sum = of("T x, T y, float32 w", "T z", "z = x + y + w");
        for device in devices() {
            let [x, y, z] = [(); 3].map(|()| numbers(device, &[4, 5], DType::INT32));
            let other = numbers(device, &[3], DType::INT32);
            let floats = numbers(device, &[4, 5], DType::FLOAT32);
            let host = numbers(Device::Cpu, &[4, 5], DType::INT32);
            let halves = numbers(device, &[4, 5], DType::FLOAT16);
            let shifted = x.region(&[1, 0], &[3, 5], &[1, 1]).unwrap();
            let begun = x.region(&[0, 0], &[3, 5], &[1, 1]).unwrap();
            let row = numbers(device, &[1, 5], DType::INT32);
            let repeated = other.region(&[0], &[1], &[1]).unwrap().broadcast_to(&[4, 5]).unwrap();
            let (w, complex) = (1f32.into(), ElementwiseArgument::Value(DType::COMPLEX128, [0; 8]));
            for (inputs, output, kind, named) in [
                (&[(&x).into(), (&y).into()][..], None, ErrorKind::InvalidArgument, "3 inputs"),
                (&[(&x).into(), (&other).into(), w], None, ErrorKind::ShapeMismatch, "[3]"),
                (&[(&x).into(), (&floats).into(), w], None, ErrorKind::DTypeMismatch, "'y'"),
                (&[(&halves).into(), (&halves).into(), w], None, ErrorKind::DTypeMismatch, "float16"),
                (&[(&x).into(), (&host).into(), w], None, ErrorKind::MemorySpace, "cpu"),
                (&[(&x).into(), 2.5f64.into(), w], None, ErrorKind::InvalidArgument, "cannot hold 2.5"),
                (&[(&x).into(), (1i64 << 40).into(), w], None, ErrorKind::InvalidArgument, "int32"),
                (&[(&x).into(), complex, w], None, ErrorKind::DTypeMismatch, "complex128"),
                (&[(&x).into(), (&y).into(), w], Some(&other), ErrorKind::ShapeMismatch, "[3]"),
                (&[(&x).into(), (&y).into(), w], Some(&row), ErrorKind::ShapeMismatch, "'z'"),
                (&[(&x).into(), (&y).into(), w], Some(&floats), ErrorKind::DTypeMismatch, "'z'"),
                (&[(&x).into(), (&y).into(), w], Some(&repeated), ErrorKind::InvalidArgument, "repeated"),
                (&[(&begun).into(), 1i32.into(), w], Some(&shifted), ErrorKind::InvalidArgument, "overlaps"),
            ] {
                let outputs: Vec<&NdBuffer> = output.into_iter().collect();
                let call = ElementwiseCall { outputs: output.map(|_| &outputs[..]), ..ElementwiseCall::new(inputs) };
                let error = run(&sum, device, &call).unwrap_err();
                assert!(error.kind() == kind && error.to_string().contains(named), "{named}: {error}");
            }
            let twice = of("T x", "T y, T z", "y = z = x");
            let inputs = [ElementwiseArgument::Array(&x)];
            let call = ElementwiseCall { outputs: Some(&[&z, &z]), ..ElementwiseCall::new(&inputs) };
            assert!(run(&twice, device, &call).unwrap_err().message().contains("overlaps"));
            let bytes = Buffer::zeroed(device, 64).unwrap().slice(1..41).unwrap();
            let layout = cuzarr_device::Layout::strided(&[10], &[4], 0, 4, 40).unwrap();
            let odd = NdBuffer::from_parts(bytes, DType::INT32, layout);
            if let Ok(odd) = odd {
                let inputs = [ElementwiseArgument::Array(&odd)];
                let call = ElementwiseCall::new(&inputs);
                assert!(run(&twice, device, &call).unwrap_err().message().contains("multiples"));
            }
            let raw = of("raw T x", "T z", "z = x[i]");
            let inputs = [ElementwiseArgument::Array(&x)];
            let call = ElementwiseCall::new(&inputs);
            assert!(run(&raw, device, &call).unwrap_err().message().contains("size"));
            let unknown = of("float32 x", "T z", "z = x");
            let inputs = [ElementwiseArgument::Array(&floats)];
            let call = ElementwiseCall::new(&inputs);
            assert!(run(&unknown, device, &call).unwrap_err().message().contains("no argument tells the type T"));
        }
        let error = run(&sum, Device::Cpu, &ElementwiseCall::new(&[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for (inputs, outputs) in
            [("float31 x", "T y"), ("T x", ""), ("T x", "T x"), ("T i", "T y"), ("x", "T y"), ("complex64 x", "T y")]
        {
            assert!(ElementwiseKernel::new(inputs, outputs, "y = x").is_err(), "{inputs} -> {outputs}");
        }
        assert!(sum.named("1st").is_err());
    }

    #[test]
    fn the_text_compiles_for_gpus_in_every_form_and_errors_show_the_line_of_the_operation() {
        let check = |kernel: &ElementwiseKernel, form, in_place| {
            let values = vec![false, true, false];
            let variant = Variant { types: vec![('T', DType::FLOAT32)], form, values, in_place, in_dialect: false };
            Module::check("mine.cu", &source::text(kernel, &variant), &[], (9, 0))
        };
        let preamble = "__device__ int twice(int x) { return 2 * x; }";
        let good = of("T x, float64 y", "T z", "z = twice(x) + y * i / n").with_preamble(preamble);
        let wrong = of("T x, float64 y", "T z", "float one = 2 * x;\nz = one + nonsense").named("mine").unwrap();
        let forms = [Form::Packed { lanes: 1 }, Form::Packed { lanes: 4 }]
            .into_iter()
            .chain([0, 3].map(|rank| Form::Strided { rank, wide: rank == 3 }));
        for (form, in_place) in forms.flat_map(|form| [(form, true), (form, false)]) {
            match check(&good, form, in_place) {
                Err(error) if error.kind() == cuzarr_device::ErrorKind::LibraryMissing => {
                    println!("skipped: {}", error.message());
                    return;
                }
                answer => answer.unwrap_or_else(|error| panic!("{form:?}: {error}")),
            }
            let error = check(&wrong, form, in_place).unwrap_err();
            assert!(error.message().contains("mine(2)") && error.message().contains("nonsense"), "{error}");
        }
    }
}
