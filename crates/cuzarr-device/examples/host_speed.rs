//! How fast the host copies, casts and shuffles: `cargo run --release -p cuzarr-device --example host_speed`.

use std::time::Instant;

use cuzarr_device::cpu::{cast::cast, shuffle};
use cuzarr_device::transfer::{gather_host, scatter_host};
use cuzarr_device::{DType, Device, ElementStep, NdBuffer, Order, Packing, Tail, Transfer, TransferBox};

const MIB: usize = 1 << 20;
const BYTES: usize = 64 * MIB;

fn report(name: &str, mut run: impl FnMut()) {
    let seconds = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    let best = (0..6).map(|_| seconds(&mut run)).fold(f64::INFINITY, f64::min);
    println!("{name:<48} {:>7.2} GB/s", BYTES as f64 / best / 1e9);
}

fn one_box(tail: Tail, strides: [isize; 2], shape: [usize; 2], packed_size_bytes: usize) -> Transfer {
    let (start, extent) = (vec![0, 0], shape.to_vec());
    let item = TransferBox { packed_offset_bytes: 0, packed_size_bytes, packed_first_elem: 0, start, extent };
    Transfer { tail, packed_strides: strides.to_vec(), boxes: vec![item] }
}

fn main() -> cuzarr_device::Result<()> {
    let source: Vec<u8> = (0..BYTES).map(|at| (at * 31 + at / 977) as u8).collect();
    let mut target = vec![0_u8; BYTES];
    report("memcpy", || target.copy_from_slice(&source));
    for (size, name) in [(1, "1"), (2, "2"), (4, "4"), (8, "8"), (16, "16")] {
        let dtype = DType::opaque(size);
        let side = ((BYTES / size as usize) as f64).sqrt() as usize;
        for (kind, rows) in [("", side), (", power of two", 4096)] {
            let columns = BYTES / size as usize / rows;
            let bytes = &source[..rows * columns * size as usize];
            let array = NdBuffer::from_host(Device::Cpu, dtype, &[rows, columns], Order::C, bytes)?;
            let transposed = NdBuffer::zeroed(Device::Cpu, dtype, &[columns, rows], Order::C)?;
            transposed.fill(&vec![1; size as usize])?;
            let view = array.transpose(&[1, 0])?;
            report(&format!("transpose, {name}-byte elements{kind}"), || {
                transposed.copy_from(&view).unwrap_or_default()
            });
        }
        let array = NdBuffer::from_host(Device::Cpu, dtype, &[BYTES / size as usize], Order::C, &source)?;
        let half = array.region(&[0], &[BYTES / size as usize / 2], &[2])?;
        let packed = half.copy(Order::C)?;
        report(&format!("every second of {name}-byte elements (source)"), || {
            packed.copy_from(&half).unwrap_or_default()
        });
        report(&format!("swap bytes in units of {name}"), || shuffle::swap_bytes(&mut target, size as usize));
        report(&format!("shuffle, {name}"), || {
            shuffle::shuffle(&source, &mut target, size as usize).unwrap_or_default()
        });
        report(&format!("unshuffle, {name}"), || {
            shuffle::unshuffle(&source, &mut target, size as usize).unwrap_or_default()
        });
        report(&format!("bitshuffle, {name}"), || {
            shuffle::bitshuffle(&source, &mut target, size as usize).unwrap_or_default()
        });
        report(&format!("bitunshuffle, {name}"), || {
            shuffle::bitunshuffle(&source, &mut target, size as usize).unwrap_or_default()
        });
    }
    for (from, to) in [
        (DType::INT16, DType::FLOAT32),
        (DType::FLOAT32, DType::INT16),
        (DType::FLOAT32, DType::FLOAT64),
        (DType::FLOAT64, DType::FLOAT32),
        (DType::FLOAT32, DType::FLOAT16),
        (DType::FLOAT16, DType::FLOAT32),
        (DType::FLOAT64, DType::UINT8),
        (DType::INT64, DType::INT32),
    ] {
        let count = BYTES / from.size_bytes().max(to.size_bytes());
        let mut target = vec![0; count * to.size_bytes()];
        let name = format!("cast {from} to {to} (wider side)");
        report(&name, || cast(from, to, &source[..count * from.size_bytes()], &mut target).unwrap_or_default());
    }
    let shape = [4096, BYTES / 4 / 4096];
    let array = NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &source)?;
    let columns = shape[1] as isize;
    let tail = |packing, steps| Tail { packing, packed: DType::INT32, steps, write_steps: None, dtype: DType::INT32 };
    let swap = vec![ElementStep::SwapBytes { unit_bytes: 4 }];
    let mut packed = source.clone();
    for (name, tail, strides) in [
        ("plain", Tail::plain(DType::INT32), [columns, 1]),
        ("swap", tail(Packing::Plain, swap.clone()), [columns, 1]),
        ("unshuffle", tail(Packing::Shuffled { unit_bytes: 4 }, vec![]), [columns, 1]),
        ("unshuffle, swap", tail(Packing::Shuffled { unit_bytes: 4 }, swap.clone()), [columns, 1]),
        ("order F, plain", Tail::plain(DType::INT32), [1, 4096]),
        ("order F, swap", tail(Packing::Plain, swap.clone()), [1, 4096]),
        ("order F, unshuffle", tail(Packing::Shuffled { unit_bytes: 4 }, vec![]), [1, 4096]),
    ] {
        let transfer = one_box(tail, strides, shape, BYTES);
        report(&format!("scatter {name}"), || scatter_host(&source, &transfer, &array).unwrap_or_default());
        report(&format!("gather {name}"), || gather_host(&array, &transfer, &mut packed).unwrap_or_default());
    }
    let zeros = NdBuffer::full(Device::Cpu, DType::FLOAT32, &shape, Order::C, &[0, 0, 128, 63])?;
    report("fill float32", || zeros.fill(&[0, 0, 128, 63]).unwrap_or_default());
    report("all_equal_element", || assert!(zeros.all_equal_element(&[0, 0, 128, 63], true).unwrap_or(false)));
    report("empty + touch", || drop(NdBuffer::full(Device::Cpu, DType::FLOAT32, &shape, Order::C, &[0, 0, 128, 63])));
    Ok(())
}
