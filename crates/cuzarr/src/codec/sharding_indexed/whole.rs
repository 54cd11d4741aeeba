//! Shards that are decoded and encoded whole, because the chain has other codecs before or after sharding.

use std::borrow::Cow;

use super::{ShardIndex, Sharding};
use crate::codec::damage::{above_limit, corrupt};
use crate::codec::host::ArrayToBytes;
use crate::codec::size::Size;
use crate::codec::{Program, VariableElements, scratch};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Calls `visit` with the position in the shard of every contiguous run of elements of inner chunk `linear`, in C
/// order.
fn for_each_run(sharding: &Sharding, linear: usize, mut visit: impl FnMut(usize)) {
    let (shard, chunk) = (&sharding.shard_shape, &sharding.inner.spec().shape);
    let Some(last) = shard.len().checked_sub(1) else { return visit(0) };
    let mut strides = vec![1usize; shard.len()];
    for axis in (0..last).rev() {
        strides[axis] = strides[axis + 1] * shard[axis + 1] as usize;
    }
    let (mut rest, mut start) = (linear, 0);
    for axis in (0..shard.len()).rev() {
        let count = sharding.grid[axis] as usize;
        start += rest % count * chunk[axis] as usize * strides[axis];
        rest /= count;
    }
    let mut position = vec![0u64; last];
    loop {
        visit(start + position.iter().zip(&strides).map(|(&at, &stride)| at as usize * stride).sum::<usize>());
        let Some(axis) = (0..last).rev().find(|&axis| position[axis] + 1 < chunk[axis]) else { return };
        position[axis] += 1;
        position[axis + 1..].fill(0);
    }
}

impl Sharding {
    /// Number of elements in each run that [`for_each_run`] visits.
    fn run_elements(&self) -> usize {
        self.inner.spec().shape.last().copied().unwrap_or(1) as usize
    }

    /// Decodes and checks the index of a whole shard.
    fn read_index(&self, object: &[u8]) -> Result<ShardIndex> {
        let size = usize::try_from(self.index_size_bytes).unwrap_or(usize::MAX);
        let bytes = match self.index_at_start {
            true => object.get(..size),
            false => object.len().checked_sub(size).and_then(|start| object.get(start..)),
        };
        let short = || corrupt(format!("a shard of {} bytes is shorter than its index of {size}", object.len()));
        let index = self.decode_index(bytes.ok_or_else(short)?)?;
        index.validate(object.len() as u64)?;
        Ok(index)
    }

    fn program(&self) -> Result<&Program> {
        let error = || Error::new(ErrorKind::Unsupported, "elements of variable length have no packed form");
        self.inner_program.as_ref().ok_or_else(error)
    }

    /// Returns for every element of the shard which inner chunk holds it, and its number in that chunk.
    fn sources(&self, limit_bytes: u64) -> Result<Vec<(u32, u32)>> {
        let count = self.inner.spec().elements().unwrap_or(u64::MAX);
        let total = self.shard_shape.iter().try_fold(1u64, |total, &extent| total.checked_mul(extent));
        let Some(total) = total.filter(|&total| total <= u64::from(u32::MAX) && count <= total.max(1)) else {
            return Err(Error::new(ErrorKind::Unsupported, "a shard of more than 2³² elements of variable length"));
        };
        // Shards of nothing but missing chunks have few bytes and many elements.
        let places_bytes = total.saturating_mul(size_of::<(u32, u32)>() as u64);
        if places_bytes > limit_bytes {
            return Err(above_limit(format!("{total} elements, whose places take {places_bytes}"), limit_bytes));
        }
        let mut sources = vec![(0, 0); total as usize];
        let run = self.run_elements();
        for linear in 0..self.len() {
            let mut element = 0;
            for_each_run(self, linear, |start| {
                for source in &mut sources[start..start + run] {
                    *source = (linear as u32, element);
                    element += 1;
                }
            });
        }
        Ok(sources)
    }

