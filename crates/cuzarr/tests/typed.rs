//! Typed reads and writes: elements as Rust values.

mod model;

use std::fmt::Debug;
use std::sync::Arc;

use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions, HostData, Values};
use cuzarr::plan::{Selection, SliceArg};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_device::{HostElement, NdBuffer, Order};
use model::{bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

fn array(shape: &[u64], chunks: &[u64], data_type: &str, fill: Value) -> Array {
    let metadata = metadata(shape, chunks, data_type, fill, json!([bytes_codec("little"), zstd_codec()]));
    Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, ArrayOptions::default()).unwrap()
}

fn region(start: &[u64], extent: &[u64]) -> Selection {
    Selection::region(start, extent).unwrap()
}

fn all(array: &Array) -> Selection {
    Selection::all(array.shape())
}

/// What is written comes back, whole and in part, from an array of many chunks, of one element and of none.
fn goes_round<T: HostElement + PartialEq + Debug>(data_type: &str, fill: Value, [first, second]: [T; 2]) {
    let many = array(&[5, 4], &[2, 3], data_type, fill.clone());
    let elements: Vec<T> = (0..20).map(|at| if at % 3 == 0 { first } else { second }).collect();
    many.write(&all(&many), &elements).unwrap();
    let read = many.read::<T>(&all(&many)).unwrap();
    assert_eq!((read.shape(), &read[..]), (&[5, 4][..], &elements[..]), "{data_type}");
    assert_eq!(many.read::<T>(&region(&[1, 1], &[2, 2])).unwrap()[..], [second, first, first, second]);

    let one = array(&[], &[], data_type, fill.clone());
    one.write(&all(&one), &[second]).unwrap();
    let read = one.read::<T>(&all(&one)).unwrap();
    assert_eq!((read.shape(), &read[..]), (&[][..], &[second][..]));

    let none = array(&[0, 3], &[2, 2], data_type, fill);
    none.write(&all(&none), &[] as &[T]).unwrap();
    let read = none.read::<T>(&all(&none)).unwrap();
    assert_eq!((read.shape(), read.len()), (&[0, 3][..], 0));
}

#[test]
fn every_element_type_goes_round() {
    goes_round("bool", json!(false), [true, false]);
    goes_round("int8", json!(0), [i8::MIN, 7]);
    goes_round("int16", json!(0), [i16::MIN, 7]);
    goes_round("int32", json!(0), [i32::MIN, 7]);
    goes_round("int64", json!(0), [i64::MIN, 7]);
    goes_round("uint8", json!(0), [u8::MAX, 7]);
    goes_round("uint16", json!(0), [u16::MAX, 7]);
    goes_round("uint32", json!(0), [u32::MAX, 7]);
    goes_round("uint64", json!(0), [u64::MAX, 7]);
    goes_round("float32", json!(0), [f32::NEG_INFINITY, 1.5]);
    goes_round("float64", json!(0), [f64::NEG_INFINITY, 1.5]);
    goes_round("r24", json!([0, 0, 0]), [[1_u8, 2, 3], [4, 5, 6]]);
}

#[cfg(feature = "half")]
#[test]
fn halves_go_round() {
    goes_round("float16", json!(0), [half::f16::MIN, half::f16::from_f32(1.5)]);
    goes_round("bfloat16", json!(0), [half::bf16::MIN, half::bf16::from_f32(1.5)]);
}

#[cfg(feature = "num-complex")]
#[test]
fn complex_numbers_go_round() {
    use num_complex::Complex;
    goes_round("complex64", json!([0, 0]), [Complex::new(1.5_f32, -2.0), Complex::new(0.0, f32::INFINITY)]);
    goes_round("complex128", json!([0, 0]), [Complex::new(1.5_f64, -2.0), Complex::new(0.0, f64::INFINITY)]);
}

