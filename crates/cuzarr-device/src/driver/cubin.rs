//! Finds the machine code of kernels: in the package, in the cache on disk, or by compiling them.
//!
//! A cubin's key is the SHA-256 of a format number, the flags, the source and every header that it includes. Shipped
//! cubins are named `<source>-<key>.sm_<arch>.cubin`. Their own hashes are listed in `MANIFEST.sha256`, in the format
//! of `sha256sum`. So no compiler is needed to find a cubin, and a stale or damaged one is ignored.
//! `scripts/compile_kernels.py` computes the same key; a test compares the two.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use sha2::{Digest, Sha256};

use crate::driver::nvrtc::{Compiled, Job, Nvrtc};
use crate::driver::source::{Header, KernelSource, STATUS_HEADER};
use crate::error::{Error, ErrorKind, Result};

/// Headers in `kernels/include`, which every kernel may include.
const SHARED: &[Header] = &[
    Header { name: "cuzarr/checksum.cuh", text: include_str!("../../kernels/include/cuzarr/checksum.cuh") },
    Header { name: "cuzarr/elements.cuh", text: include_str!("../../kernels/include/cuzarr/elements.cuh") },
    Header { name: "cuzarr/kernel.cuh", text: include_str!("../../kernels/include/cuzarr/kernel.cuh") },
    Header { name: "cuzarr/lines.cuh", text: include_str!("../../kernels/include/cuzarr/lines.cuh") },
    Header { name: "cuzarr/nan.cuh", text: include_str!("../../kernels/include/cuzarr/nan.cuh") },
    Header { name: "cuzarr/planes.cuh", text: include_str!("../../kernels/include/cuzarr/planes.cuh") },
    Header { name: "cuzarr/regions.cuh", text: include_str!("../../kernels/include/cuzarr/regions.cuh") },
    Header { name: "cuzarr/search.cuh", text: include_str!("../../kernels/include/cuzarr/search.cuh") },
    STATUS_HEADER,
    Header { name: "cuzarr/warp.cuh", text: include_str!("../../kernels/include/cuzarr/warp.cuh") },
];

/// The header that stands in for CUDA on the simulated device `simt`. Only `kernel.cuh` includes it, and
/// only when it is compiled for the CPU.
const SIMT_HEADER: &str = "simt.h";

/// Returns the headers that a text includes, directly or through other headers, sorted by name.
///
/// # Errors
/// `KernelCompileFailed` for a header that is neither shared nor among `own`.
pub(crate) fn included(text: &str, own: &[&[Header]]) -> Result<Vec<Header>> {
    match reached(text, own) {
        (headers, None) => Ok(headers),
        (_, Some(name)) => {
            let message = format!("a kernel includes '{name}', which is not among its source's headers");
            Err(Error::new(ErrorKind::KernelCompileFailed, message))
        }
    }
}

/// Like [`included`], but returns the name of an unknown header instead of an error.
fn reached<'a>(text: &'a str, own: &[&[Header]]) -> (Vec<Header>, Option<&'a str>) {
    let (mut found, mut unknown): (BTreeMap<&str, Header>, _) = (BTreeMap::new(), None);
    let mut texts = vec![text];
    while let Some(text) = texts.pop() {
        let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.split('"').next());
        for name in names.filter(|name| *name != SIMT_HEADER && !found.contains_key(name)).collect::<Vec<_>>() {
            match own.iter().copied().flatten().chain(SHARED).find(|header| header.name == name) {
                Some(header) => {
                    found.insert(header.name, *header);
                    texts.push(header.text);
                }
                None => unknown = Some(name),
            }
        }
    }
    (found.into_values().collect(), unknown)
}

/// Flags with which kernels are compiled to machine code, except the flag that names the GPU's architecture. Fused
/// multiply-add is off: the CPU rounds after each step, and the GPU must give the same values.
pub(crate) const FLAGS: &[&str] = &["--std=c++17", "--fmad=false"];

const KEY_FORMAT: &str = "cuzarr-cubin-2";
const CACHE_MAGIC: &[u8; 8] = b"czcubin1";

