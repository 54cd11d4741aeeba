//! Runs programs on the CPU in blocks that stay in a core's cache: all steps on one block, then the next block.

mod apply;
mod lanes;

use std::sync::{Mutex, PoisonError};

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::{cast, nan};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order};

use super::layout::Joint;
use super::steps::{Action, Program, Step};
use crate::expression::{is_half, lane, negative_power};
use cuzarr::{Error, ErrorKind, Result};

/// Number of elements that each step of a program computes before the next step begins.
pub(crate) const BLOCK_ELEMS: usize = 4096;
/// Number of blocks of elements that a thread takes at a time.
const BLOCKS_AT_ONCE: usize = 16;

/// Computes a program for operands in host memory, and returns the result in new memory, packed in C order.
///
/// # Errors
/// `OutOfMemory`; `InvalidArgument` for elements without a result, such as 2 to the power of -1.
pub(crate) fn evaluate(program: &Program, shape: &[usize], inputs: &[NdBuffer], threads: usize) -> Result<NdBuffer> {
    let layout = Layout::contiguous(shape, program.output.size_bytes(), Order::C)?;
    let size_bytes = layout.size_bytes();
    let memory = Buffer::empty(Device::Cpu, size_bytes)?;
    let joint = Joint::new(shape, inputs)?;
    let held = inputs.iter().map(|input| Ok(input.buffer().host_bytes()?)).collect::<Result<Vec<_>>>()?;
    let offsets = inputs.iter().map(|input| input.layout().offset_bytes());
    let origins: Vec<(&[u8], usize)> = held.iter().map(|bytes| &**bytes).zip(offsets).collect();
    let pass = ProgramPass { program, joint: &joint, origins: &origins, plan: Registers::plan(program) };
    let piece_bytes = BLOCKS_AT_ONCE * BLOCK_ELEMS * program.output.size_bytes();
    let mut written = memory.host_bytes_mut()?;
    let spare: Mutex<Vec<Registers>> = Mutex::default();
    let locked = || spare.lock().unwrap_or_else(PoisonError::into_inner);
    let pieces = written.chunks_mut(piece_bytes).enumerate();
    let done = Threads::workers().map(threads, pieces, |(number, piece)| {
        let own = locked().pop();
        let mut registers = own.unwrap_or_else(|| Registers::new(program, &pass.plan));
        pass.piece(number * BLOCKS_AT_ONCE * BLOCK_ELEMS, piece, &mut registers)?;
        locked().push(registers);
        Ok(())
    });
    done.into_iter().collect::<Result<()>>()?;
    Ok(NdBuffer::from_parts(memory, program.output, layout)?)
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

    fn new(program: &Program, plan: &[usize]) -> Registers {
        let count = plan.iter().max().map_or(0, |most| most + 1);
        let mut values = vec![Vec::new(); count];
        for (step, &register) in program.steps.iter().zip(plan) {
            match &step.action {
                Action::Constant(element) => values[register] = element.repeat(BLOCK_ELEMS),
                _ if values[register].len() < BLOCK_ELEMS * step.lane.size_bytes() => {
                    values[register].resize(BLOCK_ELEMS * step.lane.size_bytes(), 0);
                }
                _ => {}
            }
        }
        Registers { values, scratch: vec![0; BLOCK_ELEMS * 16] }
    }
}

impl ProgramPass<'_> {
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
            if matches!(step.action, Action::Constant(_)) {
                continue;
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
        let result = &registers.values[self.plan[program.result]];
        let from = program.steps[program.result].lane;
        let result = &result[..range.len() * from.size_bytes()];
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
                let narrow = &mut registers.scratch[..range.len() * dtype.size_bytes()];
                self.load(*input, range, narrow);
                Ok(cast::cast(dtype, step.lane, narrow, value)?)
            }
            Action::Cast => {
                let from = program.steps[step.arguments[0]].lane;
                let source = &registers.values[self.plan[step.arguments[0]]][..range.len() * from.size_bytes()];
                Ok(cast::cast(from, step.lane, source, value)?)
            }
            Action::Round(half) => {
                debug_assert!(is_half(*half));
                let from = program.steps[step.arguments[0]].lane;
                let Registers { values, scratch } = registers;
                let source = &values[self.plan[step.arguments[0]]][..range.len() * from.size_bytes()];
                let narrow = &mut scratch[..range.len() * half.size_bytes()];
                cast::cast(from, *half, source, narrow)?;
                Ok(cast::cast(*half, step.lane, narrow, value)?)
            }
            Action::Canonical => {
                let source = &registers.values[self.plan[step.arguments[0]]];
                value.copy_from_slice(&source[..value.len()]);
                nan::canonicalize(step.lane, value);
                Ok(())
            }
            Action::Apply(op) => {
                let operand = |&argument: &usize| {
                    let lane = program.steps[argument].lane;
                    (lane, &registers.values[self.plan[argument]][..range.len() * lane.size_bytes()])
                };
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
