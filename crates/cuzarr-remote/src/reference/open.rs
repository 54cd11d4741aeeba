//! Opens tables by URL, with the schemes `reference` and `icechunk`.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cuzarr::store::{Identity, LocalOptions, LocalStore, Prefixed, Registry, Store, StoreExt, Symlinks, Url};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

use super::location::{FileOptions, Files, Rules};
use super::store::ReferenceStore;
use super::table::ReferenceTable;
use crate::icechunk;
use crate::open::with_clouds;
use crate::options::{StorageOptions, is_of_a_table};

/// Largest size in bytes of a table of references that is read; a larger one is an error.
const TABLE_MOST_BYTES: u64 = 1 << 30;

/// Options for opening tables of references, under fsspec's names where fsspec has them.
pub(crate) struct TableOptions {
    /// Options for the store that contains the table of references itself.
    table: StorageOptions,
    files: FileOptions,
    rules: Rules,
    /// Names of containers that an Icechunk repository uses in URLs (`vcc://name/…`), and the URLs that they stand for.
    containers: HashMap<String, String>,
}

impl TableOptions {
    /// Sorts options by what they are for: `remote_options.…` are for files, `target_options.…` for the table, and
    /// others for both.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid prefix to allow, and for an option that no scheme knows.
    pub(crate) fn new(options: &StorageOptions) -> Result<TableOptions> {
        options.check_names()?;
        let plain = options.without(is_of_a_table);
        let (mut table, mut remote) = (plain.clone(), StorageOptions::new());
        let (mut rules, mut containers) = (Rules::new(), HashMap::new());
        for (name, value) in options.pairs() {
            match name.split_once('.') {
                Some(("target_options", name)) => table.set(name, value),
                Some(("remote_options", name)) => remote.set(name, value),
                Some(("container", name)) => drop(containers.insert(name.to_string(), value.to_string())),
                _ if name == "remote_protocol" => rules = rules.with_protocol(value),
                _ if name == "allow" => {
                    for prefix in value.split([',', ' ', '\n']).filter(|prefix| !prefix.is_empty()) {
                        rules = rules.allow(prefix)?;
                    }
                }
                _ => {}
            }
        }
        Ok(TableOptions { table, files: FileOptions { plain, remote }, rules, containers })
    }
}

/// Makes a store from a table of references in memory.
///
/// # Errors
/// Those of the options; `InvalidArgument` for an invalid `place`.
pub(crate) fn of_table(
    name: &str,
    place: Option<&str>,
    table: ReferenceTable,
    registry: &Registry,
    options: &StorageOptions,
) -> Result<ReferenceStore> {
    let identity = place.map_or_else(Identity::unique, |place| Identity::address(&format!("reference+{place}")));
    of_table_as(name, identity, place, table, registry, options)
}

/// Like [`of_table`], but the store gets the given identity.
pub(crate) fn of_table_as(
    name: &str,
    identity: Identity,
    place: Option<&str>,
    table: ReferenceTable,
    registry: &Registry,
    options: &StorageOptions,
) -> Result<ReferenceStore> {
    let options = TableOptions::new(options)?;
    let rules = match place {
        Some(place) => options.rules.with_table(place)?,
        None => options.rules,
    };
    Ok(ReferenceStore::with_parts(name, identity, table, Files::new(registry, rules, options.files), None))
}

