//! Encodes blocks of 4 values along each axis to bits, and decodes them.
//!
//! ```text
//! integers:             coefficients
//! integers, reversible: number of planes - 1, coefficients
//! floats:               0 for zeros | 1, exponent, coefficients
//! floats, reversible:   0 for zeros | 1, 0, exponent, planes - 1, coefficients | 1, 1, planes - 1, coefficients
//! ```
//!
//! The exponent is that of the largest value, biased; floats become integers relative to it. In the last form, which
//! has no exponent, the floats' bits are the integers. Blocks that have fewer bits than the minimum are filled up with
//! zeros.

use super::bits::{BitReader, BitWriter};
use super::parameters::Parameters;
use super::planes::{self, MOST_VALUES, PlaneExtent};
use super::transform::{Integer, back, forward};

/// How the zfp blocks of one array are coded: the parameters, and the order of coefficients in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZfpBlocks {
    pub(super) parameters: Parameters,
    pub(super) ndim: usize,
    pub(super) order: &'static [u8],
}

/// Minimum and maximum number of bits that the not yet coded rest of a zfp block takes.
#[derive(Clone, Copy)]
struct BlockRoom {
    least: u32,
    most: u32,
}

impl BlockRoom {
    fn behind(self, bits: u32) -> BlockRoom {
        BlockRoom { least: self.least.saturating_sub(bits), most: self.most.saturating_sub(bits) }
    }
}

impl ZfpBlocks {
    fn room(&self) -> BlockRoom {
        BlockRoom { least: self.parameters.least_bits, most: self.parameters.most_bits }
    }

    /// Number of bit planes that are stored of a zfp block of floats whose largest exponent is `exponent`.
    fn planes(&self, exponent: i32) -> u32 {
        let lowest = i64::from(exponent) - i64::from(self.parameters.least_exponent) + 2 * self.ndim as i64 + 2;
        self.parameters.planes.min(u32::try_from(lowest.max(0)).unwrap_or(u32::MAX))
    }

    fn encode_integers<I: Integer>(&self, writer: &mut BitWriter, block: &mut [I], planes: u32, room: BlockRoom) {
        let coefficients = &mut [0; MOST_VALUES][..block.len()];
        let is_reversible = self.parameters.is_reversible();
        forward(block, is_reversible, self.order, coefficients);
        let (mut planes, mut used) = (planes, 0);
        if is_reversible {
            let set = coefficients.iter().fold(0, |set, one| set | one);
            planes = planes.min(I::WIDTH - set.trailing_zeros().min(I::WIDTH)).max(1);
            writer.write(u64::from(planes - 1), I::PLANES_BITS);
            used = I::PLANES_BITS;
        }
        let extent = PlaneExtent { width: I::WIDTH, planes, most_bits: room.most.saturating_sub(used) };
        used += planes::encode(writer, extent, coefficients);
        writer.write_zeros(room.least.saturating_sub(used));
    }

    fn decode_integers<I: Integer>(&self, reader: &mut BitReader<'_>, block: &mut [I], planes: u32, room: BlockRoom) {
        let coefficients = &mut [0; MOST_VALUES][..block.len()];
        let is_reversible = self.parameters.is_reversible();
        let (mut planes, mut used) = (planes, 0);
        if is_reversible {
            planes = reader.read(I::PLANES_BITS) as u32 + 1;
            used = I::PLANES_BITS;
        }
        let extent = PlaneExtent { width: I::WIDTH, planes, most_bits: room.most.saturating_sub(used) };
        used += planes::decode(reader, extent, coefficients);
        reader.skip(room.least.saturating_sub(used));
        back(coefficients, is_reversible, self.order, block);
    }
}

