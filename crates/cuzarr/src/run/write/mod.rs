//! Writes: the coordinator begins objects of the plan while there is memory. A route encodes their chunks, and these
//! become objects.

pub(crate) mod coordinator;
pub(crate) mod device;
mod downloads;
pub(crate) mod flow;
pub(crate) mod gathering;
pub(crate) mod object;
pub(crate) mod parts;
pub(crate) mod place;
pub(crate) mod route;
pub(crate) mod writing;
