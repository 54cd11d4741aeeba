//! The hierarchy below a group.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Display, escape};
use crate::error::Result;
use crate::meta::NodeMetadata;
use crate::node::Group;

/// A group with everything below it, or an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    name: String,
    /// Shape and data type of an array.
    array: Option<(Vec<u64>, String)>,
    members: BTreeMap<String, Tree>,
}

/// The hierarchy below `group`, down to `max_depth` levels of it.
///
/// # Errors
/// The first node whose metadata cannot be read; what the store reports.
pub fn tree(group: &Group, max_depth: Option<usize>) -> Result<Tree> {
    let mut root = Tree { name: group.name(), array: None, members: BTreeMap::new() };
    group.walk(max_depth, &mut |path, metadata| {
        root.insert(path, &metadata?);
        Ok(())
    })?;
    Ok(root)
}

impl Tree {
    fn insert(&mut self, path: &str, metadata: &NodeMetadata) {
        let mut place = self;
        for segment in path.split('/') {
            let empty = || Tree { name: segment.to_string(), array: None, members: BTreeMap::new() };
            place = place.members.entry(segment.to_string()).or_insert_with(empty);
        }
        place.array = metadata.as_array().map(|array| (array.shape().to_vec(), array.data_type().to_string()));
    }

    fn label(&self) -> String {
        match &self.array {
            Some((shape, data_type)) => {
                let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
                format!("{} ({}) {data_type}", self.name, extents.join(", "))
            }
            None => self.name.clone(),
        }
    }

    fn lines(&self, indent: &str, lines: &mut Vec<String>) {
        let last = self.members.len().saturating_sub(1);
        for (at, member) in self.members.values().enumerate() {
            let (branch, below) = if at == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            lines.push(format!("{indent}{branch}{}", member.label()));
            member.lines(&format!("{indent}{below}"), lines);
        }
    }
}

impl Display for Tree {
    fn to_text(&self) -> String {
        let mut lines = vec![self.label()];
        self.lines("", &mut lines);
        lines.join("\n")
    }

    fn to_html(&self) -> String {
        let members: String = self.members.values().map(|member| format!("<li>{}</li>", member.to_html())).collect();
        let list = if members.is_empty() { String::new() } else { format!("<ul>{members}</ul>") };
        format!("{}{list}", escape(&self.label()))
    }

    fn to_json(&self) -> Value {
        match &self.array {
            Some((shape, data_type)) => json!({ "type": "array", "shape": shape, "data_type": data_type }),
            None => {
                let members = self.members.iter().map(|(name, member)| (name.clone(), member.to_json()));
                json!({ "type": "group", "members": members.collect::<Map<_, _>>() })
            }
        }
    }
}
