//! Appending: an array grows along one dimension, and elements are written to the new part.

use std::sync::Arc;

use cuzarr_device::NdBuffer;

use super::array::Array;
use super::document::NodeLock;
use super::lock::{MOST_ATTEMPTS, outrun};
use super::values::HostData;
use crate::codec::VariableElements;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::{NodeDocuments, NodeMetadata};
use crate::plan::Selection;

impl Array {
    /// Appends elements of host memory along dimension `axis`; see [`HostData`] for what `elements` may be. Elements
    /// without a shape fill whole slices of the other dimensions.
    ///
    /// The new elements begin at the end of the stored shape, even if this handle remembers another shape. Other
    /// changes of the shape wait until the call returns, so several programs can append to one array. A call that fails
    /// leaves the old shape, except in a store that commits its writes itself
    /// ([`Capabilities::transactional`](crate::store::Capabilities::transactional)).
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let mut array = Array::builder([1, 3], DataType::Int16).create("memory://appended")?;
    /// array.write(&Selection::all(&[1, 3]), &[1_i16, 2, 3])?;
    /// array.append(0, &[4_i16, 5, 6, 7, 8, 9])?;
    /// assert_eq!(array.shape(), [3, 3]);
    /// assert_eq!(array.read::<i16>(&Selection::region(&[1, 0], &[2, 3])?)?[..], [4, 5, 6, 7, 8, 9]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the array has no dimension `axis`; `ShapeMismatch` when the elements do not fit the other
    /// dimensions; `ArrayNotFound` when the array is gone; those of [`Array::write`].
    pub fn append<E: HostData + ?Sized>(&mut self, axis: usize, elements: &E) -> Result<()> {
        let view = elements.view();
        let given = match view.shape() {
            Some(shape) => Given::Shape(shape?.to_vec()),
            None => Given::Count(view.len() as u64),
        };
        drop(view);
        self.append_by(axis, &given, &|longer, region| longer.write(region, elements))
    }

    /// Like [`Array::append`], for elements in memory of any device. The value must have the array's shape, except
    /// along `axis`.
    ///
    /// # Errors
    /// Those of [`Array::append`] and of [`Array::write_buffer`].
    pub fn append_buffer(&mut self, axis: usize, value: &NdBuffer) -> Result<()> {
        let given = Given::Shape(value.shape().to_vec());
        self.append_by(axis, &given, &|longer, region| longer.write_buffer(region, value))
    }

    /// Like [`Array::append`], for elements of variable length.
    ///
    /// # Errors
    /// Those of [`Array::append`] and of [`Array::write_variable`].
    pub fn append_variable(&mut self, axis: usize, elements: &VariableElements) -> Result<()> {
        let given = Given::Count(elements.len() as u64);
        self.append_by(axis, &given, &|longer, region| longer.write_variable(region, elements))
    }

    /// Grows the array along `axis` and stores the new elements with `write`. Every chunk after the array's old end is
    /// written as a whole, or deleted if it only holds the fill value. So chunks that a killed call left there never
    /// become elements.
    fn append_by(
        &mut self,
        axis: usize,
        given: &Given,
        write: &dyn Fn(&Array, &Selection) -> Result<()>,
    ) -> Result<()> {
        let (format, cancellation) = (self.metadata().zarr_format(), &self.options().cancellation);
        let node = NodeLock::take_for_shape(Arc::clone(self.store()), self.path(), format, cancellation)?;
        for _ in 0..MOST_ATTEMPTS {
            let stored = node.read()?;
            self.set_metadata(stored.array().at(|| self.place())?);
            let (mut start, mut extent) = (vec![0; self.shape().len()], self.shape().to_vec());
            let count = given.extent(axis, self.shape()).at(|| self.place())?;
            let old = std::mem::replace(&mut extent[axis], count);
            start[axis] = old;
            let mut metadata = self.metadata().clone();
            let mut shape = self.shape().to_vec();
            shape[axis] = old.saturating_add(count);
            metadata.set_shape(shape).at(|| self.place())?;
            let documents = NodeDocuments::from(&NodeMetadata::Array(Box::new(metadata.clone())));
            let mut longer = self.clone();
            longer.set_metadata(metadata);
            // A transactional store only accepts chunks of the stored shape, so the shape must change first.
            let is_transactional = self.store().capabilities().transactional;
            if is_transactional && !node.replace(&stored, &documents, Some(2))? {
                continue;
            }
            write(&longer, &Selection::region(&start, &extent)?)?;
            if is_transactional || node.replace(&stored, &documents, Some(2))? {
                *self = longer;
                return Ok(());
            }
        }
        Err(outrun(&**self.store(), self.path()))
    }
}

/// Shape of the elements that an append adds, or only the number of elements if they have no shape.
enum Given {
    Shape(Vec<usize>),
    Count(u64),
}

