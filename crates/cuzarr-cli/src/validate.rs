//! `cuzarr validate`: decodes every chunk and checks every checksum. It lists bad chunks, keys that belong to nothing,
//! arrays in which some damage cannot be detected, and consolidated metadata that differs from the nodes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use cuzarr::Result;
use cuzarr::internal::meta::node::{DOCUMENT_NAMES, ZMETADATA};
use cuzarr::internal::node::chain;
use cuzarr::internal::node::{CHECKPOINT, OLD_COPY_CHECKPOINT};
use cuzarr::internal::printable;
use cuzarr::meta::NodeMetadata;
use cuzarr::node;
use cuzarr::node::{Array, ArrayOptions, Consolidation, Group, Node};
use cuzarr::store::{LOCK_NAME, Store, join_key};
use cuzarr_device::Device;
use serde_json::{Value, json};

use crate::Verdict;
use crate::nodes;
use crate::output::Output;

#[derive(Args)]
pub struct Validate {
    /// Path or URL of an array, or of a group with all its arrays
    path: String,
    /// Write consolidated metadata anew where it differs from the nodes
    #[arg(long)]
    repair: bool,
}

/// Problems that were found in one array or group: its bad chunks, or that its metadata cannot be read.
struct Finding {
    node: String,
    chunks: u64,
    /// Keys of the chunks that cannot be decoded, relative to the array, or `metadata`, each with the error.
    bad: Vec<(String, cuzarr::Error)>,
    /// Whether one of the array's codecs verifies a checksum. `None` if its metadata cannot be read.
    checksums: Option<bool>,
}

/// Largest number of keys without an array or group that the text lists; it only counts further ones.
const MOST_STRAYS: usize = 20;

impl Validate {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let node = nodes::open(output.registry(), &self.path, Some(Device::Cpu))?;
        let store = match &node {
            Node::Array(array) => Arc::clone(array.store()),
            Node::Group(group) => Arc::clone(group.store()),
        };
        let groups = match &node {
            Node::Array(_) => Vec::new(),
            Node::Group(group) => groups_at(group)?,
        };
        let stale = stale_copies(&groups)?;
        if self.repair && !stale.is_empty() {
            let writable = nodes::source(output.registry(), &self.path)?;
            for Stale { group, .. } in &stale {
                node::consolidate_metadata(Arc::clone(&writable), group, None, ArrayOptions::default())?;
            }
        }
        let (arrays, unreadable) = match node {
            Node::Array(array) => (vec![array], Vec::new()),
            // Consolidated metadata may be older than the nodes.
            Node::Group(group) => nodes::arrays_below(&group.reading_documents()?)?,
        };
        let mut findings = arrays.iter().map(|array| check(array, output)).collect::<Result<Vec<_>>>()?;
        let unread: Vec<String> = unreadable.iter().map(|(node, _)| node[1..].to_string()).collect();
        findings.extend(unreadable.into_iter().map(|(node, error)| Finding::unreadable(node, error)));
        findings.sort_by(|left, right| left.node.cmp(&right.node));
        let unfinished = groups.iter().filter(|group| group.metadata().unfinished().is_some()).map(Group::name);
        let results = arrays.iter().filter(|array| array.metadata().unfinished_work().is_some()).map(Array::name);
        let unfinished: Vec<String> = unfinished.chain(results).collect();
        let good = findings.iter().all(|finding| finding.bad.is_empty())
            && (stale.is_empty() || self.repair)
            && unfinished.is_empty();
        let mut found = Strays::find(&*store, &arrays, unread)?;
        found.unfinished.extend(unfinished);
        found.unfinished.sort();
        // A result that can be resumed also has a checkpoint, so it is found twice.
        found.unfinished.dedup();
        let document = json!({
            "valid": good, "stray_keys": found.strays, "unfinished": found.unfinished,
            "stale": stale.iter().map(|stale| stale.to_json(self.repair)).collect::<Vec<_>>(),
            "arrays": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        });
        let mut text: Vec<String> = findings.iter().map(Finding::text).collect();
        text.extend(stale.iter().map(|stale| stale.text(self.repair)));
        text.extend(found.text());
        output.answer(&document, &text.join("\n"));
        Ok(if good { Verdict::Passed } else { Verdict::Failed })
    }
}

/// A group whose consolidated metadata differs from the documents of the nodes below it.
struct Stale {
    /// The path of the group with the outdated consolidated metadata.
    group: String,
    /// One sentence for each node below the group whose own metadata differs.
    differences: Vec<String>,
}

/// Returns the group `root` and all groups below it.
fn groups_at(root: &Group) -> Result<Vec<Group>> {
    let mut paths = Vec::new();
    root.reading_documents()?.walk(None, &mut |path, metadata| {
        // Unreadable nodes are reported elsewhere.
        if matches!(metadata, Ok(NodeMetadata::Group(_))) {
            paths.push(join_key(root.path(), path));
        }
        Ok(())
    })?;
    let mut groups = vec![root.clone()];
    for path in paths {
        let (store, options) = (Arc::clone(root.store()), root.options().clone());
        groups.push(Group::open(store, &path, None, Consolidation::WhenPresent, options)?);
    }
    Ok(groups)
}

