//! Opens nodes by path, and implements `cuzarr info` and `cuzarr tree`.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use cuzarr::config::Config;
use cuzarr::display::{self, Display};
use cuzarr::internal::meta::node::DOCUMENT_NAMES;
use cuzarr::internal::nearest;
use cuzarr::internal::node::{CHECKPOINT, OLD_COPY_CHECKPOINT};
use cuzarr::internal::store::{has_zip_name, is_zip};
use cuzarr::meta::{DataType, NodeMetadata};
use cuzarr::node;
use cuzarr::node::{Array, ArrayOptions, Group, Node};
use cuzarr::store::{
    LocalStore, Prefixed, ReadOnly, Registry, Store, StoreExt, Url, ZipArchive, ZipMode, ZipOptions, hint_about_file,
    join_key,
};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_compute::Expr;
use cuzarr_device::Device;

use crate::output::Output;
use crate::{Verdict, arguments, interrupt};

#[derive(Args)]
pub struct Info {
    /// Path or URL of an array or group
    path: String,
    /// Also count stored chunks, bytes and members; this lists the whole store
    #[arg(long)]
    complete: bool,
}

#[derive(Args)]
pub struct Tree {
    /// Path or URL of a group
    path: String,
    /// Number of levels to show [default: all]
    #[arg(long, value_parser = arguments::count)]
    level: Option<usize>,
}

impl Info {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let info = match open(output.registry(), &self.path, None)? {
            Node::Array(array) => display::array_info(&array, self.complete)?,
            Node::Group(group) => display::group_info(&group, self.complete)?,
        };
        output.answer(&info.to_json(), &info.to_text());
        Ok(Verdict::Passed)
    }
}

impl Tree {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let Node::Group(group) = open(output.registry(), &self.path, None)? else {
            let message = format!("'{}' is an array, but only groups have a tree", shown(&self.path));
            return Err(Error::new(ErrorKind::GroupNotFound, message).with_hint("use cuzarr info"));
        };
        let tree = display::tree(&group, self.level)?;
        output.answer(&tree.to_json(), &tree.to_text());
        Ok(Verdict::Passed)
    }
}

/// Opens the array or group at a path or URL. Without `device`, the configured device is used.
pub fn open(registry: &Registry, path: &str, device: Option<Device>) -> Result<Node> {
    let mut options = ArrayOptions::from(&Config::from_environment()?);
    options.device = device.unwrap_or(options.device);
    options.cancellation = interrupt::cancellation();
    let store: Arc<dyn Store> =
        Arc::new(ReadOnly::new(source(registry, path).map_err(|error| with_inner_form(error, path))?));
    node::open_existing(Arc::clone(&store), "", None, options).map_err(|error| match error.kind() {
        ErrorKind::NodeNotFound => with_neighbour(error, path, &*store),
        _ => error,
    })
}

/// Adds a hint to the error that there is no array or group at a path. The hint says how to resume unfinished work at a
/// path, how to write a path inside a chain, or which local name is similar.
fn with_neighbour(error: Error, path: &str, store: &dyn Store) -> Error {
    let Ok(url) = Url::parse(path) else { return error };
    // For a store that cannot answer, there is no hint.
    let has = |name: &&str| store.size_bytes(name).is_ok_and(|size| size.is_some());
    if [CHECKPOINT, OLD_COPY_CHECKPOINT].iter().any(has) {
        let message = format!("{store}: the array here is unfinished");
        return Error::new(ErrorKind::NodeNotFound, message)
            .with_hint("repeat the call that began it with `resume`, or begin again with `overwrite`");
    }
    if url.scheme() != "file" || url.wrapped().is_some() {
        return error;
    }
    if let Some(form) = inner_form(&url) {
        return error.with_hint(form);
    }
    let place = Path::new(url.path());
    let (Some(name), Some(parent)) = (place.file_name().and_then(|name| name.to_str()), place.parent()) else {
        return error;
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let entries =
        std::fs::read_dir(parent).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = entries.filter(|other| other != name).collect();
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => error.with_hint(format!("did you mean '{}'?", parent.join(near).display())),
        None if !parent.is_dir() => error.with_hint(format!("there is no directory '{}'", parent.display())),
        None if !place.exists() => error.with_hint(format!("there is no '{name}' in '{}'", parent.display())),
        None => error.with_hint("use a directory that contains zarr.json, .zarray or .zgroup"),
    }
}

