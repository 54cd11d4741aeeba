//! Values that live as long as the process, and stay usable in a forked child whatever other threads were doing.

use std::borrow::Borrow;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A value that exists once per process. A forked child gets a new value. It never touches its parent's value, whose
/// locks may be held by threads that do not exist in the child. [`PerProcess::get`] takes no lock, so the value stays
/// usable after a fork at any time.
///
/// ```
/// use std::sync::Mutex;
/// use cuzarr_device::PerProcess;
/// static NAMES: PerProcess<Mutex<Vec<String>>> = PerProcess::new();
/// NAMES.get().lock().unwrap().push("first".to_string());
/// assert_eq!(NAMES.get().lock().unwrap().len(), 1);
/// ```
pub struct PerProcess<T>(AtomicPtr<Slot<T>>);

struct Slot<T> {
    process: u32,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Makes a value that each process creates at first use. The first call of [`PerProcess::get`] makes the value.
    #[allow(clippy::new_without_default)] // for statics, which need a constant
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns this process's value, which is made at the first call.
    pub fn get(&self) -> &'static T {
        let process = std::process::id();
        let mut known = self.0.load(Ordering::Acquire);
        if let Some(value) = value_of(known, process) {
            return value;
        }
        let fresh = Box::into_raw(Box::new(Slot { process, value: T::default() }));
        loop {
            match self.0.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: `fresh` comes from a box, and is never freed once it is published.
                Ok(_) => return unsafe { &(*fresh).value },
                Err(others) => known = others,
            }
            if let Some(value) = value_of(known, process) {
                // SAFETY: `fresh` comes from a box, and no other code has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                return value;
            }
        }
    }
}

/// The process that first called [`is_forked`], or 0.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Whether this process is a forked child of one that had called this function. The engine and the Python package call
/// it when they start.
///
/// ```
/// assert!(!cuzarr_device::is_forked());
/// ```
pub fn is_forked() -> bool {
    let own = std::process::id();
    FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).is_err_and(|first| first != own)
}

/// The value that a slot holds, if this process (with the number `process`) made it.
fn value_of<T>(slot: *mut Slot<T>, process: u32) -> Option<&'static T> {
    // SAFETY: null, or a slot that `get` published, which is never freed or changed.
    let slot: &'static Slot<T> = unsafe { slot.as_ref() }?;
    (slot.process == process).then_some(&slot.value)
}

/// A map whose entries are never changed or removed. It takes no lock, so a forked child finds its parent's entries in
/// it and can add its own, even if other threads of the parent were adding some.
///
/// ```
/// use cuzarr_device::AppendOnlyMap;
/// static SIZES: AppendOnlyMap<String, u64> = AppendOnlyMap::new();
/// assert_eq!(SIZES.insert("a".to_string(), 1), &1);
/// assert_eq!(SIZES.insert("a".to_string(), 2), &1); // the first value stays
/// assert_eq!((SIZES.get("a"), SIZES.get("b")), (Some(&1), None));
/// ```
pub struct AppendOnlyMap<K, V>(AtomicPtr<Entry<K, V>>);

struct Entry<K, V> {
    key: K,
    value: V,
    /// The entry that was added before this one; null for the first.
    before: *mut Entry<K, V>,
}

impl<K: Eq + Send + Sync + 'static, V: Send + Sync + 'static> AppendOnlyMap<K, V> {
    /// Makes an empty map.
    #[allow(clippy::new_without_default)] // for statics, which need a constant
    pub const fn new() -> AppendOnlyMap<K, V> {
        AppendOnlyMap(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of `key`, if there is one. Looks at each entry, so it suits small maps.
    pub fn get<Q: Eq + ?Sized>(&self, key: &Q) -> Option<&'static V>
    where
        K: Borrow<Q>,
    {
        self.entries(self.0.load(Ordering::Acquire)).find(|entry| entry.key.borrow() == key).map(|entry| &entry.value)
    }

    /// Adds `value`, unless the key has a value already. Returns the value that the key has now.
    pub fn insert(&self, key: K, value: V) -> &'static V {
        let mut last = self.0.load(Ordering::Acquire);
        let mut fresh = Box::new(Entry { key, value, before: last });
        loop {
            if let Some(found) = self.entries(last).find(|entry| entry.key == fresh.key) {
                return &found.value;
            }
            fresh.before = last;
            let published = Box::into_raw(fresh);
            match self.0.compare_exchange(last, published, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: `published` comes from a box, and is never freed now.
                Ok(_) => return unsafe { &(*published).value },
                Err(others) => last = others,
            }
            // SAFETY: `published` comes from a box, and no other code has seen it.
            fresh = unsafe { Box::from_raw(published) };
        }
    }

    /// Number of keys in the map.
    pub fn len(&self) -> usize {
        self.entries(self.0.load(Ordering::Acquire)).count()
    }

    /// Whether the map has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire).is_null()
    }

    /// The entries of the map from `last` to the first one that was added.
    fn entries(&self, last: *mut Entry<K, V>) -> impl Iterator<Item = &'static Entry<K, V>> {
        // SAFETY: null, or an entry that `insert` published, which is never freed or changed.
        let entry = |at: *mut Entry<K, V>| -> Option<&'static Entry<K, V>> { unsafe { at.as_ref() } };
        std::iter::successors(entry(last), move |newer| entry(newer.before))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_threads_of_a_process_get_one_value() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| *VALUE.get().lock().unwrap() += 1);
            }
        });
        assert_eq!(*VALUE.get().lock().unwrap(), 8);
    }

    #[test]
    fn a_value_of_another_process_is_replaced() {
        let parents = Slot { process: std::process::id().wrapping_add(1), value: Mutex::new(7) };
        let value = PerProcess(AtomicPtr::new(Box::into_raw(Box::new(parents))));
        let ours: &Mutex<i32> = value.get();
        assert_eq!(*ours.lock().unwrap(), 0);
        assert!(ptr::eq(ours, value.get()));
    }
    #[test]
    fn threads_that_add_one_key_get_the_first_value() {
        static VALUES: AppendOnlyMap<u32, u32> = AppendOnlyMap::new();
        assert!(VALUES.is_empty());
        let found = std::thread::scope(|threads| {
            let adding = |thread: u32| (0..100).map(|key| *VALUES.insert(key, thread)).collect::<Vec<_>>();
            let running: Vec<_> = (0..8).map(|thread| threads.spawn(move || adding(thread))).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(found.iter().all(|values| *values == found[0]));
        assert_eq!((VALUES.len(), VALUES.get(&100)), (100, None));
        assert!((0..100).all(|key| VALUES.get(&key) == Some(&found[0][key as usize])));
    }
}
