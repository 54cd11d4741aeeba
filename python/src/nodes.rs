//! Finds, lists, consolidates and stores the documents of arrays and groups for Python. Python makes objects of them.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::internal::node::{self, FoundNode, Lookup};
use cuzarr::meta::{Consolidated, NodeDocuments, ZarrFormat};
use cuzarr::node::{Consolidation, NodeLock, StoredNode};
use cuzarr::{Error, ErrorKind, ResultExt};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ending::Unlocked;
use crate::error::{self, IntoPython, PyResult};
use crate::interrupt::{interruptible, looking};
use crate::json::{self, Names};
use crate::metadata::PyArrayMetadata;
use crate::store::PyStore;
use crate::watch::Watches;

/// A node that was found: an array's metadata, or a group's documents by name; the metadata consolidated below it; and
/// warnings.
type Found<'py> = (Bound<'py, PyAny>, Option<PyConsolidated>, Vec<String>);

/// The metadata of all nodes below a group, from the group's consolidated metadata. Documents are parsed when they are
/// needed.
#[pyclass(name = "Consolidated", module = "cuzarr._core", frozen)]
pub struct PyConsolidated(Consolidated);

#[pymethods]
impl PyConsolidated {
    /// The paths of all nodes in the consolidated metadata.
    fn paths(&self) -> Vec<&str> {
        self.0.paths().collect()
    }

    /// Whether the node at a path is an array; `None` if the consolidated metadata has no such node.
    fn is_array(&self, path: &str) -> Option<bool> {
        self.0.is_array(path)
    }

    /// The metadata of the array at a path, or a group's documents by name; `None` if the consolidated metadata has no
    /// such node.
    fn documents<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let place = || format!("consolidated metadata of '{path}'");
        let Some(node) = self.0.documents(path).at(place).py()? else { return Ok(None) };
        node_to_python(py, &node.alone()).map(Some)
    }
}

/// Finds the array or group at a path of a store. `zarr_format` `None` means either format. `arrays` chooses arrays
/// (`True`), groups (`False`) or either (`None`). `use_consolidated` says whether consolidated metadata must (`True`),
/// may (`None`) or must not (`False`) be used. A string is the key of the metadata that must be used.
#[pyfunction]
pub fn find_node<'py>(
    py: Python<'py>,
    store: &PyStore,
    path: String,
    zarr_format: Option<u8>,
    arrays: Option<bool>,
    use_consolidated: &Bound<'_, PyAny>,
    max_bytes: u64,
) -> PyResult<Option<Found<'py>>> {
    let consolidation = parse_consolidation(use_consolidated)?;
    let cancellation = Watches::current().token();
    let format = zarr_format.map(format);
    let lookup = Lookup { format, arrays, consolidation, max_bytes, cancellation };
    let inner = Arc::clone(&store.inner);
    let (is_far, token) = (inner.capabilities().far, lookup.cancellation.clone());
    let found = looking(py, is_far, &token, move || node::find_documents(&*inner, &path, &lookup))?;
    found.map(|found| to_python(py, &found)).transpose()
}

/// Lists the nodes below a group with their documents, each group before its members. Returns at most `most` nodes,
/// down to `max_depth` levels below the direct members. With `use_consolidated`, a group comes with its consolidated
/// metadata, if it has any, and its members are left out.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python hands over each setting by itself")]
pub fn walk_nodes<'py>(
    py: Python<'py>,
    store: &PyStore,
    path: String,
    zarr_format: u8,
    max_depth: Option<usize>,
    most: Option<usize>,
    use_consolidated: bool,
    max_bytes: u64,
) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let consolidation = if use_consolidated { Consolidation::WhenPresent } else { Consolidation::Never };
    let cancellation = Watches::current().token();
    let lookup = Lookup { consolidation, max_bytes, cancellation, ..Lookup::default() };
    let store = Arc::clone(&store.inner);
    let (is_far, token) = (store.capabilities().far, lookup.cancellation.clone());
    let walk = move || node::walk_documents(&*store, &path, format(zarr_format), max_depth, most, &lookup);
    let nodes = if is_far { looking(py, true, &token, walk) } else { interruptible(py, &token, walk) }?;
    let one = |found: cuzarr::Result<FoundNode>| match found {
        Ok(found) => to_python(py, &found)?.into_bound_py_any(py),
        Err(error) => Ok(error::to_python(&error).into_value(py).into_bound(py).into_any()),
    };
    nodes.into_iter().map(|(path, found)| Ok((path, one(found)?))).collect()
}

