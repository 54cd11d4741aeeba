//! Executes the plans of writes. The coordinator starts work on the next object of the plan whenever there is memory
//! for it. A route encodes the chunks of the object, which is then stored.

pub(crate) mod coordinator;
pub(crate) mod device;
mod downloads;
mod elements;
pub(crate) mod encoded;
mod event;
pub(crate) mod flow;
pub(crate) mod gathering;
pub(crate) mod object;
pub(crate) mod parts;
pub(crate) mod place;
pub(crate) mod route;
pub(crate) mod writing;
