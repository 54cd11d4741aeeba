//! Whole values of another store that are held in memory, so that parts of them can be read without the store.

use std::collections::HashMap;
use std::sync::Arc;

use super::batch::{self, Source};
use super::object::Object;
use super::{Key, ReadRequest, ReadSink, Workers};
use crate::error::Result;

/// Values that were read whole, and are kept in memory so that the store is not asked for them again. Clones share
/// them.
#[derive(Clone)]
pub(crate) struct HeldValues {
    /// The name of the store from which the values came, for error messages.
    name: String,
    /// The values that were read whole, by key; `None` for keys that do not exist.
    values: Arc<HashMap<String, Option<Arc<Vec<u8>>>>>,
}

impl HeldValues {
    pub(crate) fn new(name: String, values: impl IntoIterator<Item = (String, Option<Vec<u8>>)>) -> HeldValues {
        let values = values.into_iter().map(|(key, value)| (key, value.map(Arc::new)));
        HeldValues { name, values: Arc::new(values.collect()) }
    }

    /// Whether the values that were read whole include all values that a batch needs. A key that is known not to exist
    /// counts, too.
    pub(crate) fn have(&self, batch: &[ReadRequest]) -> bool {
        batch.iter().all(|request| self.values.contains_key(&request.key))
    }

    /// Reads a batch from the values that were read whole, like `Store::read`.
    pub(crate) fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        batch::run(self.clone(), batch, sink, workers);
    }
}

impl Source for HeldValues {
    type Object = HeldValue;

    fn open(&self, key: &Key) -> Result<Option<HeldValue>> {
        Ok(self.values.get(key).cloned().flatten().map(HeldValue))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

pub(crate) struct HeldValue(Arc<Vec<u8>>);

impl Object for HeldValue {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // `batch` checked the range against this value, which never changes.
        let offset = offset as usize;
        bytes.copy_from_slice(&self.0[offset..offset + bytes.len()]);
        Ok(())
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}
