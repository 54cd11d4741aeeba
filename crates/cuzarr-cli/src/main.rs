//! The `cuzarr` command.

fn main() {}
