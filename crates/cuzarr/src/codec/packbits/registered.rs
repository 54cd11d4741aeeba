//! The codec `packbits` as the repository zarr-extensions specifies it. It stores only the bits from `first_bit` to
//! `last_bit` of each number, without gaps.

use std::borrow::Cow;

use cuzarr_device::internal::bits::Fields;
use cuzarr_device::{DType, DTypeKind};
use serde_json::Value;

use crate::Result;
use crate::codec::configuration::Configuration;
use crate::codec::damage::{corrupt, expect_encoded_size};
use crate::codec::host::ArrayToBytes;
use crate::codec::open::{Opened, Request};
use crate::codec::size::Size;
use crate::codec::step::{Location, Step};
use crate::meta::DataType;

/// Where the byte stands that counts the padding bits of the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    None,
    First,
    Last,
}

/// Opens the codec `packbits`, as the registry of Zarr extensions specifies it, from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let members = ["padding_encoding", "first_bit", "last_bit"];
    let configuration = Configuration::new(request.name, request.configuration, &members)?;
    let choices = [("none", Padding::None), ("first_byte", Padding::First), ("last_byte", Padding::Last)];
    let padding = configuration.choice("padding_encoding", &choices)?.unwrap_or(Padding::None);
    let data_type = &*request.spec.data_type;
    let Some((component_bytes, bits, is_signed)) = component(data_type) else {
        return Err(configuration.invalid(format!("takes numbers, got {data_type}")));
    };
    let bit = |key: &str, default: u32| match configuration.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(_) => configuration.integer(key, 0..=i64::from(bits) - 1, 0).map(|bit| bit as u32),
    };
    let (first, last) = (bit("first_bit", 0)?, bit("last_bit", bits - 1)?);
    if last < first {
        return Err(
            configuration.invalid(format!("'last_bit' is {last}, expected at least 'first_bit', which is {first}"))
        );
    }
    let size_bytes = request.spec.size_bytes()?;
    let numbers = size_bytes / component_bytes.max(1);
    let fields = Fields { elem_bytes: component_bytes, elem_bits: bits, first, width: last - first + 1, is_signed };
    Ok(Opened::serializer(PackBitsCodec { padding, numbers, fields }))
}

/// How the numbers of a data type, or the parts of its complex numbers, are stored: bytes, bits, and whether they are
/// signed integers. `None` for other types.
fn component(data_type: &DataType) -> Option<(usize, u32, bool)> {
    if let DataType::Small(number) = data_type {
        return Some((number.part_bytes(), number.part_bits(), number.is_signed_integer()));
    }
    let dtype = data_type.device_dtype().filter(|dtype| dtype.kind() != DTypeKind::Opaque)?;
    let bytes = dtype.swap_unit_bytes();
    let bits = if dtype == DType::BOOL { 1 } else { 8 * bytes as u32 };
    Some((bytes, bits, dtype.kind() == DTypeKind::Int))
}

#[derive(Debug)]
struct PackBitsCodec {
    padding: Padding,
    /// How many numbers a chunk has; each complex number counts as two.
    numbers: usize,
    /// Which bits of each number are stored.
    fields: Fields,
}

impl PackBitsCodec {
    fn packed_bytes(&self) -> usize {
        self.fields.packed_bytes(self.numbers)
    }

