//! How far a computation into an array came, in an object beside its chunks, so that one that was killed can go on.
//!
//! Regions are written in their order, each object of them whole, so a number says which are finished. Another memory limit may cut
//! other regions: then, and where the object tells of another computation, everything is computed.

use std::sync::Arc;

use serde_json::{Value, json};

use cuzarr::node::{Array, WORK_PROGRESS as NAME};
use cuzarr::store::{Store, StoreExt, join_key};
use cuzarr::{Error, ErrorKind, Result};

/// More than it ever has.
const LIMIT_BYTES: u64 = 1 << 20;

/// What is computed into an array, and how far.
#[derive(Clone)]
pub struct Resumption {
    store: Arc<dyn Store>,
    key: String,
    /// What is computed, to which chunks, in which regions.
    work: Value,
    finished: u64,
}

impl Resumption {
    /// Looks how far `work`, in regions of this shape, came before. `work` is a text that no other work has.
    ///
    /// # Errors
    /// As the target's store; `Unsupported` when its values cannot be deleted, as those of a ZIP file.
    pub fn open(target: &Array, work: &str, region_shape: &[u64]) -> Result<Resumption> {
        check_journal_place(&**target.store(), target.path())?;
        refuse_resuming(&**target.store())?;
        let documents = target.metadata().documents();
        let documents: Vec<_> = documents.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
        let work = json!({"work": work, "target": documents, "region_shape": region_shape});
        let (store, key) = (Arc::clone(target.store()), join_key(target.path(), NAME));
        let known = store.get_at_most(&key, LIMIT_BYTES)?;
        let known: Option<Value> = known.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let finished = known.filter(|known| known.get("of") == Some(&work));
        let finished = finished.and_then(|known| known.get("finished")?.as_u64()).unwrap_or(0);
        Ok(Resumption { store, key, work, finished })
    }

    /// For work that begins anew: what other work noted is no longer true of the chunks.
    ///
    /// # Errors
    /// As the target's store.
    pub fn forget(target: &Array) -> Result<()> {
        let (store, key) = (target.store(), join_key(target.path(), NAME));
        // Where nothing is ever deleted, as in ZIP files, nothing was noted.
        if store.size_bytes(&key)?.is_some() { store.delete(&key) } else { Ok(()) }
    }

    /// Regions that are finished.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Notes that so many are.
    ///
    /// # Errors
    /// As the target's store.
    pub fn note(&mut self, finished: u64) -> Result<()> {
        self.finished = finished;
        self.store.write(&self.key, json!({"of": self.work, "finished": finished}).to_string().as_bytes())
    }

    /// All are: nothing is left to tell.
    ///
    /// # Errors
    /// As the target's store.
    pub fn end(&self) -> Result<()> {
        self.store.delete(&self.key)
    }
}

/// Refuses a target in which work cannot be resumed: a journal lies beside the chunks until the work is done, and is then
/// deleted.
///
/// # Errors
/// `ReadOnly`; `Unsupported` for a store whose values cannot be deleted.
pub fn check_journal_place(store: &dyn Store, path: &str) -> Result<()> {
    if store.capabilities().read_only {
        let message = format!("{store}: cannot write to '/{path}': the store is for reading only");
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if store.capabilities().deletes {
        return Ok(());
    }
    let message = format!(
        "{store}: cannot write to '/{path}': until it is complete, a journal lies beside it, and values of this store \
         cannot be deleted"
    );
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("write to a directory, then pack that as a ZIP file (zip -0 -r, or shutil.make_archive in Python)"))
}

/// Refuses to note how far work came where the caller commits all of it or nothing.
///
/// # Errors
/// `Unsupported`
pub(super) fn refuse_resuming(store: &dyn Store) -> Result<()> {
    if !store.capabilities().transactional {
        return Ok(());
    }
    let message = format!("{store}: work cannot be resumed here: what is written is committed as a whole");
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("leave out resume; after a failure discard the changes and begin again"))
}
