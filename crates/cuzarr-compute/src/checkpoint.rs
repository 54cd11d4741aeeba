//! Checkpoints: an object beside an array's chunks records the progress of unfinished work, so that interrupted work
//! can continue.
//!
//! ```json
//! {"version": 3, "work": "…", "target": "…", "settings": {"chunk_grid": …, "codecs": …},
//!  "passes": [{"chunk_shape": [96, 16, 16], "region_shape": [96, 64, 16], "finished": 3}], "checksum": "…"}
//! ```
//!
//! `work` is the SHA-256 of a text that describes the work, and `target` is the SHA-256 of the target's documents. So
//! the object stays small and contains no addresses. `settings` are the members of the target's document that say how
//! it is stored. Long settings are replaced by their SHA-256. With the settings, a message can name those that differ.
//! `checksum` is the SHA-256 of the document without `checksum`. It protects the number of finished regions: with a
//! wrong number, chunks would be left out. A pass goes through all elements in regions. Regions are written in order,
//! and each stored object is written whole, so one number tells which regions are finished. The chunks of the last pass
//! are the target's.
//!
//! A missing chunk may still have to be written, or may hold only the fill value. So the work looks for existing
//! objects only in the first unfinished region.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use cuzarr::internal::node::CHECKPOINT as NAME;
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::Array;
use cuzarr::store::{Store, StoreExt, join_key};
use cuzarr::{Error, ErrorKind, Result};

/// Largest size in bytes of a checkpoint object that is read; a larger one is an error.
const LIMIT_BYTES: u64 = 1 << 20;

const VERSION: u64 = 3;

/// Longest setting, in characters, that a checkpoint keeps as text. Longer ones are hashed.
const LONGEST_SETTING: usize = 1024;

/// Longest setting, in characters, that an error message shows in full; the end of a longer one is cut off.
const LONGEST_SHOWN: usize = 120;

/// A checkpoint object beside an array: how many regions of one kind of work on that array are finished.
#[derive(Clone)]
pub struct Checkpoint {
    store: Arc<dyn Store>,
    key: String,
    work: String,
    target: String,
    settings: Value,
    pub(crate) passes: Vec<PassNote>,
}

/// How far one pass over an array has come, as a checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PassNote {
    /// Chunk shape of the array that the pass writes.
    pub(crate) chunk_shape: Vec<u64>,
    pub(crate) region_shape: Vec<u64>,
    /// Number of regions that the pass has finished.
    pub(crate) finished: u64,
}

/// The result of looking for an earlier checkpoint of some work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is no checkpoint, or one of version 1, which does not contain enough to be used.
    Nothing,
    /// There is a checkpoint object, but it is damaged or of a version that cannot be read.
    Unreadable,
    /// The checkpoint belongs to other work, or to work on another target. If the work is the same, a text names the
    /// settings that differ.
    Other(Option<String>),
    /// The checkpoint belongs to this work: how far each pass has come.
    Same(Vec<PassNote>),
}

impl Checkpoint {
    /// Reads how many regions of `work` on an array were finished before. `work` is a text that is unique to this work.
    /// Nothing counts as finished if the checkpoint is for other work or regions of another shape, or cannot be read.
    ///
    /// # Errors
    /// What the target's store reports; `Unsupported` when the store cannot delete values (like a ZIP file), or commits
    /// all writes together.
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

    /// Deletes the checkpoint of an array whose chunks are about to be written again: it would no longer be true.
    ///
    /// # Errors
    /// What the target's store reports.
    pub fn forget(target: &Array) -> Result<()> {
        let (store, key) = (target.store(), join_key(target.path(), NAME));
        // A store that cannot delete, like a ZIP file, never gets a checkpoint.
        if store.size_bytes(&key)?.is_some() { store.delete(&key) } else { Ok(()) }
    }

