//! `cuzarr completions` and `cuzarr man`: scripts for shells and man pages, made of the same declarations as the help.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man as Page;
use cuzarr::{Error, ErrorKind, Result};
use serde_json::json;

use crate::Verdict;
use crate::output::Output;

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
    pub fn run(self, mut command: Command) -> Result<Verdict> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "cuzarr", &mut script);
        // Writing fails when the reader has closed the pipe. The exit status is still right.
        let _ = std::io::stdout().write_all(&script);
        Ok(Verdict::Passed)
    }
}

impl Man {
    pub fn run(self, mut command: Command, output: &mut Output) -> Result<Verdict> {
        // Global options are listed by every command once it is built.
        command.build();
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            Page::new(command).render(&mut page).map_err(|error| failed("standard output".into(), error))?;
            let _ = std::io::stdout().write_all(&page);
            return Ok(Verdict::Passed);
        };
        std::fs::create_dir_all(&directory).map_err(|error| failed(directory.display().to_string(), error))?;
        let mut written = Vec::new();
        let mut pages = vec![("cuzarr".to_string(), command)];
        while let Some((name, command)) = pages.pop() {
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                pages.push((format!("{name}-{}", below.get_name()), below.clone()));
            }
            let mut page = Vec::new();
            let path = directory.join(format!("{name}.1"));
            let text = Page::new(command).render(&mut page);
            text.and_then(|()| std::fs::write(&path, page))
                .map_err(|error| failed(path.display().to_string(), error))?;
            written.push(format!("{name}.1"));
        }
        written.sort();
        let text = format!("wrote {} pages to {}", written.len(), directory.display());
        output.answer(&json!({"directory": directory.display().to_string(), "pages": written}), &text);
        Ok(Verdict::Passed)
    }
}

fn failed(place: String, error: std::io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("cannot write to '{place}'")).with_source(error)
}
