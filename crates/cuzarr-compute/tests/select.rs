//! Quantiles and histograms: exact, the same on every device and under every memory limit.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store};
use cuzarr_compute::{ComputeOptions, Expr, Histogram, Quantile, QuantileMethod};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata};
use serde_json::json;

fn floats(shape: &[usize], values: &[f64]) -> NdBuffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    NdBuffer::from_host(Device::Cpu, DType::FLOAT64, shape, Order::C, &bytes).unwrap()
}

/// Numbers of many sizes and both signs, some of them several times.
fn dice(len: usize) -> Vec<f64> {
    let mut dice = Dice(11);
    let number = |dice: &mut Dice| {
        let size = 2f64.powi(dice.below(8) as i32 - 3);
        (dice.below(400) as f64 - 190.0) * size
    };
    (0..len).map(|_| number(&mut dice)).collect()
}

fn as_f64(buffer: &NdBuffer) -> Vec<f64> {
    let host = buffer.to_device(Device::Cpu).unwrap();
    host.astype(DType::FLOAT64, Order::C).unwrap().host_slice::<f64>().unwrap().to_vec()
}

fn stored(values: &NdBuffer, chunk: &[u64]) -> Expr {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shape: Vec<u64> = values.shape().iter().map(|&extent| extent as u64).collect();
    let metadata = metadata(&shape, chunk, &values.dtype().to_string(), json!(0), json!([bytes_codec("little")]));
    let array = Array::create(store, "x", metadata, false, ArrayOptions::default()).unwrap();
    array.write_buffer(&Selection::all(array.shape()), values).unwrap();
    Expr::array(array).unwrap()
}

fn on(device: Device, memory_limit_bytes: u64) -> ComputeOptions<'static> {
    ComputeOptions::default().with_device(device).with_threads(3).with_memory_limit_bytes(memory_limit_bytes)
}

/// The element at a place of a row, when it is sorted.
fn ranked(row: impl Iterator<Item = f64>, rank: usize) -> f64 {
    let mut row: Vec<f64> = row.collect();
    row.sort_by(f64::total_cmp);
    row[rank]
}

#[test]
fn quantiles_of_every_type_are_elements_of_their_rank() {
    let values = dice(3000);
    for dtype in [DType::UINT8, DType::INT16, DType::FLOAT16, DType::INT32, DType::FLOAT32, DType::INT64] {
        let x = floats(&[3000], &values).astype(dtype, Order::C).unwrap();
        let rounded = as_f64(&x);
        let lower = Quantile::new(vec![0.0, 0.1, 0.5, 0.9, 1.0], QuantileMethod::Lower);
        let expected: Vec<f64> = [0, 299, 1499, 2699, 2999].map(|rank| ranked(rounded.iter().copied(), rank)).to_vec();
        for device in devices() {
            let x = Expr::buffer(x.to_device(device).unwrap()).unwrap().quantile(lower.clone()).unwrap();
            assert_eq!(x.dtype(), dtype);
            assert_eq!(as_f64(&x.compute(&on(device, 1 << 30)).unwrap()), expected, "{dtype} on {device}");
        }
    }
}

#[test]
fn medians_over_any_axis_are_the_same_under_every_limit() {
    let (shape, values) = ([30usize, 7, 40], dice(30 * 7 * 40));
    let x = floats(&shape, &values);
    let expr = stored(&x, &[4, 1, 9]);
    let at = |a: usize, b: usize, c: usize| values[(a * 7 + b) * 40 + c];
    for device in devices() {
        // In one piece; in columns of chunks; in passes, because not even one of them fits.
        for limit in [1 << 30, 128 << 10, 18 << 10] {
            let median = Quantile { axes: Some(vec![0]), ..Quantile::new(vec![0.5], QuantileMethod::Median) };
            let got = expr.quantile(Quantile { scalar: true, ..median }).unwrap().compute(&on(device, limit)).unwrap();
            assert_eq!(got.shape(), [7, 40]);
            let column = |b: usize, c: usize, rank: usize| ranked((0..30).map(|a| at(a, b, c)), rank);
            let expected: Vec<f64> = (0..7 * 40)
                .map(|place| (column(place / 40, place % 40, 14) + column(place / 40, place % 40, 15)) / 2.0)
                .collect();
            assert_eq!(as_f64(&got), expected, "axis 0 on {device} within {limit}");
            let row = Quantile {
                axes: Some(vec![1, 2]),
                keepdims: true,
                ..Quantile::new(vec![0.25, 0.75], QuantileMethod::Higher)
            };
            let got = expr.quantile(row).unwrap().compute(&on(device, limit)).unwrap();
            assert_eq!(got.shape(), [2, 30, 1, 1]);
            let of_row = |a: usize, rank: usize| ranked((0..280).map(|n| at(a, n / 40, n % 40)), rank);
            let expected: Vec<f64> = (0..60).map(|n| of_row(n % 30, if n < 30 { 70 } else { 210 })).collect();
            assert_eq!(as_f64(&got), expected, "axes 1 and 2 on {device} within {limit}");
            let whole = expr.quantile(Quantile::new(vec![0.3], QuantileMethod::Nearest)).unwrap();
            let expected = ranked(values.iter().copied(), (0.3 * 8399.0f64).round_ties_even() as usize);
            assert_eq!(as_f64(&whole.compute(&on(device, limit)).unwrap()), [expected]);
        }
    }
}

