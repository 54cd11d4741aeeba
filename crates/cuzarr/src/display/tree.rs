//! The hierarchy below a group.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Display, escape, shape_text, unfinished_text, with_work};
use crate::error::{Result, printable};
use crate::meta::{GroupMetadata, NodeMetadata};
use crate::node::Group;

/// A node in a hierarchy: a group with everything below it, or an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    name: String,
    kind: TreeKind,
    members: BTreeMap<String, Tree>,
}

#[derive(Clone, Debug, PartialEq)]
enum TreeKind {
    Group {
        /// The name of the unfinished work that writes below the group, such as `copy`.
        unfinished: Option<String>,
    },
    Array {
        shape: Vec<u64>,
        data_type: String,
        /// The name of the unfinished work that writes the array, such as `store`.
        unfinished: Option<String>,
    },
    /// The node's metadata cannot be read, for this reason.
    Unreadable(String),
}

/// Reads the hierarchy below `group`, down to `max_depth` levels. Nodes whose metadata cannot be read are included.
///
/// # Errors
/// What the store reports when it lists the keys.
pub fn tree(group: &Group, max_depth: Option<usize>) -> Result<Tree> {
    let kind = TreeKind::of_group(group.metadata());
    let mut root = Tree { name: group.name(), kind, members: BTreeMap::new() };
    group.walk(max_depth, &mut |path, metadata| {
        root.insert(path, TreeKind::from(metadata));
        Ok(())
    })?;
    Ok(root)
}

impl Tree {
    fn insert(&mut self, path: &str, kind: TreeKind) {
        let mut place = self;
        for segment in path.split('/') {
            let kind = TreeKind::Group { unfinished: None };
            let empty = || Tree { name: segment.to_string(), kind, members: BTreeMap::new() };
            place = place.members.entry(segment.to_string()).or_insert_with(empty);
        }
        place.kind = kind;
    }

    fn label(&self) -> String {
        let label = match &self.kind {
            TreeKind::Array { shape, data_type, unfinished } => {
                format!("{} {} {data_type}{}", self.name, shape_text(shape), unfinished_text(unfinished.as_deref()))
            }
            TreeKind::Unreadable(error) => format!("{} (unreadable: {error})", self.name),
            TreeKind::Group { unfinished } => format!("{}{}", self.name, unfinished_text(unfinished.as_deref())),
        };
        printable(&label).into_owned()
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
        match &self.kind {
            TreeKind::Array { shape, data_type, unfinished } => {
                with_work(json!({ "type": "array", "shape": shape, "data_type": data_type }), unfinished.as_deref())
            }
            TreeKind::Unreadable(error) => json!({ "type": "unreadable", "error": error }),
            TreeKind::Group { unfinished } => {
                let members = self.members.iter().map(|(name, member)| (name.clone(), member.to_json()));
                with_work(json!({ "type": "group", "members": members.collect::<Map<_, _>>() }), unfinished.as_deref())
            }
        }
    }
}

impl TreeKind {
    fn of_group(metadata: &GroupMetadata) -> TreeKind {
        TreeKind::Group { unfinished: metadata.unfinished_work().map(String::from) }
    }
}

impl From<Result<NodeMetadata>> for TreeKind {
    fn from(metadata: Result<NodeMetadata>) -> Self {
        match metadata {
            Ok(NodeMetadata::Array(array)) => {
                let unfinished = array.unfinished_work().map(String::from);
                TreeKind::Array { shape: array.shape().to_vec(), data_type: array.data_type().to_string(), unfinished }
            }
            Ok(NodeMetadata::Group(group)) => TreeKind::of_group(&group),
            Err(error) => TreeKind::Unreadable(error.message().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::meta::ZarrFormat;
    use crate::node::ArrayOptions;
    use crate::store::{MemoryStore, Store, StoreExt};

    #[test]
    fn unreadable_members_are_shown_beside_the_others() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (format, options) = (ZarrFormat::V3, ArrayOptions::default());
        let root = Group::create(Arc::clone(&store), "", format, Map::new(), false, options).unwrap();
        root.create_group("a/<b>", Map::new(), false).unwrap();
        store.write("z/zarr.json", b"{").unwrap();
        let tree = tree(&root, None).unwrap();
        let text = tree.to_text();
        assert!(text.starts_with("/\n├── a\n│   └── <b>\n└── z (unreadable: "), "{text}");
        assert_eq!(tree.to_json()["members"]["z"]["type"], "unreadable");
        assert_eq!(tree.to_json()["members"]["a"]["members"]["<b>"]["type"], "group");
        assert!(tree.to_html().contains("&lt;b&gt;"));
    }
}
