//! The memory limit holds for work out of core: what it takes on a device, and in pinned memory, as our pool and the driver see it.
//! In a program of its own, because it watches numbers of the process.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;
#[path = "../../cuzarr/tests/watched/mod.rs"]
mod watched;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::MemoryStore;
use cuzarr_compute::{Changes, ComputeOptions, Copy, Existing, Expr, Op, ReduceOp, Reduction};
use cuzarr_device::{DType, Device, NdBuffer, Order, Scan};
use model::{bytes_codec, kernel_devices, metadata, zstd_codec};
use serde_json::json;
use watched::*;

type Run<'a> = dyn Fn() -> cuzarr::Result<()> + Sync + 'a;

/// Work on an array within a limit, region by region.
struct Work {
    source: Array,
    target: Array,
    device: Device,
    limit: u64,
}

impl Work {
    fn new(device: Device, limit: u64, metadata: &ArrayMetadata, value: &NdBuffer) -> Work {
        let options = ArrayOptions::default().with_device(device).with_memory_limit_bytes(limit).with_threads(2);
        let create =
            |path| Array::create(Arc::new(MemoryStore::new()), path, metadata.clone(), false, options.clone()).unwrap();
        let (source, target) = (create("source"), create("target"));
        let host = options.clone().with_device(Device::Cpu).with_memory_limit_bytes(1 << 30);
        source.with_options(host).write_buffer(&Selection::all(source.shape()), value).unwrap();
        Work { source, target, device, limit }
    }

    fn options(&self) -> ComputeOptions<'_> {
        ComputeOptions::default().with_device(self.device).with_memory_limit_bytes(self.limit).with_threads(2)
    }

    fn mean(&self, axes: Option<Vec<usize>>) -> cuzarr::Result<()> {
        let of = Expr::array(self.source.clone())?;
        of.reduce(&Reduction::new(ReduceOp::Mean, axes), &self.options()).map(drop)
    }

    fn rechunk(&self) -> cuzarr::Result<()> {
        let changes = Changes { chunks: Some(vec![None, Some(16)]), ..Changes::default() };
        let metadata = changes.apply(self.source.metadata())?;
        Copy::new(&self.source, Arc::new(MemoryStore::new()), "", metadata, Existing::Refuse)?.run(&|_| ()).map(drop)
    }

    fn roots(&self) -> cuzarr::Result<()> {
        let of = Expr::array(self.source.clone())?;
        Expr::apply(Op::Sqrt, &[of.into()])?.store(&self.target, &self.options())
    }

    fn sums(&self, axis: usize) -> cuzarr::Result<()> {
        Expr::array(self.source.clone())?.running(axis, Scan::Sum)?.store(&self.target, &self.options())
    }

    fn all(&self) -> [(&'static str, Box<Run<'_>>); 6] {
        [
            ("running sums of columns", Box::new(|| self.sums(0))),
            ("running sums of rows", Box::new(|| self.sums(1))),
            ("rechunk", Box::new(|| self.rechunk())),
            ("mean of columns", Box::new(|| self.mean(Some(vec![0])))),
            ("mean of all", Box::new(|| self.mean(None))),
            ("square roots", Box::new(|| self.roots())),
        ]
    }
}

/// Bytes and elements of a float32 array of `SIDE` by `SIDE`.
fn floats() -> (ArrayMetadata, NdBuffer) {
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let value: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| ((at / 100) as f32).to_ne_bytes()).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[SIDE as usize; 2], Order::C, &value).unwrap();
    (metadata(&[SIDE, SIDE], &[CHUNK, CHUNK], "float32", json!(0.0), codecs), value)
}

#[test]
fn work_out_of_core_stays_below_the_limit() {
    let _alone = alone();
    let (metadata, value) = floats();
    for device in kernel_devices() {
        for limit in [32 * CHUNK_BYTES, 128 * CHUNK_BYTES] {
            for (name, work) in Work::new(device, limit, &metadata, &value).all() {
                let took = peak_within(limit, device, || work().unwrap());
                assert!(took > 0 && took <= limit + TABLES_BYTES, "{name} on {device} took {took}, allowed {limit}");
            }
        }
    }
}

#[test]
fn work_out_of_core_on_a_full_device_is_an_error_that_leaves_it_usable() {
    let _alone = alone();
    let (metadata, value) = floats();
    for device in kernel_devices() {
        let work = Work::new(device, 32 * CHUNK_BYTES, &metadata, &value);
        // Streams, events and kernels are made while there is room.
        work.all().iter().for_each(|(_, work)| work().unwrap());
        let full = fill_up(device);
        for (name, work) in work.all() {
            let error = work().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("memory_limit")), "{name}: {error:?}");
        }
        drop(full);
        work.all().iter().for_each(|(name, work)| work().unwrap_or_else(|error| panic!("{name}: {error}")));
    }
}

#[test]
fn the_driver_sees_no_more_than_the_limit_of_work_out_of_core() {
    let _alone = alone();
    let Some(device) = gpu_alone() else { return };
    let side = 8192;
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let metadata = metadata(&[side, side], &[512, 512], "float32", json!(0.0), codecs);
    let value: Vec<u8> = (0..side * side).flat_map(|at| ((at / 100) as f32).to_ne_bytes()).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[side as usize; 2], Order::C, &value).unwrap();
    let mut problems = Vec::new();
    for limit in [32 << 20, 128 << 20, 512 << 20] {
        let work = Work::new(device, limit, &metadata, &value);
        for (name, work) in &work.all() {
            let work = || work().unwrap();
            work();
            let Some(took) = watched(device, &work) else { continue };
            let line = format!("{name}: {took}, of {} MiB", limit >> 20);
            println!("{line}");
            if took.device > allowed(limit) || took.pinned > limit + TABLES_IN_PINNED_BYTES {
                problems.push(line);
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
