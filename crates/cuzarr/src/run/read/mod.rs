//! Executes the plans of reads: each batch of chunks is fetched and decoded on its route, and placed in the results.

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
