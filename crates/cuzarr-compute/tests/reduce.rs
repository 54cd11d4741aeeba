//! Reductions: values, types, the same bits on every device and at every run.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store};
use cuzarr_compute::{ComputeOptions, Expr, Op, ReduceOp, Reduction};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata};
use serde_json::json;

fn floats(shape: &[usize], values: &[f32]) -> NdBuffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    NdBuffer::from_host(Device::Cpu, DType::FLOAT32, shape, Order::C, &bytes).unwrap()
}

fn dice(len: usize) -> Vec<f32> {
    let mut dice = Dice(7);
    (0..len).map(|_| dice.below(2000) as f32 / 16.0 - 60.0).collect()
}

fn on(device: Device) -> ComputeOptions<'static> {
    ComputeOptions::default().with_device(device).with_threads(3)
}

/// The result on every device; the bits are the same.
fn everywhere(source: &NdBuffer, reduction: &Reduction) -> NdBuffer {
    let mut first: Option<NdBuffer> = None;
    for device in devices() {
        let moved = source.to_device(Device::Cpu).unwrap();
        // A view keeps its strides when its memory is moved as a whole.
        let memory = moved.buffer().to_device(device).unwrap();
        let moved = NdBuffer::from_parts(memory, moved.dtype(), moved.layout().clone()).unwrap();
        let out = Expr::buffer(moved).unwrap().reduce(reduction, &on(device)).unwrap();
        assert_eq!(out.device(), device);
        let out = out.to_device(Device::Cpu).unwrap();
        match &first {
            None => first = Some(out),
            Some(first) => assert_eq!(
                first.to_host_bytes(Order::C).unwrap(),
                out.to_host_bytes(Order::C).unwrap(),
                "{reduction:?} on {device}"
            ),
        }
    }
    first.unwrap()
}

fn as_f64(buffer: &NdBuffer) -> Vec<f64> {
    buffer.astype(DType::FLOAT64, Order::C).unwrap().host_slice::<f64>().unwrap().to_vec()
}

#[test]
fn sums_over_any_axes_of_any_strides_are_right_to_the_last_bit_or_two() {
    let (shape, values) = ([5, 20, 130], dice(5 * 20 * 130));
    let x = floats(&shape, &values);
    let at = |a: usize, b: usize, c: usize| f64::from(values[(a * 20 + b) * 130 + c]);
    for axes in [vec![0], vec![1], vec![2], vec![0, 1], vec![1, 2], vec![0, 1, 2]] {
        let got = everywhere(&x, &Reduction::new(ReduceOp::Sum, Some(axes.clone())));
        let mut expected = std::collections::BTreeMap::new();
        for (a, b, c) in (0..5).flat_map(|a| (0..20).flat_map(move |b| (0..130).map(move |c| (a, b, c)))) {
            let place: Vec<usize> =
                [a, b, c].iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &at)| at).collect();
            *expected.entry(place).or_insert(0.0) += at(a, b, c);
        }
        // Sixteenths of small numbers: sums are exact in binary64.
        let expected: Vec<f64> = expected.into_values().map(|sum| f64::from(sum as f32)).collect();
        assert_eq!(as_f64(&got), expected, "{axes:?}");
    }
    let turned = x.transpose(&[2, 0, 1]).unwrap().region(&[1, 0, 3], &[64, 5, 8], &[2, 1, 2]).unwrap();
    let got = everywhere(&turned, &Reduction::new(ReduceOp::Mean, Some(vec![1, 2])));
    let mean = |c: usize| {
        let all = (0..5).flat_map(|a| (0..8).map(move |b| at(a, 3 + 2 * b, 1 + 2 * c)));
        f64::from((all.sum::<f64>() / 40.0) as f32)
    };
    assert_eq!(as_f64(&got), (0..64).map(mean).collect::<Vec<_>>());
}

#[test]
fn segments_of_columns_are_joined_in_order() {
    // Many of few columns; few of many.
    for (rows, columns) in [(16_500, 5), (600, 72)] {
        let (values, count) = (dice(rows * columns), columns - 2);
        let x = floats(&[rows, columns], &values).region(&[0, 1], &[rows, count], &[1, 1]).unwrap();
        let column = |at: usize| values.chunks(columns).map(move |row| f64::from(row[1 + at]));
        let run = |op: ReduceOp| as_f64(&everywhere(&x, &Reduction::new(op, Some(vec![0]))));
        let sums: Vec<f64> = (0..count).map(|at| f64::from(column(at).sum::<f64>() as f32)).collect();
        assert_eq!(run(ReduceOp::Sum), sums);
        let greatest = |at| column(at).fold(f64::NEG_INFINITY, f64::max);
        let place = |at| column(at).position(|value| value == greatest(at)).unwrap_or_default() as f64;
        assert_eq!(run(ReduceOp::ArgMax), (0..count).map(place).collect::<Vec<_>>());
    }
}

