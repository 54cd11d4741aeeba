//! Options of computations.

use std::sync::Arc;

use cuzarr_device::Device;

use crate::progress::Tell;
use cuzarr::CancellationToken;
use cuzarr::node::ArrayOptions;
use cuzarr::store::Store;

/// A function that gives another view of a store, such as one that counts.
pub type Wrap<'a> = &'a (dyn Fn(&Arc<dyn Store>) -> Arc<dyn Store> + Sync);

/// Options for computing an expression.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ComputeOptions<'a> {
    /// The device of the work and of results.
    pub device: Device,
    /// Most bytes in flight outside of results, per kind of memory.
    pub memory_limit_bytes: u64,
    /// How many threads work on the CPU.
    pub threads: usize,
    /// Stops the work. Without it, the tokens of the arrays do that are read or written.
    pub cancellation: Option<&'a CancellationToken>,
    /// The view that stores are read and written through.
    pub wrap: Option<Wrap<'a>>,
    /// The function that is called for the regions that are read. A reduction in an expression reports its own regions.
    pub progress: Option<Tell<'a>>,
}

impl<'a> ComputeOptions<'a> {
    cuzarr::setters! {
        with_device(device: Device) = device;
        with_memory_limit_bytes(memory_limit_bytes: u64) = memory_limit_bytes;
        with_threads(threads: usize) = threads;
        with_cancellation(cancellation: &'a CancellationToken) = Some(cancellation);
        with_wrap(wrap: Wrap<'a>) = Some(wrap);
        with_progress(progress: Tell<'a>) = Some(progress);
    }
}

impl Default for ComputeOptions<'_> {
    fn default() -> Self {
        let options = ArrayOptions::default();
        ComputeOptions {
            device: options.device,
            memory_limit_bytes: options.memory_limit_bytes,
            threads: options.threads,
            cancellation: None,
            wrap: None,
            progress: None,
        }
    }
}
