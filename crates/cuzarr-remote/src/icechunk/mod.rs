//! Reads snapshots of Icechunk repositories directly from the repository's files.
//!
//! A snapshot is a table of references. It has the documents of its nodes. Each chunk is stored inline, in a chunk's
//! file, or as a part of a file elsewhere (a virtual chunk). Opening a snapshot takes two rounds of requests. The
//! manifests of an array, which list its chunks, are read together with its first chunk.
//!
//! This reader follows the specification instead of using the crate `icechunk`, which would add the SDKs of the clouds.
//! Writes go through Icechunk's own package.

mod flatbuffer;
mod format;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::internal::printable;
use cuzarr::internal::store::KeyTable;
use cuzarr::store::{ByteRange, Key, ReadRequest, Store, StoreExt, join_key, validate_key};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

use self::format::{ChunkEntry, ChunkPlace, FileKind, NodeEntry, NodeId, ObjectId, RepositoryFile};
use crate::reference::{Location, Part, Pending, Place, Reference, ReferenceTable};

/// Largest size in bytes of an Icechunk metadata file that is read; a larger one is an error.
const FILE_MOST_BYTES: u64 = 1 << 30;

/// The version of an Icechunk repository that is to be opened: a branch, a tag or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    Branch(String),
    Tag(String),
    Snapshot(ObjectId),
}

/// Parses the version of a repository: `branch.NAME`, `tag.NAME` or `snapshot.ID`, in Icechunk's own spelling. An empty
/// text means the branch `main`.
impl FromStr for Revision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Revision> {
        let invalid = || {
            let message = format!("'{}' is no state of a repository", printable(text));
            Error::new(ErrorKind::InvalidArgument, message).with_hint("use branch.NAME, tag.NAME or snapshot.ID")
        };
        match text.split_once('.') {
            None if text.is_empty() => Ok(Revision::Branch("main".into())),
            Some(("branch", name)) => Ok(Revision::Branch(name.into())),
            Some(("tag", name)) => Ok(Revision::Tag(name.into())),
            Some(("snapshot", id)) => format::decoded(id).map(Revision::Snapshot).ok_or_else(invalid),
            _ => Err(invalid()),
        }
    }
}

/// Returns the key of a chunk's file in its Icechunk repository.
pub(crate) fn chunk_key(id: &ObjectId) -> String {
    format!("chunks/{}", format::encoded(id))
}

/// Returns the FlatBuffer of an Icechunk metadata file of any kind; `None` if the file is not a metadata file.
pub fn flat_content(file: &[u8]) -> Option<Vec<u8>> {
    FileKind::ALL.into_iter().find_map(|kind| format::content(file, kind).ok())
}

/// Reads a FlatBuffer as a metadata file of each kind, and returns how many of these succeed.
pub fn read_as_every_kind(content: &[u8]) -> usize {
    let chunks = format::array_ids(content)
        .and_then(|ids| ids.iter().try_for_each(|id| format::chunks(content, id, |_| Ok(()))));
    let read = [RepositoryFile::parse(content).is_ok(), format::nodes(content).is_ok(), chunks.is_ok()];
    read.into_iter().filter(|&is_read| is_read).count()
}

/// Opens a snapshot of an Icechunk repository, and returns its identifier and its table of references. `containers` are
/// the URLs for the names in `vcc://name/…`.
///
/// # Errors
/// `InvalidArgument` if there is no such branch or tag; `StoreFailed` if there is no repository, or it is damaged.
pub(crate) fn open(
    repository: &Arc<dyn Store>,
    revision: &Revision,
    containers: HashMap<String, String>,
) -> Result<(String, ReferenceTable)> {
    let id = format::encoded(&snapshot_of(&**repository, revision)?);
    let content = metadata_file(&**repository, &format!("snapshots/{id}"), FileKind::Snapshot)?;
    let nodes = content.ok_or_else(|| flatbuffer::damaged(&format!("snapshot {id} is missing")))?;
    let nodes = format::nodes(&nodes).at(|| format!("snapshot {id}"))?;
    let table = ReferenceTable::new();
    let mut arrays = BTreeMap::new();
    for NodeEntry { id, path, document, manifests } in nodes {
        table.insert_inline(&join_key(&path, "zarr.json"), document)?;
        if !manifests.is_empty() {
            arrays.insert(path, (id, manifests));
        }
    }
    let chunks = Chunks { repository: Arc::clone(repository), arrays, containers, loaded: Mutex::default() };
    Ok((id, table.with_pending(Arc::new(chunks))))
}

