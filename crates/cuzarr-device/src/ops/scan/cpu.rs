//! Running sums and products (scans) of arrays in host memory. They combine in the same order as `scan.cu`.
//!
//! Elements are converted to the working type while they are loaded, and results to their own type while they are
//! stored, so that each element is read from memory once or twice and each result written once. Columns of wide rows are
//! divided into tiles; narrow rows are divided into groups of segments.

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::element::{BFloat, Complex, Element, Half, Real};
use crate::ops::lanes::{Vectors, widest};
use crate::ops::lines::Lines;
use crate::ops::nan::Canonical;
use crate::ops::scan::{SEGMENT, Scan};
use crate::threads::{Threads, cores};

/// Number of columns of a tile: their totals stay in the cache, and each row of a tile is some pages of memory.
const TILE_COLUMNS: usize = 4096;
/// Number of elements that a thread takes at a time if rows are narrow.
const GROUP_ELEMS: usize = 1 << 15;

/// A number type in which running sums and products are computed.
trait Accumulator: Copy + Send + Sync {
    const DTYPE: DType;
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Returns the number as it appears in a result, where every NaN is the canonical one.
    fn settled(self) -> Self;
    fn load<E: Element>(element: E) -> Self;
    fn store<E: Element>(self) -> E;
    /// Adds the bytes of the number to `bytes`.
    fn append_to(self, bytes: &mut Vec<u8>);
    /// Returns the numbers in packed bytes.
    fn all(bytes: &[u8]) -> Vec<Self>;

    #[inline(always)]
    fn combine<const SUM: bool>(self, other: Self) -> Self {
        if SUM { self.add(other) } else { self.multiply(other) }
    }
}

impl Accumulator for i64 {
    const DTYPE: DType = DType::INT64;

