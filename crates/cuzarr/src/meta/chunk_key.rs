//! The encoding of chunk keys: how a chunk's place in the grid becomes a key below the array's path, and back.

use serde_json::{Value, json};

use super::extension::Extension;
use super::invalid;
use crate::{Error, ErrorKind, Result};

/// The character between the numbers in a chunk's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Separator {
    /// A dot: `.`
    Dot,
    /// A slash: `/`
    Slash,
}

impl Separator {
    /// The separator as text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Separator::Dot => ".",
            Separator::Slash => "/",
        }
    }

    /// Reads a separator from JSON; errors name `member`.
    pub(crate) fn from_json(value: &Value, member: &str) -> Result<Self> {
        match value.as_str() {
            Some(".") => Ok(Separator::Dot),
            Some("/") => Ok(Separator::Slash),
            _ => Err(invalid(member, value, "\".\" or \"/\"")),
        }
    }
}

/// How the key of a chunk is made from its position in the chunk grid.
///
/// ```
/// use cuzarr::meta::{ChunkKeyEncoding, Separator};
/// let default = ChunkKeyEncoding::Default { separator: Separator::Slash };
/// assert_eq!(default.key(&[1, 23]), "c/1/23");
/// assert_eq!(default.key(&[]), "c");
/// let v2 = ChunkKeyEncoding::V2 { separator: Separator::Dot };
/// assert_eq!(v2.key(&[1, 23]), "1.23");
/// assert_eq!(v2.key(&[]), "0");
/// assert_eq!(v2.parse_key("1.23", 2), Some(vec![1, 23]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkKeyEncoding {
    /// Keys such as `c/0/1`: the letter `c`, then the coordinates of the chunk in the grid.
    Default {
        /// The character between the numbers of a key: `/` by default.
        separator: Separator,
    },
    /// Keys such as `0.1`: only the coordinates of the chunk in the grid.
    V2 {
        /// The character between the numbers of a key: `.` by default.
        separator: Separator,
    },
}

impl ChunkKeyEncoding {
    /// The key under which a chunk is stored, below the array's path.
    pub fn key(&self, chunk: &[u64]) -> String {
        let (mut key, separator) = match self {
            ChunkKeyEncoding::Default { separator } => (String::from("c"), separator.as_str()),
            ChunkKeyEncoding::V2 { .. } if chunk.is_empty() => return String::from("0"),
            ChunkKeyEncoding::V2 { separator } => (String::new(), separator.as_str()),
        };
        for at in chunk {
            if !key.is_empty() {
                key.push_str(separator);
            }
            key.push_str(&at.to_string());
        }
        key
    }

    /// Parses the key of a chunk of an array with `ndim` dimensions. Returns the chunk's place in the grid; `None` if
    /// this is not a chunk key.
    pub fn parse_key(&self, key: &str, ndim: usize) -> Option<Vec<u64>> {
        let (numbers, separator) = match self {
            ChunkKeyEncoding::Default { separator } => {
                let rest = key.strip_prefix('c')?;
                if ndim == 0 {
                    return rest.is_empty().then(Vec::new);
                }
                (rest.strip_prefix(separator.as_str())?, separator)
            }
            ChunkKeyEncoding::V2 { .. } if ndim == 0 => return (key == "0").then(Vec::new),
            ChunkKeyEncoding::V2 { separator } => (key, separator),
        };
        let chunk = numbers.split(separator.as_str()).map(parse_number).collect::<Option<Vec<u64>>>()?;
        (chunk.len() == ndim).then_some(chunk)
    }

    /// Parses the `chunk_key_encoding` member of a v3 document.
    pub fn from_json(value: &Value) -> Result<Self> {
        const MEMBER: &str = "chunk_key_encoding";
        let mut extension = match value {
            // The draft specification had the separator beside the name.
            Value::Object(members) if members.contains_key("separator") && !members.contains_key("configuration") => {
                let mut members = members.clone();
                let separator = members.shift_remove("separator");
                let mut extension = Extension::from_json(&Value::Object(members), MEMBER)?;
                extension.configuration.extend(separator.map(|separator| ("separator".to_owned(), separator)));
                extension
            }
            _ => Extension::from_json(value, MEMBER)?,
        };
        if !["default", "v2"].contains(&extension.name.as_str()) {
            return Err(Error::new(
                ErrorKind::UnsupportedFeature,
                format!("member '{MEMBER}': got '{}', expected 'default' or 'v2'", extension.name),
            ));
        }
        extension.check_members(MEMBER, &["separator"])?;
        let separator = match extension.configuration.shift_remove("separator") {
            Some(value) => Some(Separator::from_json(&value, "chunk_key_encoding.configuration.separator")?),
            None => None,
        };
        Ok(match extension.name.as_str() {
            "v2" => ChunkKeyEncoding::V2 { separator: separator.unwrap_or(Separator::Dot) },
            _ => ChunkKeyEncoding::Default { separator: separator.unwrap_or(Separator::Slash) },
        })
    }

