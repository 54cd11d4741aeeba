//! Where arrays and groups are, to tell whether two of them overlap.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

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

/// Refuses a target that is the source, or lies in it, or the other way round, as the identities of their stores say.
///
/// # Errors
/// `InvalidArgument`
pub fn refuse_overlap(source: (&Arc<dyn Store>, &str), target: (&Arc<dyn Store>, &str)) -> Result<()> {
    let overlap = source.0.identity().below(source.1).overlaps(&target.0.identity().below(target.1));
    if overlap {
        let message = format!("the target {}/{} overlaps the source {}/{}", target.0, target.1, source.0, source.1);
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy to another place"));
    }
    Ok(())
}
