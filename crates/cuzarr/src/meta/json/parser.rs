//! A parser of JSON text. It reads values as trees, or objects member by member, without trees of unwanted values.

use std::borrow::Cow;
use std::ops::Range;

use super::{Json, MAX_DEPTH};
use crate::{Error, ErrorKind, Result};

/// The bytes of a document as text, without a byte order mark.
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| not_json(error.valid_up_to(), "bytes that are not UTF-8", "UTF-8 text"))
}

/// Reads the only value of a document with `read`. Nothing may follow the value.
pub(crate) fn read_document<'a, T>(text: &'a str, read: impl FnOnce(&mut Parser<'a>) -> Result<T>) -> Result<T> {
    let mut parser = Parser::at(text, 0);
    let value = read(&mut parser)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.unexpected("the end of the document")),
    }
}

fn not_json(at: usize, got: &str, expected: &str) -> Error {
    Error::new(ErrorKind::MetadataInvalid, format!("not JSON at byte {at}: got {got}, expected {expected}"))
}

/// A 64-bit number whose eight bytes are all 1, by which a byte value is repeated to compare eight characters at once.
const EACH: u64 = u64::MAX / 0xff;

/// A parser of JSON text at one position in it. It advances past each value that is read or skipped.
pub(crate) struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Number of arrays and objects that the position is inside of.
    depth: usize,
    /// The parsed members of the objects that the position is inside of. An object is made when it ends, in its final
    /// size: growing many small objects would take most of the time for a large document.
    members: Vec<(String, Json)>,
    /// The parsed elements of the arrays that the position is inside of.
    elements: Vec<Json>,
}

impl<'a> Parser<'a> {
    /// Makes a parser that begins at byte `at` of the text.
    pub(super) fn at(text: &'a str, at: usize) -> Parser<'a> {
        Parser { text, at, depth: 0, members: Vec::new(), elements: Vec::new() }
    }

    /// Reads the next value, with everything inside it.
    pub(crate) fn value(&mut self) -> Result<Json> {
        match self.begin()? {
            Some(b'{') => {
                let first = self.members.len();
                self.each_member(&mut |parser, _, name| {
                    let member = parser.value()?;
                    parser.members.push((name.into_owned(), member));
                    Ok(())
                })?;
                Ok(Json::Object(self.members.drain(first..).collect()))
            }
            Some(b'[') => {
                let first = self.elements.len();
                self.each_element(&mut |parser| {
                    let element = parser.value()?;
                    parser.elements.push(element);
                    Ok(())
                })?;
                Ok(Json::Array(self.elements.drain(first..).collect()))
            }
            Some(b'"') => Ok(Json::String(self.string()?.into_owned())),
            Some(b'-' | b'0'..=b'9') => {
                let start = self.at;
                self.number()?;
                Ok(Json::Number(self.text[start..self.at].to_owned()))
            }
            _ => self.word(),
        }
    }

    /// Skips the next value, and returns its range in the text. Text that cannot be parsed as a tree is an error.
    pub(crate) fn pass(&mut self) -> Result<Range<usize>> {
        let first = self.begin()?;
        let start = self.at;
        match first {
            Some(b'{') => self.each_member(&mut |parser, _, _| parser.pass().map(drop))?,
            Some(b'[') => self.each_element(&mut |parser| parser.pass().map(drop))?,
            Some(b'"') => drop(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => drop(self.word()?),
        }
        Ok(start..self.at)
    }

    /// Reads the next value if it is an object, and returns its range. Calls `member` with the offset and the name of
    /// each member. That call must read or skip the member's value. If the next value is not an object, returns `None`
    /// and does not advance.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, usize, Cow<'a, str>) -> Result<()>,
    ) -> Result<Option<Range<usize>>> {
        if self.begin()? != Some(b'{') {
            return Ok(None);
        }
        let start = self.at;
        self.each_member(&mut member)?;
        Ok(Some(start..self.at))
    }

    /// Advances to the next value, and returns its first byte.
    fn begin(&mut self) -> Result<Option<u8>> {
        if self.depth > MAX_DEPTH {
            return Err(not_json(self.at, &format!("more than {MAX_DEPTH} nested arrays and objects"), "fewer"));
        }
        self.skip_space();
        Ok(self.peek())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !is_skipped(*byte)).unwrap_or(rest.len());
    }