impl Given {
    /// Returns how many elements are appended along `axis` to an array of shape `shape`.
    ///
    /// # Errors
    /// `InvalidArgument` without such a dimension; `ShapeMismatch` when they do not fit the other dimensions.
    fn extent(&self, axis: usize, shape: &[u64]) -> Result<u64> {
        if axis >= shape.len() {
            let message = format!("there is no dimension {axis} in shape {shape:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let others = || shape.iter().enumerate().filter(|(place, _)| *place != axis).map(|(_, &extent)| extent);
        let extent = match self {
            Given::Shape(given) if given.len() == shape.len() => {
                let own =
                    given.iter().enumerate().filter(|(place, _)| *place != axis).map(|(_, &extent)| extent as u64);
                own.eq(others()).then(|| given[axis] as u64)
            }
            Given::Shape(_) => None,
            Given::Count(0) => Some(0),
            Given::Count(count) => {
                let slice = others().try_fold(1, u64::checked_mul).filter(|slice| *slice > 0);
                slice.and_then(|slice| count.is_multiple_of(slice).then(|| count / slice))
            }
        };
        extent.ok_or_else(|| {
            let what = match self {
                Given::Shape(given) => format!("elements of shape {given:?} do"),
                Given::Count(1) => "1 element does".to_string(),
                Given::Count(count) => format!("{count} elements do"),
            };
            Error::new(ErrorKind::ShapeMismatch, format!("{what} not fit shape {shape:?} along dimension {axis}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use cuzarr_device::{DType, Device, Order};

    use super::*;
    use crate::meta::DataType;
    use crate::node::{ArrayOptions, Values};
    use crate::store::testing::{Observed, Operation};
    use crate::store::{MemoryStore, Store, StoreExt};

    fn create(store: &Arc<dyn Store>, shape: [u64; 2]) -> Array {
        let builder = Array::builder(shape, DataType::UInt8).chunks([2, 2]);
        builder.create_in(Arc::clone(store), "a").unwrap()
    }

    fn elements(array: &Array) -> Vec<u8> {
        array.read::<u8>(&Selection::all(array.shape())).unwrap().into_vec()
    }

    #[test]
    fn elements_of_every_kind_are_appended_along_each_dimension() {
        for store in
            [Observed::new(Arc::new(MemoryStore::new())), Observed::new(Arc::new(MemoryStore::new())).transactional()]
        {
            let store: Arc<dyn Store> = Arc::new(store);
            let mut array = create(&store, [1, 3]);
            array.write(&Selection::all(&[1, 3]), &[1_u8, 2, 3]).unwrap();
            array.append(0, &[4_u8, 5, 6]).unwrap();
            array.append(1, &Values::new(&[2, 1], vec![7_u8, 8]).unwrap()).unwrap();
            let row = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[1, 4], Order::C, &[9, 9, 9, 9]).unwrap();
            array.append_buffer(0, &row).unwrap();
            array.append(0, &[0_u8; 0]).unwrap();
            assert_eq!((array.shape(), elements(&array)), (&[3, 4][..], vec![1, 2, 3, 7, 4, 5, 6, 8, 9, 9, 9, 9]));
            let again = Array::open(store, "a", ArrayOptions::default()).unwrap();
            assert_eq!(elements(&again), elements(&array));
        }
    }

    #[test]
    fn strings_are_appended() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut array = Array::builder([1], DataType::VariableString).create_in(store, "a").unwrap();
        let mut words = VariableElements::default();
        ["ab", "cde"].iter().for_each(|word| words.push(word.as_bytes()));
        array.append_variable(0, &words).unwrap();
        let read = array.read_variable(&Selection::all(array.shape())).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [&b""[..], b"ab", b"cde"]);
    }

    #[test]
    fn elements_that_do_not_fit_are_refused_and_nothing_changes() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut array = create(&store, [2, 3]);
        let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
        assert_eq!(kind(array.append(0, &[1_u8, 2])), ErrorKind::ShapeMismatch);
        assert_eq!(kind(array.append(2, &[1_u8, 2])), ErrorKind::InvalidArgument);
        assert_eq!(kind(array.append(0, &Values::new(&[3], vec![1_u8, 2, 3]).unwrap())), ErrorKind::ShapeMismatch);
        // A write would broadcast this shape, but an append refuses it.
        assert_eq!(kind(array.append(0, &Values::new(&[1, 1], vec![1_u8]).unwrap())), ErrorKind::ShapeMismatch);
        assert_eq!(kind(array.append(0, &[1_u16, 2, 3])), ErrorKind::DTypeMismatch);
        assert_eq!(Array::open(store, "a", ArrayOptions::default()).unwrap().shape(), [2, 3]);
    }

    #[test]
    fn arrays_of_one_store_append_behind_each_other() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        create(&store, [0, 1]);
        std::thread::scope(|threads| {
            for number in 0..4_u8 {
                let mut array = Array::open(Arc::clone(&store), "a", ArrayOptions::default()).unwrap();
                threads.spawn(move || (0..8).for_each(|_| array.append(0, &[number]).unwrap()));
            }
        });
        let mut found = elements(&Array::open(store, "a", ArrayOptions::default()).unwrap());
        found.sort_unstable();
        assert_eq!(found, (0..32).map(|at| at / 8).collect::<Vec<u8>>());
    }

    #[test]
    fn a_failed_write_leaves_the_old_shape() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        create(&memory, [2, 2]);
        let failing = Observed::new(Arc::clone(&memory)).with_failure(|operation| match operation {
            Operation::Write(key, _) if key.contains("/c/") => Some(Error::new(ErrorKind::StoreFailed, "full")),
            _ => None,
        });
        let mut array = Array::open(Arc::new(failing), "a", ArrayOptions::default()).unwrap();
        assert_eq!(array.append(0, &[1_u8, 2]).unwrap_err().kind(), ErrorKind::StoreFailed);
        assert_eq!(Array::open(Arc::clone(&memory), "a", ArrayOptions::default()).unwrap().shape(), [2, 2]);
        assert!(!memory.exists("a/c/1/0").unwrap());
    }
}
