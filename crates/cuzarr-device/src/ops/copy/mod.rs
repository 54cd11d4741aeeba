//! Copies of flat bytes between devices: the one place that looks at where two memories are.

use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::{Access, Lease};
use crate::ops::compare;
use crate::ops::transfer;
use crate::stream::Stream;

/// Sets every byte to zero.
pub(crate) fn zero(buffer: &Buffer) -> Result<()> {
    let stream = Stream::legacy(buffer.device())?;
    stream.memset(buffer, 0)?;
    stream.synchronize()
}

/// Copies host bytes into a buffer of the same size. Returns when they are there.
pub(crate) fn host_to_buffer(source: &[u8], target: &Buffer) -> Result<()> {
    Stream::legacy(target.device())?.h2d(source, target)
}

/// Copies a buffer into host bytes of the same size.
pub(crate) fn buffer_to_host(source: &Buffer, target: &mut [u8]) -> Result<()> {
    Stream::legacy(source.device())?.d2h(source, target)
}

/// Copies between two buffers of the same size, which may overlap. Returns when the bytes are there.
pub(crate) fn buffer_to_buffer(source: &Buffer, target: &Buffer) -> Result<()> {
    target.require_writable()?;
    match (source.device(), target.device()) {
        (Device::Cpu, Device::Cpu) => Stream::legacy(Device::Cpu)?.d2d(source, target),
        (Device::Cpu, device) => {
            let _source = source.lease(Access::Read)?;
            let stream = Stream::legacy(device)?;
            // SAFETY: the source has the target's size (callers checked) and outlives the copy, which is waited for.
            unsafe { stream.h2d_async(source.address() as *const u8, target) }?;
            stream.synchronize()
        }
        (device, Device::Cpu) => {
            let _target = target.lease(Access::Write)?;
            let stream = Stream::legacy(device)?;
            // SAFETY: as above, the other way.
            unsafe { stream.d2h_async(source, target.address() as *mut u8) }?;
            stream.synchronize()
        }
        (device, other) => {
            let (from, to) = (source.address(), target.address());
            let size_bytes = source.size_bytes();
            let stream = Stream::legacy(device)?;
            if device == other && from < to + size_bytes && to < from + size_bytes && from != to {
                // Device copies do not allow overlap.
                let apart = Buffer::empty(device, size_bytes)?;
                stream.d2d(source, &apart)?;
                stream.d2d(&apart, target)?;
            } else if (device, from) != (other, to) {
                if device != other {
                    // As a copy on the target's own legacy stream would be.
                    stream.wait(&Stream::legacy(other)?.record()?)?;
                }
                stream.d2d(source, target)?;
            }
            stream.synchronize()
        }
    }
}

/// A vector of zeros, or an error instead of an abort when there is no memory.
pub(crate) fn try_zeroed_vec(size_bytes: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size_bytes)
        .map_err(|_| Error::new(ErrorKind::OutOfMemory, format!("the host has no {size_bytes} bytes left")))?;
    bytes.resize(size_bytes, 0);
    Ok(bytes)
}

/// Copies elements between nd-buffers of one shape, which may share memory, converting them where the dtypes differ.
pub(crate) fn nd_to_nd(source: &NdBuffer, target: &NdBuffer) -> Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    match (source.device(), target.device()) {
        (Device::Cpu, Device::Cpu) => {
            let _leases =
                Lease::for_copy((source.buffer(), source.footprint()), (target.buffer(), target.footprint()))?;
            let ((from, from_end), (to, to_end)) = (source.address_span(), target.address_span());
            let same = from == to && source.dtype() == target.dtype() && source.strides() == target.strides();
            if from < to_end && to < from_end && !same {
                let apart = NdBuffer::empty(Device::Cpu, source.dtype(), source.shape(), Order::C)?;
                // SAFETY: the leases are of source and target, and nobody else knows the memory between them.
                unsafe { transfer::cpu::copy(source, &apart) };
                // SAFETY: as above.
                unsafe { transfer::cpu::copy(&apart, target) };
            } else if !same {
                // SAFETY: the leases are of source and target, which do not overlap.
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

/// Packs on the source's device (converting there), moves flat bytes, and spreads them on the target's device.
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

/// The memory of elements that are contiguous in some order.
fn packed_bytes(array: &NdBuffer) -> Result<Buffer> {
    let start = array.layout().offset_bytes();
    array.buffer().slice(start..start + array.size_bytes())
}

/// All elements, packed in `order`, on the host.
pub(crate) fn nd_to_host(source: &NdBuffer, order: Order) -> Result<Vec<u8>> {
    let packed = if source.is_contiguous(order) { source.clone() } else { source.copy(order)? };
    packed_bytes(&packed)?.to_vec()
}

/// Whether all elements are `element`; see [`NdBuffer::all_equal_element`].
pub(crate) fn nd_equals_element(array: &NdBuffer, element: &[u8], equal_nan: bool) -> Result<bool> {
    match array.device() {
        Device::Cpu => {
            let _lease = array.lease(Access::Read)?;
            Ok(compare::cpu::all_equal_element(array, element, equal_nan))
        }
        device => compare::cuda::all_equal_element(array, element, equal_nan, &Stream::legacy(device)?),
    }
}

/// Whether two nd-buffers of one shape and dtype have equal elements; see [`NdBuffer::all_equal`]. Compared where the first
/// one is.
pub(crate) fn nd_equals(left: &NdBuffer, right: &NdBuffer, equal_nan: bool) -> Result<bool> {
    let right = right.to_device(left.device())?;
    match left.device() {
        Device::Cpu => {
            let _leases = (left.lease(Access::Read)?, right.lease(Access::Read)?);
            compare::cpu::all_equal(left, &right, equal_nan)
        }
        device => compare::cuda::all_equal(left, &right, equal_nan, &Stream::legacy(device)?),
    }
}
