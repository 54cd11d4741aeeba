//! Exchanges arrays with other libraries without copying: DLPack 1 and the array interfaces of NumPy and CUDA.
//!
//! **Order of work.** Neither side copies, so both must agree on when the memory may be touched.
//!
//! - *Exporting by DLPack*: the consumer passes the stream it will use to `__dlpack__(stream=…)`. The producer makes
//!   that stream wait for the work that fills the array ([`crate::Stream::wait`]). For `-1` it does nothing, and `None`
//!   means the legacy default stream. The structures made here carry no stream.
//! - *Importing by DLPack*: the caller passes the stream on which it will use the array to the producer's `__dlpack__`.
//!   That call must not return before the stream waits for the producer's work. Then the capsule is imported.
//! - *CUDA array interface*: `stream` names the producer's stream; the consumer waits for it ([`ArrayInterface::stream`]).
//!   Exported arrays carry the stream that the caller names, or `None` when their work is done.
//!
//! Memory from our own pool that is exported here is marked as shared. It returns to the pool only when the whole
//! device is idle, because we do not know which streams the other library used.
//!
//! Specification: <https://dmlc.github.io/dlpack/latest/c_api.html> (the structures below are its `dlpack.h`, version 1.1),
//! <https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>,
//! <https://numpy.org/doc/stable/reference/arrays.interface.html>.

mod export;
mod import;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::c_layout::c_layout;
pub use crate::interop::array_interface::{ArrayInterface, wrap};
pub use export::{device, export_legacy, export_versioned};
pub use import::{import_legacy, import_versioned};

/// Version of DLPack, by which the consumer of a structure knows the layout of its memory. Another major version means
/// another layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Major version, which grows with incompatible changes.
    pub major: u32,
    /// Minor version, which grows with compatible changes.
    pub minor: u32,
}

/// The DLPack version of the structures that cuzarr exports.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// DLPack's number for host memory.
pub const DEVICE_CPU: i32 = 1;
/// DLPack's number for a GPU's memory.
pub const DEVICE_CUDA: i32 = 2;
/// DLPack's number for pinned host memory.
pub const DEVICE_CUDA_HOST: i32 = 3;
/// DLPack's number for managed memory, which host and GPU can both reach.
pub const DEVICE_CUDA_MANAGED: i32 = 13;

/// `DLDevice`: a device's type and number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// One of the `DEVICE_` constants, or another value that we do not know.
    pub device_type: i32,
    /// Number of the device among those of its type.
    pub device_id: i32,
}

/// `DLDataType`: an element type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// The kind of the type: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
    pub code: u8,
    /// Number of bits of one lane, which is the whole element except in vector types.
    pub bits: u8,
    /// Number of lanes (components) of a vector type; 1 in cuzarr.
    pub lanes: u16,
}

/// `DLTensor`: a strided array.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// Address of the memory; the array begins `byte_offset` bytes behind it. May be null if there are no elements.
    pub data: *mut c_void,
    /// The device on which the array's memory lies.
    pub device: DLDevice,
    /// Number of dimensions of the array.
    pub ndim: i32,
    /// Type of the array's elements.
    pub dtype: DLDataType,
    /// Extents of the array's `ndim` dimensions.
    pub shape: *mut i64,
    /// Strides of the array's `ndim` dimensions in elements, or null for C order.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: the structure of DLPack before 1.0, in capsules named `dltensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The array that is exchanged: its memory, shape and type.
    pub dl_tensor: DLTensor,
    /// A pointer for the producer's own use.
    pub manager_ctx: *mut c_void,
    /// The function by which the consumer gives the array's memory back to the producer, and frees this structure.
    /// Called once, by the code that took the structure over.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `DLManagedTensorVersioned`: the structure of DLPack 1, in capsules named `dltensor_versioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Version of DLPack in whose memory layout this structure is written. If the major version is unknown, no other
    /// field may be read.
    pub version: DLPackVersion,
    /// A pointer for the producer's own use.
    pub manager_ctx: *mut c_void,
    /// The function by which the consumer gives the array's memory back to the producer, and frees this structure.
    /// Called once, by the code that took the structure over.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bits that the constants `FLAG_…` name, such as read-only memory.
    pub flags: u64,
    /// The array that is exchanged: its memory, shape and type.
    pub dl_tensor: DLTensor,
}

