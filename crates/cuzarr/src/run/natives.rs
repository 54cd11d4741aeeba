//! The kernels that decode an array's chunks on a device, one set of kernels for each chunk layout.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::Stream;

use crate::codec::batch::ScratchLimit;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{ChunkLayout, Unit};

/// The kernels that decode chunks of each layout of an array, after the host has undone the last codecs.
pub(crate) struct Natives {
    host_passes: usize,
    /// The kernels for the array's own layout, which is usually the only layout.
    usual: (Arc<ChunkLayout>, Arc<Native>),
    /// The kernels for chunks of other layouts, keyed by the layout's address; `None` if the device cannot decode such
    /// chunks.
    others: Mutex<HashMap<usize, Other>>,
}

/// A chunk layout that is not the array's usual one, and the kernels that decode chunks of this layout. The layout is
/// kept so that no other can get its address.
type Other = (Arc<ChunkLayout>, Option<Arc<Native>>);

impl Natives {
    /// Makes the kernels that decode chunks of which the host has already undone the last `host_passes` steps of
    /// encoding. `native` has those for the array's own layout.
    pub(crate) fn new(host_passes: usize, layout: &Arc<ChunkLayout>, native: Arc<Native>) -> Natives {
        Natives { host_passes, usual: (Arc::clone(layout), native), others: Mutex::default() }
    }

    /// The kernels that decode chunks of the array's own layout, which is usually its only layout.
    pub(crate) fn usual(&self) -> &Arc<Native> {
        &self.usual.1
    }

    /// Number of encoding steps that the host undoes before kernels decode the rest.
    pub(crate) fn host_passes(&self) -> usize {
        self.host_passes
    }

    /// Returns the kernels that decode chunks of this layout; `None` if the device cannot decode them.
    pub(crate) fn of(&self, layout: &Arc<ChunkLayout>) -> Option<Arc<Native>> {
        let (usual, native) = &self.usual;
        if Arc::ptr_eq(usual, layout) {
            return Some(Arc::clone(native));
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let address = Arc::as_ptr(layout) as usize;
        if let Some((_, known)) = others.get(&address) {
            return known.clone();
        }
        let made = layout.program.as_ref().and_then(|program| program.native_from(self.host_passes)).map(Arc::new);
        others.insert(address, (Arc::clone(layout), made.clone()));
        made
    }

    /// Prepares kernels to decode the chunks `units`, whose stored bytes lie in `source`.
    ///
    /// # Errors
    /// Those of [`Native::prepare`]; `Unsupported` for a layout that [`Natives::of`] does not know.
    pub(crate) fn prepare<'a>(
        &self,
        units: impl Iterator<Item = &'a Unit>,
        source: Source<'_>,
        scratch: ScratchLimit,
        stream: &Stream,
    ) -> Result<NativeBatch> {
        let (mut kinds, mut numbers, mut kind_of) = (Vec::new(), HashMap::new(), Vec::new());
        for unit in units {
            let kind = match numbers.get(&Arc::as_ptr(&unit.layout)) {
                Some(&kind) => kind,
                None => {
                    let none =
                        || Error::new(ErrorKind::Unsupported, "a chunk of another shape is not the device's work");
                    kinds.push(self.of(&unit.layout).ok_or_else(none)?);
                    numbers.insert(Arc::as_ptr(&unit.layout), kinds.len() - 1);
                    kinds.len() - 1
                }
            };
            kind_of.push(kind);
        }
        if kinds.is_empty() {
            kinds.push(Arc::clone(self.usual()));
        }
        let kinds: Vec<&Native> = kinds.iter().map(|native| &**native).collect();
        Native::prepare_kinds(&kinds, &kind_of, source, scratch, stream)
    }
}
