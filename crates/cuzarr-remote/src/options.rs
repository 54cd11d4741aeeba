//! Options of stores, under the names that users of object_store, obstore and fsspec know.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cuzarr::internal::nearest;
use cuzarr::{Error, ErrorKind, Result};
use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::RetryConfig;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use crate::cache::default_folder;
use crate::cloud::Cloud;
use crate::credentials::CredentialSource;
use crate::web::RedirectCheck;

/// Default time limits: for a whole request including its answer, and for making a connection.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before a failed request is sent again for the first time. Later pauses are random, up to [`LONGER`] times
/// the previous one. After a refusal, the transport adds a pause that depends on the host.
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
/// A name may begin with a cloud: `s3.anon` only applies to S3. The clouds are `s3`, `gs`, `az` and `http`. A name
/// without a cloud takes precedence.
#[derive(Clone, Default)]
pub struct StorageOptions {
    values: BTreeMap<String, String>,
    credentials: Option<Arc<dyn CredentialSource>>,
    redirects: Option<Arc<RedirectCheck>>,
}

/// The prefix of environment variables that set options.
const VARIABLE_PREFIX: &str = "CUZARR_STORAGE__";

impl StorageOptions {
    /// Makes empty options: credentials come from the environment.
    pub fn new() -> StorageOptions {
        StorageOptions::default()
    }

    /// Reads options from environment variables: `CUZARR_STORAGE__TIMEOUT=5` sets `timeout`, and
    /// `CUZARR_STORAGE__S3__ANON=true` sets `s3.anon`. Variables of the clouds themselves, such as `AWS_PROFILE`, are
    /// read when a store is opened.
    pub fn from_environment() -> StorageOptions {
        StorageOptions::from_variables(std::env::vars_os().filter_map(|(name, value)| {
            // Other variables may not be UTF-8.
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

    /// Sets a storage option, such as `region`, to a value. A later value replaces an earlier one. Names of nested
    /// options are joined by dots: `client_kwargs.endpoint_url`.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    /// Sets a source from which the stores get credentials. It is called whenever the current credentials are about to
    /// expire.
    pub fn set_credentials(&mut self, source: Arc<dyn CredentialSource>) {
        self.credentials = Some(source);
    }

    /// Sets a check of the addresses to which web servers redirect requests. It sees each address before the address is
    /// requested.
    pub(crate) fn set_redirects(&mut self, check: Arc<RedirectCheck>) {
        self.redirects = Some(check);
    }

    pub(crate) fn redirects(&self) -> Option<&Arc<RedirectCheck>> {
        self.redirects.as_ref()
    }

    pub(crate) fn credentials(&self) -> Option<&Arc<dyn CredentialSource>> {
        self.credentials.as_ref()
    }

    /// Returns the names and values of all options.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns these options without those that `is_left_out` selects.
    pub(crate) fn without(&self, is_left_out: impl Fn(&str) -> bool) -> StorageOptions {
        let mut rest = self.clone();
        rest.values.retain(|name, _| !is_left_out(name));
        rest
    }

    /// Checks that at least one scheme knows each option.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown option, with the nearest name.
    pub(crate) fn check_names(&self) -> Result<()> {
        self.values.keys().try_for_each(|name| check_name(name))
    }

    /// Whether the option with this name has a secret value. A secret is never shown, and is never pickled with a
    /// store.
    pub fn is_secret(name: &str) -> bool {
        const SECRETS: [&str; 9] =
            ["key", "secret", "token", "password", "sas", "authorization", "connection_string", "headers", "query"];
        let name = name.to_ascii_lowercase();
        name != "max_keys" && SECRETS.iter().any(|secret| name.contains(secret))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let values = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        StorageOptions { values, ..StorageOptions::default() }
    }
}

/// Shows only the names of options, because values may be secret.
impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys().map(|name| shown(name))).finish()
    }
}

/// Returns an option's name as messages may show it. The name of a header is left out, because a user may have put a
/// secret there by mistake.
fn shown(name: &str) -> &str {
    name.find("headers.").map_or(name, |at| &name[..at + "headers".len()])
}

/// Option names of fsspec's file systems, each with our name for the same option. An empty name means that the option
/// only tunes fsspec, and has no effect here.
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
    ("query", "query"),
    ("whole_values", "whole_values"),
    ("allow_http", "allow_http"),
    ("allow_invalid_certificates", "allow_invalid_certificates"),
];

