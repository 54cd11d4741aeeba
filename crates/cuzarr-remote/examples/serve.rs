//! A web server for benches, that costs little beside what the system's sockets cost: a thread a connection, files in memory.
//!
//!     cargo run --release -p cuzarr-remote --example serve -- FOLDER [PORT]
//!
//! Prints its address once every file is in memory, and answers `GET` and `HEAD` on the loopback interface, whole or one range,
//! until it is stopped. Entity tags are the sizes of files.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Error, IoSlice, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// The files, by their paths with a slash in front.
type Files = HashMap<String, Vec<u8>>;

fn load(folder: &Path, prefix: &str, files: &mut Files) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => load(&entry.path(), &name, files)?,
            false => drop(files.insert(name, std::fs::read(entry.path())?)),
        }
    }
    Ok(())
}

/// The part that a range asks for: `bytes=2-5`, `bytes=2-` or `bytes=-5`.
fn part_of(range: &str, size: usize) -> Option<std::ops::Range<usize>> {
    let (first, last) = range.trim().strip_prefix("bytes=")?.split_once('-')?;
    let part = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) => first..size,
        (Err(_), Ok(count)) => size.saturating_sub(count)..size,
        (Err(_), Err(_)) => return None,
    };
    (part.start < part.end).then_some(part)
}

fn send(connection: &mut TcpStream, head: &str, body: &[u8]) -> Result<()> {
    let (mut head, mut body) = (head.as_bytes(), body);
    while !head.is_empty() || !body.is_empty() {
        let sent = connection.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
        let of_head = sent.min(head.len());
        (head, body) = (&head[of_head..], &body[sent - of_head..]);
    }
    Ok(())
}

/// Answers the requests of a connection until the client closes it.
fn answer(connection: TcpStream, files: &Files) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut to = connection.try_clone()?;
    let (mut from, mut line) = (BufReader::new(connection), String::new());
    loop {
        let (mut request, mut range) = (String::new(), None);
        loop {
            line.clear();
            if from.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("range") => range = Some(value.to_string()),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => request.clone_from(&line),
            }
        }
        let mut words = request.split_ascii_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(file) = files.get(path) else {
            send(&mut to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &[])?;
            continue;
        };
        let size = file.len();
        let (status, part) = match range.map(|range| part_of(&range, size)) {
            None => ("200 OK".to_string(), 0..size),
            Some(None) => (format!("416 Range Not Satisfiable\r\nContent-Range: bytes */{size}"), 0..0),
            Some(Some(part)) => {
                let range = format!("{}-{}/{size}", part.start, part.end - 1);
                (format!("206 Partial Content\r\nContent-Range: bytes {range}"), part)
            }
        };
        let length = part.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\nETag: \"{size}\"\r\n\r\n"
        );
        send(&mut to, &head, if method == "HEAD" { &[] } else { &file[part] })?;
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or_else(|| Error::other("usage: serve FOLDER [PORT]"))?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse()).map_err(Error::other)?;
    let mut files = Files::new();
    load(Path::new(&folder), "", &mut files)?;
    let (listener, files) = (TcpListener::bind(("127.0.0.1", port))?, Arc::new(files));
    println!("http://{}", listener.local_addr()?);
    for connection in listener.incoming() {
        let (connection, files) = (connection?, Arc::clone(&files));
        // A client that goes away ends its connection alone.
        std::thread::spawn(move || answer(connection, &files));
    }
    Ok(())
}
