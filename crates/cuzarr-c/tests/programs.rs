//! Programs in C that use the library as its users do: compiled, linked with the library that is installed, and run. A test
//! whose compiler or tool is missing says so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cuzarr::ErrorKind;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    std::fs::read_to_string(crate_folder().join("include/cuzarr.h")).unwrap()
}

/// The names of the functions in the header, with those of their parameters.
fn functions() -> Vec<(String, Vec<String>)> {
    let text = header();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join(" ");
    let last_word = |text: &str| text.rsplit([' ', '*']).next().unwrap_or_default().to_string();
    let parse = |statement: &str| {
        let (before, parameters) = statement.split_once('(')?;
        let parameters = parameters.strip_suffix(')')?.split(',').map(|one| last_word(one.trim_end()));
        let name = last_word(before);
        name.starts_with("cuzarr_").then(|| (name, parameters.filter(|name| name != "void").collect()))
    };
    code.split(';').filter_map(parse).collect()
}

/// Runs a command without the sanitizer that `scripts/with-simt` preloads: compilers do without, and programs have their own.
fn run(command: &mut Command) -> Output {
    command.env_remove("LD_PRELOAD").output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn succeed(command: &mut Command) -> String {
    let done = run(command);
    let (out, problems) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{problems}", done.status);
    out.into_owned()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").env_remove("LD_PRELOAD").output().is_ok();
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

/// The folder with the shared library that is installed. cargo builds it for no test program by itself.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = crate_folder().join("../..");
        let program = std::env::current_exe().unwrap();
        let built = program.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(std::env::var("CARGO").as_deref().unwrap_or("cargo"));
        build.args(["build", "--workspace", "--all-features", "--locked", "--lib"]).current_dir(&root);
        // What cargo says of this package to its tests: build scripts would run again for it.
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|name| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start)))
            {
                build.env_remove(name);
            }
        }
        succeed(&mut build);
        succeed(Command::new(root.join("scripts/link-c-library")).arg(built));
        built.join("c")
    })
}

/// Compiles a program of `tests/c`, or another file, with more options.
fn compile(source: &Path, program: &Path, options: &[&str]) {
    let mut command = Command::new("gcc");
    command.args(["-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(options).arg(source);
    command.arg("-I").arg(crate_folder().join("include")).arg("-I").arg(crate_folder().join("tests/c"));
    command.arg("-L").arg(library()).arg("-lcuzarr").arg(format!("-Wl,-rpath,{}", library().display()));
    succeed(command.arg("-o").arg(program));
}

const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];

#[test]
fn misuse_gives_errors_and_no_leaks_under_sanitizers() {
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("misuse");
    compile(&crate_folder().join("tests/c/misuse.c"), &program, SANITIZERS);
    let out = succeed(Command::new(&program).arg(folder.path().join("group")).env_remove("ASAN_OPTIONS"));
    assert!(out.ends_with("misuse: ok\n"), "{out}");
}

#[test]
fn misuse_touches_no_wrong_byte_under_valgrind() {
    if !has("gcc") || !has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("misuse");
    compile(&crate_folder().join("tests/c/misuse.c"), &program, &[]);
    let options = ["--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    let mut command = Command::new("valgrind");
    command.args(options).arg("--error-exitcode=9").arg(&program).arg(folder.path().join("group"));
    assert!(succeed(&mut command).ends_with("misuse: ok\n"));
}

#[test]
fn reads_into_and_writes_from_memory_of_a_device() {
    if std::env::var_os("CUZARR_SIMT_LIBRARY").is_none() {
        println!("skipped: run by scripts/with-simt, or on a GPU");
        return;
    }
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("device");
    compile(&crate_folder().join("tests/c/device.c"), &program, SANITIZERS);
    let out = succeed(Command::new(&program).arg(folder.path()));
    assert!(out.ends_with("device: ok\n"), "{out}");
}

/// `CHUNK_CORRUPT` for `ChunkCorrupt`.
fn screaming(name: &str) -> String {
    let mut text = String::new();
    for character in name.replace("DType", "Dtype").chars() {
        if character.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(character.to_ascii_uppercase());
    }
    text
}

#[test]
fn the_header_stands_alone_in_c99_and_cpp11_before_and_after_dlpack() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, standard, file) in [("gcc", "-std=c99", "alone.c"), ("g++", "-std=c++11", "alone.cpp")] {
        if !has(compiler) {
            continue;
        }
        for includes in [&["cuzarr.h"][..], &["cuzarr.h", "dlpack.h"], &["dlpack.h", "cuzarr.h"]] {
            let text: String = includes.iter().map(|name| format!("#include \"{name}\"\n")).collect();
            std::fs::write(folder.path().join(file), text).unwrap();
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
            command.arg("-I").arg(crate_folder().join("include")).arg("-I").arg(crate_folder().join("tests/c"));
            succeed(command.arg(folder.path().join(file)));
        }
    }
}

