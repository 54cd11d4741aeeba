//! Handles Ctrl-C and other signals that end a program: the command stops cleanly, removes temporary files, and says
//! how it can continue.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr::{CancellationToken, Error, ErrorKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;

/// The time that a command has to stop cleanly after a signal. A second signal ends it at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Data about the running command that is needed when a signal arrives. A process runs one command at a time.
struct Running {
    cancellation: CancellationToken,
    /// Text that tells the user how the command can continue after it was interrupted.
    hint: Option<String>,
    /// Directories to remove when a signal ends the process.
    temporary: Vec<PathBuf>,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// The number of the signal that stopped the command; 0 while no signal has arrived.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Number of commands that this process has started, so that a late signal does not end a later command.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// Whether no command is running, so that signals have their usual effect. Handlers remain after a command. While this
/// is true, a signal that used to end the process does so again.
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The signals on which a running command is stopped.
static WATCHED: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let [ignored, caught] = [Dispositions::of_process("SigIgn:"), Dispositions::of_process("SigCgt:")];
    let is_watched = |signal: &i32| {
        !ignored.have(*signal)
            && (caught.have(*signal) || register_conditional_default(*signal, Arc::clone(&IDLE)).is_ok())
    };
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_watched).collect()
});

/// A set of signals, such as those that the process ignores (as under `nohup`) or has a handler for. Each signal is one
/// bit.
struct Dispositions(u64);

impl Dispositions {
    /// Reads a set of signals from the line of `/proc/self/status` that begins with `line`. Without this file, the
    /// process is assumed to have no handlers and to ignore nothing.
    fn of_process(line: &str) -> Dispositions {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|found| found.strip_prefix(line));
        Dispositions(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn have(&self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }
}

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that stops the running command when a signal arrives, until the guard is dropped.
pub struct Watch {
    signals: Option<signal_hook::iterator::Handle>,
}

impl Watch {
    /// Begins to wait for signals (such as Ctrl-C) that stop the command, until the result is dropped. `hint` says how
    /// it can continue after an interruption.
    pub fn begin(hint: Option<String>) -> Watch {
        let watched = &*WATCHED;
        IDLE.store(false, Ordering::Release);
        SIGNAL.store(0, Ordering::Release);
        *running() = Some(Running { cancellation: CancellationToken::new(), hint, temporary: Vec::new() });
        let number = NUMBER.fetch_add(1, Ordering::AcqRel) + 1;
        // Without a handler, a signal ends the process as usual.
        let Ok(mut signals) = Signals::new(watched) else { return Watch { signals: None } };
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

    /// Ends the process by the signal that stopped the command, if there was one. Shells notice it and end their loops.
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
        IDLE.store(true, Ordering::Release);
    }
}

/// Returns the token that is cancelled when a signal arrives. Reads and writes use it.
pub fn cancellation() -> CancellationToken {
    running().as_ref().map_or_else(CancellationToken::new, |running| running.cancellation.clone())
}

/// Returns an error if a signal to stop the command has arrived.
///
/// # Errors
/// `Cancelled`
pub fn check() -> cuzarr::Result<()> {
    cancellation().check()
}

/// Registers a directory that is removed even if a signal ends the process.
pub fn remove_at_the_end(directory: PathBuf) {
    if let Some(running) = running().as_mut() {
        running.temporary.push(directory);
    }
}

/// Ends the process at once, by the given signal.
fn end(signal: i32) -> ! {
    if let Some(running) = running().take() {
        for directory in &running.temporary {
            // The process ends, so nobody would see a failure.
            let _ = std::fs::remove_dir_all(directory);
        }
        tell(&running);
    }
    // This only returns if it fails.
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
