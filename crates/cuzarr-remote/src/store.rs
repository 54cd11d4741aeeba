//! The store for a bucket, a container or a web server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use cuzarr::store::{
    Capabilities, Condition, Identity, Key, LOCK_NAME, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store,
    Unfinished, Version, Workers, join_key, no_parts, validate_key, validate_prefix,
};
use cuzarr::{Device, Error, ErrorKind, Result, ResultExt};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};

use crate::client::{Client, Place, is_missing, path_of};
use crate::cloud::Cloud;
use crate::failure::explain;
use crate::read;
use crate::transport::Call;

/// Size in bytes above which a value is written in parts.
const MULTIPART_BYTES: usize = 64 << 20;

/// Size in bytes of the parts in which a large value is written. S3 accepts 10,000 parts, so values may have 160 GB.
const PART_BYTES: usize = 16 << 20;

/// Number of parts of a large value that are written at the same time.
const PARTS_AT_ONCE: usize = 8;

/// Age from which a lock on a server counts as abandoned.
const LONGEST_LOCK: Duration = Duration::from_secs(3600);

/// A store in the cloud or behind HTTP.
#[derive(Clone)]
pub struct RemoteStore {
    place: Arc<Place>,
    identity: Identity,
    /// Whether the server can write a value only if the stored version is a given one.
    compares_versions: bool,
}

impl RemoteStore {
    /// Makes a store from any object store of the crate `object_store`, for a client that the program made itself.
    /// [`registry`](crate::registry) opens a URL.
    ///
    /// Two stores of this kind count as different, even if they contain the same values. So use clones of one store,
    /// whose writers wait for each other. A forked process must make its own client and store.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cuzarr::prelude::*;
    /// use cuzarr_remote::RemoteStore;
    /// use cuzarr_remote::object_store::memory::InMemory;
    ///
    /// let store = Arc::new(RemoteStore::new(Arc::new(InMemory::new())).with_conditional_writes());
    /// let array = Array::builder([3], DataType::Int16).create_in(store, "a/b")?;
    /// array.write(&Selection::all(&[3]), &[1_i16, 2, 3])?;
    /// assert_eq!(array.read::<i16>(&Selection::all(&[3]))?[..], [1, 2, 3]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn new(objects: Arc<dyn ObjectStore>) -> RemoteStore {
        let (name, host) = (objects.to_string(), format!("{:p}", Arc::as_ptr(&objects)));
        let place = Place::new(Cloud::S3, name, host, Box::new(move || Ok(Arc::clone(&objects))));
        RemoteStore { place: Arc::new(place), identity: Identity::unique(), compares_versions: false }
    }

    pub(crate) fn of_place(place: Place, identity: Identity) -> RemoteStore {
        let compares_versions = place.compares_versions;
        RemoteStore { place: Arc::new(place), identity, compares_versions }
    }

    /// Returns this store with conditional writes allowed, for a server that compares entity tags (`PutMode::Update`).
    /// Then no change is lost if several machines change metadata.
    #[must_use]
    pub fn with_conditional_writes(mut self) -> RemoteStore {
        self.compares_versions = true;
        self
    }

    /// Runs work that makes requests to the server, and waits for its result.
    fn wait<T, F>(&self, work: impl FnOnce(Arc<Client>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let client = self.place.client()?;
        let (runtime, call) = (Arc::clone(&client.runtime), Call::of(&client));
        runtime.wait(call.run(work(client)))
    }

    fn refuse_writes(&self) -> Result<()> {
        match self.place.cloud {
            Cloud::Http => Err(Error::new(ErrorKind::ReadOnly, format!("{self}: web servers are only read"))),
            Cloud::S3 | Cloud::Gcs | Cloud::Azure => Ok(()),
        }
    }

    fn refuse_lists(&self) -> Result<()> {
        match self.place.cloud {
            Cloud::Http => Err(Error::new(ErrorKind::Unsupported, format!("{self}: a web server lists no keys"))
                .with_hint("open arrays by their path, or groups with consolidated metadata")),
            Cloud::S3 | Cloud::Gcs | Cloud::Azure => Ok(()),
        }
    }
}

