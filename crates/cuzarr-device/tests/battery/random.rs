//! Random cases from a seed: a failing case says its seed.

use cuzarr_device::{DType, Device, Layout, NdBuffer, Order};

use crate::naive::Offsets;

/// Marsaglia's xorshift64.
pub struct Random(u64);

pub const DTYPES: [DType; 17] = [
    DType::BOOL,
    DType::INT8,
    DType::INT16,
    DType::INT32,
    DType::INT64,
    DType::UINT8,
    DType::UINT16,
    DType::UINT32,
    DType::UINT64,
    DType::FLOAT16,
    DType::FLOAT32,
    DType::FLOAT64,
    DType::BFLOAT16,
    DType::COMPLEX64,
    DType::COMPLEX128,
    DType::opaque(3),
    DType::opaque(24),
];

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// From 0 to `end`, exclusive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Bytes that are elements of `dtype`: any bits, but bools are 0 or 1.
    pub fn elements(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mask = if dtype == DType::BOOL { 1 } else { 0xff };
        (0..count * dtype.size_bytes()).map(|_| self.next() as u8 & mask).collect()
    }

    /// 0 to 4 dimensions; mostly small, sometimes long, sometimes 0 or 1.
    pub fn shape(&mut self) -> Vec<usize> {
        let ndim = self.below(5);
        (0..ndim)
            .map(|_| match self.below(12) {
                0 => 1,
                1 if self.one_in(4) => 0,
                2 if ndim < 3 => 20 + self.below(120),
                _ => 1 + self.below(7),
            })
            .collect()
    }

    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..count).collect();
        for axis in (1..count).rev() {
            axes.swap(axis, self.below(axis + 1));
        }
        axes
    }

    /// A view of `shape`, by transposition and a region with steps of larger memory with random contents. Returns the
    /// memory as an array, its bytes, the view, and where the view's elements lie.
    pub fn view(&mut self, device: Device, dtype: DType, shape: &[usize]) -> View {
        let ndim = shape.len();
        let axes = self.permutation(ndim);
        // Dimension i of the view is dimension axes[i] of the memory.
        let (mut base, mut start, mut step) = (vec![0; ndim], vec![0; ndim], vec![1; ndim]);
        let plain = self.one_in(4);
        for (view_axis, &axis) in axes.iter().enumerate() {
            let extent = shape[view_axis];
            if !plain {
                step[view_axis] = 1 + self.below(3) * self.below(2);
                start[view_axis] = self.below(3);
            }
            let reach = if extent == 0 { 0 } else { (extent - 1) * step[view_axis] + 1 };
            base[axis] = start[view_axis] + reach + if plain { 0 } else { self.below(2) };
        }
        let order = self.pick(&[Order::C, Order::F]);
        let bytes = self.elements(dtype, base.iter().product());
        let memory = NdBuffer::from_host(device, dtype, &base, order, &bytes).unwrap();
        let array = memory.transpose(&axes).unwrap().region(&start, shape, &step).unwrap();
        let offsets = Offsets::packed(&base, dtype.size_bytes(), order).transpose(&axes).region(&start, shape, &step);
        View { memory, bytes, array, offsets }
    }
}

/// See [`Random::view`].
pub struct View {
    pub memory: NdBuffer,
    pub bytes: Vec<u8>,
    pub array: NdBuffer,
    pub offsets: Offsets,
}

impl View {
    /// The present contents of the memory, in the order in which they lie there.
    pub fn now(&self) -> Vec<u8> {
        let flat = Layout::contiguous(&[self.bytes.len()], 1, Order::C).unwrap();
        NdBuffer::from_parts(self.memory.buffer().clone(), DType::UINT8, flat).unwrap().to_host_bytes(Order::C).unwrap()
    }
}
