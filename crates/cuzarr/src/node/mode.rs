//! The modes in which nodes are opened.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::normalize_path;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{ReadOnly, Store};

/// Whether a node that is opened must exist, may be created, and may be written. The letters are those of zarr-python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `r`: the node must exist, and cannot be written.
    Read,
    /// `r+`: the node must exist, and can be written.
    ReadWrite,
    /// `a`: the node is created when it does not exist.
    OpenOrCreate,
    /// `w`: the node is created, and an existing one is deleted.
    Replace,
    /// `w-`: the node is created, and must not exist yet.
    CreateNew,
}

impl Mode {
    /// Whether this mode opens a node that exists.
    pub(super) fn may_open(self) -> bool {
        matches!(self, Mode::Read | Mode::ReadWrite | Mode::OpenOrCreate)
    }

    /// Whether this mode may create a node.
    pub(super) fn may_create(self) -> bool {
        matches!(self, Mode::OpenOrCreate | Mode::Replace | Mode::CreateNew)
    }

    /// Whether this mode deletes an existing node.
    pub(super) fn overwrites(self) -> bool {
        self == Mode::Replace
    }

    /// Returns the store; in mode `r`, one that refuses all writes.
    pub(super) fn restrict(self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        match (self, store.capabilities().read_only) {
            (Mode::Read, false) => Ok(Arc::new(ReadOnly::new(store))),
            (Mode::Read, true) | (_, false) => Ok(store),
            (_, true) => Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{store}: the store is read-only, but the mode is '{self}'"),
            )
            .with_hint("use mode 'r', or a writable store")),
        }
    }

    /// Fails in mode `w-` if anything is stored at the path: a node, or other values.
    pub(super) fn check_creation(self, store: &dyn Store, path: &str) -> Result<()> {
        if self != Mode::CreateNew {
            return Ok(());
        }
        let path = normalize_path(path)?;
        let listing = store.list_dir(&path)?;
        if listing.keys.is_empty() && listing.prefixes.is_empty() {
            return Ok(());
        }
        let message = format!("{store}: cannot create '/{path}' in mode 'w-': the path is not empty");
        let kind = match super::documents::kind_at(store, &path)? {
            Some(true) => ErrorKind::ContainsArray,
            _ => ErrorKind::ContainsGroup,
        };
        Err(Error::new(kind, message).with_hint("use mode 'w' to replace it, or 'a' to open it"))
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "r" => Ok(Mode::Read),
            "r+" => Ok(Mode::ReadWrite),
            "a" => Ok(Mode::OpenOrCreate),
            "w" => Ok(Mode::Replace),
            "w-" => Ok(Mode::CreateNew),
            _ => {
                let message = format!("mode: got '{text}', expected 'r', 'r+', 'a', 'w' or 'w-'");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Read => "r",
            Mode::ReadWrite => "r+",
            Mode::OpenOrCreate => "a",
            Mode::Replace => "w",
            Mode::CreateNew => "w-",
        })
    }
}
