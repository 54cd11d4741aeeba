//! Waiting until a number of jobs have ended.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Ends when all tickets are dropped, also those of jobs that never ran.
pub(crate) struct Countdown(Arc<Inner>);

/// Keeps a countdown from ending while it, or a clone of it, lives.
pub(crate) struct Ticket(Arc<Inner>);

#[derive(Default)]
struct Inner {
    tickets: Mutex<usize>,
    ended: Condvar,
}

impl Countdown {
    /// Begins a countdown, with its first ticket.
    pub(crate) fn new() -> (Countdown, Ticket) {
        let inner = Arc::new(Inner { tickets: Mutex::new(1), ended: Condvar::new() });
        (Countdown(Arc::clone(&inner)), Ticket(inner))
    }

    /// Whether all tickets are dropped.
    pub(crate) fn is_done(&self) -> bool {
        *self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Waits until all tickets are dropped.
    pub(crate) fn wait(&self) {
        let mut tickets = self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        while *tickets > 0 {
            tickets = self.0.ended.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Clone for Ticket {
    fn clone(&self) -> Ticket {
        *self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Ticket(Arc::clone(&self.0))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut tickets = self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        *tickets -= 1;
        if *tickets == 0 {
            self.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_last_ticket() {
        let (countdown, ticket) = Countdown::new();
        let other = ticket.clone();
        drop(ticket);
        assert!(!countdown.is_done());
        let job = std::thread::spawn(move || {
            let _ticket = other;
            panic!("on purpose");
        });
        countdown.wait();
        assert!(countdown.is_done() && job.join().is_err());
    }
}
