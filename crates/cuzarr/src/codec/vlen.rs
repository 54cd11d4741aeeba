//! numcodecs' layout of variable-length elements, which `vlen-utf8` and `vlen-bytes` share.
//!
//! ```text
//! count u32, then per element: size u32, that many bytes            (little endian)
//! ```

use super::VariableElements;
use super::damage::{corrupt, unencodable};
use super::host::VariableToBytes;
use crate::{Result, ResultExt};

/// A codec of this layout.
#[derive(Debug)]
pub(crate) struct VLen {
    pub(crate) name: &'static str,
    /// Elements must be UTF-8.
    pub(crate) text: bool,
}

fn word(encoded: &[u8], at: usize) -> Option<usize> {
    encoded.get(at..)?.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) as usize)
}

impl VLen {
    fn check(&self, element: &[u8]) -> Result<()> {
        match self.text && std::str::from_utf8(element).is_err() {
            true => Err(corrupt("not UTF-8")),
            false => Ok(()),
        }
    }
}

impl VariableToBytes for VLen {
    fn name(&self) -> &str {
        self.name
    }

    fn decode(&self, encoded: &[u8], count: u64) -> Result<VariableElements> {
        let claimed =
            word(encoded, 0).ok_or_else(|| corrupt(format!("got {} bytes, expected a header of 4", encoded.len())))?;
        if claimed as u64 != count {
            return Err(corrupt(format!("byte 0: the header says {claimed} elements, expected {count}")));
        }
        // Every element has a size of its own, so what is there bounds how many there can be.
        if claimed > encoded.len() / 4 {
            return Err(corrupt(format!("{} bytes are too few for {claimed} elements", encoded.len())));
        }
        let mut elements = VariableElements::with_capacity(claimed);
        let mut at = 4;
        for index in 0..claimed {
            let size = word(encoded, at);
            let element = size.and_then(|size| encoded.get(at + 4..(at + 4).checked_add(size)?));
            let Some(element) = element else {
                let length = encoded.len();
                return Err(corrupt(format!("byte {at}: element {index} leaves the chunk of {length} bytes")));
            };
            self.check(element).at(|| format!("byte {at}: element {index}"))?;
            elements.push(element);
            at += 4 + element.len();
        }
        match at == encoded.len() {
            true => Ok(elements),
            false => Err(corrupt(format!("byte {at}: {} bytes follow the last element", encoded.len() - at))),
        }
    }

    fn encode(&self, elements: &VariableElements) -> Result<Vec<u8>> {
        let size = |bytes: usize, what: &str| {
            // numcodecs reads the words as C's int.
            i32::try_from(bytes)
                .map(i32::to_le_bytes)
                .map_err(|_| unencodable(format!("{bytes} {what}, at most 2³¹ - 1 fit")))
        };
        let mut encoded = Vec::with_capacity(4 + 4 * elements.len() + elements.data.len());
        encoded.extend_from_slice(&size(elements.len(), "elements")?);
        for (index, element) in elements.iter().enumerate() {
            self.check(element).map_err(|_| unencodable(format!("element {index} is not UTF-8")))?;
            encoded.extend_from_slice(&size(element.len(), "bytes in an element")?);
            encoded.extend_from_slice(element);
        }
        Ok(encoded)
    }
}
