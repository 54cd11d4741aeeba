//! The identity of a store, which shows whether two handles hold the same values.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Key;

/// The identity of a store, or of a part of a store, by which it can be compared with others. It is never derived from
/// a name that is meant for people.
///
/// Two stores have the same identity if every key means the same value in both. Write locks, checks for overlapping
/// copies and caches compare identities.
#[derive(Clone, Debug)]
pub struct Identity {
    data: Place,
    /// The location of the documents of arrays and groups, if a split store keeps them apart from `data`.
    metadata: Option<Place>,
    /// The text that was given to [`Identity::with_view`], such as the name of a branch. It is not compared.
    view: Option<Arc<str>>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        (&self.data, &self.metadata) == (&other.data, &other.metadata)
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.data, &self.metadata).hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    root: IdentityRoot,
    /// The path of this store, or part of a store, below the root. In the file system it is absolute, with every link
    /// resolved.
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum IdentityRoot {
    FileSystem,
    /// A store that only exists in this process, such as values in memory.
    Process(u64),
    /// A store that has an address, such as the bucket of an object store.
    Address(Arc<str>),
}

impl Identity {
    /// Makes the identity of the directory at `path`, which need not exist. Relative paths, links and repeated
    /// separators are resolved.
    pub fn directory(path: impl AsRef<Path>) -> Identity {
        Identity::at(IdentityRoot::FileSystem, resolved(path.as_ref()))
    }

    /// Makes a new identity that no other store has. A store makes it once; its clones share it.
    pub fn unique() -> Identity {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Identity::at(IdentityRoot::Process(NUMBER.fetch_add(1, Ordering::Relaxed)), PathBuf::new())
    }

    /// Makes the identity of a store that lies at an address. A `file://` address means the directory at that path.
    pub fn address(address: &str) -> Identity {
        match address.strip_prefix("file://") {
            Some(path) => Identity::directory(path),
            None => Identity::at(IdentityRoot::Address(address.into()), PathBuf::new()),
        }
    }

    fn at(root: IdentityRoot, path: PathBuf) -> Identity {
        Identity { data: Place { root, path }, metadata: None, view: None }
    }

    /// Returns the identity of the part of the store below a prefix or a node's path.
    #[must_use]
    pub fn below(&self, prefix: &Key) -> Identity {
        let below = |place: &Place| {
            let path = if prefix.is_empty() { place.path.clone() } else { place.path.join(prefix) };
            let path = if place.root == IdentityRoot::FileSystem { resolved(&path) } else { path };
            Place { root: place.root.clone(), path }
        };
        Identity { data: below(&self.data), metadata: self.metadata.as_ref().map(below), view: self.view.clone() }
    }

    /// Returns the identity of a split store: the documents of arrays and groups are in `other`, everything else is in
    /// this store.
    #[must_use]
    pub fn with_metadata_in(self, other: Identity) -> Identity {
        let metadata = Some(other.metadata.unwrap_or(other.data)).filter(|place| *place != self.data);
        Identity { data: self.data, metadata, view: self.view }
    }

    /// Whether a chunk key means the same stored chunk in both stores. Then writers of one must wait for writers of the
    /// other.
    pub fn has_same_chunks(&self, other: &Identity) -> bool {
        self.data == other.data
    }

    /// Whether both stores share values: they have the same directory or address, or one lies inside the other.
    pub fn overlaps(&self, other: &Identity) -> bool {
        self.places().any(|one| other.places().any(|other| one.overlaps(other)))
    }

    /// Adds a text that tells apart two views of the same store with different values, such as a branch or a snapshot.
    /// Examples are the headers and query sent to a server, and a table of references. Caches of decoded chunks
    /// separate two views; locks do not.
    #[must_use]
    pub fn with_view(self, view: &str) -> Identity {
        Identity { view: Some(view.into()), ..self }
    }

    /// The text that was given to [`Identity::with_view`]; empty if there is none.
    pub(crate) fn view(&self) -> &str {
        self.view.as_deref().unwrap_or("")
    }

    /// The address of a stored object, by which the chunk cache finds it. All stores that have the object give the same
    /// text, and no other object of this process has that text.
    pub(crate) fn object(&self, key: &Key) -> String {
        let Place { root, path } = &self.data;
        let path = if key.is_empty() { path.clone() } else { path.join(key) };
        let path = path.display();
        match root {
            IdentityRoot::FileSystem => format!("file:{path}"),
            IdentityRoot::Process(number) => format!("process:{number}/{path}"),
            IdentityRoot::Address(address) => format!("address:{address}/{path}"),
        }
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        [&self.data].into_iter().chain(&self.metadata)
    }
}

impl Place {
    fn overlaps(&self, other: &Place) -> bool {
        self.root == other.root && (self.path.starts_with(&other.path) || other.path.starts_with(&self.path))
    }
}

/// The absolute path with all symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let real = above.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    real.unwrap_or(path)
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.data.path.as_os_str().is_empty() { "" } else { "/" };
        match &self.data.root {
            IdentityRoot::FileSystem => write!(f, "{}", self.data.path.display()),
            IdentityRoot::Process(number) => write!(f, "{number}{separator}{}", self.data.path.display()),
            IdentityRoot::Address(address) => write!(f, "{address}{separator}{}", self.data.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn one_directory_has_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("a");
        std::fs::create_dir_all(root.join("b")).unwrap();
        std::os::unix::fs::symlink(&root, folder.path().join("link")).unwrap();
        let identity = Identity::directory(root.join("b"));
        assert_eq!(identity, Identity::directory(folder.path().join("link/./b")));
        assert_eq!(identity, Identity::directory(folder.path().join("link")).below("b"));
        assert_eq!(identity, Identity::address(&format!("file://{}", root.join("b").display())));
        assert_eq!(identity.below("c/0"), Identity::directory(folder.path().join("link/b/c/0")), "before it is made");
        assert_ne!(identity, Identity::directory(root));
    }

    #[test]
    fn parts_overlap_what_holds_them() {
        let (one, other) = (Identity::unique(), Identity::unique());
        assert!(one != other && one == one.clone() && one.below("a/b") == one.below("a").below("b"));
        assert!(one.below("a").overlaps(&one) && one.below("a").overlaps(&one.below("a/b")));
        assert!(!one.below("a").overlaps(&one.below("ab")) && !one.overlaps(&other));
        assert_eq!(Identity::address("s3://bucket").below("a"), Identity::address("s3://bucket").below("a"));
    }

    #[test]
    fn an_object_has_one_address_from_wherever_it_is_seen() {
        let (one, other) = (Identity::unique(), Identity::unique());
        assert_eq!(one.object("a/b/c"), one.below("a").object("b/c"));
        assert_eq!(one.below("a").object(""), one.object("a"));
        assert_ne!(one.object("a"), other.object("a"));
        assert_ne!(Identity::address("s3://b").object("a"), Identity::address("s3://c").object("a"));
        assert_eq!(Identity::directory("/x").object("y/z"), Identity::directory("/x/y").object("z"));
    }

    #[test]
    fn metadata_elsewhere_is_another_identity_of_the_same_chunks() {
        let (data, metadata) = (Identity::unique(), Identity::unique());
        let split = data.clone().with_metadata_in(metadata.clone());
        assert!(split != data && split.has_same_chunks(&data) && !split.has_same_chunks(&metadata));
        assert!(split.below("a").overlaps(&metadata.below("a")) && !split.below("a").overlaps(&metadata.below("b")));
        assert_eq!(data.clone().with_metadata_in(data.clone()), data);
    }
}
