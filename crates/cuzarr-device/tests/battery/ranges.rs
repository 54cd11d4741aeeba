//! Copies of ranges between arrays of one dimension, beside a loop over elements.

use cuzarr_device::{DType, Device, ElementRange, ErrorKind, NdBuffer, Order};

use crate::devices::{devices, for_each_case};
use crate::random::{DTYPES, Random};

/// An array of `len` elements that begins some elements behind its memory, and its bytes.
fn line(random: &mut Random, device: Device, dtype: DType, len: usize) -> (NdBuffer, Vec<u8>) {
    let (size, before) = (dtype.size_bytes(), random.below(4));
    let bytes = random.elements(dtype, before + len);
    let all = NdBuffer::from_host(device, dtype, &[before + len], Order::C, &bytes).unwrap();
    (all.region(&[before], &[len], &[1]).unwrap(), bytes[before * size..].to_vec())
}

#[test]
fn ranges_are_copied_as_a_loop_copies_them() {
    for_each_case(300, |device, seed| {
        let mut random = Random::new(seed);
        let dtype = random.pick(&DTYPES);
        let size = dtype.size_bytes();
        // Some ranges are longer than what one warp copies.
        let most = if random.one_in(10) { 20_000 } else { 60 };
        let count = random.below(5) + 1;
        let sources: Vec<_> = (0..count)
            .map(|_| {
                let len = random.below(most);
                line(&mut random, device, dtype, len)
            })
            .collect();
        let (mut ranges, mut len) = (Vec::new(), 0);
        for _ in 0..random.below(40) {
            let source = random.below(count);
            let (start, gap) = (random.below(sources[source].0.len() + 1), random.below(3));
            let range = ElementRange {
                source,
                start,
                target: len + gap,
                len: random.below(sources[source].0.len() - start + 1),
            };
            len = range.target + range.len;
            ranges.push(range);
        }
        let rest = random.below(3);
        let (target, mut expected) = line(&mut random, device, dtype, len + rest);
        for range in &ranges {
            let own = |first: usize| first * size..(first + range.len) * size;
            expected[own(range.target)].copy_from_slice(&sources[range.source].1[own(range.start)]);
        }
        let ranges: Vec<_> = random.permutation(ranges.len()).into_iter().map(|at| ranges[at]).collect();
        let arrays: Vec<NdBuffer> = sources.iter().map(|(array, _)| array.clone()).collect();
        target.copy_ranges(&arrays, &ranges).unwrap();
        assert!(target.to_host_bytes(Order::C).unwrap() == expected, "{device} seed {seed}: {ranges:?}");
    });
}

#[test]
fn wrong_ranges_are_refused() {
    for device in devices() {
        let of = |values: &[u16]| NdBuffer::from_slice(device, values, &[values.len()]).unwrap();
        let (target, source) = (of(&[0; 4]), of(&[1, 2, 3]));
        let good = ElementRange { source: 0, start: 1, target: 2, len: 2 };
        let refused = |target: &NdBuffer, source: &NdBuffer, range: ElementRange, kind: ErrorKind| {
            let error = target.copy_ranges(std::slice::from_ref(source), &[good, range]).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        };
        for wrong in [
            ElementRange { source: 1, ..good },
            ElementRange { start: 2, ..good },
            ElementRange { start: usize::MAX, ..good },
            ElementRange { target: 3, ..good },
            ElementRange { target: usize::MAX, ..good },
            ElementRange { len: usize::MAX, ..good },
        ] {
            refused(&target, &source, wrong, ErrorKind::InvalidArgument);
        }
        let matrix = NdBuffer::from_slice(device, &[1_u16, 2, 3, 4], &[2, 2]).unwrap();
        let gaps = NdBuffer::from_slice(device, &[1_u16, 2, 3, 4, 5, 6], &[3, 2]).unwrap();
        let gaps = gaps.index_axis(1, 0).unwrap();
        let bytes = NdBuffer::from_slice(device, &[1_u8, 2, 3], &[3]).unwrap();
        for wrong in [&matrix, &gaps, &bytes, &target] {
            refused(&target, wrong, good, ErrorKind::InvalidArgument);
        }
        refused(&matrix, &source, good, ErrorKind::InvalidArgument);
        assert_eq!(target.to_host_bytes(Order::C).unwrap(), [0; 8], "{device}: a refused call wrote something");
        if device != Device::Cpu {
            let host = NdBuffer::from_slice(Device::Cpu, &[1_u16, 2, 3], &[3]).unwrap();
            refused(&target, &host, good, ErrorKind::MemorySpace);
        }
    }
}
