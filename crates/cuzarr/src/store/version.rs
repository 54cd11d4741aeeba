//! Versions of values, and values that stay open while a caller reads from them repeatedly.
//!
//! Values stay open for one call, not for as long as an array is open. A later call must check for a newer file anyway,
//! and the check takes half as long as opening the file (3 of 6 microseconds for a local file). Also, an open file
//! keeps its disk space after it was deleted.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::Key;

/// The coarsest clock of any file system: two changes of a file within this time may have equal times. A file that
/// changes twice within one tick may look unchanged.
const TICK: Duration = Duration::from_secs(2);

/// The version of a stored value: it tells whether a value is still the one that was read. It differs if the value was
/// changed or replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(VersionKind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum VersionKind {
    /// The version of a file: its file system, inode and size, and when its bytes, name or attributes changed.
    File {
        identity: [u64; 4],
        changed_ns: u64,
    },
    Number(u64),
    ETag(Tag),
    Hints(Hints),
    /// The version of a value that never changes, identified by this name.
    Permanent(Arc<str>),
}

/// Properties of a value that may show a change, from a server without strong entity tags. A difference proves a
/// change; equality proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hints {
    weak_tag: Option<Arc<str>>,
    modified_seconds: Option<u64>,
    size_bytes: u64,
}

impl Hints {
    /// Whether a value with these properties may be the same as the value with the properties `other`.
    fn allow(&self, other: &Hints) -> bool {
        let tags = self.weak_tag.as_deref().zip(other.weak_tag.as_deref());
        let times = self.modified_seconds.zip(other.modified_seconds);
        tags.is_none_or(|(one, other)| opaque(one) == opaque(other))
            && times.is_none_or(|(one, other)| one == other)
            && self.size_bytes == other.size_bytes
    }
}

/// The text inside a weak or strong entity tag, without quotes (RFC 9110, section 8.8.3).
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

/// The version of a value on a server, by which a conditional write finds out whether the value has changed: an entity
/// tag or a number. Two versions are equal if `compared` is equal.
#[derive(Clone, Debug)]
struct Tag {
    /// The text that the server compares for conditions: the entity tag, or a number instead of it.
    compared: Arc<str>,
    /// The entity tag, if the server compares something else for conditions.
    entity: Option<Arc<str>>,
    modified_seconds: Option<u64>,
}

impl PartialEq for Tag {
    fn eq(&self, other: &Tag) -> bool {
        self.compared == other.compared
    }
}

impl Eq for Tag {}

impl Hash for Tag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared.hash(state);
    }
}

impl Version {
    /// The version of a file: its file system and inode, its size, when its bytes changed, and when its name or
    /// attributes changed. Times are in nanoseconds since 1970.
    pub fn of_file(device: u64, inode: u64, size_bytes: u64, modified_ns: u64, changed_ns: u64) -> Version {
        let changed_ns = changed_ns.max(modified_ns);
        Version(VersionKind::File { identity: [device, inode, size_bytes, modified_ns], changed_ns })
    }

    /// Makes the version of a value that a store numbers, for example in memory. No other value of this process may
    /// have the number.
    pub fn numbered(number: u64) -> Version {
        Version(VersionKind::Number(number))
    }

    /// The version of a value that never changes, such as a chunk of a snapshot. No value with other bytes has the
    /// name.
    pub fn permanent(name: &str) -> Version {
        Version(VersionKind::Permanent(name.into()))
    }

    /// Whether this is the version of a value that never changes.
    pub fn is_permanent(&self) -> bool {
        matches!(self.0, VersionKind::Permanent(_))
    }

    /// The version of a value with this entity tag. `None` for a weak tag (`W/"..."`): values with the same weak tag may differ
    /// in their bytes (RFC 9110, section 8.8.1).
    pub fn of_etag(tag: &str) -> Option<Version> {
        let tag = tag.trim();
        let tag = Tag { compared: tag.into(), entity: None, modified_seconds: None };
        (!tag.compared.is_empty() && !tag.compared.starts_with("W/")).then_some(Version(VersionKind::ETag(tag)))
    }

    /// The version of a value from a server without strong entity tags: a weak tag, the time of the last change in
    /// seconds since 1970, and the size. If two such versions differ, the value has changed. If they are equal, it may
    /// still have changed. So nothing is cached by them, and no conditional write uses them.
    pub fn of_hints(weak_tag: Option<&str>, modified_seconds: Option<u64>, size_bytes: u64) -> Version {
        Version(VersionKind::Hints(Hints { weak_tag: weak_tag.map(Into::into), modified_seconds, size_bytes }))
    }

    /// Adds the entity tag to the version of a value whose server compares something else in conditions. A version of a
    /// file stays as it is.
    #[must_use]
    pub fn with_entity_tag(mut self, entity_tag: &str) -> Version {
        if let VersionKind::ETag(tag) = &mut self.0 {
            tag.entity = Some(entity_tag.into());
        }
        self
    }

