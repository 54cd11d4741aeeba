//! Transposes a whole chunk, for chains that cannot transpose while elements are copied between chunk and array.

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::damage::expect_encoded_size;
use crate::codec::host::{ArrayToArray, TailPart};

#[derive(Debug)]
pub(super) struct Transpose {
    pub(super) decoded_shape: Vec<u64>,
    pub(super) axes: Vec<usize>,
    pub(super) encoded: ChunkSpec,
}

/// Visits all elements of an array of `shape` in C order, where the array has any `strides`. `visit` gets the index of
/// each, if dimension `i` has stride `strides[i]`.
fn walk(shape: &[u64], strides: &[usize], mut visit: impl FnMut(usize)) {
    let Some((&inner, outer)) = shape.split_last() else {
        return visit(0);
    };
    if shape.contains(&0) {
        return;
    }
    let inner_stride = strides[shape.len() - 1];
    let mut position = vec![0u64; outer.len()];
    let mut start = 0;
    loop {
        (0..inner as usize).for_each(|i| visit(start + i * inner_stride));
        // Counts up like an odometer, from the last outer dimension.
        let Some(axis) = (0..outer.len()).rev().find(|&axis| position[axis] + 1 < outer[axis]) else { return };
        position[axis] += 1;
        start += strides[axis];
        for axis in axis + 1..outer.len() {
            start -= position[axis] as usize * strides[axis];
            position[axis] = 0;
        }
    }
}

impl Transpose {
    /// For each dimension of the decoded array, its stride in the encoded array, in elements.
    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![0; self.axes.len()];
        let mut stride = 1;
        for &axis in self.axes.iter().rev() {
            strides[axis] = stride;
            stride *= self.decoded_shape[axis] as usize;
        }
        strides
    }

    fn element_bytes(&self) -> usize {
        self.encoded.data_type.size_bytes().unwrap_or(1)
    }
}

impl ArrayToArray for Transpose {
    fn name(&self) -> &str {
        "transpose"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        let bytes = self.element_bytes();
        let mut elements = decoded.chunks_exact_mut(bytes);
        walk(&self.decoded_shape, &self.strides(), |from| {
            if let Some(element) = elements.next() {
                element.copy_from_slice(&encoded[from * bytes..][..bytes]);
            }
        });
        Ok(())
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        let bytes = self.element_bytes();
        let mut elements = decoded.chunks_exact(bytes);
        walk(&self.decoded_shape, &self.strides(), |to| {
            if let Some(element) = elements.next() {
                encoded[to * bytes..][..bytes].copy_from_slice(element);
            }
        });
        Ok(())
    }

    fn tail(&self) -> TailPart {
        TailPart::Axes(self.axes.clone())
    }
}
