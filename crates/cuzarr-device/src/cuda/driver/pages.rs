//! Pages of a GPU's memory for a [`Heap`]: addresses are reserved once, pages are created and mapped as they are needed.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Mutex;

use super::super::backend::{Backend, RawEvent, RawStream, Terms};
use super::super::context::lock;
use super::super::heap::{Heap, Page, System};
use super::{CudaBackend, LOCATION_DEVICE, PAGE_PINNED};
use crate::error::{Error, ErrorKind, Result};

/// Addresses that are reserved, as a multiple of the GPU's memory: so many blocks of any size find a place, whatever is in use.
const ADDRESSES_FACTOR: u64 = 8;

/// `CUmemAllocationProp`: memory of one GPU, not exportable.
#[repr(C)]
pub(super) struct PageProperties {
    allocation_type: c_int,
    handle_types: c_int,
    location_type: c_int,
    location_id: c_int,
    win32_security: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`: what one GPU may do with pages.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PageAccess {
    location_type: c_int,
    location_id: c_int,
    flags: c_int,
}

impl PageAccess {
    fn of(device: c_int) -> PageAccess {
        const READ_AND_WRITE: c_int = 3;
        PageAccess { location_type: LOCATION_DEVICE, location_id: device, flags: READ_AND_WRITE }
    }
}

/// A GPU's heap and where it lies.
pub(super) struct Pages {
    base: usize,
    page_bytes: usize,
    heap: Mutex<Heap>,
    /// GPUs that reach it; locked after the heap.
    access: Mutex<Vec<PageAccess>>,
}

impl Pages {
    pub(super) fn held_bytes(&self) -> u64 {
        lock(&self.heap).held_bytes()
    }

    pub(super) fn allocate(
        &self,
        backend: &CudaBackend,
        size_bytes: usize,
        stream: RawStream,
        terms: Terms,
    ) -> Result<usize> {
        // Before the lock: a forked child must not wait for threads that it has not.
        let _current = backend.enter()?;
        lock(&self.heap).allocate(backend, size_bytes, stream, terms)
    }

    pub(super) fn free(&self, backend: &CudaBackend, address: usize, stream: RawStream) -> Result<()> {
        let _current = backend.enter()?;
        lock(&self.heap).free(backend, address, stream)
    }

    pub(super) fn shrink_to(&self, backend: &CudaBackend, size_bytes: u64) -> Result<()> {
        let _current = backend.enter()?;
        lock(&self.heap).shrink_to(backend, size_bytes)
    }

    pub(super) fn is_open_to(&self, device: c_int) -> bool {
        lock(&self.access).iter().any(|access| access.location_id == device)
    }

    /// Lets another GPU reach every page, now and later.
    pub(super) fn open_to(&self, backend: &CudaBackend, device: c_int) -> Result<()> {
        let heap = lock(&self.heap);
        let _current = backend.enter()?;
        let mut access = lock(&self.access);
        access.push(PageAccess::of(device));
        heap.mapped()
            .into_iter()
            .try_for_each(|(address, pages)| backend.set_access(address as u64, pages * self.page_bytes, &access))
    }

    fn span(&self, range: &Range<usize>) -> (u64, usize) {
        ((self.base + range.start * self.page_bytes) as u64, range.len() * self.page_bytes)
    }
}

impl CudaBackend {
    /// An empty heap.
    pub(super) fn reserve_pages(&self) -> Result<Pages> {
        let _current = self.enter()?;
        const MINIMUM: c_int = 0;
        let mut page_bytes = 0usize;
        let properties = self.page_properties();
        // SAFETY: reads the properties, writes one size.
        let code = unsafe { (self.functions().page_size)(&mut page_bytes, &properties, MINIMUM) };
        self.check("cuMemGetAllocationGranularity", code)?;
        let addresses = self.properties.total_bytes.saturating_mul(ADDRESSES_FACTOR) as usize;
        let addresses = addresses.next_multiple_of(page_bytes);
        let base = self.reserve(addresses)?;
        Ok(Pages {
            base: base as usize,
            page_bytes,
            heap: Mutex::new(Heap::new(base as usize, addresses, page_bytes)),
            access: Mutex::new(vec![PageAccess::of(self.device)]),
        })
    }

    fn page_properties(&self) -> PageProperties {
        PageProperties {
            allocation_type: PAGE_PINNED,
            handle_types: 0,
            location_type: LOCATION_DEVICE,
            location_id: self.device,
            win32_security: std::ptr::null_mut(),
            flags: [0; 8],
        }
    }

    fn create_piece(&self, size_bytes: usize) -> Result<Page> {
        let (mut page, properties) = (0, self.page_properties());
        // SAFETY: reads the properties, writes one handle.
        let code = unsafe { (self.functions().page_create)(&mut page, size_bytes, &properties, 0) };
        self.check("cuMemCreate", code).map(|()| page)
    }

    /// Maps a piece of memory at reserved addresses behind which nothing is mapped.
    fn map_piece(&self, address: u64, size_bytes: usize, piece: Page) -> Result<()> {
        // SAFETY: as above; the driver made the piece, and it has this size.
        self.check("cuMemMap", unsafe { (self.functions().page_map)(address, size_bytes, 0, piece, 0) })
    }

    fn unmap_pieces(&self, address: u64, size_bytes: usize) -> Result<()> {
        // SAFETY: whole pieces that nobody uses, as the heap says.
        self.check("cuMemUnmap", unsafe { (self.functions().page_unmap)(address, size_bytes) })
    }

    fn set_access(&self, address: u64, size_bytes: usize, access: &[PageAccess]) -> Result<()> {
        // SAFETY: mapped memory; reads the descriptions.
        let code = unsafe { (self.functions().page_access)(address, size_bytes, access.as_ptr(), access.len()) };
        self.check("cuMemSetAccess", code)
    }

    fn reserve(&self, size_bytes: usize) -> Result<u64> {
        let mut base = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.functions().addresses_reserve)(&mut base, size_bytes, 0, 0, 0) };
        self.check("cuMemAddressReserve", code).map(|()| base)
    }

    fn free_addresses(&self, address: u64, size_bytes: usize) -> Result<()> {
        // SAFETY: reserved with this size, and nothing is mapped there.
        self.check("cuMemAddressFree", unsafe { (self.functions().addresses_free)(address, size_bytes) })
    }

    /// Memory in one piece at reserved addresses, for every GPU that reaches the heap.
    fn map_block(&self, address: u64, size_bytes: usize, access: &[PageAccess]) -> Result<()> {
        let piece = self.create_piece(size_bytes)?;
        let mapped = self.map_piece(address, size_bytes, piece);
        // What is mapped lives until it is unmapped.
        let released = System::release(self, piece);
        mapped?;
        let ready = released.and_then(|()| self.set_access(address, size_bytes, access));
        if ready.is_err() {
            self.unmap_pieces(address, size_bytes)?;
        }
        ready
    }

    fn pages(&self) -> Result<&Pages> {
        self.pages.as_ref().ok_or_else(|| Error::invalid("this device has no pages"))
    }
}

/// For the heap of this GPU, whose context is current.
impl System for CudaBackend {
    fn create(&self) -> Result<Page> {
        self.create_piece(self.pages()?.page_bytes)
    }

    fn release(&self, page: Page) -> Result<()> {
        // SAFETY: the driver made it.
        self.check("cuMemRelease", unsafe { (self.functions().page_release)(page) })
    }

    fn map(&self, first: usize, pages: &[Page]) -> Result<()> {
        let own = self.pages()?;
        let mut mapped = first..first;
        let result = pages.iter().try_for_each(|&page| {
            let (address, size_bytes) = own.span(&(mapped.end..mapped.end + 1));
            self.map_piece(address, size_bytes, page)?;
            mapped.end += 1;
            Ok(())
        });
        let (address, size_bytes) = own.span(&mapped);
        let result = result.and_then(|()| self.set_access(address, size_bytes, &lock(&own.access)));
        if result.is_err() && !mapped.is_empty() {
            self.unmap_pieces(address, size_bytes)?;
        }
        result
    }

    fn unmap(&self, range: Range<usize>) -> Result<()> {
        let (address, size_bytes) = self.pages()?.span(&range);
        self.unmap_pieces(address, size_bytes)
    }

    fn create_block(&self, pages: usize) -> Result<usize> {
        let own = self.pages()?;
        let size_bytes = pages * own.page_bytes;
        let address = self.reserve(size_bytes)?;
        let mapped = self.map_block(address, size_bytes, &lock(&own.access));
        if mapped.is_err() {
            self.free_addresses(address, size_bytes)?;
        }
        mapped.map(|()| address as usize)
    }

    fn release_block(&self, address: usize, pages: usize) -> Result<()> {
        let (address, size_bytes) = (address as u64, pages * self.pages()?.page_bytes);
        self.unmap_pieces(address, size_bytes)?;
        self.free_addresses(address, size_bytes)
    }

    fn mark(&self, stream: RawStream, event: Option<RawEvent>) -> Result<Option<RawEvent>> {
        let event = match event.map_or_else(|| self.new_event(false), Ok) {
            Ok(event) => event,
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                // SAFETY: a stream that whoever gives the block back vouches for, as below.
                return unsafe { self.synchronize_stream(stream) }.map(|()| None);
            }
            Err(error) => return Err(error),
        };
        // SAFETY: an event of the heap.
        unsafe { self.record(event, stream) }.map(|()| Some(event))
    }

    fn has_passed(&self, event: RawEvent) -> Result<bool> {
        // SAFETY: an event of the heap, as below.
        unsafe { self.event_is_done(event) }
    }

    fn synchronize(&self, event: RawEvent) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.synchronize_event(event) }
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        // SAFETY: as above.
        unsafe { Backend::wait(self, stream, event) }
    }
}
