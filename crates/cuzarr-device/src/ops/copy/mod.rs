//! Copies of elements between nd-buffers on any devices.

use crate::array::dtype::DType;
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::copy::buffer_to_buffer;
use crate::ops::{cast, transfer};
use crate::stream::Stream;

impl NdBuffer {
    /// Makes a copy of the nd-buffer on the same device, packed in `order`.
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`].
    pub fn copy(&self, order: Order) -> Result<NdBuffer> {
        let target = NdBuffer::empty(self.device(), self.dtype(), self.shape(), order)?;
        target.copy_from(self)?;
        Ok(target)
    }

    /// Like [`NdBuffer::reshape`], but copies if a view is not possible.
    ///
    /// # Errors
    /// Those of [`NdBuffer::reshape`] for the number of elements, and [`NdBuffer::copy`].
    pub fn reshape_copy(&self, shape: &[usize]) -> Result<NdBuffer> {
        match self.layout().reshape(shape)? {
            Some(layout) => Ok(self.with_layout(layout)),
            None => self.copy(Order::C)?.reshape(shape),
        }
    }

    /// Makes a packed copy with elements of another type, converted as NumPy's `astype` does on x86-64.
    ///
    /// # Errors
    /// `Unsupported` for types that cannot be converted; those of [`NdBuffer::empty`].
    pub fn astype(&self, dtype: DType, order: Order) -> Result<NdBuffer> {
        let target = NdBuffer::empty(self.device(), dtype, self.shape(), order)?;
        target.copy_from_cast(self)?;
        Ok(target)
    }

    /// Copies all elements of `source`, which must have the same shape and dtype. It may be on any device, have any
    /// strides, and share this memory.
    ///
    /// # Errors
    /// `InvalidArgument` when shapes or dtypes differ or this memory is read-only.
    pub fn copy_from(&self, source: &NdBuffer) -> Result<()> {
        if source.dtype() != self.dtype() {
            let message = format!("cannot copy {} into {}", source.dtype(), self.dtype());
            return Err(Error::invalid(message).with_hint("convert it: `astype` or `copy_from_cast`"));
        }
        self.copy_from_cast(source)
    }

    /// Like [`NdBuffer::copy_from`], but converts the elements if the dtypes differ, as [`NdBuffer::astype`] does.
    ///
    /// # Errors
    /// Those of [`NdBuffer::copy_from`]; `Unsupported` for types that cannot be converted.
    pub fn copy_from_cast(&self, source: &NdBuffer) -> Result<()> {
        if source.shape() != self.shape() {
            return Err(Error::invalid(format!("cannot copy shape {:?} into {:?}", source.shape(), self.shape())));
        }
        if source.dtype() != self.dtype() && !cast::is_supported(source.dtype(), self.dtype()) {
            let message = format!("cannot cast {} to {}", source.dtype(), self.dtype());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.buffer().require_writable()?;
        nd_to_nd(source, self)
    }

    /// Like [`NdBuffer::copy_from_cast`], but in the order of `stream`: if both are in the memory of its device and do not
    /// overlap, returns before the copy is done. Other copies are done when this returns.
    ///
    /// # Errors
    /// Those of [`NdBuffer::copy_from_cast`].
    pub fn copy_from_on(&self, source: &NdBuffer, stream: &Stream) -> Result<()> {
        let ((begin, end), (to_begin, to_end)) = (source.address_span(), self.address_span());
        let is_there = |array: &NdBuffer| array.device() == stream.device() && stream.device() != Device::Cpu;
        let goes = source.dtype() == self.dtype() || cast::is_supported(source.dtype(), self.dtype());
        let apart = end <= to_begin || to_end <= begin;
        if !(is_there(source) && is_there(self) && goes && apart && source.shape() == self.shape()) {
            stream.synchronize()?;
            return self.copy_from_cast(source);
        }
        self.buffer().require_writable()?;
        transfer::cuda::copy(source, self, stream)
    }

    /// Copies the elements to `device`, packed: in F order if they are packed in F order only, otherwise in C order.
    /// Shares the memory if it is already there.
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`].
    pub fn to_device(&self, device: Device) -> Result<NdBuffer> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let f_only = self.is_contiguous(Order::F) && !self.is_contiguous(Order::C);
        let order = if f_only { Order::F } else { Order::C };
        let target = NdBuffer::empty(device, self.dtype(), self.shape(), order)?;
        target.copy_from(self)?;
        Ok(target)
    }

    /// Copies all elements to host bytes, packed in `order`.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceFailed`.
    pub fn to_host_bytes(&self, order: Order) -> Result<Vec<u8>> {
        nd_to_host(self, order)
    }
}

