//! Ctrl-C and the other signals that end a program: the command ends in order, tidies up, and says how it can go on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr::{CancellationToken, Error, ErrorKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The time that the command has to end in order. Another signal ends it at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the running command. A process runs one at a time.
struct Running {
    cancellation: CancellationToken,
    /// How the command can go on after it was interrupted.
    hint: Option<String>,
    /// Directories that nobody needs when the command is over.
    temporary: Vec<PathBuf>,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// The signal that came, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// How many commands this process has begun.
static NUMBER: AtomicU64 = AtomicU64::new(0);

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for signals while a command runs.
pub struct Watch {
    signals: Option<signal_hook::iterator::Handle>,
}

impl Watch {
    /// Begins to watch over a command. `hint` says how it can go on when it is interrupted.
    pub fn begin(hint: Option<String>) -> Watch {
        SIGNAL.store(0, Ordering::Release);
        *running() = Some(Running { cancellation: CancellationToken::new(), hint, temporary: Vec::new() });
        let number = NUMBER.fetch_add(1, Ordering::AcqRel) + 1;
        // Without a handler, a signal ends the process as it always does.
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return Watch { signals: None } };
        let handle = signals.handle();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let is_first = SIGNAL.swap(signal, Ordering::AcqRel) == 0;
                if !is_first {
                    end(signal);
                }
                cancellation().cancel();
                std::thread::spawn(move || {
                    std::thread::sleep(PATIENCE);
                    if NUMBER.load(Ordering::Acquire) == number && running().is_some() {
                        end(signal);
                    }
                });
            }
        });
        Watch { signals: Some(handle) }
    }

    /// Ends the process by the signal that has ended the command, when there was one. Shells see it, and end their loops.
    pub fn end_if_interrupted(&self) {
        let signal = SIGNAL.load(Ordering::Acquire);
        if signal != 0 {
            end(signal);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *running() = None;
        if let Some(signals) = &self.signals {
            signals.close();
        }
    }
}

/// Cancelled when a signal has come. Calls that read and write carry it.
pub fn cancellation() -> CancellationToken {
    running().as_ref().map_or_else(CancellationToken::new, |running| running.cancellation.clone())
}

/// Checks that no signal has come.
///
/// # Errors
/// `Cancelled`
pub fn check() -> cuzarr::Result<()> {
    cancellation().check()
}

/// Removes a directory also when a signal ends the process.
pub fn remove_at_the_end(directory: PathBuf) {
    if let Some(running) = running().as_mut() {
        running.temporary.push(directory);
    }
}

/// Ends the process at once, by the signal.
fn end(signal: i32) -> ! {
    if let Some(running) = running().take() {
        for directory in &running.temporary {
            // The process is over: there is nobody to tell.
            let _ = std::fs::remove_dir_all(directory);
        }
        tell(&running);
    }
    // This only returns when it fails.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}

fn tell(running: &Running) {
    let mut error = Error::new(ErrorKind::Cancelled, "interrupted");
    if let Some(hint) = &running.hint {
        error = error.with_hint(hint.clone());
    }
    crate::output::tell(&error);
}
