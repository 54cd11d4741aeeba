//! Prints results, progress and errors.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use cuzarr::internal::{is_printable, printable, printable_lines};
use cuzarr::store::Registry;
use cuzarr_device::{DType, DTypeKind};
use serde_json::{Value, json};

/// Time between two lines of progress, where lines follow each other, as in a log.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// How progress is shown on standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Progress is shown in one line of a terminal, which each new state overwrites.
    Terminal,
    /// Progress is shown in a new line every few seconds, for logs.
    Lines,
    Nothing,
}

/// The output of a command: text or JSON on standard output, and progress on standard error.
pub struct Output {
    json: bool,
    registry: Registry,
    shown: Shown,
    last_progress: Option<Instant>,
    /// The error that occurred when the command's result was printed. It is not an error if the reader closes the pipe.
    unprinted: Option<io::Error>,
}

impl Output {
    /// Makes the output of a command, which prints its result as text or as JSON. `registry` opens the command's paths
    /// and URLs. If standard error is not a terminal, progress is only shown if `progress` is set.
    pub fn new(json: bool, progress: bool, registry: Registry) -> Self {
        let shown = match (std::io::stderr().is_terminal(), progress) {
            (true, _) => Shown::Terminal,
            (false, true) => Shown::Lines,
            (false, false) => Shown::Nothing,
        };
        Output { json, registry, shown, last_progress: None, unprinted: None }
    }

    /// Returns the registry that opens the paths and URLs of this command.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Prints the result of the command: `document` with `--json`, else `text`.
    pub fn answer(&mut self, document: &Value, text: &str) {
        self.answer_with_picture(document, text, "");
    }

    /// Prints the result of the command with a picture below the text. The picture's colour codes are not escaped.
    pub fn answer_with_picture(&mut self, document: &Value, text: &str, picture: &str) {
        self.clear_progress();
        let printed = match self.json {
            true => json_text(document),
            false => format!("{}{picture}", printable_lines(text)).trim_end().to_string(),
        };
        self.print(format!("{printed}\n").as_bytes());
    }

    /// Writes bytes to standard output. A failure is kept for [`Output::finish`].
    pub fn print(&mut self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(bytes).and_then(|()| out.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Returns the exit status of the command: `status`, or 1 if its answer could not be printed.
    pub fn finish(&mut self, status: i32) -> i32 {
        let Some(error) = self.unprinted.take() else { return status };
        let error = error.to_string();
        // Drops the error number, which only programs understand.
        let reason = error.split(" (os error").next().unwrap_or(&error);
        let message = format!("cannot write to standard output: {}", reason.to_lowercase());
        tell(&cuzarr::Error::new(cuzarr::ErrorKind::StoreFailed, message));
        if status == 0 { 1 } else { status }
    }

    /// Prints a warning to standard error.
    pub fn warn(&mut self, warning: &str) {
        self.clear_progress();
        let _ = writeln!(std::io::stderr(), "cuzarr: warning: {}", printable(warning));
    }

    /// Prints an error to standard error. With `--json`, it is also the answer.
    pub fn error(&mut self, error: &cuzarr::Error) {
        self.clear_progress();
        tell(error);
        self.error_document(error);
    }

    /// Prints an error as JSON to standard output, if the user gave `--json`.
    pub fn error_document(&mut self, error: &cuzarr::Error) {
        if self.json {
            let document = json!({"error": {
                "kind": error.kind().name(), "message": error.message(), "trail": error.trail(), "hint": error.hint(),
            }});
            self.print(format!("{}\n", json_text(&document)).as_bytes());
        }
    }

    /// Prints a note about the command's result to standard error, with a hint that says what the user can do.
    pub fn note(&mut self, note: &str, hint: &str) {
        self.clear_progress();
        let _ = writeln!(std::io::stderr(), "cuzarr: note: {}\n  hint: {}", printable(note), printable(hint));
    }

    /// Shows how far long work has come, such as `3 of 10`.
    pub fn progress(&mut self, what: &str, done: u64, total: u64) {
        let percent = (100 * done).checked_div(total).unwrap_or(100);
        self.show(|| format!("{}: {done} of {total} ({percent} %)", printable(what)));
    }

    /// Shows how far work on bytes has come, its speed, and the remaining time.
    pub fn throughput(&mut self, what: &str, done: u64, total: u64, seconds: f64) {
        self.show(|| {
            let percent = (100.0 * done as f64 / total.max(1) as f64).min(100.0);
            let left = if done > 0 { seconds * total.saturating_sub(done) as f64 / done as f64 } else { 0.0 };
            let (what, shown, all) = (printable(what), bytes(done), bytes(total));
            format!("{what}: {shown} of {all} ({percent:.0} %), {}, {} left", rate(done, seconds), duration(left))
        });
    }

    /// Shows a line of progress: on a terminal at most ten times a second, else every ten seconds.
    fn show(&mut self, line: impl FnOnce() -> String) {
        let between = if self.shown == Shown::Terminal { Duration::from_millis(100) } else { BETWEEN_LINES };
        if self.shown == Shown::Nothing || self.last_progress.is_some_and(|last| last.elapsed() < between) {
            return;
        }
        self.last_progress = Some(Instant::now());
        let _ = match self.shown {
            Shown::Terminal => write!(std::io::stderr(), "\r\x1b[K{}", line()),
            _ => writeln!(std::io::stderr(), "{}", line()),
        };
    }

    /// Removes the line of progress from the terminal.
    pub fn clear_progress(&mut self) {
        if self.last_progress.take().is_some() && self.shown == Shown::Terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Writes an error to standard error. If that fails because nobody reads it, the exit status is still right.
pub fn tell(error: &cuzarr::Error) {
    let _ = writeln!(io::stderr(), "cuzarr: {error}");
}

/// Returns the width of the terminal in columns: the variable `COLUMNS`, or what the terminal reports. `None` if the
/// answer does not go to a terminal and `COLUMNS` is not set.
pub fn terminal_columns() -> Option<u64> {
    let wish = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    let width = |(terminal_size::Width(columns), _)| u64::from(columns);
    wish.or_else(|| terminal_size::terminal_size_of(io::stdout()).map(width))
}

/// Whether the answer may have colours: on a terminal, unless the user turned them off (<https://no-color.org>).
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty())
}

/// Formats a document as indented JSON. Characters that could control a terminal are escaped.
fn json_text(document: &Value) -> String {
    let mut shown = String::new();
    for character in format!("{document:#}").chars() {
        if character == '\n' || is_printable(character) {
            shown.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown += &format!("\\u{unit:04x}");
            }
        }
    }
    shown
}

/// Formats rows of text as a table with aligned columns, below a header. The first column is text, the others are
/// numbers. Line breaks in cells are escaped, so that a name cannot add rows.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, &width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        padded.join("  ").trim_end().to_string()
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(AsRef::as_ref))));
    lines.join("\n")
}

