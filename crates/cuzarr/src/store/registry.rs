//! The registry, which opens the store of a URL by its scheme.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use cuzarr_device::AppendOnlyMap;

use super::url::Url;
use super::zip::open_zip_file;
use super::{LocalStore, MemoryStore, Prefixed, Store, ZipStore};
use crate::error::{Error, ErrorKind, Result};

/// The URL schemes that the crate `cuzarr-remote` opens.
const REMOTE_SCHEMES: [&str; 11] =
    ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https", "reference", "icechunk"];

/// A function that opens the store of a URL. A scheme that wraps another store opens it with the given registry.
pub type Opener = dyn Fn(&Registry, &Url) -> Result<Arc<dyn Store>> + Send + Sync;

/// A function that is called with each URL before its store is opened, and may refuse the URL with an error.
type Check = dyn Fn(&Url) -> Result<()> + Send + Sync;

/// Opens stores by path or URL: a table that has an opener for each scheme. It never changes: [`Registry::with`]
/// returns another table with one more scheme.
///
/// | URL | store |
/// |---|---|
/// | a path, `file://path` | a directory, or the ZIP file of that path |
/// | `memory://name` | the store in memory of that name, one for the whole process |
/// | `zip::URL` | the ZIP file at that URL, for reading; `zip://inside::URL` a part of it |
///
/// ```
/// use std::sync::Arc;
/// use cuzarr::store::{MemoryStore, Registry, Store, StoreExt};
/// let registry = Registry::new().with("empty", |_, _| Ok(Arc::new(MemoryStore::new())));
/// assert_eq!(registry.open("empty://")?.list("")?.len(), 0);
/// registry.open("memory://example")?.write("a", b"1")?;
/// assert!(registry.open("memory://example")?.exists("a")?);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    openers: BTreeMap<String, Arc<Opener>>,
    check: Option<Arc<Check>>,
}

impl Registry {
    /// Makes a registry with the schemes of this crate: `file`, `memory` and `zip`.
    pub fn new() -> Registry {
        let none = Registry { openers: BTreeMap::new(), check: None };
        none.with("file", open_file).with("memory", open_memory).with("zip", open_zip)
    }

    /// Returns a registry that opens `scheme` with `opener`, and all other schemes like this one.
    #[must_use]
    pub fn with(
        &self,
        scheme: &str,
        opener: impl Fn(&Registry, &Url) -> Result<Arc<dyn Store>> + Send + Sync + 'static,
    ) -> Registry {
        let mut openers = self.openers.clone();
        openers.insert(scheme.to_ascii_lowercase(), Arc::new(opener));
        Registry { openers, check: self.check.clone() }
    }

    /// Returns a registry that calls `check` before it opens any URL, including a wrapped one. It replaces this
    /// registry's own check, and opens all schemes like this registry.
    #[must_use]
    pub fn with_check(&self, check: impl Fn(&Url) -> Result<()> + Send + Sync + 'static) -> Registry {
        Registry { openers: self.openers.clone(), check: Some(Arc::new(check)) }
    }

    /// The schemes that this registry can open.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.openers.keys().map(String::as_str)
    }

    /// Opens the store at a path or URL. If the store does not exist yet and can be created, an empty one is opened.
    ///
    /// # Errors
    /// `Unsupported` for an unknown scheme; what the store reports.
    pub fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        self.open_url(&Url::parse(url)?)
    }

    /// Like [`Registry::open`], for a parsed URL.
    ///
    /// # Errors
    /// Those of [`Registry::open`].
    pub fn open_url(&self, url: &Url) -> Result<Arc<dyn Store>> {
        let Some(opener) = self.openers.get(url.scheme()) else {
            let scheme = url.scheme();
            let message = format!("'{url}': unknown scheme '{scheme}'");
            let hint = match REMOTE_SCHEMES.contains(&scheme) {
                true => "add the crate `cuzarr-remote`, and call `cuzarr_remote::open`; `cuzarr_remote::registry` opens the \
                         store alone"
                    .to_string(),
                false => format!("use one of these schemes: {}", self.schemes().collect::<Vec<_>>().join(", ")),
            };
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint));
        };
        self.check.iter().try_for_each(|check| check(url))?;
        opener(self, url)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

fn refuse_wrapping(url: &Url) -> Result<()> {
    match url.wrapped() {
        None => Ok(()),
        Some(_) => {
            let message = format!("'{url}': the scheme '{}' cannot wrap another store", url.scheme());
            Err(Error::new(ErrorKind::InvalidArgument, message))
        }
    }
}

fn open_file(_registry: &Registry, url: &Url) -> Result<Arc<dyn Store>> {
    refuse_wrapping(url)?;
    let place = Path::new(url.path());
    if place.is_file() && is_zip(place) {
        Ok(Arc::new(open_zip_file(place)?))
    } else {
        Ok(Arc::new(LocalStore::new(place)?))
    }
}

/// Whether a path ends with an extension of ZIP files: `.zip`, or OME-Zarr's `.ozx`.
pub fn has_zip_name(place: &Path) -> bool {
    let is = |ending: &str| place.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending));
    is("zip") || is("ozx")
}

