//! Values that exist once per process. A forked child gets its own.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

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
    /// Makes an empty slot. The first call of [`PerProcess::get`] makes the value.
    #[allow(clippy::new_without_default)] // for statics, which need a constant
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns this process's value.
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

/// The value in a slot, if the slot belongs to this process.
fn value_of<T>(slot: *mut Slot<T>, process: u32) -> Option<&'static T> {
    // SAFETY: null, or a slot that `get` published, which is never freed or changed.
    let slot: &'static Slot<T> = unsafe { slot.as_ref() }?;
    (slot.process == process).then_some(&slot.value)
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
}