    /// Writes the `chunk_key_encoding` member of a v3 document.
    pub fn to_json(&self) -> Value {
        let (name, separator) = match self {
            ChunkKeyEncoding::Default { separator } => ("default", separator),
            ChunkKeyEncoding::V2 { separator } => ("v2", separator),
        };
        json!({"name": name, "configuration": {"separator": separator.as_str()}})
    }

    /// The character between the numbers in the keys of chunks.
    pub fn separator(&self) -> Separator {
        match self {
            ChunkKeyEncoding::Default { separator } | ChunkKeyEncoding::V2 { separator } => *separator,
        }
    }
}

/// Parses a number as [`ChunkKeyEncoding::key`] writes it: without a sign, and without leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let canonical = text == "0" || text.as_bytes().first().is_some_and(|byte| (b'1'..=b'9').contains(byte));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ChunkKeyEncoding; 4] = [
        ChunkKeyEncoding::Default { separator: Separator::Slash },
        ChunkKeyEncoding::Default { separator: Separator::Dot },
        ChunkKeyEncoding::V2 { separator: Separator::Slash },
        ChunkKeyEncoding::V2 { separator: Separator::Dot },
    ];

    #[test]
    fn keys_come_back() {
        for encoding in ALL {
            for chunk in [vec![], vec![0], vec![7], vec![0, 10, u64::MAX]] {
                let key = encoding.key(&chunk);
                assert_eq!(encoding.parse_key(&key, chunk.len()), Some(chunk.clone()), "{key}");
                assert_eq!(encoding.parse_key(&key, chunk.len() + 2), None, "{key}");
            }
            assert_eq!(ChunkKeyEncoding::from_json(&encoding.to_json()).unwrap(), encoding);
        }
    }

    #[test]
    fn keys_of_others_are_no_chunks() {
        for encoding in ALL {
            let separator = encoding.separator().as_str();
            let prefix = if matches!(encoding, ChunkKeyEncoding::Default { .. }) {
                ["c", separator].concat()
            } else {
                String::new()
            };
            for number in ["", "01", "+1", "-1", "x", "18446744073709551616", "1 ", "٣"] {
                assert_eq!(encoding.parse_key(&format!("{prefix}{number}"), 1), None, "{number}");
            }
            assert_eq!(encoding.parse_key("zarr.json", 1), None);
            assert_eq!(encoding.parse_key(".zarray", 2), None);
        }
    }

    #[test]
    fn separators_default_by_name_and_may_stand_beside_it() {
        let parse = |value: Value| ChunkKeyEncoding::from_json(&value);
        assert_eq!(parse(json!("default")).unwrap(), ALL[0]);
        assert_eq!(parse(json!({"name": "v2"})).unwrap(), ALL[3]);
        assert_eq!(parse(json!({"name": "default", "separator": "."})).unwrap(), ALL[1]);
        assert_eq!(parse(json!({"name": "v2", "configuration": {"separator": "/"}})).unwrap(), ALL[2]);
    }

    #[test]
    fn other_encodings_and_separators_are_refused() {
        let error = ChunkKeyEncoding::from_json(&json!({"name": "default_suffix"})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
        assert!(error.message().contains("'default_suffix'"), "{error}");
        for value in [
            json!({"name": "v2", "configuration": {"separator": "-"}}),
            json!({"name": "v2", "configuration": {"prefix": "c"}}),
            json!(3),
        ] {
            assert_eq!(ChunkKeyEncoding::from_json(&value).unwrap_err().kind(), ErrorKind::MetadataInvalid);
        }
    }
}
