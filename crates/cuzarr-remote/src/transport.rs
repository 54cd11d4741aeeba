//! The transport below the clients: reqwest, watched for what the clients do not tell.

use std::fmt;
use std::sync::Once;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{RANGE, RETRY_AFTER};
use http::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// The longest time that a server may ask for before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// An answer to a request for a range that the clients would report as some failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeRefusal {
    /// The server sends the whole value instead.
    Ignored,
    /// The range does not begin inside the value.
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
    /// The refusal behind an error of a client, if there is one.
    pub(crate) fn of(error: &object_store::Error) -> Option<RangeRefusal> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(refusal) = error.downcast_ref::<RangeRefusal>() {
                return Some(*refusal);
            }
            cause = error.source();
        }
        None
    }
}

/// Makes clients with TLS by `ring`, and watches their requests.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        static TLS: Once = Once::new();
        TLS.call_once(|| {
            // Fails when the program has chosen another one, which serves as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        Ok(HttpClient::new(Watched(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wants_range = request.method() == Method::GET && request.headers().contains_key(RANGE);
        let response = self.0.execute(request).await?;
        let refusal = match response.status() {
            StatusCode::OK => RangeRefusal::Ignored,
            StatusCode::RANGE_NOT_SATISFIABLE => RangeRefusal::Unsatisfiable,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                // The client waits for its own back-off after this.
                tokio::time::sleep(pause(&response)).await;
                return Ok(response);
            }
            _ => return Ok(response),
        };
        if wants_range { Err(HttpError::new(HttpErrorKind::Unknown, refusal)) } else { Ok(response) }
    }
}

/// The pause that a server asks for, in seconds; no pause for a date.
fn pause(response: &HttpResponse) -> Duration {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST_PAUSE)
}
