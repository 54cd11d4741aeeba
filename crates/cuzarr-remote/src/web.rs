//! Adapts web servers to object_store's client: follows redirections, and completes answers that lack what the client
//! needs.
//!
//! | what a server does | what is done here |
//! |---|---|
//! | redirects (301, 302, 303, 307, 308) | the new address is requested; the user's headers only go to the named server |
//! | knows no `HEAD`, or refuses it, or answers it without a length | the first byte is requested, whose answer has the size |
//! | sends a body in chunks, without `Content-Length` (RFC 9112, section 7.1) | the body is collected, up to a limit |
//! | sends a part in chunks | `Content-Range` gives the length |
//! | sends a body whose end is only the end of the connection | refused: a body that broke off looks the same |
//! | compresses (`Content-Encoding`) although `identity` was requested | refused: bytes and ranges are not the stored ones |
//! | answers one range with several parts | refused |
//! | has weak entity tags (`W/"…"`) | the client does not see them; they only show that a value was changed |
//! | sends an invalid date or entity tag | left out |
//! | explains a failure by a long text, or one that is not UTF-8 | the beginning is kept, as UTF-8: a missing value stays missing |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cuzarr::store::Version;
use cuzarr::{Error, ErrorKind, Result};
use futures_util::StreamExt;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION,
    RANGE, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};
use tokio::sync::Semaphore;

/// Largest number of redirections that are followed for one request; with more, the request fails.
const MOST_REDIRECTIONS: usize = 10;

/// Number of answers without a length that are collected in memory at the same time; further ones wait.
const UNSIZED_AT_ONCE: u64 = 8;

/// Number of bytes of a failed answer's text that are kept for the error message; the rest is dropped.
const FAILURE_BYTES: usize = 16 << 10;

/// A weak entity tag of a server's answer, passed on beside the answer instead of in its headers. The client would
/// treat a weak tag as a strong one, and join parts of different values.
#[derive(Clone)]
pub(crate) struct WeakTag(pub(crate) String);

type Answer = std::result::Result<HttpResponse, HttpError>;

/// A function that checks the address of a redirection before a client follows it.
pub(crate) type RedirectCheck = dyn Fn(&str) -> Result<()> + Send + Sync;

/// Settings of requests to a web server that object_store's clients do not have.
#[derive(Clone)]
pub(crate) struct Web {
    /// The user's headers, which are only sent to the server that the user named.
    pub(crate) headers: HeaderMap,
    pub(crate) connect_timeout: Duration,
    pub(crate) proxy: Option<String>,
    pub(crate) allow_invalid_certificates: bool,
    /// A check of the addresses to which the server redirects requests. `None` allows any address, because the user
    /// named the server.
    pub(crate) redirects: Option<Arc<RedirectCheck>>,
    /// Permits for collecting the bytes of answers without a length in memory.
    pub(crate) collecting: Arc<Semaphore>,
    /// Largest size in bytes of an answer without a length that is collected.
    pub(crate) most_unsized_bytes: u64,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Web")
    }
}

impl Web {
    /// Makes settings for a web server whose requests may ask for `most_bytes` together. Fields that come from options
    /// get their default values.
    pub(crate) fn new(headers: HeaderMap, connect_timeout: Duration, most_bytes: u64) -> Web {
        Web {
            headers,
            connect_timeout,
            proxy: None,
            allow_invalid_certificates: false,
            redirects: None,
            collecting: Arc::new(Semaphore::new(UNSIZED_AT_ONCE as usize)),
            most_unsized_bytes: most_bytes / UNSIZED_AT_ONCE,
        }
    }

