//! Expressions: descriptions of computations. Nothing is computed here.

mod decoded;
mod expr;
mod op;
mod promote;
mod view;

pub use self::expr::{Expr, Operand, Parts};
pub(crate) use self::expr::{Kind, Node, Summary, axes_argument, broadcast, negative_power};
pub use self::op::Op;
pub use self::promote::Weak;
pub(crate) use self::promote::{is_half, lane, promote, without_arithmetic};
pub(crate) use self::view::View;
