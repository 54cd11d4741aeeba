//! How far unfinished work on an array came, in an object beside the array's chunks, so that work that was killed can go on.
//!
//! ```json
//! {"version": 2, "work": "…", "target": "…",
//!  "passes": [{"chunk_shape": [96, 16, 16], "region_shape": [96, 64, 16], "finished": 3}]}
//! ```
//!
//! `work` and `target` are SHA-256 of a text that says what is done, and of the target's documents. So the object stays small,
//! and says nothing of addresses. A pass goes through all elements in regions. Regions are written in their order, each stored
//! object whole, so a number says which are finished. The chunks of the last pass are the target's.
//!
//! That a chunk is missing does not say whether it was still to be written or holds nothing but the fill value. Only in the first
//! region that is not finished does the presence of an object count.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use cuzarr::node::{Array, CHECKPOINT as NAME};
use cuzarr::store::{Store, StoreExt, join_key};
use cuzarr::{Error, ErrorKind, Result};

/// More than any checkpoint has.
const LIMIT_BYTES: u64 = 1 << 20;

const VERSION: u64 = 2;

/// How far one kind of work on one array came.
#[derive(Clone)]
pub struct Checkpoint {
    store: Arc<dyn Store>,
    key: String,
    work: String,
    target: String,
    pub(crate) passes: Vec<PassNote>,
}

/// How far one pass came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PassNote {
    /// Chunks of the array that the pass writes.
    pub(crate) chunk_shape: Vec<u64>,
    pub(crate) region_shape: Vec<u64>,
    /// Regions that are finished.
    pub(crate) finished: u64,
}

/// What lies where a checkpoint would be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or a checkpoint of version 1, which does not tell enough to be trusted.
    Nothing,
    /// Something that this version cannot read.
    Unreadable,
    /// The checkpoint of other work, or of work on another target.
    Other,
    /// The checkpoint of the work that is asked for.
    Same(Vec<PassNote>),
}

impl Checkpoint {
    /// Looks how far `work` on an array, in regions of this shape, came before. `work` is a text that no other work has. Where the
    /// checkpoint is of other work, or cannot be read, nothing is finished.
    ///
    /// # Errors
    /// What the target's store reports; `Unsupported` when its values cannot be deleted, as those of a ZIP file, or are
    /// committed as a whole.
    pub fn resume(target: &Array, work: &str, region_shape: &[u64]) -> Result<Checkpoint> {
        Checkpoint::check_place(&**target.store(), target.path())?;
        refuse_resuming(&**target.store())?;
        let mut checkpoint = Checkpoint::new(target, work);
        let chunk_shape = target.metadata().chunk_grid().chunk_shape().to_vec();
        let mut pass = PassNote { chunk_shape, region_shape: region_shape.to_vec(), finished: 0 };
        if let Found::Same(noted) = checkpoint.find()?
            && let [noted] = &noted[..]
            && (&noted.chunk_shape, &noted.region_shape) == (&pass.chunk_shape, &pass.region_shape)
        {
            pass.finished = noted.finished;
        }
        checkpoint.passes = vec![pass];
        Ok(checkpoint)
    }

    /// Deletes the checkpoint of an array whose chunks are about to be written anew: it would no longer be true of them.
    ///
    /// # Errors
    /// What the target's store reports.
    pub fn forget(target: &Array) -> Result<()> {
        let (store, key) = (target.store(), join_key(target.path(), NAME));
        // Where nothing is ever deleted, as in ZIP files, nothing was noted.
        if store.size_bytes(&key)?.is_some() { store.delete(&key) } else { Ok(()) }
    }

    /// Refuses a place in which work cannot be resumed: a checkpoint lies beside the chunks until the work is done, and is then
    /// deleted.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a store whose values cannot be deleted.
    pub fn check_place(store: &dyn Store, path: &str) -> Result<()> {
        if store.capabilities().read_only {
            let message = format!("{store}: cannot write to '/{path}': the store is for reading only");
            return Err(Error::new(ErrorKind::ReadOnly, message));
        }
        if store.capabilities().deletes {
            return Ok(());
        }
        let message = format!(
            "{store}: cannot write to '/{path}': until it is complete, a checkpoint lies beside it, and values of this store \
             cannot be deleted"
        );
        Err(Error::new(ErrorKind::Unsupported, message).with_hint(
            "write to a directory, then pack that as a ZIP file (zip -0 -r, or shutil.make_archive in Python)",
        ))
    }

