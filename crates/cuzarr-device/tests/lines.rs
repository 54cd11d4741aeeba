//! Operations along a dimension (scans, orders, gathers), on every device against their definitions.

mod device;

use cuzarr_device::{DType, Device, ErrorKind, NdBuffer, Order, Scan, nonzero, nonzero_indices};
use device::Random;

/// The host, and the devices that kernels run on.
fn devices() -> Vec<Device> {
    [Device::Cpu].into_iter().chain(device::devices()).collect()
}

/// Shapes and an axis: no elements, one, odd tails of segments and tiles, lines that lie apart.
const SHAPES: [(&[usize], usize); 13] = [
    (&[0], 0),
    (&[1], 0),
    (&[31], 0),
    (&[33], 0),
    (&[1100], 0),
    (&[3, 0], 1),
    (&[0, 3], 1),
    (&[5, 70], 1),
    (&[70, 5], 0),
    (&[300, 2], 1),
    (&[2, 90, 3], 1),
    (&[2, 3, 2], 2),
    (&[2, 1, 40], 1),
];
const REALS: [DType; 13] = [
    DType::BOOL,
    DType::INT8,
    DType::INT16,
    DType::INT32,
    DType::INT64,
    DType::UINT8,
    DType::UINT16,
    DType::UINT32,
    DType::UINT64,
    DType::FLOAT16,
    DType::BFLOAT16,
    DType::FLOAT32,
    DType::FLOAT64,
];

