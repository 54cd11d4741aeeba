//! Downsampling on every device against the definition, box by box.

mod device;

use cuzarr_device::downsample::{Boxes, Downsampling, downsample, downsample_part, downsampled_shape};
use cuzarr_device::{DType, Device, ErrorKind, NdBuffer, Order};
use device::Random;

/// The host, and the devices that kernels run on.
fn devices() -> Vec<Device> {
    [Device::Cpu].into_iter().chain(device::devices()).collect()
}

const METHODS: [Downsampling; 4] = [Downsampling::Mean, Downsampling::Max, Downsampling::Mode, Downsampling::Nearest];

/// Elements of the boxes, box after box, each in C order.
fn boxes(shape: &[usize], factors: &[usize]) -> Vec<Vec<usize>> {
    let small = downsampled_shape(shape, factors);
    let mut boxes = vec![Vec::new(); small.iter().product()];
    for element in 0..shape.iter().product::<usize>() {
        let (mut rest, mut at, mut stride) = (element, 0, 1);
        for dim in (0..shape.len()).rev() {
            at += rest % shape[dim] / factors[dim] * stride;
            stride *= small[dim];
            rest /= shape[dim];
        }
        boxes[at].push(element);
    }
    boxes
}

fn reduce(method: Downsampling, values: &[i128], round: impl Fn(i128, i128) -> i128) -> i128 {
    match method {
        Downsampling::Mean => round(values.iter().sum(), values.len() as i128),
        Downsampling::Max => *values.iter().max().unwrap(),
        Downsampling::Nearest | Downsampling::Gaussian => values[0],
        Downsampling::Mode => {
            let times = |value: &i128| values.iter().filter(|other| *other == value).count();
            *values.iter().max_by_key(|value| (times(value), std::cmp::Reverse(**value))).unwrap()
        }
    }
}

/// Ties go to the even number.
fn half_even(sum: i128, count: i128) -> i128 {
    let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    whole + i128::from(2 * rest > count || (2 * rest == count && whole % 2 != 0))
}

const SHAPES: [(&[usize], &[usize]); 6] = [
    (&[7], &[2]),
    (&[5, 9], &[2, 2]),
    (&[4, 5, 6], &[1, 2, 3]),
    (&[3, 2, 5, 4], &[2, 2, 2, 2]),
    (&[1, 8], &[2, 4]),
    (&[], &[]),
];

