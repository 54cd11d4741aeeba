//! The Rust side of the Python package `cuzarr`: arrays, stores and memory, as the module `cuzarr._core`. The public
//! package is written in Python on top of it.

mod array;
mod arrow;
mod carrier;
mod chunk_grid;
mod codecs;
mod copy;
mod decoder;
mod encoder;
mod ending;
mod error;
mod expr;
mod foreign;
mod identity;
mod interrupt;
mod json;
mod many;
mod memory;
mod metadata;
mod module;
mod names;
mod ndbuffer;
mod nodes;
mod pipeline;
mod replies;
mod selection;
mod store;
mod strings;
mod update;
mod watch;
mod writer;

use std::path::PathBuf;

use cuzarr::config::{Config, ConfigValue};
use cuzarr_cli::{LeftOut, MadeTable, PythonFound, PythonPackage, TableRequest};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::ending::Unlocked;

/// Returns the names of all error kinds that Rust can raise.
#[pyfunction]
fn error_kinds() -> Vec<&'static str> {
    cuzarr::ErrorKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// Returns the defaults of the library's settings by key.
#[pyfunction]
fn config_defaults(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let defaults = PyDict::new(py);
    for setting in Config::new().settings() {
        match &setting.value {
            ConfigValue::Automatic => defaults.set_item(setting.name, py.None())?,
            ConfigValue::Flag(flag) => defaults.set_item(setting.name, flag)?,
            ConfigValue::Number(number) => defaults.set_item(setting.name, number)?,
            ConfigValue::Word(word) => defaults.set_item(setting.name, word)?,
        }
    }
    Ok(defaults)
}

/// Sets where cuzarr searches for NVIDIA's libraries and for the shipped kernels. Loads nothing.
#[pyfunction]
fn set_library_paths(libraries: Vec<PathBuf>, cubins: Option<PathBuf>) {
    cuzarr_device::set_library_search_paths(libraries);
    cuzarr_device::set_cubin_directory(cubins);
}

/// Returns the name in `known` that is most similar to a misspelt one.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over lists of its own")]
fn nearest(name: &str, known: Vec<String>) -> Option<String> {
    cuzarr::internal::nearest(name, known.iter().map(String::as_str)).map(str::to_string)
}

/// A Python package that cuzarr works with, with the attributes of `cuzarr.__main__.Package`.
#[derive(FromPyObject)]
struct Package {
    name: String,
    purpose: String,
    version: Option<String>,
    requirement: String,
    needs_gpu: bool,
}

/// A table of references to chunks in other files, which Python made: it has the attributes of
/// `cuzarr.references.table.Table`.
#[derive(FromPyObject)]
struct Table {
    text: String,
    left_out: Vec<LeftOutOfTable>,
    urls: Vec<String>,
}

/// A variable of a file that could not be put into a table of references, and the reason.
#[derive(FromPyObject)]
struct LeftOutOfTable {
    file: String,
    path: String,
    reason: String,
}

/// Runs the command `cuzarr` with these arguments (the first is its name) and returns its exit status.
/// `make_references` takes the fields of a `TableRequest` and returns a `Table`, because only Python reads HDF5 files.
/// `packages` are shown by the command `doctor`.
#[pyfunction]
#[pyo3(signature = (arguments, make_references=None, packages=Vec::new()))]
fn cli(
    py: Python<'_>,
    arguments: Vec<std::ffi::OsString>,
    make_references: Option<Py<PyAny>>,
    packages: Vec<Package>,
) -> i32 {
    let Some(callable) = make_references else { return py.unlocked(|| cuzarr_cli::main(arguments)) };
    let make_references = |request: &TableRequest<'_>| {
        Python::attach(|py| made_table(py, &callable, request).map_err(|exception| error::of_command(py, &exception)))
    };
    let package = |Package { name, purpose, version, requirement, needs_gpu }| PythonPackage {
        name,
        purpose,
        version,
        requirement,
        needs_gpu,
    };
    let version = py.version_info();
    let found = PythonFound {
        version: format!("{}.{}.{}", version.major, version.minor, version.patch),
        packages: packages.into_iter().map(package).collect(),
    };
    py.unlocked(|| {
        let python = cuzarr_cli::Python { make_references: &make_references, found };
        cuzarr_cli::main_in_python(arguments, &python)
    })
}

/// Makes a table of references by Python's `make_references`.
fn made_table(py: Python<'_>, make_references: &Py<PyAny>, request: &TableRequest<'_>) -> PyResult<MadeTable> {
    let TableRequest { files, join, drop, strict, storage_options } = *request;
    let options = storage_options.to_vec().into_py_dict(py)?;
    let made = make_references.call1(py, (files.to_vec(), join, drop.to_vec(), strict, options))?;
    let Table { text, left_out, urls } = made.extract(py)?;
    let left_out = left_out.into_iter().map(|LeftOutOfTable { file, path, reason }| LeftOut { file, path, reason });
    Ok(MadeTable { text, left_out: left_out.collect(), urls })
}

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::array::{PyArray, check_unchanged};
    #[pymodule_export]
    use super::chunk_grid::{PyAxisGrid, PyChunkGrid, choose_chunks};
    #[pymodule_export]
    use super::copy::{PyCheckpoint, PyCopy, PyPyramid, copy_elements, copy_region, refuse_overlap, region_shape};
    #[pymodule_export]
    use super::decoder::{PyDecoder, PyDecoderBatch};
    #[pymodule_export]
    use super::encoder::{PyEncoder, PyEncoderBatch};
    #[pymodule_export]
    use super::ending::begin_end;
    #[pymodule_export]
    use super::expr::PyExpr;
    #[pymodule_export]
    use super::json::plain_json;
    #[pymodule_export]
    use super::many::{explain_many, read_many, resize_many, write_many};
    #[pymodule_export]
    use super::memory::{memory_info, memory_of_arrays, reset_memory_peak, set_allocator, trim_memory};
    #[pymodule_export]
    use super::metadata::{
        PyArrayMetadata, default_codecs, describe_v3, fill_to_element, fill_to_json, multiscales, new_array, words_v3,
    };
    #[pymodule_export]
    use super::module::{PyElementwiseKernel, PyFunction, PyUserModule};
    #[pymodule_export]
    use super::names::compressors_named;
    #[pymodule_export]
    use super::ndbuffer::PyNdBuffer;
    #[pymodule_export]
    use super::nodes::{
        PyConsolidated, PyNewNodes, PyNodeLock, consolidate, find_node, find_nodes, lay_out_node, walk_nodes,
    };
    #[pymodule_export]
    use super::pipeline::{PyChunkRequest, PyChunkStore, PyChunks, PyStartedRead, has_codec};
    #[pymodule_export]
    use super::replies::PyChunkReply;
    #[pymodule_export]
    use super::selection::PySelection;
    #[pymodule_export]
    use super::store::{PyStore, PyZipArchive};
    #[pymodule_export]
    use super::update::PyUpdate;
    #[pymodule_export]
    use super::watch::PyWatch;
    #[pymodule_export]
    use super::writer::PyWriter;
    #[pymodule_export]
    use super::{cli, config_defaults, error_kinds, nearest, set_library_paths};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::codecs::install();
        // Remembers the process, so that forked children know that they are some.
        cuzarr_device::is_forked();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
