//! Running sums and products (scans) of arrays in host memory. They combine in the same order as `scan.cu`.

use crate::array::dtype::DType;
use crate::array::ndbuffer::NdBuffer;
use crate::error::Result;
use crate::ops::lines::Lines;
use crate::ops::nan::Canonical;
use crate::ops::scan::{SEGMENT, Scan};

/// A number type in which running sums and products are computed.
trait Accumulator: Copy {
    fn combine(self, other: Self, operation: Scan) -> Self;
    /// Returns the number as it appears in a result, where every NaN is the canonical one.
    fn settled(self) -> Self;
}

impl Accumulator for i64 {
    fn combine(self, other: i64, operation: Scan) -> i64 {
        match operation {
            Scan::Sum => self.wrapping_add(other),
            Scan::Product => self.wrapping_mul(other),
        }
    }

    fn settled(self) -> i64 {
        self
    }
}

impl Accumulator for f64 {
    fn combine(self, other: f64, operation: Scan) -> f64 {
        match operation {
            Scan::Sum => self + other,
            Scan::Product => self * other,
        }
    }

    fn settled(self) -> f64 {
        self.canonical()
    }
}

/// Running sums and products of complex numbers, each a real and an imaginary part.
impl Accumulator for [f64; 2] {
    fn combine(self, other: [f64; 2], operation: Scan) -> [f64; 2] {
        let ([a, b], [c, d]) = (self, other);
        match operation {
            Scan::Sum => [a + c, b + d],
            Scan::Product => [a * c - b * d, a * d + b * c],
        }
    }

    fn settled(self) -> [f64; 2] {
        self.map(f64::canonical)
    }
}

/// Computes running sums or products of a packed array of int64, float64 or complex128.
pub(super) fn scan(values: NdBuffer, lines: Lines, operation: Scan) -> Result<NdBuffer> {
    let shape = values.shape().to_vec();
    match values.dtype() {
        DType::INT64 => {
            let mut values = values.into_vec::<i64>()?;
            scan_in_place(&mut values, lines, operation);
            NdBuffer::from_vec(values, &shape)
        }
        DType::FLOAT64 => {
            let mut values = values.into_vec::<f64>()?;
            scan_in_place(&mut values, lines, operation);
            NdBuffer::from_vec(values, &shape)
        }
        complex => {
            let pairs = [&shape[..], &[2]].concat();
            let mut parts = values.reinterpret(DType::FLOAT64)?.reshape(&pairs)?.into_vec::<f64>()?;
            scan_in_place(parts.as_chunks_mut::<2>().0, lines, operation);
            NdBuffer::from_vec(parts, &[&shape[..shape.len() - 1], &[2 * shape[shape.len() - 1]]].concat())?
                .reinterpret(complex)
        }
    }
}

/// Computes running sums or products of all lines of an array along one dimension, in place. Neighbouring lines advance
/// together, row by row, so that memory is read in its order.
///
/// A stored value serves as the total before the next element, although its NaN is the canonical one: whatever is combined
/// with a NaN is a NaN again.
fn scan_in_place<T: Accumulator>(values: &mut [T], lines: Lines, operation: Scan) {
    let (inner, extent) = (lines.inner as usize, lines.extent as usize);
    if values.is_empty() {
        return;
    }
    let segment = SEGMENT as usize;
    let segments = extent.div_ceil(segment);
    let combine = |total: &mut [T], row: &[T]| {
        total.iter_mut().zip(row).for_each(|(total, &value)| *total = total.combine(value, operation));
    };
    let mut totals = Vec::new();
    if segments > 1 {
        totals.reserve(values.len() / extent * segments);
        for rows in values.chunks_exact(extent * inner).flat_map(|line| line.chunks(segment * inner)) {
            let at = totals.len();
            totals.extend_from_slice(&rows[..inner]);
            rows[inner..].chunks_exact(inner).for_each(|row| combine(&mut totals[at..], row));
        }
        scan_in_place(&mut totals, Lines { extent: segments as u64, ..lines }, operation);
    }
    for (line, rows) in values.chunks_exact_mut(extent * inner).enumerate() {
        for (number, rows) in rows.chunks_mut(segment * inner).enumerate() {
            let (mut total, mut rest) = rows.split_at_mut(inner);
            if number > 0 {
                let before = &totals[(line * segments + number - 1) * inner..][..inner];
                total.iter_mut().zip(before).for_each(|(value, before)| *value = before.combine(*value, operation));
            }
            total.iter_mut().for_each(|value| *value = value.settled());
            while !rest.is_empty() {
                let (row, others) = rest.split_at_mut(inner);
                row.iter_mut().zip(&*total).for_each(|(value, total)| {
                    *value = total.combine(*value, operation).settled();
                });
                (total, rest) = (row, others);
            }
        }
    }
}
