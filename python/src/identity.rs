//! Identities of stores that are written in Python: which stores refer to the same data.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cuzarr::store::Identity;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::error::PyResult;

/// Identities of the Python objects that stores access, by the objects' addresses, with the number of stores that hold
/// each.
static OBJECTS: Mutex<BTreeMap<usize, (Identity, usize)>> = Mutex::new(BTreeMap::new());

/// Tells whether two stores written in Python access the same data: an address, or an object that is kept alive.
pub struct Place {
    identity: Identity,
    object: Option<Py<PyAny>>,
}

impl Place {
    /// Makes a place from what a store's adapter gives: an address as text, or an object. The value may also be a tuple
    /// of one of these and a path below it.
    pub fn new(what: &Bound<'_, PyAny>) -> PyResult<Place> {
        if let Ok(pair) = what.cast::<PyTuple>() {
            let (what, path): (Bound<'_, PyAny>, String) = pair.extract()?;
            let place = Place::new(&what)?;
            let identity = place.identity.below(path.trim_matches('/'));
            return Ok(Place { identity, object: place.into_object() });
        }
        if let Ok(address) = what.cast::<PyString>() {
            return Ok(Place { identity: Identity::address(address.to_str()?), object: None });
        }
        let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        let (identity, holders) = objects.entry(what.as_ptr() as usize).or_insert_with(|| (Identity::unique(), 0));
        *holders += 1;
        Ok(Place { identity: identity.clone(), object: Some(what.clone().unbind()) })
    }

    /// Takes out the object that the place keeps alive, if there is one. The caller then counts as the object's holder.
    fn into_object(mut self) -> Option<Py<PyAny>> {
        self.object.take()
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(object) = &self.object else { return };
        let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = object.as_ptr() as usize;
        if let Some((_, holders)) = objects.get_mut(&at) {
            *holders -= 1;
            if *holders == 0 {
                objects.remove(&at);
            }
        }
    }
}
