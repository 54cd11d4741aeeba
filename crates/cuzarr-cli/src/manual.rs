//! `cuzarr completions` and `cuzarr man`: shell scripts and man pages, generated from the same declarations as the
//! help.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man as Page;
use cuzarr::{Error, ErrorKind, Result};
use serde_json::json;

use crate::Verdict;
use crate::output::Output;

/// The meaning of each exit status, as rows of a table for the manual.
pub const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "success"),
    ("1", "a failure: damaged data, wrong data, or any error but those of the arguments"),
    (
        "2",
        "wrong arguments: an option or a value that has no meaning (error kinds InvalidArgument and SelectionInvalid)",
    ),
    ("128 + n", "ended by the signal n, as shells show it: 130 for Ctrl-C"),
];

#[derive(Args)]
pub struct Completions {
    /// Shell that the script is for. For bash: cuzarr completions bash > ~/.local/share/bash-completion/completions/cuzarr
    shell: Shell,
}

#[derive(Args)]
pub struct Man {
    /// Directory for the pages of all commands, such as ~/.local/share/man/man1; without it, print the page of cuzarr
    directory: Option<PathBuf>,
}

impl Completions {
    pub fn run(self, mut command: Command, output: &mut Output) -> Result<Verdict> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "cuzarr", &mut script);
        output.print(&script);
        Ok(Verdict::Passed)
    }
}

impl Man {
    pub fn run(self, mut command: Command, output: &mut Output) -> Result<Verdict> {
        // A built command lists its global options in every subcommand.
        command.build();
        let Some(directory) = self.directory else {
            output.print(&page(command).map_err(|error| failed("standard output".into(), error))?);
            return Ok(Verdict::Passed);
        };
        std::fs::create_dir_all(&directory).map_err(|error| failed(directory.display().to_string(), error))?;
        let mut written = Vec::new();
        let mut pages = vec![("cuzarr".to_string(), command)];
        while let Some((name, command)) = pages.pop() {
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                pages.push((format!("{name}-{}", below.get_name()), below.clone()));
            }
            let path = directory.join(format!("{name}.1"));
            page(command)
                .and_then(|page| std::fs::write(&path, page))
                .map_err(|error| failed(path.display().to_string(), error))?;
            written.push(format!("{name}.1"));
        }
        written.sort();
        let text = format!("wrote {} pages to {}", written.len(), directory.display());
        output.answer(&json!({"directory": directory.display().to_string(), "pages": written}), &text);
        Ok(Verdict::Passed)
    }
}

/// Returns the man page of a command.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Page::new(command).render(&mut page)?;
    writeln!(page, ".SH \"EXIT STATUS\"")?;
    for (status, meaning) in EXIT_STATUS {
        writeln!(page, ".TP\n{status}\n{meaning}")?;
    }
    Ok(page)
}

fn failed(place: String, error: std::io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("cannot write to '{place}': {error}")).telling(error)
}
