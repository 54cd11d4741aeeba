//! Writing: the coordinator begins objects of the plan while memory lasts. A route encodes their chunks, which become objects.

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