/// Finds the arrays and groups at several paths of a store; `None` for each path without a node of this Zarr format.
#[pyfunction]
pub fn find_nodes<'py>(
    py: Python<'py>,
    store: &PyStore,
    paths: Vec<String>,
    zarr_format: u8,
    max_bytes: u64,
) -> PyResult<Vec<Option<Found<'py>>>> {
    let cancellation = Watches::current().token();
    let lookup = Lookup { consolidation: Consolidation::Never, max_bytes, cancellation, ..Lookup::default() };
    let store = Arc::clone(&store.inner);
    let (is_far, token) = (store.capabilities().far, lookup.cancellation.clone());
    let find = move || node::find_many(&*store, &paths, format(zarr_format), &lookup).into_iter().collect();
    let nodes: Vec<Option<FoundNode>> = looking(py, is_far, &token, find)?;
    nodes.into_iter().map(|found| found.map(|found| to_python(py, &found)).transpose()).collect()
}

/// Writes a consolidated copy of the metadata of all nodes below a group. Returns the documents of the group, with
/// those of all nodes below it.
#[pyfunction]
pub fn consolidate<'py>(
    py: Python<'py>,
    store: &PyStore,
    path: String,
    zarr_format: u8,
    indent: Option<usize>,
    max_bytes: u64,
) -> PyResult<Found<'py>> {
    let cancellation = Watches::current().token();
    let lookup = Lookup { format: Some(format(zarr_format)), max_bytes, cancellation, ..Lookup::default() };
    let store = Arc::clone(&store.inner);
    let (is_far, token) = (store.capabilities().far, lookup.cancellation.clone());
    let gather = move || Ok(node::consolidate(&store, &path, indent, &lookup)?.1);
    let found = if is_far { looking(py, true, &token, gather) } else { interruptible(py, &token, gather) }?;
    to_python(py, &found)
}

/// A lock on the metadata of one array or group, which is held until its `with` block ends. Until then, other changes
/// wait.
#[pyclass(name = "NodeLock", module = "cuzarr._core", frozen)]
pub struct PyNodeLock {
    lock: Mutex<Option<Arc<NodeLock>>>,
    stored: Mutex<Option<StoredNode>>,
}

#[pymethods]
impl PyNodeLock {
    /// Takes the metadata lock of the node at a path, an array if `is_array`, else a group; waits while others hold it.
    /// With `for_shape`, no other caller can change the array's shape while its chunks are written.
    #[new]
    fn new(
        py: Python<'_>,
        store: &PyStore,
        path: String,
        zarr_format: u8,
        is_array: bool,
        for_shape: bool,
    ) -> PyResult<Self> {
        let cancellation = Watches::current().token();
        let store = Arc::clone(&store.inner);
        let lock = interruptible(py, &cancellation, || match for_shape {
            true => NodeLock::take_for_shape(store, &path, format(zarr_format), &cancellation),
            false => NodeLock::take(store, &path, format(zarr_format), is_array, &cancellation),
        })?;
        Ok(PyNodeLock { lock: Mutex::new(Some(Arc::new(lock))), stored: Mutex::new(None) })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Releases the lock on the metadata of the array or group. In a bucket this takes a request, during which other
    /// threads run.
    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.unlocked(|| drop(lock));
    }

