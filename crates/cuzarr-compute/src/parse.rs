//! A parser of expressions, for `cuzarr eval`. It accepts Python's operators with Python's precedence, NumPy's function
//! names, numbers, and names that the caller defines. Text cannot name files or run code. Expressions that contain only
//! numbers are computed as in Python. Comparisons are not chained: write `(0 < u) & (u < 3)`.
//!
//! ```text
//! expression = operand {binary-operator operand}          by precedence, ** from the right
//! operand    = ("-" | "+" | "~") operand | atom
//! atom       = number | name | name "(" expression {"," expression} ["," "axis" "=" axes] ")" | "(" expression ")"
//! axes       = integer | "(" integer {"," [integer]} ")"
//! ```
//!
//! Quantile functions take the probabilities after the array: one number, or several in brackets.
//!
//! ```text
//! quantile(t, 0.9)      percentile(t, [10, 90], axis=(1, 2))
//! ```
//!
//! Running sums and products have NumPy's result types: 64 bits for integers. `axis` may only be left out for arrays
//! with one dimension.

mod number;

use crate::expression::{Expr, Op, Operand, Weak};
use crate::quantile::{Quantile, QuantileMethod};
use crate::reduce::{ReduceOp, Reduction};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::Scan;

/// Largest nesting depth of a parsed expression: far more than users write, and far less than a thread's stack can
/// hold.
const MOST_DEPTH: usize = 64;

/// Longest text that is parsed, in characters: a longer one is refused, so that the parser's stack suffices.
const MOST_CHARACTERS: usize = 1 << 16;

/// The operators: sign, precedence (a higher one binds tighter) and operation.
const OPERATORS: &[(&str, u8, Op)] = &[
    ("**", 9, Op::Power),
    ("//", 7, Op::FloorDivide),
    ("<<", 5, Op::LeftShift),
    (">>", 5, Op::RightShift),
    ("<=", 1, Op::LessEqual),
    (">=", 1, Op::GreaterEqual),
    ("==", 1, Op::Equal),
    ("!=", 1, Op::NotEqual),
    ("<", 1, Op::Less),
    (">", 1, Op::Greater),
    ("|", 2, Op::BitwiseOr),
    ("^", 3, Op::BitwiseXor),
    ("&", 4, Op::BitwiseAnd),
    ("+", 6, Op::Add),
    ("-", 6, Op::Subtract),
    ("*", 7, Op::Multiply),
    ("/", 7, Op::Divide),
    ("%", 7, Op::Remainder),
];
const SIGN_BINDS: u8 = 8;
const COMPARISON_BINDS: u8 = 1;

