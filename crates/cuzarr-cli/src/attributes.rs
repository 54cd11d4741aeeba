//! `cuzarr attrs`: shows and changes the attributes of an array or group.

use std::sync::Arc;

use clap::Args;
use cuzarr::node::{self, ArrayOptions, Node, NodeLock};
use cuzarr::store::Store;
use cuzarr::{CancellationToken, Error, ErrorKind, Result};
use serde_json::{Map, Value};

use crate::output::Output;
use crate::{Verdict, nodes};

#[derive(Args)]
pub struct Attrs {
    /// Path or URL of an array or group
    path: String,
    /// Set an attribute, such as units=K or levels='[1, 2]'; a value that is not JSON is a text. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    set: Vec<(String, Value)>,
    /// Delete an attribute. May be repeated
    #[arg(long, value_name = "NAME")]
    delete: Vec<String>,
}

fn attribute(text: &str) -> Result<(String, Value), String> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err("expected NAME=VALUE".to_string());
    };
    Ok((name.to_string(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

impl Attrs {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let attributes = if self.set.is_empty() && self.delete.is_empty() {
            attributes_of(&nodes::open(output.registry(), &self.path, None)?)
        } else {
            self.change(nodes::writable(output.registry(), &self.path)?)?
        };
        let document = Value::Object(attributes);
        output.answer(&document, &format!("{document:#}"));
        Ok(Verdict::Passed)
    }

    /// Sets and deletes attributes as the options say, and returns all attributes of the node.
    fn change(&self, store: Arc<dyn Store>) -> Result<Map<String, Value>> {
        let open = || node::open_existing(Arc::clone(&store), "", None, ArrayOptions::default());
        let (format, is_array) = match open()? {
            Node::Array(array) => (array.metadata().zarr_format(), true),
            Node::Group(group) => (group.metadata().zarr_format(), false),
        };
        let lock = NodeLock::take(Arc::clone(&store), "", format, is_array, &CancellationToken::default())?;
        lock.update(Some(2), &mut |documents| {
            for name in &self.delete {
                if !documents.set_attribute(name, None)? {
                    let message = format!("there is no attribute '{name}'");
                    let known = documents.attributes().into_iter().flat_map(|attributes| attributes.keys());
                    let error = Error::new(ErrorKind::InvalidArgument, message);
                    return Err(error.with_nearest(name, known.map(String::as_str)));
                }
            }
            for (name, value) in &self.set {
                documents.set_attribute(name, Some(value))?;
            }
            Ok(())
        })?;
        drop(lock);
        open().map(|node| attributes_of(&node))
    }
}

fn attributes_of(node: &Node) -> Map<String, Value> {
    match node {
        Node::Array(array) => array.metadata().attributes().clone(),
        Node::Group(group) => group.metadata().attributes().clone(),
    }
}
