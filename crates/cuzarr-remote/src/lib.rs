//! Stores in the cloud and behind HTTP: S3, Google Cloud Storage, Azure and web servers.
//!
//! ```no_run
//! let array = cuzarr_remote::open_array("s3://bucket/era5.zarr/t2m")?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! | URL | store | credentials without options |
//! |---|---|---|
//! | `s3://bucket/path`, `s3a://` | Amazon S3 and servers with its interface | variables `AWS_…`, a profile in `~/.aws`, the machine's role |
//! | `gs://bucket/path`, `gcs://` | Google Cloud Storage | variables `GOOGLE_…`, `gcloud auth application-default login`, the machine's account |
//! | `az://container/path`, `abfs://`, `abfss://` | Azure Blob Storage | variables `AZURE_…`, the machine's identity |
//! | `https://host/path`, `http://` | any web server, for reading | none |
//! | `reference::URL` | a table of references, such as kerchunk's: parts of other files | those of the files |
//! | `icechunk::URL` | a snapshot of an Icechunk repository, for reading | those of the repository |
//!
//! [`registry`] opens these schemes and those of [`cuzarr::store::Registry::new`], also nested:
//! `zip::https://host/archive.zip`. [`StorageOptions`] add to, or replace, settings of the environment.
//!
//! # One runtime
//! Requests run on the threads of one runtime per process. It starts with the first request. A forked child starts its
//! own runtime.
//!
//! # Bodies
//! A body is copied once, from the connection into the caller's memory. Values above 8 MiB are requested over several
//! connections. All requests of a read are for the same version of a value, by its entity tag.
//!
//! # Cache
//! With the option `cache`, received bytes are kept in a folder. The server is still asked whether a value has changed,
//! and only sends it again if it has.

mod cache;
mod client;
mod cloud;
mod credentials;
mod failure;
mod icechunk;
mod limit;
mod open;
mod options;
mod profile;
mod read;
pub mod reference;
mod runtime;
mod schemes;
mod store;
mod transport;
mod web;

use cuzarr::Result;
use cuzarr::node::{self, Array, ArrayOptions, Consolidation, Group, Node};

pub use cache::{CacheInfo, cache_info, clear_cache, default_folder as default_cache_folder};
/// The crate `object_store`, re-exported for the argument of [`RemoteStore::new`].
pub use object_store;

pub use credentials::{CredentialSource, Credentials};
pub use open::SCHEMES;
pub use options::StorageOptions;
pub use schemes::{registry, registry_with};
pub use store::RemoteStore;

/// Items that only the tests and fuzz targets of this workspace use. They may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::cache::read_entry;
    pub use crate::icechunk::{flat_content, read_as_every_kind};
}

/// Opens the array or group at a path or URL that [`registry`] knows.
///
/// # Errors
/// `NodeNotFound` when nothing is there; those of [`cuzarr::store::Registry::open`].
pub fn open(url: &str) -> Result<Node> {
    node::open_existing(registry().open(url)?, "", None, ArrayOptions::default())
}

/// Opens the array at a path or URL that [`registry`] knows.
///
/// # Errors
/// `ArrayNotFound` when there is no array; those of [`cuzarr::store::Registry::open`].
pub fn open_array(url: &str) -> Result<Array> {
    Array::open(registry().open(url)?, "", ArrayOptions::default())
}

/// Opens the group at a path or URL that [`registry`] knows.
///
/// # Errors
/// `GroupNotFound` when there is no group; those of [`cuzarr::store::Registry::open`].
pub fn open_group(url: &str) -> Result<Group> {
    Group::open(registry().open(url)?, "", None, Consolidation::WhenPresent, ArrayOptions::default())
}
