//! Checksums by kernels against their definitions, computed bit by bit or sum by sum.

mod device;

use std::ops::Range;

use cuzarr_device::internal::checksum::{Checksum, Span, compute, expect_byte_on, verify_on};
use cuzarr_device::{Buffer, Device, ErrorKind, Stream};
use device::{Random, devices};

const ALL: [Checksum; 4] = [Checksum::Crc32c, Checksum::Crc32, Checksum::Adler32, Checksum::Fletcher32];

fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 })
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    let step = |(a, b): (u32, u32), &byte: &u8| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

fn fletcher32(bytes: &[u8]) -> u32 {
    // Sums that never become zero again once they are not: modulo 65535, of which zero is 65535.
    let nonzero = |sum: u64| if sum == 0 { 0 } else { (sum - 1) % 65535 + 1 };
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let (a, b) = words.fold((0, 0), |(a, b), word| (nonzero(a + word), nonzero(b + nonzero(a + word))));
    (b << 16 | a) as u32
}

fn expected(checksum: Checksum, bytes: &[u8]) -> u32 {
    match checksum {
        Checksum::Crc32c => crc(0x82f6_3b78, bytes),
        Checksum::Crc32 => crc(0xedb8_8320, bytes),
        Checksum::Adler32 => adler32(bytes),
        Checksum::Fletcher32 => fletcher32(bytes),
    }
}

/// Spans of all small sizes and some of several pieces, at any alignment.
fn ranges(random: &mut Random, size: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = (0..70).map(|len| (len * 3, len)).map(|(at, len)| at..at + len).collect();
    for len in [511, 512, 513, 4095, 4096, 4097, 9000, 20_000, size] {
        let at = random.below(size - len + 1);
        ranges.push(at..at + len);
    }
    ranges
}

#[test]
fn checksums_are_those_of_their_definitions() {
    assert_eq!(crc(0x82f6_3b78, b"123456789"), 0xe306_9283);
    assert_eq!(crc(0xedb8_8320, b"123456789"), 0xcbf4_3926);
    assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    let mut random = Random::new(3);
    let noise = random.bytes(30_000);
    let largest = vec![0xff; 25_000];
    let zeros = vec![0; 25_000];
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        for bytes in [&noise, &largest, &zeros] {
            let buffer = Buffer::from_bytes(device, bytes).unwrap();
            let ranges = ranges(&mut random, bytes.len());
            for checksum in ALL {
                let got = compute(checksum, &buffer, &ranges, &stream).unwrap();
                for (range, got) in ranges.iter().zip(got) {
                    let expected = expected(checksum, &bytes[range.clone()]);
                    assert_eq!(got, expected, "{device} {checksum:?} of {range:?}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_checksum_is_told_by_the_status_of_its_span() {
    let mut random = Random::new(4);
    let data = random.bytes(50_000);
    let bytes = [0..5, 7..7, 5..9_000, 9_001..50_000];
    for (device, big_endian) in devices().into_iter().flat_map(|device| [(device, false), (device, true)]) {
        let stream = Stream::new(device).unwrap();
        let buffer = Buffer::from_bytes(device, &data).unwrap();
        for checksum in ALL {
            let values = bytes.iter().map(|range| expected(checksum, &data[range.clone()]));
            let mut stored: Vec<u8> = [0xee].into_iter().collect();
            values.for_each(|it| stored.extend(if big_endian { it.to_be_bytes() } else { it.to_le_bytes() }));
            stored[1 + 4 * 2 + 3] ^= 0x40;
            let stored = Buffer::from_bytes(device, &stored).unwrap();
            let statuses = Buffer::zeroed(device, 8 * 4).unwrap();
            let spans = bytes.iter().enumerate().map(|(index, range)| Span {
                bytes: range.clone(),
                stored_offset_bytes: 1 + 4 * index,
                status: 3 - index as u32,
                at: 70 + index as u32,
            });
            let spans: Vec<Span> = spans.collect();
            verify_on(checksum, big_endian, &buffer, &stored, &statuses, &spans, &stream).unwrap();
            stream.synchronize().unwrap();
            let words = statuses.to_vec().unwrap();
            let words: Vec<u64> = words.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            let wrong = u64::from(u32::MAX - 72) << 8 | 11;
            assert_eq!(words, [0, wrong, 0, 0], "{device} {checksum:?}, big-endian {big_endian}");
        }
    }
}

#[test]
fn a_byte_that_is_not_the_expected_one_is_told() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let data = Buffer::from_bytes(device, &[9, 7, 7, 8, 7]).unwrap();
        let statuses = Buffer::zeroed(device, 8 * 5).unwrap();
        let span = |at: usize| Span { bytes: 0..0, stored_offset_bytes: at, status: 4 - at as u32, at: at as u32 };
        expect_byte_on(7, &data, &statuses, &[span(1), span(3), span(4)], &stream).unwrap();
        stream.synchronize().unwrap();
        let words: Vec<u8> = statuses.to_vec().unwrap().chunks(8).map(|word| word[0]).collect();
        assert_eq!(words, [0, 8, 0, 0, 0], "{device}");
        assert!(
            expect_byte_on(7, &data, &statuses, &[span(3), Span { stored_offset_bytes: 5, ..span(1) }], &stream)
                .is_err()
        );
    }
}

#[test]
fn spans_outside_of_their_buffers_are_refused() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let buffer = Buffer::zeroed(device, 100).unwrap();
        let kind = |range| compute(Checksum::Crc32c, &buffer, &[range], &stream).unwrap_err().kind();
        assert_eq!(kind(50..101), ErrorKind::InvalidArgument);
        let span = Span { bytes: 0..10, stored_offset_bytes: 97, status: 0, at: 0 };
        let verify = |span: Span| verify_on(Checksum::Adler32, false, &buffer, &buffer, &buffer, &[span], &stream);
        assert_eq!(verify(span.clone()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            verify(Span { stored_offset_bytes: 0, status: 12, ..span }).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert!(compute(Checksum::Crc32, &buffer, &[], &stream).unwrap().is_empty());
        let host = Buffer::zeroed(Device::Cpu, 10).unwrap();
        let error = compute(Checksum::Crc32, &host, &[], &Stream::new(Device::Cpu).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MemorySpace);
    }
}

#[test]
fn statuses_that_cannot_be_written_are_refused() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let data = Buffer::zeroed(device, 100).unwrap();
        let statuses = Buffer::zeroed(device, 32).unwrap();
        let span = Span { bytes: 0..10, stored_offset_bytes: 20, status: 0, at: 0 };
        let verify = |statuses: &Buffer| {
            verify_on(Checksum::Adler32, false, &data, &data, statuses, std::slice::from_ref(&span), &stream)
        };
        verify(&statuses).unwrap();
        for other in [statuses.clone().into_read_only(), statuses.slice(4..).unwrap()] {
            assert_eq!(verify(&other).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
