//! Checks that the arrays which an expression reads have not changed since it was made.

use std::collections::HashSet;
use std::sync::Arc;

use cuzarr::Result;
use cuzarr::internal::node::{check_unchanged, refuse_overlap};
use cuzarr::node::Array;
use cuzarr::store::Store;

use crate::expression::{Expr, Flat, Kind, Running};
use crate::options::ComputeOptions;

/// The hint in the error for an array that has changed since the expression was made.
const HINT: &str = "make the plan again; if it was changed through another handle, open the array again first";

impl Expr {
    /// Returns the arrays in stores that the expression reads, each as it was when the expression was made.
    fn arrays(&self) -> Vec<&Array> {
        let (mut seen, mut left, mut arrays) = (HashSet::new(), vec![self], Vec::<&Array>::new());
        while let Some(expr) = left.pop() {
            if !seen.insert(Arc::as_ptr(&expr.0)) {
                continue;
            }
            match &expr.0.kind {
                Kind::Buffer(_) | Kind::Constant(_) => {}
                Kind::Array(view) => arrays.push(&view.array),
                Kind::Apply(_, operands) => left.extend(operands),
                Kind::Joined(joined) => left.extend(&joined.parts),
                Kind::Cast(of)
                | Kind::Flat(Flat { of, .. })
                | Kind::Running(Running { of, .. })
                | Kind::Summary(_, of) => {
                    left.push(of);
                }
            }
        }
        arrays
    }

    /// Refuses to run an expression whose arrays were resized, replaced or deleted after it was made. One document is
    /// read for each array; the documents in one store are read as one batch.
    ///
    /// # Errors
    /// `ShapeMismatch`, `DTypeMismatch`, `ArrayNotFound`, `InvalidArgument`, with the name of the array and the change;
    /// those of the stores.
    pub(crate) fn check_sources(&self, options: &ComputeOptions<'_>) -> Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        if let Some(cancellation) = options.cancellation {
            cancellation.check()?;
        }
        let mut known = HashSet::new();
        let place = |array: &&Array| {
            (Arc::as_ptr(array.store()).cast::<()>(), array.path().to_owned(), std::ptr::from_ref(array.metadata()))
        };
        let distinct: Vec<&Array> = self.arrays().into_iter().filter(|array| known.insert(place(array))).collect();
        check_unchanged(&distinct, HINT)
    }

    /// Refuses a path that holds an array that the expression reads, and paths inside or around such an array. Call it
    /// before you replace the node at that place.
    ///
    /// # Errors
    /// `InvalidArgument` when the place overlaps such an array.
    pub fn refuse_overlap(&self, store: &Arc<dyn Store>, path: &str) -> Result<()> {
        self.arrays().into_iter().try_for_each(|array| refuse_overlap((array.store(), array.path()), (store, path)))
    }
}

#[cfg(test)]
mod tests {
    use cuzarr::ErrorKind;
    use cuzarr::meta::DataType;
    use cuzarr::node::{ArrayOptions, consolidate_metadata};
    use cuzarr::plan::Selection;
    use cuzarr::store::{MemoryStore, StoreExt};

    use super::*;
    use crate::{Op, ReduceOp, Reduction};

    fn stored(store: &Arc<dyn Store>, shape: [u64; 1]) -> Array {
        let array = Array::builder(shape, DataType::Int32).chunks([2]).create_in(Arc::clone(store), "w").unwrap();
        let ones = vec![1i32; shape[0] as usize];
        array.write(&Selection::all(&shape), &ones[..]).unwrap();
        array
    }

    #[test]
    fn an_expression_of_an_array_that_changed_is_refused_by_every_call() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut array = stored(&store, [4]);
        let options = ComputeOptions::default();
        let one = Expr::array(array.clone()).unwrap();
        let twice = Expr::apply(Op::Add, &[one.clone().into(), one.into()]).unwrap();
        let sum = twice.reduced(Reduction::new(ReduceOp::Sum, None)).unwrap();
        assert_eq!(sum.compute(&options).unwrap().host_slice::<i64>().unwrap(), [8]);
        array.resize(vec![2]).unwrap();
        let target = Array::builder([4], DataType::Int32).create_in(Arc::clone(&store), "t").unwrap();
        for error in [
            twice.compute(&options).unwrap_err(),
            twice.compute_region(&[0], &[1], &options).unwrap_err(),
            twice.compute_regions(&options).unwrap_err(),
            twice.store(&target, &options).unwrap_err(),
            twice.store_resumable(&target, &options).unwrap_err(),
            twice.store_regions(&target, &options).unwrap_err(),
            twice.explain(&options).unwrap_err(),
            twice.statistics(&options).unwrap_err(),
            twice.reduce(&Reduction::new(ReduceOp::Max, None), &options).unwrap_err(),
            sum.compute(&options).unwrap_err(),
            sum.summary_parts(&options).unwrap_err(),
            sum.summary_part(0, &options).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
            assert!(error.message().contains("array '/w'") && error.message().contains("[4], and is [2]"), "{error}");
            assert_eq!(error.hint(), Some(HINT));
        }
    }

    #[test]
    fn an_array_of_a_consolidated_copy_counts_as_the_copy_has_it() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut array = stored(&store, [4]);
        let group = consolidate_metadata(Arc::clone(&store), "", None, ArrayOptions::default()).unwrap();
        let copied = Expr::array(group.array("w").unwrap()).unwrap();
        let own = Expr::array(array.clone()).unwrap();
        let stale = store.get("zarr.json").unwrap().unwrap();
        array.resize(vec![2]).unwrap();
        assert!(copied.compute(&ComputeOptions::default()).is_err(), "a resize replaces the copy");
        // The document as left by a writer that does not know of consolidated copies.
        store.write("zarr.json", &stale).unwrap();
        assert!(copied.compute(&ComputeOptions::default()).is_ok());
        assert!(own.compute(&ComputeOptions::default()).is_err());
    }
}
