//! What a device does to decode chunks whose layouts differ: the same steps, with other sizes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::Stream;

use crate::codec::batch::ScratchLimit;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{ChunkLayout, Unit};

/// The device's work for chunks of each layout: the passes of decoding from some pass on.
pub(crate) struct Natives {
    host_passes: usize,
    /// The work for the array's own layout, which is mostly the only layout.
    usual: (Arc<ChunkLayout>, Arc<Native>),
    /// Those of other layouts, by the addresses of these; `None` where the device cannot do it.
    others: Mutex<HashMap<usize, Other>>,
}

/// The work for another layout, which is kept so that its address stays its own.
type Other = (Arc<ChunkLayout>, Option<Arc<Native>>);

impl Natives {
    /// The work behind `host_passes` passes. For the array's own layout it is `native`.
    pub(crate) fn new(host_passes: usize, layout: &Arc<ChunkLayout>, native: Arc<Native>) -> Natives {
        Natives { host_passes, usual: (Arc::clone(layout), native), others: Mutex::default() }
    }

    /// The work for the array's own layout.
    pub(crate) fn usual(&self) -> &Arc<Native> {
        &self.usual.1
    }

    /// The number of passes that the host runs before.
    pub(crate) fn host_passes(&self) -> usize {
        self.host_passes
    }

    /// The work for chunks of a layout; `None` when the device cannot do it.
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

    /// Lays out the work on chunks that lie in `source`, one for each unit.
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