// The layouts of `dlpack.h`, version 1.1, on machines with 8-byte pointers.
#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;

    c_layout! { DLPackVersion: 8 bytes { major at 0, minor at 4 } }
    c_layout! { DLDevice: 8 bytes { device_type at 0, device_id at 4 } }
    c_layout! { DLDataType: 4 bytes { code at 0, bits at 1, lanes at 2 } }
    c_layout! {
        DLTensor: 48 bytes {
            data at 0, device at 8, ndim at 16, dtype at 20, shape at 24, strides at 32, byte_offset at 40,
        }
    }
    c_layout! { DLManagedTensor: 64 bytes { dl_tensor at 0, manager_ctx at 48, deleter at 56 } }
    c_layout! {
        DLManagedTensorVersioned: 80 bytes { version at 0, manager_ctx at 8, deleter at 16, flags at 24, dl_tensor at 32 }
    }
}

/// Bit in the `flags` of an exported array: its memory must not be written.
pub const FLAG_READ_ONLY: u64 = 1;
/// Bit in the `flags` of an exported array: the producer made a copy for this export.
pub const FLAG_IS_COPIED: u64 = 2;
/// Bit in the `flags` of an exported array: elements of less than a byte take a byte each.
pub const FLAG_SUBBYTE_TYPE_PADDED: u64 = 4;

/// A structure that a DLPack capsule can hold.
pub trait Managed {
    /// Name of a capsule whose structure has not been taken yet.
    const CAPSULE: &'static CStr;
    /// Name of a capsule whose structure a consumer has taken; the capsule no longer owns it.
    const USED_CAPSULE: &'static CStr;

    /// Gives the array's memory back to its producer: calls the structure's deleter, if it has one.
    ///
    /// # Safety
    /// Called once, with a live structure that belongs to the caller.
    unsafe fn delete(tensor: NonNull<Self>);
}

impl Managed for DLManagedTensorVersioned {
    const CAPSULE: &'static CStr = c"dltensor_versioned";
    const USED_CAPSULE: &'static CStr = c"used_dltensor_versioned";

    unsafe fn delete(tensor: NonNull<Self>) {
        // SAFETY: the caller promises a live structure of its own, which the deleter ends.
        unsafe {
            if let Some(deleter) = (*tensor.as_ptr()).deleter {
                deleter(tensor.as_ptr());
            }
        }
    }
}

impl Managed for DLManagedTensor {
    const CAPSULE: &'static CStr = c"dltensor";
    const USED_CAPSULE: &'static CStr = c"used_dltensor";

