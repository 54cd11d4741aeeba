//! Descriptions of arrays and groups for people and programs, as text, HTML and JSON.

mod gantt;
mod info;
mod tree;

use serde_json::{Map, Value, json};

use crate::error::printable;

pub use gantt::{Gantt, Mark};
pub use info::{array_info, group_info};
pub use tree::{Tree, tree};

/// The text after the name of a node with unfinished work.
fn unfinished_text(work: Option<&str>) -> String {
    work.map_or_else(String::new, |work| format!(" (unfinished {work})"))
}

/// Adds the unfinished work to a node's description for programs.
fn with_work(mut node: Value, work: Option<&str>) -> Value {
    if let Some(work) = work {
        node["unfinished"] = json!(work);
    }
    node
}

/// An ordered table of names and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: &'static str,
    label: &'static str,
    value: Value,
    text: String,
}

impl Description {
    /// Adds a row: `key` and `value` are for programs, `label` and `text` for people.
    pub(crate) fn add(
        &mut self,
        key: &'static str,
        label: &'static str,
        value: impl Into<Value>,
        text: impl Into<String>,
    ) {
        self.rows.push(Row { key, label, value: value.into(), text: text.into() });
    }

    /// Adds a value that is only for programs.
    pub(crate) fn add_hidden(&mut self, key: &'static str, value: impl Into<Value>) {
        self.add(key, "", value, "");
    }

    /// The rows that people see.
    fn shown(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.label.is_empty())
    }

    /// Adds a row whose value is the same for programs and people.
    pub(crate) fn add_text(&mut self, key: &'static str, label: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.add(key, label, text.clone(), text);
    }
}

/// Something that can be shown to people and passed to programs.
pub trait Display {
    /// Plain text, without a final newline.
    fn to_text(&self) -> String;

    /// An HTML fragment. All data in it are escaped.
    fn to_html(&self) -> String;

    /// The value as JSON.
    fn to_json(&self) -> Value;
}

impl Display for Description {
    fn to_text(&self) -> String {
        let width = self.shown().map(|row| row.label.len()).max().unwrap_or(0);
        let lines = self.shown().map(|row| format!("{:<width$} : {}", row.label, printable(&row.text)));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn to_html(&self) -> String {
        let cells = |row: &Row| format!("<tr><th>{}</th><td>{}</td></tr>", escape(row.label), escape(&row.text));
        format!("<table>{}</table>", self.shown().map(cells).collect::<String>())
    }

    fn to_json(&self) -> Value {
        Value::Object(self.rows.iter().map(|row| (row.key.to_string(), row.value.clone())).collect::<Map<_, _>>())
    }
}

/// A shape in Python's form: `(3, 4)`, `(5,)`, `()`.
pub(crate) fn shape_text(shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    format!("({}{comma})", extents.join(", "))
}

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_written_as_in_python() {
        assert_eq!([shape_text(&[]), shape_text(&[5]), shape_text(&[3, 4])], ["()", "(5,)", "(3, 4)"]);
    }

    #[test]
    fn one_description_gives_text_html_and_json() {
        let mut description = Description::default();
        description.add("shape", "Shape", vec![2, 3], "(2, 3)");
        description.add_text("name", "Longer name", "<a & b>");
        description.add_hidden("raw", 7);
        assert_eq!(description.to_text(), "Shape       : (2, 3)\nLonger name : <a & b>");
        assert_eq!(description.to_json().to_string(), r#"{"shape":[2,3],"name":"<a & b>","raw":7}"#);
        assert!(description.to_html().contains("<td>&lt;a &amp; b&gt;</td>"));
    }
}
