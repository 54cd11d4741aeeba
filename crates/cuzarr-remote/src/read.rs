//! Reading a batch: a request for each item, many at once, and every body copied once, from the connection into lent memory.
//!
//! An item's first request tells the size and the version of its value, so that memory is asked for what is there. A large
//! item is then divided: its other parts come over other connections at the same time, and each of them must be of the version
//! that the first request met.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cuzarr::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink};
use cuzarr::{Error, ErrorKind, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use tokio::task::JoinSet;

use crate::client::{Client, Cloud, is_missing, path_of};
use crate::failure::explain;
use crate::transport::RangeRefusal;

/// Largest part of a value that one request brings. A connection to an object store brings some 80 MB/s.
const PART_BYTES: u64 = 8 << 20;

/// Offsets beyond this are refused by servers that parse them as signed numbers.
const MOST_OFFSET: u64 = i64::MAX as u64 - PART_BYTES;

/// Time between two questions to the caller whether it still waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Tries for a value without an entity tag, whose body broke off. Values with one are continued by the client.
const UNTAGGED_TRIES: u32 = 4;

/// Reads a batch on the runtime's threads; returns at once.
pub(crate) fn start(client: Arc<Client>, store: String, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>) {
    let runtime = Arc::clone(&client.runtime);
    let store: Arc<str> = store.into();
    runtime.spawn(async move {
        let mut items = JoinSet::new();
        for index in 0..batch.len() {
            let item = Item { store: Arc::clone(&store), batch: Arc::clone(&batch), sink: Arc::clone(&sink), index };
            items.spawn(run(Arc::clone(&client), Ending { item, ended: false }));
        }
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                ended = items.join_next() => if ended.is_none() { break },
                _ = poll.tick() => if sink.check().is_err() {
                    // Items that are dropped end themselves.
                    items.abort_all();
                },
            }
        }
    });
}

/// One item of a batch.
struct Item {
    store: Arc<str>,
    batch: Arc<[ReadRequest]>,
    sink: Arc<dyn ReadSink>,
    index: usize,
}

/// Ends an item exactly once, also when its task is dropped.
struct Ending {
    item: Item,
    ended: bool,
}

impl Ending {
    fn end(&mut self, outcome: Result<ReadOutcome>) {
        self.ended = true;
        let Item { store, batch, sink, index } = &self.item;
        sink.done(*index, outcome.map_err(|error| error.at(format!("{store}: key '{}'", batch[*index].key))));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.ended {
            let dropped = || Error::new(ErrorKind::Cancelled, "the read was dropped before it ended");
            let error = self.item.sink.check().err().unwrap_or_else(dropped);
            self.end(Err(error));
        }
    }
}

async fn run(client: Arc<Client>, mut ending: Ending) {
    // The memory of a dropped read is given back before the item ends: the future is dropped before `ending`.
    let outcome = fetch(&client, &ending.item).await;
    ending.end(outcome);
}

/// The answer to the first request of an item.
enum First {
    Missing,
    /// A body, and the bytes of the value that it holds.
    Body(Box<GetResult>),
    /// No bytes are wanted.
    Nothing(ObjectMeta),
}

