//! Data that all batches of one group of arrays share when they are read into device memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cuzarr_device::{Buffer, Device};

use crate::plan::Unit;
use crate::run::context::Context;
use crate::run::read::in_flight::{Packed, PackedBytes};

/// Data that all batches of one group of arrays share when they are read into device memory.
pub(crate) struct Target {
    pub(crate) call: Arc<Context>,
    pub(crate) device: Device,
    /// Size in bytes of the largest chunk of the group after decoding.
    pub(crate) chunk_bytes: usize,
    /// Whether the chunks need no decoding, because they are stored without compression.
    pub(crate) stored_is_packed: bool,
    pub(crate) read_missing: bool,
    /// Set to false if kernels can decode no frame of a batch. Then the host decodes the other batches too.
    pub(crate) kernels_help: AtomicBool,
}

/// Groups chunks whose decoded bytes lie in `buffer`, by the result that they fill and by chunk layout. Each unit is
/// given with the offset of its packed bytes in `buffer`.
pub(crate) fn packed<'a>(buffer: &Buffer, units: impl Iterator<Item = (&'a Unit, usize)>) -> Vec<Packed> {
    let together = || PackedBytes::Together(buffer.clone());
    grouped(units.map(|(unit, offset)| (unit, buffer, offset)), together)
}

/// Groups chunks from the chunk cache, by the result that they fill and by chunk layout. Each has a buffer of its own.
pub(crate) fn kept<'a>(units: impl Iterator<Item = (&'a Unit, &'a Buffer)>) -> Vec<Packed> {
    grouped(units.map(|(unit, buffer)| (unit, buffer, 0)), || PackedBytes::Each(Vec::new()))
}

fn grouped<'a>(
    units: impl Iterator<Item = (&'a Unit, &'a Buffer, usize)>,
    empty: impl Fn() -> PackedBytes,
) -> Vec<Packed> {
    let mut found: Vec<Packed> = Vec::new();
    let mut numbers = HashMap::new();
    for (unit, buffer, offset) in units {
        let mut keep = unit.keep;
        for places in unit.places_by_out() {
            let out = places[0].out;
            let number = *numbers.entry((out, Arc::as_ptr(&unit.layout))).or_insert_with(|| {
                let layout = Arc::clone(&unit.layout);
                found.push(Packed { out, bytes: empty(), layout, boxes: Vec::new(), keep: Vec::new() });
                found.len() - 1
            });
            let group = &mut found[number];
            group.boxes.extend(places.iter().map(|place| unit.transfer_box(place, offset)));
            if let PackedBytes::Each(buffers) = &mut group.bytes {
                buffers.resize(group.boxes.len(), buffer.clone());
            }
            if std::mem::take(&mut keep) {
                group.keep.push((unit.clone(), offset));
            }
        }
    }
    found
}