    unsafe fn delete(tensor: NonNull<Self>) {
        // SAFETY: the caller promises a live structure of its own, which the deleter ends.
        unsafe {
            if let Some(deleter) = (*tensor.as_ptr()).deleter {
                deleter(tensor.as_ptr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::small_number::SmallNumber;
    use crate::{Buffer, DType, Device, ErrorKind, Layout, NdBuffer, Order};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted(dropped: &Arc<AtomicUsize>) -> NdBuffer {
        struct Counter(Arc<AtomicUsize>, #[expect(dead_code, reason = "keeps the bytes")] Vec<u8>);
        impl Drop for Counter {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let bytes: Vec<u8> = (0..24).collect();
        let address = bytes.as_ptr() as usize;
        // SAFETY: the owner holds the vector, which is not touched again.
        let buffer = unsafe { Buffer::from_raw(Device::Cpu, address, 24, Box::new(Counter(dropped.clone(), bytes))) };
        let layout = Layout::strided(&[2, 3], &[2, -4], 12, 2, 24).unwrap();
        NdBuffer::from_parts(buffer, DType::INT16, layout).unwrap()
    }

    #[test]
    fn a_round_trip_shares_memory_and_frees_it_once() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let array = counted(&dropped);
        let expected = array.to_host_bytes(Order::C).unwrap();
        let address = array.address();
        // SAFETY: exported here, imported once.
        let versioned = unsafe { import_versioned(export_versioned(&array, false).unwrap(), |owner| owner).unwrap() };
        // SAFETY: as above.
        let legacy = unsafe { import_legacy(export_legacy(&versioned).unwrap(), |owner| owner).unwrap() };
        drop((array, versioned));
        assert_eq!((legacy.address(), legacy.strides(), legacy.dtype()), (address, &[2, -4][..], DType::INT16));
        assert_eq!(legacy.to_host_bytes(Order::C).unwrap(), expected);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(legacy);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn every_dtype_and_odd_shape_survives() {
        for dtype in DType::NUMBERS {
            for shape in [&[][..], &[0], &[3, 0, 2], &[1], &[4, 5]] {
                let array = NdBuffer::zeroed(Device::Cpu, dtype, shape, Order::F).unwrap();
                // SAFETY: exported here, imported once.
                let back =
                    unsafe { import_versioned(export_versioned(&array, false).unwrap(), |owner| owner).unwrap() };
                assert_eq!((back.dtype(), back.shape()), (dtype, shape));
                assert!(back.is_empty() || back.strides() == array.strides(), "{dtype} {shape:?}");
            }
        }
        let opaque = NdBuffer::zeroed(Device::Cpu, DType::opaque(3), &[2], Order::C).unwrap();
        assert_eq!(export_versioned(&opaque, false).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn read_only_arrays_stay_read_only_and_do_not_leave_as_legacy_ones() {
        let array = NdBuffer::zeroed(Device::Cpu, DType::INT8, &[2], Order::C).unwrap().broadcast_to(&[2, 2]).unwrap();
        assert!(array.is_read_only());
        // SAFETY: exported here, imported once.
        let back = unsafe { import_versioned(export_versioned(&array, false).unwrap(), |owner| owner).unwrap() };
        assert!(back.is_read_only() && back.fill(&[1]).is_err());
        assert_eq!(export_legacy(&array).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    /// A producer's structure whose deleter counts its calls in `deleted`.
    struct Foreign {
        tensor: DLManagedTensorVersioned,
        deleted: AtomicUsize,
        shape: Vec<i64>,
        strides: Vec<i64>,
        memory: Vec<u8>,
    }

    impl Foreign {
        fn new(shape: &[i64], strides: Option<&[i64]>, bits: u8) -> Box<Foreign> {
            unsafe extern "C" fn deleter(tensor: *mut DLManagedTensorVersioned) {
                // SAFETY: the context is the `Foreign`, which outlives the test's array.
                unsafe { (*(*tensor).manager_ctx.cast::<Foreign>()).deleted.fetch_add(1, Ordering::SeqCst) };
            }
            let tensor = DLTensor {
                data: std::ptr::null_mut(),
                device: DLDevice { device_type: DEVICE_CPU, device_id: 0 },
                ndim: shape.len() as i32,
                dtype: DLDataType { code: 1, bits, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            };
            let tensor = DLManagedTensorVersioned {
                version: VERSION,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(deleter),
                flags: 0,
                dl_tensor: tensor,
            };
            let mut foreign = Box::new(Foreign {
                tensor,
                deleted: AtomicUsize::new(0),
                shape: shape.to_vec(),
                strides: strides.unwrap_or_default().to_vec(),
                memory: (0..32).collect(),
            });
            foreign.tensor.dl_tensor.data = foreign.memory.as_mut_ptr().cast();
            foreign.tensor.dl_tensor.shape = foreign.shape.as_mut_ptr();
            if strides.is_some() {
                foreign.tensor.dl_tensor.strides = foreign.strides.as_mut_ptr();
            }
            foreign.tensor.manager_ctx = (&raw mut *foreign).cast();
            foreign
        }

        fn import(&mut self) -> crate::Result<NdBuffer> {
            // SAFETY: a well-formed structure whose memory outlives the array.
            unsafe { import_versioned(NonNull::from(&mut self.tensor), |owner| owner) }
        }

        fn deleted(&self) -> usize {
            self.deleted.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn imports_without_strides_with_offsets_and_from_pinned_memory() {
        let mut foreign = Foreign::new(&[2, 3], None, 16);
        foreign.tensor.dl_tensor.byte_offset = 4;
        foreign.tensor.dl_tensor.device.device_type = DEVICE_CUDA_HOST;
        let array = foreign.import().unwrap();
        assert_eq!((array.device(), array.strides()), (Device::Cpu, &[6, 2][..]));
        assert_eq!(array.to_host_bytes(Order::C).unwrap(), (4..16).collect::<Vec<u8>>());
        drop(array);
        assert_eq!(foreign.deleted(), 1);
        let mut reversed = Foreign::new(&[3], Some(&[-1]), 8);
        reversed.tensor.dl_tensor.byte_offset = 2;
        assert_eq!(reversed.import().unwrap().to_host_bytes(Order::C).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn a_structure_that_nobody_took_ends_with_its_deleter() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let array = counted(&dropped);
        let (versioned, legacy) = (export_versioned(&array, false).unwrap(), export_legacy(&array).unwrap());
        drop(array);
        // SAFETY: both were made here, and no consumer took them.
        unsafe { Managed::delete(versioned) };
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // SAFETY: as above.
        unsafe { Managed::delete(legacy) };
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn flags_say_what_was_copied_and_what_must_not_be_written() {
        let array = NdBuffer::zeroed(Device::Cpu, DType::INT8, &[2], Order::C).unwrap();
        let read_only = array.broadcast_to(&[2, 2]).unwrap();
        let cases = [(&array, false, 0), (&array, true, FLAG_IS_COPIED), (&read_only, false, FLAG_READ_ONLY)];
        for (array, is_copied, expected) in cases {
            let tensor = export_versioned(array, is_copied).unwrap();
            // SAFETY: alive until it is deleted in the next line.
            assert_eq!(unsafe { (*tensor.as_ptr()).flags }, expected);
            // SAFETY: made here, and taken by no consumer.
            unsafe { Managed::delete(tensor) };
        }
    }

    #[test]
    fn numbers_without_arithmetic_keep_their_format() {
        for number in SmallNumber::all() {
            let dtype = DType::small(number);
            let array = NdBuffer::zeroed(Device::Cpu, dtype, &[3], Order::C).unwrap();
            if number.dlpack().is_none() {
                assert_eq!(export_versioned(&array, false).unwrap_err().kind(), ErrorKind::Unsupported, "{number}");
                continue;
            }
            let tensor = export_versioned(&array, false).unwrap();
            // SAFETY: alive until it is imported below.
            let (flags, bits) = unsafe { ((*tensor.as_ptr()).flags, (*tensor.as_ptr()).dl_tensor.dtype.bits) };
            assert_eq!(flags == FLAG_SUBBYTE_TYPE_PADDED, bits < 8, "{number}");
            // SAFETY: exported here, imported once.
            assert_eq!(unsafe { import_versioned(tensor, |owner| owner) }.unwrap().dtype(), dtype);
            match export_legacy(&array) {
                // SAFETY: exported here, imported once.
                Ok(tensor) => assert_eq!(unsafe { import_legacy(tensor, |owner| owner) }.unwrap().dtype(), dtype),
                Err(error) => assert!(bits < 8 && error.kind() == ErrorKind::Unsupported, "{error}"),
            }
        }
    }

    #[test]
    fn packed_elements_are_refused() {
        let mut foreign = Foreign::new(&[2], None, 4);
        foreign.tensor.dl_tensor.dtype.code = 17;
        assert_eq!(foreign.import().unwrap_err().kind(), ErrorKind::Unsupported);
        let mut foreign = Foreign::new(&[2], None, 4);
        (foreign.tensor.dl_tensor.dtype.code, foreign.tensor.flags) = (17, FLAG_SUBBYTE_TYPE_PADDED);
        assert_eq!(foreign.import().unwrap().dtype(), DType::small(SmallNumber::Float4E2M1FN));
    }

    #[test]
    fn strides_that_are_no_whole_elements_do_not_leave() {
        let buffer = Buffer::from_vec(vec![0; 64]);
        let layout = Layout::strided(&[3], &[12], 0, 8, 64).unwrap();
        let array = NdBuffer::from_parts(buffer.clone(), DType::FLOAT64, layout).unwrap();
        assert_eq!(export_versioned(&array, false).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(export_legacy(&array).unwrap_err().kind(), ErrorKind::Unsupported);
        let layout = Layout::strided(&[1, 0], &[12, 3], 0, 8, 64).unwrap();
        let none = NdBuffer::from_parts(buffer, DType::FLOAT64, layout).unwrap();
        // SAFETY: exported here, imported once.
        let back = unsafe { import_versioned(export_versioned(&none, false).unwrap(), |owner| owner).unwrap() };
        assert_eq!(back.shape(), [1, 0]);
    }

    #[test]
    fn elements_that_are_not_aligned_do_not_leave() {
        let layout = Layout::strided(&[3], &[4], 2, 4, 64).unwrap();
        let array = NdBuffer::from_parts(Buffer::empty(Device::Cpu, 64).unwrap(), DType::FLOAT32, layout).unwrap();
        let error = export_versioned(&array, false).unwrap_err();
        assert!(error.message().contains("aligned"), "{error}");
    }

    #[test]
    fn strides_of_one_element_do_not_matter() {
        let mut foreign = Foreign::new(&[1, 2], Some(&[i64::MAX, 1]), 16);
        assert_eq!(foreign.import().unwrap().to_host_bytes(Order::C).unwrap(), [0, 1, 2, 3]);
        let mut foreign = Foreign::new(&[0, 2], Some(&[i64::MAX, i64::MIN]), 16);
        foreign.tensor.dl_tensor.data = std::ptr::null_mut();
        assert_eq!(foreign.import().unwrap().shape(), [0, 2]);
        assert_eq!(foreign.deleted(), 1);
    }

    #[test]
    fn what_cannot_be_imported_is_given_back() {
        type Spoil = fn(&mut DLManagedTensorVersioned);
        let spoils: [(Spoil, ErrorKind); 9] = [
            (|one| one.version.major = 2, ErrorKind::Unsupported),
            (|one| one.dl_tensor.dtype.lanes = 4, ErrorKind::Unsupported),
            (|one| one.dl_tensor.dtype.bits = 4, ErrorKind::Unsupported),
            (|one| one.dl_tensor.dtype.code = 3, ErrorKind::Unsupported),
            (|one| one.dl_tensor.device.device_type = 7, ErrorKind::Unsupported),
            (|one| one.dl_tensor.device = DLDevice { device_type: DEVICE_CUDA, device_id: -1 }, ErrorKind::Unsupported),
            (|one| one.dl_tensor.ndim = -1, ErrorKind::InvalidArgument),
            (|one| one.dl_tensor.data = std::ptr::null_mut(), ErrorKind::InvalidArgument),
            (|one| one.dl_tensor.byte_offset = u64::MAX, ErrorKind::InvalidArgument),
        ];
        for (number, (spoil, kind)) in spoils.into_iter().enumerate() {
            let mut foreign = Foreign::new(&[2], None, 8);
            spoil(&mut foreign.tensor);
            assert_eq!(foreign.import().unwrap_err().kind(), kind, "spoil {number}");
            assert_eq!(foreign.deleted(), 1, "spoil {number}");
        }
        for (shape, strides) in [(&[-1][..], &[1][..]), (&[i64::MAX, i64::MAX], &[1, 1]), (&[3], &[i64::MAX])] {
            let mut foreign = Foreign::new(shape, Some(strides), 64);
            assert_eq!(foreign.import().unwrap_err().kind(), ErrorKind::InvalidArgument, "{shape:?}");
            assert_eq!(foreign.deleted(), 1);
        }
    }
}
