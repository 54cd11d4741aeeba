//! Arrays as users hold them: reading, writing, explaining, verifying.

mod model;

use std::sync::{Arc, Mutex};

use cuzarr::ErrorKind;
use cuzarr::codec::VariableElements;
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::{AxisSelection, Selection, SliceArg};
use cuzarr::run::Stage;
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, kernel_devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

fn create(metadata: ArrayMetadata) -> (Array, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let array = Array::create(Arc::clone(&store), "a", metadata, false, ArrayOptions::default()).unwrap();
    (array, store)
}

fn numbers(array: &Array) -> NdBuffer {
    let shape: Vec<usize> = array.shape().iter().map(|&extent| extent as usize).collect();
    let bytes: Vec<u8> = (0..shape.iter().product::<usize>() as i32).flat_map(i32::to_ne_bytes).collect();
    NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &bytes).unwrap()
}

fn plain() -> ArrayMetadata {
    metadata(&[9, 8], &[4, 3], "int32", json!(0), json!([bytes_codec("little"), zstd_codec()]))
}

/// A codec that only the host decodes.
fn bz2_codec() -> serde_json::Value {
    json!({"name": "numcodecs.bz2", "configuration": {"level": 1}})
}

fn crops() -> Vec<Selection> {
    let alike = [(0, 0), (4, 5), (1, 2), (5, 4)].map(|(row, column)| ([row, column], [4, 3]));
    let others = [([2, 1], [5, 5]), ([8, 0], [1, 8])];
    alike.iter().chain(&others).map(|(start, extent)| Selection::region(start, extent).unwrap()).collect()
}

#[test]
fn one_small_chunk_comes_by_pinned_memory() {
    let (array, _) =
        create(metadata(&[4, 3], &[4, 3], "int32", json!(0), json!([bytes_codec("little"), zstd_codec()])));
    array.write_buffer(&Selection::all(&[4, 3]), &numbers(&array)).unwrap();
    for device in devices() {
        let array = array.with_options(array.options().clone().with_device(device));
        for region in [[4, 3], [2, 2]] {
            let selection = Selection::region(&[0, 0], &region).unwrap();
            let read = array.read_buffer(&selection).unwrap().to_host_bytes(Order::C).unwrap();
            let rows = (0..region[0] as i32).flat_map(|row| (0..region[1] as i32).map(move |column| 3 * row + column));
            assert_eq!(read, rows.flat_map(i32::to_ne_bytes).collect::<Vec<u8>>(), "{device}");
        }
    }
}

#[test]
fn many_selections_come_by_one_pipeline() {
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}});
    for codecs in [json!([bytes_codec("little")]), sharding(&[2, 4], json!([bytes_codec("little"), blosc]), "end")] {
        let (array, store) = create(metadata(&[9, 8], &[4, 4], "int32", json!(-5), codecs));
        array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
        store.delete("a/c/1/1").unwrap();
        for device in devices() {
            let array = array.with_options(array.options().clone().with_device(device).with_threads(2));
            let each: Vec<_> = crops().iter().map(|crop| array.read_buffer(crop).unwrap()).collect();
            let together = array.read_many(&crops(), None).unwrap();
            assert_eq!(together.len(), each.len());
            for (one, other) in together.iter().zip(&each) {
                assert_eq!((one.shape(), one.device()), (other.shape(), device));
                assert_eq!(one.to_host_bytes(Order::C).unwrap(), other.to_host_bytes(Order::C).unwrap());
            }
            assert_eq!(array.read_stack(&crops()[..4], None).unwrap().shape(), [4, 4, 3]);
            assert_eq!(array.read_stack(&crops(), Some(DType::INT64)).unwrap_err().kind(), ErrorKind::ShapeMismatch);
            assert!(array.read_many(&[], None).unwrap().is_empty());
        }
    }
}

