//! Opens the store of a URL.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cuzarr::store::{Identity, Prefixed, Registry, Store, Url};
use cuzarr::{Error, ErrorKind, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use crate::cache::{self, Cache};
use crate::client::Place;
use crate::cloud::Cloud;
use crate::credentials::{CredentialSource, Provider};
use crate::failure::explain;
use crate::limit::{MOST_BYTES, MOST_REQUESTS};
use crate::options::{CONNECT_TIMEOUT, Settings, StorageOptions, is_true};
use crate::profile;
use crate::store::RemoteStore;
use crate::transport::Connector;
use crate::web::{RedirectCheck, Web};

/// The URL schemes that this crate opens, and the cloud for each.
const CLOUDS: [(&str, Cloud); 9] = [
    ("s3", Cloud::S3),
    ("s3a", Cloud::S3),
    ("gs", Cloud::Gcs),
    ("gcs", Cloud::Gcs),
    ("az", Cloud::Azure),
    ("abfs", Cloud::Azure),
    ("abfss", Cloud::Azure),
    ("http", Cloud::Http),
    ("https", Cloud::Http),
];

/// The URL schemes that this crate opens, such as `s3` and `https`.
pub const SCHEMES: [&str; 9] = {
    let mut schemes = [""; 9];
    let mut at = 0;
    while at < schemes.len() {
        schemes[at] = CLOUDS[at].0;
        at += 1;
    }
    schemes
};

/// Returns a registry that opens clouds and web servers with these options, and all other schemes like `registry`.
pub(crate) fn with_clouds(registry: &Registry, options: &Arc<StorageOptions>) -> Registry {
    CLOUDS.iter().fold(registry.clone(), |registry, &(scheme, cloud)| {
        let options = Arc::clone(options);
        registry.with(scheme, move |_, url| open(cloud, url, &options))
    })
}

fn open(cloud: Cloud, url: &Url, options: &StorageOptions) -> Result<Arc<dyn Store>> {
    if url.wrapped().is_some() {
        let message = format!("'{}://…': this scheme cannot wrap another store", url.scheme());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let (authority, path) = url.path().split_once('/').unwrap_or((url.path(), ""));
    if authority.is_empty() {
        let what = if cloud == Cloud::Http { "host" } else { "bucket" };
        return Err(Error::new(ErrorKind::InvalidArgument, format!("'{url}' names no {what}")));
    }
    if authority.contains('@') && cloud != Cloud::Azure {
        let message = format!("'{}://…@…': credentials do not belong into a URL", url.scheme());
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("use storage options or the environment"));
    }
    // The query may be a signature, which must not appear in messages or pickles.
    if cloud != Cloud::Http && url.path().contains('?') {
        let message = format!("'{}://…?…': the address of a bucket has no query", url.scheme());
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("give a signature as the storage option sas_token, or open its https:// address"));
    }
    let view = view_of(url.path(), options);
    let mut settings = Settings::new(cloud, options)?;
    let most_requests = settings.take_number("max_requests")?.unwrap_or(MOST_REQUESTS);
    if most_requests == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "storage option 'max_requests': got 0, expected at least 1",
        ));
    }
    let most_bytes = settings.take_bytes("max_bytes")?.unwrap_or(MOST_BYTES);
    let missing_when_denied = settings.take_flag("missing_when_denied");
    let cache_folder = settings.take_cache_folder()?;
    let cache_bytes = settings.take_bytes("cache_max_bytes")?.unwrap_or(cache::MOST_BYTES);
    let credentials = options.credentials().cloned();
    if credentials.is_some() && cloud == Cloud::Http {
        let message = "a web server has no source of credentials";
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("pass headers"));
    }
    let requests = Requests {
        retries: settings.take_retries()?,
        timeout: settings.timeout()?,
        credentials,
        redirects: options.redirects().cloned(),
    };
    let mut place = match cloud {
        Cloud::S3 => s3(authority, settings, requests)?,
        Cloud::Gcs => gcs(authority, settings, requests)?,
        Cloud::Azure => azure(url.scheme(), authority, settings, requests)?,
        Cloud::Http => http(url, settings, requests, most_bytes)?,
    };
    place.most_requests = most_requests;
    place.most_bytes = most_bytes;
    place.missing_when_denied = missing_when_denied;
    if let Some(folder) = cache_folder {
        place.cache = Some(Arc::new(Cache::new(folder, &place.identity, cache_bytes)?));
    }
    let is_bucket = cloud != Cloud::Http;
    let path = path.split(['?', '#']).next().filter(|_| !is_bucket).unwrap_or(path).trim_matches('/');
    let identity = Identity::address(&place.identity).with_view(&view);
    if !is_bucket {
        return Ok(Arc::new(RemoteStore::of_place(place, identity.below(path))));
    }
    let root = Arc::new(RemoteStore::of_place(place, identity));
    Ok(if path.is_empty() { root } else { Arc::new(Prefixed::new(root, path)?) })
}

