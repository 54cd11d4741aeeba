//! Sorts elements in host memory line by line, by the same keys as the kernels.

use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::error::Result;
use crate::ops::sort::key_of;

/// Returns the indices that sort each line of `extent` packed elements.
pub(super) fn argsort(packed: &NdBuffer, extent: usize, is_descending: bool) -> Result<NdBuffer> {
    let (dtype, size) = (packed.dtype(), packed.dtype().size_bytes());
    let bytes = packed.to_host_bytes(Order::C)?;
    let mut order: Vec<i64> = Vec::with_capacity(packed.len());
    let mut line = Vec::with_capacity(extent);
    for elements in bytes.chunks_exact(extent * size) {
        line.clear();
        line.extend(elements.chunks_exact(size).zip(0i64..).map(|(element, place)| {
            let mut bits = [0u8; 8];
            bits[..size].copy_from_slice(element);
            (key_of(u64::from_le_bytes(bits), dtype, is_descending), place)
        }));
        line.sort_by_key(|(key, _)| *key);
        order.extend(line.iter().map(|(_, place)| place));
    }
    NdBuffer::from_vec(order, packed.shape())
}
