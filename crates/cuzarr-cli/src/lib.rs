//! The `cuzarr` command: `demo info tree validate stats preview eval attrs consolidate copy rechunk pyramid references bench cache doctor
//! completions man`.
//!
//! Results go to standard output, as text or with `--json` as one JSON document; progress, warnings and errors go to
//! standard error. The exit status is 0 for success, 2 for wrong arguments, 1 for every other failure, and 128 + n after the signal n.

mod arguments;
mod attributes;
mod axes;
mod bench;
mod cache;
mod consolidate;
mod copy;
mod demo;
mod destination;
mod device;
mod doctor;
mod elements;
mod eval;
mod interrupt;
mod manual;
mod nodes;
mod output;
mod picture;
mod preview;
mod pyramid;
mod references;
mod roofline;
mod statistics;
mod times;
mod validate;

use std::ffi::OsString;

use clap::error::ErrorKind as Wrong;
use clap::{CommandFactory, Parser, Subcommand};
use cuzarr::{Error, ErrorKind};
use cuzarr_remote::StorageOptions;

pub use crate::doctor::{PythonFound, PythonPackage};
pub use crate::references::{LeftOut, MadeTable, TableRequest};

use crate::output::Output;

#[derive(Parser)]
#[command(
    name = "cuzarr",
    version,
    about = "Zarr arrays straight into and out of GPU memory",
    arg_required_else_help = true,
    after_help = "First steps: `cuzarr doctor` says what works on this machine, `cuzarr demo` writes and reads arrays of its own, and \
                  `cuzarr info PATH` shows one of yours."
)]
struct Arguments {
    /// Print one JSON document instead of text
    #[arg(long, global = true, display_order = 100)]
    json: bool,
    /// An option for buckets and web servers, such as anon=true or region=eu-west-1. May be repeated. Names of fsspec,
    /// obstore and object_store are accepted
    #[arg(long = "storage-option", global = true, display_order = 101, value_name = "NAME=VALUE", value_parser = storage_option)]
    storage_options: Vec<(String, String)>,
    /// Write a line of progress to standard error every 10 seconds, also when that is not a terminal
    #[arg(long, global = true, display_order = 102)]
    progress: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write compressed arrays, read them back, and check every element
    Demo(demo::Demo),
    /// Show the shape, type, chunks, codecs and attributes of an array, or a group
    Info(nodes::Info),
    /// List the groups and arrays below a group
    Tree(nodes::Tree),
    /// Decode every chunk, check every checksum, and list the bad ones
    Validate(validate::Validate),
    /// Compute minimum, maximum, mean, standard deviation and a histogram
    Stats(statistics::Stats),
    /// Draw a plane or a row of an array, or an image, on the terminal or as a PNG file
    Preview(preview::Preview),
    /// Compute an expression of arrays and store or print the result
    Eval(eval::Eval),
    /// Show the attributes of an array or group, set them or delete them
    Attrs(attributes::Attrs),
    /// Store the metadata of everything below a group in the group, so that it opens with one request
    Consolidate(consolidate::Consolidate),
    /// Copy an array or a hierarchy, whole or in part; optionally change the Zarr format or the compressor
    Copy(copy::Copy),
    /// Copy an array or a hierarchy and change the shape of its chunks
    Rechunk(copy::Rechunk),
    /// Make an OME-Zarr image pyramid from an array or another image
    Pyramid(pyramid::Pyramid),
    /// Write tables of references to the chunks of other files
    #[command(subcommand)]
    References(references::References),
    /// Measure how fast an array is read on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show or clear the local cache of remote chunks (storage option cache)
    #[command(subcommand)]
    Cache(cache::Cache),
    /// Show what this machine has, what is missing, and the command that adds it
    Doctor(doctor::Doctor),
    /// Print a script that completes commands and options in a shell
    Completions(manual::Completions),
    /// Print the man page, or write the pages of all commands to a directory
    Man(manual::Man),
}

/// Whether a command that ended without an error found everything in order. `Failed` is also an answer: bad chunks or
/// wrong data were found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
}

fn storage_option(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_string(), value.to_string())).ok_or_else(|| "expected NAME=VALUE".to_string())
}

/// A function that makes a table of references to the chunks of HDF5 files.
pub type MakeReferences<'a> = dyn Fn(&TableRequest<'_>) -> cuzarr::Result<MadeTable> + 'a;

/// Functions and facts that only the command of the Python package has.
pub struct Python<'a> {
    /// The function that makes a table of references to the chunks of HDF5 files.
    pub make_references: &'a MakeReferences<'a>,
    /// The Python interpreter in which the command runs.
    pub found: PythonFound,
}

/// Runs the command with these arguments (the first is the program's name), and returns its exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    run(arguments, None)
}

/// Runs the command like [`main`], with the functions that only the Python package has.
pub fn main_in_python(arguments: impl IntoIterator<Item = OsString>, python: &Python<'_>) -> i32 {
    run(arguments, Some(python))
}

