//! Batches on a device, with memory around every output that nothing may touch.

use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use cuzarr::Result;
use cuzarr::internal::codec::batch::{Batch, Unit};
use cuzarr_device::{Buffer, Device, Stream};

use super::Format;
use super::random::Random;

const UNTOUCHED: u8 = 0xa5;
/// Fewest bytes between outputs.
const CANARY_BYTES: usize = 32;

/// Threads that wait for a device, and since when.
static WAITING: Mutex<Vec<(ThreadId, Instant)>> = Mutex::new(Vec::new());

/// The longest that a thread has been waiting for a device by now.
pub fn longest_wait() -> Duration {
    let waiting = WAITING.lock().unwrap();
    waiting.iter().map(|(_, since)| since.elapsed()).max().unwrap_or_default()
}

/// A thread that waits for a device as long as this lives.
pub struct Waiting;

impl Waiting {
    pub fn begin() -> Waiting {
        WAITING.lock().unwrap().push((std::thread::current().id(), Instant::now()));
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let me = std::thread::current().id();
        WAITING.lock().unwrap().retain(|(thread, _)| *thread != me);
    }
}

/// An encoded frame, and the size that metadata gives it.
pub struct Frame<'a> {
    pub encoded: &'a [u8],
    pub decoded_bytes: usize,
}

pub struct Decoded {
    bytes: Vec<u8>,
    units: Vec<Unit>,
    pub results: Vec<Result<()>>,
    pub took: Duration,
}

impl Decoded {
    /// What was decoded of a frame.
    pub fn frame(&self, index: usize) -> &[u8] {
        &self.bytes[self.units[index].dst.clone()]
    }

    /// Whether the bytes before this frame's output, and behind the last one's, are as they were.
    pub fn is_untouched_around(&self, index: usize) -> bool {
        let before = if index == 0 { 0 } else { self.units[index - 1].dst.end };
        let after = if index + 1 == self.units.len() { self.bytes.len() } else { self.units[index].dst.end };
        let canaries = [before..self.units[index].dst.start, self.units[index].dst.end..after];
        canaries.into_iter().all(|range| self.bytes[range].iter().all(|&byte| byte == UNTOUCHED))
    }
}

/// Decodes frames that lie at any alignment, their headers read by the host or by the device.
///
/// # Errors
/// What fails a batch as a whole: a device that is lost, above all.
pub fn decode(device: Device, format: Format, frames: &[Frame<'_>], random: &mut Random) -> Result<Decoded> {
    let place = |at: usize, random: &mut Random| match random.below(3) {
        0 => at.next_multiple_of(16),
        _ => at + random.below(9),
    };
    let (mut src, mut units, mut dst_bytes) = (Vec::new(), Vec::with_capacity(frames.len()), 0);
    for frame in frames {
        src.resize(place(src.len(), random), 0xff);
        let start = place(dst_bytes + CANARY_BYTES, random);
        dst_bytes = start + frame.decoded_bytes;
        units.push(Unit { src: src.len()..src.len() + frame.encoded.len(), dst: start..dst_bytes });
        src.extend_from_slice(frame.encoded);
    }
    let stream = Stream::new(device)?;
    let source = Buffer::from_bytes(device, &src)?;
    let target = Buffer::empty(device, dst_bytes + CANARY_BYTES)?;
    stream.memset(&target, UNTOUCHED)?;
    let host = random.one_in(2).then_some(&src[..]);
    // Within little memory segments are worked at in parts, and units one after the other.
    let limit = if random.one_in(4) { (1 + random.below(4)) * dst_bytes } else { usize::MAX };
    let (began, _waiting) = (Instant::now(), Waiting::begin());
    let mut batch = Batch::prepare_within(format.decoder(), &source, &target, &units, host, limit)?;
    batch.run(&stream)?;
    let results = batch.check()?;
    let took = began.elapsed();
    Ok(Decoded { bytes: target.to_vec()?, units, results, took })
}
