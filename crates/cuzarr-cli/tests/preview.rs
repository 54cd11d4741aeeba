//! `cuzarr preview`: places of axes, lines, channels of images and labels.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions, Group};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, Store};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

fn cuzarr(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzarr")).args(arguments).output().expect("the command starts")
}

fn preview(path: &Path, more: &[&str]) -> Value {
    let output = cuzarr(&[&["preview", "--json", path.to_str().unwrap()], more].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Red, green and blue of every pixel of a PNG file, and its width.
fn pixels(path: &Path) -> (Vec<[u8; 3]>, usize) {
    let mut reader =
        png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut bytes).unwrap();
    (bytes.chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(), frame.width as usize)
}

fn create(store: &Arc<dyn Store>, path: &str, names: &[&str], shape: &[u64], values: &[f32], attributes: Value) {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "float32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default"}, "dimension_names": names, "attributes": attributes,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    let array = Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap();
    write(&array, DType::FLOAT32, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>());
}

fn write(array: &Array, dtype: DType, bytes: &[u8]) {
    let shape: Vec<usize> = array.shape().iter().map(|&extent| extent as usize).collect();
    let value = NdBuffer::from_host(Device::Cpu, dtype, &shape, Order::C, bytes).unwrap();
    array.write_buffer(&Selection::all(array.shape()), &value).unwrap();
}

/// Bytes of an array of `uint8`, as a level of an image.
fn level(store: &Arc<dyn Store>, path: &str, shape: &[u64], values: &[u8]) {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    write(
        &Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap(),
        DType::UINT8,
        values,
    );
}