/// A type of values that zfp blocks can hold.
pub(super) trait Value: Copy + Default {
    fn encode(blocks: &ZfpBlocks, writer: &mut BitWriter, block: &mut [Self]);
    fn decode(blocks: &ZfpBlocks, reader: &mut BitReader<'_>, block: &mut [Self]);
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn encode(blocks: &ZfpBlocks, writer: &mut BitWriter, block: &mut [Self]) {
                blocks.encode_integers(writer, block, blocks.parameters.planes, blocks.room());
            }

            fn decode(blocks: &ZfpBlocks, reader: &mut BitReader<'_>, block: &mut [Self]) {
                blocks.decode_integers(reader, block, blocks.parameters.planes, blocks.room());
            }
        }
    )*};
}

integers!(i32, i64);

/// A float type, with the parts of IEEE 754 that the coding of blocks needs.
trait ZfpFloat: Value + PartialEq {
    type Integer: Integer;
    /// Number of bits of the exponent field in this float type.
    const EXPONENT_BITS: u32;
    /// Number of bits of the fraction field, after the exponent field.
    const FRACTION_BITS: u32;
    /// The number that is added to an exponent to store it, so that the smallest is stored as 0.
    const BIAS: i32 = (1 << (Self::EXPONENT_BITS - 1)) - 1;

    fn to_bits64(self) -> u64;
    fn of_bits64(bits: u64) -> Self;
    fn is_number(self) -> bool;
    /// The integer part of this float times 2^`power`, which must be in the range of `Self::Integer`.
    fn scaled(self, power: i32) -> Self::Integer;
    /// The float that is an integer times 2^`power`. A power below the smallest float counts as 0.
    fn of_integer(integer: Self::Integer, power: i32) -> Self;
    /// The float's bits (sign and magnitude) as an integer of the same sign. `of_reinterpreted` is the inverse.
    fn reinterpret(self) -> Self::Integer;
    fn of_reinterpreted(integer: Self::Integer) -> Self;
}

macro_rules! float {
    ($($type:ty, $integer:ty, $exponent_bits:literal, $fraction_bits:literal;)*) => {$(
        impl ZfpFloat for $type {
            type Integer = $integer;
            const EXPONENT_BITS: u32 = $exponent_bits;
            const FRACTION_BITS: u32 = $fraction_bits;

            fn to_bits64(self) -> u64 {
                u64::from(self.to_bits())
            }

            fn of_bits64(bits: u64) -> Self {
                <$type>::from_bits(bits as _)
            }

            fn is_number(self) -> bool {
                self.is_finite()
            }

            fn scaled(self, power: i32) -> $integer {
                // Two factors, as one would overflow for the smallest floats.
                let half = power / 2;
                (self * power_of_two::<$type>(half) * power_of_two::<$type>(power - half)) as $integer
            }

            fn of_integer(integer: $integer, power: i32) -> Self {
                power_of_two::<$type>(power) * integer as $type
            }

            fn reinterpret(self) -> $integer {
                let bits = self.to_bits() as $integer;
                if bits < 0 { bits ^ <$integer>::MAX } else { bits }
            }

            fn of_reinterpreted(integer: $integer) -> Self {
                <$type>::from_bits((if integer < 0 { integer ^ <$integer>::MAX } else { integer }) as _)
            }
        }

        impl Value for $type {
            fn encode(blocks: &ZfpBlocks, writer: &mut BitWriter, block: &mut [Self]) {
                encode_floats(blocks, writer, block);
            }

            fn decode(blocks: &ZfpBlocks, reader: &mut BitReader<'_>, block: &mut [Self]) {
                decode_floats(blocks, reader, block);
            }
        }
    )*};
}

float! {
    f32, i32, 8, 23;
    f64, i64, 11, 52;
}

/// 2^`power` as a float; 0 below the smallest float. The largest powers that blocks have are in range.
fn power_of_two<F: ZfpFloat>(power: i32) -> F {
    let biased = i64::from(power) + i64::from(F::BIAS);
    let subnormal = biased - 1 + i64::from(F::FRACTION_BITS);
    F::of_bits64(match (biased, subnormal) {
        (1.., _) => (biased as u64) << F::FRACTION_BITS,
        (_, 0..) => 1 << subnormal,
        _ => 0,
    })
}

