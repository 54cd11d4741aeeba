//! JSON as Zarr's writers really write it, kept so that a document can be edited without touching the rest of it.
//!
//! `serde_json::Value` cannot hold what Python's `json` module writes (`NaN`, `Infinity`, integers beyond 64 bits), and
//! it forgets how a number was spelled. This tree keeps number texts as they are. Typed parsing never works on it: it
//! asks for a [`Value`] of the member at hand. Not for large data: every number is a string.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde_json::{Map, Number, Value};

use crate::{Error, ErrorKind, Result};

/// The most nesting of arrays and objects. Deeper documents are refused, so that recursion stays bounded.
const MAX_DEPTH: usize = 128;

/// The members of an object, in their author's order.
pub type Object = IndexMap<String, Json>;

/// One JSON value, numbers as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// The number's text, or `NaN`, `Infinity`, `-Infinity`.
    Number(String),
    /// A string, without its escapes.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object. Of members with equal names the last counts, as in Python.
    Object(Object),
}

impl Json {
    /// Parses one document.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Json> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|error| not_json(error.valid_up_to(), "bytes that are not UTF-8", "UTF-8 text"))?;
        let mut parser = Parser { text, at: 0, members: Vec::new(), elements: Vec::new() };
        let value = parser.value(0)?;
        parser.skip_space();
        match parser.peek() {
            None => Ok(value),
            Some(_) => Err(parser.unexpected("the end of the document")),
        }
    }

    /// Parses one document that must be an object.
    pub(crate) fn parse_object(bytes: &[u8]) -> Result<Object> {
        match Json::parse(bytes)? {
            Json::Object(members) => Ok(members),
            other => Err(Error::new(
                ErrorKind::MetadataInvalid,
                format!("document: got {}, expected an object", abbreviate(&other.to_value())),
            )),
        }
    }

    /// The plain value. Numbers beyond `i64` and `u64` become floats; those that no finite float can stand for become the
    /// strings `"NaN"`, `"Infinity"` and `"-Infinity"`, as fill values spell them.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(text) => number_value(text),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(elements) => Value::Array(elements.iter().map(Json::to_value).collect()),
            Json::Object(members) => Value::Object(object_to_map(members)),
        }
    }

    /// The tree of a plain value.
    pub(crate) fn from_value(value: &Value) -> Result<Json> {
        from_value_at(value, 0)
    }

    /// The text; see [`object_to_text`].
    #[cfg(test)]
    pub(crate) fn to_text(&self, indent: Option<usize>) -> String {
        let mut out = String::new();
        write_value(&mut out, self, indent, 0);
        out
    }
}

/// The text of an object, as Python's `json.dumps(…, indent=indent)` lays it out; without `indent` on one line.
pub(crate) fn object_to_text(members: &Object, indent: Option<usize>) -> String {
    let mut out = String::new();
    write_object(&mut out, members, indent, 0);
    out
}

/// The plain members of an object.
pub(crate) fn object_to_map(members: &Object) -> Map<String, Value> {
    members.iter().map(|(name, value)| (name.clone(), value.to_value())).collect()
}

/// The tree of plain members.
pub(crate) fn object_from_map(map: &Map<String, Value>) -> Result<Object> {
    map.iter().map(|(name, value)| Ok((name.clone(), from_value_at(value, 1)?))).collect()
}

/// A value for an error message: at most about 80 characters of it.
pub(crate) fn abbreviate(value: &Value) -> String {
    const LIMIT: usize = 80;
    match value {
        // Large containers are not printed only to be cut off.
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
    // Rust reads `NaN` and `Infinity` as well, and what is too large as infinity, which is what Python does.
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

fn write_value(out: &mut String, value: &Json, indent: Option<usize>, level: usize) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(text) => out.push_str(text),
        Json::String(text) => write_string(out, text),
        Json::Array(elements) => {
            let items = elements.iter().map(|element| (None, element));
            write_items(out, ['[', ']'], items, indent, level);
        }
        Json::Object(members) => write_object(out, members, indent, level),
    }
}

fn write_object(out: &mut String, members: &Object, indent: Option<usize>, level: usize) {
    let items = members.iter().map(|(name, member)| (Some(name.as_str()), member));
    write_items(out, ['{', '}'], items, indent, level);
}

