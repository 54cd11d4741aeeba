//! Reads access keys and settings from a profile of the AWS configuration in `~/.aws`. The crate object_store does not
//! read profiles.
//!
//! Only profiles with plain keys are supported. Others (roles, single sign-on, processes) need AWS's own library, which
//! would add some forty crates. The error for them names the command that exports their keys.

use std::path::{Path, PathBuf};

use cuzarr::{Error, ErrorKind, Result};

/// The settings of a profile in the AWS configuration files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The settings' names in `object_store`, with their values.
    pub(crate) values: Vec<(&'static str, String)>,
}

const NAMES: [(&str, &str); 5] = [
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
    ("region", "region"),
    ("endpoint_url", "endpoint"),
];

/// Settings which show that a profile's access keys are not in the configuration files.
const ELSEWHERE: [&str; 6] =
    ["role_arn", "sso_session", "sso_start_url", "credential_process", "credential_source", "web_identity_token_file"];

/// Reads the AWS profile `named`, or the default profile. `None` if neither exists.
///
/// # Errors
/// `InvalidArgument` when the named profile is missing, or when its keys come from elsewhere.
pub(crate) fn read(named: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Profile>> {
    let home = variable("HOME").map(PathBuf::from);
    let file = |name: &str, usual: &str| {
        let path = variable(name).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".aws").join(usual)))?;
        std::fs::read_to_string(&path).ok().map(|text| (path, text))
    };
    let files = [file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")];
    let named = named.map(String::from).or_else(|| variable("AWS_PROFILE"));
    let name = named.as_deref().unwrap_or("default");
    let entries: Vec<(&Path, &str, &str)> =
        files.iter().flatten().flat_map(|(path, text)| section(path, text, name)).collect();
    if entries.is_empty() {
        let message = format!("there is no profile '{name}' in ~/.aws/credentials or ~/.aws/config");
        return if named.is_some() { Err(Error::new(ErrorKind::InvalidArgument, message)) } else { Ok(None) };
    }
    // The credentials file comes first, so its entries win.
    let value =
        |wanted: &str| entries.iter().find(|(_, name, _)| *name == wanted).map(|(_, _, value)| value.to_string());
    let values: Vec<_> = NAMES.iter().filter_map(|(name, own)| Some((*own, value(name)?))).collect();
    let has_keys = values.iter().any(|(name, _)| *name == "access_key_id");
    match entries.iter().find(|(_, name, _)| ELSEWHERE.contains(name)) {
        Some((path, entry, _)) if !has_keys => {
            let message = format!("profile '{name}' in {}: '{entry}' is not supported", path.display());
            let hint = format!("run: eval \"$(aws configure export-credentials --profile {name} --format env)\"");
            Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint))
        }
        _ => Ok(Some(Profile { values })),
    }
}

/// Returns the settings in one section of a configuration file: `[name]`, or `[profile name]` in the configuration
/// file.
fn section<'a>(path: &'a Path, text: &'a str, wanted: &str) -> Vec<(&'a Path, &'a str, &'a str)> {
    let mut is_inside = false;
    let mut entries = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = name.trim().strip_prefix("profile ").unwrap_or(name).trim() == wanted;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_inside) {
            entries.push((path, name.trim(), value.trim()));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_keys_and_refuses_the_rest_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let aws = folder.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        let keys = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n[other]\naws_access_key_id=C\n";
        std::fs::write(aws.join("credentials"), keys).unwrap();
        let config = "[default]\nregion = eu-1\n[profile sso]\nsso_session = x\n[profile other]\nregion=eu-2\n";
        std::fs::write(aws.join("config"), config).unwrap();
        let variable = |name: &str| (name == "HOME").then(|| folder.path().display().to_string());
        let values = |named| read(named, variable).unwrap().unwrap().values;
        let shown =
            |values: &[(&'static str, &str)]| values.iter().map(|(a, b)| (*a, b.to_string())).collect::<Vec<_>>();
        assert_eq!(values(None), shown(&[("access_key_id", "A"), ("secret_access_key", "B="), ("region", "eu-1")]));
        assert_eq!(values(Some("other")), shown(&[("access_key_id", "C"), ("region", "eu-2")]));
        let refused = read(Some("sso"), variable).unwrap_err();
        assert!(
            refused.message().contains("'sso_session' is not supported")
                && refused.hint().unwrap().contains("--profile sso")
        );
        assert!(read(Some("missing"), variable).is_err());
        assert_eq!(read(None, |_| None).unwrap(), None);
    }
}
