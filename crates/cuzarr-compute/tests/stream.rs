//! Expressions of arrays in stores: computed and stored region by region, within the memory limit.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

mod checkpoints;

use std::sync::Arc;

use checkpoints::sealed;
use cuzarr::internal::node::with_store;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{Along, ComputeOptions, Expr, Op, Operand, Pick, PickedDim, ReduceOp, Reduction};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

fn create(store: &Arc<dyn Store>, path: &str, shape: &[u64], chunks: &[u64], codecs: Value) -> Array {
    let metadata = metadata(shape, chunks, "int32", json!(0), codecs);
    Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap()
}

fn plain() -> Value {
    json!([bytes_codec("little"), zstd_codec()])
}

/// An array of 0, 1, 2, ….
fn counting(store: &Arc<dyn Store>, path: &str, shape: &[u64], chunks: &[u64]) -> (Array, Vec<i32>) {
    let array = create(store, path, shape, chunks, plain());
    let values: Vec<i32> = (0..shape.iter().product::<u64>() as i32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &bytes).unwrap();
    array.write_buffer(&Selection::all(array.shape()), &value).unwrap();
    (array, values)
}

fn of(array: &Array) -> Operand {
    Expr::array(array.clone()).unwrap().into()
}

fn bytes(values: impl Iterator<Item = i32>) -> Vec<u8> {
    values.flat_map(i32::to_ne_bytes).collect()
}

/// Limits from just enough for one chunk at a time up to everything at once.
const LIMITS: [u64; 4] = [4 << 10, 8 << 10, 64 << 10, 1 << 30];

#[test]
fn results_are_the_same_whatever_the_limit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, values) = counting(&store, "x", &[37, 50], &[5, 8]);
    let (row, _) = counting(&store, "row", &[50], &[7]);
    let twice = Expr::apply(Op::Multiply, &[of(&x), 2i64.into()]).unwrap();
    let sum = Expr::apply(Op::Add, &[twice.into(), of(&row)]).unwrap();
    let expected = bytes(values.iter().enumerate().map(|(at, value)| value * 2 + (at % 50) as i32));
    for device in devices() {
        for memory_limit_bytes in LIMITS {
            let options = ComputeOptions::default()
                .with_device(device)
                .with_memory_limit_bytes(memory_limit_bytes)
                .with_threads(2);
            let out = sum.compute(&options).unwrap();
            assert_eq!((out.device(), out.shape()), (device, &[37, 50][..]));
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), expected, "{device}, {memory_limit_bytes}");
            let part = sum.compute_region(&[3, 40], &[20, 9], &options).unwrap();
            let wanted = out.region(&[3, 40], &[20, 9], &[1, 1]).unwrap();
            assert_eq!(part.to_host_bytes(Order::C).unwrap(), wanted.to_host_bytes(Order::C).unwrap());
        }
    }
}

#[test]
fn work_that_was_interrupted_goes_on_behind_what_is_finished() {
    for device in devices() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (x, values) = counting(&store, "x", &[40, 50], &[5, 50]);
        let target = create(&store, "y", &[40, 50], &[5, 50], plain());
        let negative = Expr::apply(Op::Negative, &[of(&x)]).unwrap();
        let options = ComputeOptions::default().with_device(device).with_memory_limit_bytes(16 << 10).with_threads(2);
        let chunk = |path: &str, row: u64| format!("{path}/c/{row}/0");
        let (whole, first) = (store.get(&chunk("x", 6)).unwrap().unwrap(), chunk("y", 0));
        store.write(&chunk("x", 6), b"damaged").unwrap();
        negative.store_resumable(&target, &options).unwrap_err();
        assert!(store.get(&first).unwrap().is_some() && store.get(&chunk("y", 7)).unwrap().is_none());
        // Whoever computes it again would write it again.
        store.delete(&first).unwrap();
        store.write(&chunk("x", 6), &whole).unwrap();
        negative.store_resumable(&target, &options).unwrap();
        let read =
            |rows: u64| target.read_buffer(&Selection::region(&[5 * rows, 0], &[40 - 5 * rows, 50]).unwrap()).unwrap();
        assert!(store.get(&first).unwrap().is_none(), "what was finished is computed again");
        assert_eq!(read(1).to_host_bytes(Order::C).unwrap(), bytes(values[250..].iter().map(|value| -value)));
        assert!(!store.list("y").unwrap().iter().any(|key| key.contains("work")));
        // It is complete, so the next call begins anew; and so does one behind other work on the same chunks.
        negative.store_resumable(&target, &options).unwrap();
        assert_eq!(read(0).to_host_bytes(Order::C).unwrap(), bytes(values.iter().map(|value| -value)));
        store.write(&chunk("x", 6), b"damaged").unwrap();
        negative.store_resumable(&target, &options).unwrap_err();
        store.write(&chunk("x", 6), &whole).unwrap();
        Expr::array(x.clone()).unwrap().store(&target, &options).unwrap();
        negative.store_resumable(&target, &options).unwrap();
        assert_eq!(read(0).to_host_bytes(Order::C).unwrap(), bytes(values.iter().map(|value| -value)));
    }
}