    /// Decodes the inner chunks of a shard with variable-length elements, to at most `limit_bytes` together.
    pub(crate) fn decode_variable(&self, object: &[u8], limit_bytes: u64) -> Result<VariableElements> {
        let index = self.read_index(object)?;
        let sources = self.sources(limit_bytes)?;
        let mut left_bytes = limit_bytes;
        let chunks = (0..self.len()).map(|linear| match index.get(linear) {
            None => Ok(None),
            Some((offset, size)) => {
                // `read_index` checked that the entry lies inside the object.
                let stored = &object[offset as usize..(offset + size) as usize];
                let chunk = self.inner.decode_variable(stored, left_bytes).at(|| format!("inner chunk {linear}"))?;
                left_bytes = left_bytes.saturating_sub(chunk.data.len() as u64);
                Ok(Some(chunk))
            }
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let fill = self.inner.spec().fill_value.element(&self.inner.spec().data_type);
        let mut elements = VariableElements::with_capacity(sources.len());
        for (chunk, element) in sources {
            let found = chunks[chunk as usize].as_ref().and_then(|chunk| chunk.get(element as usize));
            elements.push(found.unwrap_or(&fill));
        }
        Ok(elements)
    }

    pub(crate) fn encode_variable(&self, elements: &VariableElements) -> Result<Vec<u8>> {
        let fill = self.inner.spec().fill_value.element(&self.inner.spec().data_type);
        let run = self.run_elements();
        let chunks = (0..self.len()).map(|linear| {
            let mut chunk = VariableElements::with_capacity(0);
            for_each_run(self, linear, |start| {
                (start..start + run).for_each(|at| chunk.push(elements.get(at).unwrap_or_default()));
            });
            match chunk.iter().all(|element| *element == *fill) {
                true => Ok(None),
                false => self.inner.encode_variable(&chunk).at(|| format!("inner chunk {linear}")).map(Some),
            }
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        self.encode_object(chunks)
    }
}

/// Whether all elements of `chunk` are `fill`, bit for bit.
fn is_fill(chunk: &[u8], fill: &[u8]) -> bool {
    fill.is_empty() || chunk.chunks_exact(fill.len()).all(|element| element == fill)
}

impl ArrayToBytes for Sharding {
    fn name(&self) -> &str {
        "sharding_indexed"
    }

    fn encoded_size(&self) -> Size {
        self.encoded_bound()
    }

    fn decode_into(&self, object: &[u8], decoded: &mut [u8]) -> Result<()> {
        let index = self.read_index(object)?;
        let program = self.program()?;
        let fill = self.inner.spec().fill_bytes();
        let run_bytes = self.run_elements() * fill.len();
        for linear in 0..self.len() {
            let Some((offset, size)) = index.get(linear) else {
                for_each_run(self, linear, |start| {
                    let run = &mut decoded[start * fill.len()..][..run_bytes];
                    run.chunks_exact_mut(fill.len().max(1)).for_each(|element| element.copy_from_slice(&fill));
                });
                continue;
            };
            // `read_index` checked that the entry lies inside the object.
            let stored = &object[offset as usize..(offset + size) as usize];
            scratch::with(program.packed_size_bytes(), |chunk| {
                program.decode(stored, chunk).at(|| format!("inner chunk {linear}"))?;
                let mut runs = chunk.chunks_exact(run_bytes.max(1));
                for_each_run(self, linear, |start| {
                    if let Some(run) = runs.next() {
                        decoded[start * fill.len()..][..run_bytes].copy_from_slice(run);
                    }
                });
                Ok(())
            })?;
        }
        Ok(())
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let program = self.program()?;
        let fill = self.inner.spec().fill_bytes();
        let run_bytes = self.run_elements() * fill.len();
        let mut chunk = Vec::with_capacity(program.packed_size_bytes());
        let chunks = (0..self.len()).map(|linear| {
            chunk.clear();
            for_each_run(self, linear, |start| {
                chunk.extend_from_slice(&decoded[start * fill.len()..][..run_bytes]);
            });
            match is_fill(&chunk, &fill) {
                true => Ok(None),
                false => program.encode(&chunk).at(|| format!("inner chunk {linear}")).map(Some),
            }
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        self.encode_object(chunks)
    }
}
