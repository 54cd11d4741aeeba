//! Running sums of arrays in stores: each chunk is read once, whatever the limit is, and interrupted work is taken up again.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::internal::node::with_store;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{ComputeOptions, Expr};
use cuzarr_device::{DType, Device, NdBuffer, Order, Scan};
use model::{bytes_codec, devices, metadata, zstd_codec};
use serde_json::json;

const SHAPE: [u64; 2] = [37, 50];
const CHUNKS: [u64; 2] = [5, 8];

fn create(store: &Arc<dyn Store>, path: &str, chunks: &[u64]) -> Array {
    let metadata = metadata(&SHAPE, chunks, "int64", json!(0), json!([bytes_codec("little"), zstd_codec()]));
    Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap()
}

/// An array of 0, 1, 2, … and its running sums along both dimensions, and along all in C order.
fn counting(store: &Arc<dyn Store>) -> (Array, [Vec<i64>; 3]) {
    let (array, [rows, columns]) = (create(store, "x", &CHUNKS), SHAPE.map(|extent| extent as usize));
    let values: Vec<i64> = (0..(rows * columns) as i64).collect();
    let memory = NdBuffer::from_slice(Device::Cpu, &values, &[rows, columns]).unwrap();
    array.write_buffer(&Selection::all(&SHAPE), &memory).unwrap();
    let mut sums = [values.clone(), values.clone(), values];
    for at in 0..rows * columns {
        sums[0][at] += if at >= columns { sums[0][at - columns] } else { 0 };
        sums[1][at] += if at % columns > 0 { sums[1][at - 1] } else { 0 };
        sums[2][at] += if at > 0 { sums[2][at - 1] } else { 0 };
    }
    (array, sums)
}

fn plans(array: &Array) -> [Expr; 3] {
    let of = Expr::array(array.clone()).unwrap();
    let flat = of.flat().unwrap().running(0, Scan::Sum).unwrap();
    [of.running(0, Scan::Sum).unwrap(), of.running(1, Scan::Sum).unwrap(), flat]
}

fn elements(buffer: &NdBuffer) -> Vec<i64> {
    buffer.to_device(Device::Cpu).unwrap().host_slice::<i64>().unwrap().to_vec()
}

#[test]
fn each_chunk_is_read_once_whatever_the_limit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (_, sums) = counting(&store);
    let observed = Arc::new(Observed::new(store));
    let array = Array::open(Arc::clone(&observed) as Arc<dyn Store>, "x", ArrayOptions::default()).unwrap();
    for device in devices() {
        for memory_limit_bytes in [64 << 10, 256 << 10, 1 << 30] {
            let options = ComputeOptions::default()
                .with_device(device)
                .with_memory_limit_bytes(memory_limit_bytes)
                .with_threads(2);
            for (plan, sums) in plans(&array).iter().zip(&sums) {
                observed.take_reads();
                assert_eq!(elements(&plan.compute(&options).unwrap()), *sums, "{plan} on {device}");
                let mut keys: Vec<String> = observed.take_reads().into_iter().map(|(key, _)| key).collect();
                // The plan compares the array with its document.
                keys.retain(|key| key != "x/zarr.json");
                keys.sort();
                let read = keys.len();
                keys.dedup();
                assert_eq!((keys.len(), read), (8 * 7, 8 * 7), "{plan} on {device} within {memory_limit_bytes}");
            }
        }
    }
}

#[test]
fn small_limits_make_many_regions_that_follow_each_other() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (array, sums) = counting(&store);
    let options = ComputeOptions::default().with_memory_limit_bytes(64 << 10).with_threads(2);
    for (axis, (plan, sums)) in plans(&array).iter().zip(&sums).enumerate() {
        let explained = plan.explain(&options).unwrap();
        assert!(explained.stages[0].regions.as_ref().is_some_and(|(count, _)| *count > 1), "{explained}");
        // Others that share the work get all that follow each other.
        let apart = plan.compute_regions(&options).unwrap();
        assert!(apart.iter().all(|region| axis > 1 || region.extent[axis] == SHAPE[axis]), "{apart:?}");
        let mut parts = Vec::new();
        for region in &apart {
            parts.push(elements(&plan.compute_region(&region.start, &region.extent, &options).unwrap()));
        }
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), sums.len());
        // A part begins with what lies before it.
        let start: Vec<u64> = plan.shape().iter().map(|extent| extent / 2).collect();
        let extent: Vec<u64> = plan.shape().iter().zip(&start).map(|(whole, start)| whole - start).collect();
        let part = elements(&plan.compute_region(&start, &extent, &options).unwrap());
        assert_eq!(part.last(), sums.last());
    }
}

