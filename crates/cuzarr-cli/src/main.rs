//! The `cuzarr` command. All its code is in the library, because the Python package has the same command.

fn main() {
    std::process::exit(cuzarr_cli::main(std::env::args_os()));
}
