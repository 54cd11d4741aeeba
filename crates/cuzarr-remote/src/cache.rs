//! A cache of encoded bytes on a local disk. It keeps the answers to requests, with the entity tags that the server
//! sent.
//!
//! Before an entry is used, the server is asked whether the value still has that tag (`If-None-Match`). So the cache
//! never returns an old value, or a value that the user is no longer allowed to read. It saves transferred bytes, not
//! requests.
//!
//! An entry is one file: a few lines that describe it, then the bytes. It is written under another name and renamed, so
//! that other processes only see complete entries. If the machine crashes, a file may lose bytes. So every entry has
//! one checksum for its lines and one for its bytes. A damaged entry counts as missing. When the files together exceed
//! the limit, the least recently used ones are removed. Several processes may do that at the same time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use cuzarr::store::{ByteRange, Key, Lease};
use cuzarr::{Error, ErrorKind, Result};
use http::HeaderValue;

/// Largest total size in bytes that a cache may have, unless the option `cache_max_bytes` is given.
pub(crate) const MOST_BYTES: u64 = 10 << 30;

/// The first line of each file in the cache: it names the format.
const FORMAT: &str = "cuzarr cache 2";
/// Values larger than the cache's size limit divided by this are not kept.
const LARGEST_SHARE: u64 = 8;
/// After writing the cache's size limit divided by this, a process removes old files from the cache.
const SWEEP_SHARE: u64 = 16;
/// Age from which an unfinished file in the cache counts as left behind by an interrupted process.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Longest header line of a cache file that is read, in bytes; a file with a longer one counts as damaged. Lines
/// contain addresses and tags.
const LONGEST_LINE: u64 = 1 << 14;
const UNFINISHED: &str = "part";

/// Returns the cache's folder if no option names one: `$CUZARR_CACHE_DIR/chunks`, else `cuzarr/chunks` in the user's
/// cache folder.
pub fn default_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("CUZARR_CACHE_DIR") {
        return Some(folder.join("chunks"));
    }
    let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(user.join("cuzarr").join("chunks"))
}

/// Statistics of a cache of remote values: the number and the size of the values that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheInfo {
    /// Number of values and parts of values in the cache.
    pub entries: u64,
    /// Size in bytes of the files that hold the cached values.
    pub size_bytes: u64,
    /// For each bucket or host, the number of cached values and their size in bytes.
    pub places: BTreeMap<String, (u64, u64)>,
}

/// Returns the contents of the cache in a folder. A folder that does not exist is an empty cache.
///
/// # Errors
/// `StoreFailed` when the folder cannot be read.
pub fn cache_info(folder: &Path) -> Result<CacheInfo> {
    let mut info = CacheInfo::default();
    for file in files(folder).map_err(|error| unreadable(folder, error))? {
        if is_unfinished(&file.path) {
            continue;
        }
        let Ok(entry) = Entry::open(&file.path) else { continue };
        info.entries += 1;
        info.size_bytes += file.size_bytes;
        let place = entry.place.split_once(' ').map_or("", |(place, _)| place).to_string();
        let (entries, size_bytes) = info.places.entry(place).or_default();
        (*entries, *size_bytes) = (*entries + 1, *size_bytes + file.size_bytes);
    }
    Ok(info)
}

/// Removes every entry of the cache in a folder, and returns the number of bytes that this freed. Other files are kept.
///
/// # Errors
/// `StoreFailed` when the folder cannot be read, or a file cannot be removed.
pub fn clear_cache(folder: &Path) -> Result<u64> {
    let mut freed = 0;
    for file in files(folder).map_err(|error| unreadable(folder, error))? {
        match fs::remove_file(&file.path) {
            Ok(()) => freed += file.size_bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&file.path, error)),
        }
    }
    Ok(freed)
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("cache '{}': {error}", path.display())).telling(error)
}

/// Writes a cache file from header lines and bytes to `folder`, adds the checksum of the lines, and reads the file
/// back.
pub fn read_entry(folder: &Path, lines: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let cache = Cache::new(folder.into(), "s3://b", 1 << 20).ok()?;
    let name = cache.name("k", ByteRange::Full);
    fs::create_dir_all(name.file.parent()?).ok()?;
    let checksum = format!("{}\n", crc32c::crc32c(lines));
    fs::write(&name.file, [lines, checksum.as_bytes(), bytes].concat()).ok()?;
    let entry = cache.find(&name)?;
    let mut found = vec![0; usize::try_from(entry.size_bytes).ok()?];
    cache.fill(&name, entry, &mut found).then_some(found)
}

