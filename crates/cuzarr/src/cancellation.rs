//! Cancellation tokens: the one way to tell a call to stop.
//!
//! A token travels in the options of a call, like an abort signal in a web request. The store never holds it. The engine asks
//! the token before each object that it reads or writes, and every 50 ms while it waits. So a cancelled call ends at its next
//! object, never inside one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Time between two calls of [`CancellationToken::poll`] by a thread that waits for others.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A token that tells calls to stop, from any thread. Clones share one state. A cancelled token stays cancelled.
///
/// ```
/// use cuzarr::{CancellationToken, ErrorKind};
/// use cuzarr::node::ArrayOptions;
/// let token = CancellationToken::new();
/// let options = ArrayOptions::default().with_cancellation(token.clone());
/// assert!(options.cancellation.check().is_ok());
/// token.cancel();
/// assert_eq!(options.cancellation.check().unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
#[derive(Clone, Default)]
pub struct CancellationToken(Arc<State>);

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    parents: Vec<CancellationToken>,
    listen: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        CancellationToken::default()
    }

    /// A token that is cancelled as soon as one of `parents` is. It can also be cancelled alone.
    #[must_use]
    pub fn under(parents: Vec<CancellationToken>) -> Self {
        CancellationToken(Arc::new(State { parents, ..State::default() }))
    }

    /// Like [`CancellationToken::under`], with a listener. The thread that waits for the call also calls `listen` from time to
    /// time, and cancels the token when that returns true.
    #[must_use]
    pub fn listening(parents: Vec<CancellationToken>, listen: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        CancellationToken(Arc::new(State { parents, listen: Some(Box::new(listen)), ..State::default() }))
    }

    /// Cancels the token: calls that carry it fail before their next object.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Whether this token or one of its parents was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire) || self.0.parents.iter().any(CancellationToken::is_cancelled)
    }

    /// Checks that the token is not cancelled.
    ///
    /// # Errors
    /// `Cancelled`
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "the call was cancelled")) } else { Ok(()) }
    }

    /// Like [`CancellationToken::check`], for the thread that waits: it calls the listener first.
    ///
    /// # Errors
    /// `Cancelled`
    pub fn poll(&self) -> Result<()> {
        if self.0.listen.as_ref().is_some_and(|listen| listen()) {
            self.cancel();
        }
        self.check()
    }
}

/// Tokens are equal when they share their state.
impl PartialEq for CancellationToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_cancelled() { "cancelled" } else { "not cancelled" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_cancels_its_children_and_no_child_its_parent() {
        let (parent, other) = (CancellationToken::new(), CancellationToken::new());
        let child = CancellationToken::under(vec![parent.clone(), other]);
        let sibling = CancellationToken::under(vec![parent.clone()]);
        child.cancel();
        assert!(child.is_cancelled() && !parent.is_cancelled() && !sibling.is_cancelled());
        parent.cancel();
        assert_eq!(sibling.check().unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn only_the_thread_that_waits_listens() {
        let token = CancellationToken::listening(Vec::new(), || true);
        assert!(token.check().is_ok());
        assert!(token.poll().is_err());
        assert!(token.check().is_err(), "all threads hear of it");
    }
}
