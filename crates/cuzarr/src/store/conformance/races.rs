//! Tests in which several threads use a store at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::ok;
use crate::store::{Key, Store, StoreExt};

pub(super) fn writes_once_if_absent(store: &Arc<dyn Store>) {
    let winners = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let (store, winners) = (Arc::clone(store), &winners);
            scope.spawn(move || {
                if ok(store.write_if_absent("deep/key", &[i; 100])) {
                    winners.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
    let value = ok(store.get("deep/key")).expect("one thread wrote");
    assert_eq!(value, vec![value[0]; 100]);
    assert!(!ok(store.write_if_absent("deep/key", b"late")));
    assert_eq!(ok(store.get("deep/key")), Some(value));
}

pub(super) fn shows_whole_values(store: &Arc<dyn Store>) {
    const SIZE: usize = 1 << 18;
    let stop = AtomicBool::new(false);
    let key: &Key = "shared/value";
    ok(store.write(key, &vec![0; SIZE]));
    std::thread::scope(|scope| {
        let (writer, stop) = (Arc::clone(store), &stop);
        scope.spawn(move || {
            for i in 1..40u8 {
                ok(writer.write(key, &vec![i; SIZE + i as usize]));
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            let value = ok(store.get(key)).expect("the value is always there");
            let (first, expected) = (value[0], SIZE + value[0] as usize);
            assert!(value.iter().all(|&byte| byte == first), "a reader saw two values at once");
            assert_eq!(value.len(), expected, "a reader saw part of a value");
        }
    });
}

pub(super) fn lets_writers_and_deleters_race(store: &Arc<dyn Store>) {
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let store = Arc::clone(store);
            scope.spawn(move || {
                for i in 0..50u8 {
                    ok(store.write(&format!("p/q/{thread}/{i}"), &[i]));
                }
            });
        }
        let store = Arc::clone(store);
        scope.spawn(move || {
            for _ in 0..20 {
                ok(store.delete_prefix("p"));
            }
        });
    });
    ok(store.write("p/q/last", b"1"));
    assert_eq!(ok(store.get("p/q/last")).as_deref(), Some(&b"1"[..]));
    for key in ok(store.list("p")) {
        assert!(ok(store.exists(&key)), "listed '{key}' does not exist");
    }
}