#[test]
fn one_small_chunk_reaches_a_device_in_one_copy() {
    let (array, store) =
        create(metadata(&[9, 8], &[4, 4], "int32", json!(-5), json!([bytes_codec("big"), zstd_codec()])));
    array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
    store.delete("a/c/1/1").unwrap();
    let corner = AxisSelection { start: 8, count: 1, step: 1, dropped: true };
    let strided = Selection::new(vec![corner, AxisSelection { start: 4, count: 2, step: 3, dropped: false }]).unwrap();
    let within = [Selection::region(&[1, 4], &[3, 3]).unwrap(), Selection::region(&[4, 4], &[4, 4]).unwrap(), strided];
    const CHUNK_BYTES: u64 = 4 * 4 * 4;
    let across = Selection::region(&[3, 4], &[2, 3]).unwrap();
    let host = |values: &NdBuffer| values.to_host_bytes(Order::C).unwrap();
    for device in kernel_devices() {
        let on_device = array.with_options(array.options().clone().with_device(device));
        // Of a chunk that is scattered by the device, all of it crosses the bus.
        let crossed = |array: &Array| array.last_report().unwrap().stage(Stage::Upload).size_bytes;
        for selection in &within {
            let got = on_device.read_buffer(selection).unwrap();
            assert_eq!(got.device(), device);
            assert!(host(&got) == host(&array.read_buffer(selection).unwrap()), "{selection}");
            assert_eq!(crossed(&on_device), got.size_bytes() as u64, "{selection}");
        }
        let wide = NdBuffer::empty(device, DType::FLOAT64, &[3, 3], Order::C).unwrap();
        on_device.read_into(&within[0], &wide).unwrap();
        let expected = array.read_buffer(&within[0]).unwrap().astype(DType::FLOAT64, Order::C).unwrap();
        assert_eq!(host(&wide), host(&expected));
        let got = on_device.read_buffer(&across).unwrap();
        assert!(crossed(&on_device) > CHUNK_BYTES);
        assert!(host(&got) == host(&array.read_buffer(&across).unwrap()));
        // Under `strict` the device does all that it can, and elsewhere memory that does not lie in one piece is scattered to.
        let strict = on_device.with_options(on_device.options().clone().with_strict(true));
        assert!(host(&strict.read_buffer(&within[0]).unwrap()) == host(&array.read_buffer(&within[0]).unwrap()));
        assert_ne!(crossed(&strict), 9 * 4);
        let columns = NdBuffer::empty(device, DType::INT32, &[3, 3], Order::F).unwrap();
        on_device.read_into(&within[0], &columns).unwrap();
        assert_eq!(crossed(&on_device), CHUNK_BYTES);
        assert_eq!(host(&columns), host(&array.read_buffer(&within[0]).unwrap()));
    }
}

#[test]
fn elements_are_converted_on_the_way() {
    let codecs = [json!([bytes_codec("little")]), json!([bytes_codec("big"), zstd_codec()])];
    for codecs in codecs {
        let (array, store) = create(metadata(&[9, 8], &[4, 3], "int32", json!(-7), codecs));
        array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
        store.delete("a/c/0/1").unwrap();
        let selection = Selection::from_slices(&[SliceArg::Index(2), SliceArg::Ellipsis], array.shape()).unwrap();
        let expected: Vec<u8> = [16.0, 17.0, 18.0, -7.0, -7.0, -7.0, 22.0, 23.0]
            .iter()
            .flat_map(|value: &f64| value.to_ne_bytes())
            .collect();
        for device in devices() {
            let out = NdBuffer::empty(device, DType::FLOAT64, &[8], Order::C).unwrap();
            array.read_into(&selection, &out).unwrap();
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), expected);
        }
        let raw = NdBuffer::empty(Device::Cpu, DType::opaque(4), &[8], Order::C).unwrap();
        assert_eq!(array.read_into(&selection, &raw).unwrap_err().kind(), ErrorKind::DTypeMismatch);
    }
}

