//! What the tests of reading and writing share: small random arrays, a naive model of them in memory, and the devices to
//! try.

#![allow(dead_code)] // each test file uses its part

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use cuzarr::Result;
use cuzarr::internal::codec::Chain;
use cuzarr::internal::plan::Parts;
use cuzarr::internal::plan::parts;
use cuzarr::internal::run::{Access, Engine};
use cuzarr::meta::ArrayMetadata;
use cuzarr::plan::{AxisIndex, AxisSelection, Selection};
use cuzarr::run::Options;
use cuzarr::store::Store;
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

/// A small generator of numbers; the tests need variety, not quality.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// The devices to try. Those that are not here are named, or fail the test with `CUZARR_REQUIRE_GPU=1`.
pub fn devices() -> Vec<Device> {
    let mut devices = vec![Device::Cpu];
    for device in [Device::Simt, Device::Cuda(0)] {
        match NdBuffer::zeroed(device, DType::UINT8, &[1], Order::C) {
            Ok(_) => devices.push(device),
            Err(error) => {
                let required = std::env::var("CUZARR_REQUIRE_GPU").is_ok_and(|value| value == "1");
                assert!(!(required && device == Device::Cuda(0)), "a GPU is required: {error}");
                println!("skipped: {device}: {error}");
            }
        }
    }
    devices
}

/// The devices with kernels among them, which may be none.
pub fn kernel_devices() -> Vec<Device> {
    let found: Vec<_> = devices().into_iter().filter(|&device| device != Device::Cpu).collect();
    if found.is_empty() {
        say_skipped("no device has kernels; run the program by scripts/with-simt");
    }
    found
}

/// Says once that the test at hand tests nothing, or not all. Not by `println!`, which the harness keeps to itself while a test
/// passes.
pub fn say_skipped(reason: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let said = format!("skipped: {}: {reason}\n", std::thread::current().name().unwrap_or("a test"));
    if SAID.lock().unwrap().insert(said.clone()) {
        std::io::stderr().write_all(said.as_bytes()).unwrap();
    }
}

/// Puts the library that stands in for another one, `tests/{name}.c`, to the path `library`: from the folder
/// `CUZARR_TEST_LIBRARIES` where it is named, as a machine for tests may have no compiler, else compiled.
pub fn make_library(name: &str, library: &Path) {
    if let Some(folder) = std::env::var_os("CUZARR_TEST_LIBRARIES") {
        std::fs::copy(Path::new(&folder).join(format!("{name}.so")), library).unwrap();
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let compiler = std::env::var("CC").unwrap_or("cc".to_string());
    // The compiler needs no sanitizer of its own.
    let mut command = Command::new(compiler);
    command.env_remove("LD_PRELOAD").args(["-shared", "-fPIC", "-pthread", "-o"]).arg(library).arg(source);
    assert!(command.status().unwrap().success());
}

/// v3 metadata of an array.
pub fn metadata(shape: &[u64], chunks: &[u64], data_type: &str, fill: Value, codecs: Value) -> ArrayMetadata {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
    });
    ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap()
}

/// `sharding_indexed` around these codecs.
pub fn sharding(inner: &[u64], codecs: Value, index_location: &str) -> Value {
    json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": codecs, "index_location": index_location,
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    }}])
}

pub fn bytes_codec(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

pub fn zstd_codec() -> Value {
    json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}})
}

/// An array under test, with its elements in memory.
pub struct Story {
    pub metadata: ArrayMetadata,
    pub store: Arc<dyn Store>,
    pub engine: Arc<Engine>,
    pub options: Options,
    pub elements: Vec<u8>,
    pub element_bytes: usize,
    pub fill: Vec<u8>,
    pub dtype: DType,
}

impl Story {
    pub fn new(metadata: ArrayMetadata, store: Arc<dyn Store>) -> Story {
        let dtype = metadata.data_type().device_dtype().unwrap();
        let fill = metadata.fill_value().element(metadata.data_type()).into_owned();
        let elements = fill.repeat(metadata.elems().unwrap() as usize);
        let (element_bytes, options) = (dtype.size_bytes(), Options::default().with_threads(3));
        Story { metadata, store, engine: Arc::new(Engine::new(3)), options, elements, element_bytes, fill, dtype }
    }

