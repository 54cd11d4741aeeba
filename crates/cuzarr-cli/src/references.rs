//! `cuzarr references make`: tables of references to the chunks of netCDF-4 and HDF5 files.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cuzarr::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::output::Output;
use crate::{Python, Verdict};

#[derive(Subcommand)]
pub enum References {
    /// Write a table of references to the chunks of netCDF-4 or HDF5 files
    Make(Make),
}

#[derive(Args)]
pub struct Make {
    /// netCDF-4 or HDF5 files. Of several, each becomes a group with the name of the file, unless they are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The table to write [default: the first file's name, ending in .json]
    #[arg(short, long, value_name = "TABLE")]
    output: Option<PathBuf>,
    /// Join the variables of the files along this dimension, such as time, in the order of the files
    #[arg(long, value_name = "DIMENSION")]
    join: Option<String>,
    /// Replace an existing table
    #[arg(long)]
    overwrite: bool,
}

impl References {
    pub fn run(self, python: Option<&Python<'_>>, output: &mut Output) -> Result<Verdict> {
        let References::Make(make) = self;
        make.run(python, output)
    }
}

impl Make {
    fn run(self, python: Option<&Python<'_>>, output: &mut Output) -> Result<Verdict> {
        let Some(python) = python else {
            let message = "this command does not read netCDF-4 and HDF5 files: only the one of the Python package does";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("pip install cuzarr h5py"));
        };
        let table = match (self.output, self.files.first()) {
            (Some(table), _) => table,
            (None, first) => first.map(|file| file.with_extension("json")).unwrap_or_default(),
        };
        if table.exists() && !self.overwrite {
            let message = format!("'{}' exists already", table.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("use --overwrite, or -o TABLE"));
        }
        let text = (python.make_references)(&self.files, self.join.as_deref())?;
        let count = serde_json::from_str::<Value>(&text).ok().and_then(|table| Some(table["refs"].as_object()?.len()));
        write(&table, &text)?;
        let name = table.display().to_string();
        let document = json!({"table": name, "references": count, "bytes": text.len()});
        output.answer(&document, &format!("{} references in {name}: open reference::{name}", count.unwrap_or(0)));
        Ok(Verdict::Passed)
    }
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // That failure is the one to report.
        let _ = fs::remove_file(&partial);
        Error::new(ErrorKind::StoreFailed, format!("'{}': {error}", path.display())).with_source(error)
    })
}
