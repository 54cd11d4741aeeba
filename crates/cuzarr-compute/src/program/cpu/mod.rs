//! Runs programs on the CPU in blocks that stay in a core's cache: all steps on one block, then the next block.

mod apply;
mod lanes;

use std::sync::{Mutex, PoisonError};

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::{cast, nan};
use cuzarr_device::{DType, Device, NdBuffer, Order};

use super::layout::Joint;
use super::steps::{Action, Program, Step};
use crate::expression::{is_half, lane, negative_power};
use cuzarr::{Error, ErrorKind, Result};

/// Number of elements that each step of a program computes before the next step begins. The values of a few steps fit
/// into a first-level cache of 32 KiB.
pub(crate) const BLOCK_ELEMS: usize = 1024;
/// Number of blocks of elements that a thread takes at a time.
const BLOCKS_AT_ONCE: usize = 64;

/// Computes a program for operands in host memory, and returns the result in new memory, packed in C order.
///
/// # Errors
/// `OutOfMemory`; `InvalidArgument` for elements without a result, such as 2 to the power of -1.
pub(crate) fn evaluate(program: &Program, shape: &[usize], inputs: &[NdBuffer], threads: usize) -> Result<NdBuffer> {
    let result = NdBuffer::empty(Device::Cpu, program.output, shape, Order::C)?;
    evaluate_into(program, inputs, &result, threads)?;
    Ok(result)
}

/// Computes a program for operands in host memory, and writes the result to `result`, which must be packed in C order and
/// have the program's element type.
///
/// # Errors
/// `InvalidArgument` for elements without a result, and for memory that is in use.
pub(crate) fn evaluate_into(program: &Program, inputs: &[NdBuffer], result: &NdBuffer, threads: usize) -> Result<()> {
    let memory = result.as_buffer()?;
    let joint = Joint::new(result.shape(), inputs)?;
    let held = inputs.iter().map(|input| Ok(input.buffer().host_bytes()?)).collect::<Result<Vec<_>>>()?;
    let offsets = inputs.iter().map(|input| input.layout().offset_bytes());
    let origins: Vec<(&[u8], usize)> = held.iter().map(|bytes| &**bytes).zip(offsets).collect();
    let block_elems = result.len().min(BLOCK_ELEMS);
    let pass = ProgramPass::new(program, &joint, &origins, block_elems);
    let piece_bytes = BLOCKS_AT_ONCE * BLOCK_ELEMS * program.output.size_bytes();
    let mut written = memory.host_bytes_mut()?;
    let spare: Mutex<Vec<Registers>> = Mutex::default();
    let locked = || spare.lock().unwrap_or_else(PoisonError::into_inner);
    let pieces = written.chunks_mut(piece_bytes).enumerate();
    let done = Threads::workers().map(threads, pieces, |(number, piece)| {
        let own = locked().pop();
        let mut registers = own.unwrap_or_else(|| Registers::new(&pass));
        pass.piece(number * BLOCKS_AT_ONCE * BLOCK_ELEMS, piece, &mut registers)?;
        locked().push(registers);
        Ok(())
    });
    done.into_iter().collect()
}

/// Returns the bits of the bfloat16 that is nearest to a binary32 number. A NaN keeps its bits: a computed NaN is
/// already the canonical one, and any other NaN was a bfloat16 before.
fn bfloat_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if x.is_nan() { bits } else { rounded } >> 16) as u16
}

/// The data that all threads share while they compute a program.
struct ProgramPass<'a> {
    program: &'a Program,
    joint: &'a Joint,
    origins: &'a [(&'a [u8], usize)],
    plan: Vec<usize>,
    /// For each step, whether it is an input whose packed elements are used where they lie.
    is_direct: Vec<bool>,
    /// The step whose values only become canonical before they are the result. They are computed in the result's memory.
    last: Option<usize>,
    /// Number of elements of a block, or of the whole result if that is less.
    block_elems: usize,
}

