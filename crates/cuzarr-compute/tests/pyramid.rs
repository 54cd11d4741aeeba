//! Pyramids: every level made of the one before, whatever the budget; their attributes as OME-Zarr 0.5 has them.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions, Group};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store};
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{Changes, Existing, Pyramid, PyramidOptions};
use cuzarr_device::downsample::{Downsampling, downsample};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata, zstd_codec};
use serde_json::{Value, json};

const SHAPE: [u64; 4] = [2, 21, 70, 65];

fn image(options: ArrayOptions) -> (Array, NdBuffer) {
    let metadata = metadata(&SHAPE, &[1, 4, 16, 16], "uint16", json!(0), json!([bytes_codec("little"), zstd_codec()]));
    let array = Array::create(Arc::new(MemoryStore::new()), "image", metadata, false, options).unwrap();
    let mut dice = Dice(3);
    let count = SHAPE.iter().product::<u64>();
    let bytes: Vec<u8> =
        (0..count).flat_map(|at| (dice.below(9) as u16 * 100 + (at % 7) as u16).to_ne_bytes()).collect();
    let value =
        NdBuffer::from_host(Device::Cpu, DType::UINT16, &SHAPE.map(|len| len as usize), Order::C, &bytes).unwrap();
    array.write_buffer(&Selection::all(&SHAPE), &value).unwrap();
    (array, value)
}

fn options(device: Device) -> ArrayOptions {
    ArrayOptions::default().with_device(device).with_memory_limit_bytes(1 << 18).with_threads(2)
}

fn pyramid(method: Downsampling) -> PyramidOptions {
    PyramidOptions::default()
        .with_method(method)
        .with_levels(3)
        .with_factors(vec![1, 2, 2, 2])
        .with_scale(vec![1.0, 0.5, 0.1, 0.1])
}

fn check_levels(group: &Group, value: &NdBuffer, method: Downsampling) {
    let mut expected = value.clone();
    for level in 0..3 {
        let array = group.array(&level.to_string()).unwrap();
        let read = array.read_buffer(&Selection::all(array.shape())).unwrap().to_device(Device::Cpu).unwrap();
        assert!(read.all_equal(&expected, false).unwrap(), "level {level} by {method:?}");
        expected = downsample(&expected, &[1, 2, 2, 2], method).unwrap();
    }
}

#[test]
fn every_level_is_the_whole_of_the_one_before_downsampled() {
    for device in devices() {
        let (array, value) = image(options(device));
        for method in [Downsampling::Mean, Downsampling::Max, Downsampling::Mode, Downsampling::Nearest] {
            let store = Arc::new(MemoryStore::new());
            let plan = Pyramid::new(&array, store, "p", Existing::Refuse, pyramid(method)).unwrap();
            assert_eq!(plan.shapes()[2], [2, 6, 18, 17]);
            check_levels(&plan.run(&|_, _| ()).unwrap(), &value, method);
        }
    }
}

#[test]
fn the_attributes_are_those_of_the_specification() {
    let (array, _) = image(options(Device::Cpu));
    let settings = pyramid(Downsampling::Mean)
        .with_units(["", "micrometer", "micrometer", "micrometer"].map(String::from).to_vec());
    let group = Pyramid::new(&array, Arc::new(MemoryStore::new()), "", Existing::Refuse, settings)
        .unwrap()
        .run(&|_, _| ())
        .unwrap();
    let ome = &group.metadata().attributes()["ome"];
    assert_eq!(ome["version"], "0.5");
    let multiscale = &ome["multiscales"][0];
    assert_eq!(multiscale["axes"][0], json!({"name": "c", "type": "channel"}));
    assert_eq!(multiscale["axes"][3], json!({"name": "x", "type": "space", "unit": "micrometer"}));
    let transformations = &multiscale["datasets"][2]["coordinateTransformations"];
    assert_eq!(transformations[0], json!({"type": "scale", "scale": [1.0, 2.0, 0.4, 0.4]}));
    assert_eq!(transformations[1]["translation"][1], 0.75);
    let names = group.array("2").unwrap().metadata().dimension_names().unwrap().to_vec();
    assert_eq!(names, ["c", "z", "y", "x"].map(|name| Some(name.to_string())));
}