#[test]
fn what_another_version_or_damage_left_is_not_trusted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, values) = counting(&store, "x", &[40, 50], &[5, 50]);
    let target = create(&store, "y", &[40, 50], &[5, 50], plain());
    let negative = Expr::apply(Op::Negative, &[of(&x)]).unwrap();
    let options = ComputeOptions::default().with_memory_limit_bytes(16 << 10).with_threads(2);
    let key = "y/.cuzarr-work.json";
    let whole = store.get("x/c/6/0").unwrap().unwrap();
    store.write("x/c/6/0", b"damaged").unwrap();
    negative.store_resumable(&target, &options).unwrap_err();
    store.write("x/c/6/0", &whole).unwrap();
    let good: Value = serde_json::from_slice(&store.get(key).unwrap().unwrap()).unwrap();
    assert!(good["version"] == 3 && good["passes"][0]["finished"].as_u64() > Some(0), "{good:#}");
    let with = |member: &str, value: Value| {
        let mut document = good.clone();
        document[member] = value;
        document
    };
    let of_version_1 = json!({"of": {"work": "", "target": [], "region_shape": [5, 50]}, "finished": 7});
    for bytes in [
        of_version_1.to_string().into_bytes(),
        b"damaged".to_vec(),
        sealed(with("version", json!(4))),
        sealed(with("work", json!("another"))),
        sealed(with("target", json!("another"))),
        sealed(with("passes", json!([{"chunk_shape": [5, 50], "region_shape": [1, 1], "finished": 7}]))),
        with("passes", json!([{"chunk_shape": [5, 50], "region_shape": [5, 50], "finished": 7}]))
            .to_string()
            .into_bytes(),
    ] {
        target
            .write_buffer(
                &Selection::all(target.shape()),
                &NdBuffer::from_host(Device::Cpu, DType::INT32, &[40, 50], Order::C, &[0; 8000]).unwrap(),
            )
            .unwrap();
        store.write(key, &bytes).unwrap();
        negative.store_resumable(&target, &options).unwrap();
        let read = target.read_buffer(&Selection::all(target.shape())).unwrap();
        let expected = self::bytes(values.iter().map(|value| -value));
        assert_eq!(read.to_host_bytes(Order::C).unwrap(), expected, "{}", String::from_utf8_lossy(&bytes));
        assert!(store.get(key).unwrap().is_none());
    }
}

#[test]
fn work_that_differs_deep_inside_is_not_gone_on_with() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 50]);
    let target = create(&store, "y", &[40, 50], &[5, 50], plain());
    let options = ComputeOptions::default().with_memory_limit_bytes(20 << 10).with_threads(2);
    // Texts of both are the same: what lies deep inside is left out of them.
    let chain = |innermost: i64| {
        let begun = Expr::apply(Op::Add, &[of(&x), Operand::from(innermost)]).unwrap();
        (0..12).fold(begun, |inner, _| Expr::apply(Op::Add, &[inner.into(), 1i64.into()]).unwrap())
    };
    assert_eq!(chain(5).to_string(), chain(7).to_string());
    let mean = |ddof: f64| {
        let deviation = Reduction { ddof, ..Reduction::new(ReduceOp::Var, None) };
        let deviation = Expr::array(x.clone()).unwrap().reduced(deviation).unwrap();
        Expr::apply(Op::Add, &[of(&x), deviation.into()]).unwrap()
    };
    for (first, second) in [(chain(5), chain(7)), (mean(0.0), mean(1.0))] {
        let expected = second.compute(&options).unwrap().astype(DType::INT32, Order::C).unwrap();
        let failing = Observed::new(Arc::clone(&store)).with_failure(|operation| match operation {
            Operation::Write(key, _) if key == "y/c/6/0" => Some(Error::new(ErrorKind::StoreFailed, "the power went")),
            _ => None,
        });
        first.store_resumable(&with_store(&target, Arc::new(failing)), &options).unwrap_err();
        assert!(store.get("y/.cuzarr-work.json").unwrap().is_some());
        second.store_resumable(&target, &options).unwrap();
        let read = target.read_buffer(&Selection::all(target.shape())).unwrap();
        assert_eq!(read.to_host_bytes(Order::C).unwrap(), expected.to_host_bytes(Order::C).unwrap());
    }
}

