//! Headers of frames that lie on the device alone: a codec's kernel walks from one to the next and lists what stands there
//! (`headers.cuh`), so that a few bytes of each frame come to the host, and not the frame. The host's scans then make of them
//! what they make of whole frames.

mod cuda;

pub(super) use cuda::gather;

#[cfg(test)]
mod tests;
