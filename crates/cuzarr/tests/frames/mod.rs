//! Frames for the tests of batches: decoded on every device with kernels, and on the host beside it.
#![allow(dead_code)] // each test file uses its part

#[path = "../../examples/decode_campaign/campaign/reference.rs"]
mod reference;

pub use reference::Format;

use cuzarr::ErrorKind;
use cuzarr::internal::codec::batch::{Batch, Unit};
use cuzarr_device::{Buffer, Device, Stream};

use crate::model::Dice;

pub const UNTOUCHED: u8 = 0xa5;

pub fn devices() -> Vec<Device> {
    crate::model::kernel_devices()
}

/// One frame, and the size that metadata gives it.
#[derive(Clone)]
pub struct Frame {
    pub encoded: Vec<u8>,
    pub decoded_bytes: usize,
}

/// What the host makes of a frame.
pub fn on_host(format: Format, frame: &Frame) -> cuzarr::Result<Vec<u8>> {
    reference::decode(format, &frame.encoded, frame.decoded_bytes)
}

/// Decodes frames that lie at any alignment, with gaps between them, and looks whether the gaps stay as they were.
pub fn on_device(device: Device, format: Format, frames: &[Frame], scan_on_host: bool) -> Vec<cuzarr::Result<Vec<u8>>> {
    let mut random = Dice(frames.len() as u64 + 7);
    let (mut src, mut units, mut dst_bytes) = (Vec::new(), Vec::new(), 0);
    for frame in frames {
        let aligned = random.below(2) == 0;
        src.resize(if aligned { src.len().next_multiple_of(16) } else { src.len() + random.below(5) as usize }, 0xff);
        dst_bytes = if aligned { usize::next_multiple_of(dst_bytes, 16) } else { dst_bytes + random.below(5) as usize };
        let unit =
            Unit { src: src.len()..src.len() + frame.encoded.len(), dst: dst_bytes..dst_bytes + frame.decoded_bytes };
        src.extend_from_slice(&frame.encoded);
        dst_bytes = unit.dst.end;
        units.push(unit);
    }
    let source = Buffer::from_bytes(device, &src).unwrap();
    let target = Buffer::from_bytes(device, &vec![UNTOUCHED; dst_bytes]).unwrap();
    let host = scan_on_host.then_some(&src[..]);
    let mut batch = Batch::prepare(format.decoder(), &source, &target, &units, host).unwrap();
    batch.run(&Stream::new(device).unwrap()).unwrap();
    let results = batch.check().unwrap();
    let bytes = target.to_vec().unwrap();
    let mut at = 0;
    for unit in &units {
        assert!(bytes[at..unit.dst.start].iter().all(|&byte| byte == UNTOUCHED), "{device}: wrote outside of frames");
        at = unit.dst.end;
    }
    let decoded = units.iter().map(|unit| bytes[unit.dst.clone()].to_vec());
    results.into_iter().zip(decoded).map(|(result, decoded)| result.map(|()| decoded)).collect()
}

/// Intact frames: the same bytes, from both scans.
pub fn assert_decodes(format: Format, frames: &[Frame], plain: &[Vec<u8>]) {
    for device in devices() {
        for scan_on_host in [true, false] {
            let decoded = on_device(device, format, frames, scan_on_host);
            for (index, (decoded, plain)) in decoded.into_iter().zip(plain).enumerate() {
                let decoded = decoded.unwrap_or_else(|error| panic!("{device}: frame {index}: {error}"));
                let wrong = decoded.iter().zip(plain).position(|(got, expected)| got != expected);
                assert_eq!(wrong, None, "{device}: frame {index} of {} bytes, first wrong byte", plain.len());
            }
        }
    }
}

