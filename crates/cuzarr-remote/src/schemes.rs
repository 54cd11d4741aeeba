//! The registry of all schemes: clouds, web servers, and schemes that name files in them.

use std::sync::Arc;

use cuzarr::store::{Registry, Url};

use crate::open::{SCHEMES, with_clouds};
use crate::options::StorageOptions;
use crate::reference::{icechunk_scheme, reference_scheme};

/// Returns a registry with the schemes of [`Registry::new`] and [`SCHEMES`](crate::SCHEMES), `reference` and
/// `icechunk`. Options and credentials come from the environment.
pub fn registry() -> Registry {
    registry_with(StorageOptions::from_environment())
}

/// Returns a registry like [`registry`], which opens every remote store with these options. Every scheme refuses an
/// option that no scheme knows.
pub fn registry_with(options: StorageOptions) -> Registry {
    let options = Arc::new(options);
    let (of_tables, of_repositories) = (Arc::clone(&options), Arc::clone(&options));
    let all = Arc::clone(&options);
    // Clouds check the options themselves, against their own names.
    let check = move |url: &Url| if SCHEMES.contains(&url.scheme()) { Ok(()) } else { all.check_names() };
    with_clouds(&Registry::new().with_check(check), &options)
        .with("reference", move |registry, url| reference_scheme(registry, url, &of_tables))
        .with("icechunk", move |registry, url| icechunk_scheme(registry, url, &of_repositories))
}
