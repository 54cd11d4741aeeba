//! `cuzarr consolidate`: stores the metadata of everything below a group in the group.

use clap::Args;
use cuzarr::Result;
use cuzarr::node::{self, ArrayOptions, Node};
use serde_json::json;

use crate::output::Output;
use crate::{Verdict, nodes};

#[derive(Args)]
pub struct Consolidate {
    /// Path or URL of a group
    path: String,
}

impl Consolidate {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let store = nodes::writable(output.registry(), &self.path)?;
        let group = node::consolidate_metadata(store, "", None, ArrayOptions::default())?;
        let (mut arrays, mut groups) = (0, 0);
        for (_, member) in group.members(None)? {
            match member {
                Node::Array(_) => arrays += 1,
                Node::Group(_) => groups += 1,
            }
        }
        let path = nodes::shown(&self.path);
        let text = format!("{path}: the group has the metadata of {arrays} arrays and {groups} groups below it");
        output.answer(&json!({"path": path, "arrays": arrays, "groups": groups}), &text);
        Ok(Verdict::Passed)
    }
}
