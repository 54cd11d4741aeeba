//! Arrays with a rectilinear grid. Random programs of writes, reads and resizes are done to them and to an array with a regular
//! grid; both must have the same elements after each step.

mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::codec::VariableElements;
use cuzarr::meta::{ArrayMetadata, DataType};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::{AxisIndex, AxisSelection, Selection};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{bytes_codec, devices, sharding, zstd_codec};
use serde_json::{Value, json};

/// A generator of numbers: `xorshift64*`.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end.max(1)
    }

    /// Lengths that add up to at least `extent`, multiples of `unit`. Some lengths repeat.
    fn edges(&mut self, extent: u64, unit: u64) -> Vec<u64> {
        let lengths: Vec<u64> = (0..3).map(|_| unit * (1 + self.below(4))).collect();
        let mut edges = Vec::new();
        while edges.iter().sum::<u64>() < extent || edges.is_empty() {
            edges.push(lengths[self.below(3) as usize]);
        }
        if self.below(3) == 0 {
            edges.push(unit); // beyond the end
        }
        edges
    }

    fn range(&mut self, extent: u64) -> AxisSelection {
        let start = self.below(extent);
        let step = 1 + self.below(3);
        let most = (extent - start).div_ceil(step);
        match self.below(6) {
            0 => AxisSelection { start, count: 1, step: 1, dropped: true },
            1 => AxisSelection { start: 0, count: extent, step: 1, dropped: false },
            _ => AxisSelection { start, count: self.below(most + 1), step, dropped: false },
        }
    }

    fn list(&mut self, extent: u64, len: u64) -> Arc<[u64]> {
        (0..len).map(|_| self.below(extent)).collect()
    }

    fn selection(&mut self, shape: &[u64]) -> Selection {
        match self.below(5) {
            0 => {
                let len = self.below(9);
                Selection::points(shape.iter().map(|&extent| self.list(extent, len)).collect()).unwrap()
            }
            1 => {
                let axis = |random: &mut Random, extent| match random.below(2) {
                    0 => AxisIndex::Range(random.range(extent)),
                    _ => {
                        let len = random.below(7);
                        AxisIndex::List(random.list(extent, len))
                    }
                };
                Selection::orthogonal(shape.iter().map(|&extent| axis(self, extent)).collect()).unwrap()
            }
            _ => Selection::new(shape.iter().map(|&extent| self.range(extent)).collect()).unwrap(),
        }
    }
}

fn document(shape: &[u64], grid: Value, data_type: &str, fill: Value, codecs: Value) -> ArrayMetadata {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
    });
    ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap()
}

fn rectilinear(edges: &[Vec<u64>]) -> Value {
    json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": edges}})
}

fn create(metadata: ArrayMetadata, options: &ArrayOptions) -> Array {
    Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, options.clone()).unwrap()
}

fn values(selection: &Selection, from: u64) -> NdBuffer {
    let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
    let count: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..count as u64).flat_map(|at| ((from + at) as u16).to_le_bytes()).collect();
    NdBuffer::from_host(Device::Cpu, DType::UINT16, &shape, Order::C, &bytes).unwrap()
}

fn read(array: &Array, selection: &Selection) -> Vec<u8> {
    array.read_buffer(selection).unwrap().to_host_bytes(Order::C).unwrap()
}

/// Codecs, and the chunks inside shards.
fn chains(ndim: usize) -> Vec<(Value, u64)> {
    let plain = json!([bytes_codec("little")]);
    let packed = json!([bytes_codec("little"), zstd_codec()]);
    let turned = json!([{"name": "transpose", "configuration": {"order": (0..ndim).rev().collect::<Vec<_>>()}},
        bytes_codec("big"), zstd_codec()]);
    let sharded = sharding(&vec![2; ndim], packed.clone(), "end");
    vec![(plain, 1), (packed, 1), (turned, 1), (sharded, 2)]
}

