//! A map of keys and values in memory, from which stores list and delete. Stores that have all their keys in memory
//! share it, including stores of `cuzarr-remote`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::key::{join_key, validate_key, validate_prefix};
use super::{Key, Listing};
use crate::error::Result;

/// A map of keys and values, sorted by key, from which stores in memory are built. Clones share it.
pub struct Values<V>(Arc<RwLock<BTreeMap<String, V>>>);

impl<V> Clone for Values<V> {
    fn clone(&self) -> Self {
        Values(Arc::clone(&self.0))
    }
}

impl<V> Default for Values<V> {
    fn default() -> Self {
        Values(Arc::default())
    }
}

impl<V: Clone> Values<V> {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, V>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keys in the map.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether the map has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a clone of the value of a key; `None` if the map has no such key.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn get(&self, key: &Key) -> Result<Option<V>> {
        validate_key(key)?;
        Ok(self.read().get(key).cloned())
    }

    /// Inserts a value unless `may_replace`, which gets the key's old value, forbids it. Returns whether it did.
    /// `may_replace` gets the old value, if any.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn insert_if(&self, key: &Key, value: V, may_replace: impl FnOnce(Option<&V>) -> bool) -> Result<bool> {
        validate_key(key)?;
        let mut values = self.write();
        if !may_replace(values.get(key)) {
            return Ok(false);
        }
        let old = values.insert(key.to_string(), value);
        // The old value is dropped after the lock is released, because freeing device memory may wait.
        drop(values);
        drop(old);
        Ok(true)
    }

    /// Removes these keys with their values. Missing keys are not an error.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn remove(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| {
            validate_key(key)?;
            let old = self.write().remove(key);
            drop(old);
            Ok(())
        })
    }

    /// Removes every key below a prefix, with its value.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn remove_prefix(&self, prefix: &Key) -> Result<()> {
        validate_prefix(prefix)?;
        let mut values = self.write();
        let removed = if prefix.is_empty() {
            std::mem::take(&mut *values)
        } else {
            // Everything below `prefix/` lies between `prefix/` and `prefix0`, because '0' is the character after '/'.
            let mut tail = values.split_off(&format!("{prefix}/"));
            let mut rest = tail.split_off(&format!("{prefix}0"));
            values.append(&mut rest);
            tail
        };
        drop(values);
        drop(removed);
        Ok(())
    }

    /// The keys and prefixes directly below a prefix, sorted.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        validate_prefix(prefix)?;
        let (values, start) = (self.read(), join_key(prefix, ""));
        let (mut listing, mut from) = (Listing::default(), start.clone());
        // The loop skips whole sub-prefixes, so its cost is the number of entries, not the number of keys below them.
        while let Some((key, _)) = values.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded)).next() {
            let Some(name) = key.strip_prefix(&start) else { break };
            match name.split_once('/') {
                None => {
                    listing.keys.push(key.clone());
                    from = format!("{key}\0");
                }
                Some((child, _)) => {
                    listing.prefixes.push(format!("{start}{child}"));
                    from = format!("{start}{child}0");
                }
            }
        }
        // 'a' < 'a-b' < 'a/c': the loop finds 'a-b' before the prefix 'a', so the prefixes must be sorted.
        listing.prefixes.sort_unstable();
        Ok(listing)
    }

    /// Every key below a prefix, sorted.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        validate_prefix(prefix)?;
        let (values, start) = (self.read(), join_key(prefix, ""));
        let below = values.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
        Ok(below.map(|(key, _)| key).take_while(|key| key.starts_with(&start)).cloned().collect())
    }
}