    /// Reads the stored metadata of an array, or the documents of a group by name.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let lock = self.lock()?;
        let stored = py.unlocked(|| lock.read()).py()?;
        let documents = node_to_python(py, stored.documents())?;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        Ok(documents)
    }

    /// Replaces the metadata documents that were read last, and the entries for this array or group in consolidated
    /// metadata of groups above. Returns false if another writer has changed a document since then. Then that document
    /// is not written.
    fn replace(&self, py: Python<'_>, documents: &Bound<'_, PyAny>, indent: Option<usize>) -> PyResult<bool> {
        let (lock, documents) = (self.lock()?, parse_alone(documents)?);
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stored = stored.ok_or_else(|| PyValueError::new_err("the documents were not read"))?;
        py.unlocked(|| lock.replace(&stored, &documents, indent)).py()
    }

    /// Adds and replaces attributes of the node, and removes those in `removed`. With `is_all`, replaces all
    /// attributes. Returns the stored attributes.
    fn update_attributes<'py>(
        &self,
        py: Python<'py>,
        attributes: &Bound<'_, PyDict>,
        removed: Vec<String>,
        is_all: bool,
        indent: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (lock, new) = (self.lock()?, json::from_dict(attributes)?);
        let mut change = |documents: &mut NodeDocuments| {
            let stored = documents.attributes_mut()?;
            if is_all {
                stored.clear();
            }
            removed.iter().for_each(|name| drop(stored.shift_remove(name)));
            stored.extend(new.iter().map(|(name, value)| (name.clone(), value.clone())));
            Ok(())
        };
        let documents = py.unlocked(|| lock.update(indent, &mut change)).py()?;
        match documents.attributes() {
            Some(attributes) => json::to_dict(py, attributes, &mut Names::default()),
            None => Ok(PyDict::new(py)),
        }
    }
}

impl PyNodeLock {
    fn lock(&self) -> PyResult<Arc<NodeLock>> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lock.ok_or_else(|| PyValueError::new_err("the lock was given back"))
    }
}

/// Returns the bytes of all documents to store for a node, by name, including the metadata consolidated below it.
#[pyfunction]
pub fn lay_out_node<'py>(
    py: Python<'py>,
    documents: &Bound<'py, PyAny>,
    consolidated: Option<&Bound<'py, PyAny>>,
    indent: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    lay_out(py, &parse_node(documents, consolidated)?, indent)
}

fn lay_out<'py>(py: Python<'py>, node: &NodeDocuments, indent: Option<usize>) -> PyResult<Bound<'py, PyDict>> {
    let laid_out = PyDict::new(py);
    for (name, bytes) in node.documents(indent) {
        laid_out.set_item(name, PyBytes::new(py, &bytes))?;
    }
    Ok(laid_out)
}

/// Arrays and groups that are about to be created, including missing groups above them.
#[pyclass(name = "NewNodes", module = "cuzarr._core", frozen)]
pub struct PyNewNodes {
    store: Arc<dyn cuzarr::store::Store>,
    nodes: node::NewNodes,
}

/// An array or group to create: its path, its metadata documents, and the metadata consolidated below it.
type Given<'py> = (String, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

#[pymethods]
impl PyNewNodes {
    /// Prepares the paths of a store at which arrays and groups will be created. With `overwrite`, deletes existing
    /// nodes at these paths; without it, refuses them.
    #[new]
    fn new(py: Python<'_>, store: &PyStore, nodes: Vec<Given<'_>>, overwrite: bool) -> PyResult<Self> {
        let parse = |(path, documents, consolidated): &Given<'_>| {
            Ok((path.clone(), parse_node(documents, consolidated.as_ref())?))
        };
        let nodes = nodes.iter().map(parse).collect::<PyResult<Vec<_>>>()?;
        let store = Arc::clone(&store.inner);
        let nodes = py.unlocked(|| node::NewNodes::make_room(&*store, nodes, overwrite)).py()?;
        Ok(PyNewNodes { store, nodes })
    }

    /// The paths of all arrays and groups that will be created, each group before its members.
    #[getter]
    fn paths(&self) -> Vec<String> {
        self.nodes.paths().collect()
    }

    /// Stores the metadata documents of all new arrays and groups.
    fn publish(&self, py: Python<'_>, indent: Option<usize>) -> PyResult<()> {
        py.unlocked(|| self.nodes.publish(&*self.store, indent)).py()
    }
}

