//! Options of stores, by the names that users of object_store, obstore and fsspec know.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use cuzarr::{Error, ErrorKind, Result, nearest};
use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::RetryConfig;

use crate::client::Cloud;

/// Requests in flight to a host, unless `max_requests` says another number. With parts of 8 MiB at most, this is also a bound of
/// 512 MiB on bytes in flight.
pub(crate) const MOST_REQUESTS: usize = 64;

/// Options of remote stores: credentials, endpoints, timeouts. Values are text.
///
/// ```
/// use cuzarr_remote::StorageOptions;
/// let options = StorageOptions::from_iter([("anon", "true"), ("endpoint_url", "http://localhost:9000")]);
/// assert!(!format!("{options:?}").contains("localhost"), "values are not shown");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StorageOptions(BTreeMap<String, String>);

impl StorageOptions {
    /// No options: credentials come from the environment.
    pub fn new() -> StorageOptions {
        StorageOptions::default()
    }

    /// Sets an option; a later value replaces an earlier one. Names inside other options are joined by dots:
    /// `client_kwargs.endpoint_url`.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// These options without some of them.
    pub(crate) fn without(&self, is_left_out: impl Fn(&str) -> bool) -> StorageOptions {
        let mut rest = self.clone();
        rest.0.retain(|name, _| !is_left_out(name));
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
        StorageOptions(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The names alone.
impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
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

const HTTP_NAMES: &[(&str, &str)] = &[("headers", "headers"), ("whole_values", "whole_values")];

const COMMON_NAMES: &[(&str, &str)] = &[
    ("max_requests", "max_requests"),
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

impl Cloud {
    fn names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Cloud::S3 => S3_NAMES,
            Cloud::Gcs => GCS_NAMES,
            Cloud::Azure => AZURE_NAMES,
            Cloud::Http => HTTP_NAMES,
        }
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
        for (name, value) in &options.0 {
            let header = name.strip_prefix("client_kwargs.").unwrap_or(name).strip_prefix("headers.");
            if let Some(header) = header.filter(|_| cloud == Cloud::Http) {
                settings.add_header(header, value)?;
                continue;
            }
            let known = cloud.names().iter().chain(COMMON_NAMES).find(|(known, _)| known == name);
            match known.map_or(name.as_str(), |(_, own)| own) {
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

    /// Takes the options of retries.
    ///
    /// # Errors
    /// `InvalidArgument` when a value has no meaning.
    pub(crate) fn take_retries(&mut self) -> Result<RetryConfig> {
        let mut retries = RetryConfig::default();
        if let Some(most) = self.take_number("max_retries")? {
            retries.max_retries = most;
        }
        if let Some(text) = self.take("retry_timeout") {
            let seconds =
                text.strip_suffix('s').and_then(|text| text.parse::<f64>().ok()).filter(|&number| number >= 0.0);
            let deadline = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            retries.retry_timeout = deadline.ok_or_else(|| {
                let message = format!("storage option 'retry_timeout': got '{text}', expected seconds");
                Error::new(ErrorKind::InvalidArgument, message)
            })?;
        }
        Ok(retries)
    }

    /// The remaining options, as keys of a builder.
    ///
    /// # Errors
    /// `InvalidArgument` when a name is not known; the error lists those that are.
    pub(crate) fn keys<K: FromStr>(&self) -> Result<Vec<(K, String)>> {
        self.values.iter().map(|(name, value)| Ok((self.key(name)?, value.clone()))).collect()
    }

    fn key<K: FromStr>(&self, name: &str) -> Result<K> {
        name.parse().map_err(|_| {
            let message = format!("unknown storage option '{name}'");
            let known = self.cloud.names().iter().chain(COMMON_NAMES).filter(|(_, own)| !own.is_empty());
            let known: Vec<_> = known.map(|(name, _)| *name).collect();
            let near = nearest(name, known.iter().copied())
                .map_or_else(String::new, |near| format!("did you mean '{near}'? "));
            Error::new(ErrorKind::InvalidArgument, message)
                .with_hint(format!("{near}known options: {}, and the other names of object_store", known.join(", ")))
        })
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
    fn the_deadline_is_in_seconds() {
        let retries = |text: &str| {
            Settings::new(Cloud::Http, &StorageOptions::from_iter([("retry_timeout", text)])).unwrap().take_retries()
        };
        assert_eq!(retries("2.5").unwrap().retry_timeout, Duration::from_millis(2500));
        assert!(retries("soon").is_err());
    }
}
