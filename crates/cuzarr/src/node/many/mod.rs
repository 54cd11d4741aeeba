//! Reads and writes of many arrays by one call, with one plan, one pipeline and shared kernel launches.

mod read;
mod write;

use cuzarr_device::Device;
use cuzarr_device::internal::Threads;

use super::array::Array;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::run::Options;

pub use read::{ArraySelection, explain_all, read_all};
pub use write::{ArrayWrite, write_all};

/// One read or write of a call that reads, or writes, several arrays.
trait OfMany {
    fn array(&self) -> &Array;

    /// The device on which a read makes its result, or on which the elements to write lie.
    fn device(&self) -> Device;

    /// The device that encodes elements in host memory, if that is faster; `cpu` for none.
    fn encoder(&self) -> Device {
        Device::Cpu
    }

    /// Whether this read or write and `other` can share one call of the engine.
    fn goes_with(&self, other: &Self) -> bool {
        let (one, two) = (self.array().options(), other.array().options());
        (self.device(), self.encoder(), one.accelerator) == (other.device(), other.encoder(), two.accelerator)
            && (one.strict, one.read_missing_chunks, one.write_empty_chunks, one.tuning)
                == (two.strict, two.read_missing_chunks, two.write_empty_chunks, two.tuning)
    }
}

/// Divides reads or writes among several calls of the engine, which run at the same time. Returns the result of each
/// call, with the numbers of its items.
///
/// # Errors
/// The first failure, which ends the other calls.
fn in_calls<I: OfMany, O: Send>(
    items: &[I],
    token: &CancellationToken,
    call: impl Fn(&[usize]) -> Result<O> + Sync,
) -> Result<Vec<(Vec<usize>, O)>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match calls.iter_mut().find(|call| items[call[0]].goes_with(item)) {
            Some(call) => call.push(at),
            None => calls.push(vec![at]),
        }
    }
    // Each call gets its own thread, because it waits for workers. A single call runs on this thread.
    let made = Threads::callers().map(calls.len(), &calls, |numbers| call(numbers).inspect_err(|_| token.cancel()));
    let mut done = Vec::with_capacity(calls.len());
    let mut failure: Option<Error> = None;
    for (numbers, made) in calls.into_iter().zip(made) {
        match made {
            Ok(made) => done.push((numbers, made)),
            // A call that was cancelled because of another failure adds no information.
            Err(error) if failure.as_ref().is_none_or(|known| known.kind() == ErrorKind::Cancelled) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    failure.map_or(Ok(done), Err)
}

/// Makes the cancellation token of one call on several arrays; cancelling the token of any array cancels it.
fn token_of(items: &[impl OfMany]) -> CancellationToken {
    let mut tokens: Vec<CancellationToken> = Vec::new();
    for item in items {
        let token = &item.array().options().cancellation;
        if !tokens.contains(token) {
            tokens.push(token.clone());
        }
    }
    CancellationToken::under(tokens)
}

/// The options of one call on several arrays: each limit is the smallest that any of the arrays has.
fn options_of<'a>(arrays: impl Iterator<Item = &'a Array>, token: &CancellationToken) -> Result<Options> {
    let smallest = |one: Options, other: &Options| Options {
        memory_limit_bytes: one.memory_limit_bytes.min(other.memory_limit_bytes),
        threads: one.threads.min(other.threads),
        coalesce_gap_bytes: one.coalesce_gap_bytes.min(other.coalesce_gap_bytes),
        coalesce_max_bytes: one.coalesce_max_bytes.min(other.coalesce_max_bytes),
        variable_limit_bytes: one.variable_limit_bytes.min(other.variable_limit_bytes),
        chunk_cache: one.chunk_cache || other.chunk_cache,
        chunk_cache_bytes: one.chunk_cache_bytes.min(other.chunk_cache_bytes),
        chunk_cache_max_age: one.chunk_cache_max_age.min(other.chunk_cache_max_age),
        trace: one.trace || other.trace,
        ..one
    };
    let mut options: Option<Options> = None;
    for array in arrays {
        let own = array.options();
        options = Some(options.map_or_else(|| own.clone(), |known| smallest(known, own)));
    }
    let none = || Error::new(ErrorKind::InvalidArgument, "there is no array");
    Ok(options.ok_or_else(none)?.with_cancellation(token.clone()))
}
