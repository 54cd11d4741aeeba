//! Tests that read ranges of values from a store.

use std::sync::Arc;

use super::{bytes, ok};
use crate::error::ErrorKind;
use crate::store::{ByteRange, Store, StoreExt};

pub(super) fn reads_every_kind_of_range(store: &Arc<dyn Store>) {
    let value = bytes(7, 100);
    ok(store.write("v", &value));
    let cases = [
        (ByteRange::Full, 0..100),
        (ByteRange::Span { offset: 0, size_bytes: 100 }, 0..100),
        (ByteRange::Span { offset: 10, size_bytes: 5 }, 10..15),
        (ByteRange::Span { offset: 100, size_bytes: 0 }, 100..100),
        (ByteRange::From { offset: 0 }, 0..100),
        (ByteRange::From { offset: 99 }, 99..100),
        (ByteRange::From { offset: 100 }, 100..100),
        (ByteRange::Suffix { size_bytes: 0 }, 100..100),
        (ByteRange::Suffix { size_bytes: 7 }, 93..100),
        (ByteRange::Suffix { size_bytes: u64::MAX }, 0..100),
    ];
    for (range, expected) in cases {
        assert_eq!(ok(store.get_range("v", range)).as_deref(), Some(&value[expected]), "{range:?}");
        assert_eq!(ok(store.get_range("missing", range)), None, "{range:?} of a missing key");
    }
}

pub(super) fn refuses_ranges_beyond_the_end(store: &Arc<dyn Store>) {
    ok(store.write("v", &bytes(7, 100)));
    for range in [
        ByteRange::Span { offset: 0, size_bytes: 101 },
        ByteRange::Span { offset: 101, size_bytes: 0 },
        ByteRange::Span { offset: 1, size_bytes: u64::MAX },
        ByteRange::Span { offset: u64::MAX, size_bytes: 1 },
        ByteRange::From { offset: 101 },
        ByteRange::From { offset: u64::MAX },
    ] {
        let error = store.get_range("v", range).expect_err("a range beyond the end was read");
        assert_eq!(error.kind(), ErrorKind::StoreFailed, "{range:?}: {error}");
    }
}
