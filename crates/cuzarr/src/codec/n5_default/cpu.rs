//! Decodes and encodes blocks of N5: a header, then elements. The first dimension varies fastest.

use std::borrow::Cow;
use std::sync::Arc;

use super::block_bound;
use crate::codec::bytes::cpu::swap;
use crate::codec::damage::{above_bound, corrupt, expect_encoded_size};
use crate::codec::host::{ArrayToBytes, BytesToBytes};
use crate::codec::scratch;
use crate::codec::size::Size;
use crate::{Result, ResultExt};

/// The mode, in an N5 block's header, that means: the header states the block's shape, and all elements have one size.
const DEFAULT_MODE: u16 = 0;
/// Bytes of the header before the block's extents: the mode and the number of dimensions.
const FIXED_BYTES: usize = 4;

#[derive(Debug)]
pub(super) struct N5Default {
    /// The shape of the chunk that a block of N5 holds.
    pub(super) shape: Vec<u32>,
    pub(super) element_bytes: usize,
    /// Bytes of a chunk's elements together.
    pub(super) size_bytes: usize,
    /// The fill value as the bytes of one element.
    pub(super) fill: Vec<u8>,
    pub(super) compressor: Option<Arc<dyn BytesToBytes>>,
}

/// Visits all elements of a box that begins at the origin, the last dimension fastest. `visit` gets the places of each
/// in two arrays.
fn walk(extent: &[u32], strides: [&[usize]; 2], mut visit: impl FnMut([usize; 2])) {
    let Some((&inner, outer)) = extent.split_last() else { return visit([0, 0]) };
    if extent.contains(&0) {
        return;
    }
    let inner_strides = strides.map(|strides| strides[outer.len()]);
    let mut position = vec![0; outer.len()];
    loop {
        let start = strides.map(|strides| position.iter().zip(strides).map(|(&at, stride)| at as usize * stride).sum());
        let [one, other]: [usize; 2] = start;
        (0..inner as usize).for_each(|i| visit([one + i * inner_strides[0], other + i * inner_strides[1]]));
        // Counts up like an odometer, from the last outer dimension.
        let Some(axis) = (0..outer.len()).rev().find(|&axis| position[axis] + 1 < outer[axis]) else { return };
        position[axis] += 1;
        position[axis + 1..].fill(0);
    }
}

/// Strides, in elements, of a contiguous array whose first dimension varies fastest.
fn first_fastest(shape: &[u32]) -> Vec<usize> {
    let next = |stride: &mut usize, &extent: &u32| {
        let own = *stride;
        *stride = stride.saturating_mul(extent as usize);
        Some(own)
    };
    shape.iter().scan(1, next).collect()
}

/// Strides, in elements, of a contiguous array whose last dimension varies fastest.
fn last_fastest(shape: &[u32]) -> Vec<usize> {
    let reversed: Vec<u32> = shape.iter().rev().copied().collect();
    first_fastest(&reversed).into_iter().rev().collect()
}

impl N5Default {
    fn header_bytes(&self) -> usize {
        FIXED_BYTES + 4 * self.shape.len()
    }

    fn header(&self) -> Vec<u8> {
        let mut header = DEFAULT_MODE.to_be_bytes().to_vec();
        header.extend((self.shape.len() as u16).to_be_bytes());
        header.extend(self.shape.iter().flat_map(|extent| extent.to_be_bytes()));
        header
    }

    /// Reads the header of an N5 block. Returns the block's shape, its size in bytes, and the bytes after the header.
    fn read<'a>(&self, encoded: &'a [u8]) -> Result<(Vec<u32>, usize, &'a [u8])> {
        let Some((header, payload)) = encoded.split_at_checked(self.header_bytes()) else {
            let expected = self.header_bytes();
            return Err(corrupt(format!("got {} bytes, expected a header of {expected}", encoded.len())));
        };
        let [mode, ndim] = [0, 2].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
        if mode != DEFAULT_MODE {
            return Err(corrupt(format!("byte 0: the mode of the block is {mode}, expected {DEFAULT_MODE}")));
        }
        if usize::from(ndim) != self.shape.len() {
            return Err(corrupt(format!("byte 2: the block has {ndim} dimensions, expected {}", self.shape.len())));
        }
        let dims = header[FIXED_BYTES..].as_chunks::<4>().0;
        let shape: Vec<u32> = dims.iter().map(|extent| u32::from_be_bytes(*extent)).collect();
        let element = self.element_bytes as u64;
        let bytes = match shape.contains(&0) {
            true => Some(0),
            false => shape.iter().try_fold(element, |bytes, &extent| bytes.checked_mul(u64::from(extent))),
        };
        let bound = block_bound(self.size_bytes);
        match bytes.filter(|bytes| *bytes <= bound).and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) => Ok((shape, bytes, payload)),
            None => Err(corrupt(format!(
                "byte 4: the block's shape is {shape:?}, which is too large for a chunk of {:?}",
                self.shape
            ))),
        }
    }

    /// Copies the elements of a block, which are big-endian and in the order of N5, to their places in a chunk.
    fn place(&self, block: &[u8], shape: &[u32], decoded: &mut [u8]) {
        let common: Vec<u32> = shape.iter().zip(&self.shape).map(|(block, chunk)| *block.min(chunk)).collect();
        if common != self.shape {
            decoded.chunks_exact_mut(self.element_bytes).for_each(|element| element.copy_from_slice(&self.fill));
        }
        let bytes = self.element_bytes;
        walk(&common, [&first_fastest(shape), &last_fastest(&self.shape)], |[from, to]| {
            let element = &mut decoded[to * bytes..][..bytes];
            element.copy_from_slice(&block[from * bytes..][..bytes]);
            if cfg!(target_endian = "little") {
                element.reverse();
            }
        });
    }
}

impl ArrayToBytes for N5Default {
    fn name(&self) -> &str {
        "n5_default"
    }

    fn encoded_size(&self) -> Size {
        let block = Size::AtMost(block_bound(self.size_bytes));
        let stored = self.compressor.as_ref().map_or(block, |compressor| compressor.encoded_size(block));
        stored.plus(self.header_bytes() as u64)
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let (shape, block_bytes, payload) = self.read(encoded)?;
        let Some(compressor) = &self.compressor else {
            expect_encoded_size(payload.len(), block_bytes)?;
            self.place(payload, &shape, decoded);
            return Ok(());
        };
        let at = || format!("codec '{}'", compressor.name());
        if block_bytes <= self.size_bytes {
            return scratch::with(block_bytes, |block| {
                compressor.decode_into(payload, block).at(at)?;
                self.place(block, &shape, decoded);
                Ok(())
            });
        }
        // Only a block that really is larger than the chunk takes more memory than the chunk.
        let block = compressor.decode(payload, block_bytes as u64).map_err(above_bound).at(at)?;
        if block.len() != block_bytes {
            return Err(corrupt(format!("the block decodes to {} bytes, expected {block_bytes}", block.len())));
        }
        self.place(&block, &shape, decoded);
        Ok(())
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let bytes = self.element_bytes;
        let mut block = vec![0; decoded.len()];
        walk(&self.shape, [&last_fastest(&self.shape), &first_fastest(&self.shape)], |[from, to]| {
            block[to * bytes..][..bytes].copy_from_slice(&decoded[from * bytes..][..bytes]);
        });
        if cfg!(target_endian = "little") {
            swap(&mut block, bytes);
        }
        let mut encoded = self.header();
        match &self.compressor {
            Some(compressor) => encoded.extend(compressor.encode(block.into())?),
            None => encoded.extend(block),
        }
        Ok(encoded)
    }
}
