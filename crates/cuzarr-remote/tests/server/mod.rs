//! A server for tests, on the loopback interface: the interface of S3, or the XML interface of Google Cloud Storage, as far as stores
//! use them, or plain files. Signatures are not checked. Tests tell it which requests fail, and how.
//!
//! The emulators of Google's storage in the registries lack what `object_store` sends: `gcp-storage-emulator` (PyPI, 2026.7.19) has
//! neither entity tags, `HEAD` nor listings in this interface, and `fake-gcs-server` (PyPI, 1.54.0) refuses its `PUT`.

#![allow(dead_code)] // each test program uses a part of this

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What goes wrong with an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// This status instead of an answer, and the seconds of `Retry-After`.
    Status(u16, Option<u32>),
    /// The connection closes after this many bytes of the body.
    BreakAfter(usize),
    /// The header says a body that is shorter by this many bytes.
    ShortLength(usize),
    /// The entity tag is another one.
    OtherTag,
    /// The value is at another address.
    Redirect(String),
    /// The answer comes late.
    Delay(Duration),
    /// The body comes byte by byte, with a pause after each.
    Drip(Duration),
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The path without the query, decoded.
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    /// How many requests came before it.
    pub number: usize,
    /// One more than the largest round of the requests that were answered before it came.
    pub round: usize,
}

type Faults = dyn Fn(&Request) -> Option<Fault> + Send + Sync;

#[derive(Clone)]
struct Value {
    bytes: Arc<Vec<u8>>,
    tag: String,
    generation: usize,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, Value>,
    uploads: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    tags: usize,
    log: Vec<Request>,
    answered_round: usize,
    in_flight: usize,
    most_in_flight: usize,
}

/// What a server of files says of the version of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    Strong,
    Weak,
    /// The time of the last change, which differs for each.
    Date,
    Nothing,
}

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    S3,
    /// Google's XML interface (<https://cloud.google.com/storage/docs/xml-api/reference-headers>): equal values have equal entity tags,
    /// and conditions of writes compare generations.
    Gcs,
    /// Azure's blobs, for reading: ranges do not count from the end.
    Azure,
    /// Files with entity tags and ranges.
    Files,
    /// Files without either.
    BareFiles,
}

struct Shared {
    kind: Kind,
    state: Mutex<State>,
    faults: Mutex<Box<Faults>>,
    latency: Mutex<Duration>,
    tags: Mutex<Tags>,
}

/// A running server. Its threads end with the process.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    pub port: u16,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub fn start(kind: Kind) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            kind,
            state: Mutex::default(),
            faults: Mutex::new(Box::new(|_| None)),
            latency: Mutex::default(),
            tags: Mutex::new(Tags::Strong),
        });
        let server = Server { shared: Arc::clone(&shared), port };
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(&shared, connection)));
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Chooses the answers that go wrong.
    pub fn set_faults(&self, faults: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static) {
        *lock(&self.shared.faults) = Box::new(faults);
    }

    /// Chooses what a server of files says of versions.
    pub fn set_tags(&self, tags: Tags) {
        *lock(&self.shared.tags) = tags;
    }

    /// Time before each answer.
    pub fn set_latency(&self, latency: Duration) {
        *lock(&self.shared.latency) = latency;
    }

    /// Puts a value: in a cloud, its path begins with the bucket.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        lock(&self.shared.state).insert(self.shared.kind, path, bytes.to_vec());
    }

    pub fn get(&self, path: &str) -> Option<Vec<u8>> {
        lock(&self.shared.state).values.get(path).map(|value| value.bytes.to_vec())
    }

    /// The requests since the last call.
    pub fn take_log(&self) -> Vec<Request> {
        let mut state = lock(&self.shared.state);
        state.answered_round = 0;
        std::mem::take(&mut state.log)
    }

    pub fn most_in_flight(&self) -> usize {
        lock(&self.shared.state).most_in_flight
    }

    /// How many parts of uploads wait for the end of theirs.
    pub fn open_uploads(&self) -> usize {
        lock(&self.shared.state).uploads.len()
    }
}