#[test]
fn stored_results_are_what_computed_ones_are() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, values) = counting(&store, "x", &[37, 50], &[5, 8]);
    let negative = Expr::apply(Op::Negative, &[of(&x)]).unwrap();
    let shards = sharding(&[4, 5], json!([bytes_codec("little"), zstd_codec()]), "end");
    for device in devices() {
        for (number, memory_limit_bytes) in LIMITS.into_iter().enumerate() {
            for (kind, chunks, codecs) in [("plain", [6, 11], plain()), ("sharded", [8, 10], shards.clone())] {
                let target = create(&store, &format!("{kind}-{number}-{device}"), &[37, 50], &chunks, codecs);
                let options = ComputeOptions::default()
                    .with_device(device)
                    .with_memory_limit_bytes(memory_limit_bytes)
                    .with_threads(2);
                negative.store(&target, &options).unwrap();
                let read = target.read_buffer(&Selection::all(target.shape())).unwrap();
                assert_eq!(read.to_host_bytes(Order::C).unwrap(), bytes(values.iter().map(|value| -value)));
            }
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_written() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 40], &[10, 10]);
    let sum = Expr::apply(Op::Add, &[of(&x), 1i64.into()]).unwrap();
    let options = ComputeOptions::default().with_device(Device::Cpu).with_memory_limit_bytes(1000).with_threads(1);
    assert_eq!(sum.compute(&options).unwrap_err().kind(), ErrorKind::BudgetExceeded);
    let enough = options.with_memory_limit_bytes(1 << 20);
    let again = Array::open(Arc::clone(&store), "x", ArrayOptions::default()).unwrap();
    assert_eq!(sum.store(&again, &enough).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(sum.refuse_overlap(&store, "x/inside").unwrap_err().kind(), ErrorKind::InvalidArgument);
    sum.refuse_overlap(&store, "x2").unwrap();
    let other = create(&store, "other", &[40, 41], &[10, 10], plain());
    assert_eq!(sum.store(&other, &enough).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let target = create(&store, "target", &[40, 40], &[40, 40], plain());
    let small = options.with_memory_limit_bytes(8000);
    assert_eq!(sum.store(&target, &small).unwrap_err().kind(), ErrorKind::BudgetExceeded);
    assert_eq!(target.nchunks_initialized().unwrap() + other.nchunks_initialized().unwrap(), 0);
}

#[test]
fn an_array_that_is_used_twice_is_read_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, values) = counting(&store, "x", &[16], &[4]);
    let square = Expr::apply(Op::Multiply, &[of(&x), of(&x)]).unwrap();
    let reads = std::sync::atomic::AtomicUsize::new(0);
    let wrap = |store: &Arc<dyn Store>| {
        reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::clone(store)
    };
    let options = ComputeOptions::default().with_wrap(&wrap);
    let out = square.compute(&options).unwrap();
    assert_eq!(out.to_host_bytes(Order::C).unwrap(), bytes(values.iter().map(|value| value * value)));
    assert_eq!(reads.into_inner(), 1);
}

