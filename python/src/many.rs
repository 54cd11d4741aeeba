//! Reads of many arrays by one call.

use std::collections::HashMap;

use cuzarr::node::{Array, ArraySelection, read_all};
use cuzarr_device::{DType, NdBuffer};
use pyo3::prelude::*;

use crate::array::PyArray;
use crate::error::{IntoPython, PyResult};
use crate::interrupt::{here, interruptible};
use crate::names::parse_dtype;
use crate::ndbuffer::PyNdBuffer;
use crate::selection::Selected;
use crate::watch::Watches;

/// What is read of an array, and the type of the result or its memory, where the caller says so.
type Wanted<'py> = (Bound<'py, PyArray>, Part<'py>, Option<String>, Option<PyRef<'py, PyNdBuffer>>);

/// A selection, or the starts and lengths of ranges of an array of one dimension: int64 on the host.
#[derive(FromPyObject)]
pub enum Part<'py> {
    Ranges((PyRef<'py, PyNdBuffer>, PyRef<'py, PyNdBuffer>)),
    Selected(Selected<'py>),
}

impl Part<'_> {
    fn of<'a>(&self, array: &'a Array) -> PyResult<ArraySelection<'a>> {
        match self {
            Part::Selected(selection) => Ok(ArraySelection::new(array, selection.parse()?)),
            Part::Ranges((starts, lengths)) => {
                let (starts, lengths) =
                    (starts.inner.host_slice::<i64>().py()?, lengths.inner.host_slice::<i64>().py()?);
                let range = |(&start, &length): (&i64, &i64)| start as u64..start.saturating_add(length) as u64;
                Ok(ArraySelection::ranges(array, starts.iter().zip(lengths.iter()).map(range).collect()))
            }
        }
    }
}

/// Reads parts of arrays in one pipeline, each into new memory of its array's device, or into the caller's.
#[pyfunction]
pub fn read_many(py: Python<'_>, reads: Vec<Wanted<'_>>) -> PyResult<Vec<PyNdBuffer>> {
    let watches = Watches::current();
    let token = watches.token();
    let (mut arrays, mut places) = (Vec::<Array>::new(), HashMap::new());
    let place = |array: &Bound<'_, PyArray>| {
        // Handles of one array are recognised as such.
        *places.entry(array.as_ptr() as usize).or_insert_with(|| {
            arrays.push(watches.array(array.get().array(), &token));
            arrays.len() - 1
        })
    };
    let numbers: Vec<usize> = reads.iter().map(|(array, ..)| array).map(place).collect();
    let mut wanted = Vec::with_capacity(reads.len());
    for (number, (_, part, dtype, out)) in numbers.into_iter().zip(reads) {
        let dtype: Option<DType> = dtype.as_deref().map(parse_dtype).transpose()?;
        let out: Option<NdBuffer> = out.map(|out| out.inner.clone());
        let read = part.of(&arrays[number])?;
        let read = dtype.into_iter().fold(read, ArraySelection::with_dtype);
        wanted.push(out.into_iter().fold(read, ArraySelection::with_out));
    }
    let work = || read_all(&wanted);
    let results = match arrays.iter().all(|array| array.store().capabilities().divides_reads) {
        true => here(py, work),
        false => interruptible(py, &token, work),
    };
    Ok(results?.into_iter().map(|inner| PyNdBuffer { inner }).collect())
}
