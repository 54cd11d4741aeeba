//! An array that is larger than the memory it may take, written and read region by region.

use std::sync::Arc;

use cuzarr::prelude::*;

const SIDE: u64 = 1024;
const LIMIT_BYTES: u64 = 1 << 20;

pub(crate) fn main() -> Result<()> {
    let array = Array::builder([SIDE, SIDE], DataType::Float64)
        .chunks([64, 256])
        .options(ArrayOptions::default().with_memory_limit_bytes(LIMIT_BYTES))
        .create_in(Arc::new(MemoryStore::new()), "heights")?;
    // Bands of whole chunks; while one is made, the one before is written.
    let bands = Regions::new(array.shape(), vec![64, SIDE])?.from(0).collect::<Result<Vec<_>>>()?;
    array.write_stream(&bands, |band| {
        let first = band.start[0] * SIDE;
        let elements: Vec<u8> = (first..first + band.elems()).flat_map(|at| (at as f64).to_ne_bytes()).collect();
        Ok(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[64, SIDE as usize], Order::C, &elements)?)
    })?;

    // Regions of whole chunks; while one is worked on, the next one is read.
    let regions = Regions::new(array.shape(), vec![64, 256])?.from(0).collect::<Result<Vec<_>>>()?;
    let (mut sum, mut largest) = (0.0, 0);
    array.stream(&regions, 1, |_region, elements| {
        largest = largest.max(elements.size_bytes() as u64);
        sum += elements.host_slice::<f64>()?.iter().sum::<f64>();
        Ok(())
    })?;
    let count = (SIDE * SIDE) as f64;
    assert_eq!(sum, count * (count - 1.0) / 2.0);
    // A region and the one that is read ahead fit the limit, which is an eighth of the array's size.
    assert!(2 * largest <= array.options().memory_limit_bytes && 16 * largest <= array.metadata().elems()? * 8);
    println!("the sum of {} elements is {sum}", SIDE * SIDE);
    Ok(())
}
