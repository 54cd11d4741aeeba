//! Turns expressions into programs: lists of steps that compute one result element. Each step computes one value from
//! values of earlier steps.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr_device::{DType, DTypeKind, NdBuffer};

use crate::expression::{Expr, Flat, Joined, Kind, Node, Op, Running, Summary, View, is_half, lane};
use cuzarr::{Error, ErrorKind, Result};

/// An expression as a list of steps, which compute one result element from one element of each input. No two steps of a
/// program are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    /// Element types of the inputs, as they lie in memory.
    pub(crate) inputs: Vec<DType>,
    pub(crate) steps: Vec<Step>,
    /// Number of the step whose value is the result.
    pub(crate) result: usize,
    /// Element type of the result, as it lies in memory.
    pub(crate) output: DType,
}

/// One step of a program: an action on the values of earlier steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) action: Action,
    /// Numbers of the steps whose values this step takes.
    pub(crate) arguments: Vec<usize>,
    /// The element type in which the step's value is computed. It is never a 2-byte float.
    pub(crate) lane: DType,
}

/// The action of one step of a program, such as a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Loads an element of the program's input with this number.
    Input(usize),
    /// Gives the same constant, whose value is given as bytes, for every element.
    Constant(Vec<u8>),
    Apply(Op),
    /// Converts the value of an earlier step to another type.
    Cast,
    /// Rounds a value to a 2-byte float type, and converts it back to binary32.
    Round(DType),
    /// Replaces every NaN by the NaN with the standard bits.
    Canonical,
}

/// Where the elements of a program's input come from.
#[derive(Clone)]
pub(crate) enum Input {
    Buffer(NdBuffer),
    Array(Box<View>),
    /// The input consists of several other expressions, one after the other.
    Joined(Joined),
    /// The input has the elements of another expression, arranged in one dimension.
    Flat(Flat),
    /// The input has running sums or products of another expression.
    Running(Running),
    /// The input is the result of a summary (such as a sum) of another expression. It is computed before anything else.
    Reduced(Expr, Arc<dyn Summary>),
}

impl Input {
    /// Whether both inputs are known to have the same elements.
    fn is_same(&self, other: &Input) -> bool {
        match (self, other) {
            (Input::Buffer(a), Input::Buffer(b)) => {
                (a.device(), a.address(), a.dtype(), a.layout()) == (b.device(), b.address(), b.dtype(), b.layout())
                    && a.buffer().shares_memory_with(b.buffer())
            }
            (Input::Array(a), Input::Array(b)) => self.is_of_array(other) && a.is_like(b),
            (Input::Running(a), Input::Running(b)) => a.is_same(b),
            _ => false,
        }
    }

    /// Whether both inputs are elements of the same array in a store.
    pub(crate) fn is_of_array(&self, other: &Input) -> bool {
        let (Input::Array(a), Input::Array(b)) = (self, other) else { return false };
        let (a, b) = (&a.array, &b.array);
        Arc::ptr_eq(a.store(), b.store()) && a.path() == b.path() && a.shape() == b.shape()
    }

    /// Whether the input is computed from another expression's elements, and not read or in memory.
    pub(crate) fn is_derived(&self) -> bool {
        matches!(self, Input::Flat(_) | Input::Running(_))
    }

    /// Whether the input can be used without reading from stores.
    pub(crate) fn is_in_memory(&self) -> bool {
        match self {
            Input::Buffer(_) => true,
            Input::Flat(Flat { of, .. }) | Input::Running(Running { of, .. }) => of.is_in_memory(),
            Input::Array(_) | Input::Joined(_) | Input::Reduced(..) => false,
        }
    }

    /// Returns the input's shape.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match self {
            Input::Buffer(buffer) => buffer.shape().iter().map(|&extent| extent as u64).collect(),
            Input::Array(view) => view.shape(),
            Input::Joined(joined) => joined.shape(),
            Input::Flat(flat) => vec![flat.count],
            Input::Running(running) => running.shape(),
            // A summary is replaced by its elements before its shape is needed.
            Input::Reduced(expr, summary) => {
                summary.result(expr.dtype(), expr.shape()).map(|(_, shape)| shape).unwrap_or_default()
            }
        }
    }
}

/// Largest number of steps in a program; an expression that needs more is refused. Nobody writes longer programs by
/// hand, and compilers take long for them.
const MOST_STEPS: usize = 4096;

struct Lowering {
    program: Program,
    inputs: Vec<Input>,
    known: HashMap<*const Node, usize>,
    steps: HashMap<Step, usize>,
}

/// Converts an expression to a program, and returns the program with its inputs in order.
///
/// # Errors
/// `Unsupported` for an expression with thousands of operations.
pub(crate) fn lower(expr: &Expr) -> Result<(Program, Vec<Input>)> {
    let program = Program { inputs: Vec::new(), steps: Vec::new(), result: 0, output: expr.dtype() };
    let mut lowering = Lowering { program, inputs: Vec::new(), known: HashMap::new(), steps: HashMap::new() };
    let result = lowering.visit(expr)?;
    lowering.program.result = lowering.settled(expr, result);
    Ok((lowering.program, lowering.inputs))
}