    #[inline(always)]
    fn add(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn multiply(self, other: i64) -> i64 {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn settled(self) -> i64 {
        self
    }

    #[inline(always)]
    fn load<E: Element>(element: E) -> i64 {
        element.parts().0.to_i64()
    }

    #[inline(always)]
    fn store<E: Element>(self) -> E {
        E::from_parts((self, 0))
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }

    fn all(bytes: &[u8]) -> Vec<i64> {
        bytes.as_chunks::<8>().0.iter().map(|&number| i64::from_ne_bytes(number)).collect()
    }
}

impl Accumulator for f64 {
    const DTYPE: DType = DType::FLOAT64;

    #[inline(always)]
    fn add(self, other: f64) -> f64 {
        self + other
    }

    #[inline(always)]
    fn multiply(self, other: f64) -> f64 {
        self * other
    }

    #[inline(always)]
    fn settled(self) -> f64 {
        self.canonical()
    }

    #[inline(always)]
    fn load<E: Element>(element: E) -> f64 {
        element.parts().0.to_f64()
    }

    #[inline(always)]
    fn store<E: Element>(self) -> E {
        E::from_parts((self, 0.0))
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }

    fn all(bytes: &[u8]) -> Vec<f64> {
        bytes.as_chunks::<8>().0.iter().map(|&number| f64::from_ne_bytes(number)).collect()
    }
}

/// Running sums and products of complex numbers, each a real and an imaginary part.
impl Accumulator for [f64; 2] {
    const DTYPE: DType = DType::COMPLEX128;

    #[inline(always)]
    fn add(self, other: [f64; 2]) -> [f64; 2] {
        [self[0] + other[0], self[1] + other[1]]
    }

    #[inline(always)]
    fn multiply(self, other: [f64; 2]) -> [f64; 2] {
        let ([a, b], [c, d]) = (self, other);
        [a * c - b * d, a * d + b * c]
    }

    #[inline(always)]
    fn settled(self) -> [f64; 2] {
        self.map(f64::canonical)
    }

    #[inline(always)]
    fn load<E: Element>(element: E) -> [f64; 2] {
        let (real, imaginary) = element.parts();
        [real.to_f64(), imaginary.to_f64()]
    }

    #[inline(always)]
    fn store<E: Element>(self) -> E {
        E::from_parts((self[0], self[1]))
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.map(f64::to_ne_bytes).as_flattened());
    }

    fn all(bytes: &[u8]) -> Vec<[f64; 2]> {
        bytes.as_chunks::<8>().0.as_chunks::<2>().0.iter().map(|parts| parts.map(f64::from_ne_bytes)).collect()
    }
}

/// Computes running sums or products of an array in host memory, in new memory and the array's own type. `before` has
/// the totals of earlier elements. Also returns the new totals, which are not rounded. There must be elements.
pub(super) fn scan(
    values: &NdBuffer,
    lines: Lines,
    operation: Scan,
    before: Option<&NdBuffer>,
) -> Result<(NdBuffer, Vec<u8>)> {
    let packed = if values.is_contiguous(Order::C) { values.clone() } else { values.copy(Order::C)? };
    let source = packed.as_buffer()?;
    let source = source.host_bytes()?;
    let results = NdBuffer::empty(Device::Cpu, values.dtype(), values.shape(), Order::C)?;
    let before = before.map(|before| before.to_host_bytes(Order::C)).transpose()?;
    let target = results.as_buffer()?;
    let mut target = target.host_bytes_mut()?;
    let call = Call { source: &source, target: &mut target, lines, before: before.as_deref(), operation };
    let totals = match (values.dtype().kind(), values.dtype().size_bytes()) {
        (DTypeKind::Int, 1) => call.run::<i8, i64>(),
        (DTypeKind::Int, 2) => call.run::<i16, i64>(),
        (DTypeKind::Int, 4) => call.run::<i32, i64>(),
        // Sums and products that wrap have the same bits with and without a sign.
        (DTypeKind::Int | DTypeKind::UInt, 8) => call.run::<i64, i64>(),
        (DTypeKind::UInt, 1) => call.run::<u8, i64>(),
        (DTypeKind::UInt, 2) => call.run::<u16, i64>(),
        (DTypeKind::UInt, 4) => call.run::<u32, i64>(),
        (DTypeKind::Float, 2) => call.run::<Half, f64>(),
        (DTypeKind::Float, 4) => call.run::<f32, f64>(),
        (DTypeKind::Float, 8) => call.run::<f64, f64>(),
        (DTypeKind::BFloat, 2) => call.run::<BFloat, f64>(),
        (DTypeKind::Complex, 8) => call.run::<Complex<f32>, [f64; 2]>(),
        (DTypeKind::Complex, 16) => call.run::<Complex<f64>, [f64; 2]>(),
        _ => {
            let message = format!("there are no running sums and products of {}", values.dtype());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    Ok((results.clone(), totals))
}

/// The arguments of one call of [`scan`], as bytes.
struct Call<'a> {
    source: &'a [u8],
    target: &'a mut [u8],
    lines: Lines,
    before: Option<&'a [u8]>,
    operation: Scan,
}

impl Call<'_> {
    fn run<E: Element, W: Accumulator>(self) -> Vec<u8> {
        let before = self.before.map(W::all);
        let scanning = Scanning::<W> {
            source: self.source,
            before: before.as_deref(),
            extent: self.lines.extent as usize,
            inner: self.lines.inner as usize,
        };
        let totals = match self.operation {
            Scan::Sum => scanning.run::<E, true>(self.target),
            Scan::Product => scanning.run::<E, false>(self.target),
        };
        let mut bytes = Vec::with_capacity(totals.len() * W::DTYPE.size_bytes());
        totals.into_iter().for_each(|total| total.append_to(&mut bytes));
        bytes
    }
}

/// A scan of all lines of a packed array. The totals before a line count as one more element in front of the others.
struct Scanning<'a, W> {
    source: &'a [u8],
    /// The totals before each line, if there are any.
    before: Option<&'a [W]>,
    extent: usize,
    inner: usize,
}

