//! Expressions: descriptions of computations, which compute nothing themselves.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::internal::cpu::cast;
use cuzarr_device::{DType, DTypeKind, NdBuffer, Scan};

use super::op::{Op, promote_all};
use super::promote::{Weak, without_arithmetic};
use super::view::View;
use crate::options::ComputeOptions;
use cuzarr::node::Array;
use cuzarr::plan::Selection;
use cuzarr::{Error, ErrorKind, Result};

/// A lazy expression: an array with a shape and an element type, whose elements are computed on request. Cloning is
/// cheap, and shared parts are computed once.
#[derive(Clone)]
pub struct Expr(pub(crate) Arc<Node>);

pub(crate) struct Node {
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: DType,
    pub(crate) kind: Kind,
    /// How deeply operations are nested in this expression.
    depth: u32,
    /// How deeply running sums or products and flattened expressions are nested in this expression.
    derived: u32,
    /// Whether all inputs are in memory, none in a store.
    is_in_memory: bool,
}

/// Largest number of operations that may be nested in an expression; deeper ones are refused. A deeper one would
/// overflow the stack when it is dropped.
const MOST_DEPTH: u32 = 2000;

/// Largest number of running sums or products and flattened expressions that may be nested; deeper ones are refused.
/// Each level runs as a job inside the next level's job.
const MOST_DERIVED: u32 = 32;

pub(crate) enum Kind {
    /// The expression has these elements, which are already in memory.
    Buffer(NdBuffer),
    /// The expression has all or some elements of an array in a store.
    Array(Box<View>),
    /// The expression is one number, given as the bytes of an element.
    Constant(Vec<u8>),
    /// The expression applies an operation to the elements of other expressions. Its operands already have the types
    /// that it computes in.
    Apply(Op, Vec<Expr>),
    /// The expression has the elements of another expression, converted to another type.
    Cast(Expr),
    /// The expression consists of several expressions, one after the other along a dimension.
    Joined(Joined),
    /// The expression has the elements of another expression, arranged in one dimension.
    Flat(Flat),
    /// The expression has running sums or products of another expression along a dimension.
    Running(Running),
    /// The expression is computed from many elements of another expression, such as its sum.
    Summary(Arc<dyn Summary>, Expr),
}

/// Several expressions of one element type, joined one after the other along a dimension.
#[derive(Clone)]
pub(crate) struct Joined {
    pub(crate) axis: usize,
    pub(crate) parts: Vec<Expr>,
}

/// An expression's elements in C order, beginning with element number `from`.
#[derive(Clone)]
pub(crate) struct Flat {
    pub(crate) of: Expr,
    pub(crate) from: u64,
    pub(crate) count: u64,
}

/// Running sums or products of an expression's elements along a dimension, beginning with index `from`.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) of: Expr,
    pub(crate) axis: usize,
    pub(crate) scan: Scan,
    pub(crate) from: u64,
}

/// The intermediate results of the parts of a summary (such as a sum), in order, each encoded as bytes.
pub type Parts<'a> = dyn Iterator<Item = Result<Vec<u8>>> + 'a;

/// A function of many elements, such as a sum or quantiles, that an expression contains. In an expression it is
/// computed before everything else.
pub(crate) trait Summary: fmt::Debug + Send + Sync {
    /// Returns the type and the shape of the function's result, for elements with the given type and shape.
    ///
    /// # Errors
    /// `DTypeMismatch`, `InvalidArgument`.
    fn result(&self, dtype: DType, shape: &[u64]) -> Result<(DType, Vec<u64>)>;

    /// Computes the function of all elements of the expression `of`, in new memory of the device.
    ///
    /// # Errors
    /// Those of [`Expr::compute`].
    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer>;

