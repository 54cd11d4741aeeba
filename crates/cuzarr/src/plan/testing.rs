//! Descriptions of arrays for tests of plans. Their codecs never run.

use std::sync::Arc;

use cuzarr_device::DType;

use super::{ChunkLayout, Level, PackedLayout};
use crate::codec::{Chain, ChunkSpec};
use crate::meta::{DataType, FillValue};

/// Makes a chunk layout for tests with these levels and packed chunks.
pub(crate) fn layout_of(levels: Vec<Level>, packed: PackedLayout) -> Arc<ChunkLayout> {
    let data_type = DataType::try_from(DType::UINT8).unwrap();
    let spec = ChunkSpec::new(levels[0].chunk_shape.clone(), data_type.clone(), FillValue::default_of(&data_type));
    let chain = Arc::new(Chain::from_codecs(&[], spec).unwrap());
    Arc::new(ChunkLayout::new(levels, packed, chain, None))
}

/// Makes a chunk layout for tests whose levels have these chunk shapes, for elements of one byte.
pub(crate) fn layout(shapes: &[&[u64]]) -> Arc<ChunkLayout> {
    let level = |shape: &&[u64]| Level { chunk_shape: shape.to_vec(), bound_bytes: None, shard: None };
    let leaf = shapes[shapes.len() - 1];
    let packed = PackedLayout {
        size_bytes: leaf.iter().product::<u64>() as usize,
        element_bytes: 1,
        axes: (0..leaf.len()).collect(),
        stored_is_packed: true,
        divisible: true,
    };
    layout_of(shapes.iter().map(level).collect(), packed)
}
