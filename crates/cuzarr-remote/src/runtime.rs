//! The runtime of the process: the threads on which requests run.
//!
//! Threads of a runtime do not survive a fork, and neither do their connections. So everything that belongs to a
//! runtime records the number of its process. A child process starts its own runtime at its first request.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::limit::Limit;
use cuzarr::device::PerProcess;
use cuzarr::{Error, ErrorKind, Result};
use tokio::task::AbortHandle;

/// Largest number of threads that make requests to servers. They copy bytes from connections; one thread copies about 5
/// GB/s.
const MOST_THREADS: usize = 16;

thread_local! {
    /// Whether the current thread is one of the runtime's threads for requests to servers.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// The threads of this process that make requests to servers, and the limit of each host.
pub(crate) struct Runtime {
    process: u32,
    threads: tokio::runtime::Runtime,
    /// For each host, the limit of unanswered requests that all stores on that host share.
    hosts: Mutex<HashMap<(String, usize, u64), Weak<Limit>>>,
}

impl Runtime {
    /// Returns the process's runtime: the threads that make requests to servers. The first call starts it.
    ///
    /// # Errors
    /// `StoreFailed` when the system cannot start threads.
    pub(crate) fn get() -> Result<Arc<Runtime>> {
        static RUNTIME: PerProcess<Mutex<Option<Arc<Runtime>>>> = PerProcess::new();
        let mut current = RUNTIME.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*current {
            return Ok(Arc::clone(runtime));
        }
        let started = Arc::new(Runtime::start()?);
        *current = Some(Arc::clone(&started));
        Ok(started)
    }

    fn start() -> Result<Runtime> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST_THREADS);
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name("cuzarr-remote")
            .on_thread_start(|| IS_OURS.set(true))
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::StoreFailed, format!("cannot start threads for requests: {error}")).telling(error)
            })?;
        Ok(Runtime { process: std::process::id(), threads, hosts: Mutex::default() })
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the limit of unanswered requests for a host, shared by all stores on that host.
    pub(crate) fn limit(&self, host: &str, most_requests: usize, most_bytes: u64) -> Arc<Limit> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_string(), most_requests, most_bytes);
        if let Some(limit) = hosts.get(&key).and_then(Weak::upgrade) {
            return limit;
        }
        hosts.retain(|_, limit| limit.strong_count() > 0);
        let limit = Arc::new(Limit::new(most_requests, most_bytes));
        hosts.insert(key, Arc::downgrade(&limit));
        limit
    }

    /// Starts work on the process's threads for requests to servers, and does not wait for it. The returned handle can
    /// abort it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.threads.spawn(work).abort_handle()
    }

    /// Runs work on the process's threads for requests to servers, and waits for its result. The calling thread may
    /// belong to any runtime. A thread of this runtime first hands over its other tasks. (After a failed read, such a
    /// thread requests the size of the value.)
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) fn wait<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.threads.spawn(async move {
            // The receiver waits below, so sending cannot fail.
            let _ = sender.send(work.await);
        });
        let lost = || Err(Error::new(ErrorKind::StoreFailed, "a request was dropped without an outcome"));
        let receive = || receiver.recv().unwrap_or_else(|_| lost());
        if IS_OURS.get() { tokio::task::block_in_place(receive) } else { receive() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_runtime_and_a_host_one_limit() {
        let runtime = Runtime::get().unwrap();
        assert!(Arc::ptr_eq(&runtime, &Runtime::get().unwrap()));
        let limit = runtime.limit("host", 3, 9);
        assert!(Arc::ptr_eq(&limit, &runtime.limit("host", 3, 9)) && limit.now() == 3);
        assert!(!Arc::ptr_eq(&limit, &runtime.limit("other", 3, 9)));
        assert_eq!(runtime.wait(async { Ok(7) }).unwrap(), 7);
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let inside = other.block_on(async { runtime.wait(async { Ok(8) }) });
        assert_eq!(inside.unwrap(), 8, "a thread of another runtime may wait");
    }

    #[test]
    fn more_tasks_than_threads_wait_for_work_of_the_runtime() {
        let runtime = Runtime::get().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..2 * MOST_THREADS {
            let (sender, inner) = (sender.clone(), Arc::clone(&runtime));
            runtime.spawn(async move { sender.send(inner.wait(async move { Ok(number) }).unwrap()).unwrap() });
        }
        let wait = || receiver.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        let mut numbers: Vec<usize> = (0..2 * MOST_THREADS).map(|_| wait()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..2 * MOST_THREADS).collect::<Vec<_>>());
    }
}
