//! Files that cuFile reads and writes directly between storage and GPU memory.

use std::fs::File;

use crate::device::Device;
use crate::driver::context::Context;
use crate::driver::cufile::{CuFile, Direction, FileHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;

/// A file whose bytes cuFile moves directly between storage and GPU memory. Like [`File`], it is read and written
/// through shared references.
pub struct DirectFile {
    handle: FileHandle,
    // Declared after the handle, so that it is closed after it.
    _file: File,
}

impl DirectFile {
    /// Registers an open file with cuFile, for reads and writes without host memory.
    ///
    /// # Errors
    /// `LibraryMissing` when cuFile is missing; `DeviceFailed` when it refuses the file.
    pub fn new(file: File) -> Result<DirectFile> {
        let handle = CuFile::get()?.register(&file)?;
        Ok(DirectFile { handle, _file: file })
    }

    /// Fills `target` with the bytes of the file that begin at `offset`. When it returns, the bytes are there for every
    /// stream. No stream may still work on that memory when it is called.
    ///
    /// # Errors
    /// `MemorySpace` for host memory; `DeviceFailed`, also when the file ends before `target` is full.
    pub fn read_exact_at(&self, target: &Buffer, offset: u64) -> Result<()> {
        target.require_writable()?;
        self.transfer(Direction::Read, target, offset)
    }

    /// Writes all bytes of `source` to the file, starting at `offset`. All work that fills `source` must be done.
    ///
    /// # Errors
    /// Those of [`DirectFile::read_exact_at`].
    pub fn write_all_at(&self, source: &Buffer, offset: u64) -> Result<()> {
        self.transfer(Direction::Write, source, offset)
    }

    fn transfer(&self, direction: Direction, memory: &Buffer, offset: u64) -> Result<()> {
        if memory.device() == Device::Cpu {
            return Err(Error::new(ErrorKind::MemorySpace, "cuFile is for memory of a device"));
        }
        let size_bytes = memory.size_bytes();
        if i64::try_from(offset).ok().and_then(|offset| offset.checked_add_unsigned(size_bytes as u64)).is_none() {
            return Err(Error::invalid(format!("no file reaches byte {offset}")));
        }
        let backend = &*Context::get(memory.device())?.backend;
        // SAFETY: `memory` keeps these bytes alive until the call has finished. The place of the last byte in the file
        // fits 63 bits, as was checked. `_file` is open as long as the handle.
        unsafe { self.handle.transfer(direction, backend, memory.address(), size_bytes, offset) }
    }
}
