//! Checks that the source and the target of a copy do not overlap.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Refuses a target of a copy that is the source, lies inside it, or contains it. Stores are compared by their
/// identities.
///
/// # Errors
/// `InvalidArgument`
pub fn refuse_overlap(source: (&Arc<dyn Store>, &str), target: (&Arc<dyn Store>, &str)) -> Result<()> {
    if source.0.identity().below(source.1).overlaps(&target.0.identity().below(target.1)) {
        let message = format!("the target {}/{} overlaps the source {}/{}", target.0, target.1, source.0, source.1);
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy to another place"));
    }
    Ok(())
}