impl<W: Accumulator> Scanning<'_, W> {
    /// Number of elements of a line, with the totals before it.
    fn len(&self) -> usize {
        self.extent + usize::from(self.before.is_some())
    }

    fn segments(&self) -> usize {
        self.len().div_ceil(SEGMENT as usize)
    }

    /// Computes all results, and returns the totals of all lines.
    fn run<E: Element, const SUM: bool>(&self, target: &mut [u8]) -> Vec<W> {
        if self.inner > TILE_COLUMNS { self.by_tiles::<E, SUM>(target) } else { self.by_groups::<E, SUM>(target) }
    }

    /// Like [`Scanning::run`], for wide rows: each job has some columns of all rows.
    fn by_tiles<E: Element, const SUM: bool>(&self, target: &mut [u8]) -> Vec<W> {
        let row_bytes = self.inner * E::SIZE;
        let mut jobs: Vec<(Part<'_, W>, Vec<&mut [u8]>)> = Vec::new();
        for (outer, block) in target.chunks_mut(self.extent * row_bytes).enumerate() {
            let begun = jobs.len();
            for (number, row) in block.chunks_mut(row_bytes).enumerate() {
                for (tile, piece) in row.chunks_mut(TILE_COLUMNS * E::SIZE).enumerate() {
                    if number == 0 {
                        let (first, columns) = (tile * TILE_COLUMNS, piece.len() / E::SIZE);
                        let part = Part { scanning: self, outer, first, columns, begin: 0, end: self.len() };
                        jobs.push((part, Vec::with_capacity(self.extent)));
                    }
                    jobs[begun + tile].1.push(piece);
                }
            }
        }
        let totals = Threads::workers().map(cores(), jobs, |(part, mut rows)| {
            let segments = self.segments();
            let mut totals = Vec::new();
            if segments > 1 {
                totals = widest(Totals::<'_, W, E, SUM>::new(part));
                scan_in_place::<W, SUM>(&mut totals, segments, part.columns);
            }
            widest(Run::<'_, '_, W, E, SUM, _> {
                part,
                totals: &totals,
                rows: rows.iter_mut(),
                element: Default::default(),
            })
        });
        totals.concat()
    }

    /// Like [`Scanning::run`], for narrow rows: each job has all columns of some segments.
    fn by_groups<E: Element, const SUM: bool>(&self, target: &mut [u8]) -> Vec<W> {
        let (segment, segments, inner) = (SEGMENT as usize, self.segments(), self.inner);
        let each = (GROUP_ELEMS / (segment * inner)).max(1);
        let row_bytes = inner * E::SIZE;
        let part = |outer: usize, group: usize| {
            let (begin, end) = (group * each * segment, ((group + 1) * each * segment).min(self.len()));
            Part { scanning: self, outer, first: 0, columns: inner, begin, end }
        };
        let mut totals = Vec::new();
        if segments > 1 {
            let parts = (0..target.len() / (self.extent * row_bytes))
                .flat_map(|outer| (0..segments.div_ceil(each)).map(move |group| (outer, group)));
            let parts: Vec<_> = parts.map(|(outer, group)| part(outer, group)).collect();
            let of_part = |part: Part<'_, W>| match inner {
                1 => part.line::<E>().totals::<E, SUM>(),
                _ => widest(Totals::<'_, W, E, SUM>::new(part)),
            };
            totals = Threads::workers().map(cores(), parts, of_part).concat();
            totals.chunks_mut(segments * inner).for_each(|line| scan_in_place::<W, SUM>(line, segments, inner));
        }
        let mut jobs = Vec::new();
        for (outer, mut rest) in target.chunks_mut(self.extent * row_bytes).enumerate() {
            for group in 0..segments.div_ceil(each) {
                let part = part(outer, group);
                // The totals before the line are not in the result.
                let skipped = usize::from(self.before.is_some() && group == 0);
                let rows;
                (rows, rest) = rest.split_at_mut((part.end - part.begin - skipped) * row_bytes);
                jobs.push((part, rows));
            }
        }
        let ends = Threads::workers().map(cores(), jobs, |(part, rows)| {
            let totals = totals.get(part.outer * segments * inner..).unwrap_or_default();
            let rows = match inner {
                1 => return part.line::<E>().run::<E, SUM>(&totals[..segments.min(totals.len())], rows),
                _ => rows.chunks_mut(row_bytes),
            };
            let last = widest(Run::<'_, '_, W, E, SUM, _> { part, totals, rows, element: Default::default() });
            if part.end == self.len() { last } else { Vec::new() }
        });
        ends.concat()
    }
}

/// Some neighbouring columns of some neighbouring elements of the lines in one block of an array. `begin` is the first
/// element of a segment. Element 0 is the totals before the line, if there are any.
struct Part<'a, W> {
    scanning: &'a Scanning<'a, W>,
    outer: usize,
    first: usize,
    columns: usize,
    begin: usize,
    end: usize,
}