/// A folder in which the bytes read from one bucket or host are kept.
pub(crate) struct Cache {
    folder: PathBuf,
    /// The bucket or host whose bytes this cache keeps.
    place: String,
    most_bytes: u64,
    /// Bytes that this process has written to the cache since it last removed old files.
    written: AtomicU64,
    sweeping: AtomicBool,
}

/// The name of an entry of the cache: the bucket or host, the key, and the requested range.
#[derive(Clone)]
pub(crate) struct Name {
    text: String,
    file: PathBuf,
}

/// A file of the cache whose header lines were read. Its bytes have not been read yet.
pub(crate) struct Entry {
    /// The bucket or host, the range and the key that the cached bytes belong to, separated by spaces.
    place: String,
    pub(crate) etag: String,
    /// The version of the value, if the server identifies it by something besides the entity tag.
    pub(crate) version: Option<String>,
    pub(crate) size_bytes: u64,
    checksum: u32,
    bytes: BufReader<File>,
}

/// The entity tag and the version of the value whose bytes are cached.
pub(crate) struct Tags {
    pub(crate) etag: String,
    pub(crate) version: Option<String>,
}

impl Cache {
    /// Opens the cache in `folder` for the bucket or host `place`, and makes the folder if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` when the folder cannot be made.
    pub(crate) fn new(folder: PathBuf, place: &str, most_bytes: u64) -> Result<Cache> {
        let refused = |error: io::Error| {
            Error::new(ErrorKind::InvalidArgument, format!("cannot use '{}' as a cache: {error}", folder.display()))
        };
        make_private(&folder).map_err(refused)?;
        // The first entry that is written starts a sweep.
        let written = AtomicU64::new(most_bytes);
        // A place is a single word in an entry.
        let place = place.replace(char::is_whitespace, "%20");
        Ok(Cache { folder, place, most_bytes, written, sweeping: AtomicBool::new(false) })
    }

    pub(crate) fn name(&self, key: &Key, range: ByteRange) -> Name {
        let range = match range {
            ByteRange::Full => "full".to_string(),
            ByteRange::Span { offset, size_bytes } => format!("{offset}+{size_bytes}"),
            ByteRange::From { offset } => format!("{offset}+"),
            ByteRange::Suffix { size_bytes } => format!("-{size_bytes}"),
        };
        let text = format!("{} {range} {key}", self.place);
        // Entries name their place, so a collision is only a miss.
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = format!("{:016x}", hasher.finish());
        let file = self.folder.join(&hash[..2]).join(&hash[2..]);
        Name { text, file }
    }

    /// Returns the entry with this name; `None` if it does not exist or cannot be read.
    pub(crate) fn find(&self, name: &Name) -> Option<Entry> {
        let entry = Entry::open(&name.file).ok()?;
        (entry.place == name.text).then_some(entry)
    }

    /// Fills memory with the bytes of a cache entry. Returns false if they are damaged; then the entry is removed.
    pub(crate) fn fill(&self, name: &Name, mut entry: Entry, bytes: &mut [u8]) -> bool {
        let is_whole = entry.bytes.read_exact(bytes).is_ok() && entry.bytes.read(&mut [0]).is_ok_and(|more| more == 0);
        let is_sound = is_whole && crc32c::crc32c(bytes) == entry.checksum;
        if is_sound {
            // The file's time is the time of its last use. A failure to set it does not matter.
            let _ = entry.bytes.get_ref().set_modified(SystemTime::now());
        } else {
            let _ = fs::remove_file(&name.file);
        }
        is_sound
    }

    /// Keeps bytes in the cache, and removes old entries if the cache is above its limit. If the cache cannot be
    /// written, nothing is kept, without an error.
    pub(crate) fn keep(&self, name: &Name, tags: &Tags, bytes: &[u8]) {
        let size_bytes = bytes.len() as u64;
        if size_bytes > self.most_bytes / LARGEST_SHARE || tags.etag.contains(['\n', '\r']) {
            return;
        }
        if write(name, tags, bytes).is_err() {
            return;
        }
        let written = self.written.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes;
        if written >= self.most_bytes / SWEEP_SHARE && !self.sweeping.swap(true, Ordering::Acquire) {
            self.written.store(0, Ordering::Relaxed);
            // Another process may remove the same files.
            let _ = sweep(&self.folder, self.most_bytes - self.most_bytes / SWEEP_SHARE);
            self.sweeping.store(false, Ordering::Release);
        }
    }
}

