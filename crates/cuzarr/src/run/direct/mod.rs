//! Codecs used directly: frames and chunks that a caller holds, without an array, a store or a plan.

mod codecs;
mod decoder;
mod encoder;
mod place;

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cancellation::CancellationToken;
use crate::config::environment::cores;
use crate::error::Result;
use crate::run::schedule::pool::in_threads;

/// Works on items with as many threads as the machine has, until all are done or the caller cancels. The calling thread polls the
/// token, the others only look at it.
///
/// # Errors
/// `Cancelled`
fn for_each_item<T: Sync>(items: &[T], cancellation: &CancellationToken, work: impl Fn(&T) + Sync) -> Result<()> {
    let (next, caller) = (AtomicUsize::new(0), std::thread::current().id());
    let goes_on = || match std::thread::current().id() == caller {
        true => cancellation.poll().is_ok(),
        false => !cancellation.is_cancelled(),
    };
    in_threads(cores().min(items.len()), || {
        while goes_on()
            && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            work(item);
        }
    });
    cancellation.check()
}

pub use decoder::{Decoder, DecoderBatch, Frames};
pub use encoder::{Encoder, EncoderBatch};
