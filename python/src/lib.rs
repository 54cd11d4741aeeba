//! The Rust side of the Python package `cuzarr`: arrays, stores and memory, as the module `cuzarr._core`. The package that Python
//! programs see is written in Python on top of it.

mod array;
mod arrow;
mod carrier;
mod chunk_grid;
mod codecs;
mod copy;
mod decoder;
mod encoder;
mod error;
mod expr;
mod foreign;
mod helper;
mod identity;
mod interrupt;
mod json;
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

use std::path::PathBuf;

use cuzarr_cli::{MadeTable, PythonFound, PythonPackage, TableRequest};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

/// The names of all kinds of errors that Rust can raise.
#[pyfunction]
fn error_kinds() -> Vec<&'static str> {
    cuzarr::ErrorKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// Sets where to look for NVIDIA's libraries and the shipped kernels. It loads nothing.
#[pyfunction]
fn set_library_paths(libraries: Vec<PathBuf>, cubins: Option<PathBuf>) {
    cuzarr_device::set_library_search_paths(libraries);
    cuzarr_device::set_cubin_directory(cubins);
}

/// The known name that is nearest to a wrong one.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over lists of its own")]
fn nearest(name: &str, known: Vec<String>) -> Option<String> {
    cuzarr::nearest(name, known.iter().map(String::as_str)).map(str::to_string)
}

/// Name, purpose, version and requirement of a package, and whether it is of use only where there is a GPU.
type Package = (String, String, Option<String>, String, bool);

/// Runs the `cuzarr` command with these arguments (the first is its name) and returns its exit status. `make_references` takes the
/// fields of a `TableRequest` and gives those of a `MadeTable`. `find_packages` gives name, purpose, version and requirement of each package
/// that cuzarr works with. It is only called when they are shown.
#[pyfunction]
#[pyo3(signature = (arguments, make_references=None, find_packages=None))]
fn cli(
    py: Python<'_>,
    arguments: Vec<std::ffi::OsString>,
    make_references: Option<Py<PyAny>>,
    find_packages: Option<Py<PyAny>>,
) -> i32 {
    let Some(callable) = make_references else { return py.detach(|| cuzarr_cli::main(arguments)) };
    let find_packages = || {
        Python::attach(|py| {
            let found = find_packages.as_ref().map(|find| find.call0(py)?.extract::<Vec<Package>>(py)).transpose();
            let package = |(name, purpose, version, requirement, needs_gpu)| PythonPackage {
                name,
                purpose,
                version,
                requirement,
                needs_gpu,
            };
            // What cannot be found out is not shown.
            let packages = found.ok().flatten().unwrap_or_default().into_iter().map(package).collect();
            let version = py.version_info();
            let version = format!("{}.{}.{}", version.major, version.minor, version.patch);
            PythonFound { version, packages }
        })
    };
    let make_references = |request: &TableRequest<'_>| {
        Python::attach(|py| {
            let TableRequest { files, join, drop, strict, storage_options } = *request;
            let options = storage_options.to_vec().into_py_dict(py)?;
            let made = callable.call1(py, (files.to_vec(), join, drop.to_vec(), strict, options))?;
            made.extract::<(String, Vec<(String, String, String)>, Vec<String>)>(py)
        })
        .map(|(text, left_out, urls)| MadeTable { text, left_out, urls })
        .map_err(|exception| Python::attach(|py| error::of_command(py, &exception)))
    };
    py.detach(|| {
        cuzarr_cli::main_in_python(
            arguments,
            &cuzarr_cli::Python { make_references: &make_references, find_packages: &find_packages },
        )
    })
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
    use super::expr::PyExpr;
    #[pymodule_export]
    use super::json::plain_json;
    #[pymodule_export]
    use super::memory::{memory_info, memory_of_arrays, reset_memory_peak, set_allocator, trim_memory};
    #[pymodule_export]
    use super::metadata::{
        PyArrayMetadata, default_codecs, describe_v3, fill_to_element, fill_to_json, new_array, words_v3,
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
    use super::{cli, error_kinds, nearest, set_library_paths};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::codecs::install();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
