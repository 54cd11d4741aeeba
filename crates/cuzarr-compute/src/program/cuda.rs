//! Runs programs (expressions turned into steps) on a GPU, by generated kernels. Each program becomes one kernel, which
//! is generated, compiled once and kept.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use cuzarr_device::{
    Buffer, DType, Device, Function, Header, LaunchShape, Module, NdBuffer, Order, PerProcess, Stream, header,
};

use super::layout::Joint;
use super::source::{self, Form, GROUPS};
use super::steps::{Action, Program};
use crate::expression::negative_power;
use cuzarr::{Error, ErrorKind, Result};

/// Headers that generated kernels include.
const HEADERS: &[Header] = &[header!("program/arithmetic.cuh")];

/// Number of bytes that a GPU thread loads or stores at once.
pub(crate) const PACK_BYTES: usize = 16;
/// Largest size in bytes of a kernel's parameters; an expression that needs more is refused.
pub(crate) const MOST_PARAMETER_BYTES: usize = 4000;
const THREADS: u32 = 256;
/// Largest number of thread blocks in a launch. Beyond it, threads take more elements instead.
const MOST_BLOCKS: u64 = 1 << 20;

static KERNELS: PerProcess<Mutex<HashMap<(Device, String), Function>>> = PerProcess::new();

/// Returns the compiled kernel `name`. At its first use it is compiled from `text`, which includes some of `headers`.
/// Different texts need different names: see [`kernel_name`].
///
/// # Errors
/// `LibraryMissing` without a compiler, `KernelCompileFailed`, `DeviceUnavailable`.
pub(crate) fn function(
    device: Device,
    name: &str,
    headers: &'static [Header],
    text: impl FnOnce() -> String,
) -> Result<Function> {
    let mut known = KERNELS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device, name.to_string());
    if let Some(function) = known.get(&key) {
        return Ok(function.clone());
    }
    // The lock is held during compilation, so that a thread that wants the same kernel waits instead of compiling it.
    let flags = ["--std=c++17", "--fmad=false"].map(String::from);
    let function = Module::compile_with(device, "expression.cu", &text(), &flags, headers)?.function(name)?;
    known.insert(key, function.clone());
    Ok(function)
}

/// Makes a kernel's name from everything that determines its text, so that different texts have different names.
/// Kernels are kept by name, and running a wrong one would give wrong values. So names have 128 bits of a cryptographic
/// hash.
pub(crate) fn kernel_name(prefix: &str, of: &impl Hash) -> String {
    let mut hasher = NameHasher(Sha256::new());
    of.hash(&mut hasher);
    let digest = hasher.0.finalize();
    digest[..16].iter().fold(format!("cuzarr_{prefix}_"), |name, byte| name + &format!("{byte:02x}"))
}

/// A `Hasher` that computes SHA-256.
struct NameHasher(Sha256);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest[..8].iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }
}

/// Computes a program on a GPU, and returns the result in new memory there, packed in C order. The result is ready when
/// this returns.
///
/// # Errors
/// `OutOfMemory`, `DeviceFailed`; `LibraryMissing` without a compiler; `Unsupported` for more operands than a kernel
/// can have parameters; `InvalidArgument` for elements without a result, such as 2 to the power of -1.
pub(crate) fn evaluate(program: &Program, shape: &[usize], inputs: &[NdBuffer], stream: &Stream) -> Result<NdBuffer> {
    let device = stream.device();
    let out = NdBuffer::empty(device, program.output, shape, Order::C)?;
    if out.is_empty() {
        return Ok(out);
    }
    let joint = Joint::new(shape, inputs)?;
    let form = form(program, &joint, inputs, &out);
    let name = kernel_name("expression", &(&signature(program), &form));
    let kernel = function(device, &name, HEADERS, || source::kernel(program, &form, &name))?;
    let fault = program.may_fail().then(|| Buffer::zeroed(device, 4)).transpose()?;
    let operands = operands(program, &joint, &form, inputs)?;
    let arguments = vec![operands, address(out.buffer().address()), address(fault.as_ref().map_or(0, Buffer::address))];
    let (per_thread, threads) = match &form {
        Form::Packed { lanes, .. } if *lanes > 1 => (lanes * GROUPS, threads(device)),
        _ => (1, threads(device)),
    };
    let blocks = (joint.len() as u64).div_ceil(per_thread as u64 * u64::from(threads)).clamp(1, most_blocks(device));
    let buffers: Vec<&Buffer> = inputs.iter().map(NdBuffer::buffer).chain([out.buffer()]).chain(&fault).collect();
    // SAFETY: the arguments are those that the generated text declares: operands by value, the result, a word for
    // faults. `Joint::new` broadcast the inputs to the shape, inside their memory. The result was allocated here with
    // that shape, and the word for every program that may have faults.
    unsafe { kernel.launch(stream, LaunchShape::line(blocks as u32, threads), arguments, &buffers) }?;
    stream.synchronize()?;
    match fault {
        Some(fault) if fault.to_vec()? != [0; 4] => Err(negative_power()),
        _ => Ok(out),
    }
}

/// Number of threads in a block of generated kernels. It is small on the simulator, where each thread is a fiber.
pub(crate) fn threads(device: Device) -> u32 {
    if device == Device::Simt { 32 } else { THREADS }
}

