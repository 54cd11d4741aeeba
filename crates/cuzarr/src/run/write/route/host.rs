//! Encodes chunks of a write on threads of the host. Chunks are gathered from host memory, or come packed from a
//! device. If a chunk keeps old elements, it is merged with them. It is then encoded and delivered to its place.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use cuzarr_device::internal::Reader;
use cuzarr_device::internal::transfer::{gather_host, scatter_host};
use cuzarr_device::{Device, NdBuffer, Order, Tail, Transfer, TransferBox};

use crate::codec::{Program, seal, with_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{ChunkLayout, Coverage, Touched};
use crate::run::report::Stage;
use crate::run::write::object::at_chunk;
use crate::run::write::route::variable::encode_variable;
use crate::run::write::writing::{Leaf, LeafValue, Seal, Writing};

/// Passes a chunk with its new elements to a thread, which encodes and stores it.
pub(crate) fn submit(writing: &Arc<Writing>, leaf: Leaf, value: LeafValue) {
    let writing = Arc::clone(writing);
    writing.submitted.fetch_add(1, Ordering::Relaxed);
    // Reading old bytes from a far store keeps a thread waiting. So a thread without other work does it.
    let waits = writing.array.is_far() && !leaf.chunk.coverage.replaces();
    let call = Arc::clone(&writing.call);
    call.submit(waits, move || {
        if writing.call.is_cancelled() {
            // Dropped before the leaf, because the call waits for the leaf's end.
            drop(value);
            return;
        }
        let work = || match value {
            LeafValue::Elements(value) => writing.write_elements(&leaf, &value),
            LeafValue::Packed(packed) => {
                let packed = packed.host_bytes()?;
                if writing.is_unstored(&leaf.chunk.layout, &packed, 0)? {
                    return leaf.place.deliver(None);
                }
                writing.write_packed(&leaf, &packed)
            }
            LeafValue::Frame(frame, seal) => writing.deliver_frame(&leaf, &frame.host_bytes()?, seal),
            LeafValue::Blank if leaf.place.must_stay() => {
                writing.write_packed(&leaf, &writing.packed_blank(&leaf.chunk.layout)?)
            }
            LeafValue::Blank => leaf.place.deliver(None),
            LeafValue::Variable(value) => leaf.place.deliver(encode_variable(&writing, &leaf, &value)?),
        };
        let outcome = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::EncodeFailed, "a codec panicked; please report this")));
        writing.submitted.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = at_chunk(outcome, &leaf.chunk.name) {
            writing.array.fail(error);
        }
    });
}

impl Writing {
    /// Runs the remaining codecs on a frame that a device made, and delivers the result to its shard or object.
    fn deliver_frame(&self, leaf: &Leaf, frame: &[u8], sealed: Option<Seal>) -> Result<()> {
        if let Some(Seal { checksum, location }) = sealed {
            return leaf.place.deliver(Some(seal(frame, checksum, location)));
        }
        let rest = || leaf.chunk.layout.program()?.encode_behind_device(frame);
        match self.call.counters.time(Stage::Encode, 0, rest)? {
            Some(encoded) => leaf.place.deliver(Some(encoded)),
            None => leaf.place.deliver_bytes(frame),
        }
    }

    /// Whether the part of a packed chunk that begins at byte `offset` need not be stored, because all of its elements
    /// have the fill value.
    pub(crate) fn is_unstored(&self, layout: &ChunkLayout, packed: &[u8], offset: usize) -> Result<bool> {
        if self.write_empty {
            return Ok(false);
        }
        let element_bytes = layout.packed.element_bytes;
        if !layout.packed.divisible || !offset.is_multiple_of(element_bytes.max(1)) {
            return Ok(self.packed_blank(layout)?.get(offset..offset + packed.len()) == Some(packed));
        }
        let make = || self.filled(layout, vec![1; layout.strides.len()], element_bytes);
        let fill = self.packed_fill.get(make)?;
        let end = packed.len().min(element_bytes);
        // All elements are equal to the fill value if the first is, and each equals the one before it.
        Ok(packed[..end] == fill[..end] && packed[end..] == packed[..packed.len() - end])
    }

    /// Encodes a packed chunk, with threads that no other chunk uses, and delivers it to its shard or object.
    fn write_packed(&self, leaf: &Leaf, packed: &[u8]) -> Result<()> {
        let program = leaf.chunk.layout.program()?;
        if program.stored_is_packed() {
            return leaf.place.deliver_bytes(packed);
        }
        let threads = self.call.threads / self.submitted.load(Ordering::Relaxed).max(1);
        let encode = || with_threads(threads, || program.encode(packed));
        leaf.place.deliver(Some(self.call.counters.time(Stage::Encode, packed.len() as u64, encode)?))
    }