async fn fetch(client: &Client, item: &Item) -> Result<ReadOutcome> {
    let request = &item.batch[item.index];
    let path = path_of(&request.key)?;
    let permit = client.admit().await?;
    item.sink.check()?;
    let (meta, body) = match first(client, &path, request.range).await? {
        First::Missing => return Ok(ReadOutcome::Missing),
        First::Body(body) => (body.meta.clone(), Some(body)),
        First::Nothing(meta) => (meta, None),
    };
    let (offset, size_bytes) = request.range.resolve(meta.size)?;
    if let Some(version) = client.version_of(&meta) {
        item.sink.opened(item.index, version)?;
    }
    let mut lease = item.sink.reserve(item.index, size_bytes)?;
    let lent_bytes = lease.bytes().len() as u64;
    if lent_bytes != size_bytes {
        let message = format!("lent memory has {lent_bytes} bytes, expected {size_bytes}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let Some(body) = body else { return Ok(ReadOutcome::Filled(lease)) };
    let source = Source { client, path: &path, meta: &meta };
    if meta.e_tag.is_none() {
        // Two requests could meet two versions, so that one brings everything.
        source.fill_untagged(offset..offset + size_bytes, lease.bytes(), *body).await?;
        return Ok(ReadOutcome::Filled(lease));
    }
    let mut parts: Vec<(u64, Box<dyn Lease>)> = Vec::new();
    let step = usize::try_from(PART_BYTES).unwrap_or(usize::MAX);
    for at in (step..lease.bytes().len()).step_by(step).rev() {
        // Memory that cannot be divided here stays with the part before it.
        if let Some(part) = lease.split_off(at) {
            parts.push((offset + at as u64, part));
        }
    }
    {
        let others: FuturesUnordered<_> = parts.iter_mut().map(|(at, part)| source.fill(*at, part.bytes())).collect();
        let begun = async {
            let filled = copy(*body, offset, lease.bytes()).await?;
            // Other requests of this item may wait for the permit.
            drop(permit);
            source.fill(offset + filled as u64, &mut lease.bytes()[filled..]).await
        };
        let others = async {
            let mut others = others;
            while let Some(filled) = others.next().await {
                filled?;
            }
            Ok(())
        };
        tokio::try_join!(begun, others)?;
    }
    // The first part stands for the item once the others are dropped.
    drop(parts);
    Ok(ReadOutcome::Filled(lease))
}

/// Makes the first request of an item: for its bytes, up to the size of a part.
async fn first(client: &Client, path: &Path, range: ByteRange) -> Result<First> {
    let up_to = |offset: u64, size_bytes: u64| {
        let is_plain = size_bytes > 0 && offset <= MOST_OFFSET;
        is_plain.then(|| GetRange::Bounded(offset..offset + size_bytes.min(PART_BYTES)))
    };
    let wanted = match range {
        ByteRange::Full => up_to(0, u64::MAX),
        ByteRange::From { offset } => up_to(offset, u64::MAX),
        ByteRange::Span { offset, size_bytes } => up_to(offset, size_bytes),
        // Azure refuses ranges that count from the end.
        ByteRange::Suffix { size_bytes } => {
            let is_plain = (1..=PART_BYTES).contains(&size_bytes) && client.cloud != Cloud::Azure;
            is_plain.then_some(GetRange::Suffix(size_bytes))
        }
    };
    if client.ignores_ranges.load(Ordering::Relaxed) {
        return whole(client, path, range).await;
    }
    let refusal = match wanted {
        None => None,
        Some(wanted) => {
            let options = GetOptions { range: Some(wanted), ..GetOptions::default() };
            match client.objects.get_opts(path, options).await {
                Ok(body) => return Ok(First::Body(Box::new(body))),
                Err(error) if is_missing(&error) => return Ok(First::Missing),
                Err(error) => Some(RangeRefusal::of(&error).ok_or_else(|| explain(&error))?),
            }
        }
    };
    match refusal {
        Some(RangeRefusal::Ignored) => {
            client.note_ignored_ranges();
            whole(client, path, range).await
        }
        // The value is shorter than the range, or its end is not known yet.
        Some(RangeRefusal::Unsatisfiable) | None => by_size(client, path, range).await,
    }
}

/// Asks for the size of the value before its bytes.
async fn by_size(client: &Client, path: &Path, range: ByteRange) -> Result<First> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    let meta = match client.objects.get_opts(path, options).await {
        Ok(found) => found.meta,
        Err(error) if is_missing(&error) => return Ok(First::Missing),
        Err(error) => return Err(explain(&error)),
    };
    let (offset, size_bytes) = range.resolve(meta.size)?;
    if size_bytes == 0 {
        return Ok(First::Nothing(meta));
    }
    let part = GetRange::Bounded(offset..offset + size_bytes.min(PART_BYTES));
    let options = GetOptions { range: Some(part), if_match: meta.e_tag.clone(), ..GetOptions::default() };
    let body = client.objects.get_opts(path, options).await.map_err(|error| explain(&error))?;
    Ok(First::Body(Box::new(body)))
}

/// Asks a server that ignores ranges for the whole value.
async fn whole(client: &Client, path: &Path, range: ByteRange) -> Result<First> {
    if range != ByteRange::Full && !client.whole_values {
        return Err(Error::new(ErrorKind::StoreFailed, RangeRefusal::Ignored.to_string())
            .with_hint("set the storage option whole_values=true to read whole values where parts are wanted"));
    }
    match client.objects.get_opts(path, GetOptions::default()).await {
        Ok(body) => Ok(First::Body(Box::new(body))),
        Err(error) if is_missing(&error) => Ok(First::Missing),
        Err(error) => Err(explain(&error)),
    }
}

/// The value that an item reads.
struct Source<'a> {
    client: &'a Client,
    path: &'a Path,
    meta: &'a ObjectMeta,
}