impl<W> Clone for Part<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Part<'_, W> {}

/// The elements of one row of a [`Part`].
enum Row<'a, W> {
    /// The totals before the line.
    Before(&'a [W]),
    Elements(&'a [u8]),
}

impl<'a, W: Accumulator> Part<'a, W> {
    #[inline(always)]
    fn row<E: Element>(&self, number: usize) -> Row<'a, W> {
        let Scanning { source, before, extent, inner } = *self.scanning;
        let number = match before {
            Some(before) if number == 0 => {
                return Row::Before(&before[self.outer * inner + self.first..][..self.columns]);
            }
            Some(_) => number - 1,
            None => number,
        };
        let at = (self.outer * extent + number) * inner + self.first;
        Row::Elements(&source[at * E::SIZE..(at + self.columns) * E::SIZE])
    }
}

impl<'a, W: Accumulator> Part<'a, W> {
    /// Returns the elements of a part that has one column, whose rows lie side by side.
    fn line<E: Element>(&self) -> Line<'a, W> {
        let Scanning { source, before, extent, .. } = *self.scanning;
        let skipped = usize::from(before.is_some());
        let (before, begin) = match before {
            Some(before) if self.begin == 0 => (Some(before[self.outer]), 0),
            _ => (None, self.begin - skipped),
        };
        let at = self.outer * extent;
        Line {
            before,
            segment: self.begin / SEGMENT as usize,
            elements: &source[(at + begin) * E::SIZE..(at + self.end - skipped) * E::SIZE],
            is_last: self.end == self.scanning.len(),
        }
    }
}

/// Some neighbouring elements of one line, packed. They begin with a segment.
struct Line<'a, W> {
    /// The totals before the line, as one more element.
    before: Option<W>,
    /// The number of the first segment.
    segment: usize,
    elements: &'a [u8],
    /// Whether the line ends with these elements.
    is_last: bool,
}

