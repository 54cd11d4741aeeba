//! Credentials that the user's program provides and renews.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use cuzarr::{Error, ErrorKind, Result};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::{AzureAccessKey, AzureCredential, split_sas};
use object_store::gcp::GcpCredential;
use tokio::sync::Mutex;

/// Credentials are replaced by new ones this long before they expire.
const AHEAD: Duration = Duration::from_secs(60);

/// Credentials for a server or cloud, which may expire.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The parts of the credentials, such as `token`, by name. S3: `access_key_id`, `secret_access_key` and `token`.
    /// Google: `token`. Azure: one of `token`, `access_key` and `sas_token`.
    pub values: BTreeMap<String, String>,
    /// The time when the credentials expire; `None` if they do not expire.
    pub expires_at: Option<SystemTime>,
}

/// Shows the names of the credentials' parts, but not their values.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// A source of credentials that the user's program provides.
pub trait CredentialSource: Send + Sync {
    /// Returns new credentials; called at first, and again before the old ones expire. This is called on a thread that
    /// may wait, and never twice at the same time for one store.
    ///
    /// # Errors
    /// Any error. The request that needs the credentials fails with it.
    fn credentials(&self) -> Result<Credentials>;
}

impl Credentials {
    fn take(&mut self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.values.remove(*name))
    }

    fn require(&mut self, names: &[&str]) -> Result<String> {
        self.take(names).ok_or_else(|| self.missing(names))
    }

    fn missing(&self, names: &[&str]) -> Error {
        let got: Vec<_> = self.values.keys().map(String::as_str).collect();
        let message = format!("the credentials have no '{}', they have: {}", names.join("' or '"), got.join(", "));
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

/// The type in which the client of one cloud expects credentials, made from the user's credentials.
pub(crate) trait Form: fmt::Debug + Send + Sync + Sized + 'static {
    fn of(credentials: Credentials) -> Result<Self>;
}

impl Form for AwsCredential {
    fn of(mut from: Credentials) -> Result<Self> {
        let key_id = from.require(&["access_key_id", "aws_access_key_id", "AccessKeyId"])?;
        let secret_key = from.require(&["secret_access_key", "aws_secret_access_key", "SecretAccessKey"])?;
        let token = from.take(&["token", "session_token", "aws_session_token", "SessionToken"]);
        Ok(AwsCredential { key_id, secret_key, token })
    }
}

impl Form for GcpCredential {
    fn of(mut from: Credentials) -> Result<Self> {
        Ok(GcpCredential { bearer: from.require(&["token", "access_token"])? })
    }
}

impl Form for AzureCredential {
    fn of(mut from: Credentials) -> Result<Self> {
        if let Some(token) = from.take(&["token", "access_token"]) {
            return Ok(AzureCredential::BearerToken(token));
        }
        if let Some(key) = from.take(&["access_key", "account_key"]) {
            let invalid = |_| Error::new(ErrorKind::InvalidArgument, "the credentials' 'access_key' is not in base64");
            return Ok(AzureCredential::AccessKey(AzureAccessKey::try_new(&key).map_err(invalid)?));
        }
        let sas = from.take(&["sas_token"]).ok_or_else(|| from.missing(&["token", "access_key", "sas_token"]))?;
        let invalid = |_| Error::new(ErrorKind::InvalidArgument, "the credentials' 'sas_token' is no SAS token");
        Ok(AzureCredential::SASToken(split_sas(&sas).map_err(invalid)?))
    }
}

/// An `object_store` provider of a cloud's credentials, which gets them from the user's source. It keeps credentials
/// while they are valid.
pub(crate) struct Provider<C> {
    source: Arc<dyn CredentialSource>,
    current: Mutex<Option<(Arc<C>, Option<SystemTime>)>>,
}

impl<C> Provider<C> {
    pub(crate) fn new(source: Arc<dyn CredentialSource>) -> Provider<C> {
        Provider { source, current: Mutex::default() }
    }
}

impl<C> fmt::Debug for Provider<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

#[async_trait]
impl<C: Form> CredentialProvider for Provider<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let mut current = self.current.lock().await;
        if let Some((credential, expires_at)) = &*current
            && expires_at.is_none_or(|end| SystemTime::now() + AHEAD < end)
        {
            return Ok(Arc::clone(credential));
        }
        let failed = |error: Error| {
            let error = error.at("the program's source of credentials failed");
            object_store::Error::Generic { store: "credentials", source: Box::new(error) }
        };
        let source = Arc::clone(&self.source);
        let lost = |_| Error::new(ErrorKind::StoreFailed, "it ended early");
        let made =
            tokio::task::spawn_blocking(move || source.credentials()).await.map_err(lost).and_then(|given| given);
        let made = made.map_err(failed)?;
        let expires_at = made.expires_at;
        let credential = Arc::new(C::of(made).map_err(failed)?);
        *current = Some((Arc::clone(&credential), expires_at));
        Ok(credential)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counting(AtomicUsize, Option<Duration>);

    impl CredentialSource for Counting {
        fn credentials(&self) -> Result<Credentials> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            let values = [("access_key_id", "id"), ("secret_access_key", &number.to_string())];
            let values = values.map(|(name, value)| (name.to_string(), value.to_string()));
            Ok(Credentials { values: values.into(), expires_at: self.1.map(|time| SystemTime::now() + time) })
        }
    }

    fn secrets(lifetime: Option<Duration>) -> [String; 2] {
        let provider = Provider::<AwsCredential>::new(Arc::new(Counting(AtomicUsize::new(0), lifetime)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let get = || runtime.block_on(provider.get_credential()).unwrap().secret_key.clone();
        [get(), get()]
    }

    #[test]
    fn credentials_are_kept_until_shortly_before_their_end() {
        assert_eq!(secrets(None), ["0", "0"]);
        assert_eq!(secrets(Some(Duration::from_secs(3600))), ["0", "0"]);
        assert_eq!(secrets(Some(Duration::from_secs(10))), ["0", "1"]);
    }

    #[test]
    fn incomplete_credentials_say_what_is_missing_and_hide_the_rest() {
        let values = [("access_key_id".to_string(), "hush".to_string())];
        let some = Credentials { values: values.into(), expires_at: None };
        assert_eq!(format!("{some:?}"), "{\"access_key_id\"}");
        let error = AwsCredential::of(some.clone()).unwrap_err();
        assert!(error.message().contains("no 'secret_access_key'") && !error.message().contains("hush"), "{error}");
        assert!(GcpCredential::of(some.clone()).is_err() && AzureCredential::of(some).is_err());
    }
}
