//! Operations on elements: their names, and the types of their operands and results.

use cuzarr_device::{DType, DTypeKind};

use super::promote::{float_of, promote, real_of, without_arithmetic};
use cuzarr::{Error, ErrorKind, Result};

/// The element types that an operation accepts, and the type that it gives. Operands are promoted to a common type
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Accepts any numbers, including bools. For bools, addition means "or" and multiplication means "and".
    Number,
    /// Accepts any numbers except bools.
    Signed,
    /// Accepts any numbers, and converts bools to int8.
    Wide,
    /// Accepts real numbers, and converts bools to int8.
    WideReal,
    /// Accepts any numbers, and converts integers and bools to float64.
    Quotient,
    /// Accepts real numbers, and converts integers and bools to floats.
    Real,
    /// Accepts real numbers, and gives numbers of the same type, even for integers and bools.
    Rounding,
    /// Accepts real numbers, including bools.
    Ordered,
    /// Accepts two real numbers, and gives a bool.
    Comparison,
    /// Accepts any two numbers, and gives a bool.
    Equality,
    /// Accepts any number, and gives a bool.
    Test,
    /// Accepts real numbers, and gives a bool.
    SignTest,
    /// Accepts truth values; numbers are converted to bool.
    Logic,
    /// Accepts integers and bools.
    Bits,
    /// Accepts integers, and converts bools to int8.
    Shift,
    /// Accepts any number; for a complex one, gives a real one.
    Part,
    /// Accepts a condition and two numbers.
    Choice,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:literal $rule:ident;)*) => {
        /// An operation on elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Op {
            $($(#[$doc])* $variant,)*
        }

        impl Op {
            /// All operations, in the order of their declaration.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// NumPy's name of the operation.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// Number of operands that the operation takes.
            pub const fn arity(self) -> usize {
                match self { $(Op::$variant => $arity,)* }
            }

            const fn rule(self) -> Rule {
                match self { $(Op::$variant => Rule::$rule,)* }
            }
        }
    };
}