    /// How many regions are finished, for work in one pass.
    pub fn finished(&self) -> u64 {
        self.passes.first().map_or(0, |pass| pass.finished)
    }

    /// Notes how many regions are finished, for work in one pass.
    ///
    /// # Errors
    /// What the target's store reports.
    pub fn note(&mut self, finished: u64) -> Result<()> {
        self.note_pass(0, finished)
    }

    /// Deletes the checkpoint, because all regions are finished.
    ///
    /// # Errors
    /// What the target's store reports.
    pub fn end(&self) -> Result<()> {
        self.store.delete(&self.key)
    }

    /// A checkpoint of work that has no passes yet. Nothing is read or written.
    pub(crate) fn new(target: &Array, work: &str) -> Checkpoint {
        let documents = target.metadata().documents();
        let documents: Vec<_> = documents.iter().map(|(name, bytes)| (name, String::from_utf8_lossy(bytes))).collect();
        let (store, key) = (Arc::clone(target.store()), join_key(target.path(), NAME));
        Checkpoint { store, key, work: hash(work), target: hash(&json!(documents).to_string()), passes: Vec::new() }
    }

    /// Reads what lies in its place.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn find(&self) -> Result<Found> {
        let Some(bytes) = self.store.get_at_most(&self.key, LIMIT_BYTES)? else { return Ok(Found::Nothing) };
        let Ok(document) = serde_json::from_slice::<Value>(&bytes) else { return Ok(Found::Unreadable) };
        let text = |member| document.get(member).and_then(Value::as_str);
        Ok(match (document.get("version").and_then(Value::as_u64), text("work"), text("target")) {
            (None, ..) if document.get("of").is_some() => Found::Nothing,
            (Some(VERSION), Some(work), Some(target)) if (work, target) != (&self.work, &self.target) => Found::Other,
            (Some(VERSION), Some(_), Some(_)) => passes(&document).map_or(Found::Unreadable, Found::Same),
            _ => Found::Unreadable,
        })
    }

    /// Notes how many regions of a pass are finished.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn note_pass(&mut self, pass: usize, finished: u64) -> Result<()> {
        if let Some(pass) = self.passes.get_mut(pass) {
            pass.finished = finished;
        }
        self.write()
    }

    /// The error for something in its place that this version cannot read.
    pub(crate) fn unreadable(&self) -> Error {
        let message = format!("{}: '{}' is damaged, or of another version", self.store, self.key);
        Error::new(ErrorKind::MetadataInvalid, message).with_hint("begin again with overwrite")
    }

    /// Writes the checkpoint.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn write(&self) -> Result<()> {
        let pass = |pass: &PassNote| json!({"chunk_shape": pass.chunk_shape, "region_shape": pass.region_shape, "finished": pass.finished});
        let passes: Vec<Value> = self.passes.iter().map(pass).collect();
        let document = json!({"version": VERSION, "work": self.work, "target": self.target, "passes": passes});
        self.store.write(&self.key, document.to_string().as_bytes())
    }
}

/// The passes of a document; `None` when it does not tell them.
fn passes(document: &Value) -> Option<Vec<PassNote>> {
    let shape = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let pass = |pass: &Value| {
        Some(PassNote {
            chunk_shape: shape(pass.get("chunk_shape")?)?,
            region_shape: shape(pass.get("region_shape")?)?,
            finished: pass.get("finished")?.as_u64()?,
        })
    };
    document.get("passes")?.as_array()?.iter().map(pass).collect()
}

fn hash(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// Refuses to note how far work came where the caller commits all of it or nothing.
///
/// # Errors
/// `Unsupported`
pub(crate) fn refuse_resuming(store: &dyn Store) -> Result<()> {
    if !store.capabilities().transactional {
        return Ok(());
    }
    let message = format!("{store}: work cannot be resumed here: what is written is committed as a whole");
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("leave out resume; after a failure discard the changes and begin again"))
}
