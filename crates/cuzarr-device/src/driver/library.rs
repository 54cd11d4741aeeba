//! Finds and opens optional libraries at run time: the CUDA driver, NVRTC, cuFile and others.
//!
//! Nothing here initialises CUDA. A library is searched for in this order: the environment variable that names it, the
//! folders of [`set_library_search_paths`] (the Python package passes `site-packages/nvidia/*/lib`), `CUDA_HOME` and
//! `CUDA_PATH`, `/usr/local/cuda`, and last the dynamic linker's own search.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use libloading::Library;

use crate::error::{Error, ErrorKind, Result};

static SEARCH_PATHS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Sets the folders in which CUDA's libraries are searched for. Replaces those of an earlier call.
///
/// Give the folders that hold the libraries themselves (`…/nvidia/cuda_nvrtc/lib`) or `site-packages/nvidia`, whose
/// `*/lib` are then searched.
pub fn set_library_search_paths(paths: Vec<PathBuf>) {
    let mut folders = Vec::new();
    for path in paths {
        let children = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let mut nested: Vec<PathBuf> =
            children.map(|entry| entry.path().join("lib")).filter(|lib| lib.is_dir()).collect();
        nested.sort();
        folders.push(path);
        folders.append(&mut nested);
    }
    *SEARCH_PATHS.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = folders;
}

/// Folders in which CUDA's libraries are searched for, most specific first.
pub(crate) fn search_folders() -> Vec<PathBuf> {
    let mut folders = SEARCH_PATHS.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    for home in homes.chain([PathBuf::from("/usr/local/cuda")]) {
        folders.extend(["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| home.join(folder)));
    }
    folders
}

/// A library that was found and opened, and its path.
pub(crate) struct Found {
    pub(crate) library: Library,
    pub(crate) path: PathBuf,
}

/// Opens the first of the libraries `names` that can be opened.
///
/// # Errors
/// `LibraryMissing`, with the names and a cause, when none can be opened. Also when the environment variable names a
/// wrong file: the user's choice is never silently replaced.
pub(crate) fn open(variable: &str, names: &[&str]) -> Result<Found> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return open_path(Path::new(&path)).map_err(|cause| {
            let message = format!("{variable} names {}, which cannot be opened: {cause}", Path::new(&path).display());
            Error::new(ErrorKind::LibraryMissing, message).with_hint(format!("correct or unset {variable}"))
        });
    }
    let mut last_cause = None;
    for folder in search_folders() {
        for name in names {
            let path = folder.join(name);
            if path.is_file() {
                match open_path(&path) {
                    Ok(found) => return Ok(found),
                    Err(cause) => last_cause = Some(format!("{}: {cause}", path.display())),
                }
            }
        }
    }
    for name in names {
        match open_path(Path::new(name)) {
            Ok(found) => return Ok(found),
            Err(cause) => last_cause = last_cause.or(Some(cause.to_string())),
        }
    }
    let cause = last_cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    Err(Error::new(ErrorKind::LibraryMissing, format!("found none of {}{cause}", names.join(", "))))
}

/// Opens the library at a path.
///
/// # Errors
/// `LibraryMissing`
pub(crate) fn open_at(path: &str) -> Result<Library> {
    let opened = open_path(Path::new(path));
    opened.map(|found| found.library).map_err(|cause| Error::new(ErrorKind::LibraryMissing, format!("{path}: {cause}")))
}

fn open_path(path: &Path) -> std::result::Result<Found, libloading::Error> {
    // SAFETY: these are the vendor's libraries, or what the user named in their place; their initialisers touch nothing
    // of this crate, and the handle is kept for the life of the process.
    let library = unsafe { Library::new(OsString::from(path)) }?;
    Ok(Found { library, path: path.to_path_buf() })
}

/// Returns the address of a function in `library`, as the function type `F`.
///
/// # Safety
/// `F` is the type of that function.
pub(crate) unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller promises the type; the library is never closed.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    match found {
        Ok(function) => Ok(*function),
        Err(_) => Err(Error::new(ErrorKind::LibraryMissing, format!("the library lacks {name}, so it is too old"))
            .with_hint("update the NVIDIA driver")),
    }
}
