//! The client by which a store sends requests to its server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::store::{Key, Stat, Version, validate_key};
use cuzarr::{Error, ErrorKind, Result};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore, UpdateVersion};

use crate::cache::Cache;
use crate::cloud::Cloud;
use crate::failure::explain;
use crate::limit::{Limit, MOST_BYTES, MOST_REQUESTS, Permit};
use crate::runtime::Runtime;
use crate::web::WeakTag;

/// A function that makes the `object_store` client of a store. A child process makes its own client.
pub(crate) type Make = dyn Fn() -> Result<Arc<dyn ObjectStore>> + Send + Sync;

/// A bucket, container or web folder, with everything that a store must know about its server.
pub(crate) struct Place {
    pub(crate) cloud: Cloud,
    /// The server's address as error messages show it, without query and credentials.
    pub(crate) name: String,
    /// The address that identifies this bucket or folder, so that stores on the same data can be recognized. It is the
    /// same for all names of the place.
    pub(crate) identity: String,
    /// Largest number of requests that may be unanswered by the server at a time.
    pub(crate) most_requests: usize,
    /// Largest number of bytes that unanswered requests may ask for together.
    pub(crate) most_bytes: u64,
    /// Whether the server can write a value only if the stored version is a given one.
    pub(crate) compares_versions: bool,
    /// Whether whole values are read from a server that does not support range requests.
    pub(crate) whole_values: bool,
    /// Whether a key that the server refuses to read counts as missing.
    pub(crate) missing_when_denied: bool,
    /// The cache in which bytes from the server are kept, if there is one.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) make: Box<Make>,
    current: Mutex<Option<Arc<Client>>>,
}

impl Place {
    pub(crate) fn new(cloud: Cloud, name: String, identity: String, make: Box<Make>) -> Place {
        Place {
            cloud,
            name,
            identity,
            most_requests: MOST_REQUESTS,
            most_bytes: MOST_BYTES,
            compares_versions: cloud != Cloud::Http,
            whole_values: false,
            missing_when_denied: false,
            cache: None,
            make,
            current: Mutex::default(),
        }
    }

    /// Returns this process's client for the server, and makes it if there is none.
    ///
    /// # Errors
    /// Those of making the client.
    pub(crate) fn client(&self) -> Result<Arc<Client>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = current.as_ref().filter(|client| client.runtime.is_of_this_process()) {
            return Ok(Arc::clone(client));
        }
        let runtime = Runtime::get()?;
        let client = Arc::new(Client {
            cloud: self.cloud,
            objects: (self.make)()?,
            limit: runtime.limit(&self.identity, self.most_requests, self.most_bytes),
            known: Mutex::default(),
            whole_values: self.whole_values,
            missing_when_denied: self.missing_when_denied,
            cache: self.cache.clone(),
            ignores_ranges: AtomicBool::new(false),
            runtime,
        });
        // The parent's connections cannot be closed from a child process.
        std::mem::forget(current.replace(Arc::clone(&client)));
        Ok(client)
    }
}

/// An `object_store` client, with what is known about its server and the limit of requests to its host.
pub(crate) struct Client {
    pub(crate) cloud: Cloud,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) whole_values: bool,
    missing_when_denied: bool,
    pub(crate) cache: Option<Arc<Cache>>,
    /// Whether the server has ever answered a range request with a whole value.
    pub(crate) ignores_ranges: AtomicBool,
    pub(crate) limit: Arc<Limit>,
    /// Sizes and versions of values whose last bytes were requested, for servers without suffix ranges (`bytes=-N`).
    known: Mutex<HashMap<Path, ObjectMeta>>,
}

/// Largest number of values whose size and version a client remembers; those of further ones are not kept.
const MOST_KNOWN: usize = 1 << 16;

