//! The targets of references: which URLs a table may name, and how they are opened.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuzarr::internal::printable;
use cuzarr::store::{LocalOptions, LocalStore, Registry, Store, Url, validate_key};
use cuzarr::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;

use crate::open::with_clouds;
use crate::options::StorageOptions;

/// Longest URL, in bytes, that a table of references may name; a longer one is refused. Web servers refuse longer ones.
pub(super) const LONGEST_URL: usize = 16 << 10;

/// URL schemes whose host is a bucket or container. The first segment of their URLs is the bucket, and keys are not
/// percent-encoded.
const BUCKETS: [&str; 3] = ["s3", "gs", "az"];

/// Rules for the URLs that a table of references may name.
///
/// A prefix ends at a `/` or at the end of the URL: `s3://bucket/a` allows `s3://bucket/a/b`, but not `s3://bucket/ab`.
///
/// ```
/// use cuzarr_remote::reference::Rules;
/// let rules = Rules::new().allow("s3://bucket/files").unwrap();
/// assert!(rules.check("s3://bucket/files/a.nc").is_ok());
/// let error = rules.check("s3://other/a.nc").unwrap_err();
/// assert!(error.hint().unwrap().contains("allow=s3://other/"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The folder or bucket that contains the table of references; its files are allowed.
    own: Option<String>,
    /// URL prefixes that the user allowed, without a slash at the end.
    allowed: Vec<String>,
    /// The protocol, such as `s3`, for locations that do not name one.
    protocol: Option<String>,
}

impl Rules {
    /// Makes rules that allow no URL.
    pub fn new() -> Rules {
        Rules::default()
    }

    /// Allows URLs in the folder or bucket that contains the table of references. `url` is the table's own URL.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL.
    pub fn with_table(mut self, url: &str) -> Result<Rules> {
        let url = normalized(url)?;
        let (scheme, path) = parts(&url);
        let own = match path.split_once('/') {
            Some((bucket, _)) if BUCKETS.contains(&scheme) => format!("{scheme}://{bucket}"),
            _ => url.rsplit_once('/').map_or(url.as_str(), |(folder, _)| folder).to_string(),
        };
        self.own = Some(own);
        Ok(self)
    }

    /// Allows all URLs below a prefix: `s3://bucket/folder`, `/data/netcdf`.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid prefix.
    pub fn allow(mut self, prefix: &str) -> Result<Rules> {
        let prefix = match prefix.strip_suffix("://") {
            Some(scheme) => format!("{}:/", canonical_scheme(scheme)),
            None => normalized(prefix)?.trim_end_matches('/').to_string(),
        };
        self.allowed.push(prefix);
        Ok(self)
    }

    /// Allows every location of a protocol, such as `s3`. Locations without a protocol get this one.
    #[must_use]
    pub fn with_protocol(mut self, protocol: &str) -> Rules {
        let protocol = canonical_scheme(protocol);
        self.allowed.push(format!("{protocol}:/"));
        if protocol == "https" {
            self.allowed.push("http:/".into());
        }
        self.protocol = Some(protocol);
        self
    }

    /// Whether the rules allow URLs on a server, by a protocol or a prefix.
    pub(super) fn is_of_a_server(&self) -> bool {
        let schemes = self.allowed.iter().filter_map(|prefix| prefix.split(':').next());
        self.protocol.as_deref().into_iter().chain(schemes).any(|scheme| scheme != "file" && scheme != "memory")
    }

    /// Returns the URL that a location in a table of references stands for, normalized and with a scheme.
    fn url_of(&self, location: &str) -> Result<String> {
        if location.contains("://") || location.starts_with('/') {
            return normalized(location);
        }
        match &self.protocol {
            Some(protocol) => normalized(&format!("{protocol}://{location}")),
            None => Err(refused(location, "is a relative path").with_hint(
                "set the storage option remote_protocol to the protocol of the table's files, such as s3 or file",
            )),
        }
    }

    /// Checks that the rules let a table of references name this URL.
    ///
    /// # Errors
    /// `InvalidArgument`, with the prefix that would allow it.
    pub fn check(&self, url: &str) -> Result<()> {
        self.allowing(&self.url_of(url)?).map(|_| ())
    }

    /// Returns the URL prefix that the user must allow before a table of references may name this URL. `None` if the
    /// URL is already allowed, or can never be.
    pub fn needed(&self, url: &str) -> Option<String> {
        let url = self.url_of(url).ok()?;
        self.allowing(&url).is_err().then(|| prefix_of(&url))
    }