/// Formats a number of bytes for people: `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// Formats a number for people: up to nine digits, without zeros at the end.
pub fn number(value: f64) -> String {
    let rounded = format!("{value:.8e}").parse().unwrap_or(value);
    format!("{rounded:?}")
}

/// Formats an element as the shortest text that represents it in its type.
pub fn element(value: f64, dtype: Option<DType>) -> String {
    match dtype {
        Some(DType::FLOAT16 | DType::BFLOAT16 | DType::FLOAT32) => format!("{:?}", value as f32),
        Some(dtype) if dtype.kind() != DTypeKind::Float => format!("{value}"),
        _ => format!("{value:?}"),
    }
}

/// Returns the speed of `bytes` in `seconds`, in 10⁹ bytes per second.
pub fn gigabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 }
}

/// Formats the speed of `bytes` in `seconds` for people, in a suitable unit: `1.25 GB/s`.
pub fn rate(bytes: u64, seconds: f64) -> String {
    const UNITS: [&str; 4] = ["B/s", "kB/s", "MB/s", "GB/s"];
    let (mut value, mut unit) = (if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B/s") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// Formats a duration for people: `42 s`, `3 min 5 s`, `2 h 10 min`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_text_left_and_numbers_right() {
        let rows = vec![vec!["fetch".into(), "1.25".into()], vec!["up".into(), "10.00".into()]];
        assert_eq!(table(&["stage", "s"], &rows), "stage      s\nfetch   1.25\nup     10.00");
    }

    #[test]
    fn a_name_with_line_breaks_makes_no_rows() {
        let rows = vec![vec!["a\nb  complete".into(), "0".into()]];
        assert_eq!(table(&["array", "regions"], &rows).lines().count(), 2);
    }

    #[test]
    fn json_escapes_what_a_terminal_might_obey_and_means_the_same() {
        let document = json!({"\u{1b}[31m": "\u{9b}A\u{202e}\u{e0041}é\u{301}"});
        let text = json_text(&document);
        assert!(text.chars().all(|character| character == '\n' || is_printable(character)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }

    #[test]
    fn numbers_have_nine_digits() {
        let texts = [280.009_382_010_64, 0.5, 3.0, 1e300, f64::NAN, f64::from(180.2f32)].map(number);
        assert_eq!(texts, ["280.009382", "0.5", "3.0", "1e300", "NaN", "180.199997"]);
    }

    #[test]
    fn elements_are_written_as_their_type_has_them() {
        let value = f64::from(180.2f32);
        let texts = [DType::FLOAT32, DType::FLOAT64, DType::INT8].map(|dtype| element(value, Some(dtype)));
        assert_eq!(texts, ["180.2", "180.1999969482422", "180.1999969482422"]);
        assert_eq!([element(3.0, Some(DType::INT64)), element(3.0, None)], ["3", "3.0"]);
    }

    #[test]
    fn rates_and_durations_choose_their_units() {
        let rates = [(0, 0.0), (999, 1.0), (1500, 1.0), (45_000_000, 2.0), (8_000_000_000_000, 2.0)];
        let texts = rates.map(|(bytes, seconds)| rate(bytes, seconds));
        assert_eq!(texts, ["0 B/s", "999 B/s", "1.50 kB/s", "22.50 MB/s", "4000.00 GB/s"]);
        assert_eq!([0.4, 59.0, 185.0, 7800.0].map(duration), ["0 s", "59 s", "3 min 5 s", "2 h 10 min"]);
    }

    #[test]
    fn bytes_choose_their_unit() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(3 << 30)], ["0 B", "1023 B", "1.50 KiB", "3.00 GiB"]);
    }
}