/// The exponent of the power of two just above the largest magnitude, but not below that of subnormal numbers; `-BIAS`
/// if all values are 0.
fn exponent<F: ZfpFloat>(block: &[F]) -> i32 {
    let magnitude = |value: &F| value.to_bits64() << 1 & (u64::MAX >> (63 - F::EXPONENT_BITS - F::FRACTION_BITS));
    match block.iter().map(magnitude).max().unwrap_or(0) {
        0 => -F::BIAS,
        largest => (largest >> (F::FRACTION_BITS + 1)) as i32 - (F::BIAS - 1),
    }
}

/// The exponent of the factor that turns floats of a block with this exponent into integers.
fn scale<F: ZfpFloat>(exponent: i32) -> i32 {
    F::Integer::WIDTH as i32 - 2 - exponent
}

fn encode_floats<F: ZfpFloat>(blocks: &ZfpBlocks, writer: &mut BitWriter, block: &mut [F]) {
    let integers = &mut [F::Integer::default(); MOST_VALUES][..block.len()];
    let is_reversible = blocks.parameters.is_reversible();
    let exponent = exponent(block);
    let (room, scale) = (blocks.room(), scale::<F>(exponent));
    let is_finite = block.iter().all(|value| value.is_number());
    if is_finite {
        integers.iter_mut().zip(&*block).for_each(|(integer, value)| *integer = value.scaled(scale));
    }
    let biased = (exponent + F::BIAS) as u64;
    if !is_reversible {
        let planes = blocks.planes(exponent);
        if planes == 0 || biased == 0 {
            writer.write(0, 1);
            return writer.write_zeros(room.least.saturating_sub(1));
        }
        writer.write(biased << 1 | 1, 1 + F::EXPONENT_BITS);
        return blocks.encode_integers(writer, integers, planes, room.behind(1 + F::EXPONENT_BITS));
    }
    let again = |(integer, value): (&F::Integer, &F)| F::of_integer(*integer, -scale).to_bits64() == value.to_bits64();
    let used = if !(is_finite && integers.iter().zip(&*block).all(again)) {
        writer.write(0b11, 2);
        integers.iter_mut().zip(&*block).for_each(|(integer, value)| *integer = value.reinterpret());
        2
    } else if biased == 0 {
        return writer.write(0, 1);
    } else {
        writer.write(biased << 2 | 1, 2 + F::EXPONENT_BITS);
        2 + F::EXPONENT_BITS
    };
    blocks.encode_integers(writer, integers, blocks.parameters.planes, room.behind(used));
}

fn decode_floats<F: ZfpFloat>(blocks: &ZfpBlocks, reader: &mut BitReader<'_>, block: &mut [F]) {
    let integers = &mut [F::Integer::default(); MOST_VALUES][..block.len()];
    let is_reversible = blocks.parameters.is_reversible();
    let room = blocks.room();
    if reader.read(1) == 0 {
        block.fill(F::default());
        if !is_reversible {
            reader.skip(room.least.saturating_sub(1));
        }
        return;
    }
    if is_reversible && reader.read(1) == 1 {
        blocks.decode_integers(reader, integers, blocks.parameters.planes, room.behind(2));
        block.iter_mut().zip(&*integers).for_each(|(value, integer)| *value = F::of_reinterpreted(*integer));
        return;
    }
    let exponent = reader.read(F::EXPONENT_BITS) as i32 - F::BIAS;
    let used = 1 + u32::from(is_reversible) + F::EXPONENT_BITS;
    let planes = if is_reversible { blocks.parameters.planes } else { blocks.planes(exponent) };
    blocks.decode_integers(reader, integers, planes, room.behind(used));
    let power = -scale::<F>(exponent);
    block.iter_mut().zip(&*integers).for_each(|(value, integer)| *value = F::of_integer(*integer, power));
}
