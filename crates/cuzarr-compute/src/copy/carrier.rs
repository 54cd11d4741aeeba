//! Carriers: code that copies the regions of an array for a copy, on this machine or elsewhere.

use std::sync::Arc;

use cuzarr_device::internal::pool::within;

use super::pass::Pass;
use cuzarr::Result;
use cuzarr::node::ArrayOptions;
use cuzarr::plan::Region;
use cuzarr::store::Store;

/// The boxes of the target that a pass of a copy has not copied yet, in order. The number beside a box, if any, is the
/// number of finished regions of the pass once that box is copied.
pub type Rest<'a> = dyn Iterator<Item = Result<(Region, Option<u64>)>> + 'a;

/// Code that carries out the passes of a copy: in this process, or on other machines. The copy decides what is copied,
/// and records its progress. The carrier decides where the work is done. Every box of a pass consists of whole stored
/// objects. So boxes may be copied at the same time, and more than once.
pub trait Carrier {
    /// Called before anything is written or deleted: refuses options or a target's store that this carrier cannot work
    /// with.
    ///
    /// # Errors
    /// Those of the device, if this process uses it.
    fn prepare(&self, options: &ArrayOptions, target: &Arc<dyn Store>) -> Result<()>;

    /// Copies the boxes of one pass of a copy that were not copied yet. Calls `done` for each box in order, once it and
    /// all boxes before it are copied.
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

/// The carrier that copies all regions in this process. It reads the next box while it writes the current one. With an
/// accelerator, that device does the work for arrays in host memory.
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
        let pass = pass.on(pass.source().options().working_device(pass.size_bytes())?);
        let _within = within(pass.source().device(), memory_limit_bytes);
        pass.run(rest, done)
    }
}
