//! `cuzarr cache info|clear`: shows or removes the contents of the cache of remote stores.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_remote::{cache_info, clear_cache, default_cache_folder};
use serde_json::{Value, json};

use crate::Verdict;
use crate::output::{self, Output};

#[derive(Subcommand)]
pub enum Cache {
    /// Show where the cache is, and how much it holds for each bucket or host
    Info(Place),
    /// Remove everything in the cache
    Clear(Place),
}

#[derive(Args)]
pub struct Place {
    /// Folder of the cache, as given to the storage option cache [default: the folder that cache=true uses]
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Place {
    fn folder(self) -> Result<PathBuf> {
        let none = || {
            let message = "the usual folder of the cache is not known, because HOME is not set";
            Error::new(ErrorKind::InvalidArgument, message).with_hint("name the folder")
        };
        self.folder.or_else(default_cache_folder).ok_or_else(none)
    }
}

impl Cache {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        match self {
            Cache::Info(place) => info(&place.folder()?, output),
            Cache::Clear(place) => {
                let folder = place.folder()?;
                let freed = clear_cache(&folder)?;
                let document = json!({"folder": folder.display().to_string(), "freed_bytes": freed});
                output.answer(&document, &format!("{}: removed {}", folder.display(), output::bytes(freed)));
                Ok(Verdict::Passed)
            }
        }
    }
}

fn info(folder: &std::path::Path, output: &mut Output) -> Result<Verdict> {
    let found = cache_info(folder)?;
    let places: Vec<Value> = found
        .places
        .iter()
        .map(|(place, (entries, size_bytes))| json!({"place": place, "entries": entries, "size_bytes": size_bytes}))
        .collect();
    let document = json!({
        "folder": folder.display().to_string(),
        "entries": found.entries,
        "size_bytes": found.size_bytes,
        "places": places,
    });
    let rows: Vec<Vec<String>> = found
        .places
        .iter()
        .map(|(place, (entries, size_bytes))| vec![place.clone(), entries.to_string(), output::bytes(*size_bytes)])
        .collect();
    let mut text = format!("{}: {} entries, {}", folder.display(), found.entries, output::bytes(found.size_bytes));
    if !rows.is_empty() {
        text += &format!("\n\n{}", output::table(&["place", "entries", "size"], &rows));
    }
    output.answer(&document, &text);
    Ok(Verdict::Passed)
}