impl Source<'_> {
    /// Fills memory with the bytes of the value from `offset` on.
    async fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let _permit = self.client.admit().await?;
            let start = offset + filled as u64;
            let end = (offset + bytes.len() as u64).min(start + PART_BYTES);
            let body = self.request(start..end).await?;
            if body.meta.e_tag != self.meta.e_tag {
                return Err(Error::new(ErrorKind::StoreFailed, "the value was changed while it was read"));
            }
            filled += copy(body, start, &mut bytes[filled..]).await?;
        }
        Ok(())
    }

    /// Fills memory with a range of a value without an entity tag, from one answer.
    async fn fill_untagged(&self, range: Range<u64>, bytes: &mut [u8], body: GetResult) -> Result<()> {
        let is_whole = body.range.start <= range.start && body.range.end >= range.end;
        let mut body = if is_whole { body } else { self.request(range.clone()).await? };
        let mut tries = 1;
        loop {
            match copy(body, range.start, bytes).await {
                Ok(filled) if filled == bytes.len() => return Ok(()),
                Err(error) if tries == UNTAGGED_TRIES => return Err(error),
                Ok(filled) if tries == UNTAGGED_TRIES => return Err(broke_off(filled, bytes.len())),
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(100 << tries)).await;
            tries += 1;
            body = self.request(range.clone()).await?;
        }
    }

    async fn request(&self, range: Range<u64>) -> Result<GetResult> {
        let is_ranged = !self.client.ignores_ranges.load(Ordering::Relaxed);
        let range = is_ranged.then_some(GetRange::Bounded(range));
        let options = GetOptions { range, if_match: self.meta.e_tag.clone(), ..GetOptions::default() };
        self.client.objects.get_opts(self.path, options).await.map_err(|error| explain(&error))
    }
}

fn broke_off(got: usize, expected: usize) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the body ended after {got} of {expected} bytes"))
}

/// Copies a body into memory that begins at byte `offset` of the value, as far as both go; returns how many bytes it filled.
///
/// # Errors
/// When the body ends before its answer said, or goes on after that.
async fn copy(body: GetResult, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    let said = body.range.clone();
    let wanted_end = offset + bytes.len() as u64;
    let (mut at, mut stream) = (said.start, body.into_stream());
    while at < said.end.min(wanted_end) {
        let Some(piece) = stream.next().await else { break };
        let piece = piece.map_err(|error| explain(&error))?;
        let piece_end = at + piece.len() as u64;
        if piece_end > said.end {
            return Err(Error::new(ErrorKind::StoreFailed, "the body is longer than its answer said"));
        }
        // A server without ranges sends bytes before and behind those that are wanted.
        let (from, to) = (at.max(offset), piece_end.min(wanted_end));
        if from < to {
            let target = (from - offset) as usize..(to - offset) as usize;
            bytes[target].copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
        }
        at = piece_end;
    }
    if at < said.end.min(wanted_end) {
        return Err(broke_off((at - said.start) as usize, (said.end - said.start) as usize));
    }
    Ok((at.min(wanted_end).saturating_sub(offset)) as usize)
}
