//! Pieces of packed bytes on a device that threads of the host exchange with elements in host memory, each through a
//! small slab of pinned memory of its own.

use std::ops::Range;

use cuzarr_device::{Buffer, Transfer, TransferBox};

use crate::plan::PIECES_SHARE;
use crate::run::context::Context;

/// Size of a piece that one thread moves at a time, in bytes: large enough for the bus's full speed, and small enough
/// that all threads have work and a piece stays in the cache.
const PIECE_BYTES: usize = 2 << 20;

/// Boxes of one array in host memory whose packed bytes lie near to each other in device memory.
pub(crate) struct Piece {
    pub(crate) packed: Buffer,
    /// The range of `packed` that one thread moves.
    pub(crate) range: Range<usize>,
    /// The boxes, for packed bytes of which only this range is in memory.
    pub(crate) transfer: Transfer,
}

/// Size of the pieces of a call, in bytes.
pub(crate) fn piece_bytes(call: &Context) -> usize {
    let share = call.limit_bytes / PIECES_SHARE / call.threads as u64;
    usize::try_from(share).unwrap_or(usize::MAX).clamp(1, PIECE_BYTES)
}

/// Divides boxes into pieces of about `piece_bytes`. `empty` describes the packed bytes in `packed`, without boxes.
pub(crate) fn pieces(packed: &Buffer, empty: &Transfer, boxes: Vec<TransferBox>, piece_bytes: usize) -> Vec<Piece> {
    let parts = boxes.into_iter().flat_map(|item| empty.divided(item, piece_bytes));
    let span = |item: TransferBox| {
        let (range, offset) = (empty.packed_range_of(&item), item.packed_offset_bytes);
        (offset + range.start..offset + range.end, item)
    };
    let mut spans: Vec<(Range<usize>, TransferBox)> = parts.map(span).collect();
    spans.sort_by_key(|(range, _)| range.start);
    let mut pieces = Vec::<Piece>::new();
    for (range, item) in spans {
        let joined = pieces.last().map(|last| last.range.start..last.range.end.max(range.end));
        match (pieces.last_mut(), joined) {
            (Some(last), Some(joined)) if joined.len() <= piece_bytes => {
                last.range = joined;
                last.transfer.boxes.push(item);
            }
            _ => {
                let transfer = Transfer { boxes: vec![item], ..empty.clone() };
                pieces.push(Piece { packed: packed.clone(), range, transfer });
            }
        }
    }
    for piece in &mut pieces {
        let begin = piece.range.start;
        piece.transfer.boxes.iter_mut().for_each(|item| *item = moved(empty, item, begin));
    }
    pieces
}

/// Describes a box for packed bytes of which only those from byte `begin` on are in memory.
fn moved(of: &Transfer, item: &TransferBox, begin: usize) -> TransferBox {
    let range = of.packed_range_of(item);
    let element_bytes = of.tail.packed.size_bytes().max(1);
    TransferBox {
        packed_offset_bytes: item.packed_offset_bytes + range.start - begin,
        packed_size_bytes: range.len(),
        // With lists, the number may become negative.
        packed_first_elem: item.packed_first_elem.wrapping_sub(range.start / element_bytes),
        start: item.start.clone(),
        extent: item.extent.clone(),
    }
}
