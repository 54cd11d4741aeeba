//! Reads batches of values from a server: at least one HTTP request for each item, many at once. Every body is copied
//! once, from the connection into lent memory.
//!
//! An item's first request gives the size and the version of its value, so that memory of the right size is requested.
//! A large item is then divided. Its other parts come over other connections at the same time, and each part must have
//! the version of the first one.
//!
//! A whole value is divided into parts of at most [`VALUE_PART_BYTES`], because several connections deliver a single
//! value sooner. A span of a larger file mostly consists of neighbouring chunks, joined to save requests, and is one of
//! many in flight. So its parts are larger: at most [`SPAN_PART_BYTES`]. This also holds for a span that is one large
//! chunk: 16 MiB per request, however large the chunk is.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cuzarr::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink, Version};
use cuzarr::{Error, ErrorKind, Result};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::cache::{Entry, Name, Tags, on_disk};
use crate::client::{Client, path_of};
use crate::cloud::Cloud;
use crate::failure::{RangeRefusal, explain};
use crate::limit::Permit;
use crate::transport::Call;

/// Largest number of bytes that one request reads of a whole value. One connection to an object store delivers about 80
/// MB/s.
const VALUE_PART_BYTES: u64 = 8 << 20;

/// Largest number of bytes that one request reads of a given range. Neighbouring chunks of 16 MiB in a file take one
/// request.
pub(crate) const SPAN_PART_BYTES: u64 = 16 << 20;

/// Returns the largest number of bytes of a range that one HTTP request reads.
fn part_bytes(range: ByteRange) -> u64 {
    match range {
        ByteRange::Span { .. } => SPAN_PART_BYTES,
        ByteRange::Full | ByteRange::From { .. } | ByteRange::Suffix { .. } => VALUE_PART_BYTES,
    }
}

/// Largest offset in a value that is requested from a server. Servers that parse offsets as signed numbers refuse
/// larger ones.
const MOST_OFFSET: u64 = i64::MAX as u64 - SPAN_PART_BYTES;

/// Time between two checks whether the caller still waits for the values.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of tries for a value without an entity tag, if the connection breaks off. The client itself continues values
/// with a tag.
const UNTAGGED_TRIES: u32 = 4;

/// Starts reading a batch on the runtime's threads, and returns at once.
pub(crate) fn start(client: Arc<Client>, store: String, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>) {
    let runtime = Arc::clone(&client.runtime);
    let store: Arc<str> = store.into();
    let call = Call::of(&client);
    runtime.clone().spawn(async move {
        let left = Arc::new(Left { items: AtomicUsize::new(batch.len()), none: Notify::new() });
        let begin = |index| {
            let item = Item { store: Arc::clone(&store), batch: Arc::clone(&batch), sink: Arc::clone(&sink), index };
            let ending = Ending { item, ended: false, left: Arc::clone(&left) };
            runtime.spawn(call.clone().run(run(Arc::clone(&client), ending)))
        };
        let items: Vec<AbortHandle> = (0..batch.len()).map(begin).collect();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        while left.items.load(Ordering::Acquire) > 0 {
            tokio::select! {
                () = left.none.notified() => {}
                _ = poll.tick() => if sink.check().is_err() {
                    // Items that are dropped report their own end.
                    items.iter().for_each(AbortHandle::abort);
                },
            }
        }
    });
}

/// The number of requests of a batch that have not ended, and a notice when none is left.
struct Left {
    items: AtomicUsize,
    none: Notify,
}

/// One read request of a batch of requests, with the receiver of its bytes.
struct Item {
    store: Arc<str>,
    batch: Arc<[ReadRequest]>,
    sink: Arc<dyn ReadSink>,
    index: usize,
}

/// The end of a read request, which is reported exactly once, even if the request's task is dropped.
struct Ending {
    item: Item,
    ended: bool,
    left: Arc<Left>,
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
        if self.left.items.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.left.none.notify_one();
        }
    }
}

async fn run(client: Arc<Client>, mut ending: Ending) {
    // A dropped read returns its memory before the item ends, because the future is dropped before `ending`.
    let outcome = fetch(&client, &ending.item).await;
    ending.end(outcome);
}

