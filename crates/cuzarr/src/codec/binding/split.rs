//! Decides which codecs of a chain run in the tail, the copy of elements between packed chunks and arrays. These are
//! codecs that only move or map elements.

use cuzarr_device::{ElementStep, Packing};

use crate::codec::chain::{Chain, Serializer};
use crate::codec::host::TailPart;
use crate::codec::step::PackedBits;

/// The codecs of a chain that run in the tail, the copy of elements between packed chunks and arrays: how many of each
/// kind, counted from the array.
#[derive(Clone, Debug)]
pub(crate) struct TailSplit {
    pub(crate) arrays: usize,
    pub(crate) serializer: bool,
    pub(crate) bytes: usize,
    pub(super) packing: Packing,
    /// The steps for each element when an array is read, in order.
    pub(super) read: Vec<ElementStep>,
    /// The steps for each element when an array is written, in order.
    pub(super) write: Vec<ElementStep>,
    pub(super) axes: Vec<usize>,
    pub(super) bits: Option<PackedBits>,
}

/// Returns a split in which all codecs run as passes over chunks, and none while elements are copied (in the tail).
pub(super) fn no_split(chain: &Chain) -> TailSplit {
    TailSplit {
        arrays: 0,
        serializer: false,
        bytes: 0,
        packing: Packing::Plain,
        read: Vec::new(),
        write: Vec::new(),
        axes: (0..chain.spec().shape.len()).collect(),
        bits: None,
    }
}

/// Finds the longest run of codecs, counted from the array, that can be applied while elements are copied (by a tail).
pub(crate) fn tail_split(chain: &Chain) -> TailSplit {
    let mut split = no_split(chain);
    for codec in chain.arrays() {
        if split.packing != Packing::Plain {
            return split;
        }
        match codec.tail() {
            // Dimension i of the result is dimension axes[i] of the array before.
            TailPart::Axes(axes) => split.axes = axes.iter().map(|&axis| split.axes[axis]).collect(),
            TailPart::Steps { read, write } => {
                split.read.splice(0..0, read);
                split.write.extend(write);
            }
            TailPart::Bits(header) => {
                split.packing = Packing::Bits;
                split.bits = Some(header);
            }
            TailPart::Host(_) => return split,
        }
        split.arrays += 1;
    }
    let Serializer::Fixed(serializer) = chain.serializer() else { return split };
    let Some(steps) = serializer.steps() else { return split };
    // Byte order is its own inverse.
    split.write.extend(steps.iter().rev().copied());
    split.read.splice(0..0, steps);
    split.serializer = true;
    if split.packing != Packing::Plain {
        return split;
    }
    let Some(step) = chain.bytes().first() else { return split };
    if let Some(packing) = step.decoded.bound().and_then(|bytes| step.codec.packing(bytes)) {
        split.packing = packing;
        split.bytes = 1;
    }
    split
}
