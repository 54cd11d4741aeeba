//! # `test.run_length`
//!
//! A codec as small as one can be, in a folder of its own: pairs of a count (1 to 255) and a byte that is repeated so often.
//!
//! - Specification: this page
//! - Names: v3 `test.run_length`
//! - Native: cpu; cuda decodes and encodes, a thread a frame (`run_length.cu`)

mod cpu;
mod cuda;

use std::sync::Arc;

use cuzarr::Result;
use cuzarr::codec::{ExternalCodec, ExternalCodecs, ExternalRequest};
use cuzarr::internal::codec::BytesToBytes;

/// Tells the library of the codec. A built-in codec has a line in `registry.rs` instead.
pub struct Registration;

impl ExternalCodecs for Registration {
    fn open(&self, _: &ExternalRequest<'_>) -> Result<Option<ExternalCodec>> {
        Ok(None)
    }

    fn open_bytes(&self, request: &ExternalRequest<'_>) -> Result<Option<Arc<dyn BytesToBytes>>> {
        Ok((request.name == cpu::NAME).then(|| Arc::new(cpu::RunLength) as Arc<dyn BytesToBytes>))
    }
}
