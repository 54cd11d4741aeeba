//! Reads of many arrays by one call.

use std::collections::HashMap;

use cuzarr::node::{Array, ArraySelection, read_all};
use cuzarr::plan::Selection;
use cuzarr_device::{DType, NdBuffer};
use pyo3::prelude::*;

use crate::array::PyArray;
use crate::error::PyResult;
use crate::interrupt::{here, interruptible};
use crate::names::parse_dtype;
use crate::ndbuffer::PyNdBuffer;
use crate::selection::Selected;
use crate::watch::Watches;

/// What is read of an array: a selection, and the type of the result or its memory, where the caller says so.
type Wanted<'py> = (Bound<'py, PyArray>, Selected<'py>, Option<String>, Option<PyRef<'py, PyNdBuffer>>);

/// Reads selections of arrays in one pipeline, each into new memory of its array's device, or into the caller's.
#[pyfunction]
pub fn read_many(py: Python<'_>, reads: Vec<Wanted<'_>>) -> PyResult<Vec<PyNdBuffer>> {
    let watches = Watches::current();
    let token = watches.token();
    let (mut arrays, mut numbers) = (Vec::<Array>::new(), HashMap::new());
    let mut wanted: Vec<(usize, Selection, Option<DType>, Option<NdBuffer>)> = Vec::with_capacity(reads.len());
    for (array, selection, dtype, out) in reads {
        // Handles of one array are recognised as such.
        let number = *numbers.entry(array.as_ptr() as usize).or_insert_with(|| {
            arrays.push(watches.array(array.get().array(), &token));
            arrays.len() - 1
        });
        let dtype = dtype.as_deref().map(parse_dtype).transpose()?;
        wanted.push((number, selection.parse()?, dtype, out.map(|out| out.inner.clone())));
    }
    let work = || {
        let read = |(number, selection, dtype, out): (usize, Selection, Option<DType>, Option<NdBuffer>)| {
            let read = ArraySelection::new(&arrays[number], selection);
            let read = dtype.into_iter().fold(read, ArraySelection::with_dtype);
            out.into_iter().fold(read, ArraySelection::with_out)
        };
        read_all(&wanted.into_iter().map(read).collect::<Vec<_>>())
    };
    let results = match arrays.iter().all(|array| array.store().capabilities().divides_reads) {
        true => here(py, work),
        false => interruptible(py, &token, work),
    };
    Ok(results?.into_iter().map(|inner| PyNdBuffer { inner }).collect())
}
