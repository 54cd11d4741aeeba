//! Operations on elements: their names, and the types of their operands and results.

use cuzarr_device::{DType, DTypeKind};

use super::promote::{float_of, promote, real_of, without_arithmetic};
use cuzarr::{Error, ErrorKind, Result};

/// The element types that an operation such as `add` accepts, and the element type of its result. Operands are promoted
/// to a common type first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The operation accepts any numbers, including bools. For bools, addition means "or" and multiplication means
    /// "and".
    Number,
    /// The operation accepts any numbers except bools; `sign` also refuses complex ones.
    Signed,
    /// The operation accepts any numbers, and converts bools to int8.
    Wide,
    /// The operation accepts real numbers, and converts bools to int8.
    WideReal,
    /// The operation accepts any numbers, and converts integers and bools to float64.
    Quotient,
    /// The operation accepts real numbers, and converts integers and bools to floats.
    Real,
    /// The operation accepts real numbers, and gives numbers of the same type, even for integers and bools.
    Rounding,
    /// The operation accepts real numbers, including bools.
    Ordered,
    /// The operation accepts two real numbers, and gives a bool.
    Comparison,
    /// The operation accepts any two numbers, and gives a bool.
    Equality,
    /// The operation accepts one number of any type, and gives a bool.
    Test,
    /// The operation accepts real numbers, and gives a bool.
    SignTest,
    /// The operation accepts truth values, and converts numbers to bool.
    Logic,
    /// The operation accepts integers and bools.
    Bits,
    /// The operation accepts integers, and converts bools to int8.
    Shift,
    /// The operation accepts any number, and gives a real one, even for a complex one.
    Part,
    /// The operation accepts a condition and two numbers, one of which it chooses.
    Choice,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:literal $rule:ident;)*) => {
        /// An operation on elements, such as an addition or a comparison.
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
    /// The sum of the two operands.
    Add "add" 2 Number;
    /// The first operand minus the second.
    Subtract "subtract" 2 Signed;
    /// The product of the two operands.
    Multiply "multiply" 2 Number;
    /// The first operand divided by the second.
    Divide "divide" 2 Quotient;
    /// The first operand divided by the second, rounded down. Integers divided by 0 give 0.
    FloorDivide "floor_divide" 2 WideReal;
    /// The remainder of a division of the first operand by the second, whose quotient is rounded down. It has the
    /// divisor's sign.
    Remainder "remainder" 2 WideReal;
    /// The remainder of a division of the first operand by the second, whose quotient is rounded towards 0. It has the
    /// dividend's sign.
    Fmod "fmod" 2 WideReal;
    /// The first operand, raised to the power of the second.
    Power "power" 2 WideReal;
    /// The smaller operand; NaN if one is NaN.
    Minimum "minimum" 2 Ordered;
    /// The larger operand; NaN if one is NaN.
    Maximum "maximum" 2 Ordered;
    /// The smaller operand, ignoring NaN. If one is NaN, the other.
    Fmin "fmin" 2 Ordered;
    /// The larger operand, ignoring NaN. If one is NaN, the other.
    Fmax "fmax" 2 Ordered;
    /// The angle of the point (x, y), where y is the first operand and x the second. The first operand is y.
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
    /// The bits of the first operand, shifted left by the second; 0 for shifts beyond the type's width.
    LeftShift "left_shift" 2 Shift;
    /// The bits of the first operand, shifted right by the second; only the sign remains for shifts beyond the type's
    /// width.
    RightShift "right_shift" 2 Shift;
    /// The second operand where the first is true, else the third.
    Where "where" 3 Choice;
    /// The number with the opposite sign.
    Negative "negative" 1 Signed;
    /// The absolute value of the operand.
    Absolute "absolute" 1 Part;
    /// The sign of the operand: -1, 0 or 1; NaN for NaN.
    Sign "sign" 1 Signed;
    /// The operand times itself.
    Square "square" 1 Wide;
    /// The complex conjugate of the operand.
    Conjugate "conjugate" 1 Wide;
    /// The real part of a complex operand; any other operand itself.
    RealPart "real" 1 Part;
    /// The imaginary part of a complex operand; 0 for any other operand.
    ImaginaryPart "imag" 1 Part;
    /// The square root of the operand.
    Sqrt "sqrt" 1 Real;
    /// The cube root of the operand.
    Cbrt "cbrt" 1 Real;
    /// eˣ, where x is the operand.
    Exp "exp" 1 Real;
    /// 2ˣ, where x is the operand.
    Exp2 "exp2" 1 Real;
    /// eˣ - 1, where x is the operand.
    Expm1 "expm1" 1 Real;
    /// The natural logarithm of the operand.
    Log "log" 1 Real;
    /// The logarithm of the operand to the base 2.
    Log2 "log2" 1 Real;
    /// The logarithm of the operand to the base 10.
    Log10 "log10" 1 Real;
    /// The natural logarithm of 1 + x, where x is the operand.
    Log1p "log1p" 1 Real;
    /// The sine of the operand, an angle in radians.
    Sin "sin" 1 Real;
    /// The cosine of the operand, an angle in radians.
    Cos "cos" 1 Real;
    /// The tangent of the operand, an angle in radians.
    Tan "tan" 1 Real;
    /// The inverse sine of the operand, in radians.
    Arcsin "arcsin" 1 Real;
    /// The inverse cosine of the operand, in radians.
    Arccos "arccos" 1 Real;
    /// The inverse tangent of the operand, in radians.
    Arctan "arctan" 1 Real;
    /// The hyperbolic sine of the operand.
    Sinh "sinh" 1 Real;
    /// The hyperbolic cosine of the operand.
    Cosh "cosh" 1 Real;
    /// The hyperbolic tangent of the operand.
    Tanh "tanh" 1 Real;
    /// The inverse hyperbolic sine of the operand.
    Arcsinh "arcsinh" 1 Real;
    /// The inverse hyperbolic cosine of the operand.
    Arccosh "arccosh" 1 Real;
    /// The inverse hyperbolic tangent of the operand.
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
    /// Whether the sign bit of the number is set.
    SignBit "signbit" 1 SignTest;
    /// Whether the operand is false.
    LogicalNot "logical_not" 1 Logic;
    /// The number with every bit inverted.
    Invert "invert" 1 Bits;
}

/// The types of an operation's operands and of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The type to which each operand is converted before the operation.
    pub(crate) inputs: Vec<DType>,
    /// The type of the operation's result.
    pub(crate) output: DType,
}

impl Op {
    /// Returns the operation that has the name `name` in NumPy. Short names of NumPy and the array API (`asin`, `pow`)
    /// are known too.
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

    /// Returns the types of this operation's operands and result, if the operands were promoted to `dtype` together.
    /// `separate` are the operands' own types; `None` for numbers without a type.
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
