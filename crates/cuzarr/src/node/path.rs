//! Paths of arrays and groups in a store.

use crate::error::{Error, ErrorKind, Result};
use crate::store::validate_prefix;

/// Normalizes the path of a node by zarr-python's rules: `\` becomes `/`, slashes at both ends are removed, and several
/// slashes become one.
///
/// ```
/// assert_eq!(cuzarr::node::normalize_path("/a//b\\c/")?, "a/b/c");
/// assert!(cuzarr::node::normalize_path("a/../b").is_err());
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// `KeyInvalid` for segments `.` and `..`, and for NUL.
pub fn normalize_path(path: &str) -> Result<String> {
    let slashes = path.replace('\\', "/");
    let segments: Vec<&str> = slashes.split('/').filter(|segment| !segment.is_empty()).collect();
    let normal = segments.join("/");
    match validate_prefix(&normal) {
        Ok(()) => Ok(normal),
        Err(error) => {
            Err(Error::new(ErrorKind::KeyInvalid, format!("{path:?} is not a valid path of a node")).with_source(error))
        }
    }
}

/// The paths of all groups above the node at `path`, the root first.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let root = (!path.is_empty()).then_some("");
    root.into_iter().chain(path.match_indices('/').map(|(end, _)| &path[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_start_at_the_root() {
        assert_eq!(ancestors("a/bc/d").collect::<Vec<_>>(), ["", "a", "a/bc"]);
        assert_eq!(ancestors("a").collect::<Vec<_>>(), [""]);
        assert_eq!(ancestors("").count(), 0);
    }
}
