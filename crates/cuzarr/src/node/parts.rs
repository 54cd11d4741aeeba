//! Arrays with a rectilinear grid: their chunks of one shape are read and written like an array with a regular grid.

use std::sync::Arc;

use cuzarr_device::{DType, Device};

use super::array::{Array, PartAccess};
use crate::codec::Chain;
use crate::error::Result;
use crate::meta::RectilinearGrid;
use crate::plan::{ChunkOrder, Explanation, GridPart, KeyOf, Selection, parts_touched};
use crate::run::{Access, ArrayPart, Engine};

/// Most bound chains that an array keeps.
const KEPT_PARTS: usize = 64;

impl Array {
    /// The rectilinear grid, if the array has one.
    pub(super) fn rectilinear(&self) -> Option<&RectilinearGrid> {
        self.metadata().chunk_grid().rectilinear()
    }

    /// The parts of a selection, each bound to a device, with elements converted to `dtype`.
    ///
    /// # Errors
    /// `SelectionInvalid`; what the codecs report.
    pub(super) fn parts(
        &self,
        grid: &RectilinearGrid,
        selection: &Selection,
        device: Device,
        dtype: Option<DType>,
        is_write: bool,
    ) -> Result<Vec<ArrayPart>> {
        let mut parts = Vec::new();
        for part in parts_touched(grid, self.shape(), selection)? {
            let access = self.part_access(&part, device)?;
            let access = match dtype {
                Some(dtype) if access.dtype().is_some_and(|own| own != dtype) => access.reading_as(dtype)?,
                _ => access,
            };
            let Some(order) = ChunkOrder::of_part(selection, &part, access.source(), is_write)? else { continue };
            parts.push(ArrayPart { access: Arc::new(access), order });
        }
        Ok(parts)
    }

    /// Access to the chunks of one shape.
    fn part_access(&self, part: &GridPart, device: Device) -> Result<Access> {
        let bound = self.bound_to(&part.chunk_shape, device)?;
        let (array, part) = (Arc::clone(bound.source()), part.clone());
        let shape = part.shape();
        let key: KeyOf = Arc::new(move |own| (array.key)(&part.chunk(own)));
        Ok(bound.with_chunks(shape, key))
    }

    /// The chain for chunks of one shape, bound to a device.
    fn bound_to(&self, chunk_shape: &[u64], device: Device) -> Result<Arc<Access>> {
        let chain = self.chain()?;
        let is_ours = |part: &PartAccess| Arc::ptr_eq(&part.of, chain);
        let state = self.io.state();
        let is_wanted =
            |part: &&PartAccess| is_ours(part) && part.access.device() == device && part.chunk_shape == chunk_shape;
        if let Some(part) = state.parts.iter().find(is_wanted) {
            return Ok(Arc::clone(&part.access));
        }
        drop(state);
        let own = Arc::new(Chain::for_chunks(self.metadata(), chunk_shape.to_vec())?);
        let access = Arc::new(Access::new(self.metadata(), self.path(), own, device)?);
        let part = PartAccess { of: Arc::clone(chain), chunk_shape: chunk_shape.to_vec(), access: Arc::clone(&access) };
        let mut state = self.io.state();
        state.parts.retain(is_ours);
        if state.parts.len() >= KEPT_PARTS {
            state.parts.remove(0);
        }
        state.parts.push(part);
        Ok(access)
    }

    /// Explains a read of a rectilinear array. Codecs are placed as in the part with the most chunks, and counts are added.
    ///
    /// # Errors
    /// Those of [`Array::explain`].
    pub(super) fn explain_parts(&self, grid: &RectilinearGrid, selection: &Selection) -> Result<Explanation> {
        let parts = self.parts(grid, selection, self.device(), None, false)?;
        Engine::explain_parts(&parts, &*self.access(self.device())?, self.store(), selection, self.options())
    }

    /// Explains a write to a rectilinear array, as [`Array::explain_parts`] does for a read.
    ///
    /// # Errors
    /// Those of [`Array::explain_write`].
    pub(super) fn explain_writing_parts(&self, grid: &RectilinearGrid, selection: &Selection) -> Result<Explanation> {
        let parts = self.parts(grid, selection, self.device(), None, true)?;
        Engine::explain_writing_parts(&parts, &*self.access(self.device())?, self.store(), selection, self.options())
    }
}