operations! {
    /// Sum.
    Add "add" 2 Number;
    /// Difference.
    Subtract "subtract" 2 Signed;
    /// Product.
    Multiply "multiply" 2 Number;
    /// Quotient.
    Divide "divide" 2 Quotient;
    /// Quotient, rounded down. Integers divided by 0 give 0.
    FloorDivide "floor_divide" 2 WideReal;
    /// Remainder of a division whose quotient is rounded down. It has the divisor's sign.
    Remainder "remainder" 2 WideReal;
    /// Remainder of a division whose quotient is rounded towards 0. It has the dividend's sign.
    Fmod "fmod" 2 WideReal;
    /// Power.
    Power "power" 2 WideReal;
    /// The smaller operand; NaN if one is NaN.
    Minimum "minimum" 2 Ordered;
    /// The larger operand; NaN if one is NaN.
    Maximum "maximum" 2 Ordered;
    /// The smaller operand, ignoring NaN. If one is NaN, the other.
    Fmin "fmin" 2 Ordered;
    /// The larger operand, ignoring NaN. If one is NaN, the other.
    Fmax "fmax" 2 Ordered;
    /// The angle of the point (x, y). The first operand is y.
    Arctan2 "arctan2" 2 Real;
    /// The hypotenuse of a right triangle whose legs are the operands.
    Hypot "hypot" 2 Real;
    /// The first operand with the sign of the second.
    Copysign "copysign" 2 Real;
    /// Whether the operands are equal.
    Equal "equal" 2 Equality;
    /// Whether the operands differ.
    NotEqual "not_equal" 2 Equality;
    /// Whether the first operand is less than the second.
    Less "less" 2 Comparison;
    /// Whether the first operand is less than or equal to the second.
    LessEqual "less_equal" 2 Comparison;
    /// Whether the first operand is greater than the second.
    Greater "greater" 2 Comparison;
    /// Whether the first operand is greater than or equal to the second.
    GreaterEqual "greater_equal" 2 Comparison;
    /// Whether both operands are true.
    LogicalAnd "logical_and" 2 Logic;
    /// Whether at least one operand is true.
    LogicalOr "logical_or" 2 Logic;
    /// Whether exactly one operand is true.
    LogicalXor "logical_xor" 2 Logic;
    /// Bits that are set in both operands.
    BitwiseAnd "bitwise_and" 2 Bits;
    /// Bits that are set in at least one operand.
    BitwiseOr "bitwise_or" 2 Bits;
    /// Bits that are set in exactly one operand.
    BitwiseXor "bitwise_xor" 2 Bits;
    /// Bits shifted left; 0 for shifts beyond the type's width.
    LeftShift "left_shift" 2 Shift;
    /// Bits shifted right; only the sign remains for shifts beyond the type's width.
    RightShift "right_shift" 2 Shift;
    /// The second operand where the first is true, else the third.
    Where "where" 3 Choice;
    /// The number with the opposite sign.
    Negative "negative" 1 Signed;
    /// The absolute value.
    Absolute "absolute" 1 Part;
    /// -1, 0 or 1; NaN for NaN.
    Sign "sign" 1 Signed;
    /// The number times itself.
    Square "square" 1 Wide;
    /// The complex conjugate.
    Conjugate "conjugate" 1 Wide;
    /// The real part.
    RealPart "real" 1 Part;
    /// The imaginary part.
    ImaginaryPart "imag" 1 Part;
    /// Square root.
    Sqrt "sqrt" 1 Real;
    /// Cube root.
    Cbrt "cbrt" 1 Real;
    /// eˣ.
    Exp "exp" 1 Real;
    /// 2ˣ.
    Exp2 "exp2" 1 Real;
    /// eˣ - 1.
    Expm1 "expm1" 1 Real;
    /// Natural logarithm.
    Log "log" 1 Real;
    /// Logarithm to the base 2.
    Log2 "log2" 1 Real;
    /// Logarithm to the base 10.
    Log10 "log10" 1 Real;
    /// The natural logarithm of 1 + x.
    Log1p "log1p" 1 Real;
    /// Sine.
    Sin "sin" 1 Real;
    /// Cosine.
    Cos "cos" 1 Real;
    /// Tangent.
    Tan "tan" 1 Real;
    /// Inverse sine.
    Arcsin "arcsin" 1 Real;
    /// Inverse cosine.
    Arccos "arccos" 1 Real;
    /// Inverse tangent.
    Arctan "arctan" 1 Real;
    /// Hyperbolic sine.
    Sinh "sinh" 1 Real;
    /// Hyperbolic cosine.
    Cosh "cosh" 1 Real;
    /// Hyperbolic tangent.
    Tanh "tanh" 1 Real;
    /// Inverse hyperbolic sine.
    Arcsinh "arcsinh" 1 Real;
    /// Inverse hyperbolic cosine.
    Arccosh "arccosh" 1 Real;
    /// Inverse hyperbolic tangent.
    Arctanh "arctanh" 1 Real;
    /// The number, rounded down.
    Floor "floor" 1 Rounding;
    /// The number, rounded up.
    Ceil "ceil" 1 Rounding;
    /// The number, rounded towards 0.
    Trunc "trunc" 1 Rounding;
    /// The number, rounded to the nearest integer, ties to even.
    Rint "rint" 1 Real;
    /// Whether the number is NaN.
    IsNan "isnan" 1 Test;
    /// Whether the number is infinite.
    IsInf "isinf" 1 Test;
    /// Whether the number is neither infinite nor NaN.
    IsFinite "isfinite" 1 Test;
    /// Whether the sign bit is set.
    SignBit "signbit" 1 SignTest;
    /// Whether the operand is false.
    LogicalNot "logical_not" 1 Logic;
    /// The number with every bit inverted.
    Invert "invert" 1 Bits;
}

/// The types of an operation's operands and of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The type that each operand is converted to.
    pub(crate) inputs: Vec<DType>,
    /// The type of the result.
    pub(crate) output: DType,
}