    pub(crate) fn client(&self, timeout: Duration) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("cuzarr/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .connect_timeout(self.connect_timeout)
            // Redirections are followed below: reqwest would send most headers, and the old address, to any other host.
            .redirect(reqwest::redirect::Policy::none())
            .danger_accept_invalid_certs(self.allow_invalid_certificates);
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy)?);
        }
        builder.build()
    }

    /// Sends a request to the web server, and follows redirections. If `HEAD` does not give the size of a value,
    /// another request finds it.
    pub(crate) async fn execute(&self, client: &HttpClient, mut request: HttpRequest) -> Answer {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let again = (request.method() == Method::HEAD).then(|| request.clone());
        let answer = self.follow(client, request).await?;
        match again {
            Some(request) if !tells_size(&answer) => self.size_by_first_byte(client, request, answer).await,
            _ => Ok(answer),
        }
    }

    /// Makes a request and follows redirections. The user's headers are only sent to the server that the user named.
    async fn follow(&self, client: &HttpClient, mut request: HttpRequest) -> Answer {
        let named = origin(request.uri());
        let plain = request.clone();
        request.headers_mut().extend(self.headers.clone());
        for _ in 0..MOST_REDIRECTIONS {
            let from = request.uri().clone();
            let answer = client.execute(request).await?;
            let target = answer.headers().get(LOCATION).filter(|_| is_redirection(answer.status()));
            let Some(target) = target else { return Ok(answer) };
            let target = target.to_str().ok().and_then(|target| resolve(&from, target));
            let target =
                target.ok_or_else(|| refused("the server redirects to an address that is not followed", NO_TARGET))?;
            if let Some(check) = &self.redirects {
                check(&target.to_string()).map_err(|error| told(error.at("the server redirects")))?;
            }
            request = plain.clone();
            if origin(&target) == named {
                request.headers_mut().extend(self.headers.clone());
            }
            *request.uri_mut() = target;
        }
        let message = format!("the server redirects more than {MOST_REDIRECTIONS} times");
        Err(told(Error::new(ErrorKind::StoreFailed, message)))
    }

    /// Finds the size that `HEAD` did not give, by a request for the first byte, and builds the answer to `HEAD` from
    /// it. Addresses that are signed for `GET` refuse `HEAD` too.
    async fn size_by_first_byte(&self, client: &HttpClient, mut request: HttpRequest, head: HttpResponse) -> Answer {
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        let answer = self.follow(client, request).await?;
        let size_bytes = match answer.status() {
            StatusCode::PARTIAL_CONTENT => content_range(answer.headers()).map(|(_, size_bytes)| size_bytes),
            // A value without a first byte is empty.
            StatusCode::RANGE_NOT_SATISFIABLE => Some(0),
            StatusCode::OK => match length(answer.headers()) {
                Some(size_bytes) => Some(size_bytes),
                None => {
                    let (parts, body) = self.plain(answer, false).await?.into_parts();
                    drop(body);
                    return Ok(HttpResponse::from_parts(parts, Bytes::new().into()));
                }
            },
            _ if head.status().is_success() => None,
            _ => return Ok(answer),
        };
        let Some(size_bytes) = size_bytes else { return Ok(head) };
        let (mut parts, body) = answer.into_parts();
        drop(body);
        parts.status = StatusCode::OK;
        parts.headers.remove(CONTENT_RANGE);
        parts.headers.remove(TRANSFER_ENCODING);
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
        Ok(HttpResponse::from_parts(parts, Bytes::new().into()))
    }

    /// Makes a server's answer complete and correct, so that object_store's client can read it.
    pub(crate) async fn plain(&self, answer: HttpResponse, is_head: bool) -> Answer {
        let (mut parts, body) = answer.into_parts();
        if !parts.status.is_success() {
            return Ok(HttpResponse::from_parts(parts, beginning(body).await.into()));
        }
        let text =
            |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").trim();
        let encoding = text(CONTENT_ENCODING).to_ascii_lowercase();
        // Some servers similar to S3 keep the encoding of the upload.
        if !["", "identity", "aws-chunked"].contains(&&*encoding) {
            let message = format!(
                "the server sends the value with Content-Encoding '{encoding}', expected its bytes as they are stored"
            );
            return Err(refused(message, "turn off compression for these files on the server"));
        }
        if parts.status == StatusCode::PARTIAL_CONTENT && text(CONTENT_TYPE).starts_with("multipart/byteranges") {
            let message = "the server answers a request for one range by several parts (multipart/byteranges)";
            return Err(refused(message, "turn off ranges for these files on the server, and set whole_values=true"));
        }
        correct(&mut parts.headers);
        let tag = parts.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        if let Some(weak) = tag.filter(|tag| Version::of_etag(tag).is_none()).map(|tag| WeakTag(tag.to_string())) {
            parts.extensions.insert(weak);
            parts.headers.remove(ETAG);
        }
        let body = match length(&parts.headers) {
            Some(_) => body,
            None if is_head => body,
            None if parts.status == StatusCode::PARTIAL_CONTENT => {
                let said = content_range(&parts.headers).map(|(range, _)| range.end - range.start);
                said.into_iter().for_each(|len| drop(parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(len))));
                body
            }
            None => {
                let is_chunked =
                    parts.headers.get(TRANSFER_ENCODING).is_some() || parts.version >= http::Version::HTTP_2;
                if !is_chunked {
                    let message = "the server does not say where the value ends: its answer has no Content-Length";
                    return Err(told(Error::new(ErrorKind::StoreFailed, message)));
                }
                let bytes = self.collected(body).await?;
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                bytes.into()
            }
        };
        Ok(HttpResponse::from_parts(parts, body))
    }

    /// Collects the whole body of an answer that does not give its length.
    async fn collected(&self, body: HttpResponseBody) -> std::result::Result<Bytes, HttpError> {
        let _place = self.collecting.acquire().await.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            if (bytes.len() + piece.len()) as u64 > self.most_unsized_bytes {
                let most = self.most_unsized_bytes;
                let message = format!("the server sends a value without its length, and it has more than {most} bytes");
                return Err(refused(
                    message,
                    "raise the storage option max_bytes: such a value may have an eighth of it",
                ));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }
}

const NO_TARGET: &str =
    "use the address that the server redirects to; only http and https are followed, and not from https to http";

fn told(error: Error) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

