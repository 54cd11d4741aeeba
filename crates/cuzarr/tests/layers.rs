//! The shape of the house, checked: which room may see which, who may call the driver, where `unsafe` may stand.
//!
//! The sources are cut into tokens (comments, strings and test modules left out), every path that starts with `crate`,
//! `self` or `super` is resolved to the room it reaches, and an arrow that points up is a failure. A token scanner is
//! enough: what it cannot see (a macro that builds paths) is not written here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms of `cuzarr`, lowest first; rooms of one level do not see each other.
const LEVELS: &[&[&str]] = &[
    &["error", "setters"],
    &["cancellation", "config"],
    &["meta", "store"],
    &["codec"],
    &["plan"],
    &["run"],
    &["node"],
    &["display", "open"],
    &["internal", "prelude"],
];

/// The rooms of `cuzarr-device`, lowest first.
const DEVICE_LEVELS: &[&[&str]] = &[
    &["c_layout", "error", "lock", "process"],
    &["device", "threads"],
    &["driver"],
    &["event"],
    &["stream"],
    &["memory"],
    &["array", "kernel"],
    &["ops"],
    &["interop", "probe"],
];

/// The rooms of `cuzarr-compute`, lowest first.
const COMPUTE_LEVELS: &[&[&str]] = &[
    &["checkpoint", "progress", "regions", "spatial"],
    &["unfinished"],
    &["copy", "options"],
    &["expression", "pyramid"],
    &["program"],
    &["elementwise", "stream"],
    &["reduce"],
    &["count"],
    &["histogram", "quantile", "statistics"],
    &["decoded"],
    &["parse"],
];

/// What a room may not name, and why. A needle is a path as it is written, `a::b`.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("meta", &["std::fs", "std::net", "std::thread"], "metadata is values, without input and output"),
    ("meta", &["Buffer", "NdBuffer", "Stream", "Threads"], "metadata touches no device"),
    ("plan", &["std::fs", "std::net", "std::thread"], "a plan does nothing"),
    ("plan", &["Buffer", "NdBuffer", "Stream", "Threads"], "a plan touches no device"),
    ("plan", &["dyn Store", "StoreExt", "LocalStore", "MemoryStore"], "a plan reads nothing"),
    ("codec", &["dyn Store", "StoreExt", "LocalStore", "MemoryStore"], "codecs never see a key"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// Identifiers and punctuation (`::` as one token) of Rust source; comments, literals and lifetimes are dropped.
fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    let get = |index: usize| chars.get(index).copied().unwrap_or('\0');
    while at < chars.len() {
        let start = at;
        match get(at) {
            '/' if get(at + 1) == '/' => at += chars[at..].iter().take_while(|&&c| c != '\n').count(),
            '/' if get(at + 1) == '*' => at = end_of_block_comment(&chars, at),
            '"' => at = end_of_string(&chars, at),
            '\'' => at = end_of_quote(&chars, at),
            c if c.is_alphabetic() || c == '_' => {
                at += chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
                let text: String = chars[start..at].iter().collect();
                match raw_string_hashes(&text, &chars, at) {
                    Some(hashes) => at = end_of_raw_string(&chars, at, hashes),
                    None if text == "b" && get(at) == '"' => {}
                    None => found.push(Token { text, line }),
                }
            }
            ':' if get(at + 1) == ':' => {
                found.push(Token { text: "::".into(), line });
                at += 2;
            }
            c => {
                if !c.is_whitespace() {
                    found.push(Token { text: c.into(), line });
                }
                at += 1;
            }
        }
        line += chars[start..at.min(chars.len())].iter().filter(|&&c| c == '\n').count();
    }
    found
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// After a character literal, or after the quote of a lifetime (whose name then is a harmless identifier).
fn end_of_quote(chars: &[char], start: usize) -> usize {
    if chars.get(start + 1) == Some(&'\\') {
        return start + 3 + chars[(start + 3).min(chars.len())..].iter().take_while(|&&c| c != '\'').count() + 1;
    }
    if chars.get(start + 2) == Some(&'\'') { start + 3 } else { start + 1 }
}

/// How many `#` open the raw string that follows the prefix `text`, if one does.
fn raw_string_hashes(text: &str, chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|&&c| c == '#').count();
    (matches!(text, "r" | "br" | "cr") && chars.get(at + hashes) == Some(&'"')).then_some(hashes)
}