/// A reader of the header lines of a cache file, up to the line with their checksum.
struct Lines {
    bytes: BufReader<File>,
    /// The bytes of all header lines that were read so far, of which the checksum is computed.
    head: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> io::Result<String> {
        let begin = self.head.len();
        self.bytes.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.head)?;
        let line = self.head[begin..].strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        line.map(String::from).ok_or_else(damaged)
    }

    fn number<N: FromStr>(&mut self) -> io::Result<N> {
        self.next()?.parse().map_err(|_| damaged())
    }
}

fn damaged() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

impl Entry {
    /// Opens a cache file and reads its header lines.
    fn open(path: &Path) -> io::Result<Entry> {
        // Opening a pipe would wait for its other end.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(damaged());
        }
        let mut lines = Lines { bytes: BufReader::new(File::open(path)?), head: Vec::new() };
        if lines.next()? != FORMAT {
            return Err(damaged());
        }
        let (place, etag, version) = (lines.next()?, lines.next()?, lines.next()?);
        let (size_bytes, checksum): (u64, u32) = (lines.number()?, lines.number()?);
        let expected = crc32c::crc32c(&lines.head);
        // The tag is sent in a request.
        let is_sound = lines.number::<u32>()? == expected && HeaderValue::from_str(&etag).is_ok();
        if !is_sound || (lines.head.len() as u64).checked_add(size_bytes) != Some(metadata.len()) {
            return Err(damaged());
        }
        let version = Some(version).filter(|version| !version.is_empty());
        Ok(Entry { place, etag, version, size_bytes, checksum, bytes: lines.bytes })
    }
}

fn write(name: &Name, tags: &Tags, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = name.file.parent() {
        make_private(folder)?;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = name.file.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
    let attempt = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        let (version, checksum) = (tags.version.as_deref().unwrap_or(""), crc32c::crc32c(bytes));
        let head = format!("{FORMAT}\n{}\n{}\n{version}\n{}\n{checksum}\n", name.text, tags.etag, bytes.len());
        file.write_all(head.as_bytes())?;
        writeln!(file, "{}", crc32c::crc32c(head.as_bytes()))?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&unfinished, &name.file)
    };
    attempt().inspect_err(|_| drop(fs::remove_file(&unfinished)))
}

/// Makes a folder that only this user can read, because reading its contents from the server may need credentials.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

struct Found {
    path: PathBuf,
    size_bytes: u64,
    used: SystemTime,
}

fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == UNFINISHED)
}

/// Lists the files of a cache: those in folders named with two hexadecimal digits.
fn files(folder: &Path) -> io::Result<Vec<Found>> {
    let is_ours = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut found = Vec::new();
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        listed => listed?,
    };
    for group in listed {
        let group = group?;
        if !group.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        for file in fs::read_dir(group.path())? {
            let file = file?;
            // Another process may have removed it.
            let Ok(meta) = file.metadata() else { continue };
            if meta.is_file() {
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push(Found { path: file.path(), size_bytes: meta.len(), used });
            }
        }
    }
    Ok(found)
}

/// Removes the least recently used files of a cache until the others have at most `target_bytes`.
fn sweep(folder: &Path, target_bytes: u64) -> io::Result<()> {
    let mut files = files(folder)?;
    files.sort_by_key(|file| file.used);
    let mut size_bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
    for file in files {
        let age = file.used.elapsed().unwrap_or_default();
        let is_abandoned = is_unfinished(&file.path) && age > ABANDONED;
        if size_bytes > target_bytes || is_abandoned {
            let _ = fs::remove_file(&file.path);
            size_bytes -= file.size_bytes;
        }
    }
    Ok(())
}

