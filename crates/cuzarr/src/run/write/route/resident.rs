//! The write route of chunks in device memory, for a store that keeps its values in memory of the same device. Each
//! whole chunk is gathered into its own memory and passed to the store, without a copy on the host. Frames that kernels
//! made are passed in the same way.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr_device::{Buffer, Stream};

use crate::codec::{Location, Program, seal};
use crate::error::Result;
use crate::plan::Coverage;
use crate::run::report::Stage;
use crate::run::write::elements::Elements;
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::object::at_chunk;
use crate::run::write::route::encode::FrameAt;
use crate::run::write::writing::{Leaf, Seal, Writing};

/// Number of chunks that are gathered before the store gets them, so that one wait for the device serves all.
const GATHERED: usize = 64;

/// Whole chunks on their way to a store that keeps values on the chunks' device.
pub(crate) struct Resident {
    chunks: Gathering,
    /// By chunk shape, a packed chunk whose elements all have the fill value, for chunks that reach beyond the array's
    /// edge.
    blanks: HashMap<Vec<u64>, Buffer>,
    /// Chunks that were gathered in device memory and will be passed to the store together.
    gathered: Vec<(Leaf, Buffer)>,
}

impl Resident {
    pub(crate) fn new(program: &Program, slab_bytes: usize) -> Resident {
        let chunks =
            Gathering::new(program.tail().clone(), GatherTo::PackedChunks, program.packed_size_bytes(), slab_bytes);
        Resident { chunks, blanks: HashMap::new(), gathered: Vec::new() }
    }

    /// Gathers the elements of a chunk into new device memory, which the store will keep.
    pub(crate) fn add(
        &mut self,
        writing: &Arc<Writing>,
        elements: &Elements,
        kernels: &Stream,
        leaf: Leaf,
    ) -> Result<()> {
        let staged = elements.stage(writing, std::slice::from_ref(&leaf), kernels)?;
        let value = &staged.value;
        let (start, extent) = staged.region(writing, 0, &leaf);
        let part = value.region(&start, &extent, &vec![1; extent.len()])?;
        if !writing.write_empty && part.holds_only(&writing.fill)? {
            return at_chunk(leaf.place.deliver_buffer(None), &leaf.chunk.name);
        }
        // The memory is bound to no stream, because readers of the store use their own streams.
        let (layout, size_bytes) = (&leaf.chunk.layout, self.chunks.bytes_of(&leaf)?);
        let chunk = Buffer::empty(value.device(), size_bytes)?;
        if leaf.chunk.coverage != Coverage::Full {
            let shape = &layout.leaf().chunk_shape;
            if !self.blanks.contains_key(shape) {
                let blank = Buffer::from_bytes(value.device(), &writing.packed_blank(layout)?)?;
                self.blanks.insert(shape.clone(), blank);
            }
            kernels.d2d(&self.blanks[shape], &chunk)?;
        }
        let gather = || self.chunks.gather(writing, std::slice::from_ref(&leaf), &staged, &chunk, kernels);
        writing.call.counters.time(Stage::Gather, size_bytes as u64, gather)?;
        self.gathered.push((leaf, chunk));
        if self.gathered.len() < GATHERED { Ok(()) } else { self.flush(kernels) }
    }

    /// Waits until the device has gathered the chunks, and passes their memory to the store.
    pub(crate) fn flush(&mut self, kernels: &Stream) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        kernels.synchronize()?;
        for (leaf, chunk) in self.gathered.drain(..) {
            at_chunk(leaf.place.deliver_buffer(Some(&chunk)), &leaf.chunk.name)?;
        }
        Ok(())
    }

    /// Whether gathered chunks wait to be passed to the store.
    pub(crate) fn has_leaves(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Drops all gathered chunks, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.gathered.clear();
    }
}

/// Passes encoded chunks in device memory to a store that keeps its values in memory of the same device. Each frame
/// gets its own memory, with its checksum.
pub(crate) fn keep(frames: &Buffer, leaves: Vec<FrameAt>, stream: &Stream) -> Result<()> {
    if leaves.is_empty() {
        return Ok(());
    }
    let copy = |FrameAt { leaf, range, seal: sealed }: FrameAt| -> Result<(Leaf, Buffer)> {
        let checksum = sealed.map_or(Vec::new(), |Seal { checksum, location }| seal(&[], checksum, location));
        let at_start = sealed.is_some_and(|sealed| sealed.location == Location::Start);
        let (frame_bytes, first) = (range.len(), if at_start { checksum.len() } else { 0 });
        // The memory is bound to no stream, because readers of the store use their own streams.
        let value = Buffer::empty(frames.device(), frame_bytes + checksum.len())?;
        stream.d2d(&frames.slice(range)?, &value.slice(first..first + frame_bytes)?)?;
        if !checksum.is_empty() {
            let start = if at_start { 0 } else { frame_bytes };
            stream.h2d(&checksum, &value.slice(start..start + checksum.len())?)?;
        }
        Ok((leaf, value))
    };
    let kept = leaves.into_iter().map(copy).collect::<Result<Vec<_>>>()?;
    stream.synchronize()?;
    kept.iter().try_for_each(|(leaf, value)| at_chunk(leaf.place.deliver_buffer(Some(value)), &leaf.chunk.name))
}