#[test]
fn more_segments_than_a_block_joins_are_joined_in_order() {
    let rows = 4096 * 256 + 300;
    let values: Vec<f32> = (0..rows * 2).map(|at| ((at * 7919) % 10_007) as f32 / 16.0).collect();
    let x = floats(&[rows, 2], &values);
    let column = |at: usize| values.chunks(2).map(move |row| f64::from(row[at]));
    let sums = as_f64(&everywhere(&x, &Reduction::new(ReduceOp::Sum, Some(vec![0]))));
    assert_eq!(sums, [0, 1].map(|at| f64::from(column(at).sum::<f64>() as f32)));
}

#[test]
fn a_variance_far_from_zero_keeps_its_digits() {
    let values: Vec<f32> = (0..70_000).map(|at| 16_777_216.0 + 2.0 * (at % 5) as f32).collect();
    let x = floats(&[70_000], &values).astype(DType::FLOAT64, Order::C).unwrap();
    let variance = as_f64(&everywhere(&x, &Reduction::new(ReduceOp::Var, None)));
    assert!((variance[0] - 8.0).abs() < 1e-9, "{variance:?}");
    let sample = Reduction { ddof: 1.0, ..Reduction::new(ReduceOp::Std, None) };
    let deviation = as_f64(&everywhere(&x, &sample));
    assert!((deviation[0] - (8.0f64 * 70_000.0 / 69_999.0).sqrt()).abs() < 1e-9);
}

#[test]
fn extremes_are_the_first_of_equals_and_nan_goes_before_all() {
    let mut values = dice(300 * 70);
    (values[5 * 70 + 3], values[8 * 70 + 3], values[9 * 70 + 4]) = (-500.0, -500.0, f32::NAN);
    let x = floats(&[300, 70], &values);
    let places = everywhere(&x, &Reduction::new(ReduceOp::ArgMin, Some(vec![0])));
    assert_eq!(places.dtype(), DType::INT64);
    let places = places.host_slice::<i64>().unwrap().to_vec();
    assert_eq!((places[3], places[4]), (5, 9));
    let skipping = Reduction { skip_nan: true, ..Reduction::new(ReduceOp::ArgMin, None) };
    assert_eq!(everywhere(&x, &skipping).host_slice::<i64>().unwrap(), [5 * 70 + 3]);
    let whole = everywhere(&x, &Reduction::new(ReduceOp::ArgMax, None));
    assert_eq!(whole.host_slice::<i64>().unwrap(), [9 * 70 + 4]);
    assert!(as_f64(&everywhere(&x, &Reduction::new(ReduceOp::Max, None)))[0].is_nan());
    let least = Reduction { skip_nan: true, ..Reduction::new(ReduceOp::Min, None) };
    assert_eq!(as_f64(&everywhere(&x, &least)), [-500.0]);
}

#[test]
fn whole_numbers_wrap_and_truths_are_counted() {
    let x = floats(&[3, 4], &[0.0, 1.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 0.0, 9.0, 10.0, 11.0]);
    let small = x.astype(DType::INT8, Order::C).unwrap();
    let run = |op: ReduceOp, axes: Option<Vec<usize>>| everywhere(&small, &Reduction::new(op, axes));
    assert_eq!(run(ReduceOp::Sum, None).dtype(), DType::INT64);
    assert_eq!(as_f64(&run(ReduceOp::Sum, None)), [54.0]);
    assert_eq!(as_f64(&run(ReduceOp::Prod, Some(vec![0]))), [0.0, 45.0, 120.0, 231.0]);
    assert_eq!(run(ReduceOp::Any, Some(vec![0])).host_slice::<u8>().unwrap(), [0, 1, 1, 1]);
    assert_eq!(run(ReduceOp::All, Some(vec![1])).host_slice::<u8>().unwrap(), [0, 0, 0]);
    assert_eq!(as_f64(&run(ReduceOp::CountNonzero, Some(vec![1]))), [3.0, 3.0, 3.0]);
    assert_eq!(run(ReduceOp::Mean, None).dtype(), DType::FLOAT64);
    assert_eq!(run(ReduceOp::Max, None).dtype(), DType::INT8);
    let kept = Reduction { keepdims: true, ..Reduction::new(ReduceOp::Sum, Some(vec![1])) };
    assert_eq!(everywhere(&small, &kept).shape(), [3, 1]);
    let unsigned = small.astype(DType::UINT16, Order::C).unwrap();
    assert_eq!(everywhere(&unsigned, &Reduction::new(ReduceOp::Sum, None)).dtype(), DType::UINT64);
    let complex = x.astype(DType::COMPLEX64, Order::C).unwrap();
    assert_eq!(as_f64(&everywhere(&complex, &Reduction::new(ReduceOp::Sum, None))), [54.0]);
}

