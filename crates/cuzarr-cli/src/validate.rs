//! `cuzarr validate`: decodes every chunk, checks every checksum and lists the bad chunks.

use std::sync::{Mutex, PoisonError};

use clap::Args;
use cuzarr::Result;
use cuzarr::node::{Array, Node};
use cuzarr_device::Device;
use serde_json::{Value, json};

use crate::Verdict;
use crate::nodes;
use crate::output::Output;

#[derive(Args)]
pub struct Validate {
    /// Path or URL of an array, or of a group with all its arrays
    path: String,
}

/// The bad chunks of one array, or a node whose metadata cannot be read.
struct Finding {
    node: String,
    chunks: u64,
    /// Keys relative to the node, or `metadata`.
    bad: Vec<(String, cuzarr::Error)>,
}

impl Validate {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let (arrays, unreadable) = match nodes::open(output.registry(), &self.path, Some(Device::Cpu))? {
            Node::Array(array) => (vec![array], Vec::new()),
            Node::Group(group) => nodes::arrays_below(&group)?,
        };
        let mut findings = arrays.iter().map(|array| check(array, output)).collect::<Result<Vec<_>>>()?;
        findings.extend(unreadable.into_iter().map(|(node, error)| Finding::unreadable(node, error)));
        findings.sort_by(|left, right| left.node.cmp(&right.node));
        let good = findings.iter().all(|finding| finding.bad.is_empty());
        let document = json!({
            "valid": good,
            "arrays": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        });
        let text: Vec<String> = findings.iter().map(Finding::text).collect();
        output.answer(&document, &text.join("\n"));
        Ok(if good { Verdict::Passed } else { Verdict::Failed })
    }
}

fn check(array: &Array, output: &mut Output) -> Result<Finding> {
    if let Err(error) = array.chain() {
        return Ok(Finding::unreadable(array.name(), error));
    }
    let chunks = array.nchunks_initialized()?;
    let what = format!("validate {}", array.name());
    let progress = Mutex::new((0, output));
    let bad = array.verify(&|_, _| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0 += 1;
        let done = progress.0;
        progress.1.progress(&what, done, chunks);
    })?;
    Ok(Finding { node: array.name(), chunks, bad })
}

impl Finding {
    fn unreadable(node: String, error: cuzarr::Error) -> Self {
        Finding { node, chunks: 0, bad: vec![("metadata".to_string(), error)] }
    }

    fn to_json(&self) -> Value {
        let bad: Vec<Value> = self
            .bad
            .iter()
            .map(|(key, error)| json!({"key": key, "kind": error.kind().name(), "error": error.to_string()}))
            .collect();
        json!({"array": self.node, "stored_chunks": self.chunks, "bad": bad})
    }

    fn text(&self) -> String {
        let mut lines =
            vec![format!("{}: {} stored chunks, {} bad", cuzarr::printable(&self.node), self.chunks, self.bad.len())];
        lines.extend(self.bad.iter().map(|(key, error)| format!("  {key}: {error}")));
        lines.join("\n")
    }
}
