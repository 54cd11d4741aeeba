//! Divides array indices by the extent of chunks, to find the chunk that holds an index.

/// A number, such as the extent of chunks along a dimension, prepared for dividing many array indices by it. Extents
/// are often powers of two, and a division takes ten times as long as a shift.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    extent: u64,
    shift: Option<u32>,
}

impl Divisor {
    pub(super) fn new(extent: u64) -> Divisor {
        let extent = extent.max(1);
        Divisor { extent, shift: extent.is_power_of_two().then(|| extent.trailing_zeros()) }
    }

    /// The index divided by the extent and rounded down.
    pub(super) fn times(&self, index: u64) -> u64 {
        self.shift.map_or_else(|| index / self.extent, |shift| index >> shift)
    }

    /// The remainder of the index divided by the extent.
    pub(super) fn rest(&self, index: u64) -> u64 {
        self.shift.map_or_else(|| index % self.extent, |_| index & (self.extent - 1))
    }

    /// Replaces each index by its remainder after division by the extent. Calls `times` with the number of the index in
    /// `indices`, and with the quotient.
    pub(super) fn split(&self, indices: &mut [u64], mut times: impl FnMut(usize, u64)) {
        let all = indices.iter_mut().enumerate();
        match self.shift {
            Some(shift) => all.for_each(|(at, index)| {
                times(at, *index >> shift);
                *index &= self.extent - 1;
            }),
            None => all.for_each(|(at, index)| {
                times(at, *index / self.extent);
                *index %= self.extent;
            }),
        }
    }

    /// The extent by which indices are divided, at least 1.
    pub(super) fn extent(&self) -> u64 {
        self.extent
    }
}