fn refused<T>(outcome: Result<T, Error>, kind: ErrorKind, words: &[&str]) {
    let error = outcome.err().expect("refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn another_type_is_refused_or_converted_when_asked() {
    let array = array(&[3], &[2], "float32", json!(0.5));
    let mismatch = ["array '/a'", "f64", "float64", "float32"];
    let hinted = |hint| mismatch.into_iter().chain([hint]).collect::<Vec<_>>();
    refused(array.read::<f64>(&all(&array)), ErrorKind::DTypeMismatch, &hinted("`read_as`"));
    refused(array.write(&all(&array), &[1.0_f64; 3]), ErrorKind::DTypeMismatch, &hinted("`write_as`"));
    refused(array.read::<[u8; 4]>(&all(&array)), ErrorKind::DTypeMismatch, &["opaque4"]);
    assert_eq!(array.read_as::<f64>(&all(&array)).unwrap()[..], [0.5; 3]);
    array.write_as(&all(&array), &[1_i64, -2, 3]).unwrap();
    assert_eq!(array.read::<f32>(&all(&array)).unwrap()[..], [1.0, -2.0, 3.0]);
    assert_eq!(array.read_as::<i8>(&all(&array)).unwrap()[..], [1, -2, 3]);
    assert_eq!(array.read_as::<bool>(&all(&array)).unwrap()[..], [true; 3]);
    refused(array.read_as::<[u8; 3]>(&all(&array)), ErrorKind::DTypeMismatch, &["opaque3"]);
    refused(array.write_as(&all(&array), &[[1_u8; 3]; 3]), ErrorKind::DTypeMismatch, &["opaque3"]);
}

#[test]
fn sixteen_bits_of_a_float_are_no_integer() {
    let array = array(&[2], &[2], "float16", json!(1.5));
    refused(array.read::<u16>(&all(&array)), ErrorKind::DTypeMismatch, &["u16", "float16"]);
    assert_eq!(array.read_as::<f32>(&all(&array)).unwrap()[..], [1.5; 2]);
}

#[test]
fn times_are_their_counts() {
    let metadata = ArrayMetadata::from_json(
        br#"{
            "zarr_format": 3, "node_type": "array", "shape": [2], "fill_value": 5,
            "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]
        }"#,
    );
    let (store, options) = (Arc::new(MemoryStore::new()), ArrayOptions::default());
    let array = Array::create(store, "a", metadata.unwrap(), false, options).unwrap();
    array.write(&region(&[1], &[1]), &[1_700_000_000_i64]).unwrap();
    assert_eq!(array.read::<i64>(&all(&array)).unwrap()[..], [5, 1_700_000_000]);
}

#[test]
fn shapes_are_checked_and_broadcast() {
    let array = array(&[2, 3], &[2, 2], "int16", json!(0));
    let wrong = array.write(&all(&array), &[1_i16, 2]);
    refused(wrong, ErrorKind::ShapeMismatch, &["2 elements", "[2, 3]"]);
    let row = Values::new(&[3], vec![1_i16, 2, 3]).unwrap();
    array.write(&all(&array), &row).unwrap();
    assert_eq!(array.read::<i16>(&all(&array)).unwrap()[..], [1, 2, 3, 1, 2, 3]);
    array.write(&region(&[0, 1], &[2, 2]), &Values::new(&[], vec![9_i16]).unwrap()).unwrap();
    assert_eq!(array.read::<i16>(&all(&array)).unwrap()[..], [1, 9, 9, 1, 9, 9]);
    let column = Values::new(&[2], vec![1_i16, 2]).unwrap();
    refused(array.write(&all(&array), &column), ErrorKind::ShapeMismatch, &["[2]", "[2, 3]"]);
    let second = [SliceArg::Ellipsis, SliceArg::Index(1)];
    let second = Selection::from_slices(&second, array.shape()).unwrap();
    array.write(&second, &[7_i16, 8]).unwrap();
    let read = array.read::<i16>(&second).unwrap();
    assert_eq!((read.shape(), &read[..]), (&[2][..], &[7, 8][..]));
    refused(array.read::<i16>(&region(&[0, 0], &[3, 3])), ErrorKind::SelectionInvalid, &["array '/a'"]);
}