pub(crate) fn most_blocks(device: Device) -> u64 {
    if device == Device::Simt { 4 } else { MOST_BLOCKS }
}

/// Encodes a pointer as a kernel's parameter.
pub(crate) fn address(address: usize) -> Vec<u8> {
    (address as u64).to_ne_bytes().to_vec()
}

/// Returns the program with all constants replaced, so that programs with other constants get the same kernel.
fn signature(program: &Program) -> Program {
    let mut signature = program.clone();
    for step in &mut signature.steps {
        if let Action::Constant(bytes) = &mut step.action {
            bytes.clear();
        }
    }
    signature
}

fn form(program: &Program, joint: &Joint, inputs: &[NdBuffer], out: &NdBuffer) -> Form {
    let single: Vec<bool> = (0..inputs.len()).map(|input| joint.is_single(input)).collect();
    let is_packed = |input: usize, dtype: &DType| single[input] || joint.is_packed(input, dtype.size_bytes());
    if !program.inputs.iter().enumerate().all(|(input, dtype)| is_packed(input, dtype)) {
        return Form::Strided { rank: joint.shape.len(), wide: u32::try_from(joint.len()).is_err() };
    }
    let moved = inputs.iter().zip(&single).filter(|(_, single)| !**single).map(|(input, _)| input).chain([out]);
    let widest = moved.clone().map(|operand| operand.dtype().size_bytes()).max().unwrap_or(PACK_BYTES);
    let mut lanes = (PACK_BYTES / widest).max(1);
    // Memory of other libraries may begin at any address.
    while lanes > 1 && moved.clone().any(|operand| operand.address() % (lanes * operand.dtype().size_bytes()) != 0) {
        lanes /= 2;
    }
    Form::Packed { lanes, single }
}

/// Encodes the kernel's parameter that contains the addresses, shapes and strides of the operands.
fn operands(program: &Program, joint: &Joint, form: &Form, inputs: &[NdBuffer]) -> Result<Vec<u8>> {
    let mut words: Vec<u64> = vec![joint.len() as u64];
    words.extend(inputs.iter().map(|input| input.address() as u64));
    words.resize(1 + inputs.len().max(1), 0);
    match form {
        Form::Strided { rank, .. } if *rank > 0 => {
            words.extend(joint.shape.iter().map(|&extent| extent as u64));
            for input in 0..inputs.len() {
                words.extend(joint.strides[input].iter().map(|&stride| stride as u64));
            }
        }
        _ => words.extend(std::iter::repeat_n(0, 1 + inputs.len().max(1))),
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let numbers = source::constants(program);
    bytes.extend(if numbers.is_empty() { vec![0; 16] } else { numbers });
    if bytes.len() > MOST_PARAMETER_BYTES {
        let message = format!("the expression has {} operands, more than one kernel can take", inputs.len());
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("compute parts of it first"));
    }
    Ok(bytes)
}

/// Compiles a test kernel that includes a header, with the headers that a module gives its kernels.
#[cfg(test)]
pub(crate) fn check_headers(include: &str, headers: &'static [Header]) {
    let text = format!("#include \"{include}\"\n\nCUZARR_KERNEL(cuzarr_test, u32* out) {{ *out = 1; }}\n");
    check_text(&text, headers, include);
}

#[cfg(test)]
fn check_text(text: &str, headers: &'static [Header], what: &str) {
    let flags = ["--std=c++17", "--fmad=false"].map(String::from);
    match Module::check_with("test.cu", text, &flags, headers, (9, 0)) {
        Err(error) if error.kind() == cuzarr_device::ErrorKind::LibraryMissing => {
            println!("skipped: {}", error.message());
        }
        answer => answer.unwrap_or_else(|error| panic!("{what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Expr, Op, Operand};
    use crate::program::lower;

    /// Every operation on elements of a type, as one sum of truth values.
    fn everything(dtype: DType) -> Program {
        let input = Expr::buffer(NdBuffer::zeroed(Device::Cpu, dtype, &[8], Order::C).unwrap()).unwrap();
        let mut sum: Option<Expr> = None;
        // Every third operation: compilers take minutes for all operations together.
        for &op in Op::ALL.iter().step_by(3) {
            let operands: Vec<Operand> = (0..op.arity()).map(|_| input.clone().into()).collect();
            let Ok(expr) = Expr::apply(op, &operands) else { continue };
            let expr = expr.astype(DType::BOOL).unwrap();
            sum = Some(match sum {
                None => expr,
                Some(sum) => Expr::apply(Op::Add, &[sum.into(), expr.into()]).unwrap(),
            });
        }
        lower(&sum.unwrap()).unwrap().0
    }

    #[test]
    fn names_of_kernels_hold_a_cryptographic_hash() {
        let digest = format!("{:x}", Sha256::digest(7u32.to_ne_bytes()));
        assert_eq!(kernel_name("answer", &7u32), format!("cuzarr_answer_{}", &digest[..32]));
    }

    #[test]
    fn every_operation_compiles_for_gpus_in_every_form() {
        let forms = [
            (DType::INT16, Form::Packed { lanes: 2, single: vec![false; 1] }),
            (DType::FLOAT16, Form::Strided { rank: 3, wide: true }),
        ];
        for (dtype, form) in forms {
            let text = source::kernel(&everything(dtype), &form, "cuzarr_test");
            check_text(&text, HEADERS, &format!("{dtype}, {form:?}"));
        }
    }
}
