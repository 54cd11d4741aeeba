//! The transport below the clients: reqwest, with additions for what the clients do not report.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use cuzarr::store::Traffic;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, DATE, RANGE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::client::Client;
use crate::failure::RangeRefusal;
use crate::limit::{Limit, Slot};
use crate::web::Web;

/// Longest pause before a retry; a server that asks for a longer one gets this.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// The pause after a refused request that does not count towards its host's limit, such as a listing.
const PLAIN_PAUSE: Duration = Duration::from_millis(50);

/// Least speed of an upload in bytes per second; a slower one times out. The time that it takes is added to the time
/// limit of a request.
const SLOWEST_UPLOAD_BYTES_PER_SECOND: u64 = 64 << 10;

/// Counters to which the HTTP requests of a task and the bytes that it receives are added.
#[derive(Clone)]
pub(crate) struct Call {
    limit: Arc<Limit>,
    traffic: Option<Traffic>,
}

tokio::task_local! {
    static CALL: Call;
}

impl Call {
    /// Makes the counters for requests that the calling thread makes by a client.
    pub(crate) fn of(client: &Client) -> Call {
        Call { limit: Arc::clone(&client.limit), traffic: Traffic::current() }
    }

    /// Runs `work`, and counts the requests that it makes and the bytes that it receives.
    pub(crate) async fn run<F: Future>(self, work: F) -> F::Output {
        CALL.scope(self, work).await
    }

    /// Adds to the task's counters the size of bytes of an answer that the task has received.
    pub(crate) fn received(size_bytes: usize) {
        let _ = CALL.try_with(|call| call.traffic.as_ref().map(|traffic| traffic.received(size_bytes as u64)));
    }

    fn answered(begun: Instant, sent_bytes: usize, outcome: &Result<HttpResponse, HttpError>) {
        use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
        let (is_refusal, is_retried) = match outcome {
            Ok(response) => (is_refusal(response.status()), is_temporary(response.status())),
            Err(error) => (false, matches!(error.kind(), Connect | Request | Timeout | Interrupted)),
        };
        // Requests for credentials may come from other tasks.
        let _ = CALL.try_with(|call| {
            let first_byte = begun.elapsed();
            call.limit.answered(first_byte, is_refusal);
            if let Some(traffic) = &call.traffic {
                traffic.answered(first_byte, is_retried);
                traffic.sent(sent_bytes as u64);
            }
        });
    }
}

/// Whether a server's answer means that it has too many requests at the moment.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// Whether a server's answer is a failure after which the clients repeat the request.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// A maker of HTTP clients that use TLS by `ring`; it watches the requests of these clients.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// Time limit for one HTTP request, including the whole answer.
    pub(crate) timeout: Duration,
    /// Settings for requests to a web server; `None` for clouds.
    pub(crate) web: Option<Web>,
}

