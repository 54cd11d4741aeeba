//! Carriers: they copy the regions of a pass, on this machine or elsewhere.

use std::sync::Arc;

use cuzarr_device::internal::pool::within;

use super::pass::Pass;
use cuzarr::Result;
use cuzarr::node::ArrayOptions;
use cuzarr::plan::Region;
use cuzarr::store::Store;

/// The boxes that are still to be copied, in order. A number tells how many regions of the pass are finished after a box.
pub type Rest<'a> = dyn Iterator<Item = Result<(Region, Option<u64>)>> + 'a;

/// Copies the regions of passes. A copy decides what is copied, and notes how far it is; its carrier decides where the work is done.
/// Every box of a pass is made of whole stored objects, so boxes may be copied at the same time, and again.
pub trait Carrier {
    /// Refuses arrays with these options, or a target's store, before anything is written or deleted.
    ///
    /// # Errors
    /// Those of the device, where this process uses it.
    fn prepare(&self, options: &ArrayOptions, target: &Arc<dyn Store>) -> Result<()>;

    /// Copies boxes of a pass, and calls `done` for each of them, in their order, when it and all before it are copied.
    ///
    /// # Errors
    /// The first failure.
    fn carry(
        &self,
        pass: &Pass,
        memory_limit_bytes: u64,
        rest: &mut Rest<'_>,
        done: &mut dyn FnMut(&Region, Option<u64>) -> Result<()>,
    ) -> Result<()>;
}

/// The carrier that works in this process. It reads the next box while one is written.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Carrier for Here {
    fn prepare(&self, options: &ArrayOptions, _target: &Arc<dyn Store>) -> Result<()> {
        Ok(options.device.initialize()?)
    }

    fn carry(
        &self,
        pass: &Pass,
        memory_limit_bytes: u64,
        rest: &mut Rest<'_>,
        done: &mut dyn FnMut(&Region, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        let _within = within(pass.source().device(), memory_limit_bytes);
        pass.run(rest, done)
    }
}