    fn padding_bits(&self) -> u8 {
        // Every eight numbers end at a whole byte.
        let bits = self.numbers % 8 * self.fields.width as usize;
        (bits.next_multiple_of(8) - bits) as u8
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.fields.width)
    }

    fn number(&self, kept: u64) -> u64 {
        let extended = match self.fields.is_signed {
            // The sign moves to the highest bit and is repeated on the way back.
            true => ((kept << (64 - self.fields.width)) as i64 >> (64 - self.fields.width)) as u64,
            false => kept,
        };
        extended << self.fields.first & (u64::MAX >> (64 - self.fields.elem_bits))
    }

    /// Expands the stored bits in `packed` to numbers of `BYTES` bytes; `packed` must have 9 more bytes at its end.
    fn unpack<const BYTES: usize>(&self, packed: &[u8], decoded: &mut [u8]) {
        let width = self.fields.width as usize;
        for (at, number) in decoded.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
            let (byte, shift) = (at * width / 8, at * width % 8);
            // One check of the bounds for all of them.
            let from = &packed[byte..byte + 9];
            let word = u64::from_le_bytes(std::array::from_fn(|next| from[next]));
            let kept = word >> shift | u64::from(from[8]) << 1 << (63 - shift);
            let value = self.number(kept & self.mask()).to_le_bytes();
            *number = std::array::from_fn(|byte| value[byte]);
        }
    }

    /// Packs the stored bits of each number without gaps: the inverse of [`PackBitsCodec::unpack`].
    fn pack<const BYTES: usize>(&self, decoded: &[u8], packed: &mut Vec<u8>) {
        // Fewer than 32 bits wait between two numbers.
        let (mut waiting, mut count, width) = (0u64, 0u32, self.fields.width);
        let mut push = |bits: u64, width: u32| {
            waiting |= bits << count;
            count += width;
            if count >= 32 {
                packed.extend_from_slice(&(waiting as u32).to_le_bytes());
                (waiting, count) = (waiting >> 32, count - 32);
            }
        };
        for number in decoded.as_chunks::<BYTES>().0 {
            let value = u64::from_le_bytes(std::array::from_fn(|byte| number.get(byte).copied().unwrap_or(0)));
            let kept = value >> self.fields.first & self.mask();
            push(kept & u64::from(u32::MAX), width.min(32));
            if width > 32 {
                push(kept >> 32, width - 32);
            }
        }
        packed.extend_from_slice(&waiting.to_le_bytes()[..count.div_ceil(8) as usize]);
    }
}

impl ArrayToBytes for PackBitsCodec {
    fn name(&self) -> &str {
        "packbits"
    }

    fn encoded_size(&self) -> Size {
        Size::Exact(self.packed_bytes() as u64 + u64::from(self.padding != Padding::None))
    }

    fn native(&self) -> Option<Vec<Step>> {
        let header = |location| Step::Header { expected: self.padding_bits(), location };
        let header = match self.padding {
            Padding::None => None,
            Padding::First => Some(header(Location::Start)),
            Padding::Last => Some(header(Location::End)),
        };
        Some(header.into_iter().chain([Step::Unpack { fields: self.fields, len: self.numbers }]).collect())
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let packed_bytes = self.packed_bytes();
        expect_encoded_size(encoded.len(), packed_bytes + usize::from(self.padding != Padding::None))?;
        let (packed, padding) = match self.padding {
            Padding::None => (encoded, None),
            Padding::First => (&encoded[1..], Some(encoded[0])),
            Padding::Last => (&encoded[..packed_bytes], Some(encoded[packed_bytes])),
        };
        if let Some(got) = padding.filter(|&got| got != self.padding_bits()) {
            return Err(corrupt(format!("got {got} bits of padding, expected {}", self.padding_bits())));
        }
        // Each number is read from eight bytes and the one after them.
        let padded = [packed, &[0; 9]].concat();
        match self.fields.elem_bytes {
            1 => self.unpack::<1>(&padded, decoded),
            2 => self.unpack::<2>(&padded, decoded),
            4 => self.unpack::<4>(&padded, decoded),
            _ => self.unpack::<8>(&padded, decoded),
        }
        Ok(())
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let mut encoded = Vec::with_capacity(self.packed_bytes() + 1);
        encoded.extend((self.padding == Padding::First).then(|| self.padding_bits()));
        match self.fields.elem_bytes {
            1 => self.pack::<1>(&decoded, &mut encoded),
            2 => self.pack::<2>(&decoded, &mut encoded),
            4 => self.pack::<4>(&decoded, &mut encoded),
            _ => self.pack::<8>(&decoded, &mut encoded),
        }
        encoded.extend((self.padding == Padding::Last).then(|| self.padding_bits()));
        Ok(encoded)
    }
}
