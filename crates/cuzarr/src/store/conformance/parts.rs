//! Tests that stores write values in parts.

use std::sync::Arc;

use super::{bytes, ok};
use crate::error::ErrorKind;
use crate::store::{Store, StoreExt};

/// Whether the store that is tested can write values in parts. A store that does not must refuse to begin a value.
fn writes_parts(store: &Arc<dyn Store>) -> bool {
    let can = store.capabilities().writes_parts;
    if !can {
        let error = store.begin("k", 1).err().expect("a store that writes no parts began a value");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(!ok(store.exists("k")));
    }
    can
}

pub(super) fn writes_parts_in_any_order(store: &Arc<dyn Store>) {
    if !writes_parts(store) {
        return;
    }
    const PART: usize = 100_003;
    let value = bytes(3, 7 * PART + 1);
    ok(store.write("deep/k", b"old"));
    let unfinished = ok(store.begin("deep/k", value.len() as u64));
    std::thread::scope(|scope| {
        for (number, part) in value.chunks(PART).enumerate().rev() {
            let unfinished = &unfinished;
            scope.spawn(move || ok(unfinished.write_at((number * PART) as u64, part)));
        }
    });
    assert_eq!(ok(store.get("deep/k")).as_deref(), Some(&b"old"[..]), "readers see it before it is finished");
    assert_eq!(ok(store.list("")), ["deep/k"], "an unfinished value is listed");
    ok(unfinished.finish());
    assert_eq!(ok(store.get("deep/k")), Some(value));
    ok(ok(store.begin("empty", 0)).finish());
    assert_eq!(ok(store.get("empty")), Some(Vec::new()));
}

pub(super) fn shortens_values(store: &Arc<dyn Store>) {
    if !writes_parts(store) {
        return;
    }
    let (can, value) = (store.capabilities().shortens_parts, bytes(4, 70_001));
    let mut unfinished = ok(store.begin("k", 1 << 20));
    ok(unfinished.write_at(9, &value[9..]));
    if !can {
        assert_eq!(unfinished.shorten(70_001).err().map(|error| error.kind()), Some(ErrorKind::Unsupported));
        return;
    }
    ok(unfinished.write_at(0, &value[..9]));
    ok(unfinished.shorten(70_001));
    ok(unfinished.finish());
    assert_eq!(ok(store.get("k")), Some(value.clone()));
    for (written, size_bytes) in [(5, 6), (5, 4)] {
        let mut wrong = ok(store.begin("k", 10));
        ok(wrong.write_at(0, &value[..written]));
        ok(wrong.shorten(size_bytes));
        assert_eq!(wrong.finish().expect_err("another size").kind(), ErrorKind::InvalidArgument);
    }
    let mut longer = ok(store.begin("k", 10));
    assert_eq!(longer.shorten(11).err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
    drop(longer);
    assert_eq!(ok(store.get("k")), Some(value));
}

pub(super) fn leaves_the_old_value_when_parts_are_missing(store: &Arc<dyn Store>) {
    if !writes_parts(store) {
        return;
    }
    ok(store.write("k", b"old"));
    let dropped = ok(store.begin("k", 10));
    ok(dropped.write_at(0, &bytes(1, 10)));
    drop(dropped);
    let short = ok(store.begin("k", 10));
    ok(short.write_at(1, &bytes(1, 9)));
    assert_eq!(short.finish().expect_err("a byte is missing").kind(), ErrorKind::InvalidArgument);
    let long = ok(store.begin("new", 10));
    for offset in [1, 11, u64::MAX] {
        let error = long.write_at(offset, &bytes(1, 10)).expect_err("bytes lie beyond the end");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    drop(long);
    assert_eq!(ok(store.get("k")).as_deref(), Some(&b"old"[..]));
    assert_eq!(ok(store.list("")), ["k"]);
    for key in ["", "../x", "a//b"] {
        assert_eq!(store.begin(key, 1).err().map(|error| error.kind()), Some(ErrorKind::KeyInvalid), "{key:?}");
    }
}

pub(super) fn finishes_where_a_prefix_was_deleted(store: &Arc<dyn Store>) {
    if !writes_parts(store) {
        return;
    }
    let value = bytes(5, 1 << 20);
    let unfinished = ok(store.begin("p/q/k", value.len() as u64));
    ok(unfinished.write_at(0, &value[..9]));
    ok(store.delete_prefix("p"));
    ok(unfinished.write_at(9, &value[9..]));
    ok(unfinished.finish());
    assert_eq!(ok(store.get("p/q/k")), Some(value));
    assert_eq!(ok(store.list("")), ["p/q/k"]);
}
