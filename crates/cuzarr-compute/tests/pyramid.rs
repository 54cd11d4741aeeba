//! Pyramids: every level made of the one before, whatever the budget; their attributes as OME-Zarr 0.5 has them.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::meta::{ArrayMetadata, GroupMetadata, ZarrFormat};
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

fn group(store: &Arc<dyn Store>, path: &str, attributes: &Value) -> Group {
    let metadata = GroupMetadata::new(ZarrFormat::V3, attributes.as_object().unwrap().clone()).unwrap();
    Group::create_from(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap()
}

fn plane(store: &Arc<dyn Store>, path: &str, shape: &[u64], attributes: &Value) -> Array {
    let mut document = metadata(shape, shape, "uint16", json!(0), json!([bytes_codec("little")]));
    document
        .set_dimension_names(["lat", "lon"][..shape.len()].iter().map(|name| Some(name.to_string())).collect())
        .unwrap();
    document.set_attributes(attributes.as_object().unwrap().clone()).unwrap();
    Array::create(Arc::clone(store), path, document, false, ArrayOptions::default()).unwrap()
}

/// An image of GeoZarr, whose levels are groups with an array `b02` each.
fn of_earth(store: &Arc<dyn Store>) -> Group {
    let conventions = json!([{"name": "multiscales"}, {"name": "proj:"}, {"name": "spatial:"}, {"name": "license"}]);
    let layout = json!([
        {"asset": "r10m", "transform": {"scale": [1.0, 1.0]},
            "spatial:transform": [10.0, 0.0, 500.0, 0.0, -10.0, 900.0], "spatial:shape": [40, 31]},
        {"asset": "r20m", "derived_from": "r10m", "transform": {"scale": [2.0, 2.0]}},
    ]);
    let image = group(
        store,
        "earth",
        &json!({
            "multiscales": {"layout": layout}, "zarr_conventions": conventions, "proj:code": "EPSG:32631",
            "spatial:dimensions": ["lat", "lon"], "spatial:bbox": [500, 500, 810, 900], "title": "a tile",
        }),
    );
    for (level, shape) in [("r10m", [40, 31]), ("r20m", [20, 16])] {
        group(store, &format!("earth/{level}"), &json!({}));
        plane(store, &format!("earth/{level}/b02"), &shape, &json!({"units": "1"}));
        plane(store, &format!("earth/{level}/lat"), &shape[..1], &json!({}));
    }
    image
}

#[test]
fn levels_of_an_image_of_the_earth_lie_where_its_own_lie() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let settings = PyramidOptions::default().with_levels(3);
    let made = Pyramid::of_image(&of_earth(&store), Arc::clone(&store), "made", Existing::Refuse, settings).unwrap();
    let made = made.run(&|_, _| ()).unwrap();
    let attributes = made.metadata().attributes();
    assert_eq!((&attributes["proj:code"], &attributes["title"]), (&json!("EPSG:32631"), &json!("a tile")));
    for gone in ["spatial:transform", "spatial:shape", "spatial:bbox", "multiscales"] {
        assert!(!attributes.contains_key(gone), "{gone} is not of all levels");
    }
    for (level, size, shape) in [("0", 10.0, [40, 31]), ("1", 20.0, [20, 16]), ("2", 40.0, [10, 8])] {
        let level = made.array(level).unwrap();
        let own = level.metadata().attributes();
        assert_eq!(level.shape(), shape);
        assert_eq!(own["spatial:transform"], json!([size, 0.0, 500.0, 0.0, -size, 900.0]));
        assert_eq!((&own["spatial:shape"], &own["spatial:dimensions"]), (&json!(shape), &json!(["y", "x"])));
        assert_eq!((&own["proj:code"], own.contains_key("spatial:bbox")), (&json!("EPSG:32631"), size == 10.0));
        assert_eq!(own["zarr_conventions"], json!([{"name": "proj:"}, {"name": "spatial:"}]));
    }
    assert_eq!(made.array("0").unwrap().metadata().attributes()["units"], "1");
}

