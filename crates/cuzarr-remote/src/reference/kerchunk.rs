//! Reads tables of references in kerchunk's JSON format.
//!
//! - Specification: <https://fsspec.github.io/kerchunk/spec.html>, versions 0 and 1.
//! - A value is text, `base64:` and bytes, a JSON document, `[URL]`, or `[URL, offset, size]`.
//! - Names of `templates` in a URL (`{{u}}`) are replaced. Expressions and `gen` are programs in a template language,
//!   and are refused.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use cuzarr::internal::printable;
use cuzarr::{Error, ErrorKind, Result, ResultExt};
use serde_json::{Map, Value};

use super::location::{LONGEST_URL, Location};
use super::table::{Part, Place, Reference, ReferenceTable};

/// Limit for the size of all URLs of a table of references after templates are replaced: this many times the size of
/// the document, plus [`SMALL_BYTES`].
const MOST_GROWTH: usize = 8;
const SMALL_BYTES: usize = 16 << 20;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::MetadataInvalid, message)
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the table has {what}"))
        .with_hint("write the table without them: open it with fsspec's ReferenceFileSystem and save its references")
}

impl ReferenceTable {
    /// Reads kerchunk's JSON format, version 0 or 1.
    ///
    /// # Errors
    /// `MetadataInvalid` with the place in the document; `Unsupported` for templates with expressions and for `gen`.
    pub fn from_json(document: &[u8]) -> Result<ReferenceTable> {
        let most_bytes = document.len().saturating_mul(MOST_GROWTH).saturating_add(SMALL_BYTES);
        let document: Value = serde_json::from_slice(document)
            .map_err(|error| invalid(format!("the table of references is no JSON: {error}")))?;
        let Value::Object(mut document) = document else {
            return Err(invalid("the table of references is no JSON object"));
        };
        let version = document.get("version").and_then(Value::as_f64);
        if !matches!(version, None | Some(0.0 | 1.0)) {
            let message = format!("the table of references has version {}, expected 0 or 1", version.unwrap_or(0.0));
            return Err(Error::new(ErrorKind::UnsupportedFeature, message));
        }
        let is_wrapped = version == Some(1.0) || matches!(document.get("refs"), Some(Value::Object(_)));
        if !is_wrapped {
            return read(document, &mut Templates::default());
        }
        if document.get("gen").and_then(Value::as_array).is_some_and(|made| !made.is_empty()) {
            return Err(unsupported("references made by 'gen'"));
        }
        let mut templates = match document.remove("templates") {
            Some(Value::Object(templates)) => Templates::new(templates, most_bytes)?,
            None | Some(Value::Null) => Templates::default(),
            Some(_) => return Err(invalid("'templates' is no JSON object")),
        };
        match document.remove("refs") {
            Some(Value::Object(refs)) => read(refs, &mut templates),
            _ => Err(invalid("'refs' is no JSON object")),
        }
    }
}

fn read(refs: Map<String, Value>, templates: &mut Templates) -> Result<ReferenceTable> {
    let table = ReferenceTable::new();
    let mut locations = HashMap::new();
    for (key, value) in refs {
        let reference = reference(value, templates, &mut locations).at(|| format!("key '{}'", printable(&key)))?;
        table.insert(&key, reference)?;
    }
    Ok(table)
}