impl State {
    fn insert(&mut self, kind: Kind, path: &str, bytes: Vec<u8>) -> Value {
        self.tags += 1;
        let generation = self.tags;
        let tag = match kind {
            Kind::Gcs => format!("\"{:08x}\"", crc32c::crc32c(&bytes)),
            Kind::S3 | Kind::Azure | Kind::Files | Kind::BareFiles => format!("\"tag-{generation}\""),
        };
        let value = Value { bytes: Arc::new(bytes), tag, generation };
        self.values.insert(path.to_string(), value.clone());
        value
    }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Answer {
        self.headers.push((name.to_string(), value.into()));
        self
    }

    fn xml(text: String) -> Answer {
        let mut answer = Answer::new(200).with("Content-Type", "application/xml");
        answer.body = text.into_bytes();
        answer
    }

    fn error(status: u16, code: &str) -> Answer {
        let mut answer = Answer::new(status);
        answer.body = format!("<Error><Code>{code}</Code><Message>told to</Message></Error>").into_bytes();
        answer
    }
}

fn serve(shared: &Shared, connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut writer = connection;
    while let Some(mut request) = read_request(&mut reader)? {
        {
            let mut state = lock(&shared.state);
            request.round = state.answered_round + 1;
            request.number = state.log.len();
            state.log.push(Request { body: Vec::new(), ..request.clone() });
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
        }
        // Not under the lock: requests wait at the same time.
        let latency = *lock(&shared.latency);
        std::thread::sleep(latency);
        let fault = lock(&shared.faults)(&request);
        let answer = match &fault {
            Some(Fault::Status(status, after)) => {
                let answer = Answer::error(*status, "InjectedFault");
                match after {
                    Some(seconds) => answer.with("Retry-After", seconds.to_string()),
                    None => answer,
                }
            }
            Some(Fault::Redirect(target)) => Answer::new(302).with("Location", target.clone()),
            _ => answer(shared, &request),
        };
        {
            let mut state = lock(&shared.state);
            state.answered_round = state.answered_round.max(request.round);
            state.in_flight -= 1;
        }
        if !write_answer(&mut writer, &request, answer, fault)? {
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or("").to_string(), words.next().unwrap_or("").to_string());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let size = headers.get("content-length").and_then(|size| size.parse().ok()).unwrap_or(0);
    assert!(!headers.contains_key("transfer-encoding"), "bodies say their length");
    let mut body = vec![0; size];
    reader.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (decoded(name), decoded(value))
    };
    let query = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    let path = decoded(path).trim_start_matches('/').to_string();
    Ok(Some(Request { method, path, query, headers, body, number: 0, round: 0 }))
}

fn decoded(text: &str) -> String {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                found.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
                at += 3;
            }
            byte => {
                found.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(found).unwrap()
}