#[test]
fn constants_of_the_header_are_those_of_the_library() {
    if !has("gcc") {
        return;
    }
    let text = header();
    let statuses: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("CUZARR_STATUS_")?.split(" = ").next()).collect();
    let print = |name: &&str| format!("    printf(\"{name} %s\\n\", cuzarr_status_name(CUZARR_STATUS_{name}));\n");
    let source = format!(
        "#include <stdio.h>\n#include \"cuzarr.h\"\n_Static_assert(CUZARR_STREAM_READY == SIZE_MAX, \"all bits\");\n\
         int main(void)\n{{\n{}    printf(\"%s %d.%d.%d\\n\", cuzarr_version(), CUZARR_VERSION_MAJOR, CUZARR_VERSION_MINOR, \
         CUZARR_VERSION_PATCH);\n    return 0;\n}}\n",
        statuses.iter().map(print).collect::<String>()
    );
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("constants.c"), folder.path().join("constants"));
    std::fs::write(&file, source).unwrap();
    compile(&file, &program, &[]);
    let printed = succeed(&mut Command::new(&program));
    let mut lines: Vec<(&str, &str)> = printed.lines().filter_map(|line| line.split_once(' ')).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines.pop(), Some((version, version)));
    assert!(lines.iter().all(|(constant, name)| screaming(name) == *constant), "{lines:?}");
    let named: BTreeSet<&str> = lines.iter().map(|(_, name)| *name).collect();
    let kinds = ErrorKind::ALL.iter().map(|kind| kind.name());
    assert_eq!(named, kinds.chain(["Ok", "Other", "Panicked"]).collect());
}

#[test]
fn the_library_offers_what_the_header_declares_each_with_a_version() {
    if !has("nm") || !has("gcc") {
        return;
    }
    let printed = succeed(
        Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library().join("libcuzarr.so")),
    );
    let offered: BTreeSet<&str> = printed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let declared: Vec<String> = functions().iter().map(|(name, _)| format!("{name}@@CUZARR_0.1")).collect();
    assert!(declared.len() > 35, "{declared:?}");
    assert_eq!(offered, declared.iter().map(String::as_str).chain(["CUZARR_0.1"]).collect());
}

#[test]
fn the_fortran_module_has_the_functions_and_constants_of_the_header() {
    let module = std::fs::read_to_string(crate_folder().join("fortran/cuzarr.f90")).unwrap().replace("&\n", "");
    for line in header().lines().filter(|line| line.trim().starts_with("CUZARR_STATUS_")) {
        let constant = line.trim().trim_end_matches(',');
        assert!(
            module.lines().any(|line| line.ends_with(&format!(":: {constant}"))),
            "{constant} is not in the module"
        );
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, parameters) in functions() {
        let declared = format!(" {name}({}) bind(c)", parameters.join(", "));
        assert!(
            module.lines().any(|line| words(line).contains(declared.trim_start())),
            "{declared} is not in the module"
        );
        assert!(
            module.matches(&format!("{name},")).count() + module.matches(&format!("{name}\n")).count() >= 2,
            "{name} is private"
        );
    }
}