#[test]
fn rows_of_every_length_have_the_same_bits_everywhere() {
    for (rows, length) in [(5, 63), (3, 64), (3, 67), (2, 255), (2, 1023), (2, 1026), (1, 66_000)] {
        let mut values = dice(rows * length);
        let whole = floats(&[rows, length], &values).astype(DType::INT16, Order::C).unwrap();
        values.iter_mut().step_by(29).for_each(|value| *value = f32::NAN);
        values.iter_mut().step_by(31).for_each(|value| *value = -0.0);
        let numbers = floats(&[rows, length], &values);
        for name in ReduceOp::names() {
            let op = ReduceOp::named(name).unwrap();
            let reduction = Reduction::new(op, Some(vec![1]));
            everywhere(&whole, &reduction);
            everywhere(&numbers, &reduction);
            everywhere(&numbers, &Reduction { skip_nan: true, ..reduction.clone() });
            if op == ReduceOp::CountNonzero {
                let count = |row: &[f32]| row.iter().filter(|value| **value != 0.0).count() as f64;
                let expected: Vec<f64> = values.chunks(length).map(count).collect();
                assert_eq!(as_f64(&everywhere(&numbers, &reduction)), expected);
            }
        }
    }
}

#[test]
fn arrays_in_stores_are_reduced_region_by_region() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let metadata = metadata(&[40, 33], &[6, 10], "float32", json!(0), json!([bytes_codec("little")]));
    let array = Array::create(store, "x", metadata, false, ArrayOptions::default()).unwrap();
    let mut values = dice(40 * 33);
    (values[20 * 33 + 5], values[30 * 33 + 5]) = (900.0, 900.0);
    array.write_buffer(&Selection::all(array.shape()), &floats(&[40, 33], &values)).unwrap();
    let x = Expr::array(array).unwrap();
    for device in devices() {
        for memory_limit_bytes in [4 << 10, 8 << 10, 1 << 30] {
            let options = on(device).with_memory_limit_bytes(memory_limit_bytes);
            let rows = x.reduce(&Reduction::new(ReduceOp::Sum, Some(vec![1])), &options).unwrap();
            let expected: Vec<f64> =
                values.chunks(33).map(|row| f64::from(row.iter().map(|&x| f64::from(x)).sum::<f64>() as f32)).collect();
            assert_eq!(as_f64(&rows.to_device(Device::Cpu).unwrap()), expected);
            let place = x.reduce(&Reduction::new(ReduceOp::ArgMax, None), &options).unwrap();
            assert_eq!(place.to_host_bytes(Order::C).unwrap(), (20 * 33 + 5i64).to_ne_bytes());
            // Less the mean of its column: every column's mean is 0 then.
            let mean = x.reduced(Reduction::new(ReduceOp::Mean, Some(vec![0]))).unwrap();
            let centred = Expr::apply(Op::Subtract, &[x.clone().into(), mean.into()]).unwrap();
            let means = centred.reduce(&Reduction::new(ReduceOp::Mean, Some(vec![0])), &options).unwrap();
            assert!(as_f64(&means.to_device(Device::Cpu).unwrap()).iter().all(|mean| mean.abs() < 1e-4));
        }
    }
}