#[test]
fn reductions_are_the_same_bits_on_every_device_whatever_chunks_are_missing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shards = sharding(&[3, 5], json!([bytes_codec("little"), zstd_codec()]), "end");
    for (path, chunks, codecs) in [("plain", [5, 8], plain()), ("sharded", [6, 10], shards)] {
        let metadata = metadata(&[37, 50], &chunks, "float32", json!(0.25), codecs);
        let array = Array::create(Arc::clone(&store), path, metadata, false, ArrayOptions::default()).unwrap();
        let values: Vec<u8> = (0..37 * 50).flat_map(|at| (1.0 / (at as f32 + 3.0)).to_ne_bytes()).collect();
        let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[37, 50], Order::C, &values).unwrap();
        array.write_buffer(&Selection::all(array.shape()), &value).unwrap();
        for missing in ["c/0/0", "c/2/3", "c/3/3", "c/6/4"] {
            store.delete(&format!("{path}/{missing}")).unwrap();
        }
        let whole = array.read_buffer(&Selection::all(array.shape())).unwrap();
        let roots = Expr::apply(Op::Sqrt, &[of(&array)]).unwrap();
        for memory_limit_bytes in [4 << 10, 16 << 10] {
            for (op, axes) in
                [(ReduceOp::Mean, None), (ReduceOp::Var, Some(vec![0])), (ReduceOp::ArgMax, Some(vec![1]))]
            {
                let reduction = Reduction::new(op, axes);
                let run = |device| {
                    let options = ComputeOptions::default()
                        .with_device(device)
                        .with_memory_limit_bytes(memory_limit_bytes)
                        .with_threads(3);
                    let result = roots.reduce(&reduction, &options).unwrap();
                    result.to_host_bytes(Order::C).unwrap()
                };
                let expected = run(Device::Cpu);
                for device in devices() {
                    assert_eq!(run(device), expected, "{path}, {reduction:?}, {device}, {memory_limit_bytes}");
                }
            }
            for device in devices() {
                let options = ComputeOptions::default()
                    .with_device(device)
                    .with_memory_limit_bytes(memory_limit_bytes)
                    .with_threads(2);
                let same = Expr::array(array.clone()).unwrap().compute(&options).unwrap();
                assert_eq!(same.to_host_bytes(Order::C).unwrap(), whole.to_host_bytes(Order::C).unwrap());
            }
        }
    }
}

#[test]
fn damage_fails_a_reduction_and_names_the_chunk() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 8]);
    store.write("x/c/4/3", &[1, 2, 3]).unwrap();
    // Elements that were not decoded may be refused sooner than the chunk.
    let power = Expr::apply(Op::Power, &[2i64.into(), of(&x)]).unwrap();
    for device in devices() {
        for expr in [&Expr::array(x.clone()).unwrap(), &power] {
            let options =
                ComputeOptions::default().with_device(device).with_memory_limit_bytes(8 << 10).with_threads(2);
            let error = expr.reduce(&Reduction::new(ReduceOp::Sum, None), &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{device}: {error}");
            assert!(error.to_string().contains("x/c/4/3"), "{device}: {error}");
        }
    }
}

#[test]
fn work_that_fails_ends_the_reading() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 8]);
    let negative = Expr::apply(Op::Subtract, &[1000i64.into(), of(&x)]).unwrap();
    let power = Expr::apply(Op::Power, &[of(&x), negative.into()]).unwrap();
    for device in devices() {
        let options = ComputeOptions::default().with_device(device).with_memory_limit_bytes(8 << 10).with_threads(2);
        for _ in 0..5 {
            let error = power.reduce(&Reduction::new(ReduceOp::Sum, None), &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{device}: {error}");
        }
    }
}

#[test]
fn progress_tells_of_every_region() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 40], &[10, 10]);
    let target = create(&store, "target", &[40, 40], &[10, 10], plain());
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |now: &cuzarr_compute::Progress| told.lock().unwrap().push(*now);
    let options = ComputeOptions::default().with_memory_limit_bytes(20_000).with_progress(&tell);
    Expr::apply(Op::Add, &[of(&x), 1i64.into()]).unwrap().store(&target, &options).unwrap();
    let told = told.into_inner().unwrap();
    let (last, size_bytes) = (told.last().unwrap(), 40 * 40 * 4);
    assert!(told.len() > 1 && told.len() as u64 == last.regions, "{told:?}");
    assert_eq!((last.regions_done, last.bytes_done, last.bytes), (last.regions, size_bytes, size_bytes));
}

/// A box of an array, from a start, a count and a step of each dimension; dimensions in `dropped` are left out.
fn view(array: &Array, axes: &[(u64, u64, u64)], dropped: &[usize]) -> Operand {
    let axis = |(dim, &(start, count, step)): (usize, &(u64, u64, u64))| AxisSelection {
        start,
        count,
        step,
        dropped: dropped.contains(&dim),
    };
    let selection = Selection::new(axes.iter().enumerate().map(axis).collect()).unwrap();
    Expr::view(array.clone(), &selection).unwrap().into()
}

