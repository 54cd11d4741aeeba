//! A test suite that every store must pass. Each back end calls it from its tests:
//!
//! ```
//! # use std::sync::Arc;
//! # use cuzarr::store::{MemoryStore, conformance};
//! conformance::run(&|| Arc::new(MemoryStore::new()));
//! ```
//!
//! A violation panics with a message that begins with the name of the case. This is test code, but public, so that
//! stores of other crates can use it.

mod batches;
mod forwarding;
mod parts;
mod races;
mod ranges;
mod values;
mod versions;

use std::sync::Arc;

pub use self::forwarding::forwards;
use super::{ByteRange, ReadRequest, Store};
use crate::error::Result;

type Case = fn(&Arc<dyn Store>);

/// Every test that a store must pass, with its name.
pub const CASES: &[(&str, Case)] = &[
    ("reads what was written", values::reads_what_was_written),
    ("replaces a value by a shorter one", values::replaces_value_by_shorter_one),
    ("keeps empty values apart from missing ones", values::keeps_empty_values),
    ("reads every kind of range", ranges::reads_every_kind_of_range),
    ("refuses ranges beyond the end", ranges::refuses_ranges_beyond_the_end),
    ("refuses texts that are no keys", values::refuses_invalid_keys),
    ("keeps odd but valid keys", values::keeps_odd_keys),
    ("finishes every item of a mixed batch once", batches::finishes_every_item_once),
    ("finishes large batches on many threads", batches::finishes_large_batches),
    ("passes on what reserve refuses", batches::passes_on_refusals),
    ("reserves nothing for missing keys", batches::reserves_nothing_for_missing_keys),
    ("finishes items whose jobs are never run", batches::finishes_dropped_jobs),
    ("reads an empty batch", batches::reads_empty_batch),
    ("deletes values and prefixes", values::deletes_values_and_prefixes),
    ("lists one level and all levels", values::lists_levels),
    ("writes once when many write if absent", races::writes_once_if_absent),
    ("shows readers whole values only", races::shows_whole_values),
    ("keeps values of megabytes", values::keeps_large_values),
    ("lets writers and deleters race", races::lets_writers_and_deleters_race),
    ("writes parts in any order", parts::writes_parts_in_any_order),
    ("shortens values", parts::shortens_values),
    ("leaves the old value when parts are missing", parts::leaves_the_old_value_when_parts_are_missing),
    ("finishes a value whose prefix was deleted", parts::finishes_where_a_prefix_was_deleted),
    ("tells one identity", versions::tells_one_identity),
    ("tells versions apart", versions::tells_versions_apart),
    ("writes over one version alone", versions::writes_over_one_version),
    ("does what its capabilities say", versions::does_what_its_capabilities_say),
];

/// Runs every test on new stores that `make` creates. `make` must return an empty and writable store; each case gets a
/// new one.
///
/// # Panics
/// If the store violates a case.
pub fn run(make: &dyn Fn() -> Arc<dyn Store>) {
    for (name, case) in CASES {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&make())));
        if let Err(panic) = outcome {
            eprintln!("store conformance: case '{name}' failed");
            std::panic::resume_unwind(panic);
        }
    }
}

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn ok<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("store failed: {error}"))
}

fn request(key: &str, range: ByteRange) -> ReadRequest {
    ReadRequest { key: key.to_string(), range }
}