/// Returns a text that identifies the query of a URL and the storage options, because other ones may show other values.
/// It has no secrets. Stores with a source of credentials are all different.
fn view_of(path: &str, options: &StorageOptions) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut hasher = DefaultHasher::new();
    path.split_once('?').map(|(_, query)| query).hash(&mut hasher);
    options.pairs().for_each(|pair| pair.hash(&mut hasher));
    let hash = hasher.finish();
    match options.credentials() {
        Some(_) => format!("{hash:x}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
        None => format!("{hash:x}"),
    }
}

/// Settings for requests that are the same for every cloud, such as retries and time limits.
struct Requests {
    retries: RetryConfig,
    timeout: Duration,
    credentials: Option<Arc<dyn CredentialSource>>,
    redirects: Option<Arc<RedirectCheck>>,
}

impl Requests {
    fn connector(&self) -> Connector {
        Connector { timeout: self.timeout, web: None }
    }
}

/// Converts the error of an `object_store` builder, which refuses an option or a combination of options.
fn refused(error: object_store::Error) -> Error {
    let reason = explain(&error);
    Error::new(ErrorKind::InvalidArgument, format!("storage options: {}", reason.message()))
}

const NAME_THE_ACCOUNT: &str = "name the storage account: by the option account_name, by the variable AZURE_STORAGE_ACCOUNT_NAME, or in the \
     URL: abfss://container@account.dfs.core.windows.net/path";

fn built<S: ObjectStore>(store: object_store::Result<S>) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(store.map_err(refused)?))
}

/// Whether the user named an endpoint with `http://`, so that no TLS is used.
fn is_plain(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn s3(bucket: &str, mut settings: Settings, requests: Requests) -> Result<Place> {
    let from_environment = AmazonS3Builder::from_env();
    let knows = |key: AmazonS3ConfigKey| from_environment.get_config_value(&key).is_some();
    let has_source = requests.credentials.is_some()
        || settings.has("access_key_id")
        || settings.is_on("skip_signature")
        || knows(AmazonS3ConfigKey::AccessKeyId)
        || knows(AmazonS3ConfigKey::SkipSignature)
        || knows(AmazonS3ConfigKey::WebIdentityTokenFile)
        || knows(AmazonS3ConfigKey::ContainerCredentialsRelativeUri)
        || knows(AmazonS3ConfigKey::ContainerCredentialsFullUri);
    let named = settings.take("profile");
    let profile = if named.is_none() && has_source {
        None
    } else {
        profile::read(named.as_deref(), |name| std::env::var(name).ok())?
    };
    let mut builder = from_environment;
    for (name, value) in profile.into_iter().flat_map(|profile| profile.values) {
        let key = name.parse::<AmazonS3ConfigKey>().map_err(refused)?;
        builder = builder.with_config(key, value);
    }
    if let Some(endpoint) = settings.take("endpoint") {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, &endpoint).with_endpoint(endpoint);
    }
    let endpoint = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    if is_plain(endpoint.as_deref()) {
        settings.set("allow_http", "true");
    }
    for (key, value) in settings.keys::<AmazonS3ConfigKey>()? {
        builder = builder.with_config(key, value);
    }
    let connector = requests.connector();
    let mut builder = builder.with_bucket_name(bucket).with_retry(requests.retries).with_http_connector(connector);
    if let Some(source) = requests.credentials {
        builder = builder.with_credentials(Arc::new(Provider::new(source)));
    }
    let compares_versions = builder
        .get_config_value(&AmazonS3ConfigKey::ConditionalPut)
        .is_none_or(|value| !value.eq_ignore_ascii_case("disabled"));
    let endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_string());
    let identity = format!("s3://{bucket}{}", endpoint.map_or_else(String::new, |endpoint| format!("@{endpoint}")));
    let make = move || built(builder.clone().build());
    let mut place = Place::new(Cloud::S3, format!("s3://{bucket}"), identity, Box::new(make));
    place.compares_versions = compares_versions;
    Ok(place)
}