#[test]
fn a_level_that_is_a_group_of_several_arrays_is_refused_with_their_names() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let image = of_earth(&store);
    plane(&store, "earth/r10m/b03", &[40, 31], &json!({}));
    let plan = Pyramid::of_image(&image, Arc::clone(&store), "made", Existing::Refuse, PyramidOptions::default());
    let error = plan.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(r#"'r10m' is a group with the arrays ["b02", "b03"]"#), "{error}");
}

/// An image of OME-Zarr 0.6 with labels and one transformation besides those of its level.
fn of_systems(store: &Arc<dyn Store>, transformation: &Value) -> Group {
    let axes = json!([{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]);
    let image = |transformations: Value| {
        let systems = json!([{"name": "physical", "axes": axes}, {"name": "stage", "axes": axes}]);
        let scale = json!({"type": "scale", "scale": [1, 1], "input": {"path": "s0"}, "output": {"name": "physical"}});
        json!([{"coordinateSystems": systems, "coordinateTransformations": transformations,
            "datasets": [{"path": "s0", "coordinateTransformations": [scale]}]}])
    };
    let made =
        group(store, "image", &json!({"ome": {"version": "0.6", "multiscales": image(json!([transformation]))}}));
    plane(store, "image/s0", &[8, 8], &json!({}));
    group(store, "image/labels", &json!({"ome": {"version": "0.6", "labels": ["cells"]}}));
    let labels = json!({"ome": {"version": "0.6", "image-label": {}, "multiscales": image(json!([]))}});
    group(store, "image/labels/cells", &labels);
    plane(store, "image/labels/cells/s0", &[8, 8], &json!({}));
    made
}

#[test]
fn transformations_that_need_what_a_pyramid_does_not_have_are_refused_by_name() {
    let ends = |mut step: Value, path: &str| {
        step["input"] = json!({"name": "physical"});
        step["output"] =
            if path.is_empty() { json!({"name": "stage"}) } else { json!({"name": "stage", "path": path}) };
        step
    };
    let identity = json!({"type": "identity"});
    let field = json!({"type": "displacements", "path": "field"});
    let plan = |transformation: &Value| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let image = of_systems(&store, transformation);
        Pyramid::of_image(&image, Arc::clone(&store), "made", Existing::Refuse, PyramidOptions::default())
    };
    for (transformation, named) in [
        (ends(json!({"type": "affine", "path": "numbers"}), ""), "numbers"),
        (ends(json!({"type": "sequence", "transformations": [identity, field]}), ""), "field"),
        (ends(json!({"type": "bijection", "forward": identity, "inverse": field}), ""), "field"),
        (ends(json!({"type": "byDimension", "transformations": [{"transformation": field}]}), ""), "field"),
        (ends(identity.clone(), "../other"), "../other"),
        (ends(identity.clone(), "labels/nuclei"), "labels/nuclei"),
    ] {
        let error = plan(&transformation).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(named), "{error}");
    }
    for kept in [ends(identity.clone(), ""), ends(identity, "labels/cells")] {
        let made = plan(&kept).unwrap().run(&|_, _| ()).unwrap();
        let image = &made.metadata().attributes()["ome"]["multiscales"][0];
        assert_eq!(image["coordinateTransformations"], json!([kept]));
        let labels = made.group("labels/cells").unwrap();
        assert_eq!(labels.metadata().attributes()["ome"]["multiscales"][0]["coordinateSystems"][1]["name"], "stage");
    }
}

#[test]
fn a_group_of_several_images_or_of_a_scene_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let images = json!([{"name": "2D", "datasets": [{"path": "0"}]}, {"name": "3D", "datasets": [{"path": "0"}]}]);
    let several = group(&store, "several", &json!({"ome": {"version": "0.5", "multiscales": images}}));
    plane(&store, "several/0", &[8, 8], &json!({}));
    let scene = group(&store, "scene", &json!({"ome": {"version": "0.6", "scene": {"coordinateTransformations": []}}}));
    for (source, kind, named) in [
        (several, ErrorKind::Unsupported, r#"["2D", "3D"]"#),
        (scene, ErrorKind::InvalidArgument, "holds several images"),
    ] {
        let plan = Pyramid::of_image(&source, Arc::clone(&store), "made", Existing::Refuse, PyramidOptions::default());
        let error = plan.err().unwrap();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(named), "{error}");
    }
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
