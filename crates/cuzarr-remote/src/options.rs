//! Options of stores, by the names that users of object_store, obstore and fsspec know.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cuzarr::{Error, ErrorKind, Result, nearest};
use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::RetryConfig;

use crate::cache::default_folder;
use crate::cloud::Cloud;
use crate::credentials::CredentialSource;

/// The time for a request, to the end of its answer, and for its connection.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The client's pause before a request is made again the first time. Later pauses are random, between this and [`LONGER`] times the
/// one before. After a refusal, the transport adds a pause that depends on the host.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGER: f64 = 3.0;

/// Options of remote stores: credentials, endpoints, timeouts. Values are text.
///
/// ```
/// use cuzarr_remote::StorageOptions;
/// let options = StorageOptions::from_iter([("anon", "true"), ("endpoint_url", "http://localhost:9000")]);
/// assert!(!format!("{options:?}").contains("localhost"), "values are not shown");
/// ```
///
/// A name may begin with a cloud: `s3.anon` is for S3 alone. The clouds are `s3`, `gs`, `az` and `http`. A name without one counts
/// more.
#[derive(Clone, Default)]
pub struct StorageOptions {
    values: BTreeMap<String, String>,
    credentials: Option<Arc<dyn CredentialSource>>,
}

/// The prefix of variables that are options.
const VARIABLE_PREFIX: &str = "CUZARR_STORAGE__";

impl StorageOptions {
    /// No options: credentials come from the environment.
    pub fn new() -> StorageOptions {
        StorageOptions::default()
    }

