//! Any text as an expression of `cuzarr eval`: nothing may panic, and what was parsed has a text.

use cuzarr::{DType, Device, NdBuffer, Order};
use cuzarr_compute::{Expr, parse};

/// Parses `bytes` with one array `u`. Returns whether it is an expression.
pub fn check(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
    let array =
        NdBuffer::from_host(Device::Cpu, DType::INT32, &[2], Order::C, &[0; 8]).expect("eight bytes are two elements");
    let array = Expr::buffer(array).expect("an array in memory is an operand");
    let parsed = parse(text, &|name| (name == "u").then(|| array.clone()));
    usize::from(parsed.is_ok_and(|parsed| !parsed.to_string().is_empty()))
}
