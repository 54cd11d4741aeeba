//! Searches masks in host memory, with several threads.

use crate::threads::{Threads, cores};

/// Number of bytes of a mask that are skipped at once if all are 0.
const BLOCK: usize = 64;
/// Fewest bytes of a mask for each thread that searches it.
const THREAD_BYTES: usize = 1 << 20;
/// Largest number of threads that search one mask. With more, they would wait for memory.
const MOST_THREADS: usize = 16;

/// Returns the positions of the bytes of a mask that are not 0.
pub(super) fn nonzero(mask: &[u8]) -> Vec<u64> {
    let threads = cores().min(mask.len() / THREAD_BYTES).clamp(1, MOST_THREADS);
    let share = mask.len().div_ceil(threads).next_multiple_of(BLOCK).max(BLOCK);
    let parts = mask.chunks(share).enumerate();
    let mut found = Threads::workers().map(threads, parts, |(number, part)| found_in(part, (number * share) as u64));
    match found.len() {
        1 => found.remove(0),
        _ => found.concat(),
    }
}

fn found_in(mask: &[u8], first: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (number, block) in mask.chunks(BLOCK).enumerate() {
        if block.iter().fold(0, |any, byte| any | byte) == 0 {
            continue;
        }
        let start = first + (number * BLOCK) as u64;
        found.extend((start..).zip(block).filter(|(_, byte)| **byte != 0).map(|(at, _)| at));
    }
    found
}
