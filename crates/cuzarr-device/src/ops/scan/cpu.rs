//! Scans on the host. They combine in the same order as `scan.cu`.

use crate::array::dtype::DType;
use crate::array::ndbuffer::NdBuffer;
use crate::error::Result;
use crate::ops::lines::Lines;
use crate::ops::nan::Canonical;
use crate::ops::scan::{SEGMENT, Scan};

/// A number type in which elements are combined.
trait Accumulator: Copy {
    fn combine(self, other: Self, operation: Scan) -> Self;
    /// The number as a result: every NaN becomes the canonical one.
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

/// A complex number.
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

/// Scans the elements of a packed array of int64, float64 or complex128.
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

fn scan_in_place<T: Accumulator>(values: &mut [T], lines: Lines, operation: Scan) {
    let segments = lines.extent.div_ceil(SEGMENT);
    let mut totals = Vec::new();
    if segments > 1 {
        for_each_segment(lines, |_, element, count| {
            let mut total = values[element];
            for place in 1..count {
                total = total.combine(values[element + place * lines.inner as usize], operation);
            }
            totals.push(total);
        });
        scan_in_place(&mut totals, Lines { extent: segments, ..lines }, operation);
    }
    let mut at = 0;
    for_each_segment(lines, |segment, element, count| {
        let mut total = values[element];
        if segment > 0 {
            total = totals[at - lines.inner as usize].combine(total, operation);
        }
        values[element] = total.settled();
        for place in 1..count {
            let value = &mut values[element + place * lines.inner as usize];
            total = total.combine(*value, operation);
            *value = total.settled();
        }
        at += 1;
    });
}

/// Calls `action` for each segment, with its number in the line, its first element and its length.
fn for_each_segment(lines: Lines, mut action: impl FnMut(u64, usize, usize)) {
    for line in 0..lines.outer {
        for segment in 0..lines.extent.div_ceil(SEGMENT) {
            let first = segment * SEGMENT;
            let count = SEGMENT.min(lines.extent - first) as usize;
            for column in 0..lines.inner {
                action(segment, ((line * lines.extent + first) * lines.inner + column) as usize, count);
            }
        }
    }
}
