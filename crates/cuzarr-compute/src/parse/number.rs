//! Arithmetic of numbers without arrays, as in Python: integers stay integers, and operations that Python refuses are
//! errors.

use crate::expression::{Op, Weak};

/// The result of an operator on plain numbers; `None` if that is not a number. An error is the text of a message.
type Known = Result<Option<Weak>, &'static str>;

const NO_DIVISION: &str = "division by zero";
const TOO_LARGE: &str = "a whole number of more than 128 bits";

/// Applies an operator to one plain number.
pub(super) fn of_one(op: Op, value: Weak) -> Known {
    Ok(match (op, value) {
        (Op::Negative, Weak::Int(value)) => Some(Weak::Int(value.checked_neg().ok_or(TOO_LARGE)?)),
        (Op::Negative, Weak::Float(value)) => Some(Weak::Float(-value)),
        (Op::Invert, Weak::Int(value)) => Some(Weak::Int(!value)),
        _ => None,
    })
}

/// Applies an operator to two plain numbers.
pub(super) fn of_two(op: Op, one: Weak, other: Weak) -> Known {
    if let (Weak::Int(one), Weak::Int(other)) = (one, other)
        && let Some(whole) = of_integers(op, one, other)?
    {
        return Ok(Some(Weak::Int(whole)));
    }
    let float = |value: Weak| match value {
        Weak::Int(value) => Some(value as f64),
        Weak::Float(value) => Some(value),
        Weak::Complex(..) => None,
    };
    let (Some(one), Some(other)) = (float(one), float(other)) else { return Ok(None) };
    if matches!(op, Op::Divide | Op::FloorDivide | Op::Remainder) && other == 0.0
        || op == Op::Power && one == 0.0 && other < 0.0
    {
        return Err(NO_DIVISION);
    }
    Ok(Some(Weak::Float(match op {
        Op::Add => one + other,
        Op::Subtract => one - other,
        Op::Multiply => one * other,
        Op::Divide => one / other,
        Op::FloorDivide => quotient(one, other).0,
        Op::Remainder => quotient(one, other).1,
        Op::Power => one.powf(other),
        _ => return Ok(None),
    })))
}

/// Applies an operator to two integers; `None` if the result is a float.
fn of_integers(op: Op, one: i128, other: i128) -> Result<Option<i128>, &'static str> {
    let result = match op {
        Op::Add => one.checked_add(other),
        Op::Subtract => one.checked_sub(other),
        Op::Multiply => one.checked_mul(other),
        Op::FloorDivide | Op::Remainder if other == 0 => return Err(NO_DIVISION),
        Op::FloorDivide => one.checked_div_euclid(other).map(|quotient| {
            // Rounds down. The Euclidean quotient leaves a remainder of at least 0 instead.
            if other < 0 && one.checked_rem_euclid(other).is_some_and(|rest| rest != 0) {
                quotient - 1
            } else {
                quotient
            }
        }),
        Op::Remainder => {
            one.checked_rem_euclid(other).map(|rest| if other < 0 && rest != 0 { rest + other } else { rest })
        }
        Op::Power if other >= 0 => match (one, u32::try_from(other)) {
            (0 | 1, _) => Some(if other == 0 { 1 } else { one }),
            (-1, _) => Some(if other % 2 == 0 { 1 } else { -1 }),
            (_, power) => power.ok().and_then(|power| one.checked_pow(power)),
        },
        Op::BitwiseAnd => Some(one & other),
        Op::BitwiseOr => Some(one | other),
        Op::BitwiseXor => Some(one ^ other),
        Op::LeftShift | Op::RightShift if other < 0 => return Err("a negative shift count"),
        Op::LeftShift if one == 0 => Some(0),
        Op::LeftShift => u32::try_from(other).ok().and_then(|bits| 2i128.checked_pow(bits)?.checked_mul(one)),
        Op::RightShift => Some(one >> other.min(127)),
        _ => return Ok(None),
    };
    result.map(Some).ok_or(TOO_LARGE)
}

/// Returns the quotient of floats, rounded down, and the remainder, which has the divisor's sign.
fn quotient(one: f64, other: f64) -> (f64, f64) {
    let rest = one % other;
    let rest = match rest {
        _ if rest == 0.0 => 0f64.copysign(other),
        _ if (rest < 0.0) != (other < 0.0) => rest + other,
        _ => rest,
    };
    let exact = (one - rest) / other;
    let down = exact.floor();
    let whole = if exact - down > 0.5 { down + 1.0 } else { down };
    (if whole == 0.0 { 0f64.copysign(one / other) } else { whole }, rest)
}