fn reference(
    value: Value,
    templates: &mut Templates,
    locations: &mut HashMap<String, Arc<Location>>,
) -> Result<Reference> {
    let parts = match value {
        Value::String(text) => return Ok(Reference::Inline(inline(text)?.into())),
        Value::Object(_) => return Ok(Reference::Inline(value.to_string().into_bytes().into())),
        Value::Array(parts) => parts,
        other => return Err(invalid(format!("got {other}, expected text or [URL, offset, size]"))),
    };
    let number = |at: usize, name: &str| {
        let value: &Value = &parts[at];
        value.as_u64().ok_or_else(|| invalid(format!("{name} is {value}, expected a whole number of bytes")))
    };
    let (offset, size_bytes) = match parts.len() {
        1 => (0, None),
        3 => (number(1, "offset")?, Some(number(2, "size")?)),
        count => return Err(invalid(format!("got {count} parts, expected [URL] or [URL, offset, size]"))),
    };
    let Value::String(url) = &parts[0] else {
        return Err(invalid(format!("the URL is {}, expected text", parts[0])));
    };
    let location = match locations.get(url) {
        Some(location) => Arc::clone(location),
        None => {
            let location = Arc::new(Location::new(&templates.expand(url)?));
            locations.insert(url.clone(), Arc::clone(&location));
            location
        }
    };
    Part::new(Place::Location(location), offset, size_bytes).map(Reference::Part)
}

fn inline(text: String) -> Result<Vec<u8>> {
    let Some(encoded) = text.strip_prefix("base64:") else { return Ok(text.into_bytes()) };
    let encoded = encoded.trim();
    let decoded = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded));
    decoded.map_err(|error| invalid(format!("the value is no base64: {error}")))
}

/// The templates of a kerchunk document: texts that replace names in its URLs.
#[derive(Default)]
struct Templates {
    texts: HashMap<String, String>,
    /// Number of bytes that the document's further URLs may have in all, after templates are replaced.
    left_bytes: usize,
}

impl Templates {
    fn new(templates: Map<String, Value>, left_bytes: usize) -> Result<Templates> {
        let text = |(name, value): (String, Value)| match value {
            // Text that contains templates would have to be replaced repeatedly.
            Value::String(text) if text.contains("{{") || text.contains("{%") => {
                Err(unsupported(&format!("the template '{}' with an expression", printable(&name))))
            }
            Value::String(text) => Ok((name, text)),
            other => Err(invalid(format!("template '{}' is {other}, expected text", printable(&name)))),
        };
        let texts = templates.into_iter().map(text).collect::<Result<_>>()?;
        Ok(Templates { texts, left_bytes })
    }

    /// Replaces the names of templates in a URL by their texts. A short URL may name a long template many times, so the
    /// length is checked before it grows.
    fn expand(&mut self, url: &str) -> Result<String> {
        if self.texts.is_empty() || !url.contains("{{") {
            return Ok(url.to_string());
        }
        let (mut expanded, mut rest) = (String::new(), url);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, behind) = after.split_once("}}").ok_or_else(|| invalid("a template in the URL has no '}}'"))?;
            let text = self.texts.get(name.trim()).ok_or_else(|| {
                unsupported(&format!("a URL with '{{{{{}}}}}', which is no template's name", printable(name)))
            })?;
            extend(&mut expanded, before)?;
            extend(&mut expanded, text)?;
            rest = behind;
        }
        extend(&mut expanded, rest)?;
        self.left_bytes = self.left_bytes.checked_sub(expanded.len()).ok_or_else(|| {
            let message = format!(
                "its URLs have more than {MOST_GROWTH} times the bytes of the table once their templates are replaced"
            );
            invalid(message)
        })?;
        Ok(expanded)
    }
}