    /// The options that environment variables name: `CUZARR_STORAGE__TIMEOUT=5` is `timeout`, and `CUZARR_STORAGE__S3__ANON=true`
    /// is `s3.anon`. Variables of the clouds themselves, such as `AWS_PROFILE`, are read when a store is opened.
    pub fn from_environment() -> StorageOptions {
        StorageOptions::from_variables(std::env::vars_os().filter_map(|(name, value)| {
            // Others are not for us.
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    fn from_variables(variables: impl Iterator<Item = (String, String)>) -> StorageOptions {
        let option = |(name, value): (String, String)| {
            let name = name.strip_prefix(VARIABLE_PREFIX)?.to_ascii_lowercase().replace("__", ".");
            (!name.is_empty()).then_some((name, value))
        };
        StorageOptions::from_iter(variables.filter_map(option))
    }

    /// Sets an option; a later value replaces an earlier one. Names inside other options are joined by dots:
    /// `client_kwargs.endpoint_url`.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    /// Asks `source` for credentials, whenever those at hand are about to expire.
    pub fn set_credentials(&mut self, source: Arc<dyn CredentialSource>) {
        self.credentials = Some(source);
    }

    pub(crate) fn credentials(&self) -> Option<&Arc<dyn CredentialSource>> {
        self.credentials.as_ref()
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// These options without some of them.
    pub(crate) fn without(&self, is_left_out: impl Fn(&str) -> bool) -> StorageOptions {
        let mut rest = self.clone();
        rest.values.retain(|name, _| !is_left_out(name));
        rest
    }

    /// Whether an option's value is secret: it is never shown, and it never travels with a store.
    pub fn is_secret(name: &str) -> bool {
        const SECRETS: [&str; 8] =
            ["key", "secret", "token", "password", "sas", "authorization", "connection_string", "headers"];
        let name = name.to_ascii_lowercase();
        name != "max_keys" && SECRETS.iter().any(|secret| name.contains(secret))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let values = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        StorageOptions { values, credentials: None }
    }
}

/// The names alone.
impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// Names that fsspec's file systems take, and the names of the same options here. An empty name: the option tunes fsspec, and
/// does nothing here.
const S3_NAMES: &[(&str, &str)] = &[
    ("key", "access_key_id"),
    ("secret", "secret_access_key"),
    ("token", "session_token"),
    ("anon", "skip_signature"),
    ("endpoint_url", "endpoint"),
    ("requester_pays", "request_payer"),
    ("client_kwargs.endpoint_url", "endpoint"),
    ("client_kwargs.region_name", "region"),
    ("client_kwargs.aws_access_key_id", "access_key_id"),
    ("client_kwargs.aws_secret_access_key", "secret_access_key"),
    ("client_kwargs.aws_session_token", "session_token"),
    ("profile", "profile"),
    ("region", "region"),
    ("allow_http", "allow_http"),
    ("virtual_hosted_style_request", "virtual_hosted_style_request"),
];

const GCS_NAMES: &[(&str, &str)] = &[
    ("token", "token"),
    ("anon", "skip_signature"),
    ("endpoint_url", "base_url"),
    ("service_account_path", "service_account_path"),
    ("service_account_key", "service_account_key"),
    ("application_credentials", "application_credentials"),
    ("project", ""),
    ("consistency", ""),
];

const AZURE_NAMES: &[(&str, &str)] = &[
    ("account_name", "account_name"),
    ("account_key", "account_key"),
    ("sas_token", "sas_token"),
    ("connection_string", "connection_string"),
    ("tenant_id", "tenant_id"),
    ("client_id", "client_id"),
    ("client_secret", "client_secret"),
    ("anon", "skip_signature"),
    ("endpoint", "endpoint"),
    ("use_emulator", "use_emulator"),
];

const HTTP_NAMES: &[(&str, &str)] = &[
    ("headers", "headers"),
    ("whole_values", "whole_values"),
    ("allow_invalid_certificates", "allow_invalid_certificates"),
];

const COMMON_NAMES: &[(&str, &str)] = &[
    ("max_requests", "max_requests"),
    ("max_bytes", "max_bytes"),
    ("cache", "cache"),
    ("cache_max_bytes", "cache_max_bytes"),
    ("max_retries", "max_retries"),
    ("retry_timeout", "retry_timeout"),
    ("timeout", "timeout"),
    ("connect_timeout", "connect_timeout"),
    ("proxy_url", "proxy_url"),
    ("asynchronous", ""),
    ("skip_instance_cache", ""),
    ("use_listings_cache", ""),
    ("listings_expiry_time", ""),
    ("default_block_size", ""),
    ("default_cache_type", ""),
    ("default_fill_cache", ""),
    ("block_size", ""),
    ("cache_type", ""),
];

/// The names of the options of one cloud alone.
fn names(cloud: Cloud) -> &'static [(&'static str, &'static str)] {
    match cloud {
        Cloud::S3 => S3_NAMES,
        Cloud::Gcs => GCS_NAMES,
        Cloud::Azure => AZURE_NAMES,
        Cloud::Http => HTTP_NAMES,
    }
}

/// The options of a store on one cloud, by the names of object_store.
pub(crate) struct Settings {
    cloud: Cloud,
    values: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
}

impl Settings {
    /// Translates names.
    ///
    /// # Errors
    /// `InvalidArgument` when a header has no meaning.
    pub(crate) fn new(cloud: Cloud, options: &StorageOptions) -> Result<Settings> {
        let mut settings = Settings { cloud, values: BTreeMap::new(), headers: HeaderMap::new() };
        let scope = |name: &'_ str| name.split_once('.').and_then(|(scope, _)| Cloud::of_scope(scope));
        let scoped = options.values.iter().filter(|(name, _)| scope(name) == Some(cloud));
        let scoped = scoped.filter_map(|(name, value)| Some((name.split_once('.')?.1, value)));
        let plain = options.values.iter().filter(|(name, _)| scope(name).is_none());
        for (name, value) in scoped.chain(plain.map(|(name, value)| (name.as_str(), value))) {
            let header = name.strip_prefix("client_kwargs.").unwrap_or(name).strip_prefix("headers.");
            if let Some(header) = header.filter(|_| cloud == Cloud::Http) {
                settings.add_header(header, value)?;
                continue;
            }
            let known = names(cloud).iter().chain(COMMON_NAMES).find(|(known, _)| *known == name);
            match known.map_or(name, |(_, own)| own) {
                "" => {}
                own => drop(settings.values.insert(own.to_string(), with_unit(own, value))),
            }
        }
        Ok(settings)
    }

    fn add_header(&mut self, name: &str, value: &str) -> Result<()> {
        let invalid =
            || Error::new(ErrorKind::InvalidArgument, format!("storage option headers: '{name}' is no header"));
        let name_of = HeaderName::from_str(name).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        self.headers.insert(name_of, value);
        Ok(())
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_string(), value.into());
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| is_true(value))
    }

    /// Takes a number.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is another thing.
    pub(crate) fn take_number(&mut self, name: &str) -> Result<Option<usize>> {
        let number = |value: String| {
            let invalid = |_| {
                let message = format!("storage option '{name}': got '{value}', expected a number");
                Error::new(ErrorKind::InvalidArgument, message)
            };
            value.parse::<usize>().map_err(invalid)
        };
        self.take(name).map(number).transpose()
    }

    /// Takes a number of bytes, such as `64 MiB`.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is another thing.
    pub(crate) fn take_bytes(&mut self, name: &str) -> Result<Option<u64>> {
        let bytes = |value: String| {
            cuzarr::config::parse_bytes(&value).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, format!("storage option '{name}': {}", error.message()))
            })
        };
        self.take(name).map(bytes).transpose()
    }

    /// Takes the folder of the cache; `None` when there shall be none.
    ///
    /// # Errors
    /// `InvalidArgument` when the folder is not said, and there is no usual one.
    pub(crate) fn take_cache_folder(&mut self) -> Result<Option<PathBuf>> {
        match self.take("cache").as_deref() {
            None | Some("" | "false" | "0" | "off" | "no") => Ok(None),
            Some(yes) if is_true(yes) => default_folder().map(Some).ok_or_else(|| {
                let message = "storage option 'cache': there is no usual folder, because HOME is not set";
                Error::new(ErrorKind::InvalidArgument, message).with_hint("name a folder: cache=/path")
            }),
            Some(folder) => Ok(Some(PathBuf::from(folder))),
        }
    }

    /// Takes the options of retries.
    ///
    /// # Errors
    /// `InvalidArgument` when a value has no meaning.
    pub(crate) fn take_retries(&mut self) -> Result<RetryConfig> {
        let mut retries = RetryConfig::default();
        retries.backoff.init_backoff = FIRST_PAUSE;
        retries.backoff.base = LONGER;
        if let Some(most) = self.take_number("max_retries")? {
            retries.max_retries = most;
        }
        if let Some(deadline) = self.take_seconds("retry_timeout")? {
            retries.retry_timeout = deadline;
        }
        Ok(retries)
    }

    /// Takes a time in seconds.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is another thing.
    pub(crate) fn take_seconds(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let seconds = text.strip_suffix('s').and_then(|text| text.parse::<f64>().ok()).filter(|&number| number >= 0.0);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.map(Some).ok_or_else(|| {
            let message = format!("storage option '{name}': got '{text}', expected seconds");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }

    /// The time for a request. It stays among the options, because object_store's clients take it as well.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is no time in seconds.
    pub(crate) fn timeout(&mut self) -> Result<Duration> {
        let text = self.values.get("timeout").cloned();
        let timeout = self.take_seconds("timeout")?.unwrap_or(TIMEOUT);
        text.into_iter().for_each(|text| self.set("timeout", text));
        Ok(timeout)
    }

    /// Refuses options that nothing took.
    ///
    /// # Errors
    /// `InvalidArgument`; the error lists the known options.
    pub(crate) fn refuse_the_rest(&self) -> Result<()> {
        self.values.keys().next().map_or(Ok(()), |name| Err(self.unknown(name)))
    }

    /// The remaining options, as keys of a builder.
    ///
    /// # Errors
    /// `InvalidArgument` when a name is not known; the error lists those that are.
    pub(crate) fn keys<K: FromStr>(&self) -> Result<Vec<(K, String)>> {
        self.values.iter().map(|(name, value)| Ok((self.key(name)?, value.clone()))).collect()
    }

    fn key<K: FromStr>(&self, name: &str) -> Result<K> {
        name.parse().map_err(|_| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let message = format!("unknown storage option '{name}'");
        let known = names(self.cloud).iter().chain(COMMON_NAMES).filter(|(_, own)| !own.is_empty());
        let known: Vec<_> = known.map(|(name, _)| *name).collect();
        let near =
            nearest(name, known.iter().copied()).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
        let more = if self.cloud == Cloud::Http { "" } else { ", and the other names of object_store" };
        Error::new(ErrorKind::InvalidArgument, message)
            .with_hint(format!("{near}known options: {}{more}", known.join(", ")))
    }
}

pub(crate) fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&text.to_ascii_lowercase().as_str())
}

