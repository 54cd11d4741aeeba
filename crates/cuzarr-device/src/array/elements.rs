//! Host elements as Rust values: which Rust types match dtypes, and conversions between nd-buffers and vectors or
//! slices.

use std::alloc::{self, Layout as Block};
use std::sync::mpsc::{Receiver, channel};

use crate::array::dtype::DType;
use crate::array::layout::{Layout, Order};
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::host_block::advise_huge_pages;
use crate::memory::host_bytes::HostSlice;
use crate::memory::lease::Access;

/// A Rust type whose values are the elements of a [`DType`].
///
/// | Rust | dtype |
/// |---|---|
/// | `bool`, `i8` … `i64`, `u8` … `u64`, `f32`, `f64` | the dtype of the same name |
/// | `[u8; N]` | `N` opaque bytes |
/// | `half::f16`, `half::bf16` (feature `half`) | `float16`, `bfloat16` |
/// | `num_complex::Complex<f32>`, `Complex<f64>` (feature `num-complex`) | `complex64`, `complex128` |
///
/// # Safety
/// The type has the size of `DTYPE`, no padding and no interior mutability. Bytes that [`HostElement::are_values`]
/// accepts are values of the type, and so are zeros.
pub unsafe trait HostElement: Copy + Send + Sync + 'static {
    /// The element type of nd-buffers whose elements are values of this Rust type.
    const DTYPE: DType;

    /// Whether elements of `dtype` can be read in place as values of this Rust type. `dtype` is then
    /// [`HostElement::DTYPE`], or a type whose bits this type can hold (`u16` holds 2-byte floats).
    fn matches(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }

    /// Whether the bytes of packed elements are valid values of this Rust type. Only `bool` can answer no.
    fn are_values(_bytes: &[u8]) -> bool {
        true
    }
}

