//! Reads and writes JSON as Zarr's writers really write it, with NaN and with the spelling of numbers. A document can
//! be edited without changing the rest of it.
//!
//! `serde_json::Value` cannot hold everything that Python's `json` module writes (`NaN`, `Infinity`, integers beyond 64
//! bits), and it forgets how a number was spelled. This tree keeps the text of numbers. Typed parsing does not use the
//! tree, but [`Value`]s that are made from it. The tree is not for large data, because every number is a string.

mod parser;
mod text;

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde_json::{Map, Number, Value};

pub(crate) use parser::{Parser, read_document, text_of};
pub(crate) use text::{Text, parse_object_apart};

use crate::{Error, ErrorKind, Result};

/// Maximum nesting depth of arrays and objects in a JSON document; deeper documents are refused, so that recursion
/// stays bounded.
const MAX_DEPTH: usize = 128;

/// The members of an object, in the order of the document.
pub type Object = IndexMap<String, Json>;

/// A JSON value that keeps the spelling of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// The JSON value `null`.
    Null,
    /// The JSON value `true` or `false`.
    Bool(bool),
    /// The text of a number, or `NaN`, `Infinity`, `-Infinity`.
    Number(String),
    /// A JSON string, with its escapes decoded.
    String(String),
    /// A JSON array, as a list of its elements.
    Array(Vec<Json>),
    /// A JSON object, as a map of its members in order. If members have equal names, the last one counts, as in Python.
    Object(Object),
}

impl Json {
    /// Parses a document into a JSON value.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Json> {
        read_document(text_of(bytes)?, Parser::value)
    }

    /// Parses a document that must be a JSON object.
    pub(crate) fn parse_object(bytes: &[u8]) -> Result<Object> {
        match Json::parse(bytes)? {
            Json::Object(members) => Ok(members),
            other => Err(not_an_object(&other)),
        }
    }

    /// Converts this value to serde_json's type, which does not keep the spelling of numbers. Numbers that fit neither
    /// `i64` nor `u64` become floats. Those beyond the range of finite floats, and NaN, become the strings `"NaN"`,
    /// `"Infinity"` and `"-Infinity"`, as in fill values.
    pub fn to_value(&self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(text) => number_value(text),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(elements) => Value::Array(elements.iter().map(Json::to_value).collect()),
            Json::Object(members) => Value::Object(object_to_map(members)),
        }
    }

    /// Converts serde_json's value to one that keeps the spelling of numbers.
    ///
    /// # Errors
    /// `MetadataInvalid` for arrays and objects that are nested more than 128 deep.
    pub fn from_value(value: &Value) -> Result<Json> {
        from_value_at(value, 0)
    }

    /// The value as JSON text; see [`object_to_text`].
    #[cfg(test)]
    pub(crate) fn to_text(&self, indent: Option<usize>) -> String {
        let mut out = String::new();
        write_part(&mut out, Part::Tree(self), indent.map(|width| " ".repeat(width)).as_deref(), 0);
        out
    }
}

/// The text of an object, with the layout of Python's `json.dumps(…, indent=indent)`; on one line without `indent`.
pub(crate) fn object_to_text(members: &Object, indent: Option<usize>) -> String {
    members_to_text(members.iter().map(|(name, member)| (name.as_str(), Part::Tree(member))), indent)
}

/// Like [`object_to_text`], for members of which some may already be text.
pub(crate) fn members_to_text<'a>(
    members: impl ExactSizeIterator<Item = (&'a str, Part<'a>)>,
    indent: Option<usize>,
) -> String {
    let mut out = String::new();
    let unit = indent.map(|width| " ".repeat(width));
    write_members(&mut out, members, unit.as_deref(), 0);
    out
}