/// Opens `reference::URL` or `reference:///path`: the table of references at that URL. `reference://inside::URL` opens
/// a part of the table.
pub(crate) fn reference_scheme(registry: &Registry, url: &Url, options: &StorageOptions) -> Result<Arc<dyn Store>> {
    let sorted = TableOptions::new(options)?;
    let (inside, mut target) = inside_and_target(url)?;
    if target.scheme() == "file" {
        target = Url::parse(&format!("file://{}", plain_path(target.path())?))?;
    }
    let place = target.to_string();
    let place = place.as_str();
    let (folder, name) = folder_and_name(&with_clouds(registry, &Arc::new(sorted.table.clone())), &target)?;
    let document = folder.get_at_most(&name, TABLE_MOST_BYTES).at(|| place.to_string())?;
    let missing = || {
        let error = Error::new(ErrorKind::StoreFailed, format!("'{place}': there is no such file"));
        let is_parquet = [".parq", ".parquet"].iter().any(|ending| name.ends_with(ending));
        if is_parquet {
            error.with_hint("install the Python package, which opens tables in Parquet through fsspec")
        } else {
            error
        }
    };
    let table = ReferenceTable::from_json(&document.ok_or_else(missing)?).at(|| place.to_string())?;
    let store = of_table(&format!("reference::{place}"), Some(place), table, registry, options)?;
    below(Arc::new(store), inside)
}

/// Opens `icechunk::URL` or `icechunk:///path`: the branch `main` of the repository at that URL. Other versions are
/// `icechunk://branch.NAME::URL`, `icechunk://tag.NAME::URL` and `icechunk://snapshot.ID::URL`.
pub(crate) fn icechunk_scheme(registry: &Registry, url: &Url, options: &StorageOptions) -> Result<Arc<dyn Store>> {
    let sorted = TableOptions::new(options)?;
    let (revision, target) = inside_and_target(url)?;
    let place = target.to_string().trim_end_matches('/').to_string();
    let repository: Arc<dyn Store> = if target.scheme() == "file" {
        let options = LocalOptions::default().with_read_only(true);
        Arc::new(LocalStore::with_options(Path::new(target.path()), options)?)
    } else {
        with_clouds(registry, &Arc::new(sorted.table)).open_url(&target)?
    };
    let (snapshot, table) =
        icechunk::open(&repository, &revision.parse()?, sorted.containers).at(|| format!("icechunk::{place}"))?;
    // The repository's own chunks need no rule.
    let files = Files::new(registry, sorted.rules, sorted.files);
    let name = format!("icechunk://snapshot.{snapshot}::{place}");
    let identity = repository.identity().below("snapshots").below(&snapshot);
    Ok(Arc::new(ReferenceStore::with_parts(&name, identity, table, files, Some(repository))))
}

/// Splits a URL such as `reference::URL` into the text inside the scheme and the URL of the table of references.
/// Without a wrapped URL, the scheme's own path is the table.
fn inside_and_target(url: &Url) -> Result<(&str, Url)> {
    match url.wrapped() {
        Some(target) => Ok((url.path(), target.clone())),
        None => Ok(("", Url::parse(url.path())?)),
    }
}

/// Returns an absolute local path without `.` and `..`. Links are not followed, because a table names its files by the
/// path that the user knows.
fn plain_path(path: &str) -> Result<String> {
    let invalid = || Error::new(ErrorKind::InvalidArgument, format!("'{path}' is no path of a table"));
    let absolute = std::path::absolute(path).map_err(|_| invalid())?;
    let mut plain = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain.to_str().map(str::to_string).ok_or_else(invalid)
}

fn folder_and_name(registry: &Registry, target: &Url) -> Result<(Arc<dyn Store>, String)> {
    let (folder, name) = target.split_name()?;
    if target.scheme() != "file" {
        return Ok((registry.open_url(&folder)?, name));
    }
    let folder = if folder.path().is_empty() { "/" } else { folder.path() };
    // The user named this file, so links may lead anywhere.
    let options = LocalOptions::default().with_symlinks(Symlinks::Everywhere).with_read_only(true);
    Ok((Arc::new(LocalStore::with_options(Path::new(folder), options)?), name))
}

fn below(store: Arc<dyn Store>, prefix: &str) -> Result<Arc<dyn Store>> {
    let prefix = prefix.trim_matches('/');
    Ok(if prefix.is_empty() { store } else { Arc::new(Prefixed::new(store, prefix)?) })
}