fn write_answer(
    writer: &mut TcpStream,
    request: &Request,
    mut answer: Answer,
    fault: Option<Fault>,
) -> std::io::Result<bool> {
    if let Some(Fault::Delay(delay)) = fault {
        std::thread::sleep(delay);
    }
    if fault == Some(Fault::OtherTag) {
        answer.headers.iter_mut().filter(|(name, _)| name == "ETag").for_each(|(_, tag)| *tag = "\"other\"".into());
    }
    let said = match fault {
        Some(Fault::ShortLength(less)) => answer.body.len().saturating_sub(less),
        _ => answer.body.len(),
    };
    let has_length = answer.headers.iter().any(|(name, _)| name == "Content-Length");
    let mut head = format!("HTTP/1.1 {} Status\r\n", answer.status);
    if !has_length && ![204, 304].contains(&answer.status) {
        head += &format!("Content-Length: {said}\r\n");
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    writer.write_all(format!("{head}\r\n").as_bytes())?;
    if request.method == "HEAD" {
        return Ok(true);
    }
    match fault {
        Some(Fault::BreakAfter(count)) if count < answer.body.len() => {
            writer.write_all(&answer.body[..count])?;
            return Ok(false);
        }
        Some(Fault::Drip(pause)) => {
            for byte in &answer.body {
                writer.write_all(std::slice::from_ref(byte))?;
                std::thread::sleep(pause);
            }
        }
        Some(Fault::ShortLength(_)) => writer.write_all(&answer.body[..said])?,
        _ => writer.write_all(&answer.body)?,
    }
    Ok(true)
}

fn answer(shared: &Shared, request: &Request) -> Answer {
    let mut state = lock(&shared.state);
    let is_cloud = matches!(shared.kind, Kind::S3 | Kind::Gcs);
    let is_object = !is_cloud || request.path.contains('/');
    if shared.kind == Kind::Gcs && request.headers.get("authorization").is_none_or(|text| !text.starts_with("Bearer "))
    {
        return Answer::error(401, "AuthenticationRequired");
    }
    match (request.method.as_str(), is_object) {
        ("GET" | "HEAD", true) => get(shared.kind, *lock(&shared.tags), &state, request),
        ("GET", false) => list(&state, request),
        ("PUT", true) if request.query.contains_key("partNumber") => put_part(&mut state, request),
        ("PUT", true) if shared.kind == Kind::Gcs => put_generation(&mut state, request),
        ("PUT", true) => put(&mut state, request),
        ("DELETE", true) if request.query.contains_key("uploadId") => {
            state.uploads.remove(&request.query["uploadId"]);
            Answer::new(204)
        }
        ("DELETE", true) => match state.values.remove(&request.path) {
            None if shared.kind == Kind::Gcs => Answer::error(404, "NoSuchKey"),
            _ => Answer::new(204),
        },
        ("POST", _) if request.query.contains_key("delete") && shared.kind == Kind::S3 => {
            delete_many(&mut state, request)
        }
        ("POST", _) if request.query.contains_key("uploads") => {
            state.tags += 1;
            let name = format!("upload-{}", state.tags);
            state.uploads.insert(name.clone(), BTreeMap::new());
            Answer::xml(format!(
                "<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            ))
        }
        ("POST", _) if request.query.contains_key("uploadId") => {
            let parts = state.uploads.remove(&request.query["uploadId"]).unwrap();
            // Both clouds refuse smaller parts, except the last one.
            let mut sizes = parts.values().map(Vec::len).rev().skip(1);
            if sizes.any(|size| size < 5 << 20) {
                return Answer::error(400, "EntityTooSmall");
            }
            let value = state.insert(shared.kind, &request.path, parts.into_values().flatten().collect());
            Answer::xml(format!(
                "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                escaped(&value.tag)
            ))
            .with("x-goog-generation", value.generation.to_string())
        }
        _ => Answer::error(405, "MethodNotAllowed"),
    }
}

fn get(kind: Kind, tags: Tags, state: &State, request: &Request) -> Answer {
    let Some(value) = state.values.get(&request.path) else { return Answer::error(404, "NoSuchKey") };
    // Weak tags never match.
    if request.headers.get("if-match").is_some_and(|tag| *tag != value.tag || tags != Tags::Strong) {
        return Answer::error(412, "PreconditionFailed");
    }
    if request.headers.get("if-none-match").is_some_and(|tag| *tag == value.tag) {
        return Answer::new(304).with("ETag", value.tag.clone());
    }
    let size = value.bytes.len();
    if kind == Kind::Azure && request.headers.get("range").is_some_and(|range| range.starts_with("bytes=-")) {
        return Answer::error(400, "InvalidHeaderValue");
    }
    let range = request.headers.get("range").filter(|_| kind != Kind::BareFiles).map(|range| {
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        match (start.parse::<usize>(), end.parse::<usize>()) {
            (Ok(start), Ok(end)) => start..end.saturating_add(1).min(size),
            (Ok(start), Err(_)) => start..size,
            (Err(_), Ok(count)) => size.saturating_sub(count)..size,
            _ => panic!("range {range}"),
        }
    });
    let mut answer = match range {
        Some(range) if range.start >= size => return Answer::error(416, "InvalidRange"),
        Some(range) => {
            let mut answer =
                Answer::new(206).with("Content-Range", format!("bytes {}-{}/{size}", range.start, range.end - 1));
            answer.body = value.bytes[range].to_vec();
            answer
        }
        None => {
            let mut answer = Answer::new(200);
            answer.body = value.bytes.to_vec();
            answer
        }
    };
    if request.method == "HEAD" {
        answer.headers.push(("Content-Length".into(), size.to_string()));
        answer.body.clear();
    }
    let date = format!("Mon, 23 Nov 2026 20:00:{:02} GMT", if tags == Tags::Date { value.generation % 60 } else { 0 });
    answer = match tags {
        _ if kind == Kind::BareFiles => answer,
        Tags::Strong => answer.with("ETag", value.tag.clone()).with("Last-Modified", date),
        Tags::Weak => answer.with("ETag", format!("W/{}", value.tag)).with("Last-Modified", date),
        Tags::Date => answer.with("Last-Modified", date),
        Tags::Nothing => answer,
    };
    if kind == Kind::Gcs {
        answer = answer.with("x-goog-generation", value.generation.to_string());
    }
    answer
}

fn put(state: &mut State, request: &Request) -> Answer {
    let old = state.values.get(&request.path).map(|value| value.tag.clone());
    if request.headers.contains_key("if-none-match") && old.is_some() {
        return Answer::error(412, "PreconditionFailed");
    }
    match (request.headers.get("if-match"), old) {
        (Some(_), None) => return Answer::error(404, "NoSuchKey"),
        (Some(wanted), Some(found)) if *wanted != found => return Answer::error(412, "PreconditionFailed"),
        _ => {}
    }
    let value = state.insert(Kind::S3, &request.path, request.body.clone());
    Answer::new(200).with("ETag", value.tag)
}

/// Puts a value in Google's storage: generation 0 is that of a value that does not exist. It takes no condition by entity tags.
fn put_generation(state: &mut State, request: &Request) -> Answer {
    if ["if-match", "if-none-match"].iter().any(|name| request.headers.contains_key(*name)) {
        return Answer::error(400, "InvalidArgument");
    }
    let found = state.values.get(&request.path).map_or(0, |value| value.generation);
    let wanted = request.headers.get("x-goog-if-generation-match");
    if wanted.is_some_and(|wanted| *wanted != found.to_string()) {
        return Answer::error(412, "PreconditionFailed");
    }
    let value = state.insert(Kind::Gcs, &request.path, request.body.clone());
    Answer::new(200).with("ETag", value.tag).with("x-goog-generation", value.generation.to_string())
}

fn put_part(state: &mut State, request: &Request) -> Answer {
    let number = request.query["partNumber"].parse().unwrap();
    match state.uploads.get_mut(&request.query["uploadId"]) {
        Some(parts) => {
            parts.insert(number, request.body.clone());
            Answer::new(200).with("ETag", format!("\"part-{number}\""))
        }
        None => Answer::error(404, "NoSuchUpload"),
    }
}

fn delete_many(state: &mut State, request: &Request) -> Answer {
    let body = String::from_utf8(request.body.clone()).unwrap();
    let bucket = request.path.trim_end_matches('/');
    let mut deleted = String::new();
    for part in body.split("<Key>").skip(1) {
        let key = part.split("</Key>").next().unwrap();
        state.values.remove(&format!("{bucket}/{}", unescaped(key)));
        deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
    }
    Answer::xml(format!("<DeleteResult>{deleted}</DeleteResult>"))
}

/// Keys on a page of a listing: few, so that tests see several pages.
const PAGE_KEYS: usize = 7;

fn list(state: &State, request: &Request) -> Answer {
    let empty = String::new();
    let bucket = format!("{}/", request.path.trim_end_matches('/'));
    let prefix = request.query.get("prefix").unwrap_or(&empty);
    let after = request.query.get("continuation-token").unwrap_or(&empty);
    let is_level = request.query.contains_key("delimiter");
    let (mut keys, mut prefixes) = (Vec::new(), BTreeSet::new());
    for (key, value) in state.values.iter().filter_map(|(path, value)| Some((path.strip_prefix(&bucket)?, value))) {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else { continue };
        match rest.split_once('/').filter(|_| is_level) {
            Some((child, _)) => drop(prefixes.insert(format!("{prefix}{child}/"))),
            None => keys.push((key.to_string(), value.bytes.len())),
        }
    }
    keys.retain(|(key, _)| key > after);
    let is_last = keys.len() <= PAGE_KEYS;
    keys.truncate(PAGE_KEYS);
    let mut text = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", !is_last);
    if let Some((last, _)) = keys.last().filter(|_| !is_last) {
        text += &format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(last));
    }
    for (key, size) in &keys {
        text += &format!(
            "<Contents><Key>{}</Key><LastModified>2026-11-23T20:00:00.000Z</LastModified><Size>{size}</Size></Contents>",
            escaped(key)
        );
    }
    if after.is_empty() {
        for prefix in prefixes {
            text += &format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escaped(&prefix));
        }
    }
    Answer::xml(text + "</ListBucketResult>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

/// Waits until `done`, at most ten seconds.
pub fn eventually(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