    /// Returns the allowed prefix that this URL lies below.
    fn allowing(&self, url: &str) -> Result<&str> {
        let begins = |prefix: &&String| {
            url.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(prefix) = self.own.iter().chain(&self.allowed).find(begins) {
            return Ok(prefix);
        }
        let prefix = prefix_of(url);
        let outside = match &self.own {
            Some(own) => format!("lies outside of the table's own place, '{own}/'"),
            None => "is not allowed".to_string(),
        };
        Err(refused(url, &outside).with_hint(format!("if you trust the table, set the storage option allow={prefix}")))
    }
}

/// Returns the prefix that a user would allow for a normalized URL: the folder of a file, or a bucket or host. The
/// option `allow` is a list separated by spaces and commas. So a folder whose name contains a space or comma is allowed
/// by a folder above it.
fn prefix_of(url: &str) -> String {
    let (scheme, path) = parts(url);
    if scheme != "file" {
        return format!("{scheme}://{}/", path.split('/').next().unwrap_or(""));
    }
    let end = url.find([',', ' ', '\n']).unwrap_or(url.len());
    format!("{}/", url[..end].rsplit_once('/').map_or("file://", |(folder, _)| folder))
}

fn refused(location: &str, reason: &str) -> Error {
    let message = format!("the reference to '{}' {reason}", printable(&without_query(location)));
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Returns a URL without its query, which may contain a signature.
fn without_query(url: &str) -> String {
    let end = url.find('?').unwrap_or(url.len());
    url[..end].chars().take(300).collect()
}

fn canonical_scheme(scheme: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "s3a" => "s3",
        "gcs" => "gs",
        "abfs" | "abfss" => "az",
        "local" => "file",
        other => other,
    }
    .to_string()
}

/// Splits a normalized URL into its scheme and the rest.
fn parts(url: &str) -> (&str, &str) {
    url.split_once("://").unwrap_or(("file", url))
}

/// Normalizes a URL: scheme and host in lower case, and file paths absolute with `file://`.
fn normalized(location: &str) -> Result<String> {
    if location.len() > LONGEST_URL {
        return Err(refused(location, &format!("has {} characters, expected at most {LONGEST_URL}", location.len())));
    }
    if location.bytes().any(|byte| byte.is_ascii_control() || byte == b'\\') {
        return Err(refused(location, "has a control character or a backslash"));
    }
    let (scheme, path) = location.split_once("://").unwrap_or(("file", location));
    let scheme = canonical_scheme(scheme);
    if location.contains("::") || !matches!(scheme.as_str(), "file" | "s3" | "gs" | "az" | "http" | "https" | "memory")
    {
        return Err(refused(location, "is of a scheme that references cannot have")
            .with_hint("use file, s3, gs, az, http, https or memory"));
    }
    let place = path.split(['?', '#']).next().unwrap_or(path);
    let is_web = scheme.starts_with("http");
    let decoded = if is_web { percent_decode_str(place).decode_utf8_lossy() } else { path.into() };
    if decoded.split('/').any(|segment| segment == ".." || segment == ".") {
        return Err(refused(location, "has a segment '.' or '..'"));
    }
    if is_web && place.split('/').next().unwrap_or("").contains('@') {
        return Err(refused("", "names a user; credentials do not belong into a URL"));
    }
    if scheme == "file" {
        let path = path.strip_prefix("localhost/").map_or(path.to_string(), |path| format!("/{path}"));
        let absolute = std::path::absolute(Path::new(&path)).ok();
        let absolute = absolute.as_deref().and_then(Path::to_str).ok_or_else(|| refused(location, "is no path"))?;
        return Ok(format!("file://{absolute}"));
    }
    let (host, rest) = path.split_once('/').map_or((path, None), |(host, rest)| (host, Some(rest)));
    let host = if is_web { host.to_ascii_lowercase() } else { host.to_string() };
    Ok(rest.map_or(format!("{scheme}://{host}"), |rest| format!("{scheme}://{host}/{rest}")))
}

/// The location of a file, as a table of references names it. It is checked and opened at the first read.
pub(crate) struct Location {
    text: Box<str>,
    opened: OnceLock<Target>,
}

/// A location that was opened: the store that contains the file, and the file's key there.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) key: Arc<str>,
}

