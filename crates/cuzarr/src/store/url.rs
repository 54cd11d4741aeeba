//! URLs of stores, as users write them.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The address of a store: a path, a URL, or a chain in which each URL wraps the next (`zip::file:///data/a.zip`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: String,
    path: String,
    wrapped: Option<Box<Url>>,
}

impl Url {
    /// Parses a path, a URL, or a chain of them. Text without a scheme is a path of the local file system.
    ///
    /// # Errors
    /// `InvalidArgument` when the text or a part of a chain is empty.
    pub fn parse(text: &str) -> Result<Url> {
        let (first, rest) = match text.split_once("::") {
            Some((first, rest)) if is_scheme(first.split("://").next().unwrap_or("")) => (first, Some(rest)),
            _ => (text, None),
        };
        let wrapped = rest.map(|rest| Url::parse(rest).map(Box::new)).transpose()?;
        let (scheme, path) = match first.split_once("://") {
            Some((scheme, path)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), path),
            _ if wrapped.is_some() => (first.to_ascii_lowercase(), ""),
            _ => ("file".to_string(), first),
        };
        if wrapped.is_none() && path.is_empty() && scheme == "file" {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("'{text}' names no store: the path is missing"),
            ));
        }
        Ok(Url { scheme, path: path.to_string(), wrapped })
    }

    /// The scheme in lower case: `file`, `memory`, `zip`, …
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The text after the scheme, up to the URL that it wraps.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Splits the URL of a file into the URL of its folder and the file's name.
    ///
    /// # Errors
    /// `InvalidArgument` when the path does not end in a name.
    pub fn split_name(&self) -> Result<(Url, String)> {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        if name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("'{self}' names no file")));
        }
        Ok((Url { path: folder.to_string(), ..self.clone() }, name.to_string()))
    }

    /// The URL that this one wraps.
    pub fn wrapped(&self) -> Option<&Url> {
        self.wrapped.as_deref()
    }
}

/// Whether `text` is a scheme by RFC 3986, section 3.1. A single letter is a drive, not a scheme.
fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.len() > 1 && text.as_bytes()[0].is_ascii_alphabetic() && text.bytes().all(is_part)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrapped {
            Some(wrapped) if self.path.is_empty() => write!(f, "{}::{wrapped}", self.scheme),
            Some(wrapped) => write!(f, "{}://{}::{wrapped}", self.scheme, self.path),
            None => write!(f, "{}://{}", self.scheme, self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_urls_and_chains() {
        let shown = |text: &str| Url::parse(text).map(|url| url.to_string()).unwrap();
        assert_eq!(shown("a/b"), "file://a/b");
        assert_eq!(shown("FILE:///a/b"), "file:///a/b");
        assert_eq!(shown("zip::file:///a.zip"), "zip::file:///a.zip");
        assert_eq!(shown("zip::a.zip"), "zip::file://a.zip");
        assert_eq!(shown("zip://in/it::s3://bucket/a.zip"), "zip://in/it::s3://bucket/a.zip");
        assert_eq!(shown("a::b"), "file://a::b", "a name of one letter is no scheme");
        assert_eq!(shown("C:/data"), "file://C:/data");
        let url = Url::parse("zip://in/it::memory://x/a.zip").unwrap();
        assert_eq!((url.scheme(), url.path()), ("zip", "in/it"));
        assert_eq!(url.wrapped().map(|url| (url.scheme(), url.path())), Some(("memory", "x/a.zip")));
        for text in ["", "zip::", "file://"] {
            assert_eq!(Url::parse(text).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text:?}");
        }
    }
}
