//! The attribute that marks a hierarchy as not yet completely written.
//!
//! A group and its members are visible as soon as they exist, so an interrupted copy looks like a hierarchy with fewer
//! members. Until everything is written, the root group has an attribute that marks it as unfinished. Every library
//! shows the attribute, and no further object is needed.
//!
//! ```json
//! {"cuzarr_unfinished": {"work": "copy", "source": "…", "options": {"zarr_format": 3, "chunks": [null, 64]}}}
//! ```
//!
//! `source` is the SHA-256 of the source's place, so the mark contains no address. `options` are those of the call that
//! began. A call that continues with other options is refused, and the message names what differs.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::checkpoint::{differences, hash};
use cuzarr::internal::node::set_unfinished;
use cuzarr::meta::GroupMetadata;
use cuzarr::node::Group;
use cuzarr::store::Store;
use cuzarr::{Error, ErrorKind, Result};

/// The attribute that marks a group as the target of unfinished work, such as a copy.
#[derive(Clone)]
pub(crate) struct Mark {
    work: &'static str,
    value: Value,
}

impl Mark {
    /// Makes the mark of the work `work` (`copy` or `pyramid`), which reads the node at `source` with the given
    /// options.
    pub(crate) fn new(work: &'static str, source: (&Arc<dyn Store>, &str), options: Map<String, Value>) -> Mark {
        let source = hash(&json!([source.0.to_string(), source.1]).to_string());
        Mark { work, value: json!({"work": work, "source": source, "options": options}) }
    }

    /// Adds the mark of unfinished work to the metadata of a new group. Stores that commit all writes together need no
    /// mark.
    ///
    /// # Errors
    /// `MetadataInvalid`
    pub(crate) fn on(&self, store: &dyn Store, metadata: &mut GroupMetadata) -> Result<()> {
        if store.capabilities().transactional {
            return Ok(());
        }
        metadata.set_unfinished(Some(&self.value))
    }

    /// Marks an existing group as the target of unfinished work.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) fn set(&self, group: &mut Group) -> Result<()> {
        if group.store().capabilities().transactional || group.metadata().unfinished() == Some(&self.value) {
            return Ok(());
        }
        set_unfinished(group, Some(&self.value))
    }

    /// Refuses to continue if a group has the mark of other work; the message names what differs.
    ///
    /// # Errors
    /// `ContainsGroup`
    pub(crate) fn check(&self, group: &Group) -> Result<()> {
        let Some(found) = group.metadata().unfinished().filter(|found| **found != self.value) else { return Ok(()) };
        let what = if found["work"] != self.value["work"] {
            format!("an unfinished {}, not a {}", found["work"].as_str().unwrap_or("work"), self.work)
        } else if found["source"] != self.value["source"] {
            format!("an unfinished {} of another source", self.work)
        } else {
            format!(
                "an unfinished {} with other options: {}",
                self.work,
                differences(&found["options"], &self.value["options"])
            )
        };
        let message = format!("{}: there is {what}, at '/{}' already", group.store(), group.path());
        Err(Error::new(ErrorKind::ContainsGroup, message)
            .with_hint("repeat the call that began it, or replace it with `overwrite`"))
    }
}
