//! Helpers for kernel launches: tables in device memory, and grids that fit the device.

use std::sync::OnceLock;

use crate::c_layout::Plain;
use crate::device::Device;
use crate::driver::context::{Context, PerDevice};
use crate::driver::source::KernelSource;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Kernel;
use crate::memory::buffer::Buffer;
use crate::memory::pinned::TABLES_BYTES;
use crate::memory::pool;
use crate::memory::slab::SlabRing;
use crate::ops::regions::RegionBoxes;
use crate::ops::regions::lower::{Lowered, Region};
use crate::stream::Stream;

static TABLE: KernelSource = KernelSource { name: "table", text: include_str!("table.cu"), headers: &[] };

/// Slab size of the pinned rings through which tables for kernels go to a device, in bytes. A kernel fetches the tables
/// from the slabs. A copy from pageable memory would wait for the stream, and a copy engine would first copy the slabs
/// of data that are queued.
const TABLE_SLAB_BYTES: usize = 1 << 20;
/// Bytes of a table that a block of threads fetches, and the largest number of such blocks, which can fill the bus.
const TABLE_BLOCK_BYTES: usize = 8 << 10;
const TABLE_BLOCKS: usize = 32;
/// Number of regions in the first launch of a transfer; a launch never has more than `MAX_TABLE_REGIONS`. Each launch
/// has twice as many regions as the one before. So the device begins early, and works while the host makes the next
/// table.
const FIRST_TABLE_REGIONS: usize = 512;
const MAX_TABLE_REGIONS: usize = TABLE_SLAB_BYTES / size_of::<Region>();
/// Blocks that run on a multiprocessor at once: 2048 threads in blocks of 256.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// For each device, the ring of pinned slabs through which tables for kernels go to it.
static TABLES: PerDevice<Tables> = PerDevice::new();

/// One device's ring of pinned slabs for tables, made at first use.
#[derive(Default)]
struct Tables(OnceLock<SlabRing>);

impl Tables {
    fn ring(&self, device: Device) -> Result<&SlabRing> {
        if self.0.get().is_none() {
            let ring = SlabRing::new(device, TABLE_SLAB_BYTES, TABLES_BYTES)?;
            // If two threads get here at once, the first one's ring is kept.
            let _ = self.0.set(ring);
        }
        self.0.get().ok_or_else(|| Error::new(ErrorKind::DeviceFailed, "no ring for the tables of kernels"))
    }
}

/// Refuses a buffer to which kernels cannot write the status words by which they report damaged data. A status is a
/// word of 8 bytes for each unit.
pub(crate) fn require_statuses(statuses: &Buffer) -> Result<()> {
    statuses.require_writable()?;
    match statuses.address().is_multiple_of(size_of::<u64>()) {
        true => Ok(()),
        false => Err(Error::invalid("statuses do not begin at a multiple of 8 bytes")),
    }
}

/// Number of threads per block in launches on `device`. Few on `simt`, where a thread is a fiber.
pub(crate) fn threads(device: Device) -> u32 {
    if device == Device::Simt { 32 } else { 256 }
}

/// Number of blocks to launch for `tiles` tiles: at most as many as the device runs at once.
pub(crate) fn blocks(kernel: &Kernel, tiles: u64) -> u32 {
    tiles.clamp(1, u64::from(kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR)) as u32
}

/// Size in bytes of the largest unit that a thread may load and store at once: a power of two, up to 16, that divides all
/// the sizes, addresses and strides that `all` joins bit by bit.
pub(crate) fn unit_bytes(all: usize) -> usize {
    1 << (all | 16).trailing_zeros()
}

/// Returns the context of the device to which a stream belongs; an error for streams of the host.
pub(crate) fn context(stream: &Stream) -> Result<&'static Context> {
    stream.context().ok_or_else(|| Error::new(ErrorKind::MemorySpace, "kernels do not run on a stream of cpu"))
}

/// Copies host values of a plain type to new device memory, in stream order.
pub(crate) fn upload<T: Plain>(values: &[T], stream: &Stream) -> Result<Buffer> {
    // SAFETY: `Plain` types have no padding, so all these bytes are initialised; they are borrowed as long as the slice.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
    upload_table(bytes, stream)
}

/// Copies the host bytes of a table for kernels to new device memory, in stream order. It goes through pinned memory,
/// so it does not wait for the stream.
///
/// # Errors
/// `MemorySpace` for a stream of cpu, `OutOfMemory`, `DeviceFailed`.
pub fn upload_table(bytes: &[u8], stream: &Stream) -> Result<Buffer> {
    write_table(bytes.len(), stream, |table| table.copy_from_slice(bytes))
}

/// Makes a table in device memory like [`upload_table`], but `write` fills it directly in pinned memory. So a large
/// table needs no additional memory, for which the system would first have to find pages. Bytes that `write` leaves out
/// are unspecified.
///
/// # Errors
/// Those of [`upload_table`].
pub fn write_table(size_bytes: usize, stream: &Stream, write: impl FnOnce(&mut [u8])) -> Result<Buffer> {
    let ring = TABLES.of(context(stream)?).ring(stream.device())?;
    let table = pool::allocate(size_bytes, stream)?;
    let mut slab = ring.acquire(size_bytes)?;
    write(&mut slab.bytes_mut()?[..size_bytes]);
    let kernel = TABLE.kernel(stream.device(), "table_fetch")?;
    let blocks = size_bytes.div_ceil(TABLE_BLOCK_BYTES).clamp(1, TABLE_BLOCKS) as u32;
    let arguments = (slab.address(), table.address(), size_bytes as u64 / 8, size_bytes as u32 % 8);
    // SAFETY: the parameters of table_fetch. Both sides have `size_bytes` bytes, and `note_use` keeps the slab until
    // the kernel is done.
    unsafe { kernel.launch(stream, blocks, threads(stream.device()), arguments, &[&table]) }?;
    slab.note_use(stream)?;
    Ok(table)
}

/// Converts boxes to tables of regions, which kernels read, and calls `launch` with each table. There are several
/// tables if one launch cannot take all boxes.
pub(crate) fn for_each_table(
    mut boxes: RegionBoxes,
    stream: &Stream,
    may_transpose: bool,
    mut launch: impl FnMut(&Lowered, &Buffer) -> Result<()>,
) -> Result<()> {
    boxes.simplify();
    let threads = threads(stream.device());
    let mut items = std::mem::take(&mut boxes.items).into_iter();
    let mut most = FIRST_TABLE_REGIONS;
    while items.len() > 0 {
        let part = RegionBoxes { items: items.by_ref().take(most).collect(), ..boxes.clone() };
        let lowered = part.lower(threads, may_transpose)?;
        let table = upload(&lowered.regions, stream)?;
        launch(&lowered, &table)?;
        most = (2 * most).min(MAX_TABLE_REGIONS);
    }
    Ok(())
}

/// Returns the kernel `<name>_<bytes>` of a kernel source.
pub(crate) fn sized_kernel(source: &'static KernelSource, device: Device, name: &str, bytes: usize) -> Result<Kernel> {
    source.kernel(device, &format!("{name}_{bytes}"))
}