fn metadata_file(repository: &dyn Store, key: &Key, kind: FileKind) -> Result<Option<Vec<u8>>> {
    let file = repository.get_at_most(key, FILE_MOST_BYTES)?;
    file.map(|file| format::content(&file, kind).at(|| key.to_string())).transpose()
}

/// Returns the identifier of the snapshot that a branch or a tag refers to.
fn snapshot_of(repository: &dyn Store, revision: &Revision) -> Result<ObjectId> {
    let (what, name) = match revision {
        Revision::Snapshot(id) => return Ok(*id),
        Revision::Branch(name) => ("branch", name),
        Revision::Tag(name) => ("tag", name),
    };
    let Some(content) = metadata_file(repository, "repo", FileKind::Repository)? else {
        return snapshot_of_version_1(repository, what, name);
    };
    let file = RepositoryFile::parse(&content).at(|| "repo")?;
    let known = if what == "branch" { &file.branches } else { &file.tags };
    let found = known.iter().find(|(known, _)| known == name).map(|(_, id)| *id);
    found.ok_or_else(|| {
        let mut names: Vec<_> = known.iter().map(|(name, _)| name.as_str()).collect();
        names.truncate(20);
        let message = format!("the repository has no {what} '{}'", printable(name));
        Error::new(ErrorKind::InvalidArgument, message).with_hint(format!("use one of these: {}", names.join(", ")))
    })
}

/// Returns the snapshot of a branch or tag in version 1 of the format, which has a file for each.
fn snapshot_of_version_1(repository: &dyn Store, what: &str, name: &str) -> Result<ObjectId> {
    let key = format!("refs/{what}.{name}/ref.json");
    validate_key(&key)?;
    let none = || {
        let message = format!("there is no Icechunk repository with a {what} '{}'", printable(name));
        Error::new(ErrorKind::InvalidArgument, message)
    };
    if what == "tag" && repository.exists(&format!("{key}.deleted"))? {
        return Err(none());
    }
    let file = repository.get_at_most(&key, 1 << 16)?.ok_or_else(none)?;
    let document: serde_json::Value =
        serde_json::from_slice(&file).map_err(|_| flatbuffer::damaged("it is no JSON")).at(|| key.clone())?;
    let id = document.get("snapshot").and_then(serde_json::Value::as_str).and_then(format::decoded);
    id.ok_or_else(|| flatbuffer::damaged("it names no snapshot")).at(|| key)
}

/// The source of references to the chunks of an Icechunk snapshot's arrays, which it adds to a table of references.
/// They are loaded from manifests when they are needed.
struct Chunks {
    repository: Arc<dyn Store>,
    arrays: BTreeMap<String, (NodeId, Vec<ObjectId>)>,
    containers: HashMap<String, String>,
    /// Paths of the arrays whose manifests have been read. The lock is held while other manifests are read, so that
    /// each is read once.
    loaded: Mutex<HashSet<String>>,
}