    pub fn access(&self, device: Device) -> Access {
        let chain = Arc::new(Chain::new(&self.metadata).unwrap());
        Access::new(&self.metadata, "a", chain, device).unwrap()
    }

    /// Numbers of the selected elements, in C order.
    pub fn numbers(&self, selection: &Selection) -> Vec<usize> {
        let shape = self.metadata.shape();
        let range = |axis: &AxisSelection| (0..axis.count).map(|at| axis.start + at * axis.step).collect();
        let axes: Vec<Vec<u64>> = match parts(selection) {
            Parts::Box(axes) => axes.iter().map(range).collect(),
            Parts::Product(axes) => axes
                .iter()
                .map(|axis| match axis {
                    AxisIndex::Range(axis) => range(axis),
                    AxisIndex::List(list) => list.to_vec(),
                })
                .collect(),
            Parts::Points(indices) => {
                let number = |point: usize| {
                    indices.iter().zip(shape).fold(0, |number, (indices, len)| number * len + indices[point]) as usize
                };
                return (0..indices[0].len()).map(number).collect();
            }
        };
        let mut numbers = vec![0];
        for (indices, &len) in axes.iter().zip(shape) {
            let places = |number: usize| indices.iter().map(move |&at| number * len as usize + at as usize);
            numbers = numbers.into_iter().flat_map(places).collect();
        }
        numbers
    }

    pub fn expected(&self, selection: &Selection) -> Vec<u8> {
        let size = self.element_bytes;
        self.numbers(selection).iter().flat_map(|at| self.elements[at * size..(at + 1) * size].to_vec()).collect()
    }

    pub fn try_read(&self, device: Device, selection: &Selection) -> Result<Vec<u8>> {
        let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
        let out = NdBuffer::empty(device, self.dtype, &shape, Order::C).unwrap();
        // What was not written by the read is seen.
        out.fill(&vec![0xAB; self.element_bytes]).unwrap();
        self.engine.read(&self.access(device), &self.store, selection, &out, &self.options)?;
        Ok(out.to_host_bytes(Order::C).unwrap())
    }

    pub fn check(&self, device: Device, selection: &Selection, context: &str) {
        let read = self.try_read(device, selection).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(read == self.expected(selection), "{context}: {device} {selection}: wrong elements");
        assert_eq!(self.engine.memory(device).used_bytes(), 0, "{context}: memory is given back");
    }

    pub fn try_write(&self, device: Device, selection: &Selection, value: &[u8]) -> Result<()> {
        let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
        let value = NdBuffer::from_host(device, self.dtype, &shape, Order::C, value).unwrap();
        self.engine.write(&self.access(Device::Cpu), &self.store, selection, &value, &self.options)?;
        Ok(())
    }

    /// Writes to the array and to the model.
    pub fn write(&mut self, device: Device, selection: &Selection, value: &[u8]) {
        self.try_write(device, selection, value).unwrap();
        assert_eq!(self.engine.memory(device).used_bytes(), 0, "memory is given back");
        let size = self.element_bytes;
        for (number, place) in self.numbers(selection).into_iter().enumerate() {
            self.elements[place * size..(place + 1) * size].copy_from_slice(&value[number * size..(number + 1) * size]);
        }
    }

    /// A box, an outer product of lists, or points.
    pub fn random_selection(&self, dice: &mut Dice) -> Selection {
        let (shape, kind) = (self.metadata.shape(), dice.below(4));
        let counts = (dice.below(24), dice.below(16));
        let mut axis = |&len: &u64| {
            if len == 0 {
                return AxisSelection { start: 0, count: 0, step: 1, dropped: false };
            }
            let start = dice.below(len);
            let step = if dice.chance(2) { 1 } else { 1 + dice.below(4) };
            let count = if dice.chance(12) { 0 } else { 1 + dice.below((len - start).div_ceil(step)) };
            AxisSelection { start, count, step, dropped: count == 1 && dice.chance(2) }
        };
        let ranges: Vec<AxisSelection> = shape.iter().map(&mut axis).collect();
        let mut list = |len: u64, count: u64| -> Arc<[u64]> {
            let mut list: Vec<u64> = (0..if len == 0 { 0 } else { count }).map(|_| dice.below(len)).collect();
            if dice.chance(3) {
                list.sort_unstable();
            }
            list.into()
        };
        match kind {
            0 if !shape.is_empty() => {
                let count = if shape.contains(&0) { 0 } else { counts.0 };
                Selection::points(shape.iter().map(|&len| list(len, count)).collect()).unwrap()
            }
            1 => {
                let axes =
                    ranges.into_iter().zip(shape).enumerate().map(|(dim, (range, &len))| match counts.1 >> dim & 1 {
                        0 => AxisIndex::Range(range),
                        _ => AxisIndex::List(list(len, counts.0 % 9)),
                    });
                Selection::orthogonal(axes.collect()).unwrap()
            }
            _ => Selection::new(ranges).unwrap(),
        }
    }