const COMMON_NAMES: &[(&str, &str)] = &[
    ("max_requests", "max_requests"),
    ("max_bytes", "max_bytes"),
    ("missing_when_denied", "missing_when_denied"),
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

/// Names of options for tables of references and Icechunk repositories.
const TABLE_NAMES: [&str; 5] = ["allow", "remote_protocol", "target_protocol", "lazy", "fo"];

/// Whether an option applies to a table of references or to an Icechunk repository itself.
pub(crate) fn is_of_a_table(name: &str) -> bool {
    let prefixes = ["remote_options.", "target_options.", "container."];
    TABLE_NAMES.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the names of options that only one cloud has: fsspec's name, and our name for the same option.
fn names(cloud: Cloud) -> &'static [(&'static str, &'static str)] {
    match cloud {
        Cloud::S3 => S3_NAMES,
        Cloud::Gcs => GCS_NAMES,
        Cloud::Azure => AZURE_NAMES,
        Cloud::Http => HTTP_NAMES,
    }
}

/// Splits an option's name such as `s3.region` into the cloud that it is for, and the option's name there. `None` for
/// names without a cloud.
fn scoped(name: &str) -> Option<(Cloud, &str)> {
    let (scope, rest) = name.split_once('.')?;
    Some((Cloud::of_scope(scope)?, rest))
}

/// Returns the name of the header that an option for a web server sets.
fn header_of(name: &str) -> Option<&str> {
    name.strip_prefix("client_kwargs.").unwrap_or(name).strip_prefix("headers.")
}

/// Whether a cloud has an option with this name.
fn is_known(cloud: Cloud, name: &str) -> bool {
    let is_of_its_client = || match cloud {
        Cloud::S3 => name.parse::<AmazonS3ConfigKey>().is_ok(),
        Cloud::Gcs => name.parse::<GoogleConfigKey>().is_ok(),
        Cloud::Azure => name.parse::<AzureConfigKey>().is_ok(),
        Cloud::Http => header_of(name).is_some(),
    };
    names(cloud).iter().chain(COMMON_NAMES).any(|(known, _)| *known == name) || is_of_its_client()
}

/// Checks that at least one scheme knows an option.
fn check_name(name: &str) -> Result<()> {
    let inner = ["remote_options.", "target_options."].iter().find_map(|prefix| name.strip_prefix(prefix));
    match (inner, scoped(name)) {
        (Some(inner), _) => check_name(inner),
        (None, Some((cloud, rest))) if is_known(cloud, rest) => Ok(()),
        (None, Some((cloud, _))) => Err(unknown(&[cloud], name)),
        (None, None) if is_of_a_table(name) || Cloud::ALL.iter().any(|&cloud| is_known(cloud, name)) => Ok(()),
        (None, None) => Err(unknown(&Cloud::ALL, name)),
    }
}

/// Returns the error for an option that none of these clouds knows.
fn unknown(clouds: &[Cloud], name: &str) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("unknown storage option '{}'", shown(name)));
    if matches!(name, "branch" | "tag" | "snapshot" | "snapshot_id") {
        return error.with_hint(
            "name it in the URL: icechunk://branch.NAME::URL, icechunk://tag.NAME::URL or icechunk://snapshot.ID::URL",
        );
    }
    let known = clouds.iter().flat_map(|&cloud| names(cloud)).chain(COMMON_NAMES);
    let known = known.filter(|(_, own)| !own.is_empty()).map(|(name, _)| *name);
    let of_tables = TABLE_NAMES.into_iter().filter(|_| clouds.len() > 1);
    let mut seen = HashSet::new();
    let known: Vec<_> = known.chain(of_tables).filter(|&name| seen.insert(name)).collect();
    let plain = scoped(name).map_or(name, |(_, rest)| rest);
    let near =
        nearest(plain, known.iter().copied()).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
    let more = if clouds == [Cloud::Http] { "" } else { ", and the other names of object_store" };
    error.with_hint(format!("{near}known options: {}{more}", known.join(", ")))
}