impl Chunks {
    /// Reads the manifests of several arrays in one batch, and adds their chunks to `entries`.
    fn load_arrays(&self, paths: HashSet<&str>, entries: &KeyTable<Reference>) -> Result<()> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_manifest: BTreeMap<ObjectId, Vec<(&str, NodeId)>> = BTreeMap::new();
        for path in paths.iter().copied().filter(|&path| !loaded.contains(path)) {
            let Some((node, manifests)) = self.arrays.get(path) else { continue };
            manifests.iter().for_each(|id| by_manifest.entry(*id).or_default().push((path, *node)));
        }
        let key = |id: &ObjectId| format!("manifests/{}", format::encoded(id));
        let requests = by_manifest.keys().map(|id| ReadRequest { key: key(id), range: ByteRange::Full }).collect();
        let files = self.repository.get_many_at_most(requests, FILE_MOST_BYTES);
        let mut locations = HashMap::new();
        for ((id, nodes), file) in by_manifest.iter().zip(files) {
            let read = || -> Result<()> {
                let file = file?.ok_or_else(|| flatbuffer::damaged("it is missing"))?;
                let content = format::content(&file, FileKind::Manifest)?;
                nodes.iter().try_for_each(|(path, node)| {
                    format::chunks(&content, node, |chunk| self.insert(path, chunk, &mut locations, entries))
                })
            };
            read().at(|| key(id))?;
        }
        loaded.extend(paths.into_iter().filter(|path| self.arrays.contains_key(*path)).map(String::from));
        Ok(())
    }

    fn insert(
        &self,
        path: &str,
        chunk: ChunkEntry<'_>,
        locations: &mut HashMap<String, Arc<Location>>,
        entries: &KeyTable<Reference>,
    ) -> Result<()> {
        let mut key = join_key(path, "c");
        for part in &chunk.index {
            key.push('/');
            key.push_str(&part.to_string());
        }
        let place = match chunk.place {
            ChunkPlace::Inline(bytes) => {
                let inline = Reference::Inline(bytes.to_vec().into());
                return entries.insert_if(&key, inline, |_| true).map(|_| ());
            }
            ChunkPlace::Native(id) => Place::Chunk(id),
            ChunkPlace::Virtual(url) => {
                let url = self.resolved(url);
                let location = locations.entry(url).or_insert_with_key(|url| Arc::new(Location::new(url)));
                Place::Location(Arc::clone(location))
            }
        };
        let mut part = Part::new(place, chunk.offset, Some(chunk.size_bytes))?;
        part.etag = chunk.etag.map(Into::into);
        part.changed_until = Some(chunk.changed_until).filter(|&seconds| seconds > 0);
        entries.insert_if(&key, Reference::Part(part), |_| true).map(|_| ())
    }

    /// Replaces the container name in a URL such as `vcc://name/…` by the container's URL.
    fn resolved(&self, url: String) -> String {
        let named = url.strip_prefix("vcc://").and_then(|rest| rest.split_once('/'));
        let found = named.and_then(|(name, rest)| Some((self.containers.get(name)?, rest)));
        found.map(|(container, rest)| format!("{}/{rest}", container.trim_end_matches('/'))).unwrap_or(url)
    }
}

/// Returns the path of the array to which a chunk's key belongs.
fn array_of(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next().unwrap_or(key);
    if name == "c" {
        return Some(key.strip_suffix('c').unwrap_or("").trim_end_matches('/'));
    }
    if !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    key.rfind("/c/").map(|end| &key[..end]).or_else(|| key.starts_with("c/").then_some(""))
}

impl Pending for Chunks {
    fn load(&self, keys: &mut dyn Iterator<Item = &Key>, entries: &KeyTable<Reference>) -> Result<()> {
        let paths: HashSet<&str> = keys.filter_map(array_of).filter(|path| self.arrays.contains_key(*path)).collect();
        if paths.is_empty() { Ok(()) } else { self.load_arrays(paths, entries) }
    }

    fn load_below(&self, prefix: &Key, all: bool, entries: &KeyTable<Reference>) -> Result<()> {
        let is_in = |inner: &str, outer: &str| {
            outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let shows = |path: &&String| is_in(prefix, path) || (all && is_in(path, prefix));
        let paths: HashSet<&str> = self.arrays.keys().filter(shows).map(String::as_str).collect();
        if paths.is_empty() { Ok(()) } else { self.load_arrays(paths, entries) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_spelled_as_icechunk_spells_them() {
        let parse = |text: &str| text.parse::<Revision>();
        assert_eq!(parse("").unwrap(), Revision::Branch("main".into()));
        assert_eq!(parse("branch.a.b").unwrap(), Revision::Branch("a.b".into()));
        assert_eq!(parse("tag.v1").unwrap(), Revision::Tag("v1".into()));
        assert!(matches!(parse("snapshot.1CECHNKREP0F1RSTCMT0").unwrap(), Revision::Snapshot(_)));
        for text in ["main", "snapshot.x", "commit.1"] {
            assert_eq!(parse(text).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn keys_of_chunks_tell_their_array() {
        assert_eq!(array_of("a/b/c/0/1"), Some("a/b"));
        assert_eq!(array_of("a/c/c/0"), Some("a/c"));
        assert_eq!(array_of("c/0"), Some(""));
        assert_eq!(array_of("a/c"), Some("a"));
        assert_eq!(array_of("c"), Some(""));
        for key in ["a/zarr.json", "zarr.json", "a/b", "0"] {
            assert_eq!(array_of(key), None, "{key}");
        }
    }
}