    /// Refuses a read-only store, and a store whose values cannot be deleted: work there cannot be resumed. A
    /// checkpoint lies beside the chunks, and must be deleted when the work is done.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a store whose values cannot be deleted.
    pub fn check_place(store: &dyn Store, path: &str) -> Result<()> {
        if store.capabilities().read_only {
            let message = format!("{store}: cannot write to '/{path}': the store is read-only");
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

    /// Returns the number of regions that are finished, for work that goes through the array once.
    pub fn finished(&self) -> u64 {
        self.passes.first().map_or(0, |pass| pass.finished)
    }

    /// Records in the checkpoint that the first `finished` regions are finished, for work that goes through the array
    /// once.
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

    /// Makes an empty checkpoint for `work` on the array `target`. Nothing is read or written.
    pub(crate) fn new(target: &Array, work: &str) -> Checkpoint {
        let documents = target.metadata().documents();
        let documents: Vec<_> = documents.iter().map(|(name, bytes)| (name, String::from_utf8_lossy(bytes))).collect();
        let (store, key) = (Arc::clone(target.store()), join_key(target.path(), NAME));
        let (work, settings) = (hash(work), settings(target.metadata()));
        Checkpoint { store, key, work, target: hash(&json!(documents).to_string()), settings, passes: Vec::new() }
    }

    /// Reads the checkpoint object from the store, and compares its work and target with those of this checkpoint.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn find(&self) -> Result<Found> {
        let Some(bytes) = self.store.get_at_most(&self.key, LIMIT_BYTES)? else { return Ok(Found::Nothing) };
        let Ok(mut document) = serde_json::from_slice::<Value>(&bytes) else { return Ok(Found::Unreadable) };
        let noted = document.as_object_mut().and_then(|members| members.shift_remove("checksum"));
        let is_whole = noted.is_some_and(|noted| noted == hash(&document.to_string()));
        let text = |member| document.get(member).and_then(Value::as_str);
        Ok(match (document.get("version").and_then(Value::as_u64), text("work"), text("target")) {
            (None, ..) if document.get("of").is_some() => Found::Nothing,
            _ if !is_whole => Found::Unreadable,
            (Some(VERSION), Some(work), Some(target)) if (work, target) != (&self.work, &self.target) => {
                let named = document.get("settings").filter(|_| work == self.work);
                let named = named.map(|settings| differences(settings, &self.settings));
                Found::Other(named.filter(|text| !text.is_empty()))
            }
            (Some(VERSION), Some(_), Some(_)) => passes(&document).map_or(Found::Unreadable, Found::Same),
            _ => Found::Unreadable,
        })
    }

    /// Records in the checkpoint that the first `finished` regions of one pass are finished.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn note_pass(&mut self, pass: usize, finished: u64) -> Result<()> {
        if let Some(pass) = self.passes.get_mut(pass) {
            pass.finished = finished;
        }
        self.write()
    }

    /// Returns the error for a checkpoint object that this version of the program cannot read.
    pub(crate) fn unreadable(&self) -> Error {
        let message = format!("{}: '{}' is damaged, or of another version", self.store, self.key);
        Error::new(ErrorKind::MetadataInvalid, message).with_hint("begin again with `overwrite`")
    }

    /// Writes the checkpoint object to the array's store.
    ///
    /// # Errors
    /// What the target's store reports.
    pub(crate) fn write(&self) -> Result<()> {
        let pass = |pass: &PassNote| json!({"chunk_shape": pass.chunk_shape, "region_shape": pass.region_shape, "finished": pass.finished});
        let passes: Vec<Value> = self.passes.iter().map(pass).collect();
        let mut document = json!({
            "version": VERSION, "work": self.work, "target": self.target, "settings": self.settings, "passes": passes,
        });
        document["checksum"] = hash(&document.to_string()).into();
        self.store.write(&self.key, document.to_string().as_bytes())
    }
}

/// Returns the members of an array's metadata document except `attributes`: they say how the array is stored. Long ones
/// are replaced by their SHA-256.
pub(crate) fn settings(metadata: &ArrayMetadata) -> Value {
    let documents = metadata.documents();
    let document = documents.first().and_then(|(_, bytes)| serde_json::from_slice(bytes).ok());
    let members = match document {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let short = |value: Value| {
        let text = value.to_string();
        if text.len() > LONGEST_SETTING { Value::from(hash(&text)) } else { value }
    };
    members.into_iter().filter(|(name, _)| name != "attributes").map(|(name, value)| (name, short(value))).collect()
}

/// Returns a text that names every member in which two objects differ: `chunks is [1,2], was [3,4]`.
pub(crate) fn differences(before: &Value, now: &Value) -> String {
    let none = Map::new();
    let [before, now] = [before, now].map(|options| options.as_object().unwrap_or(&none));
    let names = now.keys().chain(before.keys().filter(|name| !now.contains_key(*name)));
    let differing = names.filter(|name| before.get(*name) != now.get(*name));
    let text = |options: &Map<String, Value>, name: &str| {
        let text = options.get(name).map_or_else(|| "not given".to_string(), Value::to_string);
        match text.char_indices().nth(LONGEST_SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    let texts: Vec<String> =
        differing.map(|name| format!("{name} is {}, was {}", text(now, name), text(before, name))).collect();
    texts.join("; ")
}

/// Returns the progress of each pass from a checkpoint's JSON; `None` if the JSON is not valid.
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

pub(crate) fn hash(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// Refuses a store that commits all writes together: a checkpoint there would not survive an interruption.
///
/// # Errors
/// `Unsupported`
pub(crate) fn refuse_resuming(store: &dyn Store) -> Result<()> {
    if !store.capabilities().transactional {
        return Ok(());
    }
    let message = format!("{store}: work cannot be resumed here: the store commits all writes at once");
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("leave out `resume`; after a failure discard the changes and begin again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_what_is_other_missing_or_new() {
        let before = json!({"zarr_format": 3, "chunks": [1, 2], "method": "mean"});
        let now = json!({"zarr_format": 3, "chunks": [4, 2], "levels": 2});
        assert_eq!(
            differences(&before, &now),
            "chunks is [4,2], was [1,2]; levels is 2, was not given; method is not given, was \"mean\""
        );
        assert_eq!(differences(&before, &before), "");
    }
}
