//! Reads: a plan's batches are launched, executed by their route, and closed when they come back.

pub(crate) mod cached;
pub(crate) mod call;
pub(crate) mod coordinator;
pub(crate) mod destination;
pub(crate) mod device;
pub(crate) mod fetch;
pub(crate) mod in_flight;
pub(crate) mod indexes;
pub(crate) mod out;
pub(crate) mod route;
pub(crate) mod stored;