impl<W: Accumulator> Line<'_, W> {
    /// Returns how many bytes of elements the first segment has, if the totals before the line are its first element.
    fn head_bytes<E: Element>(&self) -> usize {
        let head_bytes = (SEGMENT as usize - 1) * E::SIZE;
        if self.before.is_some() { head_bytes.min(self.elements.len()) } else { 0 }
    }

    fn totals<E: Element, const SUM: bool>(&self) -> Vec<W> {
        let (head, rest) = self.elements.split_at(self.head_bytes::<E>());
        let load = |element: &[u8]| W::load(E::read(element));
        let of_head = self.before.map(|before| {
            head.chunks_exact(E::SIZE).fold(before, |total, element| total.combine::<SUM>(load(element)))
        });
        let of_rest = rest.chunks(SEGMENT as usize * E::SIZE).filter_map(|segment| {
            segment.chunks_exact(E::SIZE).map(load).reduce(|total, element| total.combine::<SUM>(element))
        });
        of_head.into_iter().chain(of_rest).collect()
    }

    /// Writes the results of the elements. Returns the total of the line if it ends here.
    fn run<E: Element, const SUM: bool>(&self, totals: &[W], results: &mut [u8]) -> Vec<W> {
        let head_bytes = self.head_bytes::<E>();
        let (mut sum, mut segment) = (self.before, self.segment);
        let of_segment = |mut sum: W, elements: &[u8], results: &mut [u8]| {
            for (element, result) in elements.chunks_exact(E::SIZE).zip(results.chunks_exact_mut(E::SIZE)) {
                sum = sum.combine::<SUM>(W::load(E::read(element)));
                sum.settled().store::<E>().write(result);
            }
            sum
        };
        let (head, rest) = self.elements.split_at(head_bytes);
        let (head_results, rest_results) = results.split_at_mut(head_bytes);
        if let Some(before) = self.before {
            sum = Some(of_segment(before, head, head_results));
            segment += 1;
        }
        let each = SEGMENT as usize * E::SIZE;
        for (elements, results) in rest.chunks(each).zip(rest_results.chunks_mut(each)) {
            let (first, others) = elements.split_at(E::SIZE);
            let (first_result, results) = results.split_at_mut(E::SIZE);
            let mut own = W::load(E::read(first));
            if segment > 0 {
                own = totals[segment - 1].combine::<SUM>(own);
            }
            own.settled().store::<E>().write(first_result);
            sum = Some(of_segment(own, others, results));
            segment += 1;
        }
        sum.filter(|_| self.is_last).map(W::settled).into_iter().collect()
    }
}

/// Loads the packed elements of a row, and calls `each` with the total of its column.
#[inline(always)]
fn with_elements<W: Accumulator, E: Element>(totals: &mut [W], row: &[u8], each: impl Fn(&mut W, W)) {
    totals
        .iter_mut()
        .zip(row.chunks_exact(E::SIZE))
        .for_each(|(total, element)| each(total, W::load(E::read(element))));
}

/// Computes the total of each segment of a part, for each column.
struct Totals<'a, W, E, const SUM: bool> {
    part: Part<'a, W>,
    element: std::marker::PhantomData<E>,
}

impl<'a, W, E, const SUM: bool> Totals<'a, W, E, SUM> {
    fn new(part: Part<'a, W>) -> Self {
        Totals { part, element: std::marker::PhantomData }
    }
}

impl<W: Accumulator, E: Element, const SUM: bool> Vectors for Totals<'_, W, E, SUM> {
    type Output = Vec<W>;

    #[inline(always)]
    fn run(self) -> Vec<W> {
        let Part { columns, begin, end, .. } = self.part;
        let mut totals = Vec::with_capacity((end - begin).div_ceil(SEGMENT as usize) * columns);
        for first in (begin..end).step_by(SEGMENT as usize) {
            let at = totals.len();
            match self.part.row::<E>(first) {
                Row::Before(before) => totals.extend_from_slice(before),
                Row::Elements(row) => totals.extend(row.chunks_exact(E::SIZE).map(|element| W::load(E::read(element)))),
            }
            let own = &mut totals[at..];
            for number in first + 1..end.min(first + SEGMENT as usize) {
                if let Row::Elements(row) = self.part.row::<E>(number) {
                    with_elements::<W, E>(own, row, |total, element| *total = total.combine::<SUM>(element));
                }
            }
        }
        totals
    }
}

/// Computes the results of a part, and returns the totals behind it. `totals` has those of all segments of the block's
/// lines, scanned; it is empty if there is one segment. `rows` is where the results of each row belong.
struct Run<'a, 't, W, E, const SUM: bool, R> {
    part: Part<'a, W>,
    totals: &'t [W],
    rows: R,
    element: std::marker::PhantomData<E>,
}

