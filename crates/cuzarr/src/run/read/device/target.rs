//! What the batches of one read into device memory share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cuzarr_device::Device;

use crate::codec::Program;
use crate::run::context::Context;

/// The state that all batches of a read into device memory share.
pub(crate) struct Target {
    pub(crate) call: Arc<Context>,
    pub(crate) program: Arc<Program>,
    pub(crate) device: Device,
    pub(crate) read_missing: bool,
    /// Cleared when kernels knew no frame of a batch. Then the host decodes the other batches too.
    pub(crate) kernels_help: AtomicBool,
}
