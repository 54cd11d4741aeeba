//! The `cuzarr` command. Everything is in the library, because the Python package carries the same command.

fn main() {
    std::process::exit(cuzarr_cli::main(std::env::args_os()));
}