/// Chooses the TLS implementation `ring`, once per process.
fn choose_tls() {
    static TLS: Once = Once::new();
    TLS.call_once(|| {
        // This fails if the program has chosen another implementation, which works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        choose_tls();
        let (reads, writes) = match &self.web {
            Some(web) => {
                let client = web.client(self.timeout).map_err(|error| object_store::Error::Generic {
                    store: "HTTP",
                    source: Box::new(error.without_url()),
                })?;
                (HttpClient::new(client.clone()), HttpClient::new(client))
            }
            None => {
                let reads = ReqwestConnector::default().connect(options)?;
                // The time limit for a request with a body depends on its size, which is only known with the request.
                (reads, ReqwestConnector::default().connect(&options.clone().with_timeout_disabled())?)
            }
        };
        Ok(HttpClient::new(Watched { reads, writes, settings: self.clone() }))
    }
}

/// An HTTP client that sends the requests of a store, and records how the server answers.
#[derive(Debug)]
struct Watched {
    reads: HttpClient,
    writes: HttpClient,
    settings: Connector,
}

impl Watched {
    async fn execute(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sent_bytes = request.body().content_length();
        let begun = Instant::now();
        let outcome = match (&self.settings.web, sent_bytes) {
            (Some(web), _) => web.execute(&self.reads, request).await,
            (None, 0) => self.reads.execute(request).await,
            (None, _) => {
                let upload = Duration::from_secs(sent_bytes as u64 / SLOWEST_UPLOAD_BYTES_PER_SECOND);
                let timeout = self.settings.timeout + upload;
                let late = |elapsed| HttpError::new(HttpErrorKind::Timeout, elapsed);
                match tokio::time::timeout(timeout, self.writes.execute(request)).await {
                    Ok(outcome) => outcome,
                    Err(elapsed) => Err(late(elapsed)),
                }
            }
        };
        Call::answered(begun, sent_bytes, &outcome);
        outcome
    }
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wants_range = request.method() == Method::GET && request.headers().contains_key(RANGE);
        let is_head = request.method() == Method::HEAD;
        let slot = Slot::current();
        if let Some(slot) = &slot {
            let closed = |error| HttpError::new(HttpErrorKind::Unknown, error);
            slot.resume().await.map_err(closed)?;
        }
        let response = self.execute(request).await?;
        if is_refusal(response.status()) {
            // A connection is only reused after the whole answer was read.
            let (parts, body) = response.into_parts();
            let body = body.bytes().await?;
            let pause = slot.map_or(PLAIN_PAUSE, |slot| slot.refused());
            // The client waits for its own back-off after this.
            tokio::time::sleep(asked_pause(&parts.headers) + at_random(pause)).await;
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        match (range_refusal(response.status(), response.headers()), &self.settings.web) {
            (Some(refusal), _) if wants_range => Err(HttpError::new(HttpErrorKind::Unknown, refusal)),
            (_, Some(web)) => web.plain(response, is_head).await,
            _ => Ok(response),
        }
    }
}

/// Returns how a server's answer refuses a range request, if it does.
fn range_refusal(status: StatusCode, headers: &HeaderMap) -> Option<RangeRefusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match status {
        // nginx and moto send an empty value as a whole, whatever the range. For other values they support ranges.
        StatusCode::OK if text(CONTENT_LENGTH) == Some("0") => Some(RangeRefusal::Unsatisfiable),
        StatusCode::OK => Some(RangeRefusal::Ignored),
        StatusCode::RANGE_NOT_SATISFIABLE => Some(RangeRefusal::Unsatisfiable),
        // Azurite sends `bytes 100-99/100` for a range that begins at the value's end.
        StatusCode::PARTIAL_CONTENT => {
            let (range, size_bytes) = text(CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
            let start: u64 = range.split_once('-')?.0.parse().ok()?;
            (start >= size_bytes.parse().ok()?).then_some(RangeRefusal::Unsatisfiable)
        }
        _ => None,
    }
}

/// Returns the pause that a server's answer asks for: seconds, or a date by the server's own clock (RFC 9110, section
/// 10.2.3).
fn asked_pause(headers: &HeaderMap) -> Duration {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let Some(asked) = text(RETRY_AFTER) else { return Duration::ZERO };
    let until = || {
        let now = text(DATE).and_then(date).unwrap_or_else(SystemTime::now);
        date(asked)?.duration_since(now).ok()
    };
    let asked = asked.parse().ok().map(Duration::from_secs).or_else(until);
    asked.unwrap_or_default().min(LONGEST_PAUSE)
}

/// Returns a random pause from half to one and a half times `pause`, so that requests that were refused together are
/// not repeated together.
fn at_random(pause: Duration) -> Duration {
    let share = RandomState::new().hash_one(()) >> 32;
    pause / 2 + pause.mul_f64(share as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_for_a_pause_in_seconds_or_by_a_date() {
        let asked = |headers: &[(HeaderName, &str)]| {
            asked_pause(&headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect())
        };
        let server_time = (DATE, "Sun, 06 Nov 1994 08:49:37 GMT");
        for (text, seconds) in [
            ("7", 7),
            ("100000", 20),
            ("Sun, 06 Nov 1994 08:49:42 GMT", 5),
            ("Sunday, 06-Nov-94 08:49:43 GMT", 6),
            ("Sun Nov  6 08:49:44 1994", 7),
            ("Mon, 07 Nov 1994 08:49:37 GMT", 20),
            ("Sun, 06 Nov 1994 08:49:30 GMT", 0),
            ("-1", 0),
            ("soon", 0),
        ] {
            assert_eq!(asked(&[server_time.clone(), (RETRY_AFTER, text)]), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(asked(&[server_time]), Duration::ZERO);
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(9));
        assert!(asked(&[(RETRY_AFTER, &soon)]) > Duration::from_secs(5), "without a date of the server's");
    }

    #[test]
    fn answers_without_the_range_are_told_apart() {
        let refusal = |status: u16, name: HeaderName, value: &str| {
            let headers = [(name, value.parse().unwrap())].into_iter().collect();
            range_refusal(StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert_eq!(refusal(200, CONTENT_LENGTH, "7"), Some(RangeRefusal::Ignored));
        assert_eq!(refusal(200, CONTENT_LENGTH, "0"), Some(RangeRefusal::Unsatisfiable));
        assert_eq!(refusal(416, CONTENT_LENGTH, "7"), Some(RangeRefusal::Unsatisfiable));
        assert_eq!(refusal(206, CONTENT_RANGE, "bytes 100-99/100"), Some(RangeRefusal::Unsatisfiable));
        for range in ["bytes 0-9/10", "bytes 9-9/10", "bytes 3-9/*", "bytes */10", "bytes x-/10", "pages 100-99/100"] {
            assert_eq!(refusal(206, CONTENT_RANGE, range), None, "{range}");
        }
    }
}
