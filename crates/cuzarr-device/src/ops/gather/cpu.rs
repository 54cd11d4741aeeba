//! Reads the elements at the given indices along a dimension, for arrays in host memory.

use crate::ops::gather::Listed;

/// Returns the packed elements at the indices, or an index that is out of range as the error. Neither array may be
/// empty.
pub(super) fn gather(packed: &[u8], indices: &[i64], of: Listed) -> Result<Vec<u8>, i64> {
    let [outer_stride, stride, inner_stride] = of.strides;
    let (outer, extent, inner) = (of.array.outer, of.array.extent, of.array.inner);
    let size = packed.len() / of.array.len() as usize;
    let mut gathered = Vec::with_capacity((outer * of.listed * inner) as usize * size);
    for line in 0..outer {
        for place in 0..of.listed {
            for column in 0..inner {
                let asked = indices[(line * outer_stride + place * stride + column * inner_stride) as usize];
                let index = if asked < 0 { (asked as u64).wrapping_add(extent) } else { asked as u64 };
                if index >= extent {
                    return Err(asked);
                }
                let from = ((line * extent + index) * inner + column) as usize * size;
                gathered.extend_from_slice(&packed[from..from + size]);
            }
        }
    }
    Ok(gathered)
}