impl Store for RemoteStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, _workers: &dyn Workers) {
        match self.place.client() {
            Ok(client) => read::start(client, self.to_string(), batch, sink),
            Err(error) => {
                for index in 0..batch.len() {
                    sink.done(index, Err(error.clone().at(self.to_string())));
                }
            }
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let path = path_of(key)?;
        self.refuse_writes()?;
        if !self.capabilities().conditional_writes {
            condition.refuse_versions(self, key)?;
        }
        let bytes = value.with_bytes(|bytes| Ok(Bytes::copy_from_slice(bytes)))?;
        let condition = condition.clone();
        self.wait(|client| async move { put(&client, path, bytes, condition).await })
            .at(|| format!("{self}: key '{key}'"))
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        no_parts(self, key)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| validate_key(key))?;
        self.refuse_writes()?;
        let paths = keys.iter().map(|key| path_of(key)).collect::<Result<Vec<_>>>()?;
        self.wait(|client| async move {
            let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
            finish_deletes(client.objects.delete_stream(paths)).await
        })
        .at(|| self.to_string())
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        validate_prefix(prefix)?;
        self.refuse_writes()?;
        let prefix = path_of_prefix(prefix)?;
        self.wait(|client| async move {
            let found = client.objects.list(Some(&prefix)).map_ok(|meta| meta.location).boxed();
            finish_deletes(client.objects.delete_stream(found)).await
        })
        .at(|| self.to_string())
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let path = path_of(key)?;
        self.wait(|client| async move { Ok(client.head(&path).await?.map(|meta| client.stat_of(&meta))) })
            .at(|| format!("{self}: key '{key}'"))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        validate_prefix(prefix)?;
        self.refuse_lists()?;
        let path = path_of_prefix(prefix)?;
        self.wait(|client| async move {
            let found = client.objects.list_with_delimiter(Some(&path)).await.map_err(|error| explain(&error))?;
            let names = |paths: Vec<Path>| {
                let mut names: Vec<String> = paths.into_iter().map(String::from).collect();
                names.sort_unstable();
                names
            };
            // Web consoles mark a folder by an empty object whose name is the prefix itself.
            let keys = found.objects.into_iter().map(|meta| meta.location).filter(|found| *found != path).collect();
            Ok(Listing { keys: names(keys), prefixes: names(found.common_prefixes) })
        })
        .at(|| format!("{self}: prefix '{prefix}'"))
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        validate_prefix(prefix)?;
        self.refuse_lists()?;
        let path = path_of_prefix(prefix)?;
        self.wait(|client| async move {
            let found = client.objects.list(Some(&path)).map_ok(|meta| String::from(meta.location));
            let mut keys: Vec<String> = found.try_collect().await.map_err(|error| explain(&error))?;
            keys.sort_unstable();
            Ok(keys)
        })
        .at(|| format!("{self}: prefix '{prefix}'"))
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn capabilities(&self) -> Capabilities {
        let is_bucket = self.place.cloud != Cloud::Http;
        Capabilities {
            read_only: !is_bucket,
            deletes: is_bucket,
            conditional_writes: self.compares_versions,
            far: true,
            versions: true,
            ..Capabilities::default()
        }
    }

    fn is_on(&self, _device: Device) -> bool {
        false
    }

    /// Locks a prefix by creating an object at a key, which only one caller can do. An object that is older than an
    /// hour was left by a program that died.
    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        if !self.capabilities().conditional_writes {
            return Ok(Lock::Unsupported);
        }
        let key = join_key(prefix, LOCK_NAME);
        let take = |condition: &Condition| self.put(&key, Payload::Bytes(b"held"), condition);
        let is_taken = take(&Condition::Absent)? || {
            let old = self.stat(&key)?.and_then(|stat| stat.version).filter(is_old);
            old.is_some_and(|version| matches!(take(&Condition::Unchanged(version)), Ok(true)))
        };
        if !is_taken {
            return Ok(Lock::Busy);
        }
        Ok(Lock::Held(Box::new(Held { store: self.clone(), key, process: std::process::id() })))
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}

impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place.name)
    }
}

/// Shows only the store's address, never the credentials.
impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteStore('{self}')")
    }
}

/// A lock that this process holds by an object on the server, until the value is dropped.
struct Held {
    store: RemoteStore,
    key: String,
    process: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // If this fails, the lock expires.
            let _ = self.store.delete_many(std::slice::from_ref(&self.key));
        }
    }
}

/// Whether a value was written more than [`LONGEST_LOCK`] ago.
fn is_old(version: &Version) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let written = version.modified_seconds().map(Duration::from_secs);
    written.is_some_and(|written| now.saturating_sub(written) > LONGEST_LOCK)
}

/// Converts a prefix of keys to a path of `object_store`; the empty path is the root.
fn path_of_prefix(prefix: &Key) -> Result<Path> {
    if prefix.is_empty() { Ok(Path::default()) } else { path_of(prefix) }
}

async fn put(client: &Client, path: Path, bytes: Bytes, condition: Condition) -> Result<bool> {
    let permit = client.admit(bytes.len() as u64).await?;
    let mode = match &condition {
        Condition::Always if bytes.len() > MULTIPART_BYTES => return put_in_parts(client, &path, bytes).await,
        Condition::Always => PutMode::Overwrite,
        Condition::Absent => PutMode::Create,
        Condition::Unchanged(version) => PutMode::Update(client.condition(version)),
    };
    let request = client.objects.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode));
    match permit.slot().run(request).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
            if condition != Condition::Always =>
        {
            Ok(false)
        }
        Err(error) if is_missing(&error) && matches!(condition, Condition::Unchanged(_)) => Ok(false),
        Err(error) => Err(explain(&error)),
    }
}

/// Writes a large value to a key as a multipart upload. Readers see the value once the last part is written.
async fn put_in_parts(client: &Client, path: &Path, bytes: Bytes) -> Result<bool> {
    let upload = client.objects.put_multipart(path).await.map_err(|error| explain(&error))?;
    let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    for from in (0..bytes.len()).step_by(PART_BYTES) {
        if let Err(error) = parts.wait_for_capacity(PARTS_AT_ONCE).await {
            // Parts that were written so far would be billed.
            let _ = parts.abort().await;
            return Err(explain(&error));
        }
        parts.put(bytes.slice(from..bytes.len().min(from + PART_BYTES)));
    }
    // On failure, this aborts the upload.
    parts.finish().await.map_err(|error| explain(&error))?;
    Ok(true)
}

/// Waits until all deletions of a stream have ended. Keys that do not exist count as deleted.
async fn finish_deletes(mut deleted: stream::BoxStream<'static, object_store::Result<Path>>) -> Result<()> {
    while let Some(outcome) = deleted.next().await {
        match outcome {
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(explain(&error)),
        }
    }
    Ok(())
}