/// Damaged frames: never outside their places, and what is accepted is what the host accepts. Returns how many were refused.
pub fn assert_agrees(format: Format, frames: &[Frame]) -> usize {
    let expected: Vec<_> = frames.iter().map(|frame| on_host(format, frame)).collect();
    let mut refused = 0;
    for device in devices() {
        let scans = [true, false].map(|scan_on_host| on_device(device, format, frames, scan_on_host));
        for (index, (host, gathered)) in scans[0].iter().zip(&scans[1]).enumerate() {
            let same = match (host, gathered) {
                (Ok(host), Ok(gathered)) => host == gathered,
                // Of several damages, blocks find one first.
                (Err(host), Err(gathered)) => host.kind() == gathered.kind(),
                _ => false,
            };
            let what = || format!("frame {index} {:?}", frames[index].encoded);
            assert!(same, "{device}: headers by the host {host:?}, by the device {gathered:?}, {}", what());
        }
        let [decoded, _] = scans;
        refused = decoded.iter().filter(|result| result.is_err()).count();
        for (index, (decoded, expected)) in decoded.into_iter().zip(&expected).enumerate() {
            let what = || format!("{device}: frame {index} {:?}", frames[index].encoded);
            match (decoded, expected) {
                (Ok(decoded), Ok(expected)) => assert!(decoded == *expected, "{}", what()),
                (Ok(_), Err(error)) => panic!("{}: decodes, on the host: {error}", what()),
                // liblz4 takes a match with the offset 0 for zeros, and some at the end of a block; libzstd does not look
                // whether a Huffman stream is used up: the formats say that all are damage. And the host knows more
                // compressors.
                (Err(error), Ok(_)) => {
                    let told = ["offset 0", "does not end where", "its frame's window"]
                        .iter()
                        .any(|what| error.message().contains(what));
                    let in_a_match = error.message().contains("bytes follow")
                        && reference::ends_in_a_match(format, &frames[index].encoded);
                    let stricter = told || in_a_match || error.kind() == ErrorKind::Unsupported;
                    assert!(stricter, "{}: {error}", what());
                }
                (Err(error), Err(_)) => {
                    assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch | ErrorKind::Unsupported
                        ),
                        "{error}"
                    );
                    assert!(error.message().starts_with("byte ") || error.message().starts_with("got "), "{error}");
                    let at =
                        error.message().strip_prefix("byte ").and_then(|rest| rest.split(':').next()?.parse().ok());
                    assert!(at.is_none_or(|at: usize| at <= frames[index].encoded.len()), "{error}, {}", what());
                }
            }
        }
    }
    refused
}

/// Bytes of several kinds: runs, periods shorter and longer than a warp, small differences, noise.
pub fn plain(size: usize, random: &mut Dice) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(size + 4096);
    while bytes.len() < size {
        let most = if random.chance(8) { 3000 } else { 60 };
        let count = 1 + random.below(most) as usize;
        match random.below(5) {
            0 => bytes.extend(std::iter::repeat_n(random.below(256) as u8, count)),
            1 if !bytes.is_empty() => {
                let back = 1 + random.below(bytes.len().min(70_000) as u64) as usize;
                let from = bytes.len() - back;
                (0..count).for_each(|i| bytes.push(bytes[from + i]));
            }
            2 if bytes.len() > 40 => {
                let back = 1 + random.below(40) as usize;
                let from = bytes.len() - back;
                (0..count).for_each(|i| bytes.push(bytes[from + i]));
            }
            3 => bytes.extend((0..count as u32).flat_map(|i| (i / 3).to_le_bytes())),
            _ => bytes.extend((0..count).map(|_| random.below(256) as u8)),
        }
    }
    bytes.truncate(size);
    bytes
}

/// Cuts, longer frames, and flips of bits.
pub fn damaged(frame: &Frame, random: &mut Dice, cuts: usize, flips: usize) -> Vec<Frame> {
    let with = |encoded: Vec<u8>| Frame { encoded, ..frame.clone() };
    let size = frame.encoded.len() as u64;
    let mut frames: Vec<Frame> = (0..cuts)
        .map(|cut| if (cut as u64) < size.min(40) { cut } else { random.below(size) as usize })
        .map(|cut| with(frame.encoded[..cut].to_vec()))
        .collect();
    for _ in 0..flips {
        let mut encoded = frame.encoded.clone();
        for _ in 0..1 + random.below(3) {
            let at = if random.chance(3) { random.below(size.min(80)) } else { random.below(size) } as usize;
            match random.below(3) {
                0 => encoded[at] ^= 1 << random.below(8),
                1 => encoded[at] = random.pick(&[0, 0xff, 0x0f, 0xf0]),
                _ => encoded[at] = random.below(256) as u8,
            }
        }
        frames.push(with(encoded));
    }
    frames.push(with([&frame.encoded[..], &[0; 9]].concat()));
    frames
}
