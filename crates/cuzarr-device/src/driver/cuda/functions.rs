//! The driver functions that this crate calls, with their constants and structures, all as in cuda.h.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::c_layout::c_layout;
use crate::driver::library;
use crate::error::Result;

pub(super) type Code = c_int;

/// Declares the table of the driver's functions together with its loader, so that each name and type is written once.
macro_rules! driver_functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        pub(super) struct Functions { $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> Code,)* }

        impl Functions {
            pub(super) fn load(library: &libloading::Library) -> Result<Functions> {
                // SAFETY: names and types are those of cuda.h; the `_v2` names have had these types since CUDA 4.
                unsafe { Ok(Functions { $($field: library::symbol(library, $symbol)?,)* }) }
            }
        }
    };
}

driver_functions! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(Code, *mut *const c_char);
    error_string = "cuGetErrorString"(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_total_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    device_can_reach = "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
    primary_context_retain = "cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
    context_get_current = "cuCtxGetCurrent"(*mut *mut c_void);
    context_set_current = "cuCtxSetCurrent"(*mut c_void);
    context_synchronize = "cuCtxSynchronize"();
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_allocate = "cuMemAlloc_v2"(*mut u64, usize);
    memory_free = "cuMemFree_v2"(u64);
    pointer_attribute = "cuPointerGetAttribute"(*mut c_void, c_int, u64);
    host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    pool_create = "cuMemPoolCreate"(*mut *mut c_void, *const PoolProperties);
    pool_set_attribute = "cuMemPoolSetAttribute"(*mut c_void, c_int, *mut c_void);
    pool_set_access = "cuMemPoolSetAccess"(*mut c_void, *const PoolAccess, usize);
    pool_get_attribute = "cuMemPoolGetAttribute"(*mut c_void, c_int, *mut c_void);
    pool_trim = "cuMemPoolTrimTo"(*mut c_void, usize);
    pool_allocate = "cuMemAllocFromPoolAsync"(*mut u64, usize, *mut c_void, *mut c_void);
    pool_free = "cuMemFreeAsync"(u64, *mut c_void);
    stream_create = "cuStreamCreateWithPriority"(*mut *mut c_void, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2"(*mut c_void);
    stream_synchronize = "cuStreamSynchronize"(*mut c_void);
    stream_query = "cuStreamQuery"(*mut c_void);
    stream_wait_event = "cuStreamWaitEvent"(*mut c_void, *mut c_void, c_uint);
    event_create = "cuEventCreate"(*mut *mut c_void, c_uint);
    event_destroy = "cuEventDestroy_v2"(*mut c_void);
    event_record = "cuEventRecord"(*mut c_void, *mut c_void);
    event_query = "cuEventQuery"(*mut c_void);
    event_synchronize = "cuEventSynchronize"(*mut c_void);
    event_elapsed = "cuEventElapsedTime"(*mut f32, *mut c_void, *mut c_void);
    copy_h2d = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, *mut c_void);
    copy_d2h = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, *mut c_void);
    copy_any = "cuMemcpyAsync"(u64, u64, usize, *mut c_void);
    copy_peer = "cuMemcpyPeerAsync"(u64, *mut c_void, u64, *mut c_void, usize, *mut c_void);
    memset = "cuMemsetD8Async"(u64, u8, usize, *mut c_void);
    module_load = "cuModuleLoadData"(*mut *mut c_void, *const c_void);
    module_function = "cuModuleGetFunction"(*mut *mut c_void, *mut c_void, *const c_char);
    module_unload = "cuModuleUnload"(*mut c_void);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, *mut c_void);
    function_set_attribute = "cuFuncSetAttribute"(*mut c_void, c_int, c_int);
    launch = "cuLaunchKernel"(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
}

pub(super) const SUCCESS: Code = 0;
pub(super) const ERROR_INVALID_VALUE: Code = 1;
pub(super) const ERROR_OUT_OF_MEMORY: Code = 2;
pub(super) const ERROR_NOT_READY: Code = 600;

pub(super) const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
pub(super) const ATTRIBUTE_CAPABILITY_MAJOR: c_int = 75;
pub(super) const ATTRIBUTE_CAPABILITY_MINOR: c_int = 76;
pub(super) const ATTRIBUTE_MEMORY_POOLS: c_int = 115;

pub(super) const POINTER_MEMORY_TYPE: c_int = 2;
pub(super) const POINTER_DEVICE_POINTER: c_int = 3;
pub(super) const POINTER_DEVICE_ORDINAL: c_int = 9;

pub(super) const MEMORY_TYPE_HOST: c_uint = 1;

pub(super) const FUNCTION_MAX_THREADS: c_int = 0;
pub(super) const FUNCTION_SHARED_BYTES: c_int = 1;
pub(super) const FUNCTION_LOCAL_BYTES: c_int = 3;
pub(super) const FUNCTION_REGISTERS: c_int = 4;
pub(super) const FUNCTION_MAX_DYNAMIC_SHARED_BYTES: c_int = 8;

/// `cuFuncGetParamInfo` of CUDA 12.4 and newer: returns offset and size of one parameter of a kernel.
pub(super) type ParameterInfo = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> Code;

/// Whether an error code of the CUDA driver means that a kernel faulted. After that, nothing on the GPU works any more
/// in this process.
pub(super) fn loses_context(code: Code) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=719)
}

/// `CUmemPoolProps`: the properties of a memory pool to make, whose memory lies on one GPU and cannot be exported.
#[repr(C)]
pub(super) struct PoolProperties {
    pub(super) allocation_type: c_int,
    pub(super) handle_types: c_int,
    pub(super) location_type: c_int,
    pub(super) location_id: c_int,
    pub(super) win32_security: *mut c_void,
    pub(super) max_size: usize,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 54],
}

/// `CUmemAccessDesc`: the access of one GPU to a pool's memory.
#[repr(C)]
pub(super) struct PoolAccess {
    pub(super) location_type: c_int,
    pub(super) location_id: c_int,
    pub(super) flags: c_int,
}

// The layouts of cuda.h, CUDA 12.
#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;

    c_layout! {
        PoolProperties: 88 bytes {
            allocation_type at 0, handle_types at 4, location_type at 8, location_id at 12, win32_security at 16,
            max_size at 24, usage at 32, reserved at 34,
        }
    }
    c_layout! { PoolAccess: 12 bytes { location_type at 0, location_id at 4, flags at 8 } }
}
