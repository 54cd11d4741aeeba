//! How far a copy came, in an object beside the chunks of its target, so that a copy that was killed can go on.
//!
//! The target's metadata is written when all of its chunks are there: until then there is no array that could be read
//! half-written, only objects, each whole, and the journal. That a chunk is missing does not say whether it was still to be
//! written or holds nothing but the fill value; so the journal counts finished regions, and only in the first one that is
//! not finished does the presence of an object count.

use serde_json::{Value, json};

use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, COPY_PROGRESS as NAME};
use cuzarr::store::{Store, StoreExt, join_key};
use cuzarr::{Error, ErrorKind, Result};

/// Far more than any journal has.
const LIMIT_BYTES: u64 = 1 << 28;

/// What is copied where, and how far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Journal {
    /// Where the source is, and its metadata as text.
    pub(crate) source: Value,
    /// The target's metadata as text.
    pub(crate) target: String,
    /// Chunks of the array between two passes, when there are two.
    pub(crate) between: Option<Vec<u64>>,
    /// For each pass the shape of its regions and how many of them are finished.
    pub(crate) passes: Vec<(Vec<u64>, u64)>,
}

impl Journal {
    pub(crate) fn new(source: &Array, target: &ArrayMetadata) -> Journal {
        let document = text(source.metadata());
        let source = json!({"store": source.store().to_string(), "path": source.path(), "metadata": document});
        Journal { source, target: text(target), between: None, passes: Vec::new() }
    }

    /// What is at a path; `None` when no copy was begun there.
    pub(crate) fn read(store: &dyn Store, path: &str) -> Result<Option<Journal>> {
        let Some(bytes) = store.get_at_most(&join_key(path, NAME), LIMIT_BYTES)? else { return Ok(None) };
        let unreadable = || {
            let message = format!("{store}: '{}' is no journal of a copy", join_key(path, NAME));
            Error::new(ErrorKind::MetadataInvalid, message).with_hint("begin again with overwrite")
        };
        let document: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable().with_source(error))?;
        Journal::from_json(&document).map(Some).ok_or_else(unreadable)
    }

    pub(crate) fn write(&self, store: &dyn Store, path: &str) -> Result<()> {
        store.write(&join_key(path, NAME), self.to_json().to_string().as_bytes())
    }

    pub(crate) fn remove(store: &dyn Store, path: &str) -> Result<()> {
        store.delete(&join_key(path, NAME))
    }

    /// Whether it tells of the same copy.
    pub(crate) fn is_of(&self, other: &Journal) -> bool {
        self.source == other.source && self.target == other.target
    }

    fn to_json(&self) -> Value {
        let passes: Vec<Value> =
            self.passes.iter().map(|(shape, finished)| json!({"region_shape": shape, "finished": finished})).collect();
        json!({
            "version": 1, "source": self.source, "target": self.target, "between": self.between, "passes": passes,
        })
    }

    fn from_json(document: &Value) -> Option<Journal> {
        let shape = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
        let pass = |pass: &Value| Some((shape(pass.get("region_shape")?)?, pass.get("finished")?.as_u64()?));
        if document.get("version")? != &json!(1) {
            return None;
        }
        Some(Journal {
            source: document.get("source")?.clone(),
            target: document.get("target")?.as_str()?.to_string(),
            between: match document.get("between")? {
                Value::Null => None,
                value => Some(shape(value)?),
            },
            passes: document.get("passes")?.as_array()?.iter().map(pass).collect::<Option<_>>()?,
        })
    }
}

fn text(metadata: &ArrayMetadata) -> String {
    let documents = metadata.documents();
    documents.iter().map(|(name, bytes)| format!("{name}\n{}\n", String::from_utf8_lossy(bytes))).collect()
}