/// The options of a store on one cloud, under the names that `object_store` gives them.
pub(crate) struct Settings {
    cloud: Cloud,
    values: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
}

impl Settings {
    /// Selects the options that apply to a cloud, and translates their names to those of `object_store`.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid header, and for a cloud's option that the cloud itself does not know.
    pub(crate) fn new(cloud: Cloud, options: &StorageOptions) -> Result<Settings> {
        let mut settings = Settings { cloud, values: BTreeMap::new(), headers: HeaderMap::new() };
        let (of_clouds, plain): (Vec<_>, Vec<_>) = options.pairs().partition(|(name, _)| scoped(name).is_some());
        let of_clouds = of_clouds.into_iter().filter_map(|(name, value)| Some((scoped(name)?, name, value)));
        let mut wanted = Vec::new();
        for ((other, rest), name, value) in of_clouds {
            match other == cloud {
                true => wanted.push((rest, value)),
                false if is_known(other, rest) => {}
                false => return Err(unknown(&[other], name)),
            }
        }
        for (name, value) in wanted.into_iter().chain(plain) {
            if let Some(header) = header_of(name).filter(|_| cloud == Cloud::Http) {
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
        // An invalid name may be a whole header that contains a secret.
        let invalid = |what: String, hint| {
            Error::new(ErrorKind::InvalidArgument, format!("storage option 'headers': {what}")).with_hint(hint)
        };
        let name_of = HeaderName::from_str(name).map_err(|_| {
            let hint = "pass a mapping of names to values: {'headers': {'Authorization': 'Bearer …'}}";
            invalid("a name has a character that names of headers cannot have".to_string(), hint)
        })?;
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            let what = format!("the value of '{name_of}' has a character that values of headers cannot have");
            invalid(what, "remove line breaks and control characters")
        })?;
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

    /// Removes an option that is on or off, and returns its value.
    pub(crate) fn take_flag(&mut self, name: &str) -> bool {
        self.take(name).is_some_and(|value| is_true(&value))
    }

    /// Removes an option whose value is a number, and returns the number.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is not a number.
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

    /// Removes an option whose value is a number of bytes, such as `64 MiB`, and returns the number.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is not a number of bytes.
    pub(crate) fn take_bytes(&mut self, name: &str) -> Result<Option<u64>> {
        let bytes = |value: String| {
            cuzarr::internal::parse_bytes(&value).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, format!("storage option '{name}': {}", error.message()))
            })
        };
        self.take(name).map(bytes).transpose()
    }

    /// Removes the option for the cache's folder, and returns the folder; `None` means no cache.
    ///
    /// # Errors
    /// `InvalidArgument` when the folder is not given and there is no default folder.
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

    /// Removes the options for retries, and returns the settings that they make.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid value.
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

    /// Removes an option whose value is a time in seconds, and returns the time.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is not a time.
    pub(crate) fn take_seconds(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let seconds = text.strip_suffix('s').and_then(|text| text.parse::<f64>().ok()).filter(|&number| number >= 0.0);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.map(Some).ok_or_else(|| {
            let message = format!("storage option '{name}': got '{text}', expected seconds");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }

    /// Returns the time limit for a request, as the option sets it. The option is kept, because object_store's clients
    /// use it too.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is not a time in seconds.
    pub(crate) fn timeout(&mut self) -> Result<Duration> {
        let text = self.values.get("timeout").cloned();
        let timeout = self.take_seconds("timeout")?.unwrap_or(TIMEOUT);
        text.into_iter().for_each(|text| self.set("timeout", text));
        Ok(timeout)
    }

    /// Returns an error if options are left that no code has used, because the cloud does not have them.
    ///
    /// # Errors
    /// `InvalidArgument`; the error lists the known options.
    pub(crate) fn refuse_the_rest(&self) -> Result<()> {
        self.values.keys().next().map_or(Ok(()), |name| Err(unknown(&[self.cloud], name)))
    }

    /// Returns the options that are left, with their names converted to keys for an `object_store` builder.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name; the error lists the known names.
    pub(crate) fn keys<K: FromStr>(&self) -> Result<Vec<(K, String)>> {
        self.values.iter().map(|(name, value)| Ok((self.key(name)?, value.clone()))).collect()
    }

    fn key<K: FromStr>(&self, name: &str) -> Result<K> {
        name.parse().map_err(|_| unknown(&[self.cloud], name))
    }
}

pub(crate) fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&text.to_ascii_lowercase().as_str())
}