#[test]
fn views_of_an_array_give_what_its_elements_give_whatever_the_limit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, values) = counting(&store, "x", &[37, 50], &[5, 8]);
    let at = |row: usize, column: usize| values[row * 50 + column].wrapping_mul(values[row * 50 + column]);
    let squares = Expr::apply(Op::Multiply, &[of(&x), of(&x)]).unwrap();
    squares.store(&x, &ComputeOptions::default()).unwrap_err();
    let y = create(&store, "y", &[37, 50], &[5, 8], plain());
    squares.store(&y, &ComputeOptions::default()).unwrap();
    let difference = |one: Operand, other: Operand| Expr::apply(Op::Subtract, &[one, other]).unwrap();
    let all = |rows: usize, columns: usize, element: &dyn Fn(usize, usize) -> i32| {
        bytes((0..rows * columns).map(|number| element(number / columns, number % columns)))
    };
    // Neighbours, elements between others, one row beside all, and views that lie far apart.
    let cases = [
        (
            difference(view(&y, &[(1, 36, 1), (0, 50, 1)], &[]), view(&y, &[(0, 36, 1), (0, 50, 1)], &[])),
            all(36, 50, &|row, column| at(row + 1, column) - at(row, column)),
        ),
        (
            difference(view(&y, &[(0, 37, 1), (1, 25, 2)], &[]), view(&y, &[(0, 37, 1), (0, 25, 2)], &[])),
            all(37, 25, &|row, column| at(row, 2 * column + 1) - at(row, 2 * column)),
        ),
        (
            difference(of(&y), view(&y, &[(36, 1, 1), (0, 50, 1)], &[0])),
            all(37, 50, &|row, column| at(row, column) - at(36, column)),
        ),
        (
            difference(view(&y, &[(30, 7, 1), (3, 9, 5)], &[]), view(&y, &[(0, 7, 1), (0, 9, 1)], &[])),
            all(7, 9, &|row, column| at(row + 30, 3 + 5 * column) - at(row, column)),
        ),
    ];
    for device in devices() {
        for memory_limit_bytes in LIMITS {
            let options = ComputeOptions::default()
                .with_device(device)
                .with_memory_limit_bytes(memory_limit_bytes)
                .with_threads(2);
            for (number, (expr, expected)) in cases.iter().enumerate() {
                let out = expr.compute(&options).unwrap();
                let what = format!("case {number}, {device}, {memory_limit_bytes}");
                assert_eq!(&out.to_host_bytes(Order::C).unwrap(), expected, "{what}");
                let sum = Reduction::new(ReduceOp::Max, Some(vec![0]));
                let most = expr.reduced(sum.clone()).unwrap().compute(&options).unwrap();
                let whole = Expr::buffer(out).unwrap().reduced(sum).unwrap().compute(&options).unwrap();
                let [most, whole] = [most, whole].map(|one| one.to_host_bytes(Order::C).unwrap());
                assert_eq!(most, whole, "{what}");
            }
            if memory_limit_bytes < 64 << 10 {
                continue; // an object of the target does not fit
            }
            let apart: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let target = create(&apart, "z", &[36, 50], &[7, 50], plain());
            cases[0].0.store(&target, &options).unwrap();
            let stored = target.read_buffer(&Selection::all(target.shape())).unwrap();
            assert_eq!(stored.to_host_bytes(Order::C).unwrap(), cases[0].1);
        }
        // One view alone, which is read in turn.
        let rows = view(&y, &[(4, 33, 1), (0, 50, 1)], &[]);
        let negative = Expr::apply(Op::Negative, &[rows]).unwrap();
        let options = ComputeOptions::default().with_device(device).with_memory_limit_bytes(8 << 10).with_threads(2);
        let out = negative.compute(&options).unwrap().to_host_bytes(Order::C).unwrap();
        assert_eq!(out, all(33, 50, &|row, column| -at(row + 4, column)));
    }
}

