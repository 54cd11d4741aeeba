//! A number that kernels and the host share stands in the kernels' text, and Rust reads it there
//! (`cuzarr_device::internal::defined`). These tests look for numbers that are written on both sides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cuzarr_device::internal::defined;

/// Rust constants that are allowed to have the number of a kernel's and a word of its name: file, and name.
const ALLOWED: &[(&str, &str)] = &[
    // How many groups a multiprocessor has, not how many blocks a warp decodes.
    ("codec/zstd/cuda.rs", "GROUPS_BESIDE"),
    // How many warps a group has, not the kind of a block.
    ("codec/zstd/cuda.rs", "WARPS_PER_BLOCK"),
    // An alignment, not how many literals a thread copies by itself.
    ("codec/zstd/table.rs", "LITERALS_ALIGNMENT_BYTES"),
    // How zstd's kernels read sequences, not how LZ's copy bytes.
    ("codec/lz/find/mod.rs", "ENTRIES_TOGETHER"),
    // Parts of a batch whose marks take turns, not those of a segment that the match finder chooses in.
    ("codec/lz/mod.rs", "MOST_PARTS"),
    // Room of a list, not an alignment.
    ("codec/batch/headers/cuda.rs", "PIECES_PER_FRAME"),
];

/// Words that say nothing about what a number is.
const EMPTY_WORDS: &[&str] = &["BYTES", "MOST", "EACH", "CUZARR", "SIZE"];

struct Number {
    name: String,
    value: u32,
}

/// The value of an expression that names nothing else.
fn literal(expression: &str) -> Option<u32> {
    let expression = expression.split("//").next().unwrap().replace('_', "");
    let is_literal = expression.starts_with(|c: char| c.is_ascii_digit() || c == '(')
        && expression.chars().all(|c| c.is_ascii_hexdigit() || " xul()<*+-/".contains(c));
    let text = format!("#define NUMBER {}\n", expression.trim());
    // Numbers of more than 32 bits are left out: kernels have them in loops alone.
    if is_literal { std::panic::catch_unwind(|| defined(&text, "NUMBER")).ok() } else { None }
}

/// `name value` behind `before` in a line, up to `until`.
fn stated<'a>(line: &'a str, before: &str, between: &str, until: char) -> Option<(&'a str, &'a str)> {
    let (name, value) = line.split_once(before)?.1.split_once(between)?;
    Some((name, value.split(until).next()?))
}

/// The numbers of a kernel's text: definitions, constants outside of functions, and sizes of structures.
fn kernel_numbers(text: &str) -> Vec<Number> {
    let definitions = text.lines().filter(|line| line.starts_with("#define CUZARR_"));
    let definitions = definitions.filter_map(|line| {
        let (name, value) = stated(line, "#define ", " ", '\n')?;
        Some(Number { name: name.into(), value: literal(value).filter(|_| !name.contains('('))? })
    });
    let constants = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("const u32 ")?.split_once(" = ")?;
        Some(Number { name: name.into(), value: literal(value.split([';', ',']).next()?)? })
    });
    let sizes = text.split("sizeof(").skip(1).filter_map(|rest| {
        let (name, value) = rest.split_once(") == ")?;
        let value = value.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()?;
        // `DeflateRegion` becomes `DEFLATE_REGION`.
        let split = |c: char| if c.is_uppercase() { format!("_{c}") } else { c.to_uppercase().to_string() };
        name.chars().all(char::is_alphanumeric).then(|| Number { name: name.chars().map(split).collect(), value })
    });
    definitions.chain(constants).chain(sizes).collect()
}

/// The constants of a Rust file that are written as numbers.
fn host_numbers(text: &str) -> Vec<Number> {
    let constants = text.lines().filter_map(|line| {
        let (name, typed) = line.split_once("const ")?.1.split_once(": ")?;
        let value = literal(typed.split_once(" = ")?.1.split(';').next()?)?;
        Some(Number { name: name.into(), value })
    });
    constants.collect()
}

/// Rust constants that repeat a kernel's number: of one value, with a word in common.
fn repeated(kernel: &[Number], host: &[Number]) -> Vec<String> {
    let words = |name: &str| -> Vec<String> {
        name.split('_').filter(|word| word.len() > 3 && !EMPTY_WORDS.contains(word)).map(String::from).collect()
    };
    let of = |own: &Number| {
        let same = kernel.iter().find(|other| {
            other.value == own.value && words(&other.name).iter().any(|word| words(&own.name).contains(word))
        });
        same.map(|other| format!("{} = {} is {} of a kernel", own.name, own.value, other.name))
    };
    host.iter().filter_map(of).collect()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
}

