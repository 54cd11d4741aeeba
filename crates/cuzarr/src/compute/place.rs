//! Where arrays and groups are, to tell whether two of them overlap.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Refuses a target that is the source, or lies in it, or the other way round: directories by where they really are, other
/// stores by their addresses, and those without one by identity.
///
/// # Errors
/// `InvalidArgument`
pub fn refuse_overlap(source: (&Arc<dyn Store>, &str), target: (&Arc<dyn Store>, &str)) -> Result<()> {
    let within = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    let overlap = match (location(source), location(target)) {
        (Some(source), Some(target)) => within(&source, &target),
        _ => Arc::ptr_eq(source.0, target.0) && within(Path::new(source.1), Path::new(target.1)),
    };
    if overlap {
        let message = format!("the target {}/{} overlaps the source {}/{}", target.0, target.1, source.0, source.1);
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy to another place"));
    }
    Ok(())
}

/// Where a node is among all stores that have addresses, in memory too; links of the file system are resolved.
fn location((store, path): (&Arc<dyn Store>, &str)) -> Option<PathBuf> {
    let address = store.to_string();
    // Stores over objects of Python say where those are in memory.
    let (scheme, _) = address.split_once("://").or_else(|| address.split_once(" at 0x"))?;
    let whole = Path::new(&address).join(path);
    let Ok(file) = whole.strip_prefix("file:") else { return Some(whole) };
    let file = Path::new("/").join(file);
    let real = file.ancestors().find_map(|above| {
        let rest = file.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    Some(Path::new(&format!("{scheme}:")).join(real.unwrap_or(file).strip_prefix("/").ok()?))
}