    /// Elements that any data type can have: small numbers, and sometimes nothing but the fill value.
    pub fn random_value(&self, dice: &mut Dice, selection: &Selection) -> Vec<u8> {
        let count = selection.len().unwrap() as usize;
        if dice.chance(4) {
            return self.fill.repeat(count);
        }
        (0..count * self.element_bytes)
            .map(|byte| {
                if byte % self.element_bytes < 1 || self.dtype.size_bytes() == 1 {
                    dice.below(2) as u8
                } else {
                    dice.below(60) as u8
                }
            })
            .collect()
    }
}

/// Metadata of a small random array, sharded once or twice or not at all.
pub fn random_metadata(dice: &mut Dice) -> ArrayMetadata {
    let ndim = dice.below(4) as usize;
    let inner: Vec<u64> = (0..ndim).map(|_| 1 + dice.below(4)).collect();
    let shape: Vec<u64> = (0..ndim).map(|_| if dice.chance(15) { 0 } else { 1 + dice.below(11) }).collect();
    let (data_type, fill) = dice.pick(&[
        ("uint8", json!(0)),
        ("bool", json!(false)),
        ("int16", json!(-3)),
        ("uint32", json!(7)),
        ("float32", json!("NaN")),
        ("float64", json!(0.0)),
        ("complex64", json!([1.0, 0.0])),
        ("int64", json!(1)),
    ]);
    let mut codecs = Vec::new();
    if ndim > 1 && dice.chance(3) {
        let mut order: Vec<usize> = (0..ndim).collect();
        for i in (1..ndim).rev() {
            order.swap(i, dice.below(i as u64 + 1) as usize);
        }
        codecs.push(json!({"name": "transpose", "configuration": {"order": order}}));
    }
    match (data_type, dice.below(3)) {
        ("bool", 0) => codecs.push(json!({"name": "numcodecs.packbits"})),
        ("int16", 0) => codecs.push(json!({"name": "numcodecs.fixedscaleoffset",
            "configuration": {"offset": -5, "scale": 1, "dtype": "<i2", "astype": "<i4"}})),
        _ => {}
    }
    if dice.below(8) == 0 {
        let padding = dice.pick(&["none", "first_byte", "last_byte"]);
        codecs.push(json!({"name": "packbits", "configuration": {"padding_encoding": padding}}));
    } else {
        codecs.push(bytes_codec(dice.pick(&["little", "big"])));
    }
    match dice.below(7) {
        0 => codecs.push(zstd_codec()),
        1 => codecs.push(json!({"name": "blosc", "configuration": {
            "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}})),
        2 => codecs.push(json!({"name": "gzip", "configuration": {"level": 1}})),
        3 => codecs.push(json!({"name": "crc32c"})),
        4 if codecs.iter().all(|codec| codec["name"] == "bytes" || codec["name"] == "transpose") => {
            let size = if data_type.ends_with("16") {
                2
            } else if data_type.ends_with("32") {
                4
            } else {
                1
            };
            codecs.push(json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": size}}));
        }
        _ => {}
    }
    let (mut codecs, mut outer) = (json!(codecs), inner);
    for _ in 0..dice.below(3) {
        codecs = sharding(&outer, codecs, dice.pick(&["start", "end"]));
        outer = outer.iter().map(|extent| extent * (1 + dice.below(3))).collect();
    }
    metadata(&shape, &outer, data_type, fill, codecs)
}