fn end_of_raw_string(chars: &[char], start: usize, hashes: usize) -> usize {
    let mut at = start + hashes + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// The index after the item that starts at `at` (attributes, then everything up to `;` or a closed brace).
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && tokens[at].text == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

fn texts_at(tokens: &[Token], at: usize, expected: &[&str]) -> bool {
    expected.iter().enumerate().all(|(i, text)| tokens.get(at + i).is_some_and(|token| token.text == *text))
}

const CFG_TEST: &[&str] = &["#", "[", "cfg", "(", "test", ")", "]"];

/// The tokens that are not test-only, and the names of test-only modules that live in files of their own.
fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if texts_at(tokens, at, CFG_TEST) {
            let end = end_of_item(tokens, at + CFG_TEST.len());
            let item = &tokens[at..end];
            if let Some(name) = (0..item.len()).find(|&i| texts_at(item, i, &["mod"]) && texts_at(item, i + 2, &[";"]))
            {
                modules.push(item[name + 1].text.clone());
            }
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    (kept, modules)
}

/// A source file: its module path inside its crate, and its tokens outside tests.
struct Source {
    path: PathBuf,
    module: Vec<String>,
    tokens: Vec<Token>,
}

/// Module path of a file below `src`: `codec/zstd/mod.rs` is `codec::zstd`.
fn module_of(relative: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Parses files; those that are test-only modules of another one are left out.
fn sources(files: impl IntoIterator<Item = (PathBuf, Vec<String>, String)>) -> Vec<Source> {
    let (mut found, mut test_modules) = (Vec::new(), BTreeSet::new());
    for (path, module, text) in files {
        let (tokens, modules) = without_tests(&tokens(&text));
        for name in modules {
            test_modules.insert([module.as_slice(), &[name]].concat());
        }
        found.push(Source { path, module, tokens });
    }
    found.retain(|source| !(0..=source.module.len()).any(|n| test_modules.contains(&source.module[..n])));
    found
}

/// The sources of a crate that lies beside this one, or of this one.
fn library(name: &str) -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let found = sources(rust_files(&src).into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = module_of(path.strip_prefix(&src).unwrap());
        (path, module, text)
    }));
    assert!(found.len() > 2, "no sources below {}", src.display());
    found
}

/// Every leaf path of the use-tree (or plain path) that starts at `at`.
fn leaves(tokens: &[Token], at: &mut usize, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*at) {
        match token.text.as_str() {
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| token.text != "}") {
                    leaves(tokens, at, &path, found);
                    while tokens.get(*at).is_some_and(|token| !matches!(token.text.as_str(), "," | "}")) {
                        *at += 1; // `as name`
                    }
                    if texts_at(tokens, *at, &[","]) {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "*" => {
                *at += 1;
                break;
            }
            text if text.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(text.into());
                *at += 1;
            }
            _ => break,
        }
        if !texts_at(tokens, *at, &["::"]) {
            break;
        }
        *at += 1;
    }
    found.push(path);
}

