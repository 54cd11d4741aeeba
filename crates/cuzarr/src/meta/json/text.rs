//! JSON that stays text until it is needed.

use std::ops::Range;
use std::sync::Arc;

use super::parser::{Parser, read_document, text_of};
use super::{Json, Object, not_an_object, object_to_text};
use crate::Result;

/// A JSON object as text that is part of a document, spelled as its author wrote it. Its syntax was checked.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    document: Arc<str>,
    place: Range<usize>,
}

impl Text {
    /// Makes the text of a whole document. Refuses one that is not an object.
    pub(crate) fn of_object(bytes: &[u8]) -> Result<Text> {
        let text = text_of(bytes)?;
        read_document(text, |parser| match parser.object(|parser, _, _| parser.pass().map(drop))? {
            Some(_) => Ok(()),
            None => Err(not_an_object(&parser.value()?)),
        })?;
        Ok(Text { document: text.into(), place: 0..text.len() })
    }

    /// Writes an object as text, on one line.
    pub(crate) fn written(members: &Object) -> Text {
        let text = object_to_text(members, None);
        Text { place: 0..text.len(), document: text.into() }
    }

    /// The text of the object, without the document around it.
    pub(crate) fn as_str(&self) -> &str {
        &self.document[self.place.clone()]
    }

    /// The whole document that the object is part of.
    pub(crate) fn document(&self) -> &Arc<str> {
        &self.document
    }

    /// Runs `read` on a parser at the beginning of the object. Offsets are those in the whole document.
    pub(crate) fn read<'a, T>(&'a self, read: impl FnOnce(&mut Parser<'a>) -> Result<T>) -> Result<T> {
        read(&mut Parser::at(&self.document[..self.place.end], self.place.start))
    }

    /// Parses the text to a JSON value.
    pub(crate) fn parse(&self) -> Result<Json> {
        self.read(Parser::value)
    }
}

/// Parses a document that must be an object, and whose member `apart` may stay text. If the member `apart` is an
/// object, it is returned as text, and replaced by `null`.
pub(crate) fn parse_object_apart(bytes: &[u8], apart: &str) -> Result<(Object, Option<Text>)> {
    let text = text_of(bytes)?;
    let (mut members, mut place) = (Vec::new(), None);
    read_document(text, |parser| {
        let object = parser.object(|parser, _, name| {
            let mut member = None;
            if name == apart {
                place = parser.object(|parser, _, _| parser.pass().map(drop))?;
                member = place.is_some().then_some(Json::Null);
            }
            let member = member.map_or_else(|| parser.value(), Ok)?;
            members.push((name.into_owned(), member));
            Ok(())
        })?;
        if object.is_some() { Ok(()) } else { Err(not_an_object(&parser.value()?)) }
    })?;
    Ok((members.into_iter().collect(), place.map(|place| Text { document: text.into(), place })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_apart_comes_as_it_was_written() {
        let document = b"\xef\xbb\xbf{\"a\": 1, \"big\" : {\"n\": [ 1.50,NaN]} , \"b\": {\"big\": {}}}";
        let (members, text) = parse_object_apart(document, "big").unwrap();
        assert_eq!(object_to_text(&members, None), r#"{"a": 1, "big": null, "b": {"big": {}}}"#);
        let text = text.unwrap();
        assert_eq!(text.as_str(), r#"{"n": [ 1.50,NaN]}"#);
        assert_eq!(text.parse().unwrap(), Json::parse(text.as_str().as_bytes()).unwrap());
    }

    #[test]
    fn the_last_of_equal_members_is_apart_and_only_objects_are() {
        let apart = |text: &str| {
            let (members, text) = parse_object_apart(text.as_bytes(), "big").unwrap();
            (object_to_text(&members, None), text.map(|text| text.as_str().to_owned()))
        };
        assert_eq!(apart(r#"{"big": {}, "big": {"a": 1}}"#), (r#"{"big": null}"#.into(), Some(r#"{"a": 1}"#.into())));
        assert_eq!(apart(r#"{"big": {}, "big": [2]}"#), (r#"{"big": [2]}"#.into(), None));
        assert_eq!(apart(r#"{"b\u0069g": {}}"#), (r#"{"big": null}"#.into(), Some("{}".into())));
    }

    #[test]
    fn documents_that_are_no_objects_are_refused_as_trees_are() {
        for document in [&b"[1]"[..], b"", b"{} x", b"{\"big\": {\"a\"}}", b"\xff", b"\"\\ud800\""] {
            let expected = Json::parse_object(document).unwrap_err();
            assert_eq!(parse_object_apart(document, "big").unwrap_err().message(), expected.message());
            assert_eq!(Text::of_object(document).unwrap_err().message(), expected.message());
        }
    }
}