/// Runs `work`, which reads or writes a file, on lent memory in a thread that may wait for the disk.
///
/// # Errors
/// `StoreFailed` when the thread ended early.
pub(crate) async fn on_disk<T: Send + 'static>(
    mut lease: Box<dyn Lease>,
    work: impl FnOnce(&mut [u8]) -> T + Send + 'static,
) -> Result<(Box<dyn Lease>, T)> {
    let work = move || {
        let outcome = work(lease.bytes());
        (lease, outcome)
    };
    let lost = |_| Error::new(ErrorKind::StoreFailed, "a thread for the cache ended early");
    tokio::task::spawn_blocking(work).await.map_err(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(etag: &str) -> Tags {
        Tags { etag: etag.to_string(), version: None }
    }

    fn read(cache: &Cache, key: &str) -> Option<Vec<u8>> {
        let name = cache.name(key, ByteRange::Full);
        let entry = cache.find(&name)?;
        let mut bytes = vec![0; entry.size_bytes as usize];
        cache.fill(&name, entry, &mut bytes).then_some(bytes)
    }

    #[test]
    fn entries_are_kept_by_place_key_and_range_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("c"), "s3://b", 1 << 20).unwrap();
        let other = Cache::new(folder.path().join("c"), "https://h", 1 << 20).unwrap();
        cache.keep(&cache.name("k", ByteRange::Full), &tags("\"1\""), b"one");
        other.keep(&other.name("k", ByteRange::Full), &tags("\"2\""), b"other");
        assert_eq!(
            (read(&cache, "k").as_deref(), read(&other, "k").as_deref()),
            (Some(&b"one"[..]), Some(&b"other"[..]))
        );
        assert!(cache.find(&cache.name("k", ByteRange::Suffix { size_bytes: 3 })).is_none());
        assert_eq!(cache.find(&cache.name("k", ByteRange::Full)).unwrap().etag, "\"1\"");
        let info = cache_info(&folder.path().join("c")).unwrap();
        assert_eq!((info.entries, info.places.len(), info.places["s3://b"].0), (2, 2, 1));
        std::fs::write(folder.path().join("c/mine.txt"), "stays").unwrap();
        assert_eq!(clear_cache(&folder.path().join("c")).unwrap(), info.size_bytes);
        assert_eq!(cache_info(&folder.path().join("c")).unwrap(), CacheInfo::default());
        assert!(folder.path().join("c/mine.txt").exists());
    }

    #[test]
    fn damaged_entries_are_misses_and_go_away() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().into(), "s3://b", 1 << 20).unwrap();
        let name = cache.name("k", ByteRange::Full);
        let keep = || cache.keep(&name, &tags("\"1\""), &[7; 100]);
        keep();
        let whole = fs::read(&name.file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() - 50] ^= 1;
        let longer = [&whole[..], b"x"].concat();
        for damaged in [&whole[..whole.len() - 1], &whole[..20], b"", &flipped, &longer, &vec![0; whole.len()]] {
            fs::write(&name.file, damaged).unwrap();
            assert_eq!(read(&cache, "k"), None);
        }
        keep();
        assert_eq!(read(&cache, "k"), Some(vec![7; 100]));
    }

    /// Flips each bit of a cache file's header lines; the file must then not count as an entry of the cache.
    #[test]
    fn entries_whose_lines_are_damaged_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().into(), "s3://b", 1 << 20).unwrap();
        let name = cache.name("k", ByteRange::Full);
        cache.keep(&name, &Tags { etag: "\"1\"".into(), version: Some("17".into()) }, &[7; 100]);
        let whole = fs::read(&name.file).unwrap();
        for bit in 0..(whole.len() - 100) * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&name.file, flipped).unwrap();
            assert!(cache.find(&name).is_none(), "bit {bit}");
        }
        assert_eq!(cache_info(folder.path()).unwrap().entries, 0);
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_file_is_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().into(), "s3://b", 1 << 20).unwrap();
        let name = cache.name("k", ByteRange::Full);
        fs::create_dir_all(name.file.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&name.file).status().unwrap();
        assert!(made.success());
        assert!(cache.find(&name).is_none(), "a pipe without a writer");
        cache.keep(&name, &tags("\"1\""), &[7; 100]);
        assert_eq!(read(&cache, "k"), Some(vec![7; 100]), "it is replaced");
        fs::remove_file(&name.file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &name.file).unwrap();
        assert!(cache.find(&name).is_none(), "a device");
    }

    #[test]
    fn entries_used_longest_ago_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().into(), "s3://b", 100_000).unwrap();
        let hour = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
        for number in 0..30_u64 {
            let name = cache.name(&number.to_string(), ByteRange::Full);
            cache.keep(&name, &tags("\"1\""), &[1; 10_000]);
            if let Ok(file) = File::options().write(true).open(&name.file) {
                file.set_modified(hour(100 - number)).unwrap();
            }
        }
        let info = cache_info(folder.path()).unwrap();
        assert!((50_000..=100_000 + 100_000 / SWEEP_SHARE).contains(&info.size_bytes), "{info:?}");
        assert!(read(&cache, "29").is_some() && read(&cache, "0").is_none());
        cache.keep(&cache.name("large", ByteRange::Full), &tags("\"1\""), &[1; 20_000]);
        assert!(read(&cache, "large").is_none(), "one entry does not take the cache");
    }
}