impl Lowering {
    /// Adds the steps that compute an expression, and returns the number of the step with its value. Operands come
    /// first. There is no recursion, so no chain is too deep.
    fn visit(&mut self, root: &Expr) -> Result<usize> {
        let mut stack = vec![(root.clone(), false)];
        let mut last = 0;
        while let Some((expr, is_ready)) = stack.pop() {
            let key = Arc::as_ptr(&expr.0);
            if let Some(&step) = self.known.get(&key) {
                last = step;
                continue;
            }
            let operands: &[Expr] = match &expr.0.kind {
                Kind::Apply(_, operands) => operands,
                Kind::Cast(inner) => std::slice::from_ref(inner),
                _ => &[],
            };
            if !is_ready && !operands.is_empty() {
                stack.push((expr.clone(), true));
                stack.extend(operands.iter().rev().map(|operand| (operand.clone(), false)));
                continue;
            }
            let arguments = operands.iter().map(|operand| self.known[&Arc::as_ptr(&operand.0)]).collect();
            last = self.compute(&expr, arguments);
            self.known.insert(key, last);
            if self.program.steps.len() > MOST_STEPS {
                let message = format!("the expression has more than {MOST_STEPS} operations");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint("compute parts of it first"));
            }
        }
        Ok(last)
    }

    fn compute(&mut self, expr: &Expr, arguments: Vec<usize>) -> usize {
        let dtype = expr.dtype();
        match &expr.0.kind {
            Kind::Buffer(buffer) => self.input(dtype, Input::Buffer(buffer.clone())),
            Kind::Array(view) => self.input(dtype, Input::Array(view.clone())),
            Kind::Joined(joined) => self.input(dtype, Input::Joined(joined.clone())),
            Kind::Flat(flat) => self.input(dtype, Input::Flat(flat.clone())),
            Kind::Running(running) => self.input(dtype, Input::Running(running.clone())),
            Kind::Summary(summary, of) => self.input(dtype, Input::Reduced(of.clone(), Arc::clone(summary))),
            Kind::Constant(bytes) => {
                let mut wide = vec![0; lane(dtype).size_bytes()];
                // Both types are known, and both buffers hold one element.
                let _ = cuzarr_device::internal::cpu::cast::cast(dtype, lane(dtype), bytes, &mut wide);
                self.step(Action::Constant(wide), arguments, lane(dtype))
            }
            Kind::Apply(op, operands) if op.moves() => {
                let settled = operands.iter().zip(arguments).map(|(operand, step)| self.settled(operand, step));
                let arguments = settled.collect();
                self.step(Action::Apply(*op), arguments, lane(dtype))
            }
            Kind::Apply(op, _) => {
                let step = self.step(Action::Apply(*op), arguments, lane(dtype));
                if is_half(dtype) { self.step(Action::Round(dtype), vec![step], DType::FLOAT32) } else { step }
            }
            Kind::Cast(inner) => self.cast(arguments[0], inner.dtype(), dtype),
        }
    }

    /// Adds the step that turns a computed value into an element of the result, if one is needed; returns the last
    /// step's number. It replaces NaNs of a computation by the canonical one, because processors give them different
    /// bits. This happens only here. Elements that are only moved keep their NaNs.
    fn settled(&mut self, expr: &Expr, step: usize) -> usize {
        let is_computed = match &expr.0.kind {
            Kind::Apply(op, _) => !op.moves(),
            Kind::Cast(_) => true,
            _ => false,
        };
        let has_nan = matches!(expr.dtype().kind(), DTypeKind::Float | DTypeKind::BFloat | DTypeKind::Complex);
        if is_computed && has_nan { self.step(Action::Canonical, vec![step], lane(expr.dtype())) } else { step }
    }

    fn cast(&mut self, argument: usize, from: DType, to: DType) -> usize {
        if is_half(to) {
            // Rounds directly from binary64, in a single step.
            return self.step(Action::Round(to), vec![argument], DType::FLOAT32);
        }
        if lane(from) == to {
            return argument;
        }
        self.step(Action::Cast, vec![argument], to)
    }

    fn input(&mut self, dtype: DType, input: Input) -> usize {
        if let Some(known) = self.inputs.iter().position(|known| known.is_same(&input)) {
            return self.step(Action::Input(known), Vec::new(), lane(dtype));
        }
        let number = self.program.inputs.len();
        self.program.inputs.push(dtype);
        self.inputs.push(input);
        self.step(Action::Input(number), Vec::new(), lane(dtype))
    }

    /// Returns the number of the step with this action, arguments and type, and adds it if the program does not have it
    /// yet.
    fn step(&mut self, action: Action, arguments: Vec<usize>, lane: DType) -> usize {
        let step = Step { action, arguments, lane };
        if let Some(&known) = self.steps.get(&step) {
            return known;
        }
        let number = self.program.steps.len();
        self.program.steps.push(step.clone());
        self.steps.insert(step, number);
        number
    }
}

impl Program {
    /// Returns the type in which a step gets its operands.
    pub(crate) fn operand_lane(&self, step: &Step) -> DType {
        step.arguments.last().map_or(step.lane, |&argument| self.steps[argument].lane)
    }

    /// Returns the number of the input that is already the result, if the program computes nothing.
    pub(crate) fn passes(&self) -> Option<usize> {
        match self.steps[self.result].action {
            Action::Input(input) if self.inputs[input] == self.output => Some(input),
            _ => None,
        }
    }

    /// Returns the number of steps that compute something for each element.
    pub(crate) fn operations(&self) -> usize {
        let computes =
            |step: &&Step| !matches!(step.action, Action::Input(_) | Action::Constant(_) | Action::Canonical);
        self.steps.iter().filter(computes).count()
    }

    /// Whether the computation may fail for some elements: integers to negative integer powers have no result.
    pub(crate) fn may_fail(&self) -> bool {
        let is_signed = |step: &Step| self.operand_lane(step).kind() == DTypeKind::Int;
        self.steps.iter().any(|step| step.action == Action::Apply(Op::Power) && is_signed(step))
    }
}
