//! Opening arrays and groups by a path or URL.

use crate::error::Result;
use crate::node::{self, Array, ArrayOptions, Consolidation, Group, Node};
use crate::store::Registry;

/// Opens the array or group at a path or URL that [`Registry::new`] can open: a directory, a ZIP file, `memory://name`.
///
/// For other stores, use [`node::open`]. To read to a GPU, use [`Array::with_options`].
///
/// ```
/// use cuzarr::{Node, meta::DataType};
///
/// cuzarr::create_group("memory://opened")?;
/// cuzarr::Array::builder([4], DataType::Int16).create("memory://opened/numbers")?;
/// assert!(matches!(cuzarr::open("memory://opened")?, Node::Group(_)));
/// let numbers = cuzarr::open_group("memory://opened")?.array("numbers")?;
/// assert_eq!(numbers.shape(), cuzarr::open_array("memory://opened/numbers")?.shape());
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// `NodeNotFound` when nothing is there; those of [`Registry::open`].
pub fn open(url: &str) -> Result<Node> {
    node::open_existing(Registry::new().open(url)?, "", None, ArrayOptions::default())
}

/// Opens the array at a path or URL; see [`open`].
///
/// # Errors
/// `ArrayNotFound` when there is no array; those of [`Registry::open`].
pub fn open_array(url: &str) -> Result<Array> {
    Array::open(Registry::new().open(url)?, "", ArrayOptions::default())
}

/// Opens the group at a path or URL; see [`open`].
///
/// # Errors
/// `GroupNotFound` when there is no group; those of [`Registry::open`].
pub fn open_group(url: &str) -> Result<Group> {
    Group::open(Registry::new().open(url)?, "", None, Consolidation::WhenPresent, ArrayOptions::default())
}

/// Creates a group of format 3 at a path or URL. For other stores, for attributes, or for format 2, use
/// [`Group::builder`].
///
/// # Errors
/// `ContainsArray` or `ContainsGroup` when something is there; those of [`Registry::open`].
pub fn create_group(url: &str) -> Result<Group> {
    Group::builder().create(url)
}