    /// Adds to the version the time at which the value changed, according to the server, in seconds since 1970. A
    /// version of a file stays as it is.
    #[must_use]
    pub fn with_modified_seconds(mut self, seconds: u64) -> Version {
        if let VersionKind::ETag(tag) = &mut self.0 {
            tag.modified_seconds = Some(seconds);
        }
        self
    }

    /// The text to send in conditions such as `If-Match`: the entity tag, or what the server compares instead.
    pub fn etag(&self) -> Option<&str> {
        match &self.0 {
            VersionKind::ETag(tag) => Some(&tag.compared),
            _ => None,
        }
    }

    /// Whether a value of this version may be the one that a reference to a file with the entity tag `expected` means.
    /// Weak tags are compared like strong ones.
    pub fn allows_entity_tag(&self, expected: &str) -> bool {
        self.entity_tag().is_none_or(|found| opaque(found) == opaque(expected))
    }

    /// The entity tag that the server gave with the value.
    pub fn entity_tag(&self) -> Option<&str> {
        match &self.0 {
            VersionKind::ETag(tag) => Some(tag.entity.as_ref().unwrap_or(&tag.compared)),
            VersionKind::Hints(hints) => hints.weak_tag.as_deref(),
            _ => None,
        }
    }

    /// The time at which the value changed, in whole seconds since 1970; `None` if it is not known.
    pub fn modified_seconds(&self) -> Option<u64> {
        match &self.0 {
            VersionKind::File { identity: [.., modified_ns], .. } => Some(modified_ns / 1_000_000_000),
            VersionKind::ETag(tag) => tag.modified_seconds,
            VersionKind::Hints(hints) => hints.modified_seconds,
            VersionKind::Number(_) | VersionKind::Permanent(_) => None,
        }
    }

    /// Whether values of both versions have the same bytes. Names and attributes may differ. For versions from
    /// [`Version::of_hints`], true only means that nothing proves a difference.
    pub fn has_same_bytes(&self, other: &Version) -> bool {
        match (&self.0, &other.0) {
            (VersionKind::File { identity, .. }, VersionKind::File { identity: other, .. }) => identity == other,
            (VersionKind::Hints(one), VersionKind::Hints(other)) => one.allow(other),
            // The server gave a strong tag with only one of the answers.
            (VersionKind::Hints(hints), VersionKind::ETag(tag))
            | (VersionKind::ETag(tag), VersionKind::Hints(hints)) => {
                let tagged = Hints { weak_tag: Some(Arc::clone(&tag.compared)), ..hints.clone() };
                hints.allow(&Hints { modified_seconds: tag.modified_seconds, ..tagged })
            }
            (one, other) => one == other,
        }
    }

    /// Whether every later change of the value is certain to give it a version that differs from this one. While the
    /// last change is recent, another one may fall within the same tick of the clock, and get the same version.
    pub fn is_settled(&self) -> bool {
        let changed_ns = match self.0 {
            VersionKind::File { changed_ns, .. } => changed_ns,
            VersionKind::Hints(_) => return false,
            VersionKind::Number(_) | VersionKind::ETag(_) | VersionKind::Permanent(_) => return true,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.checked_sub(Duration::from_nanos(changed_ns)).is_some_and(|age| age > TICK)
    }
}

/// A limit on the number of values that all callers with this limit together keep open. They never keep more than a
/// quarter of the files that the system lets this process open (often about a thousand), so that threads can open
/// others.
#[derive(Debug)]
pub struct OpenLimit {
    most: usize,
    now: AtomicUsize,
}

impl OpenLimit {
    /// Makes a limit of `most` open values.
    pub fn new(most: usize) -> OpenLimit {
        OpenLimit { most, now: AtomicUsize::new(0) }
    }

    fn take(&self) -> bool {
        let most = self.most.min(open_files_allowed().map_or(usize::MAX, |allowed| allowed / 4));
        let more = |now| (now < most).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.now.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Number of files that the system currently lets this process open; `None` if there is no limit.
fn open_files_allowed() -> Option<usize> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok())
    }
    #[cfg(not(unix))]
    None
}

/// Values that a caller keeps open between its batches. So the caller opens each value once, and reads only one version
/// of it. The values used last stay open, as many as the limit allows.
pub struct OpenValues {
    limit: Arc<OpenLimit>,
    state: Mutex<State>,
}

impl Drop for OpenValues {
    fn drop(&mut self) {
        self.limit.give_back(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).values.len());
    }
}

#[derive(Default)]
struct State {
    values: HashMap<String, OpenValue>,
    uses: u64,
}

struct OpenValue {
    value: Arc<dyn Any + Send + Sync>,
    last_use: u64,
}