static DIRECTORY: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Sets the folder of the cubins that came with the package. The variable `CUZARR_CUBIN_DIR` takes precedence.
pub fn set_cubin_directory(directory: Option<PathBuf>) {
    *DIRECTORY.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = directory;
}

/// The folder of shipped cubins, if one was set.
pub(crate) fn shipped_directory() -> Option<PathBuf> {
    let named = std::env::var_os("CUZARR_CUBIN_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| DIRECTORY.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
}

/// The folder of compiled kernels: `kernels` in `CUZARR_CACHE_DIR`, else in the user's cache folder for cuzarr.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = named("CUZARR_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|cache| cache.join("cuzarr")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/cuzarr")))?;
    Some(base.join("kernels"))
}

/// Machine code for a kernel, and where it was found.
pub(crate) struct Found {
    pub(crate) bytes: Vec<u8>,
    pub(crate) origin: String,
}

/// The hash of everything that determines the machine code of a source, except architecture and compiler.
pub(crate) fn key(source: &KernelSource, headers: &[Header]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(KEY_FORMAT);
    add(&FLAGS.join(" "));
    add(source.text);
    for header in headers {
        add(header.name);
        add(header.text);
    }
    hex(&hash.finalize()[..16])
}

/// Existing machine code of a kernel source for a GPU of `capability`, best first: shipped cubins, then the cache on
/// disk.
pub(crate) fn candidates(
    source: &KernelSource,
    headers: &[Header],
    capability: (u32, u32),
) -> impl Iterator<Item = Found> + use<> {
    let key = key(source, headers);
    let name = source.name;
    let shipped = shipped_directory();
    // Code for an older minor version of the same major version also runs.
    let minors = (0..=capability.1).rev();
    let shipped = minors.filter_map({
        let key = key.clone();
        move |minor| {
            let file = format!("{name}-{key}.sm_{}{minor}.cubin", capability.0);
            read_shipped(shipped.as_deref()?, &file)
        }
    });
    shipped.chain(std::iter::once_with(move || read_cached(&cache_file(name, &key, capability)?)).flatten())
}

/// Compiles a kernel source, and keeps the machine code on disk.
pub(crate) fn compile(source: &KernelSource, headers: &[Header], capability: (u32, u32)) -> Result<Vec<u8>> {
    let mut flags: Vec<String> = FLAGS.iter().map(|flag| flag.to_string()).collect();
    flags.push(format!("--gpu-architecture=sm_{}{}", capability.0, capability.1));
    let file = format!("{}.cu", source.name);
    let job = Job { file: &file, text: source.text, headers, flags: &flags, name_expression: None };
    let cubin = Nvrtc::get()?.compile(&job)?.cubin;
    if let Some(file) = cache_file(source.name, &key(source, headers), capability) {
        // Failing to write the cache costs time, but the result is right.
        let _ = write_cached(&file, &cubin);
    }
    Ok(cubin)
}

/// The CUDA C++ text of a user's kernels, and the headers that it may include.
#[derive(Clone, Copy)]
pub(crate) struct UserText<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    pub(crate) options: &'a [String],
    pub(crate) own: &'a [&'a [Header]],
}