/// Every path inside the crate that a file names, absolute, with its line.
fn inner_paths(source: &Source) -> Vec<(Vec<String>, usize)> {
    let tokens = &source.tokens;
    let (mut found, mut at) = (Vec::new(), 0);
    // Inline modules shift what `super` means: their names, with the brace depth they opened at.
    let (mut depth, mut inline): (usize, Vec<(String, usize)>) = (0, Vec::new());
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "mod" if texts_at(tokens, at + 2, &["{"]) => inline.push((tokens[at + 1].text.clone(), depth)),
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, opened)| *opened < depth);
            }
            start @ ("crate" | "self" | "super") if texts_at(tokens, at + 1, &["::"]) => {
                let mut base: Vec<String> = Vec::new();
                if start != "crate" {
                    base.extend(source.module.iter().cloned().chain(inline.iter().map(|(name, _)| name.clone())));
                }
                let line = tokens[at].line;
                while texts_at(tokens, at, &["super", "::"]) {
                    base.pop();
                    at += 2;
                }
                if matches!(tokens[at].text.as_str(), "crate" | "self") {
                    at += 2;
                }
                let mut paths = Vec::new();
                leaves(tokens, &mut at, &base, &mut paths);
                found.extend(paths.into_iter().map(|path| (path, line)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Names that `lib.rs` re-exports, with the room they come from.
fn root_exports(sources: &[Source], levels: Levels) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for root in sources.iter().filter(|source| source.module.is_empty()) {
        for start in (0..root.tokens.len()).filter(|&i| texts_at(&root.tokens, i, &["pub", "use"])) {
            let (mut at, mut paths) = (start + 2, Vec::new());
            leaves(&root.tokens, &mut at, &[], &mut paths);
            for path in paths.into_iter().filter(|path| level_of(levels, &path[0]).is_some()) {
                exports.insert(path[path.len() - 1].clone(), path[0].clone());
            }
        }
    }
    exports
}

/// Rooms by level, lowest first.
type Levels = &'static [&'static [&'static str]];

fn level_of(levels: Levels, room: &str) -> Option<usize> {
    levels.iter().position(|rooms| rooms.contains(&room))
}

/// Every arrow that points up or sideways, as a sentence.
fn upward_arrows(sources: &[Source], levels: Levels) -> Vec<String> {
    let exports = root_exports(sources, levels);
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        let from = &source.module[0];
        let place = |line: usize| format!("{}:{line}", source.path.display());
        let Some(level) = level_of(levels, from) else {
            wrong.push(format!("{}: '{from}' is not a room of the house", place(1)));
            continue;
        };
        for (path, line) in inner_paths(source) {
            let Some(first) = path.first() else { continue };
            let to = if level_of(levels, first).is_some() { first } else { exports.get(first).unwrap_or(first) };
            match level_of(levels, to) {
                Some(below) if to == from || below < level => {}
                Some(_) => wrong.push(format!("{}: '{from}' must not see '{to}' ({})", place(line), path.join("::"))),
                None => wrong.push(format!("{}: '{}' is in no room of the house", place(line), path.join("::"))),
            }
        }
    }
    wrong
}

/// What each public name of a module stands for: `pub use array::Array` in `node`.
fn re_exports(sources: &[Source]) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut exports = BTreeMap::new();
    for Source { module, tokens, .. } in sources {
        for start in
            (1..tokens.len()).filter(|&at| tokens[at].text == "use" && ["pub", ")"].contains(&&*tokens[at - 1].text))
        {
            let (mut at, mut base, mut paths) = (start + 1, module.clone(), Vec::new());
            while let Some(first @ ("crate" | "self" | "super")) = tokens.get(at).map(|token| &*token.text) {
                base.truncate(if first == "crate" { 0 } else { base.len() - usize::from(first == "super") });
                at += 2;
            }
            leaves(tokens, &mut at, &base, &mut paths);
            for path in paths {
                exports.insert([&module[..], &path[path.len() - 1..]].concat(), path);
            }
        }
    }
    exports
}

/// The circles of files that import each other, by the names of their modules. A module and those inside it count as one: what
/// they take from each other is no arrow.
fn circles(sources: &[Source]) -> BTreeSet<Vec<String>> {
    let exports = re_exports(sources);
    let file_of = |mut path: Vec<String>| {
        // A re-export may lead to another one.
        for _ in 0..4 {
            if let Some((n, to)) = (1..=path.len()).find_map(|n| Some((n, exports.get(&path[..n])?))) {
                path = [&to[..], &path[n..]].concat();
            }
        }
        (0..=path.len()).rev().find_map(|n| sources.iter().position(|source| source.module == path[..n]))
    };
    let arrows: Vec<BTreeSet<usize>> = sources
        .iter()
        .map(|source| {
            let reached = inner_paths(source).into_iter().filter_map(|(path, _)| file_of(path));
            let is_inside = |a: &Source, b: &Source| a.module.starts_with(&b.module);
            reached.filter(|&to| !is_inside(&sources[to], source) && !is_inside(source, &sources[to])).collect()
        })
        .collect();
    let reached_from = |from: usize| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(arrows[at].iter().filter(|to| reached.insert(**to)));
        }
        reached
    };
    let reached: Vec<_> = (0..sources.len()).map(reached_from).collect();
    let circle = |at: usize| {
        let together = (0..sources.len()).filter(|&to| reached[at].contains(&to) && reached[to].contains(&at));
        together.map(|to| sources[to].module.join("::")).collect()
    };
    (0..sources.len()).filter(|at| reached[*at].contains(at)).map(circle).collect()
}

