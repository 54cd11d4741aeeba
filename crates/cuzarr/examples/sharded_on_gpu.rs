//! A sharded, compressed array, read into the memory of a GPU where there is one, else into host memory.

use std::sync::Arc;

use cuzarr::prelude::*;

pub(crate) fn main() -> Result<()> {
    let has_gpu = !cuzarr::device::probe().gpus.is_empty();
    let device = if has_gpu { Device::Cuda(0) } else { Device::Cpu };

    let array = Array::builder([512, 512], DataType::UInt16)
        .chunks([64, 64])
        .shards([256, 256])
        .compressor("zstd:3")
        .options(ArrayOptions::default().with_device(device))
        .create_in(Arc::new(MemoryStore::new()), "image")?;
    let pixels: Vec<u16> = (0..512 * 512).map(|at| (at / 512 + at % 512) as u16).collect();
    array.write(&Selection::all(array.shape()), &pixels)?;
    assert_eq!(array.stored_chunks()?.len(), 4, "a shard is one stored object");

    // `explain` says beforehand what will be read, and where it will be decoded and why.
    let window = Selection::region(&[100, 200], &[50, 60])?;
    println!("{}", array.explain(&window)?);

    // The elements stay on the device: kernels, CuPy or PyTorch go on with them there.
    let elements = array.read_buffer(&window)?;
    assert_eq!((elements.device(), elements.shape()), (device, &[50, 60][..]));
    let on_host = elements.to_device(Device::Cpu)?.into_vec::<u16>()?;
    assert_eq!((on_host[0], on_host[50 * 60 - 1]), (300, 408));
    Ok(())
}