/// The value of a member that is written, in one of several forms.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// A parsed JSON value.
    Tree(&'a Json),
    /// A JSON object, given by its members.
    Object(&'a Object),
    /// JSON text, which is written as it is.
    Text(&'a str),
}

/// Writes a JSON object at nesting depth `level` of its document. `unit` is the white space of one level; without it,
/// everything is on one line.
pub(crate) fn write_members<'a>(
    out: &mut String,
    members: impl ExactSizeIterator<Item = (&'a str, Part<'a>)>,
    unit: Option<&str>,
    level: usize,
) {
    write_items(out, ['{', '}'], members.map(|(name, part)| (Some(name), part)), unit, level);
}

/// Writes a newline and the white space that indents `level` levels. Writes nothing without a `unit`.
pub(crate) fn write_new_line(out: &mut String, unit: Option<&str>, level: usize) {
    if let Some(unit) = unit {
        out.push('\n');
        out.extend(std::iter::repeat_n(unit, level));
    }
}

/// Converts the members of an object to serde_json's values.
pub(crate) fn object_to_map(members: &Object) -> Map<String, Value> {
    members.iter().map(|(name, value)| (name.clone(), value.to_value())).collect()
}

/// Converts serde_json's members to values that keep the spelling of numbers.
pub(crate) fn object_from_map(map: &Map<String, Value>) -> Result<Object> {
    map.iter().map(|(name, value)| Ok((name.clone(), from_value_at(value, 1)?))).collect()
}

pub(crate) fn not_an_object(got: &Json) -> Error {
    let message = format!("document: got {}, expected an object", abbreviate(&got.to_value()));
    Error::new(ErrorKind::MetadataInvalid, message)
}

/// Shortens a value for an error message, to at most about 80 characters.
pub(crate) fn abbreviate(value: &Value) -> String {
    const LIMIT: usize = 80;
    match value {
        // Large containers are not printed, because most of the text would be cut off.
        Value::Array(elements) if elements.len() > LIMIT => format!("an array of {} elements", elements.len()),
        Value::Object(members) if members.len() > LIMIT => format!("an object of {} members", members.len()),
        _ => {
            let text = value.to_string();
            match text.char_indices().nth(LIMIT) {
                None => text,
                Some((end, _)) => format!("{}…", &text[..end]),
            }
        }
    }
}

fn from_value_at(value: &Value, depth: usize) -> Result<Json> {
    if depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::MetadataInvalid,
            format!("JSON value: got more than {MAX_DEPTH} nested arrays and objects, expected fewer"),
        ));
    }
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Number(number.to_string()),
        Value::String(text) => Json::String(text.clone()),
        Value::Array(elements) => {
            Json::Array(elements.iter().map(|element| from_value_at(element, depth + 1)).collect::<Result<_>>()?)
        }
        Value::Object(members) => Json::Object(
            members
                .iter()
                .map(|(name, member)| Ok((name.clone(), from_value_at(member, depth + 1)?)))
                .collect::<Result<_>>()?,
        ),
    })
}

fn number_value(text: &str) -> Value {
    if let Ok(value) = text.parse::<u64>() {
        return Value::from(value);
    }
    if let Ok(value) = text.parse::<i64>() {
        return Value::from(value);
    }
    // Like Python, Rust parses `NaN` and `Infinity`, and turns numbers that are too large into infinity.
    match text.parse::<f64>() {
        Ok(value) => match Number::from_f64(value) {
            Some(number) => Value::Number(number),
            None if value.is_nan() => Value::from("NaN"),
            None if value > 0.0 => Value::from("Infinity"),
            None => Value::from("-Infinity"),
        },
        Err(_) => Value::String(text.to_owned()),
    }
}

/// Writes a member's value at nesting depth `level` of its document; see [`write_members`].
pub(crate) fn write_part(out: &mut String, part: Part<'_>, unit: Option<&str>, level: usize) {
    match part {
        Part::Text(text) => out.push_str(text),
        Part::Object(members) | Part::Tree(Json::Object(members)) => {
            let members = members.iter().map(|(name, member)| (name.as_str(), Part::Tree(member)));
            write_members(out, members, unit, level);
        }
        Part::Tree(Json::Array(elements)) => {
            let items = elements.iter().map(|element| (None, Part::Tree(element)));
            write_items(out, ['[', ']'], items, unit, level);
        }
        Part::Tree(Json::Null) => out.push_str("null"),
        Part::Tree(Json::Bool(value)) => out.push_str(if *value { "true" } else { "false" }),
        Part::Tree(Json::Number(text)) => out.push_str(text),
        Part::Tree(Json::String(text)) => write_string(out, text),
    }
}

