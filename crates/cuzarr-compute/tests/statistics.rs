//! Statistics: what one way through all elements tells, the same on every device.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr::ErrorKind;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store};
use cuzarr_compute::{ComputeOptions, Expr, Progress, Statistics};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata};
use serde_json::json;

fn numbers(dtype: DType, shape: &[usize], values: &[f64]) -> NdBuffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    NdBuffer::from_host(Device::Cpu, DType::FLOAT64, shape, Order::C, &bytes).unwrap().astype(dtype, Order::C).unwrap()
}

fn on(device: Device, memory_limit_bytes: u64) -> ComputeOptions<'static> {
    ComputeOptions::default().with_device(device).with_threads(3).with_memory_limit_bytes(memory_limit_bytes)
}

/// Statistics of elements in memory, which are the same on every device to the last bit.
fn of(elements: &NdBuffer) -> Statistics {
    let known = devices().into_iter().map(|device| {
        let moved = Expr::buffer(elements.to_device(device).unwrap()).unwrap();
        (device, moved.statistics(&on(device, 1 << 30)).unwrap())
    });
    let all: Vec<_> = known.collect();
    for (device, known) in &all[1..] {
        assert_eq!(format!("{known:?}"), format!("{:?}", all[0].1), "{device}");
    }
    all[0].1.clone()
}

/// What they have to be, of elements as binary64.
fn check(known: &Statistics, elements: &NdBuffer, context: &str) {
    let elements = elements.astype(DType::FLOAT64, Order::C).unwrap();
    let elements = elements.host_slice::<f64>().unwrap();
    let finite: Vec<f64> = elements.iter().copied().filter(|x| x.is_finite()).collect();
    let nan = elements.iter().filter(|x| x.is_nan()).count();
    let counts = [finite.len(), nan, elements.len() - finite.len() - nan].map(|count| count as u64);
    assert_eq!([known.finite, known.nan, known.infinite], counts, "{context}");
    assert_eq!(known.count(), elements.len() as u64);
    let range = elements.iter().filter(|x| !x.is_nan()).fold(None, |range, &x| {
        let (low, high) = range.unwrap_or((x, x));
        Some((x.min(low), x.max(high)))
    });
    assert_eq!(known.range, range, "{context}");
    let len = finite.len() as f64;
    let mean = finite.iter().sum::<f64>() / len;
    let std = (finite.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len).sqrt();
    match (known.mean(), known.std()) {
        (None, None) => assert!(finite.is_empty(), "{context}"),
        (Some(own_mean), Some(own_std)) => {
            let tolerance = 1e-12 * finite.iter().fold(0f64, |most, x| most.max(x.abs()));
            assert!((own_mean - mean).abs() <= tolerance, "{context}: mean {own_mean}, expected {mean}");
            assert!((own_std - std).abs() <= 1e-9 * std + tolerance, "{context}: std {own_std}, expected {std}");
        }
        other => panic!("{context}: {other:?}"),
    }
    for most in [2, 16, 64, 1000] {
        let (width, bins) = known.histogram(most);
        assert!(bins.len() <= most && width.log2().fract() == 0.0 || finite.is_empty(), "{context}");
        for (start, count) in &bins {
            let inside = finite.iter().filter(|x| (**x / width).floor() == start / width).count();
            assert_eq!(*count, inside as u64, "{context}: from {start}, {width} wide");
        }
        assert_eq!(bins.iter().map(|bin| bin.1).sum::<u64>(), known.finite, "{context}");
    }
}

#[test]
fn integers_that_binary64_does_not_have_are_counted_exactly() {
    let signed = [i64::MIN, i64::MAX, i64::MAX - 1, (1 << 53) + 1, (1 << 62) - 1, -(1 << 62) - 1];
    let unsigned = [u64::MAX, u64::MAX - 1, (1 << 63) - 1, 1 << 63, (1 << 53) + 1];
    let narrow = [(1 << 60) - 1, (1 << 60) - 3, (1 << 60) + 1000];
    for (dtype, elements) in [
        (DType::INT64, signed.map(i128::from).to_vec()),
        (DType::UINT64, unsigned.map(i128::from).to_vec()),
        (DType::INT64, narrow.to_vec()),
        (DType::UINT64, narrow.to_vec()),
        (DType::INT64, vec![i128::from(i64::MAX); 3]),
    ] {
        let bytes: Vec<u8> = elements.iter().flat_map(|&whole| (whole as u64).to_ne_bytes()).collect();
        let known = of(&NdBuffer::from_host(Device::Cpu, dtype, &[elements.len()], Order::C, &bytes).unwrap());
        let ends = (*elements.iter().min().unwrap(), *elements.iter().max().unwrap());
        assert_eq!(known.whole_range, Some(ends), "{elements:?}");
        let (width, bins) = known.histogram(64);
        for (start, count) in &bins {
            let (from, to) = (*start as i128, (*start + width) as i128);
            let inside = elements.iter().filter(|whole| (from..to).contains(whole)).count();
            assert_eq!(*count, inside as u64, "{elements:?}: from {from} to {to}");
        }
        assert_eq!(bins.iter().map(|bin| bin.1).sum::<u64>(), elements.len() as u64, "{elements:?}");
    }
    assert_eq!(of(&numbers(DType::FLOAT32, &[2], &[1.0, 2.0])).whole_range, None);
}