/// The server's answer to the first HTTP request for an item of a batch.
enum First {
    Missing,
    /// The server sends bytes of the value, and says which range they are.
    Body(Box<GetResult>),
    /// No bytes were asked for, so only the value's size and version are known.
    Nothing(ObjectMeta),
    /// The value has not changed: it still has the entity tag that the request names.
    Unchanged,
}

async fn fetch(client: &Client, item: &Item) -> Result<ReadOutcome> {
    let request = &item.batch[item.index];
    let path = path_of(&request.key)?;
    let (cached, name) = find(client, request).await;
    let permit = client.admit(expected_bytes(request.range)).await?;
    item.sink.check()?;
    // Boxed, because many items wait, and this future takes some kilobytes.
    permit.slot().run(Box::pin(fetch_admitted(client, item, &path, permit, cached, name))).await
}

/// Reads one item of a batch, whose first HTTP request is allowed by the host's limit.
async fn fetch_admitted(
    client: &Client,
    item: &Item,
    path: &Path,
    permit: Permit<'_>,
    mut cached: Option<Entry>,
    name: Option<Name>,
) -> Result<ReadOutcome> {
    let request = &item.batch[item.index];
    // Memory is requested once, even if the cache's bytes turn out to be damaged.
    let mut lent = None;
    let (meta, body) = loop {
        let etag = cached.as_ref().map(|entry| entry.etag.clone());
        match first(client, path, request.range, etag).await? {
            First::Missing => return Ok(ReadOutcome::Missing),
            First::Body(body) => break (body.meta.clone(), Some(body)),
            First::Nothing(meta) => break (meta, None),
            First::Unchanged => {
                let (Some(entry), Some(name)) = (cached.take(), &name) else {
                    let message = "the server says that the value did not change, but was not asked that";
                    return Err(Error::new(ErrorKind::StoreFailed, message));
                };
                match fill_from_cache(client, item, name.clone(), entry).await? {
                    Cached::Filled(lease) => return Ok(ReadOutcome::Filled(lease)),
                    // The damaged entry is removed, and the server is asked for the bytes.
                    Cached::Damaged(lease) => lent = lease,
                }
            }
        }
    };
    let (offset, size_bytes) = request.range.resolve(meta.size)?;
    let version = client.version_of(&meta);
    let mut lease = match lent {
        None => reserve(item, version, size_bytes)?,
        Some(mut lease) => match lease.size_bytes() as u64 == size_bytes {
            true => lease,
            false => return Err(changed()),
        },
    };
    let Some(body) = body else { return Ok(ReadOutcome::Filled(lease)) };
    let most_bytes = part_bytes(request.range);
    let is_part = body.range.end - body.range.start < meta.size;
    let is_ranged = is_part || !client.ignores_ranges.load(Ordering::Relaxed);
    let source = Source { client, path, meta: &meta, part_bytes: most_bytes, is_ranged };
    let Some(etag) = meta.e_tag.clone() else {
        // Two requests could get two versions, so one request reads everything.
        source.fill_untagged(offset..offset + size_bytes, &mut *lease, *body).await?;
        return Ok(ReadOutcome::Filled(lease));
    };
    if size_bytes <= most_bytes && client.cache.is_none() {
        let filled = copy(*body, offset, &mut Memory::Lease(&mut *lease, 0)).await?;
        drop(permit);
        source.fill(offset + filled as u64, Memory::Lease(&mut *lease, filled)).await?;
        return Ok(ReadOutcome::Filled(lease));
    }
    {
        let step = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let mut parts = lease.bytes().chunks_mut(step);
        let own = parts.next().unwrap_or_default();
        let others: FuturesUnordered<_> = parts
            .enumerate()
            .map(|(at, part)| source.fill(offset + ((at + 1) * step) as u64, Memory::Bytes(part)))
            .collect();
        let begun = async {
            let filled = copy(*body, offset, &mut Memory::Bytes(own)).await?;
            // Other requests of this item may need the permit.
            drop(permit);
            source.fill(offset + filled as u64, Memory::Bytes(&mut own[filled..])).await
        };
        let others = others.try_for_each(|()| std::future::ready(Ok(())));
        tokio::try_join!(begun, others)?;
    }
    let is_strong = Version::of_etag(&etag).is_some();
    if let (Some(cache), Some(name), true) = (client.cache.clone(), name, is_strong) {
        let tags = Tags { etag, version: meta.version };
        (lease, ()) = on_disk(lease, move |bytes| cache.keep(&name, &tags, bytes)).await?;
    }
    Ok(ReadOutcome::Filled(lease))
}