/// Appends text to a URL; an error if it becomes longer than a table of references may name.
fn extend(url: &mut String, text: &str) -> Result<()> {
    if url.len() + text.len() > LONGEST_URL {
        let message = format!("the URL has more than {LONGEST_URL} characters once its templates are replaced");
        return Err(invalid(message));
    }
    url.push_str(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(table: &ReferenceTable, key: &str) -> (String, u64, Option<u64>) {
        match table.entries.get(key).unwrap() {
            Some(Reference::Part(Part { place: Place::Location(location), offset, size_bytes, .. })) => {
                (location.to_string(), offset, size_bytes)
            }
            _ => panic!("{key} is no part"),
        }
    }

    fn text(table: &ReferenceTable, key: &str) -> Vec<u8> {
        match table.entries.get(key).unwrap() {
            Some(Reference::Inline(bytes)) => bytes.to_vec(),
            _ => panic!("{key} is not inline"),
        }
    }

    #[test]
    fn reads_both_versions() {
        let version_1 = br#"{"version": 1, "templates": {"u": "s3://bucket/a"}, "refs": {
            ".zgroup": "{\"zarr_format\": 2}", "a/.zattrs": {"units": "K"}, "a/0": ["{{u}}/x.nc", 10, 20],
            "a/1": ["{{ u }}/x.nc"], "a/2": "base64:AQID", "a/3": "base64:AQI"}}"#;
        let table = ReferenceTable::from_json(version_1).unwrap();
        assert_eq!(table.len(), 6);
        assert_eq!(part(&table, "a/0"), ("s3://bucket/a/x.nc".into(), 10, Some(20)));
        assert_eq!(part(&table, "a/1"), ("s3://bucket/a/x.nc".into(), 0, None));
        assert_eq!(text(&table, "a/2"), [1, 2, 3]);
        assert_eq!(text(&table, "a/3"), [1, 2]);
        assert_eq!(text(&table, "a/.zattrs"), br#"{"units":"K"}"#);
        let version_0 = ReferenceTable::from_json(br#"{"x": ["/data/a", 0, 4], "y": "text"}"#).unwrap();
        assert_eq!(part(&version_0, "x"), ("/data/a".into(), 0, Some(4)));
    }

    #[test]
    fn hostile_tables_are_refused() {
        let kind = |text: &str| ReferenceTable::from_json(text.as_bytes()).map(|_| ()).unwrap_err().kind();
        for (text, expected) in [
            ("", ErrorKind::MetadataInvalid),
            ("[]", ErrorKind::MetadataInvalid),
            (r#"{"version": 2, "refs": {}}"#, ErrorKind::UnsupportedFeature),
            (r#"{"version": 1}"#, ErrorKind::MetadataInvalid),
            (r#"{"version": 1, "refs": {}, "gen": [{"key": "{{i}}"}]}"#, ErrorKind::Unsupported),
            (r#"{"version": 1, "refs": {"a": ["{{f(c=1)}}"]}, "templates": {"f": "x"}}"#, ErrorKind::Unsupported),
            (r#"{"version": 1, "refs": {"a": ["{{f"]}, "templates": {"f": "x"}}"#, ErrorKind::MetadataInvalid),
            (r#"{"version": 1, "refs": {}, "templates": {"a": "{{b}}{{b}}", "b": "{{a}}"}}"#, ErrorKind::Unsupported),
            (r#"{"a": ["s3://b/x", -1, 4]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": ["s3://b/x", 1.5, 4]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": ["s3://b/x", 18446744073709551615, 4]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": ["s3://b/x", 1e30, 4]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": ["s3://b/x", 1]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": [null, 1, 2]}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": 7}"#, ErrorKind::MetadataInvalid),
            (r#"{"a": "base64:%%"}"#, ErrorKind::MetadataInvalid),
            (r#"{"../a": "x"}"#, ErrorKind::KeyInvalid),
            (r#"{"/a": "x"}"#, ErrorKind::KeyInvalid),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
        let bomb = |uses: usize, text: usize, urls: usize| {
            let url = |number| format!(r#""b/{number}": ["{}{number}", 0, 1]"#, "{{t}}".repeat(uses));
            let urls = (0..urls).map(url).collect::<Vec<_>>().join(", ");
            format!(r#"{{"version": 1, "templates": {{"t": "{}"}}, "refs": {{{urls}}}}}"#, "x".repeat(text))
        };
        assert_eq!(kind(&bomb(500, 1_000_000, 1)), ErrorKind::MetadataInvalid, "one URL of 500 MB");
        assert_eq!(kind(&bomb(1, 16_000, 4_000)), ErrorKind::MetadataInvalid, "many URLs of 16 kB");
        assert!(ReferenceTable::from_json(bomb(1, 100, 4_000).as_bytes()).is_ok());
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(kind(&deep), ErrorKind::MetadataInvalid);
    }
}