#[test]
fn an_interrupted_pyramid_is_resumed() {
    let (array, value) = image(options(Device::Cpu));
    let kept: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let failing = Observed::new(Arc::clone(&kept)).with_failure(|operation| match operation {
        Operation::Write(key, _) if key == "p/1/c/1/1/0/1" => Some(Error::new(ErrorKind::StoreFailed, "full")),
        _ => None,
    });
    let begin =
        |store: Arc<dyn Store>, existing| Pyramid::new(&array, store, "p", existing, pyramid(Downsampling::Mean));
    begin(Arc::new(failing), Existing::Refuse).unwrap().run(&|_, _| ()).unwrap_err();
    let there: Vec<String> = kept.list("p").unwrap().into_iter().filter(|key| key.contains("/c/")).collect();
    assert!(there.iter().any(|key| key.starts_with("p/1/c")));
    assert_eq!(
        begin(Arc::clone(&kept), Existing::Refuse).err().map(|error| error.kind()),
        Some(ErrorKind::ContainsGroup)
    );
    let observed = Arc::new(Observed::new(Arc::clone(&kept)));
    let group = begin(Arc::clone(&observed) as Arc<dyn Store>, Existing::Resume).unwrap().run(&|_, _| ()).unwrap();
    check_levels(&group, &value, Downsampling::Mean);
    let again = observed
        .take_operations()
        .iter()
        .any(|operation| matches!(operation, Operation::Write(key, _) if there.contains(key)));
    assert!(!again, "a finished chunk was written again");
}

#[test]
fn what_makes_no_pyramid_is_named() {
    let (array, _) = image(options(Device::Cpu));
    let refusal = |settings: PyramidOptions| {
        Pyramid::new(&array, Arc::new(MemoryStore::new()), "", Existing::Refuse, settings)
            .err()
            .map(|error| error.kind())
    };
    let axes = |names: [&str; 4]| PyramidOptions::default().with_axes(names.map(String::from).to_vec());
    for settings in [
        axes(["x", "y", "z", "c"]),
        axes(["t", "c", "c", "x"]),
        axes(["t", "c", "w", "x"]),
        PyramidOptions::default().with_levels(0),
        PyramidOptions::default().with_scale(vec![1.0]),
        PyramidOptions::default().with_scale(vec![1.0, -1.0, 1.0, 1.0]),
        PyramidOptions::default().with_changes(Changes { chunks: Some(vec![Some(1)]), ..Changes::default() }),
    ] {
        assert_eq!(refusal(settings.clone()), Some(ErrorKind::InvalidArgument), "{settings:?}");
    }
    assert_eq!(refusal(axes(["t", "z", "y", "x"])), None);
    let inside =
        Pyramid::new(&array, Arc::clone(array.store()), "image", Existing::Overwrite, PyramidOptions::default());
    assert_eq!(inside.err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
}

#[test]
fn a_number_that_marks_missing_elements_does_not_count() {
    let array = |dtype: &str, attributes: serde_json::Value| {
        let mut document = metadata(&[8, 8], &[4, 4], dtype, json!(0), json!([bytes_codec("little")]));
        document.set_attributes(attributes.as_object().unwrap().clone()).unwrap();
        Array::create(Arc::new(MemoryStore::new()), "a", document, false, ArrayOptions::default()).unwrap()
    };
    let plan = |array: &Array, method| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let made = Pyramid::new(
            array,
            Arc::clone(&store),
            "p",
            Existing::Refuse,
            PyramidOptions::default().with_method(method),
        );
        assert!(store.list("").unwrap().is_empty(), "planning writes nothing");
        made.map(|_| ()).map_err(|error| error.kind())
    };
    let marked = [
        array("int16", json!({"_FillValue": -9999})),
        array("uint8", json!({"missing_value": [255, 254]})),
        array("float32", json!({"_FillValue": "QIy1eB2vFUQ="})), // 1e20 as xarray encodes it
    ];
    for array in &marked {
        assert_eq!(plan(array, Downsampling::Mean), Err(ErrorKind::Unsupported));
        assert_eq!(plan(array, Downsampling::Max), Err(ErrorKind::Unsupported));
        assert_eq!(plan(array, Downsampling::Nearest), Ok(()));
    }
    assert_eq!(plan(&marked[0], Downsampling::Mode), Ok(()));
    for unmarked in [array("int16", json!({})), array("float64", json!({"_FillValue": "AAAAAAAA+H8="}))] {
        assert_eq!(plan(&unmarked, Downsampling::Mean), Ok(()));
    }
}