/// Returns how many bytes the first HTTP request for a range reads, or 0 if that is not known.
fn expected_bytes(range: ByteRange) -> u64 {
    match range {
        ByteRange::Span { size_bytes, .. } | ByteRange::Suffix { size_bytes } => size_bytes.min(part_bytes(range)),
        ByteRange::Full | ByteRange::From { .. } => 0,
    }
}

/// Reports the value's version to the caller, and asks the caller for memory of `size_bytes`.
fn reserve(item: &Item, version: Option<Version>, size_bytes: u64) -> Result<Box<dyn Lease>> {
    if let Some(version) = version {
        item.sink.opened(item.index, version)?;
    }
    let mut lease = item.sink.reserve(item.index, size_bytes)?;
    let lent_bytes = lease.size_bytes() as u64;
    if lent_bytes != size_bytes {
        let message = format!("lent memory has {lent_bytes} bytes, expected {size_bytes}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(lease)
}

/// Looks for the requested bytes in the cache, and returns the entry and its name; no name if there is no cache.
async fn find(client: &Client, request: &ReadRequest) -> (Option<Entry>, Option<Name>) {
    let Some(cache) = client.cache.clone() else { return (None, None) };
    let name = cache.name(&request.key, request.range);
    let wanted = name.clone();
    let found = tokio::task::spawn_blocking(move || cache.find(&wanted)).await;
    (found.ok().flatten(), Some(name))
}

/// The outcome of filling memory from an entry of the cache.
enum Cached {
    Filled(Box<dyn Lease>),
    /// The bytes of the cache entry are damaged, so that the value must be requested from the server. The memory was
    /// already lent, unless the size was wrong.
    Damaged(Option<Box<dyn Lease>>),
}

/// Fills the caller's memory for an item with the bytes of a cache entry.
async fn fill_from_cache(client: &Client, item: &Item, name: Name, entry: Entry) -> Result<Cached> {
    let Some(cache) = client.cache.clone() else { return Ok(Cached::Damaged(None)) };
    let version = client.version_of_tags(Some(&entry.etag), entry.version.as_deref());
    let is_expected = match item.batch[item.index].range {
        ByteRange::Span { size_bytes, .. } => size_bytes == entry.size_bytes,
        ByteRange::Suffix { size_bytes } => size_bytes >= entry.size_bytes,
        ByteRange::Full | ByteRange::From { .. } => true,
    };
    if !is_expected {
        return Ok(Cached::Damaged(None));
    }
    let lease = reserve(item, version, entry.size_bytes)?;
    let (lease, is_sound) = on_disk(lease, move |bytes| cache.fill(&name, entry, bytes)).await?;
    Ok(if is_sound { Cached::Filled(lease) } else { Cached::Damaged(Some(lease)) })
}

/// Sends the first HTTP request for an item, which asks for bytes of the value, up to the size of a part.
async fn first(client: &Client, path: &Path, range: ByteRange, unless: Option<String>) -> Result<First> {
    let up_to = |offset: u64, size_bytes: u64| {
        let is_plain = size_bytes > 0 && offset <= MOST_OFFSET;
        is_plain.then(|| GetRange::Bounded(offset..offset + size_bytes.min(part_bytes(range))))
    };
    let wanted = match range {
        ByteRange::Full => up_to(0, u64::MAX),
        ByteRange::From { offset } => up_to(offset, u64::MAX),
        ByteRange::Span { offset, size_bytes } => up_to(offset, size_bytes),
        // Azure refuses ranges that count from the end.
        ByteRange::Suffix { size_bytes } => {
            let is_plain = (1..=part_bytes(range)).contains(&size_bytes) && client.cloud != Cloud::Azure;
            is_plain.then_some(GetRange::Suffix(size_bytes))
        }
    };
    // A server may ignore ranges only for some values, such as generated documents. So parts are still requested as
    // ranges, unless whole values may be read instead.
    if client.ignores_ranges.load(Ordering::Relaxed) && (range == ByteRange::Full || client.whole_values) {
        return whole(client, path, range).await;
    }
    let refusal = match wanted {
        None => None,
        Some(wanted) => {
            let options = GetOptions { range: Some(wanted), if_none_match: unless.clone(), ..GetOptions::default() };
            match client.get(path, options).await {
                Ok(body) => return Ok(First::Body(Box::new(body))),
                Err(object_store::Error::NotModified { .. }) => return Ok(First::Unchanged),
                Err(error) if client.is_missing(&error) => return Ok(First::Missing),
                Err(error) => Some(RangeRefusal::of(&error).ok_or_else(|| explain(&error))?),
            }
        }
    };
    match refusal {
        Some(RangeRefusal::Ignored) => {
            client.note_ignored_ranges();
            whole(client, path, range).await
        }
        // Either the value is shorter than the range, or its end is not known yet.
        Some(RangeRefusal::Unsatisfiable) | None => by_size(client, path, range, unless.as_deref()).await,
    }
}

/// Requests the size of the value, unless it is known, and then the range of its bytes.
async fn by_size(client: &Client, path: &Path, range: ByteRange, unless: Option<&str>) -> Result<First> {
    let is_from_end = matches!(range, ByteRange::Suffix { .. });
    if let Some(meta) = client.known(path).filter(|_| is_from_end)
        && let Some(first) = part_of(client, path, range, meta, unless).await?
    {
        return Ok(first);
    }
    let options = GetOptions { head: true, ..GetOptions::default() };
    let meta = match client.get(path, options).await {
        Ok(found) => found.meta,
        Err(error) if client.is_missing(&error) => return Ok(First::Missing),
        Err(error) => return Err(explain(&error)),
    };
    if is_from_end && meta.e_tag.is_some() {
        client.remember(path, Some(&meta));
    }
    part_of(client, path, range, meta, unless).await?.ok_or_else(changed)
}

/// Requests a range of a value whose size and version are known; `None` if the version has changed since.
async fn part_of(
    client: &Client,
    path: &Path,
    range: ByteRange,
    meta: ObjectMeta,
    unless: Option<&str>,
) -> Result<Option<First>> {
    let (offset, size_bytes) = range.resolve(meta.size)?;
    if size_bytes == 0 {
        return Ok(Some(First::Nothing(meta)));
    }
    let range = Some(GetRange::Bounded(offset..offset + size_bytes.min(part_bytes(range))));
    let options = match unless.filter(|_| meta.e_tag.as_deref() == unless) {
        Some(etag) => GetOptions { range, if_none_match: Some(etag.to_string()), ..GetOptions::default() },
        None => GetOptions { range, if_match: meta.e_tag.clone(), ..GetOptions::default() },
    };
    match client.get(path, options).await {
        Err(object_store::Error::NotModified { .. }) => Ok(Some(First::Unchanged)),
        Ok(body) if client.is_same(&body.meta, &meta) => Ok(Some(First::Body(Box::new(body)))),
        Ok(_) | Err(object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. }) => {
            client.remember(path, None);
            Ok(None)
        }
        Err(error) => Err(explain(&error)),
    }
}

/// Requests the whole value from a server that ignores ranges.
async fn whole(client: &Client, path: &Path, range: ByteRange) -> Result<First> {
    if range != ByteRange::Full && !client.whole_values {
        return Err(Error::new(ErrorKind::StoreFailed, RangeRefusal::Ignored.to_string())
            .with_hint("set the storage option whole_values=true to read whole values where parts are wanted"));
    }
    match client.get(path, GetOptions::default()).await {
        Ok(body) => Ok(First::Body(Box::new(body))),
        Err(error) if client.is_missing(&error) => Ok(First::Missing),
        Err(error) => Err(explain(&error)),
    }
}

/// Memory to which the bytes of a server's answers are copied.
enum Memory<'a> {
    Bytes(&'a mut [u8]),
    /// Memory that the caller lends, to which bytes are copied from this offset on. Its memory may lie in several
    /// places.
    Lease(&'a mut dyn Lease, usize),
}

impl<'a> Memory<'a> {
    fn size_bytes(&mut self) -> usize {
        match self {
            Memory::Bytes(bytes) => bytes.len(),
            Memory::Lease(lease, from) => lease.size_bytes().saturating_sub(*from),
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Memory::Bytes(memory) => {
                memory[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Memory::Lease(lease, from) => lease.write(*from + at, bytes),
        }
    }

    /// Returns the part of this memory that follows its first `first` bytes.
    fn behind(self, first: usize) -> Memory<'a> {
        match self {
            Memory::Bytes(bytes) => Memory::Bytes(&mut bytes[first..]),
            Memory::Lease(lease, from) => Memory::Lease(lease, from + first),
        }
    }
}

/// The value on the server from which a read request is answered, and the size of the HTTP requests for it.
struct Source<'a> {
    client: &'a Client,
    path: &'a Path,
    meta: &'a ObjectMeta,
    /// Largest number of bytes that one HTTP request for this value reads.
    part_bytes: u64,
    /// Whether HTTP requests ask for ranges of the value, and not for the whole value.
    is_ranged: bool,
}

impl Source<'_> {
    /// Fills memory with the bytes of the value from `offset` on, by as many requests as needed.
    async fn fill(&self, offset: u64, mut memory: Memory<'_>) -> Result<()> {
        let (mut start, end) = (offset, offset + memory.size_bytes() as u64);
        while start < end {
            let range = start..end.min(start + self.part_bytes);
            let permit = self.client.admit(range.end - range.start).await?;
            let filled = permit.slot().run(self.fill_part(range, &mut memory)).await?;
            start += filled as u64;
            memory = memory.behind(filled);
        }
        Ok(())
    }

    /// Fills memory with the bytes that one HTTP request returns, and returns the number of these bytes.
    async fn fill_part(&self, range: Range<u64>, memory: &mut Memory<'_>) -> Result<usize> {
        let start = range.start;
        let body = self.request(range).await?;
        copy(body, start, memory).await
    }

    /// Fills memory from a single answer, because without a strong entity tag answers may come from different versions.
    async fn fill_untagged(&self, range: Range<u64>, lease: &mut dyn Lease, body: GetResult) -> Result<()> {
        let is_whole = body.range.start <= range.start && body.range.end >= range.end;
        let mut body = if is_whole { body } else { self.request(range.clone()).await? };
        let (mut tries, size_bytes) = (1, lease.size_bytes());
        loop {
            match copy(body, range.start, &mut Memory::Lease(&mut *lease, 0)).await {
                Ok(filled) if filled == size_bytes => return Ok(()),
                Err(error) if tries == UNTAGGED_TRIES => return Err(error),
                Ok(filled) if tries == UNTAGGED_TRIES => return Err(broke_off(filled, size_bytes)),
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(100 << tries)).await;
            tries += 1;
            body = self.request(range.clone()).await?;
        }
    }

    async fn request(&self, range: Range<u64>) -> Result<GetResult> {
        let range = self.is_ranged.then_some(GetRange::Bounded(range));
        let options = GetOptions { range, if_match: self.meta.e_tag.clone(), ..GetOptions::default() };
        let body = self.client.get(self.path, options).await.map_err(|error| explain(&error))?;
        if self.client.is_same(&body.meta, self.meta) { Ok(body) } else { Err(changed()) }
    }
}

fn changed() -> Error {
    Error::new(ErrorKind::StoreFailed, "the value was changed while it was read").with_hint("read again")
}

fn broke_off(got: usize, expected: usize) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the body ended after {got} of {expected} bytes"))
}

