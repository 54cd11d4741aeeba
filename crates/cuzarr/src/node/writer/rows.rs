//! Sets of rows: which rows of an array were written, and how far they are complete.

use std::ops::Range;

/// A set of rows, kept as ranges that are sorted and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows(Vec<Range<u64>>);

impl From<Range<u64>> for Rows {
    fn from(rows: Range<u64>) -> Rows {
        let mut set = Rows::default();
        set.insert(rows);
        set
    }
}

impl Rows {
    /// Adds a range of rows.
    pub(super) fn insert(&mut self, rows: Range<u64>) {
        if rows.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end < rows.start);
        let end = self.0.partition_point(|range| range.start <= rows.end);
        let joined =
            self.0[first..end].iter().fold(rows, |all, range| all.start.min(range.start)..all.end.max(range.end));
        self.0.splice(first..end, [joined]);
    }

    /// Whether the set has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows of the set that lie in `range`.
    pub(super) fn within(&self, range: &Range<u64>) -> Rows {
        let cut = |own: &Range<u64>| own.start.max(range.start)..own.end.min(range.end);
        Rows(self.0.iter().map(cut).filter(|rows| !rows.is_empty()).collect())
    }

    /// Whether the set has all of these rows.
    pub(super) fn contains(&self, rows: &Range<u64>) -> bool {
        rows.is_empty() || self.0.iter().any(|range| range.start <= rows.start && rows.end <= range.end)
    }

    /// The first row from `row` on that is not in the set.
    pub(super) fn first_missing(&self, row: u64) -> u64 {
        self.0.iter().find(|range| range.contains(&row)).map_or(row, |range| range.end)
    }

    /// The smallest range with all rows of the set; `None` if it is empty.
    pub(super) fn span(&self) -> Option<Range<u64>> {
        Some(self.0.first()?.start..self.0.last()?.end)
    }

    /// The ranges of the set, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// The ranges of `range` that are not in the set.
    pub(super) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut missing, mut at) = (Vec::new(), range.start);
        for own in self.within(range).0 {
            missing.push(at..own.start);
            at = own.end;
        }
        missing.push(at..range.end);
        missing.retain(|rows| !rows.is_empty());
        missing
    }

    /// The ranges inside [`Rows::span`] that are not in the set.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.windows(2).map(|pair| pair[0].end..pair[1].start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_joined() {
        let mut state = 7_u64;
        let mut random = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        for _ in 0..200 {
            let (mut rows, mut model) = (Rows::default(), BTreeSet::new());
            for _ in 0..random(12) {
                let start = random(30);
                let range = start..start + random(6);
                model.extend(range.clone());
                rows.insert(range);
                assert!(
                    rows.0.iter().all(|range| !range.is_empty())
                        && rows.0.windows(2).all(|pair| pair[0].end < pair[1].start)
                );
                assert_eq!(rows.0.iter().cloned().flatten().collect::<BTreeSet<_>>(), model);
            }
            for row in 0..40 {
                let missing = (row..).find(|row| !model.contains(row)).unwrap();
                assert_eq!(rows.first_missing(row), missing);
                let range = row..row + random(4);
                assert_eq!(rows.contains(&range), range.clone().all(|row| model.contains(&row)));
                let within: BTreeSet<u64> = rows.within(&range).ranges().flatten().collect();
                assert_eq!(within, range.clone().filter(|row| model.contains(row)).collect());
                let missing: BTreeSet<u64> = rows.missing(&range).into_iter().flatten().collect();
                assert_eq!(missing, range.filter(|row| !model.contains(row)).collect());
            }
            let span = rows.span().unwrap_or(0..0);
            let gaps: BTreeSet<u64> = rows.gaps().flatten().collect();
            assert_eq!(gaps, span.filter(|row| !model.contains(row)).collect());
        }
    }
}