/// Times without a unit are seconds, as in Python.
fn with_unit(name: &str, value: &str) -> String {
    let is_time = name.ends_with("timeout") || name.ends_with("interval");
    if is_time && value.parse::<f64>().is_ok() { format!("{value}s") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use object_store::ClientConfigKey;
    use object_store::aws::AmazonS3ConfigKey;

    use super::*;

    #[test]
    fn names_of_fsspec_and_object_store_mean_the_same() {
        let options = [("key", "a"), ("client_kwargs.region_name", "eu"), ("aws_session_token", "t"), ("timeout", "5")];
        let settings = Settings::new(Cloud::S3, &StorageOptions::from_iter(options)).unwrap();
        let keys = settings.keys::<AmazonS3ConfigKey>().unwrap();
        let expected = [
            (AmazonS3ConfigKey::AccessKeyId, "a"),
            (AmazonS3ConfigKey::Token, "t"),
            (AmazonS3ConfigKey::Region, "eu"),
            (AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "5s"),
        ];
        assert_eq!(keys, expected.map(|(key, value)| (key, value.to_string())));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let options = StorageOptions::from_iter([("secrt", "hidden-value")]);
        let settings = Settings::new(Cloud::S3, &options).unwrap();
        let error = settings.keys::<AmazonS3ConfigKey>().unwrap_err();
        assert_eq!(error.message(), "unknown storage option 'secrt'");
        assert!(error.hint().unwrap().starts_with("did you mean 'secret'? known options: key, secret, token"));
        assert!(!format!("{error:?} {options:?}").contains("hidden-value"));
    }

    #[test]
    fn options_of_one_cloud_and_of_the_environment_count_less_than_plain_ones() {
        let variables =
            [("CUZARR_STORAGE__S3__REGION", "eu"), ("CUZARR_STORAGE__TIMEOUT", "5"), ("CUZARR_DEVICE", "cpu")];
        let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
        let mut options = StorageOptions::from_variables(variables.into_iter());
        let region = |options: &StorageOptions| Settings::new(Cloud::S3, options).unwrap().take("region");
        assert_eq!(region(&options).as_deref(), Some("eu"));
        options.set("region", "us");
        assert_eq!(region(&options).as_deref(), Some("us"));
        let mut elsewhere = Settings::new(Cloud::Gcs, &StorageOptions::from_iter([("s3.anon", "true")])).unwrap();
        assert_eq!((elsewhere.take("s3.anon"), elsewhere.take("anon")), (None, None));
    }

    #[test]
    fn the_deadline_is_in_seconds() {
        let retries = |text: &str| {
            Settings::new(Cloud::Http, &StorageOptions::from_iter([("retry_timeout", text)])).unwrap().take_retries()
        };
        assert_eq!(retries("2.5").unwrap().retry_timeout, Duration::from_millis(2500));
        assert!(retries("soon").is_err());
    }
}