#[test]
fn integers_are_reduced_exactly() {
    let mut random = Random::new(5);
    for dtype in [DType::INT8, DType::UINT8, DType::INT16, DType::UINT32, DType::INT64, DType::UINT64, DType::BOOL] {
        let size_bytes = dtype.size_bytes();
        let signed = matches!(dtype, DType::INT8 | DType::INT16 | DType::INT64);
        let value = |bytes: &[u8]| {
            let mut wide = [0u8; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            if signed && bytes[bytes.len() - 1] > 127 {
                wide[bytes.len()..].fill(255);
            }
            i128::from_le_bytes(wide)
        };
        for (shape, factors) in SHAPES {
            let mut bytes = random.bytes(shape.iter().product::<usize>() * size_bytes);
            // Extremes, and few enough numbers that some come twice.
            for element in bytes.chunks_exact_mut(size_bytes) {
                match element[0] % 4 {
                    0 => element.fill(255),
                    1 => element.fill(0),
                    _ if dtype == DType::BOOL => element[0] = 1,
                    _ => {}
                }
                if dtype == DType::BOOL {
                    element[0] &= 1;
                }
            }
            for device in devices() {
                let array = NdBuffer::from_host(device, dtype, shape, Order::C, &bytes).unwrap();
                for method in METHODS {
                    let got = downsample(&array, factors, method).unwrap();
                    let got: Vec<i128> =
                        got.to_host_bytes(Order::C).unwrap().chunks_exact(size_bytes).map(value).collect();
                    let elements: Vec<i128> = bytes.chunks_exact(size_bytes).map(value).collect();
                    let expected = boxes(shape, factors).into_iter().map(|members| {
                        let values: Vec<i128> = members.into_iter().map(|member| elements[member]).collect();
                        reduce(method, &values, half_even)
                    });
                    assert_eq!(got, expected.collect::<Vec<_>>(), "{device} {dtype} {shape:?} {method:?}");
                }
            }
        }
    }
}

#[test]
fn floats_are_summed_in_order_and_nan_is_the_largest() {
    let mut random = Random::new(9);
    for (shape, factors) in SHAPES {
        let count: usize = shape.iter().product();
        let mut values: Vec<f32> = random
            .bytes(count * 4)
            .chunks_exact(4)
            .map(|four| i32::from_ne_bytes([four[0], four[1], four[2], four[3]]) as f32 / 3e5)
            .collect();
        values[count / 2] = f32::NAN;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        for device in devices() {
            let array = NdBuffer::from_host(device, DType::FLOAT32, shape, Order::C, &bytes).unwrap();
            let double = array.astype(DType::FLOAT64, Order::C).unwrap();
            for method in [Downsampling::Mean, Downsampling::Max] {
                let got = downsample(&array, factors, method).unwrap().to_device(Device::Cpu).unwrap();
                let expected: Vec<f64> = boxes(shape, factors)
                    .into_iter()
                    .map(|members| {
                        let box_of = members.iter().map(|&member| f64::from(values[member]));
                        match method {
                            Downsampling::Mean => box_of.fold(0.0, |sum, value| sum + value) / members.len() as f64,
                            _ => box_of.reduce(|a, b| if b > a || b.is_nan() { b } else { a }).unwrap(),
                        }
                    })
                    .collect();
                let same = |one: f64, other: f64| one == other || (one.is_nan() && other.is_nan());
                let single = got.host_slice::<f32>().unwrap();
                assert!(
                    single.iter().zip(&expected).all(|(&got, &want)| same(got.into(), f64::from(want as f32))),
                    "{device} {shape:?}"
                );
                let got = downsample(&double, factors, method).unwrap().to_device(Device::Cpu).unwrap();
                assert!(got.host_slice::<f64>().unwrap().iter().zip(&expected).all(|(&got, &want)| same(got, want)));
            }
        }
    }
}

#[test]
fn short_floats_views_and_arrays_without_elements_work_and_nonsense_is_refused() {
    for device in devices() {
        let bytes: Vec<u8> = (0..24u16).flat_map(|at| (0x3c00 + at * 16).to_ne_bytes()).collect();
        let half = NdBuffer::from_host(device, DType::FLOAT16, &[4, 6], Order::C, &bytes).unwrap();
        let wide = half.astype(DType::FLOAT32, Order::C).unwrap();
        let mean = |array: &NdBuffer| downsample(array, &[2, 3], Downsampling::Mean).unwrap();
        assert!(mean(&half).all_equal(&mean(&wide).astype(DType::FLOAT16, Order::C).unwrap(), false).unwrap());
        let turned = wide.transpose(&[1, 0]).unwrap();
        let straight = turned.copy(Order::C).unwrap();
        assert!(mean(&turned).all_equal(&mean(&straight), false).unwrap(), "{device}");
        let none = NdBuffer::empty(device, DType::INT16, &[0, 5], Order::C).unwrap();
        assert_eq!(mean(&none).shape(), [0, 2]);
        for (factors, method, kind) in [
            (&[2][..], Downsampling::Mean, ErrorKind::InvalidArgument),
            (&[0, 2], Downsampling::Mean, ErrorKind::InvalidArgument),
            (&[1 << 10, 1 << 10], Downsampling::Max, ErrorKind::InvalidArgument),
            (&[2, 2], Downsampling::Mode, ErrorKind::Unsupported),
        ] {
            assert_eq!(downsample(&half, factors, method).unwrap_err().kind(), kind, "{factors:?} {method:?}");
        }
    }
}

/// The mean of all elements of an array with the weights of a Gaussian around the middle of each box.
fn gaussian(values: &[f64], shape: &[usize], factors: &[usize]) -> Vec<f64> {
    let small = downsampled_shape(shape, factors);
    let place = |index: usize, extents: &[usize]| {
        let mut rest = index;
        let mut place = vec![0; extents.len()];
        for dim in (0..extents.len()).rev() {
            (place[dim], rest) = (rest % extents[dim], rest / extents[dim]);
        }
        place
    };
    let weight = |from: &[usize], to: &[usize]| {
        let along = |dim: usize| {
            let factor = factors[dim] as f64;
            let distance = to[dim] as f64 - (from[dim] as f64 * factor + (factor - 1.0) / 2.0);
            match factors[dim] {
                1 => f64::from(u8::from(distance == 0.0)),
                _ if distance.abs() > 4.0 / 3.0 * factor => 0.0,
                _ => (-(distance * 3.0 / factor).powi(2) / 2.0).exp(),
            }
        };
        (0..shape.len()).map(along).product::<f64>()
    };
    let one = |index: usize| {
        let from = place(index, &small);
        let weights: Vec<f64> = (0..values.len()).map(|element| weight(&from, &place(element, shape))).collect();
        let sum: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
        sum / weights.iter().sum::<f64>()
    };
    (0..small.iter().product()).map(one).collect()
}

#[test]
fn a_gaussian_weighs_a_box_and_its_neighbours_with_the_same_bits_on_every_device() {
    let mut random = Random::new(11);
    let shapes: [(&[usize], &[usize]); 4] = [(&[23], &[2]), (&[9, 14], &[2, 3]), (&[3, 8, 11], &[1, 2, 4]), (&[], &[])];
    for (shape, factors) in shapes {
        let bytes = random.bytes(shape.iter().product::<usize>() * 2);
        let whole = NdBuffer::from_host(Device::Cpu, DType::INT16, shape, Order::C, &bytes).unwrap();
        for dtype in [DType::INT16, DType::UINT8, DType::INT32, DType::FLOAT16, DType::FLOAT32, DType::FLOAT64] {
            let array = whole.astype(dtype, Order::C).unwrap();
            let values = array.astype(DType::FLOAT64, Order::C).unwrap();
            let values = values.host_slice::<f64>().unwrap().to_vec();
            let expected = gaussian(&values, shape, factors);
            let host = downsample(&array, factors, Downsampling::Gaussian).unwrap();
            assert_eq!(host.shape(), downsampled_shape(shape, factors));
            let got = host.astype(DType::FLOAT64, Order::C).unwrap();
            let tolerance = match dtype {
                DType::FLOAT64 => 1e-9,
                DType::FLOAT32 => 0.01,
                DType::FLOAT16 => 16.0,
                _ => 0.5 + 1e-9,
            };
            for (got, expected) in got.host_slice::<f64>().unwrap().iter().zip(&expected) {
                assert!((got - expected).abs() <= tolerance, "{dtype} {shape:?}: {got} {expected}");
            }
            for device in device::devices() {
                let there = array.to_device(device).unwrap();
                let got = downsample(&there, factors, Downsampling::Gaussian).unwrap();
                assert_eq!(
                    got.to_host_bytes(Order::C).unwrap(),
                    host.to_host_bytes(Order::C).unwrap(),
                    "{device} {dtype}"
                );
            }
        }
    }
}

#[test]
fn parts_with_what_a_method_reaches_give_the_elements_of_the_whole() {
    let bytes = Random::new(12).bytes(20 * 21 * 4);
    let whole = NdBuffer::from_host(Device::Cpu, DType::INT32, &[20, 21], Order::C, &bytes).unwrap();
    for device in devices() {
        let whole = whole.to_device(device).unwrap();
        for method in [Downsampling::Gaussian, Downsampling::Mean, Downsampling::Nearest] {
            let all = downsample(&whole, &[2, 3], method).unwrap();
            let (start, shape) = ([4usize, 3], [3usize, 4]); // boxes
            let reach = [method.reach(2) as usize, method.reach(3) as usize];
            let begin = [start[0] * 2 - reach[0], start[1] * 3 - reach[1]];
            let end = [(start[0] + shape[0]) * 2 + reach[0], ((start[1] + shape[1]) * 3 + reach[1]).min(21)];
            let part = whole.region(&begin, &[end[0] - begin[0], end[1] - begin[1]], &[1, 1]).unwrap();
            let boxes = Boxes { before: &reach, shape: shape.to_vec() };
            let got = downsample_part(&part, boxes, &[2, 3], method).unwrap();
            let expected = all.region(&start, &shape, &[1, 1]).unwrap().copy(Order::C).unwrap();
            assert!(got.all_equal(&expected, false).unwrap(), "{device} {method:?}");
        }
        for boxes in [Boxes { before: &[0, 21], shape: vec![1, 1] }, Boxes { before: &[0], shape: vec![1, 1] }] {
            let error = downsample_part(&whole, boxes, &[2, 3], Downsampling::Gaussian).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
    assert_eq!([1, 2, 3, 4].map(|factor| Downsampling::Gaussian.reach(factor)), [0, 2, 3, 3]);
    for (dtype, size) in [(DType::INT64, 8), (DType::UINT64, 8), (DType::BOOL, 1)] {
        let array = NdBuffer::from_host(Device::Cpu, dtype, &[4], Order::C, &vec![0; 4 * size]).unwrap();
        let error = downsample(&array, &[2], Downsampling::Gaussian).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{dtype}");
    }
}
