//! Tests that write, read, list and delete values of a store.

use std::sync::Arc;

use super::{bytes, ok, request};
use crate::error::ErrorKind;
use crate::store::{ByteRange, Listing, Store, StoreExt};

pub(super) fn reads_what_was_written(store: &Arc<dyn Store>) {
    assert_eq!(ok(store.get("zarr.json")), None);
    assert!(!ok(store.exists("a/b/c")));
    ok(store.write("a/b/c", &bytes(1, 1000)));
    ok(store.write("zarr.json", b"{}"));
    assert_eq!(ok(store.get("a/b/c")), Some(bytes(1, 1000)));
    assert_eq!(ok(store.get("zarr.json")).as_deref(), Some(&b"{}"[..]));
    assert_eq!(ok(store.size_bytes("a/b/c")), Some(1000));
    assert_eq!(ok(store.get("a/b")), None, "a prefix is not a value");
    assert_eq!(ok(store.size_bytes("a")), None, "a prefix is not a value");
    assert_eq!(ok(store.get("zarr.json/below")), None, "nothing lies below a value");
}

pub(super) fn replaces_value_by_shorter_one(store: &Arc<dyn Store>) {
    ok(store.write("k", &bytes(1, 5000)));
    ok(store.write("k", b"short"));
    assert_eq!(ok(store.get("k")).as_deref(), Some(&b"short"[..]));
}

pub(super) fn keeps_empty_values(store: &Arc<dyn Store>) {
    ok(store.write("empty", b""));
    assert_eq!(ok(store.get("empty")), Some(vec![]));
    assert_eq!(ok(store.size_bytes("empty")), Some(0));
    assert_eq!(ok(store.get_range("empty", ByteRange::Suffix { size_bytes: 8 })), Some(vec![]));
    assert_eq!(ok(store.get_range("empty", ByteRange::Span { offset: 0, size_bytes: 0 })), Some(vec![]));
}

pub(super) fn refuses_invalid_keys(store: &Arc<dyn Store>) {
    for key in ["", "/", "/etc/hostname", "a/", "a//b", ".", "..", "../a", "a/../../b", "a/./b", "a\0b", "..\\a"] {
        let refusals = [
            store.get(key).err(),
            store.get_range(key, ByteRange::Suffix { size_bytes: 1 }).err(),
            store.write(key, b"x").err(),
            store.write_if_absent(key, b"x").err(),
            store.delete(key).err(),
            store.size_bytes(key).err(),
        ];
        let kinds = refusals.map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds, [Some(ErrorKind::KeyInvalid); 6], "{key:?}");
        if !key.is_empty() {
            let refusals = [store.delete_prefix(key).err(), store.list_dir(key).err(), store.list(key).err()];
            let kinds = refusals.map(|error| error.map(|error| error.kind()));
            assert_eq!(kinds, [Some(ErrorKind::KeyInvalid); 3], "{key:?}");
        }
    }
    ok(store.write("good", b"1"));
    let items = store.get_many(vec![request("../bad", ByteRange::Full), request("good", ByteRange::Full)]);
    assert!(items[0].is_err() && matches!(&items[1], Ok(Some(_))), "a bad key fails its own item only");
    assert_eq!(ok(store.list("")), ["good"]);
}

pub(super) fn keeps_odd_keys(store: &Arc<dyn Store>) {
    let long = "x".repeat(200);
    let keys =
        ["a b", "ü/ñ/漢", "..a/b..", ".zarray", "%2e%2e/x", "~/$HOME", "c/0.1", "-", "#", "?a=b", "[0-9]*", &long];
    for (i, key) in keys.iter().enumerate() {
        ok(store.write(key, &bytes(i as u8, 10)));
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(ok(store.get(key)), Some(bytes(i as u8, 10)), "{key:?}");
    }
    let mut sorted: Vec<String> = keys.map(String::from).to_vec();
    sorted.sort_unstable();
    assert_eq!(ok(store.list("")), sorted);
}

pub(super) fn deletes_values_and_prefixes(store: &Arc<dyn Store>) {
    for key in ["a/x", "a/y/z", "ab", "a.b", "a0/x", "b"] {
        ok(store.write(key, b"1"));
    }
    ok(store.delete("b"));
    ok(store.delete("b"));
    ok(store.delete("never/there"));
    for key in ["many/a", "many/b/c", "many/d"] {
        ok(store.write(key, b"1"));
    }
    ok(store.delete_many(&["many/a", "never/there", "many/b/c", "many/a"].map(String::from)));
    ok(store.delete_many(&[]));
    assert_eq!(ok(store.list("many")), ["many/d"]);
    ok(store.delete("many/d"));
    ok(store.delete("a/y"));
    assert_eq!(ok(store.list("a")), ["a/x", "a/y/z"], "deleting a key leaves what lies below it");
    ok(store.delete_prefix("a"));
    ok(store.delete_prefix("a"));
    ok(store.delete_prefix("ab"));
    assert_eq!(ok(store.list("")), ["a.b", "a0/x", "ab"], "a prefix ends at a '/'");
    ok(store.delete_prefix(""));
    assert_eq!(ok(store.list("")), Vec::<String>::new());
    ok(store.write("again/x", b"1"));
    assert_eq!(ok(store.list("")), ["again/x"]);
}

pub(super) fn lists_levels(store: &Arc<dyn Store>) {
    assert_eq!(ok(store.list_dir("")), Listing::default());
    assert_eq!(ok(store.list("nothing/here")), Vec::<String>::new());
    for key in ["zarr.json", "a/zarr.json", "a/c/0", "a/c/1", "a-b/zarr.json", "b"] {
        ok(store.write(key, b"1"));
    }
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let level = |keys: &[&str], prefixes: &[&str]| Listing { keys: names(keys), prefixes: names(prefixes) };
    assert_eq!(ok(store.list_dir("")), level(&["b", "zarr.json"], &["a", "a-b"]));
    assert_eq!(ok(store.list_dir("a")), level(&["a/zarr.json"], &["a/c"]));
    assert_eq!(ok(store.list_dir("a/c")), level(&["a/c/0", "a/c/1"], &[]));
    assert_eq!(ok(store.list_dir("b")), Listing::default(), "nothing lies below a value");
    assert_eq!(ok(store.list("a")), ["a/c/0", "a/c/1", "a/zarr.json"]);
    assert_eq!(ok(store.list("")), ["a-b/zarr.json", "a/c/0", "a/c/1", "a/zarr.json", "b", "zarr.json"]);
}

pub(super) fn keeps_large_values(store: &Arc<dyn Store>) {
    let value = bytes(3, (9 << 20) + 1);
    ok(store.write("large", &value));
    assert!(ok(store.get("large")).as_deref() == Some(&value[..]));
    let range = ByteRange::Span { offset: 8 << 20, size_bytes: 1 << 20 };
    assert!(ok(store.get_range("large", range)).as_deref() == Some(&value[8 << 20..9 << 20]));
}