#[test]
fn views_that_overlap_read_each_chunk_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    counting(&store, "x", &[40, 50], &[5, 50]);
    let observed = Arc::new(Observed::new(store));
    let x = Array::open(Arc::clone(&observed) as Arc<dyn Store>, "x", ArrayOptions::default()).unwrap();
    observed.take_reads();
    let steps = Expr::apply(
        Op::Subtract,
        &[view(&x, &[(1, 39, 1), (0, 50, 1)], &[]), view(&x, &[(0, 39, 1), (0, 50, 1)], &[])],
    );
    let out = steps.unwrap().compute(&ComputeOptions::default()).unwrap();
    assert_eq!(out.to_host_bytes(Order::C).unwrap(), bytes(std::iter::repeat_n(50, 39 * 50)));
    let mut keys: Vec<String> = observed.take_reads().into_iter().map(|(key, _)| key).collect();
    keys.sort();
    // The plan compares the array with its document.
    assert_eq!(keys.pop().as_deref(), Some("x/zarr.json"));
    assert_eq!(keys, (0..8).map(|row| format!("x/c/{row}/0")).collect::<Vec<_>>());
}

#[test]
fn index_lists_and_points_are_views_and_what_lies_outside_is_not() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 50]);
    let elements = |expr: &Expr| {
        let options = ComputeOptions::default().with_memory_limit_bytes(64 << 10);
        expr.compute(&options).unwrap().to_host_bytes(Order::C).unwrap()
    };
    let points =
        Expr::view(x.clone(), &Selection::points(vec![[1, 39, 0].into(), [2, 49, 0].into()]).unwrap()).unwrap();
    assert_eq!(elements(&points), bytes([52, 1999, 0].into_iter()));
    assert_eq!(points.to_string(), "x[3 points]");
    let square = Selection::points(vec![[1, 3, 1, 3].into(), [2, 2, 4, 4].into()]).unwrap();
    let square = Expr::points(x.clone(), &square, &[2, 2]).unwrap();
    let turned = Pick::new(
        vec![Along::Range { start: 1, count: 2, step: -1 }, Along::Index(1)],
        vec![PickedDim::New(2), PickedDim::Source(0)],
    );
    assert_eq!(elements(&square.picked(&turned.unwrap()).unwrap()), bytes([154, 152, 154, 152].into_iter()));
    let whole = Expr::array(x.clone()).unwrap();
    let falling = vec![Along::List([7, 7, 0].into()), Along::Range { start: 48, count: 3, step: -24 }];
    let falling = Pick::new(falling, vec![PickedDim::Source(1), PickedDim::Source(0)]).unwrap();
    let falling = whole.picked(&falling).unwrap();
    assert_eq!(falling.to_string(), "x[3 indices, 48::-24].transpose(1, 0)");
    assert_eq!(elements(&falling), bytes([398, 398, 48, 374, 374, 24, 350, 350, 0].into_iter()));
    let kind = |selection| Expr::view(x.clone(), &selection).unwrap_err().kind();
    assert_eq!(kind(Selection::points(vec![[40].into(), [2].into()]).unwrap()), ErrorKind::SelectionInvalid);
    assert_eq!(kind(Selection::region(&[39, 0], &[2, 50]).unwrap()), ErrorKind::SelectionInvalid);
    let outside = Pick::new(vec![Along::Index(40), Along::Index(0)], Vec::new()).unwrap();
    assert_eq!(whole.picked(&outside).unwrap_err().kind(), ErrorKind::SelectionInvalid);
    assert!(Pick::new(vec![Along::Index(0)], vec![PickedDim::Source(0)]).is_err());
    let text = Expr::view(x.clone(), &Selection::region(&[1, 0], &[39, 50]).unwrap()).unwrap().to_string();
    assert_eq!(text, "x[1:40, 0:50]");
    assert_eq!(Expr::view(x.clone(), &Selection::all(&[40, 50])).unwrap().to_string(), "x");
}

