//! Models that are slow and plainly right: one list of byte offsets per array, one element at a time.

use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{Arithmetic, DType, DTypeKind, ElementStep, Order, Packing, Tail, Transfer};

/// Where each element of an array lies, in C order.
#[derive(Clone, Debug)]
pub struct Offsets {
    pub shape: Vec<usize>,
    pub bytes: Vec<usize>,
}

/// Every index of a shape, in C order.
pub fn indexes(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in shape {
        all = all.iter().flat_map(|index| (0..extent).map(|at| [index.clone(), vec![at]].concat())).collect();
    }
    all
}

impl Offsets {
    pub fn packed(shape: &[usize], element_bytes: usize, order: Order) -> Offsets {
        let position = |index: &Vec<usize>| {
            let axes: Vec<usize> = match order {
                Order::C => (0..shape.len()).collect(),
                Order::F => (0..shape.len()).rev().collect(),
            };
            axes.iter().fold(0, |sum, &axis| sum * shape[axis] + index[axis]) * element_bytes
        };
        Offsets { shape: shape.to_vec(), bytes: indexes(shape).iter().map(position).collect() }
    }

    pub fn at(&self, index: &[usize]) -> usize {
        self.bytes[index.iter().zip(&self.shape).fold(0, |sum, (&at, &extent)| sum * extent + at)]
    }

    fn choose(&self, shape: &[usize], source: impl Fn(&[usize]) -> Vec<usize>) -> Offsets {
        let bytes = indexes(shape).iter().map(|index| self.at(&source(index))).collect();
        Offsets { shape: shape.to_vec(), bytes }
    }

    pub fn transpose(&self, axes: &[usize]) -> Offsets {
        let shape: Vec<usize> = axes.iter().map(|&axis| self.shape[axis]).collect();
        self.choose(&shape, |index| {
            let mut source = vec![0; axes.len()];
            axes.iter().zip(index).for_each(|(&axis, &at)| source[axis] = at);
            source
        })
    }

    pub fn region(&self, start: &[usize], extent: &[usize], step: &[usize]) -> Offsets {
        self.choose(extent, |index| (0..index.len()).map(|axis| start[axis] + index[axis] * step[axis]).collect())
    }

    /// The elements, packed in C order.
    pub fn pack(&self, memory: &[u8], element_bytes: usize) -> Vec<u8> {
        self.bytes.iter().flat_map(|&at| memory[at..at + element_bytes].to_vec()).collect()
    }
}

fn shuffled(at: usize, size: usize, unit: usize) -> usize {
    let units = size / unit;
    if at < units * unit { at % unit * units + at / unit } else { at }
}

/// One packed element of a chunk.
fn get(chunk: &[u8], tail: &Tail, index: usize) -> Vec<u8> {
    let size = tail.packed.size_bytes();
    match tail.packing {
        Packing::Plain => chunk[index * size..(index + 1) * size].to_vec(),
        Packing::Shuffled { unit_bytes } => {
            (0..size).map(|byte| chunk[shuffled(index * size + byte, chunk.len(), unit_bytes)]).collect()
        }
        Packing::Bits => vec![chunk[index / 8] >> (7 - index % 8) & 1],
    }
}

fn set(chunk: &mut [u8], tail: &Tail, index: usize, element: &[u8]) {
    let size = tail.packed.size_bytes();
    match tail.packing {
        Packing::Plain => chunk[index * size..(index + 1) * size].copy_from_slice(element),
        Packing::Shuffled { unit_bytes } => {
            let chunk_bytes = chunk.len();
            for (byte, &value) in element.iter().enumerate() {
                chunk[shuffled(index * size + byte, chunk_bytes, unit_bytes)] = value;
            }
        }
        Packing::Bits => {
            let mask = 0x80 >> (index % 8);
            chunk[index / 8] = if element[0] != 0 { chunk[index / 8] | mask } else { chunk[index / 8] & !mask };
        }
    }
}

fn apply(steps: &[ElementStep], mut element: Vec<u8>) -> Vec<u8> {
    for step in steps {
        match *step {
            ElementStep::SwapBytes { unit_bytes } => element.chunks_mut(unit_bytes).for_each(<[u8]>::reverse),
            ElementStep::Cast { from, to } => {
                let mut converted = vec![0; to.size_bytes()];
                // Compared with NumPy in `casts.rs`.
                cast(from, to, &element, &mut converted).unwrap();
                element = converted;
            }
            ElementStep::RoundBits { dtype, dropped_bits } => {
                let parts = element.chunks(dtype.swap_unit_bytes());
                element = parts
                    .flat_map(|part| rounded(number(part), dropped_bits).to_le_bytes()[..part.len()].to_vec())
                    .collect();
            }
            ElementStep::RoundInteger { dtype, kept_bits } => {
                let (bits, width) = (number(&element), 8 * element.len() as u32);
                let length = u128::BITS - bits.leading_zeros();
                let dropped = length.saturating_sub(kept_bits);
                let rounded = rounded(bits, dropped);
                let positive = dtype.kind() == DTypeKind::Int && length < width;
                let fits = rounded < 1 << (width - u32::from(positive));
                // What does not fit keeps its highest bits.
                let rounded = if fits { rounded } else { bits >> dropped << dropped };
                element = rounded.to_le_bytes()[..element.len()].to_vec();
            }
            ElementStep::Arithmetic { operation, dtype, operand } => {
                element = compute(operation, dtype, element, operand)
            }
        }
    }
    element
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u128::from(byte))
}

