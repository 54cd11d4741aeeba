//! Headers of frames that lie on the device alone: a kernel walks from one to the next and lists what stands there
//! (`headers.cu`), so that a few bytes of each frame come to the host, and not the frame. The host's scans then make of them
//! what they make of whole frames.

mod cuda;

pub(crate) use cuda::HEADERS;
pub(super) use cuda::gather;

#[cfg(test)]
mod tests;