/// Adds a hint that shows how to write a path inside a file.
fn with_inner_form(error: Error, path: &str) -> Error {
    match Url::parse(path).ok().and_then(|url| inner_form(&url)) {
        Some(form) => error.with_hint(form),
        None => error,
    }
}

/// Returns a hint that shows how to write a path that continues after the name of an archive or a table, such as
/// `zip::a.zip/inner`.
fn inner_form(url: &Url) -> Option<String> {
    let place = Path::new(url.wrapped().unwrap_or(url).path());
    let file = place.ancestors().skip(1).find(|above| above.is_file())?;
    let inner = place.strip_prefix(file).ok()?.to_str()?;
    let scheme = match (url.scheme(), url.wrapped()) {
        (scheme @ ("zip" | "reference"), wrapped) if wrapped.is_none_or(|wrapped| wrapped.scheme() == "file") => scheme,
        ("file", None) if is_zip(file) => "zip",
        _ => return None,
    };
    Some(format!("write {scheme}://{inner}::{} for a path inside of the file", file.display()))
}

/// Opens the store at a path or URL for reading.
///
/// # Errors
/// `InvalidArgument` for a file that is not a ZIP file; those of [`Registry::open_url`].
pub fn source(registry: &Registry, path: &str) -> Result<Arc<dyn Store>> {
    let url = Url::parse(path)?;
    if url.scheme() == "file" && url.wrapped().is_none() {
        let place = Path::new(url.path());
        if place.is_file() && !is_zip(place) {
            return Err(not_a_directory(path, place));
        }
    }
    registry.open_url(&url)
}

/// Opens the store of an array or group that is changed in place.
///
/// # Errors
/// `ReadOnly`, with a hint what to do instead; those of [`source`].
pub fn writable(registry: &Registry, path: &str) -> Result<Arc<dyn Store>> {
    let store = source(registry, path)?;
    if !store.capabilities().read_only {
        return Ok(store);
    }
    let error = Error::new(ErrorKind::ReadOnly, format!("cannot change '{store}': it is read-only"));
    Err(error.with_hint("change the directory or bucket that it was made of"))
}

fn not_a_directory(path: &str, place: &Path) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("'{path}' is a file, expected a directory"));
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or("");
    match place.parent() {
        Some(parent) if DOCUMENT_NAMES.contains(&name) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            error.with_hint(format!("use the directory that contains it: {}", parent.display()))
        }
        _ => error.with_hint(hint_about_file(place)),
    }
}

/// A store to which a command writes, and the ZIP file in which the store lies, if there is one.
pub struct Target {
    /// The store to which the command writes.
    pub store: Arc<dyn Store>,
    archive: Option<ZipArchive>,
}

impl Target {
    /// Makes everything that was written to the store visible, once it is complete. A ZIP file gets its name now.
    /// Without this call, no ZIP file is left behind.
    ///
    /// # Errors
    /// Those of [`ZipArchive::close`].
    pub fn finish(&self) -> Result<()> {
        self.archive.as_ref().map_or(Ok(()), ZipArchive::close)
    }
}

/// Opens the store at a path or URL for writing.
///
/// # Errors
/// Those of [`target_directory`]; an error if the store of a URL is read-only.
pub fn target(registry: &Registry, path: &str) -> Result<Target> {
    let url = Url::parse(path)?;
    if let Some((place, inside)) = zip_place(&url) {
        let archive = ZipArchive::new(place, ZipOptions::default().with_mode(ZipMode::Append))?;
        let store: Arc<dyn Store> = match inside {
            "" => Arc::new(archive.clone()),
            inside => Arc::new(Prefixed::new(Arc::new(archive.clone()), inside)?),
        };
        return Ok(Target { store, archive: Some(archive) });
    }
    if url.scheme() == "file" && url.wrapped().is_none() {
        return Ok(Target { store: Arc::new(target_directory(path)?), archive: None });
    }
    let store = registry.open_url(&url)?;
    if store.capabilities().read_only {
        return Err(Error::new(ErrorKind::ReadOnly, format!("cannot write to '{store}': it is read-only"))
            .with_hint("write to a directory, a local ZIP file or a bucket"));
    }
    Ok(Target { store, archive: None })
}

