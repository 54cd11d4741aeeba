//! numcodecs' layout of variable-length elements, which `vlen-utf8` and `vlen-bytes` share.
//!
//! ```text
//! count u32, then per element: size u32, that many bytes            (little endian)
//! ```

use super::VariableElements;
use super::damage::{corrupt, unencodable};
use super::host::VariableToBytes;
use crate::Result;

/// A codec of variable-length elements, each with its length in front.
#[derive(Debug)]
pub(crate) struct VLen {
    pub(crate) name: &'static str,
    /// Whether the elements are text, and so must be valid UTF-8.
    pub(crate) text: bool,
}

fn word(encoded: &[u8], at: usize) -> Option<usize> {
    encoded.get(at..)?.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) as usize)
}

impl VLen {
    /// Refuses elements that are not UTF-8, if the codec is one of text. The error is the index of the first such
    /// element. Checking all bytes at once is faster than checking each element.
    fn check(&self, elements: &VariableElements) -> std::result::Result<(), usize> {
        if !self.text {
            return Ok(());
        }
        let is_text = match std::str::from_utf8(&elements.data) {
            Ok(data) => elements.offsets.iter().all(|&offset| data.is_char_boundary(offset as usize)),
            Err(_) => false,
        };
        let first = || elements.iter().position(|element| std::str::from_utf8(element).is_err());
        if is_text { Ok(()) } else { first().map_or(Ok(()), Err) }
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
        // Every element takes 4 bytes for its size, so the number of bytes bounds the number of elements.
        if claimed > encoded.len() / 4 {
            return Err(corrupt(format!("{} bytes are too few for {claimed} elements", encoded.len())));
        }
        let mut elements = VariableElements::with_capacity(claimed);
        elements.data.reserve_exact(encoded.len().saturating_sub(4 + 4 * claimed));
        let mut at = 4;
        for index in 0..claimed {
            let size = word(encoded, at);
            let element = size.and_then(|size| encoded.get(at + 4..(at + 4).checked_add(size)?));
            let Some(element) = element else {
                let length = encoded.len();
                return Err(corrupt(format!("byte {at}: element {index} leaves the chunk of {length} bytes")));
            };
            elements.push(element);
            at += 4 + element.len();
        }
        self.check(&elements).map_err(|index| {
            let at = 4 + 4 * index as u64 + elements.offsets[index];
            corrupt("not UTF-8").at(format!("byte {at}: element {index}"))
        })?;
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
        self.check(elements).map_err(|index| unencodable(format!("element {index} is not UTF-8")))?;
        for element in elements.iter() {
            encoded.extend_from_slice(&size(element.len(), "bytes in an element")?);
            encoded.extend_from_slice(element);
        }
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_split_over_two_elements_is_refused_at_the_first() {
        let bytes = VLen { name: "vlen-bytes", text: false };
        let text = VLen { name: "vlen-utf8", text: true };
        let mut elements = VariableElements::with_capacity(3);
        ["a".as_bytes(), &"ü".as_bytes()[..1], &"ü".as_bytes()[1..]].iter().for_each(|element| elements.push(element));
        let encoded = bytes.encode(&elements).unwrap();
        assert_eq!(bytes.decode(&encoded, 3).unwrap(), elements);
        let error = text.decode(&encoded, 3).unwrap_err();
        assert_eq!(error.trail(), ["byte 9: element 1"]);
        assert!(text.encode(&elements).unwrap_err().message().contains("element 1 is not UTF-8"));
    }
}