macro_rules! host_elements {
    ($($(#[$cfg:meta])? $name:ty: $own:ident $(| $other:ident)*;)*) => {$(
        $(#[$cfg])?
        // SAFETY: a plain number of that size, or two of them in C's layout; every bit pattern is a value.
        unsafe impl HostElement for $name {
            const DTYPE: DType = DType::$own;

            fn matches(dtype: DType) -> bool {
                dtype == DType::$own $(|| dtype == DType::$other)*
            }
        }
    )*};
}

host_elements! {
    i8: INT8; i16: INT16; i32: INT32; i64: INT64;
    u8: UINT8 | BOOL; u16: UINT16 | FLOAT16 | BFLOAT16; u32: UINT32; u64: UINT64;
    f32: FLOAT32; f64: FLOAT64;
    #[cfg(feature = "half")] half::f16: FLOAT16;
    #[cfg(feature = "half")] half::bf16: BFLOAT16;
    #[cfg(feature = "num-complex")] num_complex::Complex<f32>: COMPLEX64;
    #[cfg(feature = "num-complex")] num_complex::Complex<f64>: COMPLEX128;
}

// SAFETY: one byte, of which 0 and 1 are values and `are_values` accepts no other.
unsafe impl HostElement for bool {
    const DTYPE: DType = DType::BOOL;

    fn are_values(bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte <= 1)
    }
}

// SAFETY: bytes, as many as the dtype has.
unsafe impl<const N: usize> HostElement for [u8; N] {
    const DTYPE: DType = {
        assert!(N <= u32::MAX as usize, "an element has less than 4 GiB");
        DType::opaque(N as u32)
    };
}

/// Returns the bytes of `elements`, in native byte order.
pub fn bytes_of<T: HostElement>(elements: &[T]) -> &[u8] {
    // SAFETY: the type has no padding, so all bytes are initialised; the result borrows them as long as `elements`.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

fn require_values<T: HostElement>(bytes: &[u8]) -> Result<()> {
    match T::are_values(bytes) {
        true => Ok(()),
        false => Err(Error::invalid(format!("elements are {}, but bytes among them are not", T::DTYPE))),
    }
}

fn check_count<T>(elements: &[T], shape: &[usize], layout: &Layout) -> Result<()> {
    let (got, expected) = (elements.len(), layout.len());
    match got == expected {
        true => Ok(()),
        false => Err(Error::invalid(format!("got {got} elements for shape {shape:?}, expected {expected}"))),
    }
}

impl NdBuffer {
    /// Copies elements, given in C order, to a new nd-buffer on `device`.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer};
    /// let array = NdBuffer::from_slice(Device::Cpu, &[1.5_f32, 2.5], &[2])?;
    /// assert_eq!(array.host_slice::<f32>()?, [1.5, 2.5]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`]; `InvalidArgument` when there are more or fewer elements than the shape needs.
    pub fn from_slice<T: HostElement>(device: Device, elements: &[T], shape: &[usize]) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, size_of::<T>(), Order::C)?;
        check_count(elements, shape, &layout)?;
        NdBuffer::from_parts(Buffer::from_bytes(device, bytes_of(elements))?, T::DTYPE, layout)
    }

    /// Turns a vector of packed elements into an nd-buffer, without copying.
    ///
    /// # Errors
    /// `InvalidArgument` when there are more or fewer elements than the shape needs.
    pub fn from_vec<T: HostElement>(mut elements: Vec<T>, shape: &[usize]) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, size_of::<T>(), Order::C)?;
        check_count(&elements, shape, &layout)?;
        let (address, size_bytes) = (elements.as_mut_ptr() as usize, size_of_val(&elements[..]));
        // SAFETY: the vector owns these bytes, which are initialised (its type has no padding), and moves into the
        // owner. Later writes may leave bytes that are no values of `T`. `into_vec` checks them when it is the vector's
        // only owner.
        let buffer = unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(elements)) };
        NdBuffer::from_parts(buffer, T::DTYPE, layout)
    }

    /// Allocates an nd-buffer of zeros in host memory, packed in C order. [`NdBuffer::into_vec`] turns it into a vector
    /// without copying.
    ///
    /// # Errors
    /// `InvalidArgument` when the size overflows; `OutOfMemory`.
    pub fn zeroed_vec<T: HostElement>(shape: &[usize]) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, size_of::<T>(), Order::C)?;
        let (len, size_bytes) = (layout.len(), layout.size_bytes());
        let out_of_memory = || Error::new(ErrorKind::OutOfMemory, format!("the host has no {size_bytes} bytes left"));
        let block = Block::array::<T>(len).map_err(|_| out_of_memory())?;
        if size_bytes == 0 {
            // SAFETY: zeros are a value of the type.
            return NdBuffer::from_vec(vec![unsafe { std::mem::zeroed::<T>() }; len], shape);
        }
        // SAFETY: the block's size is not zero.
        let pointer = unsafe { alloc::alloc_zeroed(block) };
        if pointer.is_null() {
            return Err(out_of_memory());
        }
        advise_huge_pages(pointer as usize, size_bytes);
        // SAFETY: a block of the allocator for exactly `len` elements, whose zeros are values of the type.
        NdBuffer::from_vec(unsafe { Vec::from_raw_parts(pointer.cast::<T>(), len, len) }, shape)
    }

    /// Turns the nd-buffer into a host vector of its elements, in C order. A vector that came from
    /// [`NdBuffer::from_vec`] or [`NdBuffer::zeroed_vec`] is given back without copying if this is the last nd-buffer
    /// that uses it.
    ///
    /// # Errors
    /// Those of [`NdBuffer::host_slice`].
    pub fn into_vec<T: HostElement>(self) -> Result<Vec<T>> {
        let elements = self.host_slice::<T>()?;
        let is_whole = |own: &Vec<T>| own.as_ptr() == elements.as_ptr() && own.len() == elements.len();
        if !self.buffer().owner().downcast_ref::<Vec<T>>().is_some_and(is_whole) {
            return Ok(elements.to_vec());
        }
        drop(elements);
        let (buffer, layout) = (self.buffer().clone(), self.layout().clone());
        drop(self);
        match buffer.into_owner::<Vec<T>>() {
            Ok(elements) => {
                // SAFETY: initialised bytes of a vector that only this function holds; they are read as plain bytes.
                let bytes = unsafe {
                    std::slice::from_raw_parts(elements.as_ptr().cast(), elements.len() * T::DTYPE.size_bytes())
                };
                // Other threads may have written since `host_slice` checked the elements, while they had a view.
                require_values::<T>(bytes).map(|()| elements)
            }
            Err(buffer) => Ok(NdBuffer::from_parts(buffer, T::DTYPE, layout)?.host_slice::<T>()?.to_vec()),
        }
    }

    /// Calls `work` with a read-only nd-buffer over the slice `elements`, without copying them. Returns when every view
    /// of them is dropped, so it waits for ever if `work` keeps a view.
    ///
    /// # Errors
    /// `InvalidArgument` when an element of the layout would lie outside of the slice.
    pub fn lend<T: HostElement, R>(elements: &[T], layout: Layout, work: impl FnOnce(&NdBuffer) -> R) -> Result<R> {
        let (owner, ended) = channel::<()>();
        let _returned = Loan(ended);
        let (address, size_bytes) = (elements.as_ptr() as usize, size_of_val(elements));
        // SAFETY: initialised bytes of the host. They are borrowed until this function returns, so no code writes them.
        // The function only returns once the owner is dropped: `_returned` waits for that. It is dropped after the
        // buffer, also when `work` panics. The buffer is read-only, so the slice may be lent twice.
        let buffer = unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(owner)) };
        let buffer = NdBuffer::from_parts(buffer.into_read_only(), T::DTYPE, layout)?;
        Ok(work(&buffer))
    }

    /// Gives access to the elements of an nd-buffer as a Rust slice for reading, without copying them. They must be on
    /// the host and contiguous in C order. While the result lives, writing them is refused.
    ///
    /// `u16` also reads the 2-byte floats, and `u8` bool.
    ///
    /// # Errors
    /// `MemorySpace` when the elements are not on the host; `InvalidArgument` when they are not contiguous, not
    /// aligned, not of this type, or being written.
    pub fn host_slice<T: HostElement>(&self) -> Result<HostSlice<'_, T>> {
        if !T::matches(self.dtype()) {
            let name = std::any::type_name::<T>();
            return Err(Error::invalid(format!("elements are {}, not {name}", self.dtype())));
        }
        if !self.is_contiguous(Order::C) {
            return Err(Error::invalid("elements are not contiguous").with_hint("copy them first"));
        }
        self.buffer().require_host()?;
        let lease = self.lease(Access::Read)?;
        if self.is_empty() {
            return Ok(HostSlice::new(&[], lease));
        }
        if !self.address().is_multiple_of(align_of::<T>()) {
            return Err(Error::invalid("elements are not aligned").with_hint("copy them first"));
        }
        // SAFETY: `size_bytes` contiguous, initialised bytes of host memory (constructors checked where they lie), alive as
        // long as `self`; the lease keeps writers away.
        let bytes = unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.size_bytes()) };
        require_values::<T>(bytes)?;
        // SAFETY: these bytes are aligned and were seen to be values of `T`; the lease lives as long as the slice.
        let elements = unsafe { std::slice::from_raw_parts(self.address() as *const T, self.len()) };
        Ok(HostSlice::new(elements, lease))
    }
}