/// The nearest multiple of 2 to the power of `dropped_bits`, an even one where two are as near.
fn rounded(bits: u128, dropped_bits: u32) -> u128 {
    let unit = 1u128 << dropped_bits;
    let (quotient, rest) = (bits / unit, bits % unit);
    let up = 2 * rest > unit || (2 * rest == unit && quotient % 2 == 1);
    (quotient + u128::from(up)) * unit
}

macro_rules! typed {
    ($element:expr, $operand:expr, $name:ty, |$a:ident, $b:ident| $result:expr) => {{
        let $a = <$name>::from_ne_bytes($element[..].try_into().unwrap());
        let $b = <$name>::from_ne_bytes($operand[..size_of::<$name>()].try_into().unwrap());
        let result: $name = $result;
        result.to_ne_bytes().to_vec()
    }};
}

macro_rules! integer {
    ($operation:expr, $element:expr, $operand:expr, $name:ty) => {
        typed!($element, $operand, $name, |a, b| match $operation {
            Arithmetic::Add => a.wrapping_add(b),
            Arithmetic::Subtract => a.wrapping_sub(b),
            Arithmetic::Multiply => a.wrapping_mul(b),
            Arithmetic::Divide =>
                if b == 0 {
                    0
                } else {
                    a.wrapping_div(b)
                },
            Arithmetic::Round => a,
        })
    };
}

macro_rules! float {
    ($operation:expr, $element:expr, $operand:expr, $name:ty) => {
        typed!($element, $operand, $name, |a, b| match $operation {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
            Arithmetic::Round if a.is_nan() => a + a,
            Arithmetic::Round => a.round_ties_even(),
        })
    };
}

fn compute(operation: Arithmetic, dtype: DType, element: Vec<u8>, operand: [u8; 8]) -> Vec<u8> {
    match dtype {
        DType::INT8 => integer!(operation, element, operand, i8),
        DType::INT16 => integer!(operation, element, operand, i16),
        DType::INT32 => integer!(operation, element, operand, i32),
        DType::INT64 => integer!(operation, element, operand, i64),
        DType::UINT8 => integer!(operation, element, operand, u8),
        DType::UINT16 => integer!(operation, element, operand, u16),
        DType::UINT32 => integer!(operation, element, operand, u32),
        DType::UINT64 => integer!(operation, element, operand, u64),
        DType::FLOAT32 => float!(operation, element, operand, f32),
        DType::FLOAT64 => float!(operation, element, operand, f64),
        // The 2-byte floats compute in binary32.
        narrow => {
            let widen = |bytes: &[u8]| {
                let mut wide = [0; 4];
                cast(narrow, DType::FLOAT32, bytes, &mut wide).unwrap();
                wide.to_vec()
            };
            let mut wide_operand = [0; 8];
            wide_operand[..4].copy_from_slice(&widen(&operand[..2]));
            let wide = compute(operation, DType::FLOAT32, widen(&element), wide_operand);
            let mut result = vec![0; 2];
            cast(DType::FLOAT32, narrow, &wide, &mut result).unwrap();
            result
        }
    }
}

/// Visits every element of a transfer: the chunk's byte range, the element's index in it, its offset in the array.
fn visit(transfer: &Transfer, array: &Offsets, mut action: impl FnMut(std::ops::Range<usize>, usize, usize)) {
    for item in &transfer.boxes {
        for index in indexes(&item.extent) {
            let along: isize =
                index.iter().zip(&transfer.packed_strides).map(|(&at, &stride)| at as isize * stride).sum();
            let place: Vec<usize> = index.iter().zip(&item.start).map(|(&at, &start)| at + start).collect();
            let chunk = item.packed_offset_bytes..item.packed_offset_bytes + item.packed_size_bytes;
            action(chunk, item.packed_first_elem.wrapping_add_signed(along), array.at(&place));
        }
    }
}

pub fn scatter(packed: &[u8], transfer: &Transfer, array: &Offsets, memory: &mut [u8]) {
    visit(transfer, array, |chunk, index, at| {
        let element = apply(&transfer.tail.steps, get(&packed[chunk], &transfer.tail, index));
        memory[at..at + element.len()].copy_from_slice(&element);
    });
}

pub fn gather(memory: &[u8], array: &Offsets, transfer: &Transfer, packed: &mut [u8]) {
    let size = transfer.tail.dtype.size_bytes();
    visit(transfer, array, |chunk, index, at| {
        let element = apply(&transfer.tail.steps_of_writing(), memory[at..at + size].to_vec());
        set(&mut packed[chunk], &transfer.tail, index, &element);
    });
}
