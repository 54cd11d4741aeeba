//! Writing: objects of the plan are begun while memory lasts; their chunks are encoded by a route and become objects.

pub(crate) mod coordinator;
pub(crate) mod device;
pub(crate) mod gathering;
pub(crate) mod object;
pub(crate) mod route;
