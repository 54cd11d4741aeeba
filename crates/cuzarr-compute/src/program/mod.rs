//! Programs: expressions turned into series of steps, which run on blocks of elements in memory, on the CPU and on
//! GPUs.

mod cpu;
pub(crate) mod cuda;
mod layout;
mod processor;
mod source;
mod steps;

pub(crate) use self::layout::Joint;
pub(crate) use self::processor::Processor;
pub(crate) use self::source::memory_type;
pub(crate) use self::steps::{Input, Program, lower};