impl Location {
    pub(crate) fn new(text: &str) -> Location {
        Location { text: text.into(), opened: OnceLock::new() }
    }

    /// Whether the location is on a server, going by its URL scheme.
    pub(super) fn is_on_a_server(&self) -> bool {
        let scheme = self.text.split_once("://").map(|(scheme, _)| canonical_scheme(scheme));
        scheme.is_some_and(|scheme| scheme != "file" && scheme != "memory")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&without_query(&self.text)))
    }
}

/// The files that a table of references names, which are opened on request, if the rules allow them.
pub(crate) struct Files {
    registry: Registry,
    rules: Rules,
    /// The host of the server on which the table of references itself lies. Only this host gets headers that were given
    /// without naming their target.
    own_host: Option<String>,
    options: FileOptions,
    opened: Mutex<HashMap<String, Arc<dyn Store>>>,
}

/// Storage options for the files that a table of references names.
pub(crate) struct FileOptions {
    /// Options that apply to both the table of references and its files.
    pub(crate) plain: StorageOptions,
    /// Options that apply to the files only.
    pub(crate) remote: StorageOptions,
}

impl Files {
    pub(crate) fn new(registry: &Registry, rules: Rules, options: FileOptions) -> Files {
        let own_host = rules.own.as_deref().map(|own| {
            let (scheme, path) = parts(own);
            format!("{scheme}://{}", path.split('/').next().unwrap_or(""))
        });
        Files { registry: registry.clone(), rules, own_host, options, opened: Mutex::default() }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the store and the key at a location, and opens the store if that was not done before.
    ///
    /// # Errors
    /// `InvalidArgument` when the table may not name the location; those of opening its store.
    pub(crate) fn target(&self, location: &Location) -> Result<Target> {
        if let Some(target) = location.opened.get() {
            return Ok(target.clone());
        }
        let url = self.rules.url_of(&location.text)?;
        let prefix = self.rules.allowing(&url)?;
        let (root, key) = split(&url, prefix)?;
        validate_key(&key).map_err(|_| refused(&url, "names no file"))?;
        let target = Target { store: self.open(&root)?, key: key.into() };
        Ok(location.opened.get_or_init(|| target).clone())
    }

    fn open(&self, root: &str) -> Result<Arc<dyn Store>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(root) {
            return Ok(Arc::clone(store));
        }
        let store: Arc<dyn Store> = match root.strip_prefix("file://") {
            // A link that leads out of the allowed folder is an error.
            Some(folder) => {
                let folder = if folder.is_empty() { "/" } else { folder };
                let options = LocalOptions::default().with_read_only(true);
                Arc::new(LocalStore::with_options(Path::new(folder), options)?)
            }
            None => self.registry_for(root).open_url(&Url::parse(root)?)?,
        };
        opened.insert(root.to_string(), Arc::clone(&store));
        Ok(store)
    }

    /// Returns the registry that opens stores on the server at `root`. Headers and a query may be credentials. So web
    /// servers other than the table's own only get those that were given for the files.
    fn registry_for(&self, root: &str) -> Registry {
        let is_foreign = root.starts_with("http") && self.own_host.as_deref() != Some(&without_query(root));
        let is_credential = |name: &str| {
            let name = name.strip_prefix("http.").unwrap_or(name);
            name == "query" || name.strip_prefix("client_kwargs.").unwrap_or(name).starts_with("headers")
        };
        let mut options = self.options.plain.without(|name| is_foreign && is_credential(name));
        self.options.remote.pairs().for_each(|(name, value)| options.set(name, value));
        let rules = self.rules.clone();
        options.set_redirects(Arc::new(move |address| rules.check(address)));
        with_clouds(&self.registry, &Arc::new(options))
    }
}