/// Compiles a user's CUDA C++ text for a GPU of `capability`, or returns the machine code that an earlier call kept on
/// disk. The text may include our shared headers, those of `own`, and those of the compiler's own installation, if it
/// has any.
///
/// # Errors
/// `LibraryMissing`, `KernelCompileFailed`.
pub(crate) fn compile_user(
    UserText { file, text, options, own }: UserText<'_>,
    name_expression: Option<&str>,
    capability: (u32, u32),
) -> Result<Compiled> {
    let nvrtc = Nvrtc::get()?;
    let mut flags = options.to_vec();
    if !options.iter().any(|flag| flag.contains("gpu-architecture") || flag.starts_with("-arch")) {
        flags.push(format!("--gpu-architecture=sm_{}{}", capability.0, capability.1));
    }
    flags.extend(nvrtc.include_folders().iter().map(|folder| format!("--include-path={}", folder.display())));
    // Other headers are found by the compiler, or reported as missing.
    let (headers, _) = reached(text, own);
    let mut hash = Sha256::new();
    for part in [KEY_FORMAT, file, text, name_expression.unwrap_or_default()]
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .chain(headers.iter().map(|header| header.text))
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    // A text that includes the user's own files may mean something else tomorrow, so it is not kept.
    let is_closed = !options.iter().any(|flag| flag.starts_with("-I") || flag.starts_with("--include-path"));
    let kept = cache_file("user", &hex(&hash.finalize()[..16]), capability).filter(|_| is_closed);
    if let Some(found) = kept.as_deref().and_then(read_cached) {
        let end = found.bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        let lowered_name = name_expression.map(|_| String::from_utf8_lossy(&found.bytes[..end]).into_owned());
        return Ok(Compiled { cubin: found.bytes[(end + 1).min(found.bytes.len())..].to_vec(), lowered_name });
    }
    let compiled = nvrtc.compile(&Job { file, text, headers: &headers, flags: &flags, name_expression })?;
    if let Some(path) = kept {
        let name = compiled.lowered_name.as_deref().unwrap_or_default();
        let _ = write_cached(&path, &[name.as_bytes(), &[0], &compiled.cubin].concat());
    }
    Ok(compiled)
}

fn read_shipped(directory: &Path, file: &str) -> Option<Found> {
    let manifest = std::fs::read_to_string(directory.join("MANIFEST.sha256")).ok()?;
    let expected = manifest.lines().find_map(|line| line.strip_suffix(file)?.split_whitespace().next())?;
    let path = directory.join(file);
    let bytes = std::fs::read(&path).ok()?;
    (hex(&Sha256::digest(&bytes)) == expected).then(|| Found { bytes, origin: path.display().to_string() })
}

/// Path of a kernel's machine code in the cache; `None` without a compiler, whose version is part of the name.
fn cache_file(name: &str, key: &str, capability: (u32, u32)) -> Option<PathBuf> {
    let (major, minor) = Nvrtc::get().and_then(Nvrtc::version).ok()?;
    let file = format!("{name}-{key}.sm_{}{}.nvrtc-{major}.{minor}", capability.0, capability.1);
    Some(cache_directory()?.join(file))
}

/// Reads a cubin from the cache; `None` if it is damaged, or if another user could have put it there.
fn read_cached(path: &Path) -> Option<Found> {
    if !is_private(path.parent()?) {
        return None;
    }
    let file = std::fs::read(path).ok()?;
    let (head, bytes) = file.split_at_checked(CACHE_MAGIC.len() + 32)?;
    let intact = head.starts_with(CACHE_MAGIC) && head[CACHE_MAGIC.len()..] == *Sha256::digest(bytes);
    intact.then(|| Found { bytes: bytes.to_vec(), origin: path.display().to_string() })
}

fn write_cached(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    create_private(folder)?;
    if !is_private(folder) {
        return Ok(());
    }
    let unique = format!(".{}-{:?}.tmp", std::process::id(), std::thread::current().id());
    let temporary = folder.join(unique.replace(['(', ')'], ""));
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(CACHE_MAGIC)?;
        file.write_all(&Sha256::digest(cubin))?;
        file.write_all(cubin)
    });
    // Readers see the whole file or no file.
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