/// Where `needle` (`a::b`, `dyn Store`, or a name) stands in the tokens: line numbers.
fn mentions(tokens: &[Token], needle: &str) -> Vec<usize> {
    let wanted: Vec<Token> = self::tokens(needle);
    let wanted: Vec<&str> = wanted.iter().map(|token| token.text.as_str()).collect();
    (0..tokens.len()).filter(|&at| texts_at(tokens, at, &wanted)).map(|at| tokens[at].line).collect()
}

fn forbidden_names(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        for (room, needles, why) in
            FORBIDDEN.iter().filter(|(room, ..)| source.module.first().is_some_and(|m| m == room))
        {
            for needle in *needles {
                for line in mentions(&source.tokens, needle) {
                    wrong.push(format!("{}:{line}: '{room}' names {needle}: {why}", source.path.display()));
                }
            }
        }
    }
    wrong
}

/// The workspace's own Rust files, from its root: crates and the Python package's crate.
fn workspace() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = rust_files(&root.join("crates"));
    files.extend(rust_files(&root.join("python/src")));
    files
        .into_iter()
        .map(|path| (path.strip_prefix(&root).unwrap().to_path_buf(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

/// The files of the device layer, of the C interface and of the Python package's crate that hold `unsafe`, exactly.
const UNSAFE_FILES: &[&str] = &[
    "crates/cuzarr-c/src/array.rs",
    "crates/cuzarr-c/src/cancellation.rs",
    "crates/cuzarr-c/src/dlpack.rs",
    "crates/cuzarr-c/src/error.rs",
    "crates/cuzarr-c/src/group.rs",
    "crates/cuzarr-c/src/handle.rs",
    "crates/cuzarr-c/src/memory.rs",
    "crates/cuzarr-device/src/array/elements.rs",
    "crates/cuzarr-device/src/array/writer.rs",
    "crates/cuzarr-device/src/c_layout.rs",
    "crates/cuzarr-device/src/driver/backend.rs",
    "crates/cuzarr-device/src/driver/cublas.rs",
    "crates/cuzarr-device/src/driver/cuda/driver.rs",
    "crates/cuzarr-device/src/driver/cuda/functions.rs",
    "crates/cuzarr-device/src/driver/cuda/mod.rs",
    "crates/cuzarr-device/src/driver/cuda/pools.rs",
    "crates/cuzarr-device/src/driver/cufile.rs",
    "crates/cuzarr-device/src/driver/library.rs",
    "crates/cuzarr-device/src/driver/nvrtc.rs",
    "crates/cuzarr-device/src/driver/nvtx.rs",
    "crates/cuzarr-device/src/driver/simt.rs",
    "crates/cuzarr-device/src/event.rs",
    "crates/cuzarr-device/src/interop/array_interface.rs",
    "crates/cuzarr-device/src/interop/dlpack/export.rs",
    "crates/cuzarr-device/src/interop/dlpack/import.rs",
    "crates/cuzarr-device/src/interop/dlpack/mod.rs",
    "crates/cuzarr-device/src/kernel/mod.rs",
    "crates/cuzarr-device/src/kernel/module.rs",
    "crates/cuzarr-device/src/memory/buffer.rs",
    "crates/cuzarr-device/src/memory/copy.rs",
    "crates/cuzarr-device/src/memory/direct_file.rs",
    "crates/cuzarr-device/src/memory/host_block.rs",
    "crates/cuzarr-device/src/memory/host_bytes.rs",
    "crates/cuzarr-device/src/memory/lease.rs",
    "crates/cuzarr-device/src/memory/pinned.rs",
    "crates/cuzarr-device/src/memory/pool/budget.rs",
    "crates/cuzarr-device/src/memory/pool/lent.rs",
    "crates/cuzarr-device/src/memory/pool/mod.rs",
    "crates/cuzarr-device/src/memory/pool/pooled.rs",
    "crates/cuzarr-device/src/memory/residency.rs",
    "crates/cuzarr-device/src/memory/slab/forward.rs",
    "crates/cuzarr-device/src/memory/slab/mod.rs",
    "crates/cuzarr-device/src/memory/slab/piece.rs",
    "crates/cuzarr-device/src/ops/bits/cuda.rs",
    "crates/cuzarr-device/src/ops/checksum/cuda.rs",
    "crates/cuzarr-device/src/ops/compare/cpu.rs",
    "crates/cuzarr-device/src/ops/compare/cuda.rs",
    "crates/cuzarr-device/src/ops/convert/cuda.rs",
    "crates/cuzarr-device/src/ops/copy/mod.rs",
    "crates/cuzarr-device/src/ops/delta/cuda.rs",
    "crates/cuzarr-device/src/ops/downsample/cuda.rs",
    "crates/cuzarr-device/src/ops/gather/cuda.rs",
    "crates/cuzarr-device/src/ops/ranges/cuda.rs",
    "crates/cuzarr-device/src/ops/lanes.rs",
    "crates/cuzarr-device/src/ops/launch.rs",
    "crates/cuzarr-device/src/ops/math.rs",
    "crates/cuzarr-device/src/ops/matmul/cuda.rs",
    "crates/cuzarr-device/src/ops/nonzero/cuda.rs",
    "crates/cuzarr-device/src/ops/scan/cuda.rs",
    "crates/cuzarr-device/src/ops/shuffle/cpu.rs",
    "crates/cuzarr-device/src/ops/shuffle/cuda.rs",
    "crates/cuzarr-device/src/ops/sort/cuda.rs",
    "crates/cuzarr-device/src/ops/strided/mod.rs",
    "crates/cuzarr-device/src/ops/transfer/cpu.rs",
    "crates/cuzarr-device/src/ops/transfer/cuda.rs",
    "crates/cuzarr-device/src/ops/transfer/mod.rs",
    "crates/cuzarr-device/src/process.rs",
    "crates/cuzarr-device/src/stream.rs",
    "crates/cuzarr-device/src/threads/scope.rs",
    "crates/cuzarr/tests/run_length/cuda.rs",
    "python/src/arrow.rs",
    "python/src/decoder.rs",
    "python/src/encoder.rs",
    "python/src/foreign.rs",
    "python/src/memory.rs",
    "python/src/module.rs",
    "python/src/ndbuffer.rs",
    "python/src/replies.rs",
];

/// Whether `unsafe` may stand in the file: one of those above, a file that launches kernels, or a test of the device layer.
fn may_be_unsafe(path: &Path) -> bool {
    UNSAFE_FILES.iter().any(|file| path == Path::new(file))
        || ["tests", "examples"].iter().any(|folder| path.starts_with(format!("crates/cuzarr-device/{folder}")))
        || (["cuzarr/src/codec", "cuzarr-compute/src"].iter().any(|room| path.starts_with(format!("crates/{room}")))
            && path.file_name().is_some_and(|name| name == "cuda.rs"))
}

/// The statics that hold a mutex of their own, and why a forked child never waits for it.
const STATIC_LOCKS: [(&str, &str); 2] = [
    ("crates/cuzarr-cli/src/interrupt.rs", "the command never forks"),
    ("python/src/identity.rs", "its holders hold Python's lock, as the thread that forks does"),
];

/// Where statics hold a mutex, which another thread may hold when the process is forked, and that is not the process's
/// own (`PerProcess`): line numbers.
fn static_locks(tokens: &[Token]) -> Vec<usize> {
    let is_name = |token: &Token| token.text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let starts = (0..tokens.len().saturating_sub(2))
        .filter(|&at| tokens[at].text == "static" && is_name(&tokens[at + 1]) && tokens[at + 2].text == ":");
    let of = |at: usize| tokens[at..].iter().take_while(|token| token.text != "=" && token.text != ";");
    let names = |at: usize, name: &str| of(at).any(|token| token.text == name);
    let is_lock = |&at: &usize| (names(at, "Mutex") || names(at, "Condvar")) && !names(at, "PerProcess");
    starts.filter(is_lock).map(|at| tokens[at].line).collect()
}

fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} found:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rooms_see_only_rooms_below_them() {
    report(&upward_arrows(&library("cuzarr"), LEVELS));
}

#[test]
fn rooms_of_the_device_layer_see_only_rooms_below_them() {
    report(&upward_arrows(&library("cuzarr-device"), DEVICE_LEVELS));
}

#[test]
fn rooms_of_computing_see_only_rooms_below_them() {
    report(&upward_arrows(&library("cuzarr-compute"), COMPUTE_LEVELS));
}

#[test]
fn files_import_each_other_in_no_circle() {
    let libraries = ["cuzarr-device", "cuzarr", "cuzarr-compute", "cuzarr-remote", "cuzarr-cli", "cuzarr-c"];
    let found = libraries.iter().flat_map(|name| circles(&library(name)));
    report(&found.map(|circle| circle.join(", ")).collect::<Vec<_>>());
}

#[test]
fn rooms_keep_to_their_work() {
    report(&forbidden_names(&library("cuzarr")));
}

#[test]
fn only_the_device_layer_calls_the_driver() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wrong = Vec::new();
    for (path, text) in workspace().iter().filter(|(path, _)| !path.starts_with("crates/cuzarr-device")) {
        for name in ["cudarc", "libloading"] {
            let found = mentions(&tokens(text), name);
            wrong.extend(found.iter().map(|line| format!("{}:{line}: names {name}", path.display())));
        }
    }
    for manifest in [
        "crates/cuzarr/Cargo.toml",
        "crates/cuzarr-remote/Cargo.toml",
        "crates/cuzarr-compute/Cargo.toml",
        "crates/cuzarr-cli/Cargo.toml",
        "crates/cuzarr-c/Cargo.toml",
        "python/Cargo.toml",
    ] {
        let text = std::fs::read_to_string(root.join(manifest)).unwrap();
        let dependencies = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        wrong.extend(
            dependencies
                .filter(|line| line.starts_with("cudarc") || line.starts_with("libloading"))
                .map(|line| format!("{manifest}: {line}")),
        );
    }
    report(&wrong);
}

#[test]
fn the_device_layer_knows_no_zarr() {
    let mut wrong = Vec::new();
    for (path, text) in workspace().iter().filter(|(path, _)| path.starts_with("crates/cuzarr-device")) {
        let found = mentions(&tokens(text), "cuzarr::");
        wrong.extend(found.iter().map(|line| format!("{}:{line}: names the crate above", path.display())));
    }
    report(&wrong);
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let mut wrong = Vec::new();
    for (path, text) in workspace().iter().filter(|(path, _)| !may_be_unsafe(path)) {
        let found = mentions(&tokens(text), "unsafe");
        wrong.extend(found.iter().map(|line| format!("{}:{line}: unsafe", path.display())));
    }
    let stands = |file: &&&str| {
        let found = workspace().into_iter().find(|(path, _)| path == Path::new(file));
        found.is_some_and(|(_, text)| !mentions(&tokens(&text), "unsafe").is_empty())
    };
    wrong
        .extend(UNSAFE_FILES.iter().filter(|file| !stands(file)).map(|file| format!("{file}: listed, without unsafe")));
    report(&wrong);
}

#[test]
fn a_forked_child_waits_for_no_lock_of_its_parent() {
    let mut wrong = Vec::new();
    for (path, text) in workspace() {
        let is_program =
            ["tests", "examples"].iter().any(|folder| path.components().any(|part| part.as_os_str() == *folder));
        let found = static_locks(&without_tests(&tokens(&text)).0);
        let listed = STATIC_LOCKS.iter().any(|(file, _)| path == Path::new(file));
        match (listed, found.is_empty()) {
            (true, true) => wrong.push(format!("{}: listed, without a static lock", path.display())),
            (false, false) if !is_program => {
                wrong.extend(found.iter().map(|line| format!("{}:{line}: a static mutex", path.display())));
            }
            _ => {}
        }
    }
    report(&wrong);
}

/// A small house of its own, so that each check is seen to find what it is for.
fn planted(files: &[(&str, &str)]) -> Vec<Source> {
    let root =
        ("lib.rs", "mod error; pub mod meta; pub mod plan; pub use error::{Error, Result}; pub use node::Array;");
    sources(
        std::iter::once(&root)
            .chain(files)
            .map(|(path, text)| (PathBuf::from(path), module_of(Path::new(path)), text.to_string())),
    )
}

#[test]
fn planted_upward_arrows_are_found() {
    for (path, text) in [
        ("meta/v2.rs", "use crate::codec::Chain;"),
        ("meta/v2.rs", "use crate::{error::Error, plan::{Plan as P}};"),
        ("meta/v2.rs", "fn f() { let a = super::super::run::engine(); }"),
        ("meta/v2.rs", "fn f(a: &crate::Array) {}"),
        ("meta/mod.rs", "use super::store::Key;"),
        ("plan/mod.rs", "mod inner { use super::super::run::Engine; }"),
        ("error.rs", "use crate::config::Config;"),
        ("meta/mod.rs", "fn f() { crate::nowhere(); }"),
        ("attic.rs", "fn f() {}"),
    ] {
        assert_eq!(upward_arrows(&planted(&[(path, text)]), LEVELS).len(), 1, "{path}: {text}");
    }
}

#[test]
fn downward_arrows_tests_and_comments_pass() {
    let files = [
        ("plan/mod.rs", "use crate::{Error, Result, meta::ArrayMetadata}; use self::boxes::Region; mod boxes;"),
        ("plan/boxes.rs", "use super::Plan; /* crate::run */ // crate::node\nconst A: &str = \"crate::run::x\";"),
        ("plan/quotes.rs", "fn f<'a>(c: char) { let _ = ('{', '\\'', r#\"crate::run::\"x\"#, b\"crate::run::y\"); }"),
        ("meta/mod.rs", "#[cfg(test)] mod tests { use crate::node::Array; }\n#[cfg(test)]\nmod battery;"),
        ("meta/battery.rs", "use crate::node::Array;"),
    ];
    assert_eq!(upward_arrows(&planted(&files), LEVELS), Vec::<String>::new());
}

#[test]
fn planted_circles_are_found() {
    let files = [
        ("plan/mod.rs", "pub use read::Plan; mod read; mod walk;"),
        ("plan/read.rs", "use super::walk::Walk; use self::units::Unit;"),
        ("plan/read/units.rs", "use super::Plan;"),
        ("plan/walk.rs", "use crate::plan::Plan;"),
        ("plan/whole.rs", "use super::walk::Walk;"),
    ];
    assert_eq!(circles(&planted(&files)), BTreeSet::from([vec!["plan::read".to_owned(), "plan::walk".to_owned()]]));
}

#[test]
fn planted_names_are_found() {
    let files = [
        ("plan/mod.rs", "use std::fs::File;\nuse cuzarr_device::{Device, NdBuffer};"),
        ("codec/mod.rs", "fn f(store: &dyn Store) {}"),
        ("run/mod.rs", "use std::fs::File;"),
    ];
    let found = forbidden_names(&planted(&files));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("plan/mod.rs:1:") && found[1].starts_with("plan/mod.rs:2:"), "{found:?}");
    let lines = mentions(&tokens("// unsafe\nfn f() {\n    unsafe { g(\"unsafe\") }\n}"), "unsafe");
    assert_eq!(lines, [3]);
}

#[test]
fn planted_static_locks_are_found() {
    let text = "static A: Mutex<u8> = Mutex::new(0);\nstatic B: PerProcess<Mutex<u8>> = PerProcess::new();\n\
        fn f(a: &'static Mutex<u8>) {\n    static C: std::sync::Condvar = Condvar::new();\n}\n\
        static D: OnceLock<Mutex<u8>> = OnceLock::new();\n#[cfg(test)]\nmod tests { static E: Mutex<u8> = x(); }";
    assert_eq!(static_locks(&without_tests(&tokens(text)).0), [1, 4, 6]);
}

#[test]
fn unsafe_may_stand_in_launch_files_alone() {
    let may = |path| may_be_unsafe(Path::new(path));
    assert!(
        may("crates/cuzarr-device/src/ops/transfer/cpu.rs")
            && !may("crates/cuzarr-device/src/device.rs")
            && may("crates/cuzarr/src/codec/zstd/cuda.rs")
    );
    assert!(may("crates/cuzarr-compute/src/program/cuda.rs") && !may("crates/cuzarr-compute/src/stream/job.rs"));
    assert!(!may("crates/cuzarr/src/codec/zstd/cpu.rs") && !may("crates/cuzarr/src/run/cuda.rs"));
}