#[test]
fn many_results_are_gathered_on_the_device_as_on_the_host() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let metadata = metadata(&[22, 3, 75], &[4, 2, 20], "float32", json!(0), json!([bytes_codec("little")]));
    let array = Array::create(store, "x", metadata, false, ArrayOptions::default()).unwrap();
    let mut values = dice(22 * 3 * 75);
    (0..40).for_each(|at| values[at * 97] = f32::NAN);
    array.write_buffer(&Selection::all(array.shape()), &floats(&[22, 3, 75], &values)).unwrap();
    let x = Expr::array(array).unwrap();
    for op in [ReduceOp::Prod, ReduceOp::Std, ReduceOp::Max, ReduceOp::ArgMax, ReduceOp::All] {
        for axes in [vec![0], vec![0, 1]] {
            if op == ReduceOp::ArgMax && axes.len() > 1 {
                continue;
            }
            let skip_nan = op != ReduceOp::ArgMax;
            let reduction = Reduction { skip_nan, ..Reduction::new(op, Some(axes)) };
            let run = |device: Device| {
                let options = on(device).with_memory_limit_bytes(16 << 10);
                let result = x.reduce(&reduction, &options).unwrap();
                assert_eq!(result.device(), device);
                (result.shape().to_vec(), result.to_host_bytes(Order::C).unwrap())
            };
            let expected = run(Device::Cpu);
            devices().into_iter().for_each(|device| assert_eq!(run(device), expected, "{reduction:?} on {device}"));
        }
    }
}

#[test]
fn runs_of_regions_have_the_bits_of_one_machine_wherever_their_parts_are_made() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shape = [40, 100, 90];
    let metadata = metadata(&[40, 100, 90], &[3, 40, 90], "float32", json!(0), json!([bytes_codec("little")]));
    let array = Array::create(store, "x", metadata, false, ArrayOptions::default()).unwrap();
    let mut values = dice(40 * 100 * 90);
    (0..800).for_each(|at| values[at * 449] = f32::NAN);
    array.write_buffer(&Selection::all(array.shape()), &floats(&shape, &values)).unwrap();
    let x = Expr::array(array).unwrap();
    // A GPU gathers within the first limit. Within the second the host does, and there is no room for runs.
    for (memory_limit_bytes, expected_count) in [(3 << 20, 14), (1 << 20, 42)] {
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Var, ReduceOp::Max, ReduceOp::ArgMin, ReduceOp::Any] {
            let skip_nan = op != ReduceOp::ArgMin;
            let reduction = Reduction { skip_nan, ..Reduction::new(op, Some(vec![0])) };
            let plan = x.reduced(reduction.clone()).unwrap();
            let own = |device| on(device).with_memory_limit_bytes(memory_limit_bytes);
            let expected = x.reduce(&reduction, &own(Device::Cpu)).unwrap().to_host_bytes(Order::C).unwrap();
            let count = plan.summary_parts(&own(Device::Cpu)).unwrap().unwrap();
            assert_eq!(count, expected_count, "parts of 42 regions");
            for device in devices() {
                let there = x.reduce(&reduction, &own(device)).unwrap().to_host_bytes(Order::C).unwrap();
                assert_eq!(there, expected, "{reduction:?} on {device}");
                assert_eq!(plan.summary_parts(&own(device)).unwrap(), Some(count));
                let mut parts = (0..count).map(|number| plan.summary_part(number, &own(device)));
                let joined = plan.join_summary(&mut parts, &own(Device::Cpu)).unwrap();
                assert_eq!(joined.to_host_bytes(Order::C).unwrap(), expected, "parts of {reduction:?} on {device}");
            }
            let beyond = plan.summary_part(count, &own(Device::Cpu)).unwrap_err();
            assert!(beyond.to_string().contains("expected a number below"), "{beyond}");
            let mut short = (0..count).map(|_| Ok(vec![0; 24]));
            let refused = plan.join_summary(&mut short, &own(Device::Cpu)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        }
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let x = Expr::buffer(floats(&[0, 3], &[])).unwrap();
    let run =
        |expr: &Expr, op: ReduceOp, axes: Option<Vec<usize>>| expr.reduce(&Reduction::new(op, axes), &on(Device::Cpu));
    assert_eq!(run(&x, ReduceOp::Min, None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(as_f64(&run(&x, ReduceOp::Sum, Some(vec![0])).unwrap()), [0.0; 3]);
    assert!(as_f64(&run(&x, ReduceOp::Mean, None).unwrap())[0].is_nan());
    assert_eq!(run(&x, ReduceOp::Sum, Some(vec![2])).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(run(&x, ReduceOp::Sum, Some(vec![1, 1])).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let complex = Expr::buffer(floats(&[2], &[1.0, 2.0]).astype(DType::COMPLEX64, Order::C).unwrap()).unwrap();
    assert_eq!(run(&complex, ReduceOp::Max, None).unwrap_err().kind(), ErrorKind::DTypeMismatch);
}
