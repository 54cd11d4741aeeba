//! Encodes chunks of variable-length elements. The value's elements are merged with old ones, in the order of the
//! chunk.

use crate::codec::VariableElements;
use crate::error::{Error, ErrorKind, Result};
use crate::run::read::route::variable::box_places;
use crate::run::report::Stage;
use crate::run::write::writing::{Leaf, Writing};

/// Encodes a chunk of variable-length elements; `None` if the chunk is not stored.
pub(crate) fn encode_variable(writing: &Writing, leaf: &Leaf, value: &VariableElements) -> Result<Option<Vec<u8>>> {
    let chain = leaf.chunk.layout.chain.leaf();
    let old = if leaf.chunk.coverage.replaces() { None } else { leaf.place.load()? };
    let old = match old {
        Some(old) => {
            let decode = || chain.decode_variable(old.bytes(), writing.variable_limit_bytes);
            Some(writing.call.counters.time(Stage::Decode, old.bytes().len() as u64, decode)?)
        }
        None => None,
    };
    let too_large = || Error::new(ErrorKind::OutOfMemory, "the chunk has more elements than memory can hold");
    let count = chain.spec().elements().and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
    // Where each element of the chunk comes from: its number in the value, or `None` for the old chunk.
    let mut from: Vec<Option<usize>> = Vec::new();
    from.try_reserve_exact(count).map_err(|_| too_large())?;
    from.resize(count, None);
    let (start, extent) = writing.plan.region(&leaf.chunk);
    let (first, shape) = (writing.plan.first_elem(&leaf.chunk), writing.plan.selection.shape());
    let numbers = box_places(&shape, writing.spacing.lists.as_deref(), &start, &extent);
    for (place, number) in writing.spacing.packed_places(&leaf.chunk.layout, first, &start, &extent).zip(numbers) {
        from[place] = Some(number);
    }
    let mut elements = VariableElements::try_with_capacity(count).ok_or_else(too_large)?;
    for (place, number) in from.into_iter().enumerate() {
        let element = match (number, &old) {
            (Some(number), _) => value.get(number),
            (None, Some(old)) => old.get(place),
            (None, None) => Some(&writing.fill[..]),
        };
        elements.push(element.unwrap_or(&writing.fill));
    }
    if !writing.write_empty && !leaf.place.must_stay() && elements.iter().all(|element| element == writing.fill) {
        return Ok(None);
    }
    // The codec stores the number of elements, and the length of each. A chunk that readers would refuse is not
    // written.
    let (size_bytes, most) = ((elements.data.len() + 4 * count + 4) as u64, writing.variable_limit_bytes);
    if size_bytes > most {
        let message = format!(
            "a chunk has {size_bytes} bytes in {count} elements of variable length, readers take at most {most}"
        );
        let hint = "use smaller chunks, or raise array.variable_chunk_max_bytes";
        return Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint));
    }
    let encode = || chain.encode_variable(&elements);
    writing.call.counters.time(Stage::Encode, elements.data.len() as u64, encode).map(Some)
}
