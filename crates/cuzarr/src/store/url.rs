//! URLs of stores, as users write them.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The address of a store: a path, a URL, or a chain in which each URL wraps the next (`zip::file:///data/a.zip`).
///
/// The query of a URL may be a signature. It is part of [`Url::address`], but `Display` and `Debug` leave it out.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: String,
    path: String,
    wrapped: Option<Box<Url>>,
}

impl Url {
    /// Parses a path, a URL, or a chain of them, such as `zip::file:///data/a.zip`. Text without a scheme is a path of
    /// the local file system.
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

    /// The part of the URL after its scheme, up to the wrapped URL.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Splits the URL of a file into the URL of its folder and the file's name. For a web server, the folder keeps the
    /// query, and the name is percent-decoded.
    ///
    /// # Errors
    /// `InvalidArgument` when the path does not end in a name, or the name is not UTF-8.
    pub fn split_name(&self) -> Result<(Url, String)> {
        let (place, query) = if self.is_of_a_web_server() { divided(&self.path) } else { (&*self.path, "") };
        let (folder, name) = place.rsplit_once('/').unwrap_or(("", place));
        let invalid = || Error::new(ErrorKind::InvalidArgument, format!("'{self}' names no file"));
        let name = if self.is_of_a_web_server() { decoded(name).ok_or_else(invalid)? } else { name.to_string() };
        if name.is_empty() {
            return Err(invalid());
        }
        Ok((Url { path: format!("{folder}{query}"), ..self.clone() }, name))
    }

    /// The whole URL with its query, which may contain secrets. Messages use `Display` instead.
    pub fn address(&self) -> String {
        self.written(&|url| &url.path, &|url| url.address())
    }

    fn is_of_a_web_server(&self) -> bool {
        matches!(&*self.scheme, "http" | "https")
    }

    /// The path as messages show it: without the query, which may contain secrets, unless it is a path of this machine.
    fn shown_path(&self) -> &str {
        let is_here = matches!(&*self.scheme, "file" | "memory" | "zip");
        if is_here { &self.path } else { divided(&self.path).0 }
    }

    fn written<'a>(&'a self, path: &dyn Fn(&'a Url) -> &'a str, inner: &dyn Fn(&'a Url) -> String) -> String {
        match &self.wrapped {
            Some(wrapped) if self.path.is_empty() => format!("{}::{}", self.scheme, inner(wrapped)),
            Some(wrapped) => format!("{}://{}::{}", self.scheme, path(self), inner(wrapped)),
            None => format!("{}://{}", self.scheme, path(self)),
        }
    }

    /// The URL that this URL wraps, such as the file of a ZIP archive, if any.
    pub fn wrapped(&self) -> Option<&Url> {
        self.wrapped.as_deref()
    }
}

/// Whether `text` is a scheme by RFC 3986, section 3.1. A single letter is a drive, not a scheme.
fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.len() > 1 && text.as_bytes()[0].is_ascii_alphabetic() && text.bytes().all(is_part)
}

/// Splits the part of a URL after the scheme into the path and the query that follows it. A fragment is dropped,
/// because servers ignore it.
fn divided(path: &str) -> (&str, &str) {
    let path = path.split('#').next().unwrap_or(path);
    path.split_at(path.find('?').unwrap_or(path.len()))
}

/// Decodes text in which `%` and two digits stand for a byte (RFC 3986, section 2.1); `None` if the bytes are not
/// UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

/// Shows the URL without queries, which may be signatures.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(&Url::shown_path, &ToString::to_string))
    }
}

/// Shows the URL without queries, which may be signatures.
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url('{self}')")
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
        for text in ["zip://in::https://h/a.zip?sig=1/2", "s3://bucket/a?b"] {
            assert_eq!(Url::parse(text).unwrap().address(), text);
        }
        for text in ["", "zip::", "file://"] {
            assert_eq!(Url::parse(text).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text:?}");
        }
    }

    #[test]
    fn queries_are_not_shown() {
        for text in ["https://h/a.zip?sig=SECRET", "zip://in::http://h/a/b.zip?sig=SECRET/x#y", "ftp://h/a?SECRET"] {
            let url = Url::parse(text).unwrap();
            let shown = format!("{url} {url:?} {:?}", url.wrapped());
            assert!(!shown.contains("SECRET"), "{shown}");
            assert_eq!(url.address(), text);
        }
    }

    #[test]
    fn a_file_of_a_web_server_is_split_from_its_folder_and_its_query() {
        let split = |text: &str| Url::parse(text).unwrap().split_name().map(|(folder, name)| (folder.address(), name));
        let pair = |folder: &str, name: &str| (folder.to_string(), name.to_string());
        assert_eq!(split("https://h/in/a.zip?sig=x/y%2F").unwrap(), pair("https://h/in?sig=x/y%2F", "a.zip"));
        assert_eq!(split("https://h/in%20it/a%20b%.zip#part").unwrap(), pair("https://h/in%20it", "a b%.zip"));
        assert_eq!(split("s3://bucket/a%20b?c").unwrap(), pair("s3://bucket", "a%20b?c"), "keys are what they are");
        assert!(split("https://h/a/?sig=x").is_err() && split("https://h/%ff").is_err());
    }
}