    /// Returns into how many parts the function's work can be divided for other processes; `None` if it cannot be
    /// divided.
    ///
    /// # Errors
    /// Those of [`Expr::compute`] that appear before anything is read.
    fn parts(&self, _of: &Expr, _options: &ComputeOptions<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Computes the function's intermediate result for one part of the elements, as bytes.
    ///
    /// # Errors
    /// Those of [`Expr::compute`]; `Unsupported` where there are no parts.
    fn part(&self, _of: &Expr, _number: u64, _options: &ComputeOptions<'_>) -> Result<Vec<u8>> {
        Err(self.without_parts())
    }

    /// Computes the function's result from the intermediate results of all parts, in host memory.
    ///
    /// # Errors
    /// Those of the parts; `InvalidArgument` for bytes that are not such a part; `Unsupported` where there are no
    /// parts.
    fn joined(&self, _of: &Expr, _parts: &mut Parts<'_>, _options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        Err(self.without_parts())
    }

    /// Returns the error for a summary (such as a sum) whose work cannot be divided into parts.
    fn without_parts(&self) -> Error {
        Error::new(ErrorKind::Unsupported, format!("{} is not made of parts", self.name()))
    }

    /// Returns the name that the function has in NumPy.
    fn name(&self) -> &'static str;

    /// Returns the function's arguments after the expression, as text that begins with a comma; empty if there are
    /// none.
    fn arguments(&self) -> String;

    /// Returns which elements of the result are used, as text such as an index; empty for the whole result.
    fn picked(&self) -> String {
        String::new()
    }
}

/// Formats the dimensions over which a function reduces as text such as `, axis=[0]`; empty if it reduces all.
pub(crate) fn axes_argument(axes: Option<&[usize]>) -> String {
    axes.map_or_else(String::new, |axes| format!(", axis={axes:?}"))
}

/// One operand of an operation: an expression, or a plain number.
#[derive(Clone)]
pub enum Operand {
    /// An expression, whose elements the operation takes one by one.
    Expr(Expr),
    /// A plain number, which takes the type of the other operand.
    Weak(Weak),
}

impl From<Expr> for Operand {
    fn from(expr: Expr) -> Self {
        Operand::Expr(expr)
    }
}

impl From<f64> for Operand {
    fn from(value: f64) -> Self {
        Operand::Weak(Weak::Float(value))
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Self {
        Operand::Weak(Weak::Int(i128::from(value)))
    }
}

impl Expr {
    pub(crate) fn new(shape: Vec<u64>, dtype: DType, kind: Kind) -> Expr {
        let operands: &[Expr] = match &kind {
            Kind::Apply(_, operands) => operands,
            Kind::Joined(joined) => &joined.parts,
            Kind::Flat(Flat { of, .. }) | Kind::Running(Running { of, .. }) => std::slice::from_ref(of),
            Kind::Cast(inner) | Kind::Summary(_, inner) => std::slice::from_ref(inner),
            _ => &[],
        };
        let depth = 1 + operands.iter().map(|operand| operand.0.depth).max().unwrap_or(0);
        let is_derived = matches!(kind, Kind::Flat(_) | Kind::Running(_));
        let derived = u32::from(is_derived) + operands.iter().map(|operand| operand.0.derived).max().unwrap_or(0);
        let is_in_memory = !matches!(kind, Kind::Array(_)) && operands.iter().all(|operand| operand.0.is_in_memory);
        Expr(Arc::new(Node { shape, dtype, kind, depth, derived, is_in_memory }))
    }

    /// Refuses another expression of running results or flattened elements if [`MOST_DERIVED`] of them are already
    /// nested.
    ///
    /// # Errors
    /// `Unsupported`
    pub(super) fn check_derived(&self) -> Result<()> {
        if self.0.derived < MOST_DERIVED {
            return Ok(());
        }
        let message = format!("more than {MOST_DERIVED} running results are nested");
        Err(Error::new(ErrorKind::Unsupported, message).with_hint("compute or store some of them first"))
    }

    /// Makes the expression for `summary`, a function of all these elements such as their sum.
    ///
    /// # Errors
    /// Those of [`Summary::result`].
    pub(crate) fn summary(&self, summary: impl Summary + 'static) -> Result<Expr> {
        let (dtype, shape) = summary.result(self.dtype(), self.shape())?;
        Ok(Expr::new(shape, dtype, Kind::Summary(Arc::new(summary), self.clone())))
    }

    /// Whether all inputs are in memory, so that computing the expression reads nothing.
    pub fn is_in_memory(&self) -> bool {
        self.0.is_in_memory
    }

    /// Returns the elements, if they are in memory and need no computation.
    pub fn memory(&self) -> Option<&NdBuffer> {
        if let Kind::Buffer(buffer) = &self.0.kind { Some(buffer) } else { None }
    }