pub fn format(number: u8) -> ZarrFormat {
    if number == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 }
}

fn parse_consolidation(given: &Bound<'_, PyAny>) -> PyResult<Consolidation> {
    if given.is_none() {
        return Ok(Consolidation::WhenPresent);
    }
    if let Ok(name) = given.extract::<String>() {
        return Ok(Consolidation::Named(name));
    }
    let refused = |_| PyTypeError::new_err("use_consolidated is True, False, None or the name of a key");
    Ok(if given.is_truthy().map_err(refused)? { Consolidation::Required } else { Consolidation::Never })
}

fn to_python<'py>(py: Python<'py>, found: &FoundNode) -> PyResult<Found<'py>> {
    let consolidated = found.consolidated.clone().map(PyConsolidated);
    Ok((node_to_python(py, &found.documents)?, consolidated, found.warnings.clone()))
}

/// Converts a node for Python: an array to its metadata, a group to its documents by name.
pub fn node_to_python<'py>(py: Python<'py>, node: &NodeDocuments) -> PyResult<Bound<'py, PyAny>> {
    match node.is_array() {
        true => Ok(Bound::new(py, PyArrayMetadata::new(node.clone()))?.into_any()),
        false => Ok(to_dict(py, node, &mut Names::default())?.into_any()),
    }
}

/// Returns the documents of a node by name, without the metadata consolidated below it.
pub fn to_dict<'a, 'py>(
    py: Python<'py>,
    node: &'a NodeDocuments,
    names: &mut Names<'a, 'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let documents = PyDict::new(py);
    for (name, members) in node.members() {
        let document = json::to_dict(py, members, names)?;
        if node.is_group() && document.contains("consolidated_metadata")? {
            document.del_item("consolidated_metadata")?;
        }
        documents.set_item(name, document)?;
    }
    Ok(documents)
}

/// Parses the documents of a node, given by name.
pub fn parse_documents(documents: &Bound<'_, PyDict>) -> PyResult<NodeDocuments> {
    let mut members = Vec::with_capacity(documents.len());
    for (name, document) in documents {
        members.push((name.extract()?, json::from_dict(document.cast::<PyDict>()?)?));
    }
    let missing = || Error::new(ErrorKind::InvalidArgument, "the documents describe no node");
    NodeDocuments::from_members(members).ok_or_else(missing).py()
}

/// Parses the documents of a node, given by name or as the metadata of an array.
pub fn parse_alone(given: &Bound<'_, PyAny>) -> PyResult<NodeDocuments> {
    match given.cast::<PyArrayMetadata>() {
        Ok(metadata) => Ok(metadata.get().documents().clone()),
        Err(_) => parse_documents(given.cast::<PyDict>()?),
    }
}

fn parse_node(documents: &Bound<'_, PyAny>, consolidated: Option<&Bound<'_, PyAny>>) -> PyResult<NodeDocuments> {
    let mut node = parse_alone(documents)?;
    let Some(consolidated) = consolidated else { return Ok(node) };
    let below = match consolidated.cast::<PyConsolidated>() {
        Ok(found) if found.get().0.zarr_format() == node.zarr_format() => found.get().0.clone(),
        Ok(_) => {
            let message = "consolidated metadata is of another format than its group";
            return Err(crate::error::to_python(&Error::new(ErrorKind::InvalidArgument, message)));
        }
        Err(_) => {
            let given = consolidated.cast::<PyDict>()?;
            let mut below = Vec::with_capacity(given.len());
            for (path, documents) in given {
                below.push((path.extract()?, parse_alone(&documents)?));
            }
            Consolidated::from_nodes(node.zarr_format(), below).py()?
        }
    };
    node.set_consolidated(below);
    Ok(node)
}
