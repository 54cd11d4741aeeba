//! Resources that calls share: worker threads, memory, streams, and locks on ranges of stored objects.

pub(crate) mod budget;
pub(crate) mod countdown;
pub(crate) mod pool;
pub(crate) mod range_lock;
pub(crate) mod scratch;
pub(crate) mod streams;
pub(crate) mod walk;
