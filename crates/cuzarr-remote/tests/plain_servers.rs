//! Web servers as they are documented: nginx, Apache, Caddy, Python's `http.server`, application servers, S3 behind CloudFront. Each test
//! has a server that answers as it says.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use cuzarr::store::{ByteRange, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_remote::{StorageOptions, registry_with};

const VALUE: &[u8] = b"0123456789abcdef";

#[derive(Clone, Debug)]
struct Request {
    method: String,
    path: String,
    /// Names in lower case.
    headers: HashMap<String, String>,
}

/// A server that answers each request with these bytes, and closes the connection.
struct Server {
    url: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (log, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let seen = Arc::clone(&log);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read_request(&connection) else { return };
                    seen.lock().unwrap().push(request.clone());
                    // The client may have left.
                    let _ = (&connection).write_all(&answer(&request));
                });
            }
        });
        Server { url, log }
    }

    fn open(&self, options: &[(&str, &str)]) -> Arc<dyn Store> {
        registry_with(StorageOptions::from_iter(options.iter().copied())).open(&self.url).unwrap()
    }

    fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

fn read_request(connection: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.trim_start_matches('/').to_string());
    let headers = lines.map_while(|line| {
        let (name, value) =
            line.ok()?.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_string()))?;
        Some((name, value))
    });
    Some(Request { method, path, headers: headers.collect() })
}

/// An answer without `Content-Length`.
fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    [format!("HTTP/1.1 {status}\r\nconnection: close\r\n{lines}\r\n").as_bytes(), body].concat()
}

fn sized(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    answer(status, &[headers, &[("content-length", &*body.len().to_string())]].concat(), body)
}

/// A body in chunks of five bytes.
fn chunked(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let body: Vec<u8> = body.chunks(5).map(chunk).chain([chunk(b"")]).flatten().collect();
    answer(status, &[headers, &[("Transfer-Encoding", "chunked")]].concat(), &body)
}

fn missing() -> Vec<u8> {
    sized("404 Not Found", &[], b"no such file")
}

/// First and last byte of the range that is asked for, within the value.
fn range(request: &Request) -> Option<(usize, usize)> {
    let (first, last) = request.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
    let last = last.parse().unwrap_or(usize::MAX).min(VALUE.len() - 1);
    Some(match first.parse() {
        Ok(first) => (first, last),
        Err(_) => (VALUE.len().saturating_sub(last), VALUE.len() - 1),
    })
}

/// What a server with ranges sends of the value.
fn part(request: &Request, headers: &[(&str, &str)]) -> Vec<u8> {
    let Some((first, last)) = range(request) else { return sized("200 OK", headers, VALUE) };
    let said = format!("bytes {first}-{last}/{}", VALUE.len());
    sized("206 Partial Content", &[headers, &[("Content-Range", &*said)]].concat(), &VALUE[first..=last])
}

fn failure<T>(outcome: cuzarr::Result<T>) -> Error {
    let error = outcome.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
    error
}

#[test]
fn values_in_chunks_without_a_length_are_read() {
    let server = Server::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("HEAD", "v" | "empty") => answer("200 OK", &[("transfer-encoding", "chunked")], b""),
        (_, "v") => chunked("200 OK", &[], VALUE),
        (_, "empty") => chunked("200 OK", &[], b""),
        _ => missing(),
    });
    let store = server.open(&[]);
    assert_eq!(store.get("v").unwrap().as_deref(), Some(VALUE));
    assert_eq!(store.get("empty").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.get("none").unwrap(), None);
    assert_eq!((store.size_bytes("v").unwrap(), store.size_bytes("empty").unwrap()), (Some(16), Some(0)));
    assert_eq!(store.size_bytes("none").unwrap(), None);
}

#[test]
fn a_value_without_a_length_may_not_take_all_memory() {
    let server = Server::start(|_| chunked("200 OK", &[], &[7; 2000]));
    let error = failure(server.open(&[("max_bytes", "8000")]).get("v"));
    assert!(error.message().contains("more than 1000 bytes"), "{error}");
    assert!(error.hint().unwrap().contains("max_bytes"));
    assert_eq!(server.open(&[("max_bytes", "16000")]).get("v").unwrap(), Some(vec![7; 2000]));
}