fn ome(axes: &str, more: Value) -> Value {
    let kind = |name| match name {
        'c' => "channel",
        _ => "space",
    };
    let axes: Vec<Value> = axes.chars().map(|name| json!({"name": name.to_string(), "type": kind(name)})).collect();
    let scale = vec![0.5; axes.len()];
    let datasets = json!([{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": scale}]}]);
    let mut ome = json!({"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]});
    ome.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "ome": ome })
}

fn image(store: &Arc<dyn Store>, path: &str, attributes: Value) {
    let mut group = Group::builder().create_in(Arc::clone(store), path).unwrap();
    group.set_attributes(attributes.as_object().unwrap().clone()).unwrap();
}

#[test]
fn axes_show_the_coordinates_that_have_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
    let values: Vec<f32> = (0..12).map(|at| at as f32).collect();
    create(&store, "t2m", &["latitude", "level"], &[3, 4], &values, json!({}));
    create(&store, "latitude", &["latitude"], &[3], &[90.0, 0.0, -90.0], json!({"units": "degrees_north"}));
    create(&store, "level", &["level"], &[4], &[1000.0, 850.0, 500.0, 10.0], json!({}));
    let place = directory.path().join("t2m");
    let axes = &preview(&place, &[])["axes"];
    assert_eq!(axes[0], json!({"name": "latitude (degrees_north)", "first": 90.0, "last": -90.0}));
    assert_eq!(axes[1], json!({"name": "level", "first": 1000.0, "last": 10.0}));
    let part = preview(&place, &["--slice", "1:,::2"]);
    assert_eq!((&part["axes"][0]["first"], &part["axes"][1]["last"]), (&json!(0.0), &json!(500.0)));
    let shown = String::from_utf8(cuzarr(&["preview", place.to_str().unwrap()]).stdout).unwrap();
    assert!(shown.contains("down latitude (degrees_north): 90 to -90, across level: 1000 to 10"), "{shown}");
    // A coordinate of another length is none.
    create(&store, "other", &["latitude", "level"], &[2, 4], &values[..8], json!({}));
    assert_eq!(
        preview(&directory.path().join("other"), &[])["axes"][0],
        json!({"name": "latitude", "first": 0.0, "last": 1.0})
    );
}

#[test]
fn an_array_of_one_dimension_is_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
    create(&store, "time", &["time"], &[5], &[0.0, 1.0, 2.0, f32::NAN, 0.5], json!({"units": "days"}));
    create(&store, "plane", &["y", "time"], &[2, 5], &[1.0; 10], json!({}));
    let place = directory.path().join("time");
    let line = preview(&place, &[]);
    assert_eq!((&line["rows"], &line["columns"], &line["max"]), (&json!(1), &json!(5), &json!(2.0)));
    let shown = String::from_utf8(cuzarr(&["preview", place.to_str().unwrap()]).stdout).unwrap();
    assert!(shown.lines().count() > 10 && shown.contains('@'), "{shown}");
    let file = directory.path().join("line.png");
    preview(&place, &["--png", file.to_str().unwrap()]);
    assert!(pixels(&file).0.contains(&[46, 92, 160]), "the line is drawn");
    assert_eq!(preview(&directory.path().join("plane"), &["--slice", "1"])["columns"], 5);
}

#[test]
fn an_image_shows_the_middle_of_its_stack_in_the_colours_of_its_channels() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
    let mut values = vec![0; 2 * 3 * 2 * 2];
    // Channel 0 has light at the left of plane 1, channel 1 at its right.
    (values[4], values[6], values[17], values[19]) = (100, 100, 50, 50);
    let window = |end: u64| json!({"start": 0, "end": end, "min": 0, "max": 255});
    let channel = |label: &str, color: &str| json!({"label": label, "color": color, "window": window(100)});
    let channels = json!({"omero": {"channels": [channel("DAPI", "0000FF"), channel("GFP", "00FF00")]}});
    for (name, more) in [("own", channels), ("automatic", json!({}))] {
        image(&store, name, ome("czyx", more));
        level(&store, &format!("{name}/0"), &[2, 3, 2, 2], &values);
    }
    let file = directory.path().join("image.png");
    let own = preview(&directory.path().join("own"), &["--png", file.to_str().unwrap()]);
    assert_eq!(own["channels"][0], json!({"name": "DAPI", "color": "0000FF", "min": 0.0, "max": 100.0}));
    assert_eq!(own["axes"][1], json!({"name": "x", "first": 0.0, "last": 0.5}));
    let (drawn, _) = pixels(&file);
    assert!(drawn.contains(&[0, 0, 255]) && drawn.contains(&[0, 128, 0]), "half of the window is half as light");
    let automatic = preview(&directory.path().join("automatic"), &["--png", file.to_str().unwrap()]);
    assert_eq!(
        (&automatic["channels"][1]["name"], &automatic["channels"][1]["max"]),
        (&json!("channel 1"), &json!(50.0))
    );
    let (drawn, _) = pixels(&file);
    assert!(drawn.contains(&[0, 255, 0]) && drawn.contains(&[255, 0, 255]));
    let plane = preview(&directory.path().join("own"), &["--slice", "0,0"]);
    assert_eq!((&plane["channels"], &plane["max"]), (&Value::Null, &json!(0.0)));
}

#[test]
fn labels_have_a_colour_each() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
    let colours = json!({"image-label": {"colors": [{"label-value": 2, "rgba": [10, 20, 30, 255]}]}});
    image(&store, "labels", ome("yx", colours));
    level(&store, "labels/0", &[2, 2], &[1, 1, 2, 3]);
    let file = directory.path().join("labels.png");
    let colours = |more: &[&str]| {
        preview(&directory.path().join("labels"), &[&["--png", file.to_str().unwrap()][..], more].concat());
        let coloured = |[red, green, blue]: &[u8; 3]| red != green || green != blue;
        pixels(&file).0.into_iter().filter(coloured).collect::<std::collections::BTreeSet<_>>()
    };
    let own = colours(&[]);
    assert!(own.contains(&[10, 20, 30]) && own.len() == 3, "{own:?}");
    assert!(colours(&["--cmap", "grey"]).is_empty());
    assert!(colours(&["--cmap", "viridis"]).len() > 100, "a bar of all colours is beside it");
}
