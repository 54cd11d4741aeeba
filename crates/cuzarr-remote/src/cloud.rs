//! The kinds of servers that stores lie on: the clouds, and plain web servers.

/// The kind of a server: one of the clouds, or a plain web server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cloud {
    S3,
    Gcs,
    Azure,
    Http,
}

impl Cloud {
    pub(crate) const ALL: [Cloud; 4] = [Cloud::S3, Cloud::Gcs, Cloud::Azure, Cloud::Http];

    /// Returns the cloud for which an option is meant whose name begins with `name`, such as `s3`.
    pub(crate) fn of_scope(name: &str) -> Option<Cloud> {
        match name {
            "s3" => Some(Cloud::S3),
            "gs" => Some(Cloud::Gcs),
            "az" => Some(Cloud::Azure),
            "http" => Some(Cloud::Http),
            _ => None,
        }
    }
}
