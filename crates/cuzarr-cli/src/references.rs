//! `cuzarr references make`: tables of references to the chunks of netCDF-4 and HDF5 files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cuzarr::internal::printable;
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_remote::reference::Rules;
use serde_json::{Value, json};

use crate::destination::{self, Destination, Replaces};
use crate::output::Output;
use crate::{Python, Verdict};

/// The user's request for a table of references to HDF5 files.
pub struct TableRequest<'a> {
    /// Paths and URLs of the HDF5 files to which the table of references refers.
    pub files: &'a [OsString],
    /// The dimension along which the variables of the files are joined.
    pub join: Option<&'a str>,
    /// Paths of variables and groups that the table of references leaves out without looking at them.
    pub drop: &'a [String],
    /// Whether a variable that cannot be read through a table of references is an error, instead of being left out.
    pub strict: bool,
    /// Storage options, such as credentials, for opening files at URLs.
    pub storage_options: &'a [(String, String)],
}

/// A table of references that was made, and what it does not contain.
pub struct MadeTable {
    /// The table of references, as JSON text.
    pub text: String,
    /// The variables that could not be put into the table of references.
    pub left_out: Vec<LeftOut>,
    /// The URLs of the files to which the table of references refers.
    pub urls: Vec<String>,
}

/// A variable that could not be put into a table of references.
pub struct LeftOut {
    /// The file that contains the variable.
    pub file: String,
    /// The path of the variable in the file.
    pub path: String,
    /// Why the variable is left out, in one line.
    pub reason: String,
}

#[derive(Subcommand)]
pub enum References {
    /// Write a table of references to the chunks of netCDF-4 or HDF5 files
    Make(Make),
}

#[derive(Args)]
pub struct Make {
    /// netCDF-4 or HDF5 files: paths, or URLs of buckets and web servers. Of several, each becomes a group with the name of the file,
    /// unless they are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<OsString>,
    /// The table to write [default: the first file's name, ending in .json]
    #[arg(short, long, value_name = "TABLE")]
    output: Option<PathBuf>,
    /// Join the variables of the files along this dimension, such as time, in the order of the files
    #[arg(long, value_name = "DIMENSION")]
    join: Option<String>,
    /// Leave out this variable or group, given as its path in the files, without looking at it. May be repeated
    #[arg(long, value_name = "NAME")]
    drop: Vec<String>,
    /// Fail when a variable cannot be read through a table, instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// Replace an existing file. Files that the table is made of are never replaced
    #[arg(long)]
    overwrite: bool,
}

impl References {
    pub fn run(
        self,
        python: Option<&Python<'_>>,
        options: &[(String, String)],
        output: &mut Output,
    ) -> Result<Verdict> {
        let References::Make(make) = self;
        make.run(python, options, output)
    }
}

impl Make {
    fn run(self, python: Option<&Python<'_>>, options: &[(String, String)], output: &mut Output) -> Result<Verdict> {
        let Some(python) = python else {
            let message = "this command does not read netCDF-4 and HDF5 files: only the one of the Python package does";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("pip install cuzarr h5py"));
        };
        let table = self.output.clone().unwrap_or_else(|| default_table(self.files.first()));
        let sources: Vec<&str> = self.files.iter().filter_map(|file| file.to_str()).collect();
        let place = Destination {
            path: &table,
            endings: &[],
            sources: &sources,
            replaces: Replaces::Nothing,
            overwrite: self.overwrite,
        };
        place.check()?;
        let request = TableRequest {
            files: &self.files,
            join: self.join.as_deref(),
            drop: &self.drop,
            strict: self.strict,
            storage_options: options,
        };
        let made = (python.make_references)(&request)?;
        // The files may name further files.
        let sources: Vec<&str> = made.urls.iter().map(String::as_str).collect();
        Destination { sources: &sources, ..place }.check()?;
        destination::write(&table, made.text.as_bytes())?;
        answer(&table, &made, output);
        Ok(Verdict::Passed)
    }
}

/// Returns where the table of references is written by default: beside the file, or in the current folder for a file at
/// a URL.
fn default_table(file: Option<&OsString>) -> PathBuf {
    let Some(file) = file else { return PathBuf::new() };
    match file.to_str().and_then(|text| text.split_once("://")) {
        Some((scheme, path)) if scheme != "file" => {
            let path = path.split(['?', '#']).next().unwrap_or(path);
            Path::new(path.rsplit('/').next().unwrap_or(path)).with_extension("json")
        }
        _ => local_path(file).unwrap_or_default().with_extension("json"),
    }
}

/// Returns the local path of a file; `None` for URLs of other schemes.
fn local_path(file: &OsString) -> Option<PathBuf> {
    match file.to_str().and_then(|text| text.split_once("://")) {
        Some(("file", path)) => Some(PathBuf::from(path)),
        Some(_) => None,
        None => Some(PathBuf::from(file)),
    }
}

/// Prints what was made: the table of references, each variable that is left out, and the prefixes that a reader must
/// allow.
fn answer(table: &Path, made: &MadeTable, output: &mut Output) {
    let count = serde_json::from_str::<Value>(&made.text).ok().and_then(|table| Some(table["refs"].as_object()?.len()));
    let count = count.unwrap_or(0);
    let name = table.display().to_string();
    let rules = Rules::new().with_table(&name);
    let needed = |url: &String| rules.as_ref().ok()?.needed(url);
    let allow: Vec<_> = made.urls.iter().filter_map(needed).collect::<BTreeSet<_>>().into_iter().collect();
    let mut text = format!("{count} references in {name}: open reference::{name}");
    if !allow.is_empty() {
        text += &format!("\nthe files lie elsewhere: open it with --storage-option allow={}", allow.join(","));
    }
    for LeftOut { file, path, reason } in &made.left_out {
        let (file, path) = (printable(file), printable(path));
        output.warn(&format!("{file}: variable '{path}' is left out: {reason}"));
    }
    let left_out: Vec<_> = (made.left_out.iter())
        .map(|one| json!({"file": one.file, "variable": one.path, "reason": one.reason}))
        .collect();
    let size = made.text.len();
    let document = json!({"table": name, "references": count, "bytes": size, "left_out": left_out, "allow": allow});
    output.answer(&document, &text);
}