impl Op {
    /// Returns the operation with a NumPy name. Short names of NumPy and the array API (`asin`, `pow`) are known too.
    pub fn named(name: &str) -> Option<Op> {
        let name = match name {
            "asin" => "arcsin",
            "acos" => "arccos",
            "atan" => "arctan",
            "atan2" => "arctan2",
            "asinh" => "arcsinh",
            "acosh" => "arccosh",
            "atanh" => "arctanh",
            "pow" => "power",
            "true_divide" => "divide",
            "mod" => "remainder",
            "abs" => "absolute",
            "conj" => "conjugate",
            "bitwise_invert" | "bitwise_not" => "invert",
            "bitwise_left_shift" => "left_shift",
            "bitwise_right_shift" => "right_shift",
            other => other,
        };
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Whether the operation only copies elements of an operand, or a part of each, without computing. Such elements
    /// keep all bits, those of NaNs too.
    pub(crate) fn moves(self) -> bool {
        matches!(self, Op::Where | Op::RealPart | Op::ImaginaryPart)
    }

    /// Whether the operation compares two operands. Then one operand may be a number that the other's type cannot
    /// hold.
    pub(crate) fn is_comparison(self) -> bool {
        matches!(self.rule(), Rule::Comparison | Rule::Equality)
    }

    /// Returns the types of operands and result, if the operands were promoted to `dtype` together. `separate` are the
    /// operands' own types; `None` for numbers without a type.
    ///
    /// # Errors
    /// `DTypeMismatch` when the operation is not defined for these types.
    pub(crate) fn signature(self, dtype: DType, separate: &[Option<DType>]) -> Result<Signature> {
        let kind = dtype.kind();
        let (is_bool, is_complex) = (kind == DTypeKind::Bool, kind == DTypeKind::Complex);
        let is_exact = matches!(kind, DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt);
        if kind == DTypeKind::Opaque {
            return Err(without_arithmetic(dtype));
        }
        let refuse = || {
            let message = format!("{} is not defined for elements of {dtype}", self.name());
            let error = Error::new(ErrorKind::DTypeMismatch, message);
            Err(match (is_complex, self.rule()) {
                (true, _) => {
                    error.with_hint("use CuPy or NumPy for functions of complex numbers, or take real and imag")
                }
                (_, Rule::Signed) => error.with_hint("use logical_not, logical_xor, or convert with astype('int8')"),
                _ => error.with_hint("convert with astype first"),
            })
        };
        let wide = if is_bool { DType::INT8 } else { dtype };
        let same = |input: DType, output: DType| Ok(Signature { inputs: vec![input; self.arity()], output });
        match self.rule() {
            Rule::Signed if is_bool || (is_complex && self == Op::Sign) => refuse(),
            Rule::WideReal | Rule::Real | Rule::Rounding | Rule::Ordered | Rule::Comparison | Rule::SignTest
                if is_complex =>
            {
                refuse()
            }
            Rule::Bits | Rule::Shift if !is_exact => refuse(),
            Rule::Number | Rule::Signed | Rule::Rounding | Rule::Ordered | Rule::Bits => same(dtype, dtype),
            Rule::Wide | Rule::WideReal | Rule::Shift => same(wide, wide),
            Rule::Quotient if is_exact => same(DType::FLOAT64, DType::FLOAT64),
            Rule::Quotient => same(dtype, dtype),
            // Each operand becomes a float separately: int8 and uint8 each fit float16, though together they are int16.
            Rule::Real => {
                let own = separate.iter().map(|own| own.unwrap_or(dtype));
                // If one operand is bfloat16, numbers of 8 bits, which fit it, become bfloat16 too.
                let has_bfloat = own.clone().any(|own| own == DType::BFLOAT16);
                let float = |own: DType| match float_of(own) {
                    DType::FLOAT16 if has_bfloat && own != DType::FLOAT16 => DType::BFLOAT16,
                    float => float,
                };
                let float = promote_all(own.map(float))?;
                same(float, float)
            }
            Rule::Part => same(dtype, real_of(dtype)),
            Rule::Test => same(dtype, DType::BOOL),
            Rule::SignTest => same(float_of(dtype), DType::BOOL),
            Rule::Logic => same(DType::BOOL, DType::BOOL),
            Rule::Comparison | Rule::Equality => {
                // Signed and unsigned 8-byte integers are compared exactly, since float64 would lose digits.
                let exact = |dtype: Option<DType>| {
                    dtype.is_some_and(|dtype| matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt))
                };
                if dtype == DType::FLOAT64 && separate.iter().all(|&dtype| exact(dtype)) {
                    let widest = |&dtype: &Option<DType>| match dtype.map(DType::kind) {
                        Some(DTypeKind::UInt) => DType::UINT64,
                        _ => DType::INT64,
                    };
                    return Ok(Signature { inputs: separate.iter().map(widest).collect(), output: DType::BOOL });
                }
                same(dtype, DType::BOOL)
            }
            Rule::Choice => Ok(Signature { inputs: vec![DType::BOOL, dtype, dtype], output: dtype }),
        }
    }

    /// Returns the index of the first operand that is promoted together with the later ones. Only the condition of
    /// `where` is not.
    pub(crate) fn promoted_from(self) -> usize {
        usize::from(self == Op::Where)
    }
}

/// Returns the type that elements of all these types are promoted to.
///
/// # Errors
/// Those of [`promote`]; `InvalidArgument` when there are no operands.
pub(crate) fn promote_all(dtypes: impl IntoIterator<Item = DType>) -> Result<DType> {
    let mut dtypes = dtypes.into_iter();
    let first = dtypes.next().ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "got no operands"))?;
    dtypes.try_fold(first, promote)
}