fn programs_agree(device: Device, programs: u64, steps: u64) {
    let options = ArrayOptions::default().with_device(device);
    for seed in 1..=programs {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let ndim = 1 + random.below(3) as usize;
        let shape: Vec<u64> = (0..ndim).map(|_| 1 + random.below(14)).collect();
        let (codecs, unit) = chains(ndim).swap_remove(random.below(4) as usize);
        let edges: Vec<Vec<u64>> = shape.iter().map(|&extent| random.edges(extent, unit)).collect();
        let grid = rectilinear(&edges);
        let mut ours = create(document(&shape, grid, "uint16", json!(7), codecs.clone()), &options);
        let regular = json!({"name": "regular", "configuration": {"chunk_shape": vec![4; ndim]}});
        let plain = json!([bytes_codec("little")]);
        let mut theirs = create(document(&shape, regular, "uint16", json!(7), plain), &ArrayOptions::default());
        for step in 0..steps {
            let what = format!("seed {seed}, step {step}, edges {edges:?}, {codecs}");
            let selection = random.selection(ours.shape());
            match random.below(5) {
                0 | 1 => {
                    let host = values(&selection, seed * 100 + step * 17);
                    let value = if random.below(2) == 0 { host.to_device(device).unwrap() } else { host.clone() };
                    ours.write_buffer(&selection, &value).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    theirs.write_buffer(&selection, &host).unwrap();
                }
                2 if step % 4 == 3 => {
                    let shape: Vec<u64> = ours.shape().iter().map(|&extent| 1 + random.below(extent + 4)).collect();
                    ours.resize(shape.clone()).unwrap();
                    theirs.resize(shape).unwrap();
                    // Chunks at the edge keep their elements, and these chunks differ in the two arrays.
                    let all = Selection::all(ours.shape());
                    let elements = values(&all, seed + step);
                    ours.write_buffer(&all, &elements).unwrap();
                    theirs.write_buffer(&all, &elements).unwrap();
                }
                _ => assert_eq!(read(&ours, &selection), read(&theirs, &selection), "{what}: {selection}"),
            }
        }
        let all = Selection::all(ours.shape());
        assert_eq!(read(&ours, &all), read(&theirs, &all), "seed {seed}, edges {edges:?}, {codecs}");
        let opened = Array::open(Arc::clone(ours.store()), "a", options.clone()).unwrap();
        assert_eq!(read(&opened, &all), read(&theirs, &all), "seed {seed}: opened again");
        assert!(opened.verify(&|_, _| ()).unwrap().is_empty());
    }
}

#[test]
fn programs_give_what_a_regular_grid_gives() {
    for device in devices() {
        let programs = if device == Device::Cpu { 120 } else { 25 };
        programs_agree(device, programs, 12);
    }
}

#[test]
fn elements_of_variable_length_go_round() {
    let shape = [9, 5];
    let grid = rectilinear(&[vec![4, 3, 4], vec![2, 3]]);
    let array = create(document(&shape, grid, "string", json!("none"), json!(["vlen-utf8"])), &ArrayOptions::default());
    let mut expected = vec![String::from("none"); 45];
    let part = Selection::region(&[2, 1], &[6, 3]).unwrap();
    let mut elements = VariableElements::with_capacity(18);
    for at in 0..18 {
        let text = "x".repeat(at) + &at.to_string();
        elements.push(text.as_bytes());
        expected[(2 + at / 3) * 5 + 1 + at % 3] = text;
    }
    array.write_variable(&part, &elements).unwrap();
    let found = array.read_variable(&Selection::all(&shape)).unwrap();
    let found: Vec<&str> = found.iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(found, expected);
    let rows = AxisIndex::List([7_u64, 2, 7].into());
    let column = AxisIndex::Range(AxisSelection { start: 3, count: 1, step: 1, dropped: true });
    let listed = array.read_variable(&Selection::orthogonal(vec![rows, column]).unwrap()).unwrap();
    let listed: Vec<&str> = listed.iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(listed, [&expected[38], &expected[13], &expected[38]]);
}

#[test]
fn stored_objects_lie_where_the_specification_says() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let builder = Array::builder([59, 3], DataType::UInt8).edges([vec![31, 28], vec![2, 1]]).compressor("none");
    let array = builder.create_in(Arc::clone(&store), "months").unwrap();
    array.write(&Selection::all(&[59, 3]), &(0..177).collect::<Vec<u8>>()).unwrap();
    assert_eq!(array.stored_chunks().unwrap(), ["c/0/0", "c/0/1", "c/1/0", "c/1/1"]);
    let chunk = store.get("months/c/1/1").unwrap().unwrap();
    assert_eq!(chunk[..], (31..59).map(|row| row * 3 + 2).collect::<Vec<u8>>());
    let explained = array.explain(&Selection::region(&[30, 0], &[2, 2]).unwrap()).unwrap();
    assert_eq!((explained.objects, explained.chunks, explained.packed_bytes), (2, 2, 62 + 56));
}

#[test]
fn an_array_that_grows_gets_one_more_chunk_and_one_that_shrinks_loses_its_objects() {
    let builder = Array::builder([30], DataType::UInt8).edges([vec![10, 20]]).compressor("none");
    let mut array = builder.create_in(Arc::new(MemoryStore::new()), "").unwrap();
    array.resize(vec![45]).unwrap();
    array.write(&Selection::all(&[45]), &[1_u8; 45]).unwrap();
    assert_eq!(array.stored_chunks().unwrap(), ["c/0", "c/1", "c/2"]);
    assert_eq!(array.metadata().chunk_grid().chunk_of(&[44]).unwrap(), [2]);
    array.resize(vec![10]).unwrap();
    assert_eq!(array.stored_chunks().unwrap(), ["c/0"]);
    array.resize(vec![45]).unwrap();
    assert_eq!(read(&array, &Selection::all(&[45]))[8..12], [1, 1, 0, 0]);
    let error = Array::builder([4], DataType::UInt8).chunks([2]).edges([vec![1, 3]]).metadata().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MetadataInvalid | ErrorKind::InvalidArgument), "{error:?}");
}