fn write_items<'a>(
    out: &mut String,
    brackets: [char; 2],
    items: impl ExactSizeIterator<Item = (Option<&'a str>, &'a Json)>,
    indent: Option<usize>,
    level: usize,
) {
    let new_line = |out: &mut String, level: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * level));
        }
    };
    let empty = items.len() == 0;
    out.push(brackets[0]);
    for (index, (name, value)) in items.enumerate() {
        if index > 0 {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        new_line(out, level + 1);
        if let Some(name) = name {
            write_string(out, name);
            out.push_str(": ");
        }
        write_value(out, value, indent, level + 1);
    }
    if !empty {
        new_line(out, level);
    }
    out.push(brackets[1]);
}

/// Only ASCII, as Python does, so that a document of zarr-python comes back byte for byte.
fn write_string(out: &mut String, text: &str) {
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

fn not_json(at: usize, got: &str, expected: &str) -> Error {
    Error::new(ErrorKind::MetadataInvalid, format!("not JSON at byte {at}: got {got}, expected {expected}"))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The members that were parsed of objects that are still open. An object is made of its members at its end, in its final
    /// size: growing many small objects takes most of the time of a large document.
    members: Vec<(String, Json)>,
    /// The elements that were parsed of arrays that are still open.
    elements: Vec<Json>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !is_skipped(*byte)).unwrap_or(rest.len());
    }

    fn skip_space(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    fn unexpected(&self, expected: &str) -> Error {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(character) => not_json(self.at, &format!("{character:?}"), expected),
            None => not_json(self.at, "the end of the document", expected),
        }
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > MAX_DEPTH {
            return Err(not_json(self.at, &format!("more than {MAX_DEPTH} nested arrays and objects"), "fewer"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.eat("true") => Ok(Json::Bool(true)),
            _ if self.eat("false") => Ok(Json::Bool(false)),
            _ if self.eat("null") => Ok(Json::Null),
            _ if self.eat("NaN") => Ok(Json::Number("NaN".into())),
            _ if self.eat("Infinity") => Ok(Json::Number("Infinity".into())),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        self.skip_space();
        if self.eat("}") {
            return Ok(Json::Object(Object::new()));
        }
        let first = self.members.len();
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member's name in double quotes"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.eat(":") {
                return Err(self.unexpected("':'"));
            }
            let member = self.value(depth + 1)?;
            self.members.push((name, member));
            self.skip_space();
            if self.eat("}") {
                return Ok(Json::Object(self.members.drain(first..).collect()));
            }
            if !self.eat(",") {
                return Err(self.unexpected("',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        self.skip_space();
        if self.eat("]") {
            return Ok(Json::Array(Vec::new()));
        }
        let first = self.elements.len();
        loop {
            let element = self.value(depth + 1)?;
            self.elements.push(element);
            self.skip_space();
            if self.eat("]") {
                return Ok(Json::Array(self.elements.drain(first..).collect()));
            }
            if !self.eat(",") {
                return Err(self.unexpected("',' or ']'"));
            }
        }
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_digit());
        if self.at == start { Err(self.unexpected("a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Json> {
        let start = self.at;
        let negative = self.eat("-");
        if negative && self.eat("Infinity") {
            return Ok(Json::Number("-Infinity".into()));
        }
        if !self.eat("0") {
            self.digits()?;
        }
        if self.eat(".") {
            self.digits()?;
        }
        if self.eat("e") || self.eat("E") {
            if !self.eat("+") {
                self.eat("-");
            }
            self.digits()?;
        }
        Ok(Json::Number(self.text[start..self.at].to_owned()))
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            self.skip_while(|byte| byte != b'"' && byte != b'\\' && byte >= b' ');
            // Both ends lie beside ASCII bytes, so they are character boundaries.
            out.push_str(&self.text[start..self.at]);
            if self.eat("\"") {
                return Ok(out);
            }
            if !self.eat("\\") {
                return Err(self.unexpected("a character of a string, control characters escaped"));
            }
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(byte) = self.peek() else {
            return Err(self.unexpected("an escape"));
        };
        let character = match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.unexpected("one of \"\\/bfnrtu after a backslash")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let start = self.at;
        let high = self.four_hex_digits()?;
        let code = match high {
            0xd800..=0xdbff => {
                let low = if self.eat("\\u") { self.four_hex_digits()? } else { 0 };
                if !(0xdc00..=0xdfff).contains(&low) {
                    return Err(not_json(start, "half of a surrogate pair", "both halves"));
                }
                0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| not_json(start, "half of a surrogate pair", "both halves"))
    }

    fn four_hex_digits(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| (byte as char).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(code)
    }
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