#[test]
fn an_image_is_made_anew_with_its_labels_and_what_else_its_attributes_say() {
    let (array, _) = image(options(Device::Cpu));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let settings = json!({"version": "0.4", "levels": 2, "channels": ["a", {"label": "b", "color": "00FF00"}], "scale": [1, 2, 1, 1]});
    let settings = PyramidOptions::from_json(&settings, Changes::default()).unwrap();
    let made = Pyramid::new(&array, Arc::clone(&store), "old", Existing::Refuse, settings).unwrap();
    assert_eq!(made.shapes()[1], [2, 21, 35, 33], "z is left alone");
    let mut old = made.run(&|_, _| ()).unwrap();
    let mut attributes = old.metadata().attributes().clone();
    attributes.insert("microscope".into(), json!("A1"));
    attributes.insert("zarr_conventions".into(), json!([{"name": "multiscales"}, {"name": "proj:"}]));
    old.set_attributes(attributes).unwrap();
    let labels = json!({"labels": {"name": "cells"}, "axes": ["c", "z", "y", "x"]});
    let labels = PyramidOptions::from_json(&labels, Changes::default()).unwrap();
    let labelled = Pyramid::new(&array, Arc::clone(&store), "old", Existing::Refuse, labels).unwrap();
    assert_eq!(labelled.shapes(), [SHAPE, [2, 21, 35, 33]]);
    labelled.run(&|_, _| ()).unwrap();

    let settings = PyramidOptions::from_json(&json!({"levels": 3}), Changes::default()).unwrap();
    let new = Pyramid::of_image(&old, Arc::clone(&store), "new", Existing::Refuse, settings).unwrap();
    let new = new.run(&|_, _| ()).unwrap();
    let attributes = new.metadata().attributes();
    assert_eq!(attributes["ome"]["version"], "0.5");
    assert_eq!(attributes["ome"]["omero"]["channels"][1]["color"], "00FF00");
    assert_eq!(
        (&attributes["microscope"], &attributes["zarr_conventions"]),
        (&json!("A1"), &json!([{"name": "proj:"}]))
    );
    assert_eq!(new.array("labels/cells/2").unwrap().shape(), new.array("2").unwrap().shape());
    let listed = new.group("labels").unwrap();
    assert_eq!(listed.metadata().attributes()["ome"]["labels"], json!(["cells"]));
}

/// Where an array of format 2 names its dimensions, xarray takes its fill value for the mark of missing elements.
#[test]
fn no_element_becomes_a_missing_one_when_its_dimensions_are_named() {
    for (attributes, source_format, version, fill_value) in [
        (json!({}), 2, "0.4", Some(json!(null))),
        (json!({"_ARRAY_DIMENSIONS": ["y", "x"]}), 2, "0.4", Some(json!(0))),
        (json!({}), 3, "0.4", Some(json!(null))),
        (json!({}), 2, "0.5", None),
        (json!({}), 3, "0.5", None),
    ] {
        let mut metadata = match source_format {
            2 => {
                let document = json!({"zarr_format": 2, "shape": [8, 8], "chunks": [4, 4], "dtype": "<u2", "fill_value": 0,
                    "order": "C", "filters": null, "compressor": null});
                ArrayMetadata::from_json_v2(document.to_string().as_bytes(), None).unwrap()
            }
            _ => metadata(&[8, 8], &[4, 4], "uint16", json!(0), json!([bytes_codec("little")])),
        };
        metadata.set_attributes(attributes.as_object().unwrap().clone()).unwrap();
        let source = Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, options(Device::Cpu)).unwrap();
        let settings = json!({"version": version, "levels": 2, "axes": ["y", "x"], "method": "nearest"});
        let settings = PyramidOptions::from_json(&settings, Changes::default()).unwrap();
        let made = Pyramid::new(&source, Arc::new(MemoryStore::new()), "p", Existing::Refuse, settings).unwrap();
        let group = made.run(&|_, _| ()).unwrap();
        for level in ["0", "1"] {
            let metadata = group.array(level).unwrap().metadata().clone();
            let case = format!("{attributes} {source_format} {version} {level}");
            match &fill_value {
                Some(fill_value) => {
                    let document: Value = serde_json::from_slice(&metadata.to_json()).unwrap();
                    assert_eq!(document["fill_value"], *fill_value, "{case}");
                }
                None => assert!(metadata.attributes().is_empty(), "{case}: {:?}", metadata.attributes()),
            }
        }
    }
}