/// The elements of each line, by their C-order numbers.
fn lines(shape: &[usize], axis: usize) -> Vec<Vec<usize>> {
    let (extent, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let outer: usize = shape[..axis].iter().product();
    let line = |at: usize| (0..extent).map(|place| (at / inner * extent + place) * inner + at % inner).collect();
    (0..outer * inner).map(line).collect()
}

fn to_host(array: &NdBuffer) -> NdBuffer {
    array.to_device(Device::Cpu).unwrap().copy(Order::C).unwrap()
}

/// Random elements with many that are equal, NaNs of both signs, infinities and zeros of both signs.
fn elements(random: &mut Random, dtype: DType, count: usize) -> Vec<u8> {
    let size = dtype.size_bytes();
    let special: [u64; 6] = match dtype {
        DType::FLOAT16 => [0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0xfe00],
        DType::BFLOAT16 => [0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffc0],
        DType::FLOAT32 => [0, 1 << 31, 0x7f80_0000, 0xff80_0000, 0x7fc0_0001, 0xffc0_0000],
        DType::FLOAT64 => [0, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48 | 1, 0xfff8 << 48],
        _ => [0, 1, 0x7f, 0x80, 0xff, u64::MAX],
    };
    let mut bytes = Vec::with_capacity(count * size);
    for _ in 0..count {
        let bits = match random.below(3) {
            _ if dtype == DType::BOOL => random.bits() & 1,
            0 => random.pick(&special),
            1 => random.bits() & 3,
            _ => random.bits(),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    bytes
}

/// The value of an element, and whether it is NaN.
fn value(dtype: DType, bytes: &[u8]) -> (bool, f64, i128) {
    let one = NdBuffer::from_host(Device::Cpu, dtype, &[1], Order::C, bytes).unwrap();
    match dtype {
        DType::UINT64 => (false, 0.0, u64::from_le_bytes(bytes.try_into().unwrap()).into()),
        DType::FLOAT16 | DType::BFLOAT16 | DType::FLOAT32 | DType::FLOAT64 => {
            let wide = one.astype(DType::FLOAT64, Order::C).unwrap().host_slice::<f64>().unwrap()[0];
            (wide.is_nan(), if wide.is_nan() { 0.0 } else { wide }, 0)
        }
        _ => (false, 0.0, one.astype(DType::INT64, Order::C).unwrap().host_slice::<i64>().unwrap()[0].into()),
    }
}

#[test]
fn orders_are_stable_with_nan_last() {
    let mut random = Random::new(1);
    for dtype in REALS {
        for (shape, axis) in SHAPES {
            let count = shape.iter().product();
            let bytes = elements(&mut random, dtype, count);
            let values: Vec<_> = bytes.chunks_exact(dtype.size_bytes()).map(|bytes| value(dtype, bytes)).collect();
            for is_descending in [false, true] {
                let mut expected = vec![0i64; count];
                for line in lines(shape, axis) {
                    let mut order: Vec<usize> = (0..line.len()).collect();
                    order.sort_by(|&a, &b| {
                        let order = values[line[a]].partial_cmp(&values[line[b]]).unwrap();
                        if is_descending { order.reverse() } else { order }
                    });
                    line.iter().zip(order).for_each(|(&at, place)| expected[at] = place as i64);
                }
                for device in devices() {
                    let array = NdBuffer::from_host(device, dtype, shape, Order::C, &bytes).unwrap();
                    let got = array.argsort(axis, is_descending).unwrap();
                    assert_eq!((got.shape(), got.dtype(), got.device()), (shape, DType::INT64, device));
                    let case = format!("{dtype} {shape:?} {axis} {is_descending} {device}");
                    assert!(*to_host(&got).host_slice::<i64>().unwrap() == expected, "{case}");
                }
            }
        }
    }
}

#[test]
fn views_are_sorted_where_their_elements_are() {
    for device in devices() {
        let array = NdBuffer::from_slice(device, &[5_i16, 1, 4, 2, 3, 0], &[2, 3]).unwrap();
        let view = array.transpose(&[1, 0]).unwrap().region(&[0, 0], &[2, 2], &[2, 1]).unwrap();
        let order = to_host(&view.argsort(0, false).unwrap());
        assert_eq!(order.host_slice::<i64>().unwrap(), [1, 1, 0, 0]);
        let sums = to_host(&view.scan(1, Scan::Sum).unwrap());
        assert_eq!(sums.host_slice::<i16>().unwrap(), [5, 7, 4, 4]);
    }
}

#[test]
fn integers_are_scanned_as_they_wrap() {
    let mut random = Random::new(2);
    for dtype in REALS.into_iter().skip(1).take(8) {
        for (shape, axis) in SHAPES {
            let count = shape.iter().product();
            let bytes = elements(&mut random, dtype, count);
            let wide = NdBuffer::from_host(Device::Cpu, dtype, shape, Order::C, &bytes).unwrap();
            let values = wide.astype(DType::INT64, Order::C).unwrap().into_vec::<i64>().unwrap();
            for operation in [Scan::Sum, Scan::Product] {
                let mut expected = values.clone();
                for line in lines(shape, axis) {
                    for pair in line.windows(2) {
                        let before = expected[pair[0]];
                        let own = &mut expected[pair[1]];
                        *own =
                            if operation == Scan::Sum { before.wrapping_add(*own) } else { before.wrapping_mul(*own) };
                    }
                }
                let expected = NdBuffer::from_slice(Device::Cpu, &expected, shape).unwrap();
                let expected = expected.astype(dtype, Order::C).unwrap();
                for device in devices() {
                    let array = NdBuffer::from_host(device, dtype, shape, Order::C, &bytes).unwrap();
                    let got = array.scan(axis, operation).unwrap();
                    assert_eq!(got.device(), device);
                    assert!(
                        to_host(&got).all_equal(&expected, false).unwrap(),
                        "{dtype} {shape:?} {axis} {operation:?} {device}"
                    );
                }
            }
        }
    }
}

#[test]
fn floats_have_the_same_bits_on_every_device_and_are_nearly_exact() {
    let mut random = Random::new(3);
    for dtype in [DType::FLOAT16, DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64, DType::COMPLEX64, DType::COMPLEX128]
    {
        for (shape, axis) in SHAPES {
            for operation in [Scan::Sum, Scan::Product] {
                let count: usize = shape.iter().product();
                let parts: Vec<f64> =
                    (0..2 * count).map(|_| 0.5 + random.below(1 << 20) as f64 / (1 << 20) as f64).collect();
                let complex = NdBuffer::from_slice(Device::Cpu, &parts, &[2 * count]).unwrap();
                let complex = complex.reinterpret(DType::COMPLEX128).unwrap().reshape(shape).unwrap();
                let array = complex.astype(dtype, Order::C).unwrap();
                let exact = array.astype(DType::COMPLEX128, Order::C).unwrap().reshape_copy(&[count]).unwrap();
                let mut exact = exact.reinterpret(DType::FLOAT64).unwrap().into_vec::<f64>().unwrap();
                for line in lines(shape, axis) {
                    for pair in line.windows(2) {
                        let ([a, b], [c, d]) = (&exact[2 * pair[0]..][..2], &exact[2 * pair[1]..][..2]) else {
                            panic!()
                        };
                        let next = match operation {
                            Scan::Sum => [a + c, b + d],
                            Scan::Product => [a * c - b * d, a * d + b * c],
                        };
                        exact[2 * pair[1]..][..2].copy_from_slice(&next);
                    }
                }
                let here = array.scan(axis, operation).unwrap();
                for device in devices() {
                    let got = to_host(&array.to_device(device).unwrap().scan(axis, operation).unwrap());
                    let case = format!("{dtype} {shape:?} {axis} {operation:?} {device}");
                    assert!(got.to_host_bytes(Order::C).unwrap() == here.to_host_bytes(Order::C).unwrap(), "{case}");
                    let got = got.astype(DType::COMPLEX128, Order::C).unwrap().reshape_copy(&[count]).unwrap();
                    let got = got.reinterpret(DType::FLOAT64).unwrap().into_vec::<f64>().unwrap();
                    let tolerance = match dtype {
                        DType::FLOAT16 => 1e-3,
                        DType::BFLOAT16 => 8e-3,
                        DType::FLOAT32 | DType::COMPLEX64 => 1e-6,
                        _ => 1e-11,
                    };
                    for (got, exact) in got.as_chunks::<2>().0.iter().zip(exact.as_chunks::<2>().0) {
                        let size = exact[0].hypot(exact[1]);
                        // Numbers too large or too small for the type are those of the conversion.
                        let is_ordinary = (1e-4..6e4).contains(&size);
                        let far = (got[0] - exact[0]).hypot(got[1] - exact[1]);
                        assert!(!is_ordinary || far <= tolerance * size, "{case}: {got:?} {exact:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn elements_are_gathered_by_indices_on_their_device() {
    let mut random = Random::new(4);
    let types = [
        DType::UINT8,
        DType::INT16,
        DType::FLOAT32,
        DType::FLOAT64,
        DType::COMPLEX128,
        DType::opaque(3),
        DType::opaque(24),
    ];
    for dtype in types {
        for (shape, axis) in SHAPES {
            let (count, size, extent) = (shape.iter().product::<usize>(), dtype.size_bytes(), shape[axis]);
            if extent == 0 {
                continue;
            }
            let bytes = random.bytes(count * size);
            for is_shared in [false, true] {
                let mut listed: Vec<usize> = shape.iter().map(|&extent| if is_shared { 1 } else { extent }).collect();
                listed[axis] = random.below(2 * extent);
                let signed = |random: &mut Random| random.below(2 * extent) as i64 - extent as i64;
                let indices: Vec<i64> = (0..listed.iter().product()).map(|_| signed(&mut random)).collect();
                let mut result = shape.to_vec();
                result[axis] = listed[axis];
                let mut expected = vec![0; result.iter().product::<usize>() * size];
                for (number, (from, to)) in lines(shape, axis).iter().zip(lines(&result, axis)).enumerate() {
                    for (place, at) in to.into_iter().enumerate() {
                        let index = indices[if is_shared { place } else { lines(&listed, axis)[number][place] }];
                        let from = from[index.rem_euclid(extent as i64) as usize];
                        expected[at * size..][..size].copy_from_slice(&bytes[from * size..][..size]);
                    }
                }
                for device in devices() {
                    let array = NdBuffer::from_host(device, dtype, shape, Order::C, &bytes).unwrap();
                    let by = NdBuffer::from_slice(device, &indices, &listed).unwrap();
                    let got = array.gather(axis, &by).unwrap();
                    assert_eq!((got.shape(), got.dtype(), got.device()), (&result[..], dtype, device));
                    assert!(
                        got.to_host_bytes(Order::C).unwrap() == expected,
                        "{dtype} {shape:?} {axis} {is_shared} {device}"
                    );
                }
            }
        }
    }
}

#[test]
fn wrong_calls_are_refused() {
    for device in devices() {
        let array = NdBuffer::zeroed(device, DType::FLOAT32, &[2, 3], Order::C).unwrap();
        let kind = |result: Result<NdBuffer, cuzarr_device::Error>| result.unwrap_err().kind();
        assert_eq!(kind(array.argsort(2, false)), ErrorKind::InvalidArgument);
        assert_eq!(kind(array.scan(2, Scan::Sum)), ErrorKind::InvalidArgument);
        let complex = NdBuffer::zeroed(device, DType::COMPLEX64, &[2], Order::C).unwrap();
        assert_eq!(kind(complex.argsort(0, false)), ErrorKind::Unsupported);
        let bools = NdBuffer::zeroed(device, DType::BOOL, &[2], Order::C).unwrap();
        assert_eq!(kind(bools.scan(0, Scan::Sum)), ErrorKind::Unsupported);
        for (outside, shape) in [(3, [1, 1]), (-4, [1, 1]), (i64::MIN, [1, 1]), (i64::MAX, [1, 1])] {
            let indices = NdBuffer::from_slice(device, &[outside], &shape).unwrap();
            let error = array.gather(1, &indices).unwrap_err();
            assert!(error.message().contains(&format!("index {outside} ")), "{error}");
        }
        let none = NdBuffer::zeroed(device, DType::FLOAT32, &[2, 0], Order::C).unwrap();
        let zero = NdBuffer::from_slice(device, &[0_i64], &[1, 1]).unwrap();
        assert_eq!(kind(none.gather(1, &zero)), ErrorKind::InvalidArgument);
        let short = NdBuffer::from_slice(device, &[0_i64, 0], &[2, 1]).unwrap();
        assert_eq!(kind(array.gather(0, &short.reshape(&[2]).unwrap())), ErrorKind::InvalidArgument);
        assert_eq!(kind(array.gather(2, &zero)), ErrorKind::InvalidArgument);
        let narrow = NdBuffer::from_slice(device, &[0_i32], &[1, 1]).unwrap();
        assert_eq!(kind(array.gather(1, &narrow)), ErrorKind::InvalidArgument);
        if device != Device::Cpu {
            let here = NdBuffer::from_slice(Device::Cpu, &[0_i64], &[1, 1]).unwrap();
            assert_eq!(kind(array.gather(1, &here)), ErrorKind::MemorySpace);
        }
    }
}

#[test]
fn true_elements_are_found_where_the_mask_is() {
    for device in devices() {
        for len in [0, 1, 65, 5000] {
            let mask: Vec<u8> = (0..len).map(|at| u8::from(at % 3 == 1)).collect();
            let mask = NdBuffer::from_host(device, DType::BOOL, &[len], Order::C, &mask).unwrap();
            let found = nonzero_indices(&mask).unwrap();
            assert_eq!(found.device(), device);
            let expected: Vec<i64> = (0..len as i64).filter(|at| at % 3 == 1).collect();
            assert_eq!(to_host(&found).host_slice::<i64>().unwrap(), expected);
            assert_eq!(nonzero(&mask).unwrap(), expected.iter().map(|&at| at as u64).collect::<Vec<_>>());
        }
    }
}