/// Copies elements between nd-buffers of the same shape, and converts them if the dtypes differ. The two may share
/// memory.
pub(crate) fn nd_to_nd(source: &NdBuffer, target: &NdBuffer) -> Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    match (source.device(), target.device()) {
        (Device::Cpu, Device::Cpu) => {
            let _leases =
                Buffer::lease_for_copy(source.buffer(), source.footprint(), target.buffer(), target.footprint())?;
            let ((from, from_end), (to, to_end)) = (source.address_span(), target.address_span());
            let same = from == to && source.dtype() == target.dtype() && source.strides() == target.strides();
            if from < to_end && to < from_end && !same {
                let apart = NdBuffer::empty(Device::Cpu, source.dtype(), source.shape(), Order::C)?;
                // SAFETY: the source is leased. `apart` has the same shape, and no other code knows it.
                unsafe { transfer::cpu::copy(source, &apart) };
                // SAFETY: the target is leased for writing. `apart` has the same shape, and no other code knows it.
                unsafe { transfer::cpu::copy(&apart, target) };
            } else if !same {
                // SAFETY: source and target are leased, and do not overlap, as was compared; `copy_from_cast` compared the
                // shapes.
                unsafe { transfer::cpu::copy(source, target) };
            }
            Ok(())
        }
        (from, to) if from == to => {
            let ((begin, end), (to_begin, to_end)) = (source.address_span(), target.address_span());
            let stream = Stream::legacy(from)?;
            if begin < to_end && to_begin < end {
                if begin == to_begin && source.dtype() == target.dtype() && source.strides() == target.strides() {
                    return Ok(());
                }
                let apart = NdBuffer::empty(from, source.dtype(), source.shape(), Order::C)?;
                transfer::cuda::copy(source, &apart, &stream)?;
                transfer::cuda::copy(&apart, target, &stream)?;
            } else {
                transfer::cuda::copy(source, target, &stream)?;
            }
            stream.synchronize()
        }
        _ => across_devices(source, target),
    }
}

/// Copies between two devices: packs (and converts) on the source's device, moves flat bytes, and spreads them on the
/// target's device.
fn across_devices(source: &NdBuffer, target: &NdBuffer) -> Result<()> {
    let order = if !target.is_contiguous(Order::C) && target.is_contiguous(Order::F) { Order::F } else { Order::C };
    let packed = match source.dtype() == target.dtype() && source.is_contiguous(order) {
        true => source.clone(),
        false => source.astype(target.dtype(), order)?,
    };
    if target.is_contiguous(order) {
        return buffer_to_buffer(&packed_bytes(&packed)?, &packed_bytes(target)?);
    }
    let spread = NdBuffer::empty(target.device(), target.dtype(), target.shape(), order)?;
    buffer_to_buffer(&packed_bytes(&packed)?, &packed_bytes(&spread)?)?;
    nd_to_nd(&spread, target)
}

/// The bytes of an nd-buffer that is contiguous in some order.
fn packed_bytes(array: &NdBuffer) -> Result<Buffer> {
    let start = array.layout().offset_bytes();
    array.buffer().slice(start..start + array.size_bytes())
}

/// Copies all elements to the host, packed in `order`.
pub(crate) fn nd_to_host(source: &NdBuffer, order: Order) -> Result<Vec<u8>> {
    let packed = if source.is_contiguous(order) { source.clone() } else { source.copy(order)? };
    packed_bytes(&packed)?.to_vec()
}