    /// Makes an expression from elements in memory, on any device.
    ///
    /// # Errors
    /// `DTypeMismatch` when the elements have no arithmetic.
    pub fn buffer(buffer: NdBuffer) -> Result<Expr> {
        check_dtype(buffer.dtype())?;
        let shape = buffer.shape().iter().map(|&extent| extent as u64).collect();
        Ok(Expr::new(shape, buffer.dtype(), Kind::Buffer(buffer)))
    }

    /// Makes an expression from an array in a store, whose elements are read when they are needed.
    ///
    /// # Errors
    /// `DTypeMismatch` when the elements have no arithmetic.
    pub fn array(array: Array) -> Result<Expr> {
        Expr::of_view(View::whole(array))
    }

    /// Makes an expression from the selected elements of an array in a store. Nothing else is read. Neighbouring boxes
    /// of one array are read together. [`Expr::picked`] also supports negative steps and transposes.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr::plan::{Region, Selection};
    /// use cuzarr_compute::{ComputeOptions, Expr, Op};
    /// let array = Array::builder([5], DataType::Int32).chunks([2]).create("memory://differences")?;
    /// array.write(&Selection::all(&[5]), &[0i32, 1, 4, 9, 16])?;
    /// let later = Expr::view(array.clone(), &Selection::region(&[1], &[4])?)?;
    /// let earlier = Expr::view(array, &Selection::region(&[0], &[4])?)?;
    /// let steps = Expr::apply(Op::Subtract, &[later.into(), earlier.into()])?;
    /// assert_eq!(steps.compute(&ComputeOptions::default())?.host_slice::<i32>()?, [1, 3, 5, 7]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Expr::array`]; `SelectionInvalid` when the selection does not fit.
    pub fn view(array: Array, selection: &Selection) -> Result<Expr> {
        Expr::of_view(View::new(array, selection)?)
    }

    /// Makes an expression from single points of an array; they fill the shape `shape` in C order.
    ///
    /// # Errors
    /// Those of [`Expr::array`]; `SelectionInvalid` when the selection does not fit the array, or the number of points
    /// does not fit `shape`.
    pub fn points(array: Array, selection: &Selection, shape: &[u64]) -> Result<Expr> {
        Expr::of_view(View::points(array, selection, shape)?)
    }

    fn of_view(view: View) -> Result<Expr> {
        let array = &view.array;
        let data_type = array.metadata().data_type();
        let dtype = data_type.device_dtype().ok_or_else(|| {
            let message = "expressions do not support elements of variable length";
            Error::new(ErrorKind::DTypeMismatch, message)
        })?;
        check_dtype(dtype)?;
        Ok(Expr::new(view.shape(), dtype, Kind::Array(Box::new(view))))
    }

    /// Makes an expression for a single number of the given type.
    ///
    /// # Errors
    /// `OutOfRange` when an integer does not fit; `DTypeMismatch` for a complex number in a real type.
    pub fn constant(value: Weak, dtype: DType) -> Result<Expr> {
        check_dtype(dtype)?;
        Ok(Expr::new(Vec::new(), dtype, Kind::Constant(element(value, dtype)?)))
    }