impl Client {
    /// Waits until one more request, for `size_bytes` bytes, may be sent to the host.
    pub(crate) async fn admit(&self, size_bytes: u64) -> Result<Permit<'_>> {
        self.limit.admit(size_bytes).await
    }

    /// Returns the size and version of a value, as remembered from the last request for it.
    pub(crate) fn known(&self, path: &Path) -> Option<ObjectMeta> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// Remembers the size and version of a value; `None` forgets them.
    pub(crate) fn remember(&self, path: &Path, meta: Option<&ObjectMeta>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match meta {
            Some(meta) if known.len() < MOST_KNOWN => drop(known.insert(path.clone(), meta.clone())),
            _ => drop(known.remove(path)),
        }
    }

    /// Requests the value of a key, or a range of it, from the server. A weak entity tag is returned as the version.
    pub(crate) async fn get(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let mut answer = self.objects.get_opts(path, options).await?;
        if let Some(WeakTag(tag)) = answer.extensions.remove() {
            answer.meta.version = Some(tag);
        }
        Ok(answer)
    }

    /// Returns the size and version of a value; `None` if the key does not exist.
    pub(crate) async fn head(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        let permit = self.admit(0).await?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match permit.slot().run(self.get(path, options)).await {
            Ok(found) => Ok(Some(found.meta)),
            Err(error) if self.is_missing(&error) => Ok(None),
            Err(error) => Err(explain(&error)),
        }
    }

    /// Whether the error of a read means that the key does not exist.
    pub(crate) fn is_missing(&self, error: &object_store::Error) -> bool {
        let is_denied = matches!(error, object_store::Error::PermissionDenied { .. });
        is_missing(error) || (is_denied && self.missing_when_denied)
    }

    pub(crate) fn stat_of(&self, meta: &ObjectMeta) -> Stat {
        Stat { size_bytes: meta.size, version: self.version_of(meta) }
    }

    /// Returns the version of a value from the server's answer; `None` if the answer does not identify a version.
    /// Google's conditions compare generations instead of entity tags. For web servers without strong tags, the version
    /// consists of hints: weak tag, time and size.
    pub(crate) fn version_of(&self, meta: &ObjectMeta) -> Option<Version> {
        // A time of 1970 or before means that the server sent no time.
        let modified_seconds = u64::try_from(meta.last_modified.timestamp()).ok().filter(|&seconds| seconds > 0);
        match self.version_of_tags(meta.e_tag.as_deref(), meta.version.as_deref()) {
            Some(version) => Some(modified_seconds.into_iter().fold(version, Version::with_modified_seconds)),
            None if self.cloud == Cloud::Http => {
                Some(Version::of_hints(meta.version.as_deref(), modified_seconds, meta.size))
            }
            None => None,
        }
    }

    /// Whether two answers of the server may come from the same version of a value.
    pub(crate) fn is_same(&self, one: &ObjectMeta, other: &ObjectMeta) -> bool {
        match (&one.e_tag, &other.e_tag) {
            (None, None) => {
                self.version_of(one).zip(self.version_of(other)).is_none_or(|(one, other)| one.has_same_bytes(&other))
            }
            (one, other) => one == other,
        }
    }

    /// Returns the version of a value with this entity tag and generation.
    pub(crate) fn version_of_tags(&self, etag: Option<&str>, generation: Option<&str>) -> Option<Version> {
        if self.cloud != Cloud::Gcs {
            return etag.and_then(Version::of_etag);
        }
        let version = generation.and_then(Version::of_etag)?;
        Some(etag.map_or(version.clone(), |etag| version.with_entity_tag(etag)))
    }

    /// Converts a version to the condition that a write replaces only this version.
    pub(crate) fn condition(&self, version: &Version) -> UpdateVersion {
        let tag = version.etag().map(String::from);
        if self.cloud == Cloud::Gcs {
            UpdateVersion { e_tag: None, version: tag }
        } else {
            UpdateVersion { e_tag: tag, version: None }
        }
    }

    pub(crate) fn note_ignored_ranges(&self) {
        self.ignores_ranges.store(true, Ordering::Relaxed);
    }
}

/// Whether an error means that a key does not exist, and not that its bucket does not exist.
pub(crate) fn is_missing(error: &object_store::Error) -> bool {
    let object_store::Error::NotFound { source, .. } = error else { return false };
    let answer = source.to_string();
    !["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"]
        .iter()
        .any(|text| answer.contains(text))
}

/// Converts a key of a store to a path of `object_store`.
///
/// # Errors
/// `KeyInvalid`
pub(crate) fn path_of(key: &Key) -> Result<Path> {
    validate_key(key)?;
    let invalid =
        |_| Error::new(ErrorKind::KeyInvalid, format!("{key:?} is not a valid key: it has a control character"));
    Path::parse(key).map_err(invalid)
}