#[test]
fn parts_in_chunks_without_a_length_are_read() {
    let server = Server::start(|request| {
        let Some((first, last)) = range(request) else { return chunked("200 OK", &[], VALUE) };
        let said = format!("bytes {first}-{last}/{}", VALUE.len());
        chunked("206 Partial Content", &[("content-range", &said)], &VALUE[first..=last])
    });
    let store = server.open(&[]);
    let span = ByteRange::Span { offset: 3, size_bytes: 9 };
    assert_eq!(store.get_range("v", span).unwrap().as_deref(), Some(&VALUE[3..12]));
    assert_eq!(store.get_range("v", ByteRange::Suffix { size_bytes: 4 }).unwrap().as_deref(), Some(&VALUE[12..]));
    assert_eq!(store.get("v").unwrap().as_deref(), Some(VALUE));
}

#[test]
fn a_body_whose_end_is_not_told_is_refused() {
    let server = Server::start(|_| answer("200 OK", &[], VALUE));
    let error = failure(server.open(&[]).get("v"));
    assert!(error.message().contains("no Content-Length"), "{error}");
}

#[test]
fn a_body_in_chunks_that_breaks_off_is_an_error() {
    let server = Server::start(|_| {
        let whole = chunked("200 OK", &[], VALUE);
        whole[..whole.len() - 8].to_vec()
    });
    failure(server.open(&[("max_retries", "1")]).get("v"));
}

#[test]
fn sizes_are_found_without_head() {
    for refusal in ["405 Method Not Allowed", "501 Not Implemented", "403 Forbidden", "400 Bad Request"] {
        let server = Server::start(move |request| match (request.method.as_str(), request.path.as_str()) {
            ("HEAD", _) => answer(refusal, &[("content-length", "0")], b""),
            (_, "v") => part(request, &[("ETag", "\"1\"")]),
            (_, "empty") => sized("416 Range Not Satisfiable", &[("Content-Range", "bytes */0")], b""),
            _ => missing(),
        });
        let store = server.open(&[]);
        let stat = store.stat("v").unwrap().unwrap();
        assert_eq!((stat.size_bytes, stat.version.unwrap().etag()), (16, Some("\"1\"")), "{refusal}");
        assert_eq!(store.size_bytes("empty").unwrap(), Some(0), "{refusal}");
        assert_eq!(store.size_bytes("none").unwrap(), None, "{refusal}");
    }
}