    /// Applies an operation to the operands, with NumPy's type promotion and broadcasting.
    ///
    /// ```
    /// use cuzarr_compute::{Expr, Op};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [1.0f32, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[2], Order::C, &bytes)?)?;
    /// let y = Expr::apply(Op::Add, &[Expr::apply(Op::Sqrt, &[x.into()])?.into(), 1i64.into()])?;
    /// assert_eq!((y.shape(), y.dtype()), (&[2u64][..], DType::FLOAT32));
    /// assert_eq!(y.evaluate(Device::Cpu)?.host_slice::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for the wrong number of operands; `OutOfRange` for a number that does not fit; `ShapeMismatch` when
    /// shapes do not broadcast; `DTypeMismatch` when the operation has no meaning for the types.
    pub fn apply(op: Op, operands: &[Operand]) -> Result<Expr> {
        if operands.len() != op.arity() {
            let message = format!("{} takes {} operands, got {}", op.name(), op.arity(), operands.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if operands.iter().any(|operand| matches!(operand, Operand::Expr(expr) if expr.0.depth > MOST_DEPTH)) {
            let message = format!("more than {MOST_DEPTH} operations are nested");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("compute parts of the expression first"));
        }
        let together = &operands[op.promoted_from()..];
        let dtype = common_dtype(together)?;
        if let Some(known) = outside(op, operands)? {
            return Ok(known);
        }
        check_exponent(op, dtype, operands)?;
        let separate: Vec<Option<DType>> = operands.iter().map(Operand::dtype).collect();
        let signature = op.signature(dtype, &separate)?;
        let mut arguments = Vec::with_capacity(operands.len());
        for (operand, &input) in operands.iter().zip(&signature.inputs) {
            arguments.push(match operand {
                Operand::Expr(expr) => expr.astype(input)?,
                // Converted by way of the common type, as in NumPy, so that an integer type does not refuse a number
                // like 2.5.
                Operand::Weak(weak) => Expr::constant(*weak, weak.meets(dtype))?.astype(input)?,
            });
        }
        if op == Op::Power && is_square(&operands[1]) {
            return Expr::apply(Op::Square, &[arguments.swap_remove(0).into()]);
        }
        let shape = broadcast(arguments.iter().map(Expr::shape))?;
        Ok(Expr::new(shape, signature.output, Kind::Apply(op, arguments)))
    }

    /// Converts the elements to another type, like NumPy's `astype`. Returns the same expression if it already has that
    /// type.
    ///
    /// # Errors
    /// `DTypeMismatch` when there is no such conversion.
    pub fn astype(&self, dtype: DType) -> Result<Expr> {
        check_dtype(dtype)?;
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        if let Kind::Constant(bytes) = &self.0.kind {
            let mut converted = vec![0; dtype.size_bytes()];
            cast::cast(self.dtype(), dtype, bytes, &mut converted)?;
            return Ok(Expr::new(Vec::new(), dtype, Kind::Constant(converted)));
        }
        Ok(Expr::new(self.0.shape.clone(), dtype, Kind::Cast(self.clone())))
    }

    /// The extent of each dimension of the expression.
    pub fn shape(&self) -> &[u64] {
        &self.0.shape
    }

    /// The type of the expression's elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The number of dimensions of the expression.
    pub fn ndim(&self) -> usize {
        self.0.shape.len()
    }
}

impl Operand {
    /// Returns the operand's element type; `None` for a plain number, which takes the type of the other operand.
    fn dtype(&self) -> Option<DType> {
        match self {
            Operand::Expr(expr) => Some(expr.dtype()),
            Operand::Weak(_) => None,
        }
    }
}

/// Returns the type that all operands are promoted to.
///
/// # Errors
/// `DTypeMismatch` for types without arithmetic.
pub(crate) fn common_dtype(operands: &[Operand]) -> Result<DType> {
    let weak = operands.iter().filter_map(|operand| match operand {
        Operand::Weak(weak) => Some(*weak),
        Operand::Expr(_) => None,
    });
    let strong: Vec<DType> = operands.iter().filter_map(Operand::dtype).collect();
    if strong.is_empty() {
        return promote_all(weak.map(Weak::default_dtype));
    }
    Ok(weak.fold(promote_all(strong)?, |dtype, weak| weak.meets(dtype)))
}

/// Returns the shape that all shapes broadcast to.
///
/// # Errors
/// `ShapeMismatch`
pub(crate) fn broadcast<'a>(shapes: impl Iterator<Item = &'a [u64]> + Clone) -> Result<Vec<u64>> {
    let ndim = shapes.clone().map(<[u64]>::len).max().unwrap_or(0);
    let mut joint = vec![1; ndim];
    for shape in shapes.clone() {
        for (&extent, joint) in shape.iter().rev().zip(joint.iter_mut().rev()) {
            match (*joint, extent) {
                (1, _) => *joint = extent,
                (_, 1) => {}
                (joint, extent) if joint == extent => {}
                _ => {
                    let all: Vec<String> = shapes.map(|shape| format!("{shape:?}")).collect();
                    let message = format!("shapes {} do not broadcast to one", all.join(", "));
                    return Err(Error::new(ErrorKind::ShapeMismatch, message)
                        .with_hint("extents must agree or be 1, counted from the last dimension"));
                }
            }
        }
    }
    Ok(joint)
}

fn check_dtype(dtype: DType) -> Result<()> {
    if dtype.kind() == DTypeKind::Opaque { Err(without_arithmetic(dtype)) } else { Ok(()) }
}

fn is_square(operand: &Operand) -> bool {
    matches!(operand, Operand::Weak(Weak::Int(2))) || matches!(operand, Operand::Weak(Weak::Float(2.0)))
}

/// Returns the smallest and the largest value of an integer type; `None` for other types.
fn bounds(dtype: DType) -> Option<(i128, i128)> {
    let bits = 8 * dtype.size_bytes() as u32;
    match dtype.kind() {
        DTypeKind::Int => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        DTypeKind::UInt => Some((0, (1 << bits) - 1)),
        _ => None,
    }
}

/// Returns the result of comparing integers with a number outside the range of their type, which is known without
/// reading. `None` for other operations.
fn outside(op: Op, operands: &[Operand]) -> Result<Option<Expr>> {
    let (expr, value, is_left) = match operands {
        [Operand::Expr(expr), Operand::Weak(Weak::Int(value))] => (expr, *value, false),
        [Operand::Weak(Weak::Int(value)), Operand::Expr(expr)] => (expr, *value, true),
        _ => return Ok(None),
    };
    let Some((least, greatest)) = bounds(expr.dtype()).filter(|_| op.is_comparison()) else { return Ok(None) };
    if (least..=greatest).contains(&value) {
        return Ok(None);
    }
    // Comparing 0 with the number's sign gives the same answer as any element.
    let (left, right) = if is_left { (value.signum(), 0) } else { (0, value.signum()) };
    let answer = match op {
        Op::Equal => false,
        Op::NotEqual => true,
        Op::Less => left < right,
        Op::LessEqual => left <= right,
        Op::Greater => left > right,
        _ => left >= right,
    };
    // Integers always equal themselves, so these comparisons give the answer.
    let known = if answer { Op::Equal } else { Op::NotEqual };
    Expr::apply(known, &[expr.clone().into(), expr.clone().into()]).map(Some)
}

fn check_exponent(op: Op, dtype: DType, operands: &[Operand]) -> Result<()> {
    let is_whole = matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Bool);
    match operands {
        [_, Operand::Weak(Weak::Int(exponent))] if op == Op::Power && is_whole && *exponent < 0 => {
            Err(negative_power())
        }
        _ => Ok(()),
    }
}

/// Returns the error for integers raised to negative powers.
pub(crate) fn negative_power() -> Error {
    let message = "integers to negative powers are not integers";
    Error::new(ErrorKind::InvalidArgument, message).with_hint("convert one of them to a float first")
}

/// Converts a plain number to the bytes of an element of type `dtype`.
fn element(value: Weak, dtype: DType) -> Result<Vec<u8>> {
    let convert = |from: DType, bytes: &[u8]| -> Result<Vec<u8>> {
        let mut element = vec![0; dtype.size_bytes()];
        cast::cast(from, dtype, bytes, &mut element)?;
        Ok(element)
    };
    match value {
        Weak::Int(value) => {
            if let Some((least, greatest)) = bounds(dtype) {
                if !(least..=greatest).contains(&value) {
                    let message = format!("the number {value} does not fit into {dtype}");
                    return Err(Error::new(ErrorKind::OutOfRange, message).with_hint("convert the array first"));
                }
                return Ok(value.to_le_bytes()[..dtype.size_bytes()].to_vec());
            }
            match dtype {
                DType::FLOAT32 => Ok((value as f32).to_ne_bytes().to_vec()),
                DType::BOOL => Ok(vec![u8::from(value != 0)]),
                _ => convert(DType::FLOAT64, &(value as f64).to_ne_bytes()),
            }
        }
        Weak::Float(value) => convert(DType::FLOAT64, &value.to_ne_bytes()),
        Weak::Complex(..) if dtype.kind() != DTypeKind::Complex => {
            Err(Error::new(ErrorKind::DTypeMismatch, format!("a complex number does not fit into {dtype}")))
        }
        Weak::Complex(real, imaginary) => {
            convert(DType::COMPLEX128, &[real.to_ne_bytes(), imaginary.to_ne_bytes()].concat())
        }
    }
}

/// Returns the sign, such as `+`, of an operation that has one.
fn infix(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::Add => "+",
        Op::Subtract => "-",
        Op::Multiply => "*",
        Op::Divide => "/",
        Op::FloorDivide => "//",
        Op::Remainder => "%",
        Op::Power => "**",
        Op::BitwiseAnd => "&",
        Op::BitwiseOr => "|",
        Op::BitwiseXor => "^",
        Op::LeftShift => "<<",
        Op::RightShift => ">>",
        Op::Less => "<",
        Op::LessEqual => "<=",
        Op::Greater => ">",
        Op::GreaterEqual => ">=",
        _ => return None,
    })
}

