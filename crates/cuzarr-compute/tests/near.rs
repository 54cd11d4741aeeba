//! Expressions on the host, region by region in the processor's cache: results are those of arrays in memory.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store};
use cuzarr_compute::{ComputeOptions, Expr, Histogram, Op, Operand, ReduceOp, Reduction};
use cuzarr_device::{DType, Device, NdBuffer, Order, Scan};
use model::{bytes_codec, metadata, zstd_codec};
use serde_json::json;

const SHAPE: [usize; 3] = [21, 45, 50];

/// Numbers with NaN, infinities and both zeros among them.
fn values(seed: usize) -> NdBuffer {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 1e30];
    let number = |at: usize| match (at + seed) % 4001 {
        9 => special[(at + seed) / 4001 % special.len()],
        rest => ((rest * 37 % 1000) as f32) * 0.25 - 90.0,
    };
    let numbers: Vec<f32> = (0..SHAPE.iter().product()).map(number).collect();
    NdBuffer::from_slice(Device::Cpu, &numbers, &SHAPE).unwrap()
}

fn stored(store: &Arc<dyn Store>, path: &str, chunks: &[u64], value: &NdBuffer) -> Expr {
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let metadata = metadata(&SHAPE.map(|extent| extent as u64), chunks, "float32", json!(0), codecs);
    let array = Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap();
    array.write_buffer(&Selection::all(array.shape()), value).unwrap();
    Expr::array(array).unwrap()
}

fn apply(op: Op, operands: &[Operand]) -> Expr {
    Expr::apply(op, operands).unwrap()
}

fn bytes(buffer: &NdBuffer) -> Vec<u8> {
    buffer.to_host_bytes(Order::C).unwrap()
}

/// Within the first limit, regions are boxes that lie in pieces of the result; within the second, whole rows of chunks.
const LIMITS: [u64; 3] = [160 << 10, 600 << 10, 1 << 30];

fn options(memory_limit_bytes: u64) -> ComputeOptions<'static> {
    ComputeOptions::default().with_device(Device::Cpu).with_threads(2).with_memory_limit_bytes(memory_limit_bytes)
}

/// Makes an expression of two arrays.
type Make<'a> = &'a dyn Fn(&Expr, &Expr) -> Expr;

/// Makes the same expression of stored arrays and of arrays in memory.
fn both(make: Make<'_>) -> [Expr; 2] {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (a, b) = (values(1), values(2));
    let there = make(&stored(&store, "a", &[2, 15, 20], &a), &stored(&store, "b", &[3, 45, 10], &b));
    [there, make(&Expr::buffer(a).unwrap(), &Expr::buffer(b).unwrap())]
}

#[test]
fn elements_are_those_of_arrays_in_memory() {
    let row = NdBuffer::from_slice(Device::Cpu, &(0..50).map(|at| at as f32).collect::<Vec<_>>(), &[50]).unwrap();
    let makes: [(&str, Make<'_>); 6] = [
        ("a * 2 + 1", &|a, _| {
            let twice = apply(Op::Multiply, &[a.clone().into(), 2.0.into()]);
            apply(Op::Add, &[twice.into(), 1.0.into()])
        }),
        ("sin(a)", &|a, _| apply(Op::Sin, &[a.clone().into()])),
        ("a - b", &|a, b| apply(Op::Subtract, &[a.clone().into(), b.clone().into()])),
        ("a + row", &|a, _| apply(Op::Add, &[a.clone().into(), Expr::buffer(row.clone()).unwrap().into()])),
        ("a > b", &|a, b| apply(Op::Greater, &[a.clone().into(), b.clone().into()])),
        ("float16(a)", &|a, _| a.astype(DType::FLOAT16).unwrap()),
    ];
    for (name, make) in makes {
        let [there, here] = both(make);
        let expected = here.evaluate(Device::Cpu).unwrap();
        for limit in LIMITS {
            let options = options(limit);
            let (count, _) = there.explain(&options).unwrap().stages[0].regions.clone().unwrap();
            assert!((limit < 1 << 20) == (count > 1), "{name}: {count} regions within {limit}");
            assert!(bytes(&there.compute(&options).unwrap()) == bytes(&expected), "{name} within {limit}");
            let part = there.compute_region(&[3, 7, 11], &[15, 30, 37], &options).unwrap();
            let wanted = expected.region(&[3, 7, 11], &[15, 30, 37], &[1, 1, 1]).unwrap();
            assert!(bytes(&part) == bytes(&wanted), "a part of {name} within {limit}");
            // Memory in another order, and memory of another type.
            let out = NdBuffer::zeroed(Device::Cpu, expected.dtype(), &SHAPE, Order::F).unwrap();
            there.compute_into(&out, &options).unwrap();
            assert!(bytes(&out) == bytes(&expected), "{name} in columns within {limit}");
            let out = NdBuffer::zeroed(Device::Cpu, DType::FLOAT64, &SHAPE, Order::C).unwrap();
            there.compute_into(&out, &options).unwrap();
            assert!(bytes(&out) == bytes(&expected.astype(DType::FLOAT64, Order::C).unwrap()), "{name} in float64");
        }
    }
}

#[test]
fn memory_of_an_operand_is_overwritten_only_when_it_was_read() {
    for limit in LIMITS {
        let [there, here] = [values(3), values(3)].map(|own| {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let a = stored(&store, "a", &[2, 15, 20], &values(1));
            (apply(Op::Add, &[a.into(), Expr::buffer(own.clone()).unwrap().into()]), own)
        });
        let expected = here.0.compute(&options(1 << 30)).unwrap();
        there.0.compute_into(&there.1, &options(limit)).unwrap();
        assert!(bytes(&there.1) == bytes(&expected), "within {limit}");
    }
}

#[test]
fn summaries_that_round_nothing_are_those_of_arrays_in_memory() {
    for op in [ReduceOp::Min, ReduceOp::Max, ReduceOp::ArgMin, ReduceOp::ArgMax, ReduceOp::Any, ReduceOp::CountNonzero]
    {
        for (skip_nan, axes) in [(false, None), (true, None), (false, Some(vec![2])), (true, Some(vec![0]))] {
            let reduction = Reduction { skip_nan, ..Reduction::new(op, axes) };
            let [there, here] = both(&|a, b| apply(Op::Add, &[a.clone().into(), b.clone().into()]));
            let expected = here.reduce(&reduction, &options(1 << 30)).unwrap();
            for limit in LIMITS {
                let found = there.reduce(&reduction, &options(limit)).unwrap();
                assert!(bytes(&found) == bytes(&expected), "{reduction:?} within {limit}");
            }
        }
    }
    for range in [Some((-50.0, 20.0)), Some((0.0, 1e30))] {
        let counts = |expr: &Expr| expr.histogram(Histogram::new(31, range)).unwrap().0;
        let [there, here] = both(&|a, _| a.clone());
        let expected = counts(&here).compute(&options(1 << 30)).unwrap();
        for limit in LIMITS {
            assert!(bytes(&counts(&there).compute(&options(limit)).unwrap()) == bytes(&expected), "{range:?}");
        }
    }
}

#[test]
fn running_sums_in_memory_and_from_a_store_are_equal() {
    for axis in 0..3 {
        let [there, here] = both(&|a, _| a.running(axis, Scan::Sum).unwrap());
        let expected = here.evaluate(Device::Cpu).unwrap();
        assert!(bytes(&there.compute(&options(1 << 30)).unwrap()) == bytes(&expected), "{axis}");
    }
}