#[test]
fn a_value_that_may_not_be_read_stays_refused() {
    let server = Server::start(|_| sized("403 Forbidden", &[], b"no"));
    let error = server.open(&[]).size_bytes("v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(server.open(&[("missing_when_denied", "true")]).size_bytes("v").unwrap(), None);
}

#[test]
fn compressed_answers_are_refused_by_name() {
    let server = Server::start(|request| part(request, &[("Content-Encoding", "gzip")]));
    let store = server.open(&[]);
    for outcome in [store.get("v").map(|_| ()), store.size_bytes("v").map(|_| ())] {
        let error = failure(outcome);
        assert!(error.message().contains("Content-Encoding 'gzip'"), "{error}");
        assert!(error.hint().unwrap().contains("compression"));
    }
    assert!(server.take_log().iter().all(|request| request.headers["accept-encoding"] == "identity"));
    let kept = Server::start(|request| part(request, &[("Content-Encoding", "aws-chunked")]));
    assert_eq!(kept.open(&[]).get("v").unwrap().as_deref(), Some(VALUE), "the encoding of an upload");
}

#[test]
fn several_parts_in_place_of_one_are_refused() {
    let kind = [("Content-Type", "multipart/byteranges; boundary=x")];
    let server = Server::start(move |_| sized("206 Partial Content", &kind, b"--x\r\n\r\n0123\r\n--x--"));
    let error = failure(server.open(&[]).get_range("v", ByteRange::Span { offset: 0, size_bytes: 4 }));
    assert!(error.message().contains("multipart/byteranges"), "{error}");
}

#[test]
fn another_range_than_the_wanted_one_is_an_error() {
    for said in ["bytes 4-7/16", "bytes 0-7/16", "bytes 0-3/*", "bytes */16", "lines 0-3/16"] {
        let server = Server::start(move |_| sized("206 Partial Content", &[("Content-Range", said)], b"0123"));
        failure(server.open(&[]).get_range("v", ByteRange::Span { offset: 0, size_bytes: 4 }));
    }
}

#[test]
fn dates_and_tags_that_are_none_do_no_harm() {
    for headers in [("Last-Modified", "0"), ("Last-Modified", "Sunday, 06-Nov-94 08:49:37 GMT"), ("ETag", "\"\u{e9}\"")]
    {
        let server = Server::start(move |request| part(request, &[headers]));
        assert_eq!(server.open(&[]).get("v").unwrap().as_deref(), Some(VALUE), "{headers:?}");
    }
}

#[test]
fn a_value_is_missing_whatever_the_page_says() {
    let page =
        Server::start(|_| sized("404 Not Found", &[("Content-Type", "text/html")], b"nicht gef\xfcr Sie \xff\xfe"));
    assert_eq!(page.open(&[]).get("v").unwrap(), None);
    let endless = Server::start(|_| chunked("404 Not Found", &[], &vec![b'x'; 1 << 20]));
    assert_eq!(endless.open(&[]).get("v").unwrap(), None);
}

#[test]
fn redirections_are_followed_for_every_kind_of_request() {
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let server = Server::start(move |request| match request.path.as_str() {
            "v" => sized(status, &[("location", "/moved/v?x=1")], b"over there"),
            "moved/v?x=1" if request.method == "HEAD" => answer("200 OK", &[("content-length", "16")], b""),
            "moved/v?x=1" => part(request, &[("ETag", "\"1\"")]),
            _ => missing(),
        });
        let store = server.open(&[]);
        assert_eq!(store.get("v").unwrap().as_deref(), Some(VALUE), "{status}");
        assert_eq!(store.size_bytes("v").unwrap(), Some(16), "{status}");
        let span = ByteRange::Span { offset: 2, size_bytes: 2 };
        assert_eq!(store.get_range("v", span).unwrap().as_deref(), Some(&b"23"[..]), "{status}");
    }
    let nowhere = Server::start(|_| sized("302 Found", &[("Location", "ftp://127.0.0.1/v")], b""));
    assert!(failure(nowhere.open(&[]).get("v")).message().contains("redirects to an address that is not followed"));
}

#[test]
fn a_document_without_ranges_leaves_those_of_other_values() {
    let server = Server::start(|request| match request.path.as_str() {
        "zarr.json" => chunked("200 OK", &[], b"{}"),
        _ => part(request, &[("ETag", "\"1\"")]),
    });
    let store = server.open(&[]);
    assert_eq!(store.get("zarr.json").unwrap().as_deref(), Some(&b"{}"[..]));
    let span = ByteRange::Span { offset: 2, size_bytes: 2 };
    assert_eq!(store.get_range("v", span).unwrap().as_deref(), Some(&b"23"[..]));
    assert_eq!(store.get("v").unwrap().as_deref(), Some(VALUE));
}

/// `If-Match` compares strongly (RFC 9110, section 13.1.1), so a weak tag never matches.
#[test]
fn large_values_with_weak_tags_are_read() {
    let value: Arc<[u8]> = (0..(9 << 20) + 5).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sent = Arc::clone(&value);
    let server = Server::start(move |request| {
        if request.headers.contains_key("if-match") {
            return sized("412 Precondition Failed", &[], b"");
        }
        let tag = ("ETag", "W/\"1\"");
        let Some(asked) = request.headers.get("range") else { return sized("200 OK", &[tag], &sent) };
        let (first, last) = asked.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) =
            (first.parse().unwrap(), last.parse::<usize>().unwrap().min(sent.len() - 1));
        let said = format!("bytes {first}-{last}/{}", sent.len());
        sized("206 Partial Content", &[tag, ("Content-Range", &*said)], &sent[first..=last])
    });
    assert!(server.open(&[]).get("v").unwrap().as_deref() == Some(&*value));
}