    fn write_elements(&self, leaf: &Leaf, value: &Reader) -> Result<()> {
        let (layout, program) = (&leaf.chunk.layout, leaf.chunk.layout.program()?);
        let is_listed = self.spacing.lists.is_some();
        // With index lists, the chunk's part of the value can only be compared once it is in the chunk.
        let is_blank = !self.write_empty && !is_listed && value.holds_only(&self.fill)?;
        if is_blank && leaf.chunk.coverage.replaces() {
            return leaf.place.deliver(None);
        }
        let mut packed = self.call.scratch.take(program.packed_size_bytes())?;
        let mut old = None;
        if leaf.chunk.coverage != Coverage::Full {
            old = if leaf.chunk.coverage.replaces() { None } else { leaf.place.load()? };
            match &old {
                Some(old) => {
                    let (stored, size_bytes) = (old.bytes(), packed.len() as u64);
                    self.call.counters.time(Stage::Decode, size_bytes, || program.decode(stored, &mut packed))?;
                }
                None if is_blank => return leaf.place.deliver(None),
                None => packed.copy_from_slice(&self.packed_blank(layout)?),
            }
        }
        self.gather(&leaf.chunk, program.tail(), value, &mut packed)?;
        let may_be_blank = !self.write_empty && (is_listed || (is_blank && old.is_some()));
        if may_be_blank && !leaf.place.must_stay() && self.is_blank(layout, &packed)? {
            return leaf.place.deliver(None);
        }
        self.write_packed(leaf, &packed)
    }

    fn gather(&self, chunk: &Touched, tail: &Tail, value: &Reader, packed: &mut [u8]) -> Result<()> {
        let packed_strides = self.spacing.strides(&chunk.layout).into_owned();
        let lists = self.spacing.lists.clone();
        let (start, extent) = match &lists {
            Some(_) => self.plan.region(chunk),
            None => (vec![0; value.array().ndim()], value.array().shape().to_vec()),
        };
        let size_bytes = (extent.iter().product::<usize>() * value.array().dtype().size_bytes()) as u64;
        let item = TransferBox {
            packed_offset_bytes: 0,
            packed_size_bytes: packed.len(),
            packed_first_elem: self.plan.first_elem(chunk),
            start,
            extent,
        };
        let transfer = Transfer { tail: tail.clone(), packed_strides, lists, boxes: vec![item] };
        self.call.counters.time(Stage::Gather, size_bytes, || value.gather(&transfer, packed))?;
        Ok(())
    }

    /// Returns a packed chunk whose elements all have the fill value.
    pub(crate) fn packed_blank(&self, layout: &ChunkLayout) -> Result<Arc<Vec<u8>>> {
        let shape = &layout.leaf().chunk_shape;
        let mut blanks = self.blanks.lock().unwrap_or_else(PoisonError::into_inner);
        let blank = match blanks.get(shape) {
            Some(blank) => Arc::clone(blank),
            None => Arc::clone(blanks.entry(shape.clone()).or_default()),
        };
        drop(blanks);
        blank.get(|| self.filled(layout, chunk_shape(layout), layout.program()?.packed_size_bytes()))
    }

    /// Makes packed elements of this shape and size that all have the fill value.
    fn filled(&self, layout: &ChunkLayout, shape: Vec<usize>, size_bytes: usize) -> Result<Vec<u8>> {
        let program = layout.program()?;
        let ones = vec![1; shape.len()];
        let fill = NdBuffer::full(Device::Cpu, program.tail().dtype, &ones, Order::C, &self.fill)?;
        let mut packed = vec![0; size_bytes];
        gather_host(&fill.broadcast_to(&shape)?, &transfer(layout, program, shape, size_bytes), &mut packed)?;
        Ok(packed)
    }

    /// Whether all elements of a packed chunk have the bits of the fill value.
    fn is_blank(&self, layout: &ChunkLayout, packed: &[u8]) -> Result<bool> {
        let (shape, program) = (chunk_shape(layout), layout.program()?);
        let elements = NdBuffer::empty(Device::Cpu, program.tail().dtype, &shape, Order::C)?;
        scatter_host(packed, &transfer(layout, program, shape, packed.len()), &elements)?;
        Ok(elements.holds_only(&self.fill)?)
    }
}

fn chunk_shape(layout: &ChunkLayout) -> Vec<usize> {
    layout.leaf().chunk_shape.iter().map(|&extent| extent as usize).collect()
}

/// Describes how elements of this shape are copied to or from a packed chunk, beginning with the chunk's first element.
fn transfer(layout: &ChunkLayout, program: &Program, shape: Vec<usize>, size_bytes: usize) -> Transfer {
    let item = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: size_bytes,
        packed_first_elem: 0,
        start: vec![0; shape.len()],
        extent: shape,
    };
    let packed_strides = layout.strides.iter().map(|&stride| stride as isize).collect();
    Transfer { tail: program.tail().clone(), packed_strides, lists: None, boxes: vec![item] }
}