/// Returns those of the groups whose consolidated metadata differs from the documents of the nodes below them.
fn stale_copies(groups: &[Group]) -> Result<Vec<Stale>> {
    let stale = |group: &Group| {
        let differences = group.differences()?;
        Ok((!differences.is_empty()).then(|| Stale { group: group.path().to_string(), differences }))
    };
    groups.iter().map(stale).filter_map(Result::transpose).collect()
}

impl Stale {
    fn to_json(&self, repaired: bool) -> Value {
        json!({"group": format!("/{}", self.group), "differences": self.differences, "repaired": repaired})
    }

    fn text(&self, repaired: bool) -> String {
        let end = if repaired { "was written anew" } else { "differs from the nodes; repair it with --repair" };
        let first = format!("/{}: the consolidated metadata {end}", printable(&self.group));
        let lines = self.differences.iter().map(|line| format!("  {}", printable(line)));
        [first].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}

/// Findings in a store besides arrays and groups: keys that no reader requests, and unfinished work.
struct Strays {
    /// Keys that are neither metadata documents nor chunks of an array. Chunks outside their array's shape are
    /// included.
    strays: Vec<String>,
    /// Paths of arrays and hierarchies that a call began to write but did not finish.
    unfinished: Vec<String>,
}

impl Strays {
    /// Finds keys that belong to no array or group, and the marks of unfinished calls. `unread` are the paths of nodes
    /// whose metadata cannot be read.
    fn find(store: &dyn Store, arrays: &[Array], unread: Vec<String>) -> Result<Strays> {
        let mut chunks = HashSet::new();
        for array in arrays {
            chunks.extend(array.stored_chunks()?.into_iter().map(|key| join_key(array.path(), &key)));
        }
        let mut found = Strays { strays: Vec::new(), unfinished: Vec::new() };
        for key in store.list("")? {
            let (parent, name) = key.rsplit_once('/').unwrap_or(("", &key));
            match name {
                CHECKPOINT | OLD_COPY_CHECKPOINT => found.unfinished.push(format!("/{parent}")),
                ZMETADATA | LOCK_NAME => {}
                _ if DOCUMENT_NAMES.contains(&name) || chunks.contains(&key) => {}
                _ => found.strays.push(key),
            }
        }
        // Chunks below unfinished work, or below a node that cannot be read, belong to that node.
        let mut owners = unread;
        owners.extend(found.unfinished.iter().map(|path| path[1..].to_string()));
        let belongs = |key: &String| {
            owners
                .iter()
                .any(|path| path.is_empty() || key.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
        };
        found.strays.retain(|key| !belongs(key));
        found.strays.sort();
        found.unfinished.sort();
        Ok(found)
    }

    fn text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for path in &self.unfinished {
            lines.push(format!("{}: unfinished; repeat the call that began it with --resume", printable(path)));
        }
        if !self.strays.is_empty() {
            lines.push(format!("{} stray keys, which belong to no array:", self.strays.len()));
            lines.extend(self.strays.iter().take(MOST_STRAYS).map(|key| format!("  {}", printable(key))));
            if self.strays.len() > MOST_STRAYS {
                lines.push(format!("  and {} more; --json lists all", self.strays.len() - MOST_STRAYS));
            }
        }
        lines
    }
}

fn check(array: &Array, output: &mut Output) -> Result<Finding> {
    let checksums = match chain(array) {
        Ok(chain) => Some(chain.has_checksum()),
        Err(error) => return Ok(Finding::unreadable(array.name(), error)),
    };
    let chunks = array.nchunks_initialized()?;
    let what = format!("validate {}", array.name());
    let progress = Mutex::new((0, output));
    let bad = array.verify(&|_, _| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0 += 1;
        let done = progress.0;
        progress.1.progress(&what, done, chunks);
    })?;
    Ok(Finding { node: array.name(), chunks, bad, checksums })
}

impl Finding {
    fn unreadable(node: String, error: cuzarr::Error) -> Self {
        Finding { node, chunks: 0, bad: vec![("metadata".to_string(), error)], checksums: None }
    }

    fn to_json(&self) -> Value {
        let bad: Vec<Value> = self
            .bad
            .iter()
            .map(|(key, error)| json!({"key": key, "kind": error.kind().name(), "error": error.to_string()}))
            .collect();
        json!({"array": self.node, "stored_chunks": self.chunks, "bad": bad, "checksums": self.checksums})
    }

    fn text(&self) -> String {
        let mut lines =
            vec![format!("{}: {} stored chunks, {} bad", printable(&self.node), self.chunks, self.bad.len())];
        if self.checksums == Some(false) && self.chunks > 0 {
            lines.push("  no checksums: changed bytes that can still be decoded are not detected".into());
        }
        lines.extend(self.bad.iter().map(|(key, error)| format!("  {key}: {error}")));
        lines.join("\n")
    }
}