#[test]
fn explanations_have_a_stage_for_each_pass() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 50]);
    let x = Expr::array(x).unwrap();
    let sum = Reduction { op: ReduceOp::Sum, axes: Some(vec![0]), keepdims: false, ddof: 0.0, skip_nan: false };
    let share = Expr::apply(Op::Divide, &[x.clone().into(), x.reduced(sum).unwrap().into()]).unwrap();
    let limit = ComputeOptions::default().with_memory_limit_bytes(64 << 10);
    let explanation = share.explain(&limit).unwrap();
    let [first, second] = &explanation.stages[..] else { panic!("{explanation}") };
    assert_eq!((&*first.computes, &first.shape[..], &first.regions), ("sum(x, axis=[0])", &[50][..], &None));
    assert_eq!((&*second.computes, second.shape.len()), ("(x.astype(float64) / sum(x, axis=[0]).astype(float64))", 2));
    assert!(second.regions.as_ref().is_some_and(|(count, _)| *count > 1), "{explanation}");
    assert_eq!([first, second].map(|stage| stage.reads[0].1.chunks), [8, 8]);
    assert_eq!(explanation.to_json()["stages"][0]["reads"][0]["array"], "x");
    let text = explanation.to_string();
    assert!(text.starts_with("on cpu, at most 65536 bytes in flight\n1. sum(x, axis=[0])\n"), "{text}");
}

#[test]
fn expressions_one_after_the_other_are_read_and_picked_like_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (x, _) = counting(&store, "x", &[40, 50], &[5, 50]);
    let (y, _) = counting(&store, "y", &[7, 50], &[2, 20]);
    let (x, y) = (Expr::array(x).unwrap(), Expr::array(y).unwrap());
    let least =
        y.reduced(Reduction { op: ReduceOp::Max, axes: None, keepdims: false, ddof: 0.0, skip_nan: false }).unwrap();
    let below = Expr::apply(Op::Subtract, &[y.clone().into(), least.into()]).unwrap();
    let joined = Expr::concatenated(&[x.clone(), below.clone(), x.clone()], 0).unwrap();
    assert_eq!(joined.shape(), [87, 50]);
    let row = |at: i32| match at {
        0..40 => at * 50..(at + 1) * 50,
        40..47 => (at - 40) * 50 - 349..(at - 39) * 50 - 349,
        _ => (at - 47) * 50..(at - 46) * 50,
    };
    let twice = Expr::apply(Op::Multiply, &[joined.clone().into(), 2i64.into()]).unwrap();
    for memory_limit_bytes in [96 << 10, 1 << 30] {
        let options = ComputeOptions::default().with_memory_limit_bytes(memory_limit_bytes);
        let elements = |expr: &Expr| expr.compute(&options).unwrap().to_host_bytes(Order::C).unwrap();
        assert_eq!(elements(&joined), bytes((0..87).flat_map(row)));
        assert_eq!(elements(&twice), bytes((0..87).flat_map(row).map(|value| 2 * value)));
        let rows = [86, 40, 41, 0, 46, 45];
        let list = Along::List(rows.iter().map(|&row| row as u64).collect());
        let columns = Along::Range { start: 49, count: 50, step: -1 };
        let pick = Pick::new(vec![list, columns], vec![PickedDim::Source(0), PickedDim::Source(1)]).unwrap();
        let falling = bytes(rows.iter().flat_map(|&at| row(at).rev()).map(|value| 2 * value));
        assert_eq!(elements(&twice.picked(&pick).unwrap()), falling);
        let every = Along::Range { start: 80, count: 9, step: -10 };
        let pick = Pick::new(vec![every, Along::Index(3)], vec![PickedDim::Source(0)]).unwrap();
        assert_eq!(elements(&joined.picked(&pick).unwrap()), bytes((0..9).map(|at| row(80 - 10 * at).start + 3)));
        let only = Pick::new(vec![Along::Index(47), Along::List([1, 1].into())], vec![PickedDim::Source(1)]).unwrap();
        assert_eq!(elements(&joined.picked(&only).unwrap()), bytes([1, 1].into_iter()));
    }
    let (target, _) = counting(&store, "z", &[87, 50], &[10, 50]);
    joined.store(&target, &ComputeOptions::default()).unwrap();
    let stored = target.read_buffer(&Selection::all(&[87, 50])).unwrap();
    assert_eq!(stored.to_host_bytes(Order::C).unwrap(), bytes((0..87).flat_map(row)));
    assert_eq!(joined.refuse_overlap(&store, "y").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let wrong = |parts: &[Expr], axis| Expr::concatenated(parts, axis).unwrap_err().kind();
    assert_eq!(wrong(&[], 0), ErrorKind::InvalidArgument);
    assert_eq!(wrong(std::slice::from_ref(&x), 2), ErrorKind::InvalidArgument);
    assert_eq!(wrong(&[x, y], 1), ErrorKind::ShapeMismatch);
}
