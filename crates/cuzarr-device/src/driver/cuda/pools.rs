//! CUDA's stream-ordered memory pools of one GPU: one for results, and one of limited size for memory in flight.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::driver::backend::RawStream;
use crate::driver::cuda::CudaBackend;
use crate::driver::cuda::functions::{PoolAccess, PoolProperties};
use crate::error::Result;
use crate::lock::lock;

/// CUDA's constant `CU_MEM_LOCATION_TYPE_DEVICE`: a pool's memory lies on a GPU.
const LOCATION_DEVICE: c_int = 1;

/// Size in bytes of the pieces of GPU memory in which CUDA's pools take memory from the system. A pool's limit is
/// rounded up to whole pieces.
const PIECE_BYTES: u64 = 32 << 20;

/// Number of pieces (each of `PIECE_BYTES`) by which the pool for working memory stays below the memory limit. They
/// serve the rest of a result's last piece, and blocks that do not fit into the limited pool.
const LEFT_PIECES: u64 = 2;

const POOL_ATTRIBUTE_RELEASE_THRESHOLD: c_int = 4;
const POOL_ATTRIBUTE_RESERVED_BYTES: c_int = 5;

/// The memory pools of one GPU.
pub(super) struct Pools {
    results: usize,
    /// The pool, as CUDA's `CUmemoryPool`, for memory that work uses besides its results.
    bounded: RwLock<usize>,
    /// All size-limited pools that were ever made on the GPU: the size in bytes of each, and its `CUmemoryPool`. None
    /// is destroyed: its blocks may be in use, and drivers were seen to crash then. Limits with the same number of
    /// whole pieces share one pool.
    sized: Mutex<Vec<(u64, usize)>>,
    /// The GPUs that asked for access to the pools, and whether each can reach them.
    opened: Mutex<Vec<(c_int, bool)>>,
}

impl CudaBackend {
    /// Makes the GPU's memory pools, which are empty at first.
    pub(super) fn create_pools(&self) -> Result<Pools> {
        Ok(Pools {
            results: self.create_pool(0)?,
            bounded: RwLock::default(),
            sized: Mutex::default(),
            opened: Mutex::default(),
        })
    }

    /// Makes a pool that keeps the memory it has taken: giving memory back and asking again costs milliseconds per
    /// gigabyte. The pool never takes more than `most_bytes`; 0 means no limit.
    fn create_pool(&self, most_bytes: usize) -> Result<usize> {
        let _current = self.enter()?;
        const PINNED_DEVICE_MEMORY: c_int = 1;
        let properties = PoolProperties {
            allocation_type: PINNED_DEVICE_MEMORY,
            handle_types: 0,
            location_type: LOCATION_DEVICE,
            location_id: self.device,
            win32_security: std::ptr::null_mut(),
            max_size: most_bytes,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool = std::ptr::null_mut();
        // SAFETY: reads the properties, writes one handle.
        self.check("cuMemPoolCreate", unsafe { (self.functions().pool_create)(&mut pool, &properties) })?;
        self.pool_keep(pool as usize, u64::MAX)?;
        Ok(pool as usize)
    }

    /// Sets how much unused memory a pool keeps when a stream is synchronised; it gives the rest back to the system.
    fn pool_keep(&self, pool: usize, mut size_bytes: u64) -> Result<()> {
        let (pool, value) = (pool as *mut c_void, (&raw mut size_bytes).cast());
        // This attribute is a u64.
        call!(self, "cuMemPoolSetAttribute", pool_set_attribute(pool, POOL_ATTRIBUTE_RELEASE_THRESHOLD, value))
    }

    fn pool_allocate(&self, pool: usize, size_bytes: usize, stream: RawStream) -> Result<usize> {
        let (pool, stream) = (pool as *mut c_void, stream as *mut c_void);
        let mut address = 0u64;
        call!(self, "cuMemAllocFromPoolAsync", pool_allocate(&mut address, size_bytes, pool, stream))?;
        Ok(address as usize)
    }

    fn pool_trim(&self, pool: usize, size_bytes: u64) -> Result<()> {
        call!(self, "cuMemPoolTrimTo", pool_trim(pool as *mut c_void, size_bytes as usize))
    }

    fn pool_held_bytes(&self, pool: usize) -> Result<u64> {
        let (mut bytes, pool) = (0u64, pool as *mut c_void);
        let value = (&raw mut bytes).cast();
        // This attribute is a u64.
        call!(self, "cuMemPoolGetAttribute", pool_get_attribute(pool, POOL_ATTRIBUTE_RESERVED_BYTES, value))?;
        Ok(bytes)
    }

    /// Lets the GPU with number `other` access a memory pool of this GPU.
    fn pool_open(&self, pool: usize, other: c_int) -> Result<()> {
        const READ_AND_WRITE: c_int = 3;
        let access = PoolAccess { location_type: LOCATION_DEVICE, location_id: other, flags: READ_AND_WRITE };
        call!(self, "cuMemPoolSetAccess", pool_set_access(pool as *mut c_void, &access, 1))
    }

    fn is_reached_by(&self, other: c_int) -> Result<bool> {
        let mut reaches = 0;
        call!(self, "cuDeviceCanAccessPeer", device_can_reach(&mut reaches, other, self.device))?;
        Ok(reaches != 0)
    }
}

impl Pools {
    fn bounded(&self) -> RwLockReadGuard<'_, usize> {
        self.bounded.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn held_bytes(&self, backend: &CudaBackend) -> Result<u64> {
        let sized = lock(&self.sized);
        sized.iter().try_fold(backend.pool_held_bytes(self.results)?, |held, &(_, pool)| {
            Ok(held + backend.pool_held_bytes(pool)?)
        })
    }