/// Adds the unit `s` to times without a unit. Such times are seconds, as in Python.
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
    fn names_that_no_scheme_knows_are_refused_with_the_nearest() {
        let check = |name: &str| StorageOptions::from_iter([(name, "hidden-value")]).check_names();
        for name in [
            "anon",
            "s3.anon",
            "aws_region",
            "gs.token",
            "base_url",
            "az.account_name",
            "headers.X-Own",
            "query",
            "cache",
            "http.headers.X-Own",
            "client_kwargs.headers.X-Own",
            "client_kwargs.region_name",
            "asynchronous",
            "timeout",
            "allow",
            "remote_protocol",
            "lazy",
            "remote_options.anon",
            "remote_options.s3.region",
            "target_options.anon",
            "container.era5",
            "http.allow_http",
        ] {
            assert!(check(name).is_ok(), "{name}");
        }
        let hint = |name: &str| {
            let error = check(name).unwrap_err();
            assert!(!format!("{error:?}").contains("hidden-value"));
            assert_eq!(
                error.message(),
                format!("unknown storage option '{}'", name.trim_start_matches("remote_options."))
            );
            error.hint().unwrap().to_string()
        };
        assert!(hint("alow").starts_with("did you mean 'allow'?"));
        assert!(hint("s3.secrt").starts_with("did you mean 'secret'?"));
        assert!(hint("remote_options.endpoint_ulr").starts_with("did you mean 'endpoint_url'?"));
        assert!(hint("branch").contains("icechunk://branch.NAME::URL"));
        assert!(hint("colour").starts_with("known options: "));
        let elsewhere = StorageOptions::from_iter([("s3.secrt", "hidden-value")]);
        assert!(Settings::new(Cloud::Gcs, &elsewhere).is_err(), "an option of another cloud");
    }

    #[test]
    fn headers_that_are_none_are_not_repeated() {
        for name in ["headers.Authorization: Bearer SECRET", "client_kwargs.headers.Bearer SECRET"] {
            let options = StorageOptions::from_iter([(name, "SECRET")]);
            let refusals = [
                Settings::new(Cloud::Http, &options).map(|_| ()).unwrap_err(),
                Settings::new(Cloud::S3, &options).and_then(|settings| settings.refuse_the_rest()).unwrap_err(),
            ];
            assert!(!format!("{refusals:?} {options:?}").contains("SECRET"), "{refusals:?}");
        }
        let value = StorageOptions::from_iter([("headers.Authorization", "SEC\nRET")]);
        let error = Settings::new(Cloud::Http, &value).map(|_| ()).unwrap_err();
        assert!(error.message().contains("the value of 'authorization'") && !format!("{error:?}").contains("SEC"));
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