fn gcs(bucket: &str, mut settings: Settings, requests: Requests) -> Result<Place> {
    // gcsfs accepts all of these under one name.
    if let Some(token) = settings.take("token") {
        match token.as_str() {
            "anon" => settings.set("skip_signature", "true"),
            "cloud" | "google_default" | "cache" => {}
            "browser" => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "storage option 'token': 'browser' is not supported",
                )
                .with_hint("run: gcloud auth application-default login"));
            }
            key if key.trim_start().starts_with('{') => settings.set("service_account_key", token),
            path if path.ends_with(".json") => settings.set("application_credentials", token),
            _ => settings.set("bearer_token", token),
        }
    }
    let base_url = settings.take("base_url");
    let mut builder = GoogleCloudStorageBuilder::from_env();
    if let Some(base_url) = &base_url {
        builder = builder.with_base_url(base_url);
    }
    for (key, value) in settings.keys::<GoogleConfigKey>()? {
        builder = builder.with_config(key, value);
    }
    let connector = requests.connector();
    let mut builder = builder.with_bucket_name(bucket).with_retry(requests.retries).with_http_connector(connector);
    if let Some(source) = requests.credentials {
        builder = builder.with_credentials(Arc::new(Provider::new(source)));
    }
    let identity = format!("gs://{bucket}{}", base_url.map_or_else(String::new, |url| format!("@{url}")));
    let make = move || built(builder.clone().build());
    Ok(Place::new(Cloud::Gcs, format!("gs://{bucket}"), identity, Box::new(make)))
}

fn azure(scheme: &str, authority: &str, mut settings: Settings, requests: Requests) -> Result<Place> {
    if let Some(text) = settings.take("connection_string") {
        let names = [
            ("AccountName", "account_name"),
            ("AccountKey", "account_key"),
            ("SharedAccessSignature", "sas_token"),
            ("BlobEndpoint", "endpoint"),
        ];
        for (name, value) in text.split(';').filter_map(|part| part.split_once('=')) {
            if let Some((_, own)) = names.iter().find(|(known, _)| *known == name) {
                settings.set(own, value);
            }
        }
    }
    let endpoint = settings.take("endpoint");
    if is_plain(endpoint.as_deref()) || settings.is_on("use_emulator") {
        settings.set("allow_http", "true");
    }
    let mut builder = MicrosoftAzureBuilder::from_env();
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    for (key, value) in settings.keys::<AzureConfigKey>()? {
        builder = builder.with_config(key, value);
    }
    // `abfss://container@account.dfs.core.windows.net` also contains the account.
    builder = match authority.split_once('@') {
        Some(_) => builder.with_url(format!("{scheme}://{authority}")),
        None => builder.with_container_name(authority),
    };
    let (container, host) = authority.split_once('@').unwrap_or((authority, ""));
    let account = match host.split('.').next().filter(|account| !account.is_empty()) {
        Some(account) => account.to_string(),
        None => builder.get_config_value(&AzureConfigKey::AccountName).unwrap_or_default(),
    };
    let connector = requests.connector();
    let mut builder = builder.with_retry(requests.retries).with_http_connector(connector);
    if let Some(source) = requests.credentials {
        builder = builder.with_credentials(Arc::new(Provider::new(source)));
    }
    let identity = format!("az://{account}/{container}{}", endpoint.map_or_else(String::new, |url| format!("@{url}")));
    let is_named = !account.is_empty();
    let make = move || {
        let store = built(builder.clone().build());
        store.map_err(|error| if is_named { error } else { error.with_hint(NAME_THE_ACCOUNT) })
    };
    Ok(Place::new(Cloud::Azure, format!("az://{container}"), identity, Box::new(make)))
}

