//! Where an array or group is among all stores of the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Store;

/// The store's address with the path below it: directories by where they really are, with links of the file system
/// resolved, stores in memory by their numbers. `None` for a store without an address.
pub(crate) fn location(store: &Arc<dyn Store>, path: &str) -> Option<PathBuf> {
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
