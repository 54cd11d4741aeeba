//! Encodes and decodes chunks of the codec `conditional` on the host: each has a header that says which codecs were
//! applied to it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::codec::damage::{above_bound, above_limit, corrupt, expect_encoded_size};
use crate::codec::host::BytesToBytes;
use crate::codec::scratch;
use crate::codec::size::Size;
use crate::{Result, ResultExt};

#[derive(Debug)]
pub(super) struct Conditional {
    pub(super) codecs: Vec<Arc<dyn BytesToBytes>>,
    pub(super) header_bytes: usize,
}

/// A codec that was applied to a chunk, and the size of the bytes that the codec decodes to.
struct Applied<'a> {
    codec: &'a dyn BytesToBytes,
    decoded: Size,
}

impl Conditional {
    /// Reads the header, which says by which codecs the chunk was encoded. Returns the codecs that were applied to the
    /// chunk, in order of encoding, and the bytes after the header.
    fn read<'a>(&self, encoded: &'a [u8], decoded: Size) -> Result<(Vec<Applied<'_>>, &'a [u8])> {
        let Some((header, payload)) = encoded.split_at_checked(self.header_bytes) else {
            return Err(corrupt(format!("got {} bytes, expected {} of header", encoded.len(), self.header_bytes)));
        };
        let is_set = |bit: &usize| header[bit / 8] >> (bit % 8) & 1 == 1;
        if let Some(bit) = (self.codecs.len()..8 * header.len()).find(is_set) {
            return Err(corrupt(format!("bit {bit} of the header is set, and there are {} codecs", self.codecs.len())));
        }
        let (mut applied, mut size) = (Vec::new(), decoded);
        for codec in (0..self.codecs.len()).filter(is_set).map(|bit| &*self.codecs[bit]) {
            applied.push(Applied { codec, decoded: size });
            size = codec.encoded_size(size).within(decoded);
        }
        Ok((applied, payload))
    }
}

/// Undoes the codecs `applied`, the last one first. The first codec and its encoded bytes are left to `finish`.
fn undo<T>(
    applied: &[Applied<'_>],
    payload: &[u8],
    finish: impl FnOnce(Option<&dyn BytesToBytes>, &[u8]) -> Result<T>,
) -> Result<T> {
    let Some((last, before)) = applied.split_last() else { return finish(None, payload) };
    let at = || format!("codec '{}'", last.codec.name());
    if before.is_empty() {
        return finish(Some(last.codec), payload).at(at);
    }
    match last.decoded {
        Size::Exact(bytes) => scratch::with(bytes as usize, |decoded| {
            last.codec.decode_into(payload, decoded).at(at)?;
            undo(before, decoded, finish)
        }),
        size => {
            let limit_bytes = size.bound().unwrap_or(0);
            let decoded = last.codec.decode(payload, limit_bytes).at(at)?;
            undo(before, &decoded, finish)
        }
    }
}

impl BytesToBytes for Conditional {
    fn name(&self) -> &str {
        "conditional"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        let header = self.header_bytes as u64;
        if self.codecs.is_empty() {
            return decoded.plus(header);
        }
        // Any codec may be left out, so each step takes the larger of both bounds.
        let larger = |before: Size, codec: &Arc<dyn BytesToBytes>| {
            let after = codec.encoded_size(before).within(decoded);
            Some(Size::AtMost(before.bound()?.max(after.bound()?)))
        };
        let all = self.codecs.iter().try_fold(decoded, larger);
        all.map_or(Size::Unknown, |size| size.plus(header))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let (applied, payload) = self.read(encoded, Size::Exact(decoded.len() as u64))?;
        let undone = undo(&applied, payload, |first, bytes| match first {
            Some(codec) => codec.decode_into(bytes, decoded),
            None => {
                expect_encoded_size(bytes.len(), decoded.len())?;
                decoded.copy_from_slice(bytes);
                Ok(())
            }
        });
        undone.map_err(above_bound)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let (applied, payload) = self.read(encoded, Size::AtMost(limit_bytes))?;
        undo(&applied, payload, |first, bytes| match first {
            Some(codec) => codec.decode(bytes, limit_bytes),
            None if bytes.len() as u64 > limit_bytes => Err(above_limit(bytes.len(), limit_bytes)),
            None => Ok(bytes.to_vec()),
        })
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let mut header = vec![0; self.header_bytes];
        let mut current = decoded;
        for (bit, codec) in self.codecs.iter().enumerate() {
            let has_fixed_size = matches!(codec.encoded_size(Size::Exact(current.len() as u64)), Size::Exact(_));
            let encoded = codec.encode(Cow::Borrowed(&current)).at(|| format!("codec '{}'", codec.name()))?;
            if has_fixed_size || encoded.len() < current.len() {
                header[bit / 8] |= 1 << (bit % 8);
                current = Cow::Owned(encoded);
            }
        }
        header.extend_from_slice(&current);
        Ok(header)
    }
}
