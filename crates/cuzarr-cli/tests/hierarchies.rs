//! Commands on hierarchies: copies of parts, attributes, consolidated metadata, and what a killed copy leaves.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use cuzarr::internal::node::set_unfinished;
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions, Consolidation, Group};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, Store};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

fn cuzarr(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzarr")).args(arguments).output().expect("the command starts")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn passed(arguments: &[&str]) -> String {
    let output = cuzarr(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn create(store: &Arc<dyn Store>, path: &str, shape: &[u64], names: &[&str]) {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int32", "fill_value": -1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default"}, "dimension_names": names, "attributes": {"units": "K"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    let array = Array::create(Arc::clone(store), path, metadata, false, ArrayOptions::default()).unwrap();
    let bytes: Vec<u8> = (0..shape.iter().product::<u64>() as i32).flat_map(i32::to_ne_bytes).collect();
    let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &bytes).unwrap();
    array.write_buffer(&Selection::all(array.shape()), &value).unwrap();
}

fn local(path: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::new(path).unwrap())
}

fn group(path: &Path) -> Group {
    Group::open(local(path), "", None, Consolidation::WhenPresent, ArrayOptions::default()).unwrap()
}

fn hierarchy(path: &Path) {
    let store = local(path);
    create(&store, "t2m", &[8, 3], &["time", "x"]);
    create(&store, "surface/msl", &[8, 3], &["time", "x"]);
    create(&store, "time", &[8], &["time"]);
}

#[test]
fn a_group_is_consolidated() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    hierarchy(&place);
    assert!(group(&place).consolidated().is_none());
    assert!(passed(&["consolidate", text(&place)]).contains("3 arrays and 1 groups"));
    assert_eq!(group(&place).consolidated().unwrap().paths().count(), 4);
    let array = cuzarr(&["consolidate", text(&place.join("t2m")), "--json"]);
    assert_eq!((array.status.code(), &json(&array)["error"]["kind"]), (Some(1), &json!("GroupNotFound")));
}

#[test]
fn attributes_are_shown_set_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    hierarchy(&place);
    passed(&["consolidate", text(&place)]);
    let array = place.join("t2m");
    let shown: Value = serde_json::from_str(&passed(&["attrs", text(&array)])).unwrap();
    assert_eq!(shown, json!({"units": "K"}));
    let set = ["--set", "units=degC", "--set", "range=[0, 1.5]", "--set", "note=a=b", "--json"];
    passed(&[&["attrs", text(&array)][..], &set].concat());
    passed(&["attrs", text(&array), "--delete", "note"]);
    let expected = json!({"units": "degC", "range": [0, 1.5]});
    assert_eq!(json(&cuzarr(&["attrs", text(&array), "--json"])), expected);
    let consolidated = group(&place).consolidated().unwrap().node_alone("t2m").unwrap().unwrap();
    assert_eq!(Value::Object(consolidated.attributes().clone()), expected, "the group above knows it");
    passed(&["attrs", text(&place), "--set", "title=all"]);
    assert_eq!(group(&place).metadata().attributes()["title"], "all");
    let wrong = json(&cuzarr(&["attrs", text(&array), "--delete", "unit", "--json"]));
    assert_eq!(
        (&wrong["error"]["kind"], &wrong["error"]["hint"]),
        (&json!("InvalidArgument"), &json!("did you mean 'units'?"))
    );
    assert_eq!(json(&cuzarr(&["attrs", text(&array), "--json"])), expected);
}

#[test]
fn parts_of_a_group_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("a"), directory.path().join("b"));
    hierarchy(&from);
    passed(&["copy", text(&from), text(&to), "--only", "surface,time", "--select", "time=2:4,x=1:"]);
    let copied = group(&to);
    assert!(copied.array("t2m").is_err());
    let read = |path: &str| {
        let array = copied.array(path).unwrap();
        array.read_buffer(&Selection::all(array.shape())).unwrap().host_slice::<i32>().unwrap().to_vec()
    };
    assert_eq!((read("surface/msl"), read("time")), (vec![7, 8, 10, 11], vec![2, 3]));
    for wrong in ["time", "time=3", "=1:2"] {
        assert_eq!(cuzarr(&["copy", text(&from), "/nowhere", "--select", wrong]).status.code(), Some(2), "{wrong}");
    }
    std::fs::write(from.join("time/zarr.json"), "{").unwrap();
    let other = directory.path().join("c");
    let refused = cuzarr(&["copy", text(&from), text(&other)]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/time"), "{refused:?}");
    assert!(refused.status.code() == Some(1) && !other.exists());
    let skipped = cuzarr(&["copy", text(&from), text(&other), "--skip-unreadable", "--json"]);
    assert_eq!((skipped.status.code(), &json(&skipped)["unreadable"][0]["node"]), (Some(0), &json!("/time")));
    assert!(group(&other).array("t2m").is_ok());
}

#[test]
fn commands_show_that_a_hierarchy_is_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    hierarchy(&place);
    let below = Group::open(local(&place), "surface", None, Consolidation::Never, ArrayOptions::default());
    let mark = json!({"work": "pyramid"});
    let status = |path: &Path| cuzarr(&["validate", text(path)]).status.code();
    assert_eq!(status(&place), Some(0));
    set_unfinished(&mut below.unwrap(), Some(&mark)).unwrap();
    assert!(passed(&["tree", text(&place)]).contains("surface (unfinished pyramid)"));
    assert!(passed(&["info", text(&place)]).contains("surface/ (unfinished pyramid)"));
    let info = passed(&["info", text(&place.join("surface"))]);
    assert!(info.contains("Unfinished") && info.contains("pyramid; repeat the call"), "{info}");
    assert_eq!(json(&cuzarr(&["tree", "--json", text(&place)]))["members"]["surface"]["unfinished"], "pyramid");
    let report = json(&cuzarr(&["validate", "--json", text(&place)]));
    assert_eq!((&report["valid"], &report["unfinished"]), (&json!(false), &json!(["/surface"])));
    assert_eq!(status(&place), Some(1));
}