    pub(super) fn allocate(&self, backend: &CudaBackend, size_bytes: usize, stream: RawStream) -> Result<usize> {
        backend.pool_allocate(self.results, size_bytes, stream)
    }

    pub(super) fn allocate_bounded(
        &self,
        backend: &CudaBackend,
        size_bytes: usize,
        stream: RawStream,
    ) -> Result<Option<usize>> {
        match *self.bounded() {
            0 => Ok(None),
            pool => backend.pool_allocate(pool, size_bytes, stream).map(Some),
        }
    }

    pub(super) fn bound(&self, backend: &CudaBackend, limit_bytes: u64) -> Result<()> {
        let pieces = limit_bytes.min(backend.properties.total_bytes) / PIECE_BYTES;
        let most_bytes = pieces.saturating_sub(LEFT_PIECES) * PIECE_BYTES;
        let opened = lock(&self.opened);
        let mut sized = lock(&self.sized);
        let mut bounded = self.bounded.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *bounded);
        if before != 0 {
            // Blocks that are still in use go back to the driver when they are freed.
            backend.pool_keep(before, 0)?;
            backend.pool_trim(before, 0)?;
        }
        if most_bytes == 0 {
            // No pool: the limit is 0 or too small.
        } else if let Some(&(_, pool)) = sized.iter().find(|(size_bytes, _)| *size_bytes == most_bytes) {
            backend.pool_keep(pool, u64::MAX)?;
            *bounded = pool;
        } else if let Ok(pool) = backend.create_pool(most_bytes as usize) {
            // If the driver cannot limit pools, `create_pool` fails, and there is no limited pool.
            sized.push((most_bytes, pool));
            opened.iter().filter(|(_, reaches)| *reaches).try_for_each(|&(other, _)| backend.pool_open(pool, other))?;
            *bounded = pool;
        }
        Ok(())
    }

    pub(super) fn trim_bounded(&self, backend: &CudaBackend) -> Result<()> {
        match *self.bounded() {
            0 => Ok(()),
            pool => backend.pool_trim(pool, 0),
        }
    }

    pub(super) fn trim_to(&self, backend: &CudaBackend, size_bytes: u64) -> Result<()> {
        backend.pool_trim(self.results, size_bytes)
    }

    pub(super) fn open_to(&self, backend: &CudaBackend, other: c_int) -> Result<()> {
        let mut opened = lock(&self.opened);
        if opened.iter().any(|&(device, _)| device == other) {
            return Ok(());
        }
        let reaches = backend.is_reached_by(other)?;
        if reaches {
            backend.pool_open(self.results, other)?;
            lock(&self.sized).iter().try_for_each(|&(_, pool)| backend.pool_open(pool, other))?;
        }
        opened.push((other, reaches));
        Ok(())
    }
}