/// Splits a URL into the URL of the store that contains it, and its key there. `prefix` is the prefix that allows the
/// URL.
fn split(url: &str, prefix: &str) -> Result<(String, String)> {
    let (scheme, path) = parts(url);
    match scheme {
        "file" => {
            let folder =
                if prefix == url { url.rsplit_once('/').map_or("file://", |(folder, _)| folder) } else { prefix };
            let folder = if folder.starts_with("file://") { folder } else { "file://" };
            Ok((folder.to_string(), url[folder.len()..].trim_start_matches('/').to_string()))
        }
        "http" | "https" => {
            let (place, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
            let (host, key) = place.split_once('/').unwrap_or((place, ""));
            let query = query.split('#').next().unwrap_or("");
            let key = percent_decode_str(key).decode_utf8().map_err(|_| refused(url, "is not UTF-8"))?;
            Ok((format!("{scheme}://{host}{query}"), key.into_owned()))
        }
        _ => {
            let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
            Ok((format!("{scheme}://{bucket}"), key.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(rules: &Rules, url: &str) -> String {
        rules.check(url).unwrap_err().hint().unwrap_or("").to_string()
    }

    #[test]
    fn a_table_names_its_own_place_alone() {
        let bucket = Rules::new().with_table("s3://bucket/tables/a.json").unwrap();
        assert!(bucket.check("s3://bucket/files/a.nc").is_ok() && bucket.check("S3A://bucket/x").is_ok());
        assert!(hint(&bucket, "s3://bucket-evil/a.nc").contains("allow=s3://bucket-evil/"));
        assert!(hint(&bucket, "/etc/passwd").contains("allow=file:///etc/"));
        assert!(hint(&bucket, "http://169.254.169.254/latest").contains("allow=http://169.254.169.254/"));
        let folder = Rules::new().with_table("/data/tables/a.json").unwrap();
        assert!(folder.check("/data/tables/a.nc").is_ok() && folder.check("file:///data/tables/b/a.nc").is_ok());
        assert!(hint(&folder, "/data/a.nc").contains("allow=file:///data/"));
        assert_eq!(folder.needed("/data/my files/a.nc").as_deref(), Some("file:///data/"));
        assert_eq!(folder.needed("/data/tables/b/a.nc"), None);
        let web = Rules::new().with_table("https://Host/data/a.json").unwrap();
        assert!(web.check("https://host/data/a.nc").is_ok());
        assert!(web.check("https://host/private/a.nc").is_err() && web.check("http://host/data/a.nc").is_err());
    }

    #[test]
    fn prefixes_and_protocols_allow_more() {
        let rules = Rules::new().allow("s3://bucket/a/").unwrap().allow("/data").unwrap().allow("gs://").unwrap();
        assert!(rules.check("s3://bucket/a/b").is_ok() && rules.check("s3://bucket/ab").is_err());
        assert!(rules.check("/data/x").is_ok() && rules.check("/database/x").is_err());
        assert!(rules.check("gcs://any/x").is_ok());
        let protocol = Rules::new().with_protocol("s3");
        assert!(protocol.check("bucket/a.nc").is_ok() && protocol.check("s3://b/a").is_ok());
        assert!(protocol.check("/etc/passwd").is_err());
        assert!(hint(&Rules::new(), "a.nc").contains("remote_protocol"));
    }

    #[test]
    fn hostile_locations_are_refused() {
        let rules = Rules::new().allow("/data").unwrap().allow("https://host/data").unwrap();
        for url in [
            "/data/../etc/passwd",
            "file:///data/./x",
            "https://host/data/../x",
            "https://host/data/%2e%2e/x",
            "https://host/data/a%2F..%2F..%2Fx",
            "https://user:pw@host/data/x",
            "https://host/data\\@evil/x",
            "https://host/da\tta/x",
            "reference:///data/a.json",
            "zip::file:///data/a.zip",
            "icechunk:///data/repo",
            "ftp://host/x",
        ] {
            assert_eq!(rules.check(url).unwrap_err().kind(), ErrorKind::InvalidArgument, "{url}");
        }
        assert!(rules.check(&format!("/data/{}", "a".repeat(20_000))).is_err());
        let error = rules.check("https://user:SECRET@host/x?sig=SECRET").unwrap_err();
        assert!(!format!("{error:?}").contains("SECRET"));
    }

    #[test]
    fn urls_are_split_into_stores_and_keys() {
        let split = |url: &str, prefix: &str| split(&normalized(url).unwrap(), prefix).unwrap();
        let pair = |root: &str, key: &str| (root.to_string(), key.to_string());
        assert_eq!(split("s3://bucket/a/b.nc", "s3://bucket"), pair("s3://bucket", "a/b.nc"));
        assert_eq!(split("/data/a/b.nc", "file:///data"), pair("file:///data", "a/b.nc"));
        assert_eq!(split("/data/a/b.nc", "file:///data/a/b.nc"), pair("file:///data/a", "b.nc"));
        assert_eq!(split("/data/a", "file:/"), pair("file://", "data/a"));
        assert_eq!(split("https://H/a%20b?sig=1#x", "https://h"), pair("https://h?sig=1", "a b"));
    }
}