#[test]
fn results_are_where_and_how_the_options_say() {
    for device in devices() {
        let (array, _) = create(plain());
        array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
        for order in [Order::C, Order::F] {
            let array = array.with_options(array.options().clone().with_device(device).with_order(order));
            let args = [SliceArg::Slice { start: Some(1), stop: None, step: Some(3) }, SliceArg::Ellipsis];
            let read = array.read_buffer(&Selection::from_slices(&args, array.shape()).unwrap()).unwrap();
            assert_eq!((read.device(), read.shape()), (device, &[3, 8][..]));
            assert!(read.is_contiguous(order));
            let expected: Vec<u8> =
                [1, 4, 7].iter().flat_map(|row| row * 8..row * 8 + 8).flat_map(|at: i32| at.to_ne_bytes()).collect();
            assert_eq!(read.to_host_bytes(Order::C).unwrap(), expected);
            let report = array.last_report().unwrap();
            // Kernels decode all of them at once, hosts with many threads one by one.
            let count = report.stage(Stage::Decode).count;
            assert!(count == 6 || (device != Device::Cpu && count == 1), "{device}: {count}");
            assert_eq!(report.stage(Stage::Upload).count > 0, device != Device::Cpu);
        }
    }
}

#[test]
fn errors_lead_from_the_array_to_the_chunk() {
    let (array, store) = create(plain());
    array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
    store.write("a/c/1/2", b"nonsense").unwrap();
    let error = array.read_buffer(&Selection::all(array.shape())).unwrap_err();
    assert!(error.trail()[0].ends_with("array '/a'"), "{error}");
    assert_eq!(error.trail()[1], "chunk 'a/c/1/2'");
    assert_eq!(error.trail()[2], "codec 'zstd'");
}

#[test]
fn a_changed_shape_is_seen_by_the_next_call() {
    let (mut array, _) = create(plain());
    array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
    array.resize(vec![12, 2]).unwrap();
    let read = array.read_buffer(&Selection::all(array.shape())).unwrap();
    let at = |place: i32| if place / 2 < 9 { place / 2 * 8 + place % 2 } else { 0 };
    let expected: Vec<u8> = (0..24).flat_map(|place| at(place).to_ne_bytes()).collect();
    assert_eq!((read.shape(), read.to_host_bytes(Order::C).unwrap()), (&[12, 2][..], expected));
}

#[test]
fn an_explanation_says_what_would_run_where() {
    let codecs = sharding(&[2, 3], json!([bytes_codec("big"), bz2_codec()]), "end");
    let (array, _) = create(metadata(&[100, 90], &[10, 9], "int32", json!(0), codecs));
    let selection = Selection::region(&[5, 0], &[10, 90]).unwrap();
    let explanation = array.explain(&selection).unwrap();
    assert_eq!((explanation.objects, explanation.chunks, explanation.result_bytes), (20, 6 * 30, 3600));
    assert!(explanation.placements.iter().all(|placement| placement.via_host.is_none()));
    let on_gpu = array.with_options(array.options().clone().with_device(Device::Simt).with_strict(true));
    let explanation = on_gpu.explain(&selection).unwrap();
    let via_host: Vec<&str> =
        explanation.placements.iter().filter(|one| one.via_host.is_some()).map(|one| one.codec.as_str()).collect();
    assert_eq!(via_host, ["numcodecs.bz2"]);
    assert!(explanation.to_string().contains("numcodecs.bz2") && explanation.to_string().contains("via host: "));
    assert_eq!(explanation.to_json()["codecs"].as_array().unwrap().len(), 3);
    let empty = array.explain(&Selection::region(&[0, 0], &[0, 5]).unwrap()).unwrap();
    assert_eq!((empty.objects, empty.chunks, empty.batches), (0, 0, 0));
}

#[test]
fn strict_refuses_what_would_run_on_the_host() {
    for device in kernel_devices() {
        for (codecs, refused) in
            [(json!([bytes_codec("big")]), false), (json!([bytes_codec("big"), bz2_codec()]), true)]
        {
            let (array, _) = create(metadata(&[9, 8], &[4, 3], "int32", json!(0), codecs));
            let array = array.with_options(array.options().clone().with_device(device).with_strict(true));
            let all = Selection::all(array.shape());
            let value = numbers(&array).to_device(device).unwrap();
            let outcomes = [array.write_buffer(&all, &value).err(), array.read_buffer(&all).err()];
            for error in outcomes {
                assert_eq!(error.map(|error| error.kind()), refused.then_some(ErrorKind::FallbackRefused));
            }
        }
    }
}

