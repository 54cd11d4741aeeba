//! Computes expressions, and stores the results as new arrays. Readers see a complete array or none.

use std::sync::Arc;

use crate::checkpoint::{Checkpoint, PassNote, refuse_resuming};
use crate::copy::{Begin, Existing, look};
use crate::expression::Expr;
use crate::options::ComputeOptions;
use cuzarr::internal::node::chain;
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{self, Array, ArrayOptions, normalize_path};
use cuzarr::store::Store;
use cuzarr::{Error, ErrorKind, Result};

/// A planned and checked computation whose result becomes a new array in a store. Nothing is written yet.
pub struct Creation {
    expr: Expr,
    target: Array,
    checkpoint: Checkpoint,
    begin: Begin,
    noted: Vec<PassNote>,
}

impl Expr {
    /// Plans and checks a computation whose result becomes a new array at `path`; `settings` are the array's options.
    /// The array gets its document once all chunks are stored. Until then, a checkpoint lies beside the chunks, and an
    /// interrupted call can be resumed.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::{Array, ArrayOptions};
    /// use cuzarr::plan::Selection;
    /// use cuzarr::store::{MemoryStore, Store};
    /// use cuzarr_compute::{ComputeOptions, Existing, Expr, Op};
    /// let array = Array::builder([2], DataType::Int16).chunks([2]).create("memory://halves")?;
    /// array.write(&Selection::all(&[2]), &[1i16, 3])?;
    /// let half = Expr::apply(Op::Divide, &[Expr::array(array)?.into(), 2.0.into()])?;
    /// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    /// let metadata = Array::builder([2], DataType::Float64).metadata()?;
    /// let new = half.creation(store, "half", metadata, Existing::Refuse, ArrayOptions::default())?;
    /// let made = new.run(&ComputeOptions::default())?;
    /// assert_eq!(made.read::<f64>(&Selection::all(&[2]))?[..], [0.5, 1.5]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the place overlaps a source; `ContainsArray` and `ContainsGroup` when the place is taken,
    /// and when a complete array should be resumed; `ReadOnly`; `Unsupported` for a store that cannot delete values,
    /// and for resuming in a store that commits all writes together; errors in the metadata's codecs.
    pub fn creation(
        &self,
        store: Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        existing: Existing,
        settings: ArrayOptions,
    ) -> Result<Creation> {
        let path = normalize_path(path)?;
        // Checked before the old array is deleted, since it may be one of the sources.
        self.refuse_overlap(&store, &path)?;
        Checkpoint::check_place(&*store, &path)?;
        if existing == Existing::Resume {
            refuse_resuming(&*store)?;
        }
        let target = Array::from_metadata(store, &path, metadata, settings)?;
        chain(&target)?;
        let checkpoint = Checkpoint::new(&target, &self.origin()?);
        let (begin, noted) = look(&target, &checkpoint, existing)?;
        if begin == Begin::Complete {
            let message = format!("{}: the array at '/{path}' is complete: there is nothing to resume", target.store());
            return Err(Error::new(ErrorKind::ContainsArray, message).with_hint("compute it again with `overwrite`"));
        }
        Ok(Creation { expr: self.clone(), target, checkpoint, begin, noted })
    }
}

impl Creation {
    /// Creates the array, computes and stores all elements, and returns the array.
    ///
    /// # Errors
    /// Those of [`Expr::store`]. Written chunks stay, and the call can be resumed with the same memory limit. With
    /// another limit, it begins with the first region again.
    pub fn run(mut self, options: &ComputeOptions<'_>) -> Result<Array> {
        let storing = self.expr.storing(&self.target, options)?;
        let (store, path) = (Arc::clone(self.target.store()), self.target.path().to_string());
        let (metadata, settings) = (self.target.metadata().clone(), self.target.options().clone());
        let is_committed_by_caller = store.capabilities().transactional;
        let mut pass = PassNote {
            chunk_shape: metadata.chunk_grid().chunk_shape().to_vec(),
            region_shape: storing.regions.first().map_or(Vec::new(), |region| region.extent.clone()),
            finished: 0,
        };
        if let [noted] = &self.noted[..]
            && (&noted.chunk_shape, &noted.region_shape) == (&pass.chunk_shape, &pass.region_shape)
        {
            pass.finished = noted.finished;
        }
        let finished = pass.finished;
        self.checkpoint.passes = vec![pass];
        if self.begin == Begin::Delete {
            node::delete_node(&*store, &path)?;
        }
        if is_committed_by_caller {
            // The store only accepts chunks of existing arrays, and readers see nothing before the commit.
            Array::create(Arc::clone(&store), &path, metadata.clone(), false, settings.clone())?;
        } else {
            self.checkpoint.write()?;
        }
        let first = storing.regions.partition_point(|region| region.number < finished);
        storing.run(&storing.regions[first..], |region| match is_committed_by_caller {
            true => Ok(()),
            false => self.checkpoint.note(region.number + 1),
        })?;
        let array = match Array::open(Arc::clone(&store), &path, settings.clone()) {
            Err(error) if error.kind() == ErrorKind::ArrayNotFound => Array::adopt(store, &path, metadata, settings)?,
            opened => opened?,
        };
        if !is_committed_by_caller {
            self.checkpoint.end()?;
        }
        Ok(array)
    }
}
