//! References: a table gives for each key the place of its bytes: inline, or a part of a file at some URL.
//!
//! | producer | reads |
//! |---|---|
//! | [`ReferenceTable::from_json`] | JSON tables of kerchunk and VirtualiZarr |
//! | the scheme `icechunk` | snapshots of an Icechunk repository |
//! | [`ReferenceTable::insert_columns`] | columns, such as those of kerchunk's Parquet tables, which Python reads |
//!
//! A table is data, so it is not trusted. It may name files in its own folder or bucket, and files that the user
//! allowed ([`Rules`]). It cannot name another table, so tables cannot form loops.
//!
//! Parts that lie close together in one remote file are read by one request.

mod kerchunk;
mod location;
mod open;
mod read;
mod store;
mod table;

pub(crate) use location::Location;
pub use location::Rules;
pub(crate) use open::{icechunk_scheme, of_table, of_table_as, reference_scheme};
pub use store::ReferenceStore;
pub use table::{ArrayReferences, Columns, ReferenceTable};

use cuzarr::Result;
use cuzarr::store::{Identity, Registry};

use crate::options::StorageOptions;
pub(crate) use table::{Part, Pending, Place, Reference};

/// Makes a store from a table of references in memory. The options are those of the scheme `reference`. With `place`,
/// the URL of the table, the table may name files in its own folder or bucket.
///
/// # Errors
/// `InvalidArgument` for an invalid option or `place`.
pub fn open_table(
    table: ReferenceTable,
    place: Option<&str>,
    registry: &Registry,
    options: &StorageOptions,
) -> Result<ReferenceStore> {
    of_table(&format!("reference::{}", place.unwrap_or("(a table in memory)")), place, table, registry, options)
}

/// Like [`open_table`], for a table of references whose store represents the same data as another store. The result
/// gets that store's name and identity.
///
/// # Errors
/// Those of [`open_table`].
pub fn open_table_as(
    table: ReferenceTable,
    name: &str,
    identity: Identity,
    registry: &Registry,
    options: &StorageOptions,
) -> Result<ReferenceStore> {
    of_table_as(name, identity, None, table, registry, options)
}