/// Parses a text such as `2 * a + sqrt(b)` to an expression. `names` looks up the caller's names; `pi`, `e`, `inf` and
/// `nan` are built in.
///
/// ```
/// use cuzarr_compute::{Expr, parse};
/// use cuzarr_device::{DType, Device, NdBuffer, Order};
/// let bytes: Vec<u8> = [3.0f32, 0.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
/// let u = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[2], Order::C, &bytes)?)?;
/// let length = parse("sqrt(u**2 + 2 * 8)", &|name| (name == "u").then(|| u.clone()))?;
/// assert_eq!(length.evaluate(Device::Cpu)?.host_slice::<f32>()?, [5.0, 4.0]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument` with the position of text that cannot be parsed; those of [`Expr::apply`].
pub fn parse(text: &str, names: &dyn Fn(&str) -> Option<Expr>) -> Result<Expr> {
    let mut parser = Parser { text, at: 0, depth: 0, names };
    if text.chars().count() > MOST_CHARACTERS {
        return Err(parser.wrong("the expression is too long"));
    }
    let operand = parser.expression(0)?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.wrong("expected an operator or the end"));
    }
    strong(operand)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    names: &'a dyn Fn(&str) -> Option<Expr>,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Error {
        let rest: String = self.text[self.at..].chars().take(12).collect();
        let place = self.text[..self.at].chars().count();
        let found = if rest.is_empty() { "the end".to_string() } else { format!("'{rest}'") };
        Error::new(ErrorKind::InvalidArgument, format!("expression, character {place}: {what}, got {found}"))
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.wrong(&format!("expected '{token}'"))) }
    }

    /// Parses an expression of operators that bind more tightly than `outer`.
    fn expression(&mut self, outer: u8) -> Result<Operand> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.wrong("operands lie too deep in each other"));
        }
        let mut left = self.operand()?;
        let mut is_compared = false;
        loop {
            self.skip_blanks();
            let rest = &self.text[self.at..];
            let found = OPERATORS.iter().find(|(sign, ..)| rest.starts_with(sign));
            let Some(&(sign, binds, op)) = found.filter(|(_, binds, _)| *binds > outer) else { break };
            if is_compared && binds == COMPARISON_BINDS {
                let error = self.wrong("comparisons cannot be chained");
                return Err(error.with_hint("write each comparison in parentheses, joined by &: (0 < u) & (u < 3)"));
            }
            is_compared = binds == COMPARISON_BINDS;
            let begin = self.at;
            self.at += sign.len();
            // `**` groups from the right.
            let right = self.expression(if op == Op::Power { binds - 1 } else { binds })?;
            left = self.applied(op, vec![left, right], begin)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Operand> {
        self.skip_blanks();
        for (sign, op) in [("-", Some(Op::Negative)), ("+", None), ("~", Some(Op::Invert))] {
            let begin = self.at;
            if self.take(sign) {
                let operand = self.expression(SIGN_BINDS)?;
                return match op {
                    Some(op) => self.applied(op, vec![operand], begin),
                    None => Ok(operand),
                };
            }
        }
        if self.take("(") {
            let inside = self.expression(0)?;
            self.expect(")")?;
            return Ok(inside);
        }
        match self.text[self.at..].chars().next() {
            Some(first) if first.is_ascii_digit() || first == '.' => self.number(),
            Some(first) if first.is_alphabetic() || first == '_' => self.name(),
            _ => Err(self.wrong("expected a number, a name or '('")),
        }
    }

    fn number(&mut self) -> Result<Operand> {
        let bytes = &self.text.as_bytes()[self.at..];
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let in_exponent = end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            match byte {
                b'0'..=b'9' | b'.' | b'_' | b'e' | b'E' => end += 1,
                b'+' | b'-' if in_exponent => end += 1,
                _ => break,
            }
        }
        let digits = self.text[self.at..self.at + end].replace('_', "");
        let value = match (digits.parse::<i128>(), digits.parse::<f64>()) {
            (Ok(whole), _) => Weak::Int(whole),
            (_, Ok(float)) => Weak::Float(float),
            _ => return Err(self.wrong("expected a number")),
        };
        self.at += end;
        Ok(Operand::Weak(value))
    }

    /// Applies an operator to its operands; messages point to `begin`, where the operation's text begins. Numbers
    /// without arrays are computed as in Python, and the result still adapts to the type of the array that it meets.
    fn applied(&mut self, op: Op, operands: Vec<Operand>, begin: usize) -> Result<Operand> {
        let known = match operands[..] {
            [Operand::Weak(one)] => number::of_one(op, one),
            [Operand::Weak(one), Operand::Weak(other)] => number::of_two(op, one, other),
            _ => return Expr::apply(op, &operands).map(Operand::Expr),
        };
        match known {
            Ok(Some(weak)) => Ok(Operand::Weak(weak)),
            Ok(None) => Expr::apply(op, &operands).map(Operand::Expr),
            Err(what) => {
                self.at = begin;
                Err(self.wrong(what))
            }
        }
    }

    fn word(&mut self) -> String {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_string()
    }

    fn name(&mut self) -> Result<Operand> {
        let begin = self.at;
        let name = self.word();
        if self.take("(") {
            return self.call(&name, begin);
        }
        if let Some(expr) = (self.names)(&name) {
            return Ok(Operand::Expr(expr));
        }
        let number = match name.as_str() {
            "pi" => std::f64::consts::PI,
            "e" => std::f64::consts::E,
            "inf" => f64::INFINITY,
            "nan" => f64::NAN,
            _ => {
                self.at = begin;
                return Err(self.wrong(&format!("nothing is called '{name}'")));
            }
        };
        Ok(Operand::Weak(Weak::Float(number)))
    }

    fn call(&mut self, name: &str, begin: usize) -> Result<Operand> {
        let (mut arguments, mut probabilities, mut axes) = (Vec::new(), None, None);
        let quantile = quantile_named(name);
        loop {
            let before = self.at;
            if self.word() == "axis" && self.take("=") && !self.text[self.at..].starts_with('=') {
                axes = Some(self.axes()?);
                self.expect(")")?;
                break;
            }
            self.at = before;
            match quantile {
                Some((Some(_), _)) if arguments.len() == 1 && probabilities.is_none() => {
                    probabilities = Some(self.probabilities()?);
                }
                _ => arguments.push(self.expression(0)?),
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        let unknown = |parser: &mut Self| {
            parser.at = begin;
            let known = Op::ALL.iter().map(|op| op.name()).chain(ReduceOp::names());
            let known = known.chain(QUANTILES.map(|(name, _)| name)).chain(RUNNING.map(|(name, _)| name));
            parser.wrong(&format!("unknown function '{name}'")).with_nearest(name, known)
        };
        match (Op::named(name), reduction_named(name), quantile, running_named(name)) {
            (Some(op), ..) if axes.is_none() => Expr::apply(op, &arguments).map(Operand::Expr),
            (_, Some((op, skip_nan)), ..) if arguments.len() == 1 => {
                let of = strong(arguments.swap_remove(0))?;
                let axes = self.counted(axes, of.ndim())?;
                let reduction = Reduction { skip_nan, ..Reduction::new(op, axes) };
                Ok(Operand::Expr(of.reduced(reduction)?))
            }
            (_, _, Some((scale, skip_nan)), _)
                if arguments.len() == 1 && scale.is_some() == probabilities.is_some() =>
            {
                let of = strong(arguments.swap_remove(0))?;
                let axes = self.counted(axes, of.ndim())?;
                let method = if scale.is_some() { QuantileMethod::Linear } else { QuantileMethod::Median };
                let (given, scalar) = probabilities.unwrap_or((vec![0.5], true));
                let given = given.into_iter().map(|one| one / scale.unwrap_or(1.0)).collect();
                let quantile = Quantile { axes, scalar, skip_nan, ..Quantile::new(given, method) };
                Ok(Operand::Expr(of.quantile(quantile)?))
            }
            (.., Some((op, scan))) if arguments.len() == 1 => {
                let of = strong(arguments.swap_remove(0))?;
                let axes = self.counted(axes, of.ndim())?;
                let axis = match axes.as_deref() {
                    Some(&[axis]) => axis,
                    None if of.ndim() == 1 => 0,
                    _ => {
                        self.at = begin;
                        return Err(self.wrong(&format!("'{name}' needs one dimension, such as axis=0")));
                    }
                };
                let (_, wide) = op.dtypes(of.dtype())?;
                Ok(Operand::Expr(of.astype(wide)?.running(axis, scan)?))
            }
            (None, None, None, None) => Err(unknown(self)),
            _ => {
                self.at = begin;
                Err(self.wrong(&format!("'{name}' does not take these arguments")))
            }
        }
    }

    /// Parses one probability, or several in brackets. Returns them, and whether it was a single number without
    /// brackets.
    fn probabilities(&mut self) -> Result<(Vec<f64>, bool)> {
        if !self.take("[") {
            return Ok((vec![self.probability()?], true));
        }
        let mut given = Vec::new();
        while !self.take("]") {
            given.push(self.probability()?);
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok((given, false))
    }

    fn probability(&mut self) -> Result<f64> {
        let before = self.at;
        match self.expression(0)? {
            Operand::Weak(Weak::Int(value)) => Ok(value as f64),
            Operand::Weak(Weak::Float(value)) => Ok(value),
            _ => {
                self.at = before;
                Err(self.wrong("expected a number, or several in brackets"))
            }
        }
    }

    /// Parses the number of a dimension, or several in parentheses.
    fn axes(&mut self) -> Result<Vec<i64>> {
        if !self.take("(") {
            return Ok(vec![self.integer()?]);
        }
        let mut axes = vec![self.integer()?];
        while self.take(",") {
            if self.take(")") {
                return Ok(axes);
            }
            axes.push(self.integer()?);
        }
        self.expect(")")?;
        Ok(axes)
    }

    /// Converts axes, which may count from the end, to ascending dimension indices.
    fn counted(&self, axes: Option<Vec<i64>>, ndim: usize) -> Result<Option<Vec<usize>>> {
        let Some(axes) = axes else { return Ok(None) };
        let mut counted: Vec<usize> = axes.iter().map(|&axis| self.axis(axis, ndim)).collect::<Result<_>>()?;
        counted.sort_unstable();
        match counted.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(Some(counted)),
            Some(pair) => {
                let message = format!("expression: dimension {} is named twice", pair[0]);
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }

    fn integer(&mut self) -> Result<i64> {
        let negative = self.take("-");
        let digits = self.word();
        let number: i64 = digits.parse().map_err(|_| self.wrong("expected the number of a dimension"))?;
        Ok(if negative { -number } else { number })
    }

    fn axis(&self, axis: i64, ndim: usize) -> Result<usize> {
        let counted = if axis < 0 { axis + ndim as i64 } else { axis };
        let found = usize::try_from(counted).ok().filter(|&axis| axis < ndim);
        found.ok_or_else(|| {
            let message = format!("expression: dimension {axis} of {ndim}");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

/// How a quantile function of the expression language, such as `nanmedian`, computes quantiles. The pair has the
/// divisor of the caller's probabilities (`None` if the function takes none), and whether NaN is left out.
type QuantileFunction = (Option<f64>, bool);

const QUANTILES: [(&str, QuantileFunction); 6] = [
    ("median", (None, false)),
    ("nanmedian", (None, true)),
    ("quantile", (Some(1.0), false)),
    ("nanquantile", (Some(1.0), true)),
    ("percentile", (Some(100.0), false)),
    ("nanpercentile", (Some(100.0), true)),
];

/// Running sums and products, each with the reduction that determines its result type.
const RUNNING: [(&str, (ReduceOp, Scan)); 2] =
    [("cumsum", (ReduceOp::Sum, Scan::Sum)), ("cumprod", (ReduceOp::Prod, Scan::Product))];

fn running_named(name: &str) -> Option<(ReduceOp, Scan)> {
    RUNNING.iter().find(|(known, _)| *known == name).map(|(_, running)| *running)
}

fn quantile_named(name: &str) -> Option<QuantileFunction> {
    QUANTILES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

/// Returns the reduction with a NumPy name, and whether it leaves out NaN.
fn reduction_named(name: &str) -> Option<(ReduceOp, bool)> {
    match name.strip_prefix("nan").and_then(ReduceOp::named) {
        Some(op) => Some((op, true)),
        None => ReduceOp::named(name).map(|op| (op, false)),
    }
}

fn strong(operand: Operand) -> Result<Expr> {
    match operand {
        Operand::Expr(expr) => Ok(expr),
        Operand::Weak(weak) => Expr::constant(weak, weak.default_dtype()),
    }
}

#[cfg(test)]
mod tests {
    use cuzarr_device::{DType, Device, NdBuffer, Order};

    use super::*;

    fn names(name: &str) -> Option<Expr> {
        if name == "b" {
            let buffer = NdBuffer::from_host(Device::Cpu, DType::INT8, &[2], Order::C, &[1, 2]).unwrap();
            return Some(Expr::buffer(buffer).unwrap());
        }
        let values: &[f32] = match name {
            "u" => &[1.0, 2.0, 3.0, 4.0],
            "v" => &[4.0, 3.0, 2.0, 1.0],
            _ => return None,
        };
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let buffer = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[2, 2], Order::C, &bytes).unwrap();
        Some(Expr::buffer(buffer).unwrap())
    }

    fn values(text: &str) -> Vec<f64> {
        let expr = parse(text, &names).unwrap_or_else(|error| panic!("{text}: {error}"));
        let wide = expr.astype(DType::FLOAT64).unwrap();
        let options = crate::ComputeOptions::default();
        wide.compute(&options).unwrap().host_slice::<f64>().unwrap().to_vec()
    }

    #[test]
    fn precedence_is_pythons() {
        assert_eq!(values("u + v * 2"), [9.0, 8.0, 7.0, 6.0]);
        assert_eq!(values("-u ** 2"), [-1.0, -4.0, -9.0, -16.0]);
        assert_eq!(values("2 ** -1 ** 2 * u"), [0.5, 1.0, 1.5, 2.0]);
        assert_eq!(values("u - v - 1"), [-4.0, -2.0, 0.0, 2.0]);
        assert_eq!(values("(u > 2) & (v < 2)"), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(values("u // 2 % 2"), [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(values("where(u >= v, u, -1.5e0)"), [-1.5, -1.5, 3.0, 4.0]);
        assert_eq!(values("(0 < u) == (u < 3)"), [1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn numbers_stay_without_a_type_and_reductions_have_axes() {
        assert_eq!(parse("u * (2 * pi + 1)", &names).unwrap().dtype(), DType::FLOAT32);
        assert_eq!(values("mean(u, axis=0)"), [2.0, 3.0]);
        assert_eq!(values("median(u, axis=1) - nanmedian(u)"), [-1.0, 1.0]);
        assert_eq!(values("u - max(u, axis=-1)").len(), 4);
        assert_eq!(values("nansum(u * nan)"), [0.0]);
        assert_eq!(values("sum(u, axis=(0, 1))"), [10.0]);
        assert_eq!(values("sum(u, axis=(-1,))"), [3.0, 7.0]);
        assert_eq!(values("quantile(u, 0.5) + percentile(u, [0, 100])"), [3.5, 6.5]);
        assert_eq!(values("nanquantile(where(u > 3, nan, u), [0, 1], axis=(1, 0))"), [1.0, 3.0]);
        assert_eq!(values("cumsum(u, axis=0)"), [1.0, 2.0, 4.0, 6.0]);
        assert_eq!(values("cumprod(u, axis=-1) - cumsum(max(u, axis=0))"), [-2.0, -5.0, 0.0, 5.0]);
        assert_eq!(parse("cumsum(u > 1, axis=0)", &names).unwrap().dtype(), DType::INT64);
    }

    #[test]
    fn numbers_alone_take_the_type_of_the_array_that_they_meet() {
        for (text, dtype, first) in [
            ("b + 7 // 2", DType::INT8, 4.0),
            ("b + -7 // 2", DType::INT8, -3.0),
            ("b + -7 % 3", DType::INT8, 3.0),
            ("b + (6 & 3)", DType::INT8, 3.0),
            ("b + (6 | 3)", DType::INT8, 8.0),
            ("b + (6 ^ 3)", DType::INT8, 6.0),
            ("b + ~5", DType::INT8, -5.0),
            ("b + (1 << 3)", DType::INT8, 9.0),
            ("b + (-9 >> 1)", DType::INT8, -4.0),
            ("b * (7 // 2.0)", DType::FLOAT64, 3.0),
            ("u * (7 // 2.0)", DType::FLOAT32, 3.0),
            ("u * (-7.5 % 2)", DType::FLOAT32, 0.5),
            ("u + 7 // -2", DType::FLOAT32, -3.0),
        ] {
            assert_eq!(parse(text, &names).unwrap().dtype(), dtype, "{text}");
            assert_eq!(values(text)[0], first, "{text}");
        }
    }

    #[test]
    fn numbers_alone_that_python_refuses_are_refused() {
        for (text, needle) in [
            ("u + 1 / 0", "division by zero"),
            ("u + 1 // 0", "division by zero"),
            ("u + 1.0 % 0.0", "division by zero"),
            ("u + 0 ** -1", "division by zero"),
            ("u + (1 << -1)", "negative shift count"),
            ("u + (1 << 200)", "more than 128 bits"),
            ("u + 10 ** 60", "more than 128 bits"),
        ] {
            let error = parse(text, &names).unwrap_err();
            assert!(error.message().contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn chained_comparisons_are_refused_with_the_way_to_write_them() {
        for text in ["0 < u < 3", "u == v == u", "0 < u + 1 <= 3 & 1", "1 < 2 < u"] {
            let error = parse(text, &names).unwrap_err();
            assert!(error.message().contains("comparisons cannot be chained"), "{text}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("(0 < u) & (u < 3)")), "{text}");
        }
    }

    #[test]
    fn nonsense_is_named_with_its_place() {
        let deep = "(".repeat(10_000);
        for (text, needle) in [
            ("", "character 0"),
            ("u +", "got the end"),
            ("u v", "character 2"),
            ("w", "nothing is called 'w'"),
            ("open(u)", "unknown function 'open'"),
            ("u.real", "expected an operator"),
            ("sin(u", "expected ')'"),
            ("mean(u, axis=7)", "dimension 7 of 2"),
            ("mean(u, axis=(1, -1))", "dimension 1 is named twice"),
            ("quantile(u)", "does not take these arguments"),
            ("quantile(u, v)", "expected a number, or several in brackets"),
            ("median(u, 0.5)", "does not take these arguments"),
            ("cumsum(u)", "'cumsum' needs one dimension"),
            ("cumprod(u, axis=(0, 1))", "'cumprod' needs one dimension"),
            ("cumsum(u, v)", "does not take these arguments"),
            ("cumsun(u)", "unknown function 'cumsun'"),
            (deep.as_str(), "too deep"),
        ] {
            let error = parse(text, &names).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(needle), "{text}: {error}");
        }
    }
}