impl OpenValues {
    /// Makes an empty set of open values.
    pub fn new(limit: Arc<OpenLimit>) -> OpenValues {
        OpenValues { limit, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open value of a key; `None` if it is not open, or not of type `T`.
    pub fn get<T: Any + Send + Sync>(&self, key: &Key) -> Option<Arc<T>> {
        self.state().get(key)
    }

    /// Keeps a value open for later batches, if the limit allows it. Returns the value to use: another thread may have
    /// opened the same key meanwhile.
    pub fn keep<T: Any + Send + Sync>(&self, key: &Key, value: Arc<T>) -> Arc<T> {
        let mut state = self.state();
        if let Some(earlier) = state.get(key) {
            return earlier;
        }
        let mut closed = None;
        if !self.limit.take() {
            let oldest = state.values.iter().min_by_key(|(_, kept)| kept.last_use).map(|(key, _)| key.clone());
            // Other callers have used up the limit.
            let Some(oldest) = oldest else { return value };
            closed = state.values.remove(&oldest);
        }
        let kept = OpenValue { value: Arc::clone(&value) as Arc<_>, last_use: state.uses };
        let replaced = state.values.insert(key.to_string(), kept);
        if replaced.is_some() {
            self.limit.give_back(1);
        }
        drop(state);
        // Closing may be slow, so it happens after the lock is released.
        drop((closed, replaced));
        value
    }
}

impl State {
    fn get<T: Any + Send + Sync>(&mut self, key: &Key) -> Option<Arc<T>> {
        self.uses += 1;
        let kept = self.values.get_mut(key)?;
        kept.last_use = self.uses;
        Arc::clone(&kept.value).downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_that_were_used_last_stay_open() {
        let limit = Arc::new(OpenLimit::new(2));
        let open = OpenValues::new(Arc::clone(&limit));
        let (first, second) = (open.keep("a", Arc::new(1)), open.keep("b", Arc::new(2)));
        assert!(Arc::ptr_eq(&open.keep("a", Arc::new(3)), &first), "an open value stays");
        open.keep("c", Arc::new(4));
        assert!(open.get::<i32>("b").is_none() && Arc::strong_count(&second) == 1);
        assert_eq!(open.get::<i32>("a").as_deref(), Some(&1));
        assert!(open.get::<u8>("a").is_none(), "a value of another type");
        let other = OpenValues::new(limit);
        other.keep("d", Arc::new(5));
        assert!(other.get::<i32>("d").is_none(), "all that may be open is another's");
        drop(open);
        other.keep("d", Arc::new(5));
        assert_eq!(other.get::<i32>("d").as_deref(), Some(&5));
    }

    #[test]
    fn versions_tell_files_apart() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let old = now - 60_000_000_000;
        let version = Version::of_file(1, 2, 3, old, old);
        assert!(version.is_settled() && version.has_same_bytes(&version));
        let renamed = Version::of_file(1, 2, 3, old, old + 5);
        assert!(version != renamed && version.has_same_bytes(&renamed));
        assert!(!Version::of_file(1, 2, 3, old, now).is_settled(), "it may change again within the tick");
        assert!(!Version::of_file(1, 2, 3, old, now + 60_000_000_000).is_settled(), "a clock that is ahead");
        for other in [Version::of_file(1, 3, 3, old, old), Version::of_file(1, 2, 3, old + 1, old)] {
            assert!(!version.has_same_bytes(&other));
        }
        let tag = Version::of_etag("\"abc\"").unwrap();
        assert!(tag.is_settled() && tag.etag() == Some("\"abc\"") && tag.has_same_bytes(&tag.clone()));
        let told = tag.clone().with_entity_tag("entity").with_modified_seconds(5);
        assert!(told == tag && told.etag() == tag.etag() && tag.entity_tag() == tag.etag());
        assert_eq!(
            (told.entity_tag(), told.modified_seconds(), tag.modified_seconds()),
            (Some("entity"), Some(5), None)
        );
        assert!(Version::of_etag("W/\"abc\"").is_none() && version.etag().is_none() && tag != Version::numbered(0));
        assert!(Version::numbered(7).is_settled() && Version::numbered(7) != Version::numbered(8));
    }

    #[test]
    fn hints_prove_changes_and_nothing_else() {
        let hints = Version::of_hints(Some("W/\"a\""), Some(5), 10);
        assert!(hints.has_same_bytes(&hints) && !hints.is_settled() && hints.etag().is_none());
        for other in [
            Version::of_hints(Some("W/\"b\""), Some(5), 10),
            Version::of_hints(Some("W/\"a\""), Some(6), 10),
            Version::of_hints(None, None, 11),
            Version::of_etag("\"b\"").unwrap(),
            Version::numbered(1),
        ] {
            assert!(!hints.has_same_bytes(&other) && !other.has_same_bytes(&hints), "{other:?}");
        }
        for other in [Version::of_hints(None, Some(5), 10), Version::of_etag("\"a\"").unwrap()] {
            assert!(hints.has_same_bytes(&other) && other.has_same_bytes(&hints), "{other:?}");
        }
        assert!(hints.allows_entity_tag("\"a\"") && hints.allows_entity_tag("a") && !hints.allows_entity_tag("\"b\""));
        assert_eq!(hints.modified_seconds(), Some(5));
    }
}
