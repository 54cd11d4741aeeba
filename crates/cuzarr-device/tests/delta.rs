//! Running sums by kernels against sums taken one after the other.

mod device;

use cuzarr_device::internal::delta::{Chunk, accumulate_on, differ_on};
use cuzarr_device::{Buffer, DType, ErrorKind, Stream};
use device::{Random, devices};

/// Element sizes up to several tiles of any kind of launch.
const SIZES: [usize; 14] = [0, 1, 2, 3, 15, 16, 17, 64, 255, 256, 2048, 2049, 5000, 9001];

fn sums<T: Copy>(elements: impl Iterator<Item = T>, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut sum: Option<T> = None;
    let next = |element| {
        let next = sum.map_or(element, |sum| add(sum, element));
        sum = Some(next);
        next
    };
    elements.map(next).collect()
}

fn integers(element_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let wide = bytes.chunks_exact(element_bytes).map(|element| {
        let mut wide = [0; 8];
        wide[..element_bytes].copy_from_slice(element);
        u64::from_le_bytes(wide)
    });
    let sums = sums(wide, u64::wrapping_add);
    sums.into_iter().flat_map(|sum| sum.to_le_bytes().into_iter().take(element_bytes)).collect()
}

fn floats(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    if dtype == DType::FLOAT32 {
        let elements = bytes.as_chunks().0.iter().map(|element| f32::from_ne_bytes(*element));
        return sums(elements, |a, b| a + b).into_iter().flat_map(f32::to_ne_bytes).collect();
    }
    let elements = bytes.as_chunks().0.iter().map(|element| f64::from_ne_bytes(*element));
    sums(elements, |a, b| a + b).into_iter().flat_map(f64::to_ne_bytes).collect()
}

/// Lays chunks of so many bytes out with gaps, sums them into another buffer and in place, and compares all bytes.
fn assert_sums(dtype: DType, chunks: &[Vec<u8>], expected: impl Fn(&[u8]) -> Vec<u8>) {
    let (mut src, mut places, mut target) = (Vec::new(), Vec::new(), Vec::new());
    for chunk in chunks {
        let from = src.len().next_multiple_of(16);
        src.resize(from, 0xee);
        places.push(Chunk { src_offset_bytes: from, dst_offset_bytes: from, size_bytes: chunk.len() });
        src.extend_from_slice(chunk);
        target.resize(from, 0xee);
        target.extend(expected(chunk));
    }
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let source = Buffer::from_bytes(device, &src).unwrap();
        let apart = Buffer::from_bytes(device, &vec![0xee; src.len()]).unwrap();
        accumulate_on(dtype, &source, &apart, &places, &stream).unwrap();
        accumulate_on(dtype, &source, &source, &places, &stream).unwrap();
        stream.synchronize().unwrap();
        for (what, buffer) in [("apart", apart), ("in place", source)] {
            let got = buffer.to_vec().unwrap();
            let wrong = got.iter().zip(&target).position(|(got, expected)| got != expected);
            assert_eq!(wrong, None, "{device}: {dtype} {what}, first wrong byte");
        }
    }
}

#[test]
fn integers_wrap() {
    let mut random = Random::new(5);
    for dtype in [DType::UINT8, DType::INT16, DType::UINT32, DType::INT64] {
        let chunks: Vec<_> = SIZES.iter().map(|&elems| random.bytes(elems * dtype.size_bytes())).collect();
        assert_sums(dtype, &chunks, |bytes| integers(dtype.size_bytes(), bytes));
        // Chunks of one tile take another way.
        assert_sums(dtype, &chunks[..9], |bytes| integers(dtype.size_bytes(), bytes));
    }
}

#[test]
fn floats_round_one_after_the_other() {
    let mut random = Random::new(6);
    let value = |random: &mut Random| (random.below(1 << 30) as f64 - 5e8) * 10f64.powi(random.below(12) as i32 - 6);
    for dtype in [DType::FLOAT32, DType::FLOAT64] {
        let chunk = |elems: &usize| -> Vec<u8> {
            let mut values: Vec<f64> = (0..*elems).map(|_| value(&mut random)).collect();
            if values.len() > 4000 {
                (values[3000], values[3500]) = (f64::INFINITY, f64::NEG_INFINITY);
            }
            match dtype == DType::FLOAT32 {
                true => values.into_iter().flat_map(|value| (value as f32).to_ne_bytes()).collect(),
                false => values.into_iter().flat_map(f64::to_ne_bytes).collect(),
            }
        };
        let chunks: Vec<_> = SIZES.iter().map(chunk).collect();
        assert_sums(dtype, &chunks, |bytes| floats(dtype, bytes));
    }
}

#[test]
fn differences_of_integers_are_summed_to_what_they_were() {
    let mut random = Random::new(7);
    for dtype in [DType::UINT8, DType::INT16, DType::UINT32, DType::INT64] {
        let (mut src, mut places, mut last) = (Vec::new(), Vec::new(), 0);
        for elems in SIZES {
            let from = src.len();
            let size_bytes = elems * dtype.size_bytes();
            places.push(Chunk { src_offset_bytes: from, dst_offset_bytes: from, size_bytes });
            src.extend(random.bytes(size_bytes.next_multiple_of(16)));
            last = from + size_bytes;
        }
        for device in devices() {
            let stream = Stream::new(device).unwrap();
            let source = Buffer::from_bytes(device, &src).unwrap();
            let [differences, back] = [0, 1].map(|_| Buffer::from_bytes(device, &src).unwrap());
            differ_on(dtype, &source, &differences, &places, &stream).unwrap();
            accumulate_on(dtype, &differences, &back, &places, &stream).unwrap();
            stream.synchronize().unwrap();
            assert!(back.to_vec().unwrap() == src, "{device}: {dtype}");
            // Every element but the first of each chunk, and nothing behind the last.
            let (got, size) = (differences.to_vec().unwrap(), dtype.size_bytes());
            for place in &places {
                let range = place.src_offset_bytes..place.src_offset_bytes + place.size_bytes;
                let sums = integers(size, &got[range.clone()]);
                assert!(sums == src[range], "{device}: {dtype}: {place:?}");
            }
            assert_eq!(got[last..], src[last..], "{device}: {dtype}");
        }
    }
}

#[test]
fn what_cannot_be_summed_is_refused() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let buffer = Buffer::zeroed(device, 100).unwrap();
        let kind = |dtype, src_offset_bytes, size_bytes| {
            let chunk = Chunk { src_offset_bytes, dst_offset_bytes: 0, size_bytes };
            accumulate_on(dtype, &buffer, &buffer, &[chunk], &stream).unwrap_err().kind()
        };
        assert_eq!(kind(DType::UINT8, 96, 5), ErrorKind::InvalidArgument);
        assert_eq!(kind(DType::UINT8, 1, 5), ErrorKind::InvalidArgument);
        assert_eq!(kind(DType::UINT16, 0, 5), ErrorKind::InvalidArgument);
        assert_eq!(kind(DType::COMPLEX64, 0, 8), ErrorKind::Unsupported);
        let error = differ_on(DType::UINT8, &buffer, &buffer, &[], &stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "in place");
    }
}
