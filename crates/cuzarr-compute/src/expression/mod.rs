//! Expressions: descriptions of computations. Nothing is computed here.

mod expr;
mod flat;
mod join;
mod op;
mod pick;
mod promote;
mod running;
mod select;
mod view;

pub use self::expr::{Expr, Operand, Parts};
pub(crate) use self::expr::{Flat, Joined, Kind, Node, Running, Summary, axes_argument, broadcast, negative_power};
pub use self::op::Op;
pub use self::pick::{Along, Pick, PickedDim};
pub use self::promote::Weak;
pub(crate) use self::promote::{is_half, lane, promote, without_arithmetic};
pub(crate) use self::view::View;