fn write_items<'a>(
    out: &mut String,
    brackets: [char; 2],
    items: impl ExactSizeIterator<Item = (Option<&'a str>, Part<'a>)>,
    unit: Option<&str>,
    level: usize,
) {
    let empty = items.len() == 0;
    out.push(brackets[0]);
    for (index, (name, part)) in items.enumerate() {
        if index > 0 {
            out.push_str(if unit.is_some() { "," } else { ", " });
        }
        write_new_line(out, unit, level + 1);
        if let Some(name) = name {
            write_string(out, name);
            out.push_str(": ");
        }
        write_part(out, part, unit, level + 1);
    }
    if !empty {
        write_new_line(out, unit, level);
    }
    out.push(brackets[1]);
}

/// Writes a JSON string in ASCII only, as Python does. So a document of zarr-python is reproduced byte for byte.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json> {
        Json::parse(text.as_bytes())
    }

    #[test]
    fn numbers_keep_their_spelling() {
        let text = r#"{"a": [1.50, -0, 1e+05, 123456789012345678901234567890], "n": NaN, "i": -Infinity}"#;
        assert_eq!(parse(text).unwrap().to_text(None), text);
    }

    #[test]
    fn layout_is_that_of_python() {
        let text = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
        assert_eq!(parse(text).unwrap().to_text(Some(2)), text);
    }

    #[test]
    fn strings_survive_escapes_and_surrogate_pairs() {
        let parsed = parse(r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000é""#).unwrap();
        let expected = "a\"\\/\u{8}\u{c}\n\r\té😀\0é";
        assert_eq!(parsed, Json::String(expected.into()));
        let written = r#""a\"\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000\u00e9""#;
        assert_eq!(parsed.to_text(None), written);
        assert_eq!(parse(written).unwrap(), parsed);
    }

    #[test]
    fn last_of_equal_names_counts() {
        assert_eq!(parse(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap().to_text(None), r#"{"a": 3, "b": 2}"#);
    }

    #[test]
    fn broken_documents_name_the_byte() {
        for (text, message) in [
            ("", "not JSON at byte 0: got the end of the document, expected a value"),
            ("[1 2]", "not JSON at byte 3: got '2', expected ',' or ']'"),
            ("{\"a\"}", "not JSON at byte 4: got '}', expected ':'"),
            ("{é}", "not JSON at byte 1: got 'é', expected a member's name in double quotes"),
            ("01", "not JSON at byte 1: got '1', expected the end of the document"),
            ("-", "not JSON at byte 1: got the end of the document, expected a digit"),
            ("\"\\ud800\"", "not JSON at byte 3: got half of a surrogate pair, expected both halves"),
            ("\"\\udc00\"", "not JSON at byte 3: got half of a surrogate pair, expected both halves"),
            ("\"\\", "not JSON at byte 2: got the end of the document, expected an escape"),
        ] {
            assert_eq!(parse(text).unwrap_err().message(), message, "{text}");
        }
        assert!(Json::parse(b"\"\xff\"").unwrap_err().message().contains("UTF-8"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&deep(MAX_DEPTH)).is_ok());
        assert!(parse(&deep(100_000)).unwrap_err().message().contains("nested"));
    }

    #[test]
    fn plain_values_hold_what_they_can() {
        let value =
            parse("[18446744073709551615, -9223372036854775808, 18446744073709551616, NaN, 1e999, -1e999, 1.0]");
        let expected =
            serde_json::json!([u64::MAX, i64::MIN, 18446744073709551616.0, "NaN", "Infinity", "-Infinity", 1.0]);
        assert_eq!(value.unwrap().to_value(), expected);
    }
}
