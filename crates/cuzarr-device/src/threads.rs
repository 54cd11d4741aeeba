//! Threads of a call that works on memory of the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Processors that this process may use.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Does each piece of work on some thread, at most `threads` at a time, the caller's among them. Results are in the order of the work.
pub(crate) fn in_threads<I: Send, O: Send>(threads: usize, work: Vec<I>, run: impl Fn(I) -> O + Sync) -> Vec<O> {
    if threads <= 1 || work.len() <= 1 {
        return work.into_iter().map(run).collect();
    }
    let count = work.len();
    let work: Vec<Mutex<Option<I>>> = work.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let results: Vec<Mutex<Option<O>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let each = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(one), Some(result)) = (work.get(at), results.get(at)) else { return };
            let Some(one) = one.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            let done = run(one);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // A thread that the system refuses leaves its work to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, each);
        }
        each();
    });
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_threads_keeps_its_order() {
        assert_eq!(
            in_threads(4, (0..100).collect(), |at: usize| at * at),
            (0..100).map(|at| at * at).collect::<Vec<_>>()
        );
    }
}