/// Whether a file is a ZIP file, by its name or its first bytes.
pub fn is_zip(place: &Path) -> bool {
    let begin = || -> std::io::Result<[u8; 4]> {
        let mut begin = [0; 4];
        File::open(place)?.read_exact(&mut begin)?;
        Ok(begin)
    };
    has_zip_name(place) || begin().is_ok_and(|begin| begin == *b"PK\x03\x04" || begin == *b"PK\x05\x06")
}

fn open_memory(_registry: &Registry, url: &Url) -> Result<Arc<dyn Store>> {
    // The only state of the process: named stores in memory.
    static NAMED: AppendOnlyMap<String, MemoryStore> = AppendOnlyMap::new();
    refuse_wrapping(url)?;
    let (name, prefix) = url.path().split_once('/').unwrap_or((url.path(), ""));
    let store = NAMED.get(name).unwrap_or_else(|| NAMED.insert(name.to_string(), MemoryStore::default()));
    below(Arc::new(store.clone()), prefix)
}

fn below(store: Arc<dyn Store>, prefix: &str) -> Result<Arc<dyn Store>> {
    let prefix = prefix.trim_matches('/');
    Ok(if prefix.is_empty() { store } else { Arc::new(Prefixed::new(store, prefix)?) })
}

fn open_zip(registry: &Registry, url: &Url) -> Result<Arc<dyn Store>> {
    let Some(wrapped) = url.wrapped() else { return Ok(Arc::new(open_zip_file(Path::new(url.path()))?)) };
    let zip = if wrapped.scheme() == "file" && wrapped.wrapped().is_none() {
        open_zip_file(Path::new(wrapped.path()))?
    } else {
        let (folder, name) = wrapped.split_name()?;
        ZipStore::open(registry.open_url(&folder)?, &name)?
    };
    below(Arc::new(zip), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreExt;

    const ARCHIVE: &[u8] = include_bytes!("../../tests/data/zip/deflated.zip");

    #[test]
    fn opens_directories_and_zip_files_by_path_and_url() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("x.zip"), ARCHIVE).unwrap();
        std::fs::write(path("unnamed"), ARCHIVE).unwrap();
        let registry = Registry::new();
        for url in
            [path("x.zip"), path("unnamed"), format!("file://{}", path("x.zip")), format!("zip::{}", path("unnamed"))]
        {
            assert_eq!(registry.open(&url).unwrap().list("").unwrap().len(), 4, "{url}");
        }
        let part = registry.open(&format!("zip://a::file://{}", path("x.zip"))).unwrap();
        assert_eq!(part.size_bytes("long").unwrap(), Some(12_000));
        let directory = registry.open(&path("new")).unwrap();
        directory.write("a", b"1").unwrap();
        assert!(registry.open(&format!("file://{}", path("new"))).unwrap().exists("a").unwrap());
        assert_eq!(directory.identity(), registry.open(&path("./new")).unwrap().identity());
    }

    #[test]
    fn a_scheme_of_another_crate_is_wrapped_like_our_own() {
        let holding = |_: &Registry, url: &Url| -> Result<Arc<dyn Store>> {
            let store = MemoryStore::new();
            store.write("deep/x.zip", ARCHIVE)?;
            below(Arc::new(store), url.path())
        };
        let plain = Registry::new();
        let registry = plain.with("Far", holding);
        assert_eq!(registry.open("zip::far://deep/x.zip").unwrap().list("").unwrap().len(), 4);
        assert_eq!(registry.open("zip://a::far://deep/x.zip").unwrap().list("").unwrap().len(), 3);
        let error = plain.open("zip::far://deep/x.zip").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let schemes = "file, memory, zip";
        assert!(error.hint().unwrap().contains(schemes), "{error:?} should list the schemes {schemes}");
        assert_eq!(plain.open("file://a::file://b").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_scheme_of_the_remote_crate_is_answered_with_the_call_that_opens_it() {
        for scheme in REMOTE_SCHEMES {
            let error = Registry::new().open(&format!("{scheme}://bucket/a.zarr")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.hint().unwrap().contains("`cuzarr_remote::open`"), "{error}");
        }
    }

    #[test]
    fn a_check_sees_every_url_before_it_is_opened() {
        let check = |url: &Url| match url.scheme() {
            "memory" => Err(Error::new(ErrorKind::InvalidArgument, "refused")),
            _ => Ok(()),
        };
        let registry = Registry::new().with_check(check).with("other", |_, _| Ok(Arc::new(MemoryStore::new())));
        for url in ["memory://a", "zip::memory://a/b.zip"] {
            assert_eq!(registry.open(url).unwrap_err().message(), "refused", "{url}");
        }
        assert!(registry.open("other://").is_ok());
    }

    #[test]
    fn a_name_in_memory_is_one_store_for_the_process() {
        let name = format!("memory://{}", module_path!().replace(':', "-"));
        Registry::new().open(&name).unwrap().write("a/b", b"1").unwrap();
        let part = Registry::default().open(&format!("{name}/a")).unwrap();
        assert_eq!(part.list("").unwrap(), ["b"]);
        assert_eq!(part.identity(), Registry::new().open(&name).unwrap().identity().below("a"));
    }
}