fn run(arguments: impl IntoIterator<Item = OsString>, python: Option<&Python<'_>>) -> i32 {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error, &words),
    };
    let mut options = StorageOptions::from_environment();
    let given = arguments.storage_options;
    given.iter().for_each(|(name, value)| options.set(name, value));
    let mut output = Output::new(arguments.json, arguments.progress, cuzarr_remote::registry_with(options));
    let watch = interrupt::Watch::begin(arguments.command.goes_on());
    let result = match arguments.command {
        Command::Demo(demo) => demo.run(&mut output),
        Command::Info(info) => info.run(&mut output),
        Command::Tree(tree) => tree.run(&mut output),
        Command::Validate(validate) => validate.run(&mut output),
        Command::Stats(stats) => stats.run(&mut output),
        Command::Preview(preview) => preview.run(&mut output),
        Command::Eval(eval) => eval.run(&mut output),
        Command::Attrs(attrs) => attrs.run(&mut output),
        Command::Consolidate(consolidate) => consolidate.run(&mut output),
        Command::Copy(copy) => copy.run(&mut output),
        Command::Rechunk(rechunk) => rechunk.run(&mut output),
        Command::Pyramid(pyramid) => pyramid.run(&mut output),
        Command::References(references) => references.run(python, &given, &mut output),
        Command::Bench(bench) => bench.run(&mut output),
        Command::Cache(cache) => cache.run(&mut output),
        Command::Doctor(doctor) => doctor.run(python, &mut output),
        Command::Completions(completions) => completions.run(Arguments::command(), &mut output),
        Command::Man(man) => man.run(Arguments::command(), &mut output),
    };
    output.clear_progress();
    let status = match result {
        // The work is done, so a late signal changes nothing.
        Ok(Verdict::Passed) => 0,
        Ok(Verdict::Failed) => 1,
        Err(error) => {
            let kind = error.kind();
            watch.end_if_interrupted();
            output.error(&error.with_options_spelled(|name| option(&words, name)));
            status_of(kind)
        }
    };
    output.finish(status)
}

/// Returns how the command that was given takes an option of the library, such as `--overwrite`.
fn option(words: &[OsString], name: &str) -> Option<String> {
    let long = name.replace('_', "-");
    let arguments = Arguments::command();
    let inner = |command, word| clap::Command::find_subcommand(command, word).unwrap_or(command);
    let command = words.iter().skip(1).fold(&arguments, inner);
    if !has_option(command, &long) && name == "memory_limit" {
        return Some("the setting CUZARR_MEMORY_LIMIT".to_string());
    }
    // Work that one command began is gone on with by that command.
    has_option(&arguments, &long).then(|| format!("--{long}"))
}

/// Whether a command or one of its subcommands has an option.
fn has_option(command: &clap::Command, long: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(long))
        || command.get_subcommands().any(|command| has_option(command, long))
}

/// Returns the exit status for an error: 2 for wrong arguments, 1 for everything else.
fn status_of(kind: ErrorKind) -> i32 {
    if matches!(kind, ErrorKind::InvalidArgument | ErrorKind::SelectionInvalid) { 2 } else { 1 }
}

/// Prints why the arguments are wrong, or the help or version that they ask for, and returns the exit status.
fn refused(error: &clap::Error, arguments: &[OsString]) -> i32 {
    let mut output = Output::new(is_json(arguments), false, cuzarr::store::Registry::new());
    if !error.use_stderr() {
        output.print(error.to_string().as_bytes());
        return output.finish(0);
    }
    // Printing fails if nobody reads it. The exit status is right in any case.
    let _ = error.print();
    output.error_document(&usage_error(error));
    output.finish(error.exit_code())
}

/// Whether arguments that cannot be parsed contain `--json`.
fn is_json(arguments: &[OsString]) -> bool {
    arguments.iter().skip(1).take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// Converts clap's error for wrong arguments, without the usage that clap prints below it.
fn usage_error(error: &clap::Error) -> Error {
    if error.kind() == Wrong::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::new(ErrorKind::InvalidArgument, "a command is missing").with_hint("cuzarr --help lists them");
    }
    let text = error.to_string();
    let text = text.trim_start_matches("error: ");
    let parts: Vec<String> =
        text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let tip = parts.iter().find_map(|part| part.strip_prefix("tip: "));
    let error = Error::new(ErrorKind::InvalidArgument, parts.first().cloned().unwrap_or_default());
    if let Some(tip) = tip { error.with_hint(tip) } else { error }
}

impl Command {
    /// Returns text that tells the user how the command can continue after an interruption.
    fn goes_on(&self) -> Option<String> {
        let target = match self {
            Command::Copy(copy) => copy.target(),
            Command::Rechunk(rechunk) => rechunk.target(),
            Command::Pyramid(pyramid) => pyramid.target(),
            Command::Eval(eval) => eval.target(),
            _ => None,
        }?;
        Some(match nodes::is_zip_target(target) {
            true => format!("'{target}' is as it was before: run the command again"),
            false => "run the command again with --resume to go on, or with --overwrite to begin again".to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_of_all_commands_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_sentence() {
        let wrong = |words: &[&str]| Arguments::try_parse_from([&["cuzarr"], words].concat()).err().unwrap();
        let message = |words: &[&str]| usage_error(&wrong(words)).message().to_string();
        assert_eq!(message(&["info"]), "the following required arguments were not provided: <PATH>");
        assert_eq!(message(&["cpy"]), "unrecognized subcommand 'cpy'");
        assert_eq!(message(&[]), "a command is missing");
        assert!(usage_error(&wrong(&["cpy"])).hint().is_some_and(|hint| hint.contains("copy")));
    }
}