#[test]
fn values_know_their_shape() {
    let mut values = Values::new(&[2, 3], vec![1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!([values.element(&[0, 2]), values.element(&[1, 0])], [Some(&3), Some(&4)]);
    assert_eq!([values.element(&[0, 3]), values.element(&[0]), values.element(&[2, 0])], [None; 3]);
    values[5] = 7;
    assert_eq!(values.clone().into_vec(), [1, 2, 3, 4, 5, 7]);
    assert_eq!(Values::new(&[], vec![3]).unwrap().element(&[]), Some(&3));
    assert_eq!(Values::<u8>::new(&[0, 5], vec![]).unwrap().element(&[0, 0]), None);
    for shape in [&[7][..], &[], &[0, 6], &[usize::MAX, 2]] {
        refused(Values::new(shape, vec![0; 6]), ErrorKind::ShapeMismatch, &["6 elements"]);
    }
    refused(Values::<u8>::new(&[0, usize::MAX, 2], vec![]), ErrorKind::ShapeMismatch, &[]);
}

#[test]
fn a_read_copies_nothing_behind_the_engine() {
    let array = array(&[300, 200], &[64, 64], "float64", json!(2.5));
    // The thread that ended a read may hold its share of the result for a moment longer; then the elements are copied.
    let is_as_read = || {
        let out = NdBuffer::zeroed_vec::<f64>(&[300, 200]).unwrap();
        array.read_into(&all(&array), &out).unwrap();
        let address = out.address();
        let elements = out.into_vec::<f64>().unwrap();
        assert!(elements.iter().all(|&element| element == 2.5));
        elements.as_ptr() as usize == address
    };
    assert!((0..100).any(|_| is_as_read()), "the memory of a result is kept");
}

#[test]
fn arrays_on_every_device_are_read_and_written_by_the_host() {
    for device in devices() {
        for order in [Order::C, Order::F] {
            let codecs = sharding(&[2, 2], json!([bytes_codec("big"), zstd_codec()]), "end");
            let metadata = metadata(&[6, 5], &[4, 4], "uint32", json!(3), codecs);
            let options = ArrayOptions::default().with_device(device).with_order(order).with_strict(true);
            let array = Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, options).unwrap();
            array.write(&region(&[1, 0], &[2, 5]), &(0..10).collect::<Vec<u32>>()).unwrap();
            let read = array.read::<u32>(&region(&[1, 3], &[3, 2])).unwrap();
            assert_eq!(read[..], [3, 4, 8, 9, 3, 3], "{device}");
        }
    }
}

#[test]
fn an_update_reads_changes_and_writes() {
    let array = array(&[4], &[4], "uint64", json!(0));
    let counter = region(&[2], &[1]);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let update = array.update(&counter).unwrap();
                let count = array.read::<u64>(&counter).unwrap()[0];
                update.write(&[count + 1]).unwrap();
                update.write_as(&[count as f64 + 10.0]).unwrap();
            });
        }
    });
    assert_eq!(array.read::<u64>(&all(&array)).unwrap()[..], [0, 0, 40, 0]);
    let update = array.update(&counter).unwrap();
    refused(update.write(&[1_u8]), ErrorKind::DTypeMismatch, &["uint64"]);
}

#[test]
fn elements_of_variable_length_have_calls_of_their_own() {
    let codecs = json!([{"name": "vlen-utf8"}]);
    let metadata = metadata(&[2], &[2], "string", json!(""), codecs);
    let array = Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, ArrayOptions::default()).unwrap();
    for outcome in [
        array.read::<u8>(&all(&array)).map(|_| ()),
        array.read_as::<u8>(&all(&array)).map(|_| ()),
        array.write(&all(&array), &[1_u8, 2]),
        array.write_as(&all(&array), &[1_u8, 2]),
    ] {
        refused(outcome, ErrorKind::Unsupported, &["`read_variable`", "array '/a'"]);
    }
}

