//! Codecs used directly: frames and chunks that a caller holds, without an array, a store or a plan.

mod codecs;
mod decoder;
mod encoder;
mod place;

use cuzarr_device::internal::Threads;

use crate::cancellation::CancellationToken;
use crate::config::environment::cores;
use crate::error::Result;

/// Calls a function for each item, with as many threads as the machine has. Results are in the order of the items.
///
/// # Errors
/// `Cancelled`, when the caller cancels before all are done.
fn for_each_item<I: Send, O: Send>(
    items: Vec<I>,
    cancellation: &CancellationToken,
    work: impl Fn(I) -> O + Sync,
) -> Result<Vec<O>> {
    let work = |item| cancellation.check().map(|()| work(item));
    Threads::workers().map(cores(), items, work).into_iter().collect()
}

pub use decoder::{Decoder, DecoderBatch, Frames};
pub use encoder::{Encoder, EncoderBatch};
