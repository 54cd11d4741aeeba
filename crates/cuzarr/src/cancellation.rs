//! Cancellation tokens, the one way to stop a call.
//!
//! A token is passed in the options of a call, like an abort signal in a web request. The store never holds it. The
//! engine checks the token before each object that it reads or writes, and every 50 ms while it waits. So a cancelled
//! call ends before its next object, never inside one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// How long a waiting thread sleeps between two checks of its cancellation token.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A token to pass in the options of calls, so that any thread can stop these calls later. Clones share one state. A
/// cancelled token stays cancelled.
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
    /// Makes a token that is not cancelled.
    pub fn new() -> Self {
        CancellationToken::default()
    }

    /// Makes a token that is cancelled as soon as one of `parents` is. It can also be cancelled by itself.
    #[must_use]
    pub fn under(parents: Vec<CancellationToken>) -> Self {
        CancellationToken(Arc::new(State { parents, ..State::default() }))
    }

    /// Makes a token that is cancelled when its listener returns true. Each check of the token, or of a token under it,
    /// calls the listener from the checking thread. So the listener must be quick.
    #[must_use]
    pub fn listening(listen: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        CancellationToken(Arc::new(State { listen: Some(Box::new(listen)), ..State::default() }))
    }

    /// Cancels this token, so that calls that were given it stop. Calls with this token fail before their next object.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Whether this token or one of its parents was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire) || self.0.parents.iter().any(CancellationToken::is_cancelled)
    }

    /// Returns an error if this token was cancelled, or one of its parents.
    ///
    /// # Errors
    /// `Cancelled`
    pub fn check(&self) -> Result<()> {
        if self.hears() { Err(Error::new(ErrorKind::Cancelled, "the call was cancelled")) } else { Ok(()) }
    }

    /// Waits for the next message from `receiver`, and meanwhile checks whether the token is cancelled. `None` if there
    /// is no sender left.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn receive<T>(&self, receiver: &Receiver<T>) -> Result<Option<T>> {
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.check()?,
            }
        }
    }

    /// Asks the listeners of this token and its parents whether to cancel. Returns whether this token or one of its
    /// parents is cancelled.
    fn hears(&self) -> bool {
        if self.0.listen.as_ref().is_some_and(|listen| listen()) {
            self.cancel();
        }
        self.0.cancelled.load(Ordering::Acquire) || self.0.parents.iter().any(CancellationToken::hears)
    }
}

/// Tokens are equal if one is a clone of the other.
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
    fn a_check_asks_the_listeners_of_all_parents() {
        let heard = Arc::new(AtomicBool::new(false));
        let listening = CancellationToken::listening({
            let heard = Arc::clone(&heard);
            move || heard.load(Ordering::Relaxed)
        });
        let token = CancellationToken::under(vec![CancellationToken::new(), listening.clone()]);
        assert!(token.check().is_ok());
        heard.store(true, Ordering::Relaxed);
        assert!(!token.is_cancelled(), "nobody has asked");
        assert!(token.check().is_err());
        heard.store(false, Ordering::Relaxed);
        assert!(listening.is_cancelled() && token.check().is_err(), "it stays cancelled");
    }

    #[test]
    fn who_waits_for_a_message_hears_of_a_cancellation() {
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(1).unwrap();
        let token = CancellationToken::listening(|| true);
        assert_eq!(token.receive(&receiver).unwrap(), Some(1));
        assert_eq!(token.receive(&receiver).unwrap_err().kind(), ErrorKind::Cancelled);
        drop(sender);
        assert_eq!(CancellationToken::new().receive(&receiver).unwrap(), None);
    }
}
