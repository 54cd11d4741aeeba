//! Files that commands write outside of stores: pictures and tables of references. One rule decides where they may be
//! written, and one function writes them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cuzarr::internal::meta::node::DOCUMENT_NAMES;
use cuzarr::internal::store::is_zip;
use cuzarr::store::{Identity, Url};
use cuzarr::{Error, ErrorKind, Result};

use crate::nodes;

/// The first bytes of every HDF5 file.
const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Which kinds of existing files a command replaces even without `--overwrite`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// Existing pictures are replaced, because pictures are made again and again.
    Pictures,
    /// No file is replaced without `--overwrite`.
    Nothing,
}

/// A file that a command writes, and what it must not overwrite.
pub struct Destination<'a> {
    /// The path of the file to write.
    pub path: &'a Path,
    /// Endings of file names, such as `png`, that the command can write. An empty list allows any.
    pub endings: &'a [&'a str],
    /// Paths and URLs of everything that the command reads.
    pub sources: &'a [&'a str],
    /// Which kinds of existing files are replaced even without `--overwrite`.
    pub replaces: Replaces,
    /// Whether the user gave `--overwrite`, which lets the command replace existing files of other kinds too.
    pub overwrite: bool,
}

impl Destination<'_> {
    /// Checks that the file can be written and would not overwrite what the command reads. Call it before the work
    /// whose result is written.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL, for a name with another ending, and for a path that is, or lies in, one of the
    /// sources (even through links); `StoreFailed` for an existing file that is not replaced, for a directory, and for
    /// a missing directory.
    pub fn check(&self) -> Result<()> {
        let shown = self.path.display();
        let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        if self.path.to_str().is_some_and(|text| text.contains("://")) {
            return Err(refused(format!("'{shown}' is a URL, expected the path of a file"))
                .with_hint("write it here and upload it"));
        }
        let ending = self.path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        if !self.endings.is_empty() && !ending.is_some_and(|ending| self.endings.contains(&ending.as_str())) {
            let names: Vec<String> = self.endings.iter().map(|ending| format!(".{ending}")).collect();
            return Err(refused(format!("'{shown}' is not the name of a picture that can be written"))
                .with_hint(format!("use a name that ends in {}", names.join(" or "))));
        }
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = |problem: String| Error::new(ErrorKind::StoreFailed, format!("cannot write '{shown}': {problem}"));
        if !parent.is_dir() {
            return Err(failed(format!("there is no directory '{}'", parent.display())));
        }
        if self.path.is_dir() {
            return Err(failed("it is a directory".to_string()));
        }
        if let Some(source) = self.sources.iter().find(|source| touches(source, self.path)) {
            return Err(refused(format!("'{shown}' belongs to what is read: '{}'", nodes::shown(source)))
                .with_hint("write to another place"));
        }
        if fs::symlink_metadata(self.path).is_err() {
            return Ok(());
        }
        if let Some(what) = kept(self.path) {
            return Err(failed(format!("it is {what}, which is never replaced here")).with_hint("use another name"));
        }
        if self.overwrite {
            return Ok(());
        }
        let problem = match self.replaces {
            Replaces::Pictures if is_picture(self.path) => return Ok(()),
            Replaces::Pictures => "it exists and is not a picture",
            Replaces::Nothing => "it exists already",
        };
        Err(failed(problem.to_string()).with_hint("use `overwrite`, or another name"))
    }
}

/// Names the kind of a file (such as HDF5) that is never replaced, because no command can make its data again. An input
/// may refer to such a file, so that the command does not know its name.
fn kept(path: &Path) -> Option<&'static str> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if DOCUMENT_NAMES.contains(&name) {
        return Some("metadata of an array or group");
    }
    (first_bytes(path) == Some(HDF5_SIGNATURE)).then_some("an HDF5 file")
}

/// Reads the first bytes of a regular file. Opening a pipe would wait for its other end.
fn first_bytes(path: &Path) -> Option<[u8; 8]> {
    let mut first = [0; 8];
    path.is_file().then(|| fs::File::open(path).and_then(|mut file| file.read_exact(&mut first)).ok()).flatten()?;
    Some(first)
}

/// Writes a file completely or not at all. If the path is a link, the file that it leads to is replaced.
///
/// # Errors
/// `StoreFailed`
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut name = real.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = real.with_file_name(name);
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, &real));
    written.map_err(|error| {
        // The failure above is the one to report.
        let _ = fs::remove_file(&partial);
        Error::new(ErrorKind::StoreFailed, format!("cannot write '{}': {error}", path.display())).telling(error)
    })
}

/// Whether a file is the local source `source` or lies in it, even through links.
fn touches(source: &str, file: &Path) -> bool {
    local_places(source)
        .iter()
        .any(|place| is_same_file(place, file) || Identity::directory(place).overlaps(&Identity::directory(file)))
}

/// Returns the local paths from which a path or URL is read.
fn local_places(source: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut url = Url::parse(source).ok();
    while let Some(one) = url {
        // An inner path of a chain is not a local path.
        if one.wrapped().is_none() && matches!(one.scheme(), "file" | "zip" | "reference") {
            places.push(PathBuf::from(one.path()));
        }
        url = one.wrapped().cloned();
    }
    places
}

/// Refuses a target in or around an input file, because deleting the old target would delete the input.
///
/// # Errors
/// `InvalidArgument`
pub fn refuse_inputs<'a>(target: &str, sources: impl IntoIterator<Item = &'a str>) -> Result<()> {
    for source in sources {
        let places = local_places(source);
        let pairs = local_places(target)
            .into_iter()
            .flat_map(|target| places.iter().map(move |place| (Identity::directory(&target), place)));
        for (identity, place) in pairs {
            // Members of the same ZIP file are compared where the file is opened.
            if place.is_file() && !is_zip(place) && identity.overlaps(&Identity::directory(place)) {
                let message =
                    format!("the target '{}' overlaps the source '{}'", nodes::shown(target), nodes::shown(source));
                return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("write to another place"));
            }
        }
    }
    Ok(())
}

/// Whether two paths lead to the same file, through links of any kind.
fn is_same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) {
            return (one.dev(), one.ino()) == (other.dev(), other.ino());
        }
    }
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Whether a file begins like a picture that commands write: PNG or SVG.
fn is_picture(path: &Path) -> bool {
    first_bytes(path).is_some_and(|first| first == *b"\x89PNG\r\n\x1a\n" || first.starts_with(b"<svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_chains_are_those_on_this_machine() {
        let places = |source: &str| local_places(source);
        assert_eq!(places("a/b"), [Path::new("a/b")]);
        assert_eq!(places("zip://in/it::file:///a.zip"), [Path::new("/a.zip")]);
        assert_eq!(places("reference::x.json"), [Path::new("x.json")]);
        assert_eq!(places("s3://bucket/a"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_file_is_replaced_where_its_link_leads() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write(&link, b"new").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
