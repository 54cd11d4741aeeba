//! Element types as bytes in memory, and loops over them.

use std::marker::PhantomData;

use cuzarr_device::internal::cpu::math::{Vectors, widest};

/// A Rust type for elements of one type, with which the CPU computes.
pub(super) trait Lane: Copy {
    /// Size of an element in bytes.
    const SIZE: usize;
    /// Reads an element from exactly [`Lane::SIZE`] bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the element to exactly [`Lane::SIZE`] bytes.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! lanes {
    ($($name:ty)*) => {$(
        impl Lane for $name {
            const SIZE: usize = size_of::<$name>();
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$name>()];
                own.copy_from_slice(bytes);
                <$name>::from_ne_bytes(own)
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

lanes! { i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

impl Lane for bool {
    const SIZE: usize = 1;
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        bytes[0] = u8::from(self);
    }
}

/// A complex number: real part, imaginary part.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Complex<T>(pub(super) T, pub(super) T);

impl<T: Lane> Lane for Complex<T> {
    const SIZE: usize = 2 * T::SIZE;
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        Complex(T::get(&bytes[..T::SIZE]), T::get(&bytes[T::SIZE..]))
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        self.0.put(&mut bytes[..T::SIZE]);
        self.1.put(&mut bytes[T::SIZE..]);
    }
}

/// Computes `f(a[i])` for all elements of `a`, and writes each result to `out[i]`.
#[inline(always)]
pub(super) fn map1<A: Lane, R: Lane>(a: &[u8], out: &mut [u8], f: impl Fn(A) -> R) {
    widest(Map1 { a, out, f, types: PhantomData });
}

/// Computes `f(a[i], b[i])` for all elements of `a` and `b`, and writes each result to `out[i]`.
#[inline(always)]
pub(super) fn map2<A: Lane, B: Lane, R: Lane>(a: &[u8], b: &[u8], out: &mut [u8], f: impl Fn(A, B) -> R) {
    widest(Map2 { a, b, out, f, types: PhantomData });
}

struct Map1<'a, F, A, R> {
    a: &'a [u8],
    out: &'a mut [u8],
    f: F,
    types: PhantomData<(A, R)>,
}

impl<A: Lane, R: Lane, F: Fn(A) -> R> Vectors for Map1<'_, F, A, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (a, out) in self.a.chunks_exact(A::SIZE).zip(self.out.chunks_exact_mut(R::SIZE)) {
            (self.f)(A::get(a)).put(out);
        }
    }
}

struct Map2<'a, F, A, B, R> {
    a: &'a [u8],
    b: &'a [u8],
    out: &'a mut [u8],
    f: F,
    types: PhantomData<(A, B, R)>,
}

impl<A: Lane, B: Lane, R: Lane, F: Fn(A, B) -> R> Vectors for Map2<'_, F, A, B, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let operands = self.a.chunks_exact(A::SIZE).zip(self.b.chunks_exact(B::SIZE));
        for ((a, b), out) in operands.zip(self.out.chunks_exact_mut(R::SIZE)) {
            (self.f)(A::get(a), B::get(b)).put(out);
        }
    }
}

/// Copies elements of `size` bytes, `stride` bytes apart, to packed memory.
pub(super) fn gather(bytes: &[u8], start: usize, stride: isize, size: usize, target: &mut [u8]) {
    fn walk<const N: usize>(bytes: &[u8], start: usize, stride: isize, target: &mut [u8]) {
        let mut at = start;
        for target in target.as_chunks_mut::<N>().0 {
            target.copy_from_slice(&bytes[at..at + N]);
            at = at.wrapping_add_signed(stride);
        }
    }
    match size {
        1 => walk::<1>(bytes, start, stride, target),
        2 => walk::<2>(bytes, start, stride, target),
        4 => walk::<4>(bytes, start, stride, target),
        8 => walk::<8>(bytes, start, stride, target),
        _ => walk::<16>(bytes, start, stride, target),
    }
}
