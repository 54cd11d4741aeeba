//! The arrays that an expression reads, and whether they are still what they were when it was made.

use std::collections::HashSet;
use std::sync::Arc;

use cuzarr::Result;
use cuzarr::node::{Array, check_unchanged, refuse_overlap};
use cuzarr::store::Store;

use crate::expression::{Expr, Flat, Kind, Running};
use crate::options::ComputeOptions;

/// What to do when an array has changed.
const HINT: &str = "make the plan again; if it was changed through another handle, open the array again first";

impl Expr {
    /// The arrays in stores that the expression is made of, each as it was when the expression was made.
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

    /// Refuses to run an expression whose arrays were resized, replaced or deleted after it was made. It reads one document for
    /// each array, of those in one store as one batch.
    ///
    /// # Errors
    /// `ShapeMismatch`, `DTypeMismatch`, `ArrayNotFound`, `InvalidArgument`, with the name of the array and the change; what the
    /// stores report.
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

    /// Whether an array at this place would be one of those that the expression reads, or lie inside of one, or around it:
    /// for callers who are about to replace what is there.
    ///
    /// # Errors
    /// `InvalidArgument` when it would.
    pub fn refuse_overlap(&self, store: &Arc<dyn Store>, path: &str) -> Result<()> {
        self.arrays().into_iter().try_for_each(|array| refuse_overlap((array.store(), array.path()), (store, path)))
    }
}
