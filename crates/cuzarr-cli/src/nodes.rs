//! Opening nodes by path, and `cuzarr info` and `cuzarr tree`.

use std::sync::Arc;

use clap::Args;
use cuzarr::config::Config;
use cuzarr::display::{self, Display};
use cuzarr::meta::NodeMetadata;
use cuzarr::node::{self, Array, ArrayOptions, Group, Node};
use cuzarr::store::{LocalStore, ReadOnly, join_key};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::Device;

use crate::Verdict;
use crate::output::Output;

#[derive(Args)]
pub struct Info {
    /// Path of an array or group
    path: String,
    /// Also look at everything that is stored: how many chunks, how many bytes, how many members
    #[arg(long)]
    complete: bool,
}

#[derive(Args)]
pub struct Tree {
    /// Path of a group
    path: String,
    /// How many levels to show
    #[arg(long)]
    level: Option<usize>,
}

impl Info {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let info = match open(&self.path, None)? {
            Node::Array(array) => display::array_info(&array, self.complete)?,
            Node::Group(group) => display::group_info(&group, self.complete)?,
        };
        output.answer(&info.to_json(), &info.to_text());
        Ok(Verdict::Passed)
    }
}

impl Tree {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let Node::Group(group) = open(&self.path, None)? else {
            let message = format!("'{}' is an array; only groups have a tree", self.path);
            return Err(Error::new(ErrorKind::GroupNotFound, message).with_hint("use cuzarr info"));
        };
        let tree = display::tree(&group, self.level)?;
        output.answer(&tree.to_json(), &tree.to_text());
        Ok(Verdict::Passed)
    }
}

/// The array or group in the directory `path`; without a device, on the configured one.
pub fn open(path: &str, device: Option<Device>) -> Result<Node> {
    let mut options = ArrayOptions::from(&Config::from_environment()?);
    options.device = device.unwrap_or(options.device);
    let store = ReadOnly::new(Arc::new(directory(path)?));
    node::open_existing(Arc::new(store), "", None, options)
}

/// The store in the directory `path`, which may be written as a URL.
///
/// # Errors
/// Other URLs are no directories.
pub fn directory(path: &str) -> Result<LocalStore> {
    match path.split_once("://") {
        Some(("file", path)) => LocalStore::new(path),
        Some((scheme, _)) if scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            let message = format!("'{path}' is a URL, and the command line works on directories");
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("use Python, where cuzarr.open takes URLs and stores"))
        }
        _ => LocalStore::new(path),
    }
}

/// A node's name, and why its metadata cannot be read.
pub type Unreadable = (String, Error);

/// Every array below a group, and the names of nodes whose metadata cannot be read, each with its error. Codecs are not
/// looked at yet.
pub fn arrays_below(group: &Group) -> Result<(Vec<Array>, Vec<Unreadable>)> {
    let (mut arrays, mut unreadable) = (Vec::new(), Vec::new());
    group.walk(None, &mut |path, metadata| {
        let path = join_key(group.path(), path);
        match metadata {
            Ok(NodeMetadata::Array(metadata)) => {
                arrays.push(Array::from_metadata(Arc::clone(group.store()), &path, *metadata, *group.options())?);
            }
            Ok(NodeMetadata::Group(_)) => {}
            Err(error) => unreadable.push((format!("/{path}"), error)),
        }
        Ok(())
    })?;
    Ok((arrays, unreadable))
}

/// What to call an array that was found in the directory `path`, or below it.
pub fn name_below(path: &str, array: &Array) -> String {
    match array.path() {
        "" => path.to_string(),
        inner => join_key(path.trim_end_matches('/'), inner),
    }
}

/// The array in the directory `path`.
pub fn open_array(path: &str, device: Option<Device>) -> Result<Array> {
    match open(path, device)? {
        Node::Array(array) => Ok(array),
        Node::Group(_) => {
            let message = format!("'{path}' is a group, this command needs an array");
            Err(Error::new(ErrorKind::ArrayNotFound, message).with_hint("use cuzarr tree to see what is in it"))
        }
    }
}