#[test]
fn interrupted_work_goes_on_with_what_lies_before() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (array, sums) = counting(&store);
    for device in devices() {
        let options = ComputeOptions::default().with_device(device).with_memory_limit_bytes(64 << 10).with_threads(2);
        for (axis, plan) in plans(&array)[..2].iter().enumerate() {
            let target = create(&store, &format!("sums-{axis}-{device}"), &[6, 11]);
            let last = format!("{}/c/{}", target.path(), if axis == 0 { "6/0" } else { "0/4" });
            let failing = Observed::new(Arc::clone(&store)).with_failure(move |operation| match operation {
                Operation::Write(key, _) if *key == last => Some(Error::new(ErrorKind::StoreFailed, "the power went")),
                _ => None,
            });
            plan.store_resumable(&with_store(&target, Arc::new(failing)), &options).unwrap_err();
            assert!(store.get(&format!("{}/.cuzarr-work.json", target.path())).unwrap().is_some());
            plan.store_resumable(&target, &options).unwrap();
            assert_eq!(
                elements(&target.read_buffer(&Selection::all(&SHAPE)).unwrap()),
                sums[axis],
                "{plan} on {device}"
            );
            // Each task of many, in any order.
            let apart = create(&store, &format!("apart-{axis}-{device}"), &[6, 11]);
            let regions = plan.store_regions(&apart, &options).unwrap();
            for region in regions.iter().rev() {
                plan.store_region(&apart, region.number, &options).unwrap();
            }
            assert_eq!(
                elements(&apart.read_buffer(&Selection::all(&SHAPE)).unwrap()),
                sums[axis],
                "{plan} on {device}"
            );
            let beyond = plan.store_region(&apart, regions.len() as u64, &options).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::InvalidArgument);
        }
    }
}

#[test]
fn floats_have_the_same_bits_on_every_device() {
    let values: Vec<f32> = (0..5000).map(|at| 1.0 / (1 + at) as f32).collect();
    let of = Expr::buffer(NdBuffer::from_slice(Device::Cpu, &values, &[50, 100]).unwrap()).unwrap();
    let exact = values.iter().scan(0.0, |sum, &value| {
        *sum += f64::from(value);
        Some(*sum)
    });
    let exact: Vec<f32> = exact.map(|sum| sum as f32).collect();
    let plan = of.flat().unwrap().running(0, Scan::Sum).unwrap();
    for device in devices() {
        let options = ComputeOptions::default().with_device(device);
        let sums = plan.compute(&options).unwrap().to_device(Device::Cpu).unwrap();
        let sums = sums.host_slice::<f32>().unwrap();
        assert!(sums.iter().zip(&exact).all(|(own, exact)| (own - exact).abs() <= exact * f32::EPSILON));
        assert_eq!(sums.to_vec(), plan.evaluate(Device::Cpu).unwrap().host_slice::<f32>().unwrap().to_vec());
    }
    assert_eq!(of.astype(DType::BOOL).unwrap().running(0, Scan::Sum).unwrap_err().kind(), ErrorKind::DTypeMismatch);
    assert_eq!(of.running(2, Scan::Sum).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut nested = of.clone();
    let refused = (0..100).find_map(|_| match nested.running(0, Scan::Sum) {
        Ok(deeper) => {
            nested = deeper;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused.unwrap().kind(), ErrorKind::Unsupported);
    assert_eq!(nested.compute(&ComputeOptions::default()).unwrap().shape(), [50, 100]);
    assert_eq!(plan.to_string(), "cumsum(ravel(<float32 [50, 100] on cpu>), axis=0)");
    let fold =
        elements(&of.astype(DType::INT64).unwrap().running(1, Scan::Product).unwrap().evaluate(Device::Cpu).unwrap());
    assert_eq!((fold.len(), fold[0], fold[1]), (5000, 1, 0));
    assert!(of.flat().unwrap().flat().unwrap().compute(&ComputeOptions::default()).unwrap().is_contiguous(Order::C));
}