/// Copies the bytes of an answer to memory that begins at byte `offset` of the value. Returns the number of bytes that
/// were filled.
///
/// # Errors
/// `StoreFailed` when the body is shorter or longer than its answer announced.
async fn copy(body: GetResult, offset: u64, memory: &mut Memory<'_>) -> Result<usize> {
    let said = body.range.clone();
    let wanted_end = offset + memory.size_bytes() as u64;
    let (mut at, mut stream) = (said.start, body.into_stream());
    while at < said.end.min(wanted_end) {
        let Some(piece) = stream.next().await else { break };
        let piece = piece.map_err(|error| explain(&error))?;
        Call::received(piece.len());
        let piece_end = at + piece.len() as u64;
        if piece_end > said.end {
            return Err(Error::new(ErrorKind::StoreFailed, "the body is longer than its answer said"));
        }
        // A server without ranges also sends bytes before and after the requested range.
        let (from, to) = (at.max(offset), piece_end.min(wanted_end));
        if from < to {
            memory.write((from - offset) as usize, &piece[(from - at) as usize..(to - at) as usize])?;
        }
        at = piece_end;
    }
    if at < said.end.min(wanted_end) {
        return Err(broke_off((at - said.start) as usize, (said.end - said.start) as usize));
    }
    Ok((at.min(wanted_end).saturating_sub(offset)) as usize)
}