/// The folder below `codec`, `ops` or `cuzarr-compute/src` that a file belongs to; the shared headers' is empty.
fn room(path: &Path) -> String {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    let compute = names.iter().position(|name| name == "cuzarr-compute").map(|at| at + 1);
    let at = names.iter().position(|name| name == "codec" || name == "ops").or(compute);
    at.map_or(String::new(), |at| names[at..names.len() - 1].iter().take(2).cloned().collect::<Vec<_>>().join("/"))
}

/// Lines that read a kernel's text when the program runs: they are not part of a constant or an enumeration.
fn read_too_late(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let reads = |line: &str| ["defined(", "stated_size("].iter().any(|call| line.contains(call));
    let is_constant = |at: usize| {
        let begin =
            lines[..=at].iter().rev().find(|line| ["const ", "enum ", "fn "].iter().any(|word| line.contains(word)));
        begin.is_some_and(|line| !line.contains("fn ") || line.contains("const fn "))
    };
    (0..lines.len()).filter(|&at| reads(lines[at]) && !is_constant(at)).map(|at| at + 1).collect()
}

#[test]
fn numbers_are_read_when_the_program_is_compiled() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    ["cuzarr/src", "cuzarr-device/src", "cuzarr-compute/src"]
        .iter()
        .for_each(|folder| files(&crates.join(folder), &mut all));
    all.retain(|path| path.extension().is_some_and(|found| found == "rs") && !path.ends_with("kernel/defined.rs"));
    let of = |path: &PathBuf| read_too_late(&std::fs::read_to_string(path).unwrap());
    let wrong = all.iter().flat_map(|path| of(path).into_iter().map(move |line| format!("{}:{line}", path.display())));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new(), "put these into constants");
    assert_eq!(read_too_late("const A: u32 =\n    defined(B);\nfn f() -> u32 {\n    defined(B)\n}\n"), [4]);
}

#[test]
fn no_number_stands_in_a_kernel_and_in_rust() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for folder in ["cuzarr/src/codec", "cuzarr-compute/src", "cuzarr-device/src", "cuzarr-device/kernels/include"] {
        files(&crates.join(folder), &mut all);
    }
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let ends = |path: &&PathBuf, ending: &str| path.extension().is_some_and(|found| found == ending);
    let mut kernels: BTreeMap<String, Vec<Number>> = BTreeMap::new();
    for path in all.iter().filter(|path| ends(path, "cu") || ends(path, "cuh")) {
        kernels.entry(room(path)).or_default().extend(kernel_numbers(&text(path)));
    }
    assert!(kernels.values().map(Vec::len).sum::<usize>() > 100);
    let mut wrong = Vec::new();
    for path in all.iter().filter(|path| ends(path, "rs")) {
        let of_room = [room(path), String::new()].into_iter().filter_map(|room| kernels.get(&room));
        let is_allowed = |found: &String| {
            ALLOWED.iter().any(|(file, name)| path.ends_with(file) && found.split(' ').next() == Some(*name))
        };
        let found = of_room.flat_map(|numbers| repeated(numbers, &host_numbers(&text(path))));
        wrong.extend(found.filter(|found| !is_allowed(found)).map(|found| format!("{}: {found}", path.display())));
    }
    assert!(wrong.is_empty(), "read these by cuzarr_device::internal::defined or stated_size:\n{}", wrong.join("\n"));
}

#[test]
fn planted_repetitions_are_found() {
    let kernel = "#define CUZARR_LZ_TILE (8u << 10)  // bytes\nstatic_assert(sizeof(LzChain) == 64, \"\");\n";
    let found = |host| repeated(&kernel_numbers(kernel), &host_numbers(host));
    assert_eq!(
        found("pub(crate) const TILE_BYTES: usize = 8 << 10;"),
        ["TILE_BYTES = 8192 is CUZARR_LZ_TILE of a kernel"]
    );
    assert_eq!(found("const CHAIN_BYTES: usize = 64;"), ["CHAIN_BYTES = 64 is _LZ_CHAIN of a kernel"]);
    let constant = kernel_numbers("const u32 TILE_ROWS = 256;\n    const u32 OWN = 4;\n");
    assert_eq!(
        repeated(&constant, &host_numbers("const ROWS: usize = 256;\nconst OWN: u32 = 4;")),
        ["ROWS = 256 is TILE_ROWS of a kernel"]
    );
    let read = "const TILE_BYTES: usize = defined(TEXT, \"CUZARR_LZ_TILE\") as usize;";
    for other in ["const TILE_BYTES: usize = 4 << 10;", "const SLOT_BYTES: usize = 8 << 10;", read] {
        assert_eq!(found(other), Vec::<String>::new(), "{other}");
    }
}
