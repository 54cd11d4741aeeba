//! Identities of stores that are written in Python: which stores refer to the same data.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cuzarr::store::Identity;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::error::PyResult;

/// A Python object that stores access, with the identity by which two stores over this object count as the same data.
/// It keeps the object alive, so that no other object gets its address.
struct Identified {
    identity: Identity,
    _object: Py<PyAny>,
}

/// The Python objects that stores access, by address, each with the identity that the stores over it share. Only
/// threads that hold Python's lock take this one, so no thread holds it while another one forks the process.
static OBJECTS: Mutex<BTreeMap<usize, Weak<Identified>>> = Mutex::new(BTreeMap::new());

/// The identity of a Python store's data, which is equal for stores over the same data: from an address, or from an
/// object that is kept alive.
pub struct Place {
    identity: Identity,
    _object: Option<Arc<Identified>>,
}

impl Place {
    /// Identifies a store's data by the value that the store's adapter gives: an address as text, or a Python object.
    /// The value may also be a tuple of one of these and a path below it.
    pub fn new(what: &Bound<'_, PyAny>) -> PyResult<Place> {
        if let Ok(pair) = what.cast::<PyTuple>() {
            let (what, path): (Bound<'_, PyAny>, String) = pair.extract()?;
            let place = Place::new(&what)?;
            return Ok(Place { identity: place.identity.below(path.trim_matches('/')), ..place });
        }
        if let Ok(address) = what.cast::<PyString>() {
            return Ok(Place { identity: Identity::address(address.to_str()?), _object: None });
        }
        let object = identified(what);
        Ok(Place { identity: object.identity.clone(), _object: Some(object) })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn identified(object: &Bound<'_, PyAny>) -> Arc<Identified> {
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let address = object.as_ptr() as usize;
    if let Some(known) = objects.get(&address).and_then(Weak::upgrade) {
        return known;
    }
    objects.retain(|_, object| object.strong_count() > 0);
    let new = Arc::new(Identified { identity: Identity::unique(), _object: object.clone().unbind() });
    objects.insert(address, Arc::downgrade(&new));
    new
}