/// Returns the local ZIP file that a URL names, and the path inside it. The file may not exist yet.
fn zip_place(url: &Url) -> Option<(&Path, &str)> {
    let place = Path::new(url.path());
    match (url.scheme(), url.wrapped()) {
        ("zip", None) => Some((place, "")),
        ("zip", Some(wrapped)) if wrapped.scheme() == "file" && wrapped.wrapped().is_none() => {
            Some((Path::new(wrapped.path()), url.path().trim_matches('/')))
        }
        ("file", None) if is_zip_place(place) => Some((place, "")),
        _ => None,
    }
}

/// Refuses an array of dates or durations, because they are not numbers.
///
/// # Errors
/// `Unsupported`
pub fn refuse_times(array: &Array) -> Result<()> {
    match array.metadata().data_type() {
        data_type @ (DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. }) => {
            let message = format!("cannot compute with elements of {data_type}");
            Err(Error::new(ErrorKind::Unsupported, message).with_hint("--raw takes the whole numbers that are stored"))
        }
        _ => Ok(()),
    }
}

/// Whether a target's path or URL names a local ZIP file. Such a file gets its name when it is complete.
pub fn is_zip_target(path: &str) -> bool {
    Url::parse(path).is_ok_and(|url| zip_place(&url).is_some())
}

/// Whether a path is that of a ZIP file, or of a ZIP file that can be created.
fn is_zip_place(place: &Path) -> bool {
    if place.is_file() { is_zip(place) } else { !place.is_dir() && has_zip_name(place) }
}

/// Opens the store in a directory for writing.
///
/// # Errors
/// An error if `path` is a file or a URL of another scheme, or if its name ends like that of a ZIP file.
pub fn target_directory(path: &str) -> Result<LocalStore> {
    let url = Url::parse(path)?;
    let place = Path::new(url.path());
    if url.scheme() != "file" || url.wrapped().is_some() || is_zip_place(place) {
        return Err(Error::new(ErrorKind::Unsupported, format!("'{}' is not a directory", shown(path)))
            .with_hint("write to a directory"));
    }
    if place.is_file() {
        let error =
            Error::new(ErrorKind::InvalidArgument, format!("'{}' is a file, expected a directory", shown(path)));
        return Err(error.with_hint("choose another name"));
    }
    LocalStore::new(place)
}

/// The name of an array or group whose metadata cannot be read, and the error.
pub type Unreadable = (String, Error);

/// Returns every array below a group, and every array or group whose metadata cannot be read. Codecs are not checked
/// yet.
pub fn arrays_below(group: &Group) -> Result<(Vec<Array>, Vec<Unreadable>)> {
    let (mut arrays, mut unreadable) = (Vec::new(), Vec::new());
    group.walk(None, &mut |path, metadata| {
        let path = join_key(group.path(), path);
        match metadata {
            Ok(NodeMetadata::Array(metadata)) => {
                arrays.push(Array::from_metadata(
                    Arc::clone(group.store()),
                    &path,
                    *metadata,
                    group.options().clone(),
                )?);
            }
            Ok(NodeMetadata::Group(_)) => {}
            Err(error) => unreadable.push((format!("/{path}"), error)),
        }
        Ok(())
    })?;
    Ok((arrays, unreadable))
}

/// Returns the name to show for an array in the directory `path` or below it.
pub fn name_below(path: &str, array: &Array) -> String {
    let path = shown(path);
    match array.path() {
        "" => path,
        inner => join_key(path.trim_end_matches('/'), inner),
    }
}

/// Returns a path or URL as messages show it. A URL's query is left out, because it may be a signature.
pub fn shown(path: &str) -> String {
    match Url::parse(path) {
        Ok(url) if url.scheme() != "file" || url.wrapped().is_some() => url.to_string(),
        _ => path.to_string(),
    }
}

/// Opens the array at a path or URL.
pub fn open_array(registry: &Registry, path: &str, device: Option<Device>) -> Result<Array> {
    match open(registry, path, device)? {
        Node::Array(array) => Ok(array),
        Node::Group(_) => {
            let message = format!("'{}' is a group, expected an array", shown(path));
            Err(Error::new(ErrorKind::ArrayNotFound, message).with_hint("use cuzarr tree to see what is in it"))
        }
    }
}

/// Decodes the elements of an array or a view to the numbers that they represent. With `raw`, returns them as they are
/// stored.
///
/// # Errors
/// Those of `elements`, and of [`Expr::decoded`].
pub fn numbers(elements: Result<Expr>, raw: bool) -> Result<Expr> {
    let elements = elements?;
    if raw { Ok(elements) } else { elements.decoded(None) }
}