    /// The next eight bytes as a little-endian number; `None` if fewer remain.
    fn word_at(&self) -> Option<u64> {
        let bytes = self.text.as_bytes().get(self.at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Skips white space. Most documents are indented, so runs of spaces after newlines are common.
    fn skip_space(&mut self) {
        loop {
            match self.peek() {
                Some(b'\n' | b'\r' | b'\t' | b' ') => self.at += 1,
                _ => return,
            }
            while let Some(word) = self.word_at() {
                let spaces = (word ^ (EACH * b' ' as u64)).trailing_zeros() as usize / 8;
                self.at += spaces;
                if spaces < 8 {
                    break;
                }
            }
        }
    }

    /// Advances to the next byte of a string that needs attention: a quote, a backslash or a control character.
    fn skip_plain(&mut self) {
        while let Some(word) = self.word_at() {
            let zero = |word: u64| word.wrapping_sub(EACH) & !word;
            let ends = zero(word ^ (EACH * b'"' as u64))
                | zero(word ^ (EACH * b'\\' as u64))
                | (word.wrapping_sub(EACH * b' ' as u64) & !word);
            // The lowest mark is always right. Carries can only set wrong marks above it.
            let plain = (ends & (EACH << 7)).trailing_zeros() as usize / 8;
            self.at += plain;
            if plain < 8 {
                return;
            }
        }
        self.skip_while(|byte| byte != b'"' && byte != b'\\' && byte >= b' ');
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

    fn word(&mut self) -> Result<Json> {
        match self.peek() {
            _ if self.eat("true") => Ok(Json::Bool(true)),
            _ if self.eat("false") => Ok(Json::Bool(false)),
            _ if self.eat("null") => Ok(Json::Null),
            _ if self.eat("NaN") => Ok(Json::Number("NaN".into())),
            _ if self.eat("Infinity") => Ok(Json::Number("Infinity".into())),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn each_member(&mut self, member: &mut impl FnMut(&mut Self, usize, Cow<'a, str>) -> Result<()>) -> Result<()> {
        self.at += 1;
        self.skip_space();
        if self.eat("}") {
            return Ok(());
        }
        self.depth += 1;
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member's name in double quotes"));
            }
            let start = self.at;
            let name = self.string()?;
            self.skip_space();
            if !self.eat(":") {
                return Err(self.unexpected("':'"));
            }
            member(self, start, name)?;
            self.skip_space();
            if self.eat("}") {
                self.depth -= 1;
                return Ok(());
            }
            if !self.eat(",") {
                return Err(self.unexpected("',' or '}'"));
            }
        }
    }

    fn each_element(&mut self, element: &mut impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.at += 1;
        self.skip_space();
        if self.eat("]") {
            return Ok(());
        }
        self.depth += 1;
        loop {
            element(self)?;
            self.skip_space();
            if self.eat("]") {
                self.depth -= 1;
                return Ok(());
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

    fn number(&mut self) -> Result<()> {
        let negative = self.eat("-");
        if negative && self.eat("Infinity") {
            return Ok(());
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
        Ok(())
    }

    /// Reads a string, and decodes its escapes.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.at += 1;
        let mut unescaped = String::new();
        loop {
            let start = self.at;
            self.skip_plain();
            // Both ends are next to ASCII bytes, so they are character boundaries.
            let part = &self.text[start..self.at];
            if self.eat("\"") {
                if unescaped.is_empty() {
                    return Ok(Cow::Borrowed(part));
                }
                unescaped.push_str(part);
                return Ok(Cow::Owned(unescaped));
            }
            if !self.eat("\\") {
                return Err(self.unexpected("a character of a string, control characters escaped"));
            }
            unescaped.push_str(part);
            unescaped.push(self.escape()?);
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

    /// A generator of pseudo-random numbers with a fixed seed (SplitMix64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % end as u64) as usize
        }
    }

    fn passed(text: &str) -> Result<Range<usize>> {
        read_document(text, Parser::pass)
    }

    /// Random tokens of JSON in a row, which need not be valid. Most are invalid somewhere, many only at the end.
    fn pieces(random: &mut Random) -> String {
        const PIECES: [&str; 30] = [
            "{",
            "}",
            "[",
            "]",
            "{\"a\": ",
            "\"b\": [",
            ",",
            ":",
            " ",
            "\n",
            "\"a\"",
            "\"",
            "\\",
            "\"\\u00e9\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud800\"",
            "\u{1}",
            "é",
            "0",
            "-",
            "1.5",
            "1e",
            "e+5",
            "NaN",
            "Infinity",
            "-Infinity",
            "true",
            "nul",
            "null",
            "{}",
        ];
        (0..1 + random.below(12)).map(|_| PIECES[random.below(PIECES.len())]).collect()
    }

    /// A random JSON value. Half of the time, one byte of it is changed.
    fn value(random: &mut Random, depth: usize) -> String {
        let space = [" ", "", "\n\t"][random.below(3)];
        let members = |random: &mut Random, named: bool| {
            let member = |random: &mut Random| match named {
                true => format!(
                    "{space}\"{}\"{space}: {}",
                    ["a", "b\\n", "\\u0061"][random.below(3)],
                    value(random, depth + 1)
                ),
                false => value(random, depth + 1),
            };
            (0..random.below(4)).map(|_| member(random)).collect::<Vec<_>>().join(&format!("{space},"))
        };
        match random.below(if depth < 5 { 9 } else { 6 }) {
            0 => "null".into(),
            1 => ["true", "false"][random.below(2)].into(),
            2 => ["NaN", "Infinity", "-Infinity"][random.below(3)].into(),
            3 => ["0", "-0", "12", "1.50", "1e+05", "-3E-2"][random.below(6)].into(),
            4 | 5 => ["\"\"", "\"é\\\"\"", "\"\\ud83d\\ude00\"", "\"a/b\""][random.below(4)].into(),
            6 => format!("{space}[{}{space}]", members(random, false)),
            _ => format!("{space}{{{}{space}}}", members(random, true)),
        }
    }

    #[test]
    fn values_are_passed_where_trees_are_made_and_refused_with_the_same_words() {
        let (mut random, mut taken, mut refused) = (Random(1), 0, 0);
        for round in 0..20_000 {
            let mut text = if round % 2 == 0 { pieces(&mut random) } else { value(&mut random, 0) };
            if round % 4 == 1 && !text.is_empty() {
                let at = random.below(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    text.replace_range(at..at + 1, ["", "x", "\"", ",", "}"][random.below(5)]);
                }
            }
            match (Json::parse(text.as_bytes()), passed(&text)) {
                (Ok(tree), Ok(place)) => {
                    assert_eq!(Json::parse(text[place.clone()].as_bytes()).unwrap(), tree, "{text}");
                    assert_eq!(text[place].trim(), text.trim());
                    taken += 1;
                }
                (Err(expected), Err(got)) => {
                    assert_eq!(got.message(), expected.message(), "{text}");
                    refused += 1;
                }
                (tree, place) => panic!("{text:?}: got {place:?}, but a tree {tree:?}"),
            }
        }
        assert!(taken > 4000 && refused > 4000, "{taken} {refused}");
    }

    #[test]
    fn members_are_those_of_the_tree() {
        let (mut random, mut objects) = (Random(2), 0);
        for _ in 0..5000 {
            let text = value(&mut random, 0);
            let mut members = Vec::new();
            let place = read_document(&text, |parser| {
                let place = parser.object(|parser, start, name| {
                    members.push((start, name, parser.pass()?));
                    Ok(())
                })?;
                if place.is_none() {
                    parser.pass().map(drop)?
                }
                Ok(place)
            });
            let Json::Object(tree) = Json::parse(text.as_bytes()).unwrap() else {
                assert!(place.unwrap().is_none() && members.is_empty());
                continue;
            };
            objects += 1;
            assert_eq!(text[place.unwrap().unwrap()].trim(), text.trim());
            for (start, name, place) in &members {
                let member = format!("{{{}}}", &text[*start..place.end]);
                let Json::Object(member) = Json::parse(member.as_bytes()).unwrap() else { panic!("{member}") };
                assert_eq!(member.keys().collect::<Vec<_>>(), [name]);
            }
            let last = |name: &str| members.iter().rev().find(|(_, other, _)| other == name).unwrap().2.clone();
            for (name, member) in &tree {
                assert_eq!(&Json::parse(text[last(name)].as_bytes()).unwrap(), member);
            }
        }
        assert!(objects > 1000);
    }

    #[test]
    fn deep_nesting_is_not_passed() {
        let deep = |n: usize| format!("{}{}", "{\"a\":".repeat(n - 1) + "{", "}".repeat(n));
        assert!(passed(&deep(MAX_DEPTH)).is_ok());
        assert!(passed(&deep(100_000)).unwrap_err().message().contains("nested"));
    }
}