#[test]
fn nan_makes_a_quantile_nan_unless_it_is_left_out() {
    let mut values = dice(64 * 5);
    (values[3], values[8], values[13], values[318]) = (f64::NAN, f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    (0..64).for_each(|row| values[row * 5 + 4] = f64::NAN);
    let x = floats(&[64, 5], &values);
    for device in devices() {
        let x = Expr::buffer(x.to_device(device).unwrap()).unwrap();
        let median = Quantile { axes: Some(vec![0]), ..Quantile::new(vec![0.5], QuantileMethod::Linear) };
        let got = as_f64(&x.quantile(median.clone()).unwrap().compute(&on(device, 1 << 30)).unwrap());
        assert_eq!(got.iter().map(|value| value.is_nan()).collect::<Vec<_>>(), [false, false, false, true, true]);
        let skipping = Quantile { skip_nan: true, ..median };
        let got = as_f64(&x.quantile(skipping).unwrap().compute(&on(device, 1 << 30)).unwrap());
        let column: Vec<f64> = (0..64).map(|row| values[row * 5 + 3]).filter(|value| !value.is_nan()).collect();
        let (a, b) = (ranked(column.iter().copied(), 30), ranked(column.iter().copied(), 31));
        assert_eq!(column.len(), 62);
        assert_eq!((got[3], got[4].is_nan()), (b - (b - a) * 0.5, true));
    }
}

#[test]
fn short_rows_of_every_type_are_the_same_on_every_device() {
    let (shape, mut values) = ([37usize, 50], dice(37 * 50));
    (0..37).for_each(|row| values[row * 50 + row] = -0.0);
    for dtype in [DType::BOOL, DType::INT16, DType::BFLOAT16, DType::FLOAT32, DType::UINT64] {
        let mut values = values.clone();
        if matches!(dtype, DType::BFLOAT16 | DType::FLOAT32) {
            (values[7], values[407], values[1001]) = (f64::NAN, f64::NAN, f64::INFINITY);
        }
        let x = floats(&shape, &values).astype(dtype, Order::C).unwrap();
        let methods = [QuantileMethod::Higher, QuantileMethod::Median, QuantileMethod::Weibull];
        for method in methods.into_iter().filter(|&method| dtype != DType::BOOL || method != QuantileMethod::Weibull) {
            for (axis, skip_nan) in [(0, true), (0, false), (1, true)] {
                let quantile =
                    Quantile { axes: Some(vec![axis]), skip_nan, ..Quantile::new(vec![0.1, 0.5, 0.93], method) };
                let on_device = |device| {
                    let x = Expr::buffer(x.to_device(device).unwrap()).unwrap();
                    as_f64(&x.quantile(quantile.clone()).unwrap().compute(&on(device, 1 << 30)).unwrap())
                };
                let expected = on_device(Device::Cpu);
                for device in devices() {
                    let same = on_device(device).iter().zip(&expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                    assert!(same, "{dtype} {method:?} along {axis} on {device}, NaN left out: {skip_nan}");
                }
            }
        }
    }
}

#[test]
fn long_rows_of_every_type_are_the_same_on_every_device() {
    for device in devices() {
        // Rows are long where they are not sorted, and searched where there are many.
        let [rows, elems] = if device == Device::Simt { [37, 50] } else { [130, 4200] };
        for dtype in [DType::INT8, DType::FLOAT16, DType::FLOAT64] {
            let mut values = dice(rows * elems);
            values.iter_mut().step_by(3).for_each(|value| *value = value.round());
            if dtype != DType::INT8 {
                values[..elems].fill(f64::NAN);
                (values[elems + 7], values[3 * elems], values[3 * elems + 1]) = (f64::NAN, -0.0, f64::INFINITY);
            }
            let x = floats(&[rows, elems], &values).astype(dtype, Order::C).unwrap();
            let across = x.copy(Order::F).unwrap();
            for (q, method) in
                [(0.5, QuantileMethod::Median), (0.93, QuantileMethod::Linear), (0.0, QuantileMethod::Lower)]
            {
                for (x, skip_nan) in [(&x, true), (&x, false), (&across, true)] {
                    let quantile = Quantile { axes: Some(vec![1]), skip_nan, ..Quantile::new(vec![q], method) };
                    let on_device = |device| {
                        let x = Expr::buffer(x.to_device(device).unwrap()).unwrap();
                        as_f64(&x.quantile(quantile.clone()).unwrap().compute(&on(device, 1 << 30)).unwrap())
                    };
                    let (own, expected) = (on_device(device), on_device(Device::Cpu));
                    let same = own.iter().zip(&expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                    assert!(same, "{dtype} {method:?} on {device}, NaN left out: {skip_nan}");
                }
            }
        }
    }
}

#[test]
fn counts_lie_between_edges_and_the_last_bin_is_closed() {
    let values: Vec<f64> = dice(4000).into_iter().chain([f64::NAN, f64::INFINITY, -0.0, 0.0, 10.0]).collect();
    let x = floats(&[values.len()], &values);
    let edges = [-20.0, -1.5, 0.0, 0.0, 0.25, 10.0];
    let expected: Vec<f64> = edges
        .windows(2)
        .enumerate()
        .map(|(bin, pair)| {
            let inside = |x: &&f64| **x >= pair[0] && (**x < pair[1] || (bin == 4 && **x == pair[1]));
            values.iter().filter(inside).count() as f64
        })
        .collect();
    let stored = stored(&x, &[600]);
    for device in devices() {
        for (expr, limit) in [(&stored, 64 << 10), (&Expr::buffer(x.clone()).unwrap(), 1 << 30)] {
            let (counts, back) = expr.histogram(Histogram::between(&floats(&[6], &edges)).unwrap()).unwrap();
            assert_eq!((counts.dtype(), counts.shape()), (DType::INT64, &[5u64][..]));
            assert_eq!(as_f64(&counts.compute(&on(device, limit)).unwrap()), expected);
            assert_eq!(as_f64(&back.compute(&on(device, limit)).unwrap()), edges);
        }
    }
}

#[test]
fn even_bins_take_their_range_from_the_elements() {
    let x = floats(&[6], &[1.0, 2.0, 2.5, 4.0, 5.0, 5.0]);
    let whole = x.astype(DType::INT16, Order::C).unwrap();
    for device in devices() {
        let run = |x: &NdBuffer, histogram: Histogram| {
            let (counts, edges) = stored(x, &[4]).histogram(histogram).unwrap();
            let options = on(device, 1 << 20);
            (as_f64(&counts.compute(&options).unwrap()), edges.compute(&options).unwrap())
        };
        let (counts, edges) = run(&x, Histogram::new(4, None));
        assert_eq!((counts, as_f64(&edges)), (vec![1.0, 2.0, 0.0, 3.0], vec![1.0, 2.0, 3.0, 4.0, 5.0]));
        let (counts, edges) = run(&whole, Histogram::new(2, Some((2.0, 4.0))));
        assert_eq!((counts, edges.dtype()), (vec![2.0, 1.0], DType::FLOAT64));
        let (shares, _) = run(&x, Histogram::new(2, None).density(true));
        assert_eq!(shares, [0.25, 0.25]);
        let (counts, edges) = run(&floats(&[3], &[7.0; 3]), Histogram::new(1, None));
        assert_eq!((counts, as_f64(&edges)), (vec![3.0], vec![6.5, 7.5]));
    }
}

#[test]
fn bins_of_every_number_and_type_count_the_same_on_every_device() {
    let mut values = dice(3000);
    values.iter_mut().step_by(7).for_each(|value| *value = value.round());
    for dtype in
        [DType::UINT8, DType::INT16, DType::FLOAT16, DType::INT32, DType::FLOAT32, DType::INT64, DType::FLOAT64]
    {
        let mut values = values.clone();
        if matches!(dtype.kind(), cuzarr_device::DTypeKind::Float) {
            values[5..9].copy_from_slice(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]);
        }
        let x = floats(&[3000], &values).astype(dtype, Order::C).unwrap();
        // Side by side, from an odd place on, apart, and in two dimensions.
        let views = |x: &NdBuffer| {
            let part = |start: usize, count: usize, step: usize| x.region(&[start], &[count], &[step]).unwrap();
            [
                part(0, 3000, 1),
                part(1, 2998, 1),
                part(3, 900, 3),
                x.reshape(&[30, 100]).unwrap().transpose(&[1, 0]).unwrap(),
            ]
        };
        for bins in [1, 2, 50, 300, 1024, 1025] {
            let even: Vec<f64> = (0..=bins).map(|at| f64::from(at) * 96.0 / f64::from(bins) - 20.0).collect();
            let uneven: Vec<f64> = even.iter().map(|edge| edge.powi(3) / 50.0).collect();
            for edges in [even, uneven] {
                let mut edges = as_f64(&floats(&[edges.len()], &edges).astype(dtype, Order::C).unwrap());
                edges.sort_by(f64::total_cmp);
                let edges = floats(&[edges.len()], &edges).astype(dtype, Order::C).unwrap();
                let counts = |device, view: usize| {
                    let x = Expr::buffer(views(&x.to_device(device).unwrap())[view].clone()).unwrap();
                    let (counts, _) = x.histogram(Histogram::between(&edges).unwrap()).unwrap();
                    as_f64(&counts.compute(&on(device, 1 << 30)).unwrap())
                };
                for (view, device) in (0..4).flat_map(|view| devices().into_iter().map(move |device| (view, device))) {
                    assert_eq!(
                        counts(device, view),
                        counts(Device::Cpu, view),
                        "{bins} of {dtype} on {device}, {view}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let x = Expr::buffer(floats(&[4], &[1.0, 2.0, 3.0, f64::NAN])).unwrap();
    let options = on(Device::Cpu, 1 << 30);
    let kind = |outcome: cuzarr::Result<Expr>| outcome.unwrap_err().kind();
    assert_eq!(kind(x.quantile(Quantile::new(vec![1.5], QuantileMethod::Linear))), ErrorKind::InvalidArgument);
    let axis = Quantile { axes: Some(vec![1]), ..Quantile::new(vec![0.5], QuantileMethod::Linear) };
    assert_eq!(kind(x.quantile(axis)), ErrorKind::InvalidArgument);
    let complex = x.astype(DType::COMPLEX128).unwrap();
    assert_eq!(kind(complex.quantile(Quantile::new(vec![0.5], QuantileMethod::Lower))), ErrorKind::DTypeMismatch);
    let histogram = |histogram: Histogram| x.histogram(histogram).map(|both| both.0);
    assert_eq!(kind(histogram(Histogram::new(0, None))), ErrorKind::InvalidArgument);
    assert_eq!(kind(histogram(Histogram::new(3, Some((2.0, 1.0))))), ErrorKind::InvalidArgument);
    for edges in [vec![1.0, 0.0], vec![1.0], vec![0.0, f64::NAN]] {
        let edges = floats(&[edges.len()], &edges);
        assert_eq!(kind(histogram(Histogram::between(&edges).unwrap())), ErrorKind::InvalidArgument);
    }
    let counts = histogram(Histogram::new(3, None)).unwrap();
    let error = counts.compute(&options).unwrap_err();
    assert!(error.message().contains("NaN") && error.kind() == ErrorKind::InvalidArgument, "{error}");
    let nothing = Expr::buffer(floats(&[0], &[])).unwrap();
    let median = nothing.quantile(Quantile::new(vec![0.5], QuantileMethod::Linear)).unwrap();
    assert_eq!(median.compute(&options).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let many = stored(&floats(&[64], &[0.5; 64]), &[8]).quantile(Quantile::new(vec![0.5; 9], QuantileMethod::Linear));
    assert_eq!(many.unwrap().compute(&on(Device::Cpu, 400)).unwrap_err().kind(), ErrorKind::BudgetExceeded);
}