#[test]
fn verifying_finds_every_damaged_object_and_nothing_else() {
    let sharded = sharding(&[2, 3], json!([bytes_codec("little"), {"name": "crc32c"}]), "end");
    for (metadata, offset) in [(plain(), 0), (self::metadata(&[9, 8], &[4, 3], "int32", json!(0), sharded), 3)] {
        let (array, store) = create(metadata);
        array.write_buffer(&Selection::all(array.shape()), &numbers(&array)).unwrap();
        assert!(array.verify(&|_, _| ()).unwrap().is_empty());
        for key in ["c/0/1", "c/2/2"] {
            let mut bytes = store.get(&format!("a/{key}")).unwrap().unwrap();
            bytes[offset] ^= 0x55;
            store.write(&format!("a/{key}"), &bytes).unwrap();
        }
        let heard = Mutex::new(Vec::new());
        let damaged =
            array.verify(&|key, error| heard.lock().unwrap().push((key.to_string(), error.is_some()))).unwrap();
        let keys: Vec<&str> = damaged.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["c/0/1", "c/2/2"]);
        let heard = heard.into_inner().unwrap();
        assert_eq!((heard.len(), heard.iter().filter(|(_, bad)| *bad).count()), (9, 2));
    }
}

fn variable(codecs: Value) -> ArrayMetadata {
    metadata(&[7, 10], &[4, 6], "string", json!("-"), codecs)
}

#[test]
fn elements_of_variable_length_are_written_and_read() {
    let inner = json!([{"name": "vlen-utf8"}, zstd_codec()]);
    for codecs in [inner.clone(), sharding(&[2, 3], inner, "end")] {
        let (array, store) = create(variable(codecs));
        let mut model = vec![String::from("-"); 70];
        let mut dice = Dice(5);
        for _ in 0..12 {
            let axis = |dice: &mut Dice, len: u64| {
                let (start, step) = (dice.below(len), 1 + dice.below(3));
                let count = 1 + dice.below((len - start).div_ceil(step));
                AxisSelection { start, count, step, dropped: count == 1 && dice.chance(2) }
            };
            let selection = Selection::new(vec![axis(&mut dice, 7), axis(&mut dice, 10)]).unwrap();
            let axes = selection.axes().unwrap();
            let mut value = VariableElements::with_capacity(0);
            for row in 0..axes[0].count {
                for column in 0..axes[1].count {
                    let text = if dice.chance(3) { String::from("-") } else { "x".repeat(dice.below(9) as usize) };
                    value.push(text.as_bytes());
                    let place = (axes[0].start + row * axes[0].step) * 10 + axes[1].start + column * axes[1].step;
                    model[place as usize] = text;
                }
            }
            array.write_variable(&selection, &value).unwrap();
            assert_eq!(
                array.read_variable(&selection).unwrap().iter().collect::<Vec<_>>(),
                value.iter().collect::<Vec<_>>()
            );
            let all = array.read_variable(&Selection::all(array.shape())).unwrap();
            let all: Vec<&str> = all.iter().map(|bytes| std::str::from_utf8(bytes).unwrap()).collect();
            assert_eq!(all, model);
        }
        assert!(array.verify(&|_, _| ()).unwrap().is_empty());
        let blank = VariableElements { offsets: (0..71).collect(), data: b"-".repeat(70) };
        array.write_variable(&Selection::all(array.shape()), &blank).unwrap();
        assert_eq!(store.list("a").unwrap(), ["a/zarr.json"], "empty chunks are not stored");
        assert_eq!(array.read_buffer(&Selection::all(array.shape())).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let (array, _) = create(plain());
    assert_eq!(array.read_variable(&Selection::all(array.shape())).unwrap_err().kind(), ErrorKind::Unsupported);
}
