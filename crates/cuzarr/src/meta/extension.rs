//! A named extension of a v3 document: a codec, a chunk grid, a chunk key encoding, a storage transformer.

use serde_json::{Map, Value};

use super::invalid;
use crate::Result;

/// An extension point's value in v3 metadata, such as a codec: its name and its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Extension {
    /// The registered name, such as `gzip`.
    pub name: String,
    /// The configuration of the extension; empty if the document has none.
    pub configuration: Map<String, Value>,
    /// `false` if a reader that does not know the extension may ignore it. A codec can never be ignored.
    pub must_understand: bool,
}

impl Extension {
    /// Makes an extension that readers must understand.
    pub fn new(name: impl Into<String>, configuration: Map<String, Value>) -> Self {
        Extension { name: name.into(), configuration, must_understand: true }
    }

    /// Parses an extension from JSON: an object with `name`, `configuration` and `must_understand`, or only the name as
    /// a string. `member` is the place that errors name.
    pub fn from_json(value: &Value, member: &str) -> Result<Self> {
        let expected = "a name, or an object with name, configuration and must_understand";
        let members = match value {
            Value::String(name) => return Ok(Extension::new(name, Map::new())),
            Value::Object(members) => members,
            _ => return Err(invalid(member, value, expected)),
        };
        let mut extension = Extension::new("", Map::new());
        let mut named = false;
        for (key, inner) in members {
            match (key.as_str(), inner) {
                ("name", Value::String(name)) => {
                    extension.name.clone_from(name);
                    named = true;
                }
                ("configuration", Value::Object(configuration)) => extension.configuration.clone_from(configuration),
                ("must_understand", Value::Bool(must_understand)) => extension.must_understand = *must_understand,
                _ => return Err(invalid(&format!("{member}.{key}"), inner, expected)),
            }
        }
        if named { Ok(extension) } else { Err(invalid(member, value, expected)) }
    }

    /// The extension as JSON: `name`, `configuration` unless it is empty, and `must_understand` if it is `false`.
    /// Codecs of numcodecs keep an empty configuration, because zarr-python requires it. The `vlen-` codecs keep it
    /// too, as in zarr-python.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("name".into(), self.name.clone().into());
        let keeps_empty = ["numcodecs.", "vlen-"].iter().any(|start| self.name.starts_with(start));
        if keeps_empty || !self.configuration.is_empty() {
            members.insert("configuration".into(), self.configuration.clone().into());
        }
        if !self.must_understand {
            members.insert("must_understand".into(), false.into());
        }
        Value::Object(members)
    }

    /// The shape of the chunks inside a shard, if `codecs` make shards.
    pub(crate) fn inner_chunk_shape(codecs: &[Extension]) -> Option<Vec<u64>> {
        let sharding = codecs.iter().find(|codec| codec.name == "sharding_indexed")?;
        super::parse_shape(sharding.configuration.get("chunk_shape")?, "chunk_shape").ok()
    }

    /// Refuses members of the configuration that are not in `allowed`.
    pub(crate) fn check_members(&self, member: &str, allowed: &[&str]) -> Result<()> {
        for (key, value) in &self.configuration {
            if !allowed.contains(&key.as_str()) {
                let place = format!("{member}.configuration.{key}");
                return Err(invalid(&place, value, &format!("only {}", allowed.join(", "))));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_names_and_objects() {
        let parse = |value: Value| Extension::from_json(&value, "codecs[0]");
        assert_eq!(parse(json!("crc32c")).unwrap(), Extension::new("crc32c", Map::new()));
        let full = json!({"name": "zstd", "configuration": {"level": 3}, "must_understand": false});
        let extension = parse(full.clone()).unwrap();
        assert!(!extension.must_understand);
        assert_eq!(extension.configuration["level"], 3);
        assert_eq!(extension.to_json(), full);
        // zarr-python requires the configuration, even if it is empty.
        let empty = json!({"name": "numcodecs.adler32", "configuration": {}});
        assert_eq!(parse(empty.clone()).unwrap().to_json(), empty);
        assert_eq!(parse(json!({"name": "crc32c", "configuration": {}})).unwrap().to_json(), json!({"name": "crc32c"}));
    }

    #[test]
    fn refuses_other_shapes_naming_the_member() {
        for (value, place) in [
            (json!(3), "member 'codecs[0]'"),
            (json!({}), "member 'codecs[0]'"),
            (json!({"name": 3}), "member 'codecs[0].name'"),
            (json!({"name": "a", "configuration": null}), "member 'codecs[0].configuration'"),
            (json!({"name": "a", "id": "b"}), "member 'codecs[0].id'"),
        ] {
            let error = Extension::from_json(&value, "codecs[0]").unwrap_err();
            assert!(error.message().starts_with(place), "{error}");
        }
    }
}
