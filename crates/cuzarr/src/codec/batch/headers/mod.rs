//! Fetches the headers of frames that lie only on the device. A codec's kernel walks from one header to the next and
//! lists them (`headers.cuh`). So only a few bytes of each frame come to the host. The host's scans read the list as
//! they read whole frames.

mod cuda;

pub(super) use cuda::read;

#[cfg(test)]
mod tests;