fn refused(message: impl Into<String>, hint: &str) -> HttpError {
    told(Error::new(ErrorKind::StoreFailed, message).with_hint(hint))
}

fn is_redirection(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Whether an answer to `HEAD` gives the size of the value, or says that the value does not exist. The client repeats
/// requests after temporary failures.
fn tells_size(head: &HttpResponse) -> bool {
    match head.status() {
        status if status.is_success() => length(head.headers()).is_some(),
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => false,
        StatusCode::NOT_IMPLEMENTED => false,
        _ => true,
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Returns which range of the value an answer contains, and the size of the whole value.
fn content_range(headers: &HeaderMap) -> Option<(std::ops::Range<u64>, u64)> {
    let (range, size_bytes) =
        headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let (start, last): (u64, u64) = (start.parse().ok()?, last.parse().ok()?);
    (start <= last).then_some((start..last.checked_add(1)?, size_bytes.parse().ok()?))
}

/// Corrects headers of an answer: removes those that the client cannot read, and converts dates in old forms (RFC 9110,
/// section 5.6.7).
fn correct(headers: &mut HeaderMap) {
    if headers.get(ETAG).is_some_and(|tag| tag.to_str().is_err()) {
        headers.remove(ETAG);
    }
    if let Some(date) = headers.remove(LAST_MODIFIED) {
        let time = date.to_str().ok().and_then(|date| httpdate::parse_http_date(date.trim()).ok());
        let usual = time.and_then(|time| HeaderValue::from_str(&httpdate::fmt_http_date(time)).ok());
        usual.into_iter().for_each(|date| drop(headers.insert(LAST_MODIFIED, date)));
    }
}

/// Returns the beginning of a failed answer's text, as UTF-8. A text that breaks off is used too.
async fn beginning(body: HttpResponseBody) -> Vec<u8> {
    let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
    while let (Some(Ok(piece)), true) = (pieces.next().await, bytes.len() < FAILURE_BYTES) {
        bytes.extend_from_slice(&piece);
    }
    bytes.truncate(FAILURE_BYTES);
    String::from_utf8_lossy(&bytes).into_owned().into_bytes()
}

/// Returns the scheme, host and port of an address, which together identify a server.
fn origin(address: &Uri) -> (Option<String>, Option<String>, u16) {
    let default = if address.scheme_str() == Some("https") { 443 } else { 80 };
    let text = |part: Option<&str>| part.map(str::to_ascii_lowercase);
    (text(address.scheme_str()), text(address.host()), address.port_u16().unwrap_or(default))
}

/// Returns the address that the target of a redirection means, seen from the redirecting address. `None` if it is
/// invalid, not http(s), or leads from https to http.
fn resolve(from: &Uri, target: &str) -> Option<Uri> {
    let target = url::Url::parse(&from.to_string()).ok()?.join(target).ok()?;
    let is_downgrade = from.scheme_str() == Some("https") && target.scheme() != "https";
    if is_downgrade || !["http", "https"].contains(&target.scheme()) {
        return None;
    }
    target.as_str().split('#').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn headers_that_mean_nothing_are_left_out() {
        let corrected = |date: &str| {
            let mut headers = headers(&[(LAST_MODIFIED, date), (ETAG, "\"a\"")]);
            correct(&mut headers);
            assert!(headers.contains_key(ETAG));
            headers.get(LAST_MODIFIED).map(|date| date.to_str().unwrap().to_string())
        };
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(corrected(date).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"), "{date}");
        }
        assert_eq!((corrected("0"), corrected("yesterday")), (None, None));
        let mut tagged = headers(&[]);
        tagged.insert(ETAG, HeaderValue::from_bytes(b"\"\xff\"").unwrap());
        correct(&mut tagged);
        assert!(tagged.is_empty());
    }

    #[test]
    fn ranges_of_answers_are_read_with_care() {
        let range = |text: &str| content_range(&headers(&[(CONTENT_RANGE, text)]));
        assert_eq!(range("bytes 3-9/20"), Some((3..10, 20)));
        for text in ["bytes 3-9/*", "bytes */20", "bytes 9-3/20", "pages 3-9/20", "bytes 0-18446744073709551615/20"] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn redirections_keep_to_the_web_and_to_tls() {
        let from: Uri = "https://h/a/b?x=1".parse().unwrap();
        let to = |target: &str| resolve(&from, target).map(|address| address.to_string());
        assert_eq!(to("c?y#z").as_deref(), Some("https://h/a/c?y"));
        assert_eq!(to("//other:8443/d").as_deref(), Some("https://other:8443/d"));
        assert_eq!((to("http://h/a"), to("file:///etc/passwd")), (None, None));
        let origin_of = |address: &str| origin(&address.parse().unwrap());
        assert_eq!(origin_of("https://H/a"), origin_of("https://h:443/b"));
        assert!(
            origin_of("http://h/a") != origin_of("https://h/a") && origin_of("http://h") != origin_of("http://h:8")
        );
    }
}