/// A guard for lent memory: its `drop` waits until the last nd-buffer that uses the memory is dropped.
struct Loan(Receiver<()>);

impl Drop for Loan {
    fn drop(&mut self) {
        // Nothing is ever sent: an error means that the sender was dropped.
        let _ = self.0.recv();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_goes_in_and_comes_out_without_a_copy() {
        let elements: Vec<i32> = (0..6).collect();
        let address = elements.as_ptr();
        let array = NdBuffer::from_vec(elements, &[2, 3]).unwrap();
        array.region(&[0, 1], &[2, 1], &[1, 1]).unwrap().fill(&9_i32.to_ne_bytes()).unwrap();
        let elements = array.into_vec::<i32>().unwrap();
        assert_eq!((elements.as_ptr(), &elements[..]), (address, &[0, 9, 2, 3, 9, 5][..]));
    }

    #[test]
    fn a_vector_that_others_use_is_copied() {
        let array = NdBuffer::from_vec(vec![1_u16, 2, 3], &[3]).unwrap();
        let part = array.region(&[1], &[2], &[1]).unwrap();
        assert_eq!(array.into_vec::<u16>().unwrap(), [1, 2, 3]);
        assert_eq!(part.into_vec::<u16>().unwrap(), [2, 3]);
    }

    #[test]
    fn memory_for_vectors_has_any_size() {
        for len in [0, 1, 7, (4 << 20) + 3] {
            let array = NdBuffer::zeroed_vec::<u16>(&[len]).unwrap();
            let address = array.address();
            let elements = array.into_vec::<u16>().unwrap();
            assert!(elements.len() == len && elements.iter().all(|&element| element == 0));
            assert!(len == 0 || elements.as_ptr() as usize == address);
        }
        assert_eq!(NdBuffer::zeroed_vec::<f64>(&[]).unwrap().into_vec::<f64>().unwrap(), [0.0]);
        assert_eq!(NdBuffer::zeroed_vec::<[u8; 0]>(&[3]).unwrap().into_vec::<[u8; 0]>().unwrap(), [[]; 3]);
        assert_eq!(NdBuffer::zeroed_vec::<u8>(&[1 << 60]).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(NdBuffer::zeroed_vec::<u64>(&[1 << 60]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn bytes_that_are_no_bool_are_not_given_as_one() {
        let array = NdBuffer::from_vec(vec![true, false], &[2]).unwrap();
        assert_eq!(array.host_slice::<bool>().unwrap(), [true, false]);
        array.fill(&[2]).unwrap();
        assert!(array.host_slice::<bool>().unwrap_err().message().contains("bool"));
        assert_eq!(array.clone().into_vec::<bool>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(array.into_vec::<u8>().unwrap(), [2, 2]);
    }

    #[test]
    fn a_vector_comes_out_with_values_alone_while_another_thread_writes() {
        for _ in 0..500 {
            let array = NdBuffer::from_vec(vec![true; 64], &[64]).unwrap();
            let view = array.clone();
            let writer = std::thread::spawn(move || view.fill(&[2]).is_ok());
            if let Ok(elements) = array.into_vec::<bool>() {
                // SAFETY: the vector's initialised bytes, read without looking at its type.
                let bytes = unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), elements.len()) };
                assert!(bool::are_values(bytes));
            }
            writer.join().unwrap();
        }
    }

    #[test]
    fn counts_and_types_are_checked() {
        for error in [
            NdBuffer::from_vec(vec![1_u8], &[2]).unwrap_err(),
            NdBuffer::from_slice(Device::Cpu, &[1_u8, 2, 3], &[2]).unwrap_err(),
            NdBuffer::from_vec(vec![1_u32], &[]).unwrap().into_vec::<i32>().unwrap_err(),
            NdBuffer::from_vec(vec![[1_u8; 3]], &[1]).unwrap().into_vec::<[u8; 4]>().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn lent_elements_come_back_when_the_last_view_is_gone() {
        let elements = [1_u8, 2, 3, 4, 5, 6];
        let columns = Layout::strided(&[2, 3], &[1, 2], 0, 1, 6).unwrap();
        let kept = NdBuffer::lend(&elements, columns, |array| {
            assert_eq!((array.address(), array.is_read_only()), (elements.as_ptr() as usize, true));
            let view = array.clone();
            let reader = std::thread::spawn(move || view.index_axis(0, 1).unwrap().to_host_bytes(Order::C).unwrap());
            (array.to_host_bytes(Order::C).unwrap(), reader)
        });
        let (rows, reader) = kept.unwrap();
        assert_eq!((rows, reader.join().unwrap()), (vec![1, 3, 5, 2, 4, 6], vec![2, 4, 6]));
        let outside = Layout::strided(&[7], &[1], 0, 1, 7).unwrap();
        assert!(NdBuffer::lend(&elements, outside, |_| ()).is_err());
    }

    #[test]
    fn lending_waits_for_views_that_outlive_the_call() {
        let (sender, receiver) = channel::<NdBuffer>();
        let (started, at_work) = channel::<()>();
        let reader = std::thread::spawn(move || {
            let view = receiver.recv().unwrap();
            at_work.recv().unwrap();
            view.to_host_bytes(Order::C).unwrap()
        });
        let elements = vec![7_u8; 100];
        let layout = Layout::contiguous(&[100], 1, Order::C).unwrap();
        NdBuffer::lend(&elements, layout, |array| sender.send(array.clone()).map(|()| started.send(())))
            .unwrap()
            .unwrap()
            .unwrap();
        drop(elements);
        assert_eq!(reader.join().unwrap(), [7; 100]);
    }
}
