//! Converts elements exactly from one number type to another, on the host.

use std::collections::HashMap;

use cuzarr_device::internal::convert;
use cuzarr_device::internal::convert::{OutOfRange, Rounding, Rule};
use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{DType, Tail};

use super::ChunkSpec;
use super::number::{Number, integer_range, round_to_float, round_to_integer, write_float, write_integer};
use crate::codec::damage::{corrupt, expect_encoded_size, unencodable};
use crate::codec::elements::{cast_step, is_float};
use crate::codec::host::{ArrayToArray, TailPart};
use crate::codec::native::{Map, Step};
use crate::codec::scale_offset::EncodedFill;
use crate::{Error, Result};

/// How elements are converted in one direction: when encoding, or when decoding.
#[derive(Debug)]
pub(super) struct Conversion {
    pub(super) from: DType,
    pub(super) to: DType,
    pub(super) rounding: Rounding,
    pub(super) out_of_range: OutOfRange,
    /// Elements that are replaced by other elements before the conversion.
    pub(super) map: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug)]
pub(super) struct CastValue {
    pub(super) encode: Conversion,
    pub(super) decode: Conversion,
    pub(super) encoded: ChunkSpec,
}

impl Conversion {
    /// Whether every value of `from` is also a value of `to`, so that nothing needs to be rounded or checked.
    fn is_widening(&self) -> bool {
        let digits = |dtype: DType| match dtype {
            DType::FLOAT64 => 53,
            DType::FLOAT32 => 24,
            _ => 0,
        };
        match (is_float(self.from), is_float(self.to)) {
            (false, false) => {
                let ((low, high), (to_low, to_high)) = (integer_range(self.from), integer_range(self.to));
                to_low <= low && high <= to_high
            }
            (false, true) => self.from.size_bytes() * 8 <= digits(self.to),
            (true, true) => self.to == DType::FLOAT64 || self.from == self.to,
            (true, false) => false,
        }
    }

    /// The conversion in the form that kernels take; `None` if they do not support it.
    fn on_device(&self) -> Option<convert::Conversion> {
        let rule = Rule::Cast { rounding: self.rounding, out_of_range: self.out_of_range };
        let bits = |element: &[u8]| {
            let mut bits = [0; 8];
            bits[..element.len()].copy_from_slice(element);
            bits
        };
        let pairs = self.map.iter().map(|(key, value)| (bits(key), bits(value))).collect();
        Some(convert::Conversion { from: self.from, to: self.to, rule, pairs }).filter(convert::is_supported)
    }

    /// Converts packed elements; an error names the element that cannot be converted.
    fn convert(&self, source: &[u8], target: &mut [u8], error: fn(String) -> Error) -> Result<()> {
        if self.map.is_empty() && self.is_widening() {
            return match self.from == self.to {
                true => {
                    target.copy_from_slice(source);
                    Ok(())
                }
                false => Ok(cast(self.from, self.to, source, target)?),
            };
        }
        let exact: HashMap<&[u8], &[u8]> = self.map.iter().rev().map(|(key, value)| (&key[..], &value[..])).collect();
        let keys: Vec<_> = self.map.iter().map(|(key, value)| (Number::read(self.from, key), value)).collect();
        let targets = target.chunks_exact_mut(self.to.size_bytes());
        for (index, (element, target)) in source.chunks_exact(self.from.size_bytes()).zip(targets).enumerate() {
            let number = Number::read(self.from, element);
            // Most elements are found by their bytes; NaNs with other payloads and the other zero, by value.
            let replacement = exact.get(element).copied();
            let by_value = || keys.iter().find(|(key, _)| key.is(number)).map(|(_, value)| &value[..]);
            match replacement.or_else(by_value) {
                Some(value) => target.copy_from_slice(value),
                None => self.one(number, target).map_err(|what| error(format!("element {index}: {what}")))?,
            }
        }
        Ok(())
    }

    fn one(&self, number: Number, target: &mut [u8]) -> Result<(), String> {
        if is_float(self.to) {
            return self.one_float(number, target);
        }
        let integer = match number {
            Number::Integer(value) => value,
            Number::Float(value) if value.is_finite() => self.integer_of(round_to_integer(value, self.rounding)),
            Number::Float(value) => return Err(format!("{value} has no value of {}", self.to)),
        };
        let (low, high) = integer_range(self.to);
        let fitting = match self.out_of_range {
            _ if (low..=high).contains(&integer) => integer,
            OutOfRange::Error => return Err(format!("{integer} is not in {low} to {high}, the range of {}", self.to)),
            OutOfRange::Clamp => integer.clamp(low, high),
            OutOfRange::Wrap => integer,
        };
        write_integer(fitting, self.to, target);
        Ok(())
    }

    /// Converts a whole float to an integer, exactly below 2¹²⁷. Above, only the sign or the low 64 bits can matter,
    /// and these are 0.
    fn integer_of(&self, whole: f64) -> i128 {
        match (whole.abs() < 2f64.powi(127), self.out_of_range) {
            (true, _) => whole as i128,
            (false, OutOfRange::Wrap) => 0,
            (false, _) if whole > 0.0 => i128::MAX,
            (false, _) => i128::MIN,
        }
    }

    fn one_float(&self, number: Number, target: &mut [u8]) -> Result<(), String> {
        let rounded = round_to_float(number, self.to, self.rounding);
        let was_finite = !matches!(number, Number::Float(value) if !value.is_finite());
        if rounded.is_infinite() && was_finite && self.out_of_range == OutOfRange::Error {
            let shown = match number {
                Number::Integer(value) => value.to_string(),
                Number::Float(value) => value.to_string(),
            };
            return Err(format!("{shown} is beyond the range of {}", self.to));
        }
        write_float(rounded, self.to, target);
        Ok(())
    }
}

impl EncodedFill for CastValue {
    fn encoded_mut(&mut self) -> &mut ChunkSpec {
        &mut self.encoded
    }
}

impl CastValue {
    fn check(&self, decoded: &[u8], encoded: &[u8]) -> Result<()> {
        let count = decoded.len() / self.encode.from.size_bytes();
        expect_encoded_size(encoded.len(), count * self.encode.to.size_bytes())
    }
}

impl ArrayToArray for CastValue {
    fn name(&self) -> &str {
        "cast_value"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        self.check(decoded, encoded)?;
        self.decode.convert(encoded, decoded, corrupt)
    }

    fn native(&self) -> Option<Vec<Step>> {
        let Conversion { from, to, map, .. } = &self.decode;
        let len = usize::try_from(self.encoded.elements()?).ok()?;
        if !map.is_empty() || !self.decode.is_widening() {
            return Some(vec![Step::Convert { conversion: self.decode.on_device()?, len }]);
        }
        let tail = Tail { steps: cast_step(*from, *to).into_iter().collect(), dtype: *to, ..Tail::plain(*from) };
        Some(vec![Step::Map(Map::flat(tail, len))])
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        self.check(decoded, encoded)?;
        self.encode.convert(decoded, encoded, unencodable)
    }

    fn native_encoding(&self) -> Option<convert::Conversion> {
        self.encode.on_device()
    }

    fn tail(&self) -> TailPart {
        TailPart::Host("every element is checked")
    }
}