#[test]
fn numbers_of_any_type_are_counted_on_every_device() {
    let mut dice = Dice(3);
    let values: Vec<f64> = (0..3000).map(|_| dice.below(1 << 20) as f64 / 8192.0).collect();
    let signed: Vec<f64> = values.iter().map(|x| x - 100.3).collect();
    for dtype in [DType::INT8, DType::INT64, DType::FLOAT16, DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64] {
        let elements = numbers(dtype, &[30, 100], &signed);
        check(&of(&elements), &elements, &format!("{dtype}"));
    }
    for dtype in [DType::BOOL, DType::UINT8, DType::UINT32, DType::UINT64] {
        let elements = numbers(dtype, &[3000], &values);
        check(&of(&elements), &elements, &format!("{dtype}"));
    }
    let strided = numbers(DType::FLOAT32, &[30, 100], &signed).transpose(&[1, 0]).unwrap();
    check(&of(&strided), &strided.copy(Order::C).unwrap(), "a view");
}

#[test]
fn what_is_no_finite_number_is_counted_apart() {
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    for values in [
        vec![],
        vec![2.5],
        vec![nan, nan],
        vec![infinity, nan, -infinity],
        vec![infinity; 3],
        vec![1.0, infinity, -7.25, nan, 3e30, -0.0],
        vec![0.0; 40],
        vec![f64::MAX / 2.0, -f64::MAX / 4.0, 1.0],
        vec![5e-324, 0.0, 1e-320],
    ] {
        for dtype in [DType::FLOAT64, DType::FLOAT32] {
            let elements = numbers(dtype, &[values.len()], &values);
            let known = of(&elements);
            // Squares of such numbers are infinite.
            if values.iter().all(|x| !x.is_finite() || x.abs() < 1e200) {
                check(&known, &elements, &format!("{values:?} as {dtype}"));
            }
            assert_eq!(known.histogram(9).1.iter().map(|bin| bin.1).sum::<u64>(), known.finite);
        }
    }
    let one = numbers(DType::INT32, &[], &[-7.0]);
    check(&of(&one), &one, "an element without dimensions");
    let far = [i64::MIN, i64::MAX, 0, -1, i64::MAX].iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>();
    let far = NdBuffer::from_host(Device::Cpu, DType::INT64, &[5], Order::C, &far).unwrap();
    assert_eq!(of(&far).histogram(64).1.iter().map(|bin| bin.1).collect::<Vec<_>>().iter().sum::<u64>(), 5);
}

#[test]
fn an_array_is_read_once_whatever_the_limit_is() {
    let mut dice = Dice(9);
    let shape = [40u64, 33, 50];
    let values: Vec<f64> = (0..40 * 33 * 50)
        .map(|at| if at == 777 { f64::NEG_INFINITY } else { dice.below(1 << 24) as f64 / 3000.0 - f64::from(at) })
        .collect();
    let elements = numbers(DType::FLOAT32, &[40, 33, 50], &values);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let metadata = metadata(&shape, &[7, 16, 50], "float32", json!(0.0), json!([bytes_codec("little")]));
    let array = Array::create(store, "", metadata, false, ArrayOptions::default()).unwrap();
    array.write_buffer(&Selection::all(&shape), &elements).unwrap();
    let expr = Expr::array(array).unwrap();
    let mut histograms = Vec::new();
    for device in devices() {
        for limit_bytes in [1 << 20, 1 << 30] {
            let (read, regions) = (AtomicU64::new(0), AtomicU64::new(0));
            let tell = |now: &Progress| {
                read.fetch_max(now.bytes_done, Ordering::Relaxed);
                regions.fetch_max(now.regions, Ordering::Relaxed);
            };
            let options = on(device, limit_bytes).with_progress(&tell);
            let known = expr.statistics(&options).unwrap();
            check(&known, &elements, &format!("{device}, {limit_bytes} bytes"));
            assert_eq!(read.load(Ordering::Relaxed), 40 * 33 * 50 * 4);
            assert_eq!(regions.load(Ordering::Relaxed) > 1, limit_bytes == 1 << 20);
            histograms.push(known.histogram(128));
        }
    }
    assert!(histograms.windows(2).all(|pair| pair[0] == pair[1]), "bins depend on how regions were cut");
}

#[test]
fn what_has_no_order_is_refused() {
    let complex = Expr::buffer(numbers(DType::COMPLEX64, &[2], &[1.0, 2.0])).unwrap();
    assert_eq!(complex.statistics(&on(Device::Cpu, 1 << 20)).unwrap_err().kind(), ErrorKind::DTypeMismatch);
}
