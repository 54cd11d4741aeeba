//! Where machine code comes from: shipped with the package, kept on disk, or compiled now.
//!
//! A cubin's key is the SHA-256 of a format number, the flags, the source and every header. Shipped cubins are named
//! `<source>-<key>.sm_<arch>.cubin` and listed with their own hashes in `MANIFEST.sha256` (as `sha256sum` writes it), so
//! finding them needs no compiler, and a stale or damaged one is simply not found. `scripts/compile_kernels.py` computes the
//! same key; a test compares the two.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use sha2::{Digest, Sha256};

use super::nvrtc::Nvrtc;
use crate::error::Result;
use crate::kernel::KernelSource;

/// Headers that kernels may include, in the order of their names.
pub(crate) const HEADERS: &[(&str, &str)] = &[
    ("cuzarr/elements.cuh", include_str!("../../kernels/include/cuzarr/elements.cuh")),
    ("cuzarr/kernel.cuh", include_str!("../../kernels/include/cuzarr/kernel.cuh")),
    ("cuzarr/regions.cuh", include_str!("../../kernels/include/cuzarr/regions.cuh")),
];

/// Flags beside the architecture. No fused multiply-add: the CPU rounds after each step, and so must the GPU.
pub(crate) const FLAGS: &[&str] = &["--std=c++17", "--fmad=false"];

const KEY_FORMAT: &str = "cuzarr-cubin-1";
const CACHE_MAGIC: &[u8; 8] = b"czcubin1";

static DIRECTORY: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Says where the cubins that came with the package are. `CUZARR_CUBIN_DIR` goes before it.
pub fn set_cubin_directory(directory: Option<PathBuf>) {
    *DIRECTORY.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = directory;
}

/// The folder of shipped cubins, if one was named.
pub(crate) fn shipped_directory() -> Option<PathBuf> {
    let named = std::env::var_os("CUZARR_CUBIN_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| DIRECTORY.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
}

/// The folder where compiled kernels are kept: `CUZARR_CACHE_DIR`, else `kernels` in the user's cache folder for cuzarr.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = named("CUZARR_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|cache| cache.join("cuzarr")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/cuzarr")))?;
    Some(base.join("kernels"))
}

/// Machine code, and where it was found.
pub(crate) struct Found {
    pub(crate) bytes: Vec<u8>,
    pub(crate) origin: String,
}

/// What decides the machine code of a source, architecture and compiler aside.
pub(crate) fn key(source: &KernelSource) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(KEY_FORMAT);
    add(&FLAGS.join(" "));
    add(source.text);
    for (name, text) in HEADERS {
        add(name);
        add(text);
    }
    hex(&hash.finalize()[..16])
}

/// Machine code that exists already for a GPU of `capability`, best first: shipped, then kept on disk.
pub(crate) fn candidates(source: &KernelSource, capability: (u32, u32)) -> impl Iterator<Item = Found> {
    let key = key(source);
    let name = source.name;
    let shipped = shipped_directory();
    // Code for an older minor version of the same major runs, too.
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

/// Compiles a source now, and keeps the result on disk.
pub(crate) fn compile(source: &KernelSource, capability: (u32, u32)) -> Result<Vec<u8>> {
    let mut flags: Vec<String> = FLAGS.iter().map(|flag| flag.to_string()).collect();
    flags.push(format!("--gpu-architecture=sm_{}{}", capability.0, capability.1));
    let cubin = Nvrtc::get()?.compile(source.name, source.text, HEADERS, &flags)?;
    if let Some(file) = cache_file(source.name, &key(source), capability) {
        // A cache that cannot be written costs time, not the answer.
        let _ = write_cached(&file, &cubin);
    }
    Ok(cubin)
}

fn read_shipped(directory: &Path, file: &str) -> Option<Found> {
    let manifest = std::fs::read_to_string(directory.join("MANIFEST.sha256")).ok()?;
    let expected = manifest.lines().find_map(|line| line.strip_suffix(file)?.split_whitespace().next())?;
    let path = directory.join(file);
    let bytes = std::fs::read(&path).ok()?;
    (hex(&Sha256::digest(&bytes)) == expected).then(|| Found { bytes, origin: path.display().to_string() })
}

/// The cache's file for a kernel; none without a compiler, since its version is part of the name.
fn cache_file(name: &str, key: &str, capability: (u32, u32)) -> Option<PathBuf> {
    let (major, minor) = Nvrtc::get().and_then(Nvrtc::version).ok()?;
    let file = format!("{name}-{key}.sm_{}{}.nvrtc-{major}.{minor}", capability.0, capability.1);
    Some(cache_directory()?.join(file))
}

/// Reads a kept cubin; one that is damaged, or that somebody else could have put there, is as good as none.
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
    // Readers see the whole file or none.
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

/// Whether only this user can write the folder. Code is loaded from it, so anything else is not trusted.
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