fn http(url: &Url, mut settings: Settings, requests: Requests, most_bytes: u64) -> Result<Place> {
    // A slash at the end would be doubled before keys.
    let text = url.address();
    let (place, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let own_query = Some(query).filter(|query| query.starts_with('?')).map(str::to_string);
    let given_query = settings.take("query").map(|query| format!("?{}", query.trim_start_matches('?')));
    let query = own_query.or(given_query).unwrap_or_default();
    let address = format!("{}{query}", place.trim_end_matches('/'));
    let invalid = |error| Error::new(ErrorKind::InvalidArgument, format!("'{}': {error}", url.scheme()));
    let mut shown = url::Url::parse(&address).map_err(invalid)?;
    // The query may contain a signature.
    shown.set_query(None);
    shown.set_fragment(None);
    let whole_values = settings.take_flag("whole_values");
    let headers = std::mem::take(&mut settings.headers);
    let connect_timeout = settings.take_seconds("connect_timeout")?.unwrap_or(CONNECT_TIMEOUT);
    let web = Web {
        proxy: settings.take("proxy_url"),
        allow_invalid_certificates: settings.take("allow_invalid_certificates").is_some_and(|value| is_true(&value)),
        redirects: requests.redirects,
        ..Web::new(headers, connect_timeout, most_bytes)
    };
    settings.take("timeout");
    settings.take("allow_http");
    settings.refuse_the_rest()?;
    let builder = HttpBuilder::new()
        .with_url(address)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(requests.retries)
        .with_http_connector(Connector { timeout: requests.timeout, web: Some(web) });
    let make = move || built(builder.clone().build());
    let host = format!("{}://{}", shown.scheme(), &shown[url::Position::BeforeHost..url::Position::AfterPort]);
    let name = shown.to_string().trim_end_matches('/').to_string();
    let mut place = Place::new(Cloud::Http, name, host, Box::new(make));
    place.whole_values = whole_values;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use cuzarr::store::StoreExt;

    use super::*;

    fn opened(url: &str, options: &[(&str, &str)]) -> Result<Arc<dyn Store>> {
        with_clouds(&Registry::new(), &Arc::new(StorageOptions::from_iter(options.iter().copied()))).open(url)
    }

    const KEYS: &[(&str, &str)] = &[("key", "k-value"), ("secret", "s-value")];

    #[test]
    fn one_bucket_has_one_identity_however_it_is_named() {
        let one = opened("s3://bucket/a", KEYS).unwrap();
        let other = opened("s3a://bucket/a/", KEYS).unwrap();
        assert_eq!(one.identity(), other.identity());
        assert!(opened("s3://bucket", KEYS).unwrap().identity().overlaps(&one.identity()));
        assert_ne!(one.identity(), opened("s3://bucket/b", KEYS).unwrap().identity());
        let elsewhere = [KEYS, &[("endpoint_url", "http://localhost:1")]].concat();
        assert!(!opened("s3://bucket/a", &elsewhere).unwrap().identity().overlaps(&one.identity()));
        let anonymous: &[(&str, &str)] = &[("token", "anon")];
        assert_eq!(
            opened("gs://b/x", anonymous).unwrap().identity(),
            opened("gcs://b/x", anonymous).unwrap().identity()
        );
        let account: &[(&str, &str)] = &[("account_name", "me"), ("account_key", "c2VjcmV0")];
        let named = opened("abfss://c@me.dfs.core.windows.net/x", &account[1..]).unwrap();
        assert_eq!(named.identity(), opened("az://c/x", account).unwrap().identity());
        assert_eq!(
            opened("https://h/a/b?x=1", &[]).unwrap().identity(),
            opened("https://h/a", &[]).unwrap().identity().below("b")
        );
    }

    #[test]
    fn a_container_without_an_account_says_how_to_name_one() {
        let error = opened("az://c/x", &[]).unwrap().size_bytes("zarr.json").unwrap_err();
        assert!(error.to_string().contains("Account must be specified"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("account_name")), "{error:?}");
    }

    #[test]
    fn names_and_debug_texts_hide_secrets() {
        let store = opened("https://h/a/b.zarr?sig=SECRET", &[("headers.Authorization", "Bearer SECRET")]).unwrap();
        assert_eq!(store.to_string(), "https://h/a/b.zarr");
        let cloud = opened("s3://bucket/a", KEYS).unwrap();
        assert_eq!(cloud.to_string(), "s3://bucket/a");
        let shown = format!("{store:?} {cloud:?} {:?}", cloud.identity());
        assert!(!shown.contains("SECRET") && !shown.contains("-value"), "{shown}");
        for url in ["https://user:SECRET@h/a", "s3://key:SECRET@bucket/a"] {
            let error = opened(url, &[]).unwrap_err();
            assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let message = |url: &str, options: &[(&str, &str)]| opened(url, options).unwrap_err().message().to_string();
        assert_eq!(message("s3://", &[]), "'s3://' names no bucket");
        assert_eq!(
            message("s3://b", &[("max_requests", "0")]),
            "storage option 'max_requests': got 0, expected at least 1"
        );
        for url in
            ["s3://b/x?X-Amz-Signature=SECRET", "s3://b?sig=SECRET", "az://c/x?sig=SECRET", "gs://b/x?sig=SECRET"]
        {
            let message = message(url, &[]);
            assert!(message.contains("has no query") && !message.contains("SECRET"), "{message}");
        }
        assert_eq!(message("s3://b", &[("anon", "true"), ("colour", "red")]), "unknown storage option 'colour'");
        assert_eq!(message("gs://b", &[("token", "browser")]), "storage option 'token': 'browser' is not supported");
        assert_eq!(message("https://h/a", &[("anon", "true")]), "unknown storage option 'anon'");
    }
}