/// The memory in which one thread keeps the values of a program's steps. Steps whose values are not needed at the same
/// time share a register.
struct Registers {
    values: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Registers {
    /// Returns for each step of the program the number of the register (a piece of memory) that holds the value of the
    /// step. Constants keep theirs to the end.
    fn plan(program: &Program) -> Vec<usize> {
        let steps = &program.steps;
        let mut last_use: Vec<usize> = (0..steps.len()).collect();
        for (number, step) in steps.iter().enumerate() {
            step.arguments.iter().for_each(|&argument| last_use[argument] = number);
        }
        last_use[program.result] = usize::MAX;
        let (mut plan, mut free, mut count) = (Vec::new(), Vec::new(), 0);
        for (number, step) in steps.iter().enumerate() {
            let is_constant = matches!(step.action, Action::Constant(_));
            let register = if is_constant { None } else { free.pop() }.unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            plan.push(register);
            let mut ended: Vec<usize> = step.arguments.clone();
            ended.dedup();
            for argument in ended {
                let is_constant = matches!(steps[argument].action, Action::Constant(_));
                if last_use[argument] == number && !is_constant && !free.contains(&plan[argument]) {
                    free.push(plan[argument]);
                }
            }
        }
        plan
    }

    fn new(pass: &ProgramPass<'_>) -> Registers {
        let count = pass.plan.iter().max().map_or(0, |most| most + 1);
        let mut values = vec![Vec::new(); count];
        for (number, (step, &register)) in pass.program.steps.iter().zip(&pass.plan).enumerate() {
            let size_bytes = pass.block_elems * step.lane.size_bytes();
            match &step.action {
                Action::Constant(element) => values[register] = element.repeat(pass.block_elems),
                _ if pass.is_direct[number] || pass.last == Some(number) => {}
                _ if values[register].len() < size_bytes => values[register].resize(size_bytes, 0),
                _ => {}
            }
        }
        Registers { values, scratch: Vec::new() }
    }

    /// Returns all values, and `size_bytes` bytes of scratch memory.
    fn with_scratch(&mut self, size_bytes: usize) -> (&[Vec<u8>], &mut [u8]) {
        if self.scratch.len() < size_bytes {
            self.scratch.resize(size_bytes, 0);
        }
        (&self.values, &mut self.scratch[..size_bytes])
    }
}

impl<'a> ProgramPass<'a> {
    fn new(
        program: &'a Program,
        joint: &'a Joint,
        origins: &'a [(&'a [u8], usize)],
        block_elems: usize,
    ) -> ProgramPass<'a> {
        let is_direct = |step: &Step| match step.action {
            Action::Input(input) => {
                let dtype = program.inputs[input];
                lane(dtype) == dtype && joint.is_packed(input, dtype.size_bytes())
            }
            _ => false,
        };
        let is_direct: Vec<bool> = program.steps.iter().map(is_direct).collect();
        let result = &program.steps[program.result];
        let last = match (&result.action, &result.arguments[..]) {
            (Action::Canonical, &[last]) if result.lane == program.output => {
                let uses = program.steps.iter().flat_map(|step| &step.arguments).filter(|&&argument| argument == last);
                let is_computed = !is_direct[last] && !matches!(program.steps[last].action, Action::Constant(_));
                (is_computed && uses.count() == 1).then_some(last)
            }
            _ => None,
        };
        ProgramPass { program, joint, origins, plan: Registers::plan(program), is_direct, last, block_elems }
    }

    /// Returns the values of a step that was computed for the elements `range`.
    fn value<'b>(&'b self, step: usize, range: &std::ops::Range<usize>, values: &'b [Vec<u8>]) -> &'b [u8] {
        let size_bytes = range.len() * self.program.steps[step].lane.size_bytes();
        match self.program.steps[step].action {
            Action::Input(input) if self.is_direct[step] => {
                let (bytes, origin) = self.origins[input];
                let start = origin + range.start * self.program.inputs[input].size_bytes();
                &bytes[start..start + size_bytes]
            }
            _ => &values[self.plan[step]][..size_bytes],
        }
    }

    /// Computes the elements of the program's result from element number `first` on, until `out` is full.
    fn piece(&self, first: usize, out: &mut [u8], registers: &mut Registers) -> Result<()> {
        let element_bytes = self.program.output.size_bytes();
        for (number, block) in out.chunks_mut(BLOCK_ELEMS * element_bytes).enumerate() {
            let start = first + number * BLOCK_ELEMS;
            self.block(start..start + block.len() / element_bytes, block, registers)?;
        }
        Ok(())
    }

    fn block(&self, range: std::ops::Range<usize>, out: &mut [u8], registers: &mut Registers) -> Result<()> {
        let program = self.program;
        let is_last = |number: usize| number == program.result && number + 1 == program.steps.len();
        for (number, step) in program.steps.iter().enumerate() {
            if matches!(step.action, Action::Constant(_)) || self.is_direct[number] {
                continue;
            }
            if self.last == Some(number) {
                self.step(step, &range, out, registers)?;
                continue;
            }
            if self.last.is_some() && number == program.result {
                nan::canonicalize(step.lane, out);
                return Ok(());
            }
            if is_last(number) && step.lane == program.output {
                return self.step(step, &range, out, registers);
            }
            let register = self.plan[number];
            let mut value = std::mem::take(&mut registers.values[register]);
            let done = self.step(step, &range, &mut value[..range.len() * step.lane.size_bytes()], registers);
            registers.values[register] = value;
            done?;
        }
        let from = program.steps[program.result].lane;
        let result = self.value(program.result, &range, &registers.values);
        if program.output == DType::BFLOAT16 {
            lanes::map1(result, out, bfloat_bits);
            return Ok(());
        }
        Ok(cast::cast(from, program.output, result, out)?)
    }

    fn step(
        &self,
        step: &Step,
        range: &std::ops::Range<usize>,
        value: &mut [u8],
        registers: &mut Registers,
    ) -> Result<()> {
        let program = self.program;
        match &step.action {
            Action::Constant(_) => Ok(()),
            Action::Input(input) => {
                let dtype = program.inputs[*input];
                if lane(dtype) == dtype {
                    self.load(*input, range, value);
                    return Ok(());
                }
                let (_, narrow) = registers.with_scratch(range.len() * dtype.size_bytes());
                self.load(*input, range, narrow);
                Ok(cast::cast(dtype, step.lane, narrow, value)?)
            }
            Action::Cast => {
                let from = program.steps[step.arguments[0]].lane;
                let source = self.value(step.arguments[0], range, &registers.values);
                Ok(cast::cast(from, step.lane, source, value)?)
            }
            Action::Round(half) => {
                debug_assert!(is_half(*half));
                let from = program.steps[step.arguments[0]].lane;
                let (values, narrow) = registers.with_scratch(range.len() * half.size_bytes());
                let source = self.value(step.arguments[0], range, values);
                cast::cast(from, *half, source, narrow)?;
                Ok(cast::cast(*half, step.lane, narrow, value)?)
            }
            Action::Canonical => {
                value.copy_from_slice(self.value(step.arguments[0], range, &registers.values));
                nan::canonicalize(step.lane, value);
                Ok(())
            }
            Action::Apply(op) => {
                let operand =
                    |&argument: &usize| (program.steps[argument].lane, self.value(argument, range, &registers.values));
                let operands: Vec<_> = step.arguments.iter().map(operand).collect();
                match apply::apply(*op, &operands, value) {
                    apply::Outcome::Done => Ok(()),
                    apply::Outcome::NegativePower => Err(negative_power()),
                    apply::Outcome::Unknown => {
                        let lane = program.operand_lane(step);
                        let message = format!("{} has no loop for elements of {lane}", op.name());
                        Err(Error::new(ErrorKind::Unsupported, message))
                    }
                }
            }
        }
    }

    /// Copies the elements `range` of an input to `value`, packed.
    fn load(&self, input: usize, range: &std::ops::Range<usize>, value: &mut [u8]) {
        let (bytes, origin) = self.origins[input];
        let size = self.program.inputs[input].size_bytes();
        let inner = self.joint.strides[input].last().copied().unwrap_or(0);
        self.joint.rows(input, range.clone(), |at, offset, count| {
            let target = &mut value[at * size..(at + count) * size];
            let start = origin.wrapping_add_signed(offset);
            if inner == size as isize {
                target.copy_from_slice(&bytes[start..start + count * size]);
                return;
            }
            lanes::gather(bytes, start, inner, size, target);
        });
    }
}
