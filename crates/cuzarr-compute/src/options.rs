//! Options for computing an expression, such as the device and the memory limit.

use std::sync::Arc;

use cuzarr_device::Device;

use crate::progress::Tell;
use cuzarr::CancellationToken;
use cuzarr::node::ArrayOptions;
use cuzarr::store::Store;

/// A function that wraps a store in another one, such as one that counts requests.
pub type Wrap<'a> = &'a (dyn Fn(&Arc<dyn Store>) -> Arc<dyn Store> + Sync);

/// Options for computing an expression.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ComputeOptions<'a> {
    /// The device that computes and holds the results.
    pub device: Device,
    /// Limit for the memory that the work takes besides its results, in bytes, for each kind of memory (host and
    /// device).
    pub memory_limit_bytes: u64,
    /// Number of CPU threads that compute.
    pub threads: usize,
    /// A token with which another thread can stop the work. Without it, the tokens of the arrays that are read or
    /// written can stop it.
    pub cancellation: Option<&'a CancellationToken>,
    /// A function that wraps each store before it is read or written.
    pub wrap: Option<Wrap<'a>>,
    /// A function that is called after each region that was read. A reduction in an expression reports its own regions.
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