#[test]
fn stored_bytes_that_are_no_bool_are_damage() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let metadata = metadata(&[2], &[2], "bool", json!(false), json!([bytes_codec("little")]));
    let array = Array::create(Arc::clone(&store), "a", metadata, false, ArrayOptions::default()).unwrap();
    store.write("a/c/0", &[1, 2]).unwrap();
    refused(array.read::<bool>(&all(&array)), ErrorKind::ChunkCorrupt, &["bool", "array '/a'"]);
    assert_eq!(array.read::<bool>(&region(&[0], &[1])).unwrap()[..], [true]);
}

/// A user's own type that holds elements.
struct Rows([Box<[f32]>; 2]);

impl HostData for Rows {
    type Element = f32;

    fn view(&self) -> cuzarr::node::HostView<'_, f32> {
        cuzarr::node::HostView::shaped(self.0.concat(), &[2, self.0[0].len()])
    }
}

#[test]
fn users_may_write_types_of_their_own() {
    let array = array(&[2, 3], &[2, 2], "float32", json!(0));
    array.write(&all(&array), &Rows([Box::new([1.0, 2.0, 3.0]), Box::new([4.0, 5.0, 6.0])])).unwrap();
    assert_eq!(array.read::<f32>(&all(&array)).unwrap()[..], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_go_round_in_every_layout() {
    use ndarray::{Array1, Array2, Array3, arr0, s};
    let array = array(&[4, 6], &[3, 4], "int32", json!(0));
    let elements = Array2::from_shape_fn((4, 6), |(row, column)| (10 * row + column) as i32);
    let read = || array.read::<i32>(&all(&array)).unwrap().into_ndarray();
    array.write(&all(&array), &elements).unwrap();
    assert_eq!(read(), elements.clone().into_dyn());
    let wide = Array3::from_shape_fn((6, 4, 2), |(column, row, twice)| (10 * row + column + 100 * twice) as i32);
    let turned = Array2::from_shape_fn((6, 4), |(column, row)| (10 * row + column) as i32);
    for view in [
        turned.t(),
        turned.slice(s![..;-1, ..]).reversed_axes(),
        turned.slice(s![..;-1, ..;-1]).reversed_axes(),
        wide.slice(s![.., .., 1]).reversed_axes(),
        wide.slice(s![..;-1, .., 1]).reversed_axes(),
        Array1::from_iter(0..6).broadcast((4, 6)).unwrap(),
        arr0(9).broadcast((4, 6)).unwrap(),
    ] {
        array.write(&all(&array), &view).unwrap();
        assert_eq!(read(), view.into_dyn());
    }
    array.write(&all(&array), &Array1::from_iter(0..6)).unwrap();
    assert_eq!(read().index_axis(ndarray::Axis(0), 3), Array1::from_iter(0..6).into_dyn());
    array.write(&all(&array), &arr0(5)).unwrap();
    let values = array.read::<i32>(&region(&[1, 2], &[2, 3])).unwrap();
    assert_eq!(values.view(), Array2::from_elem((2, 3), 5).into_dyn());
}

#[cfg(feature = "ndarray")]
#[test]
fn empty_arrays_and_scalars_of_ndarray_go_round() {
    use ndarray::{Array2, arr0};
    let none = array(&[0, 3], &[1, 2], "uint8", json!(0));
    none.write(&all(&none), &Array2::<u8>::zeros((0, 3)).slice(ndarray::s![.., ..;-1])).unwrap();
    assert_eq!(none.read::<u8>(&all(&none)).unwrap().into_ndarray().shape(), [0, 3]);
    let one = array(&[], &[], "uint8", json!(0));
    one.write(&all(&one), &arr0(7_u8)).unwrap();
    assert_eq!(one.read::<u8>(&all(&one)).unwrap().into_ndarray(), arr0(7).into_dyn());
}