impl<W, E, R, T, const SUM: bool> Vectors for Run<'_, '_, W, E, SUM, R>
where
    W: Accumulator,
    E: Element,
    R: Iterator<Item = T>,
    T: AsMut<[u8]>,
{
    type Output = Vec<W>;

    #[inline(always)]
    fn run(mut self) -> Vec<W> {
        let Part { columns, begin, end, .. } = self.part;
        let mut sums: Vec<W> = Vec::with_capacity(columns);
        for number in begin..end {
            let row = self.part.row::<E>(number);
            let is_first = number % SEGMENT as usize == 0;
            match row {
                Row::Before(before) => {
                    sums.extend_from_slice(before);
                    continue;
                }
                Row::Elements(row) if is_first => {
                    sums.clear();
                    sums.extend(row.chunks_exact(E::SIZE).map(|element| W::load(E::read(element))));
                    if number > 0 {
                        let before = &self.totals[(number / SEGMENT as usize - 1) * columns..][..columns];
                        sums.iter_mut().zip(before).for_each(|(sum, &before)| *sum = before.combine::<SUM>(*sum));
                    }
                    let Some(mut target) = self.rows.next() else { break };
                    let results = target.as_mut().chunks_exact_mut(E::SIZE);
                    sums.iter().zip(results).for_each(|(sum, result)| sum.settled().store::<E>().write(result));
                }
                Row::Elements(row) => {
                    let Some(mut target) = self.rows.next() else { break };
                    let elements = row.chunks_exact(E::SIZE).zip(target.as_mut().chunks_exact_mut(E::SIZE));
                    for (sum, (element, result)) in sums.iter_mut().zip(elements) {
                        *sum = sum.combine::<SUM>(W::load(E::read(element)));
                        sum.settled().store::<E>().write(result);
                    }
                }
            }
        }
        sums.iter_mut().for_each(|sum| *sum = sum.settled());
        sums
    }
}