#[cfg(unix)]
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Whether only this user can write to a folder that keeps compiled kernels. Code is loaded from it, so other folders
/// are not trusted.
#[cfg(unix)]
fn is_private(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").map(|process| process.uid());
    match (std::fs::metadata(folder), own) {
        (Ok(folder), Ok(own)) => folder.is_dir() && folder.uid() == own && folder.mode() & 0o022 == 0,
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_private(folder: &Path) -> bool {
    folder.is_dir()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    static SOURCE: KernelSource =
        KernelSource { name: "copy", text: include_str!("../ops/transfer/copy.cu"), headers: &[] };

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cuzarr-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        create_private(&folder).unwrap();
        folder
    }

    #[test]
    fn a_kept_cubin_is_read_back_unless_damaged() {
        let folder = folder("kept");
        let file = folder.join("copy-key.sm_90.nvrtc-12.9");
        assert!(read_cached(&file).is_none());
        write_cached(&file, b"machine code").unwrap();
        assert_eq!(read_cached(&file).unwrap().bytes, b"machine code");
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, &damaged).unwrap();
            assert!(read_cached(&file).is_none(), "byte {at}");
            std::fs::write(&file, &whole[..at]).unwrap();
            assert!(read_cached(&file).is_none(), "cut at {at}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_can_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("open");
        let file = folder.join("kernel");
        write_cached(&file, b"machine code").unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read_cached(&file).is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_shipped_cubin_is_read_only_as_its_manifest_says() {
        let folder = folder("shipped");
        let bytes = b"machine code";
        std::fs::write(folder.join("copy.cubin"), bytes).unwrap();
        assert!(read_shipped(&folder, "copy.cubin").is_none());
        std::fs::write(folder.join("MANIFEST.sha256"), format!("{}  copy.cubin\n", hex(&Sha256::digest(bytes))))
            .unwrap();
        assert_eq!(read_shipped(&folder, "copy.cubin").unwrap().bytes, bytes);
        std::fs::write(folder.join("copy.cubin"), b"other code").unwrap();
        assert!(read_shipped(&folder, "copy.cubin").is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_header_is_embedded_in_the_order_of_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/include/cuzarr");
        let files = std::fs::read_dir(root).unwrap().flatten();
        let mut names: Vec<String> =
            files.map(|file| format!("cuzarr/{}", file.file_name().to_str().unwrap())).collect();
        names.sort();
        assert_eq!(SHARED.iter().map(|header| header.name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_kernel_carries_the_headers_that_it_includes_and_no_others() {
        const OWN: &[Header] = &[
            Header { name: "own/inner.cuh", text: "#include \"cuzarr/search.cuh\"\n" },
            Header { name: "own/outer.cuh", text: "#include \"own/inner.cuh\"\n" },
            Header { name: "own/unused.cuh", text: "" },
        ];
        let found = included("// a kernel\n#include \"own/outer.cuh\"\n", &[OWN]).unwrap();
        let names: Vec<&str> = found.iter().map(|header| header.name).collect();
        assert_eq!(names, ["cuzarr/kernel.cuh", "cuzarr/search.cuh", "own/inner.cuh", "own/outer.cuh"]);
        let error = included("#include \"own/other.cuh\"\n", &[OWN]).unwrap_err();
        assert!(error.message().contains("own/other.cuh"), "{error}");
    }

    #[test]
    fn what_the_compiler_makes_is_machine_code() {
        if let Err(error) = Nvrtc::get() {
            println!("skipped: no NVRTC: {}", error.message());
            return;
        }
        for capability in [(7, 5), (8, 0), (9, 0)] {
            let headers = included(SOURCE.text, SOURCE.headers).unwrap();
            let cubin = compile(&SOURCE, &headers, capability).unwrap();
            assert!(cubin.starts_with(b"\x7fELF"));
        }
        static BROKEN: KernelSource =
            KernelSource { name: "broken", text: "__global__ void broken() { nonsense; }", headers: &[] };
        let error = compile(&BROKEN, &[], (9, 0)).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::KernelCompileFailed);
        assert!(error.message().contains("nonsense"), "{error}");
    }

    #[test]
    fn the_script_that_ships_cubins_computes_the_same_key() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/compile_kernels.py");
        // The script must not run under the sanitizers that this process may have preloaded.
        let mut command = std::process::Command::new("python3");
        let Ok(output) = command.arg(script).arg("--keys").env_remove("LD_PRELOAD").output() else {
            println!("skipped: no python3");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let headers = included(SOURCE.text, SOURCE.headers).unwrap();
        assert!(words.lines().any(|line| line == format!("copy {}", key(&SOURCE, &headers))), "{words}");
    }
}
