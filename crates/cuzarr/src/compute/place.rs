//! Where arrays and groups are, to tell whether two of them overlap.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Store, location};

/// Refuses a target in which work cannot be resumed: a journal lies beside the chunks until the work is done, and is then
/// deleted.
///
/// # Errors
/// `ReadOnly`; `Unsupported` for a store whose values cannot be deleted.
pub fn check_journal_place(store: &dyn Store, path: &str) -> Result<()> {
    if store.is_read_only() {
        let message = format!("{store}: cannot write to '/{path}': the store is for reading only");
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if store.supports_deletes() {
        return Ok(());
    }
    let message = format!(
        "{store}: cannot write to '/{path}': until it is complete, a journal lies beside it, and values of this store \
         cannot be deleted"
    );
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("write to a directory, then pack that as a ZIP file (zip -0 -r, or shutil.make_archive in Python)"))
}

/// Refuses a target that is the source, or lies in it, or the other way round: directories by where they really are, other
/// stores by their addresses, and those without one by identity.
///
/// # Errors
/// `InvalidArgument`
pub fn refuse_overlap(source: (&Arc<dyn Store>, &str), target: (&Arc<dyn Store>, &str)) -> Result<()> {
    let within = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    let overlap = match (location(source.0, source.1), location(target.0, target.1)) {
        (Some(source), Some(target)) => within(&source, &target),
        _ => Arc::ptr_eq(source.0, target.0) && within(Path::new(source.1), Path::new(target.1)),
    };
    if overlap {
        let message = format!("the target {}/{} overlaps the source {}/{}", target.0, target.1, source.0, source.1);
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy to another place"));
    }
    Ok(())
}