/// How deeply nested operations are shown when an expression is printed; deeper ones are left out.
const SHOWN_DEPTH: usize = 8;

impl Expr {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        if depth > SHOWN_DEPTH {
            return f.write_str("…");
        }
        match &self.0.kind {
            Kind::Buffer(buffer) => write!(f, "<{} {:?} on {}>", buffer.dtype(), buffer.shape(), buffer.device()),
            Kind::Array(view) => write!(f, "{view}"),
            Kind::Constant(bytes) => write_number(f, self.dtype(), bytes),
            Kind::Cast(inner) => {
                inner.write(f, depth + 1)?;
                write!(f, ".astype({})", self.dtype())
            }
            Kind::Joined(joined) => {
                f.write_str("concatenate(")?;
                for part in &joined.parts {
                    part.write(f, depth + 1)?;
                    f.write_str(", ")?;
                }
                write!(f, "axis={})", joined.axis)
            }
            Kind::Flat(flat) => {
                f.write_str("ravel(")?;
                flat.of.write(f, depth + 1)?;
                f.write_str(")")?;
                let is_all = flat.count == flat.of.shape().iter().product::<u64>();
                if is_all { Ok(()) } else { write!(f, "[{}:{}]", flat.from, flat.from + flat.count) }
            }
            Kind::Running(running) => {
                write!(f, "{}(", running.name())?;
                running.of.write(f, depth + 1)?;
                write!(f, ", axis={})", running.axis)?;
                // The part of the running results that was picked.
                if running.from == 0 { Ok(()) } else { write!(f, "[{}{}:]", ":, ".repeat(running.axis), running.from) }
            }
            Kind::Summary(summary, inner) => {
                write!(f, "{}(", summary.name())?;
                inner.write(f, depth + 1)?;
                write!(f, "{}){}", summary.arguments(), summary.picked())
            }
            Kind::Apply(op, operands) => match (infix(*op), &operands[..]) {
                (Some(sign), [left, right]) => {
                    f.write_str("(")?;
                    left.write(f, depth + 1)?;
                    write!(f, " {sign} ")?;
                    right.write(f, depth + 1)?;
                    f.write_str(")")
                }
                _ => {
                    write!(f, "{}(", op.name())?;
                    for (at, operand) in operands.iter().enumerate() {
                        f.write_str(if at > 0 { ", " } else { "" })?;
                        operand.write(f, depth + 1)?;
                    }
                    f.write_str(")")
                }
            },
        }
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, dtype: DType, bytes: &[u8]) -> fmt::Result {
    let mut wide = [0; 16];
    let as_type = |to: DType, wide: &mut [u8]| cast::cast(dtype, to, bytes, &mut wide[..to.size_bytes()]).is_ok();
    let part = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_ne_bytes);
    match dtype.kind() {
        DTypeKind::Bool => write!(f, "{}", bytes != [0]),
        DTypeKind::Int if as_type(DType::INT64, &mut wide) => {
            write!(f, "{}", wide[..8].try_into().map_or(0, i64::from_ne_bytes))
        }
        DTypeKind::UInt if as_type(DType::UINT64, &mut wide) => {
            write!(f, "{}", wide[..8].try_into().map_or(0, u64::from_ne_bytes))
        }
        DTypeKind::Complex if as_type(DType::COMPLEX128, &mut wide) => {
            write!(f, "({}{:+}j)", part(&wide[..8]), part(&wide[8..]))
        }
        _ if as_type(DType::FLOAT64, &mut wide) => write!(f, "{}", part(&wide[..8])),
        _ => f.write_str("?"),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({} {:?}: {self})", self.dtype(), self.shape())
    }
}