/// Computes running sums or products of lines of totals in place. They have `extent` rows of `inner` columns.
///
/// A stored value serves as the total before the next element, although its NaN is the canonical one: whatever is combined
/// with a NaN is a NaN again.
fn scan_in_place<W: Accumulator, const SUM: bool>(values: &mut [W], extent: usize, inner: usize) {
    let segment = SEGMENT as usize;
    let segments = extent.div_ceil(segment);
    let mut totals = Vec::new();
    if segments > 1 {
        totals.reserve(segments * inner);
        for rows in values.chunks(segment * inner) {
            let at = totals.len();
            totals.extend_from_slice(&rows[..inner]);
            for row in rows[inner..].chunks_exact(inner) {
                let own = totals[at..].iter_mut().zip(row);
                own.for_each(|(total, &value)| *total = total.combine::<SUM>(value));
            }
        }
        scan_in_place::<W, SUM>(&mut totals, segments, inner);
    }
    for (number, rows) in values.chunks_mut(segment * inner).enumerate() {
        let (mut total, mut rest) = rows.split_at_mut(inner);
        if number > 0 {
            let before = &totals[(number - 1) * inner..][..inner];
            total.iter_mut().zip(before).for_each(|(value, before)| *value = before.combine::<SUM>(*value));
        }
        total.iter_mut().for_each(|value| *value = value.settled());
        while !rest.is_empty() {
            let (row, others) = rest.split_at_mut(inner);
            row.iter_mut().zip(&*total).for_each(|(value, total)| *value = total.combine::<SUM>(*value).settled());
            (total, rest) = (row, others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers whose sums are not exact, with NaN, infinities and both zeros among them.
    fn numbers(count: usize) -> Vec<f64> {
        let special = [f64::NAN, f64::INFINITY, -0.0, 0.0, -f64::NAN, f64::NEG_INFINITY];
        let each = |at: usize| match at % 997 {
            996 => special[at / 997 % special.len()],
            _ => (at as f64 * 0.7371).sin() * 3.0 + 0.1,
        };
        (0..count).map(each).collect()
    }

    /// Compares with a scan of whole lines in the working type, row by row.
    fn check<W: Accumulator, const SUM: bool>(dtype: DType, shape: [usize; 3], has_totals: bool) {
        let [outer, extent, inner] = shape;
        let case = format!("{dtype} {shape:?} {SUM} {has_totals}");
        let count = outer * extent * inner;
        let wide = NdBuffer::from_vec(numbers(count), &shape).unwrap();
        let array = wide.astype(dtype, Order::C).unwrap();
        let values = W::all(&array.astype(W::DTYPE, Order::C).unwrap().to_host_bytes(Order::C).unwrap());
        let before = NdBuffer::from_vec(numbers(outer * inner), &[outer, 1, inner]).unwrap();
        let before = before.astype(W::DTYPE, Order::C).unwrap();
        let firsts = W::all(&before.to_host_bytes(Order::C).unwrap());
        let (mut expected, mut totals) = (Vec::new(), Vec::new());
        for (line, first) in values.chunks(extent * inner).zip(firsts.chunks(inner)) {
            let mut line = [if has_totals { first } else { &[] }, line].concat();
            let len = line.len() / inner;
            scan_in_place::<W, SUM>(&mut line, len, inner);
            line[line.len() - extent * inner..].iter().for_each(|value| value.append_to(&mut expected));
            line[line.len() - inner..].iter().for_each(|value| value.append_to(&mut totals));
        }
        let expected = NdBuffer::from_host(Device::Cpu, W::DTYPE, &shape, Order::C, &expected).unwrap();
        let expected = expected.astype(dtype, Order::C).unwrap();
        let operation = if SUM { Scan::Sum } else { Scan::Product };
        let (got, rest) = array.scan_behind(1, operation, Some(&before).filter(|_| has_totals)).unwrap();
        let bytes = |array: &NdBuffer| array.to_host_bytes(Order::C).unwrap();
        assert!(bytes(&got) == bytes(&expected), "{case}");
        let rest = rest.unwrap();
        assert_eq!((rest.dtype(), rest.shape()), (W::DTYPE, &[outer, 1, inner][..]), "{case}");
        assert!(bytes(&rest) == totals, "{case}");
        if !has_totals {
            assert!(bytes(&array.scan(1, operation).unwrap()) == bytes(&expected), "{case}");
        }
    }

    #[test]
    fn lines_of_any_length_and_distance_are_combined_in_the_order_of_the_kernels() {
        let wide = TILE_COLUMNS;
        let group = GROUP_ELEMS;
        for shape in [
            [1, 1, 1],
            [3, 31, 1],
            [2, 32, 1],
            [1, 33, 1],
            [2, 1025, 1],
            [1, group - 1, 1],
            [2, group, 1],
            [1, 2 * group + 77, 1],
            [2, 5, 3],
            [1, 70, 7],
            [2, 33 * 32, 5],
            [1, 1100, 37],
            [1, 3, wide],
            [2, 3, wide + 1],
            [1, 32, wide + 9],
            [1, 65, 2 * wide + 1],
        ] {
            for has_totals in [false, true] {
                check::<f64, true>(DType::FLOAT32, shape, has_totals);
                check::<f64, false>(DType::FLOAT64, shape, has_totals);
                check::<i64, true>(DType::INT16, shape, has_totals);
                check::<i64, false>(DType::UINT64, shape, has_totals);
                check::<[f64; 2], true>(DType::COMPLEX64, shape, has_totals);
                check::<[f64; 2], false>(DType::COMPLEX128, shape, has_totals);
            }
        }
        check::<f64, true>(DType::FLOAT16, [2, 40, 3], true);
        check::<f64, true>(DType::BFLOAT16, [2, 40, 1], true);
        check::<i64, true>(DType::INT8, [2, 40, 1], false);
        check::<i64, true>(DType::UINT32, [2, 40, 1], false);
    }
}
