//! Converts errors of clients to our own: what failed, where and why, without secrets.

use std::fmt;

use cuzarr::{Error, ErrorKind};
use object_store::client::{HttpError, HttpErrorKind};

/// Longest part of a server's error text that an error message repeats, in characters; the rest is cut off.
const LONGEST_ANSWER: usize = 300;

/// A server's answer that refuses a range request, and that clients would report as some other failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeRefusal {
    /// The server ignores the range that a request asks for, and sends the whole value.
    Ignored,
    /// The requested range does not begin inside the value.
    Unsatisfiable,
}

impl fmt::Display for RangeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RangeRefusal::Ignored => "the server ignores range requests",
            RangeRefusal::Unsatisfiable => "the range does not begin inside the value",
        })
    }
}

impl std::error::Error for RangeRefusal {}

impl RangeRefusal {
    /// Returns the refused range request that caused a client's error, if there is one.
    pub(crate) fn of(error: &object_store::Error) -> Option<RangeRefusal> {
        let own = causes(error).find_map(|cause| cause.downcast_ref()).copied();
        // Clients without a server, such as `InMemory`, refuse ranges with a type that is private to `object_store`.
        let is_of_client = || causes(error).any(|cause| cause.to_string().starts_with("Wanted range starting at "));
        own.or_else(|| is_of_client().then_some(RangeRefusal::Unsatisfiable))
    }
}

/// Converts a client's error, after all retries failed, to our own error with its reason.
pub(crate) fn explain(error: &object_store::Error) -> Error {
    if let Some(own) = causes(error).find_map(|cause| cause.downcast_ref::<Error>()) {
        return own.clone();
    }
    let failed = |message: String| Error::new(ErrorKind::StoreFailed, message);
    match error {
        object_store::Error::NotFound { source, .. } => {
            failed(format!("not found{}", answer(&source.to_string()))).with_hint("check the name of the bucket")
        }
        object_store::Error::PermissionDenied { source, .. } => denied(&source.to_string()),
        object_store::Error::Unauthenticated { source, .. } => {
            failed(format!("the credentials were refused{}", answer(&source.to_string())))
                .with_hint("check the credentials; public data may need anon=true")
        }
        object_store::Error::Precondition { .. } => {
            failed("the value was changed while it was read".to_string()).with_hint("read again")
        }
        _ => match (RangeRefusal::of(error), transport_kind(error)) {
            (Some(refusal), _) => failed(refusal.to_string()),
            (None, Some(HttpErrorKind::Timeout)) => failed(format!("timed out{}", attempts(&innermost(error)))),
            (None, Some(HttpErrorKind::Connect)) => {
                failed(format!("cannot connect{}: {}", attempts(&innermost(error)), root_cause(error)))
            }
            (None, Some(_)) => {
                failed(format!("connection failed{}: {}", attempts(&innermost(error)), root_cause(error)))
            }
            (None, None) => match innermost(error) {
                // A listing's refusal has no variant of its own.
                text if text.contains("status code: 403 ") => denied(&text),
                text => failed(format!("request failed{}", answer(&text))),
            },
        },
    }
}

fn denied(message: &str) -> Error {
    let message = format!("permission denied{}", answer(message));
    Error::new(ErrorKind::PermissionDenied, message).with_hint(
        "check the credentials and their rights; without the right to list, S3 also refuses keys that do not exist: \
         missing_when_denied=true takes them for missing",
    )
}

fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

fn transport_kind(error: &object_store::Error) -> Option<HttpErrorKind> {
    causes(error).find_map(|cause| cause.downcast_ref::<HttpError>()).map(HttpError::kind)
}

/// Returns the text of the error that directly caused the client's own error.
fn innermost(error: &object_store::Error) -> String {
    causes(error).nth(1).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the text of the last error in the chain of causes. Earlier causes may contain the address with its query.
fn root_cause(error: &object_store::Error) -> String {
    shortened(&causes(error).last().map_or_else(String::new, ToString::to_string))
}

/// Returns how often and how long a client tried a request, taken from the client's error message: `(3 retries,
/// deadline 180s)`.
fn attempts(message: &str) -> String {
    let between = |from: &str, to: &str| message.split_once(from)?.1.split_once(to).map(|(found, _)| found.trim());
    match (between("after ", " retries"), between("retry_timeout: ", " ")) {
        (Some(retries), Some(deadline)) => format!(" ({retries} retries, deadline {deadline})"),
        _ => String::new(),
    }
}

/// Extracts from a client's error message what the server answered: the status, and the code and message of an XML
/// document. The address before them is left out, because its query may contain a signature.
fn answer(message: &str) -> String {
    let Some((_, reason)) = message.split_once(" - ") else { return format!(": {}", without_address(message)) };
    let element = |name: &str| {
        let (_, rest) = reason.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    };
    let reason = match (element("Code"), element("Message")) {
        (Some(code), Some(text)) => format!("{code}: {text}"),
        (Some(code), None) => code.to_string(),
        _ => reason.replace("Server returned non-2xx status code: ", "").trim().trim_end_matches(':').to_string(),
    };
    format!("{}: {}", attempts(message), shortened(&reason))
}

/// Removes words that look like addresses from a message, because they may contain secrets.
fn without_address(message: &str) -> String {
    let words = message.split_whitespace().map(|word| if word.contains("://") { "…" } else { word });
    shortened(&words.collect::<Vec<_>>().join(" "))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_ANSWER) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_tell_the_reason_and_the_deadline_but_no_address() {
        let message = "Error performing GET https://h/b/k?sig=SECRET in 1.2s, after 3 retries, max_retries: 10, \
                       retry_timeout: 180s  - Server returned non-2xx status code: 503 Service Unavailable: \
                       <Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>";
        assert_eq!(answer(message), " (3 retries, deadline 180s): SlowDown: reduce your rate");
        let plain =
            "Error performing GET https://h/b/k?sig=SECRET in 1.2s - Server returned non-2xx status code: 500 Oops: ";
        assert_eq!(answer(plain), ": 500 Oops");
        assert_eq!(answer("cannot reach https://h?sig=SECRET now"), ": cannot reach … now");
    }
}
