//! Kernels against the CPU implementation, bit for bit, on generated cases.

mod device;

use cuzarr_device::internal::shuffle;
use cuzarr_device::internal::shuffle::{Shuffle, Span};
use cuzarr_device::internal::transfer;
use cuzarr_device::{
    Arithmetic, Buffer, DType, Device, ElementStep, Layout, NdBuffer, Order, Packing, SmallNumber, Stream, Tail,
    Transfer, TransferBox,
};
use device::{Random, devices};

const TYPES: &[DType] = &DType::NUMBERS;

fn cases(device: Device) -> u64 {
    if device == Device::Simt { 400 } else { 2000 }
}

/// A transfer, packed bytes, and the nd-buffer on the host that it fits.
struct Case {
    packed: Vec<u8>,
    packed_skew: usize,
    transfer: Transfer,
    memory: Vec<u8>,
    dtype: DType,
    layout: Layout,
}

fn random_tail(random: &mut Random) -> Tail {
    let packed = random.pick(&[TYPES, &[DType::opaque(3), DType::opaque(12), DType::opaque(24)]].concat());
    let mut tail = Tail::plain(packed);
    match random.below(6) {
        0 => tail.packing = Packing::Shuffled { unit_bytes: packed.size_bytes() },
        1 => tail.packing = Packing::Shuffled { unit_bytes: random.pick(&[1, 2, 3, 4, 8]) },
        2 => (tail.packing, tail.packed, tail.dtype) = (Packing::Bits, DType::BOOL, DType::BOOL),
        _ => {}
    }
    let unit = tail.packed.swap_unit_bytes();
    if unit > 1 && random.below(2) == 0 {
        tail.steps.push(ElementStep::SwapBytes { unit_bytes: unit });
    }
    if tail.packed.swap_unit_bytes() == 1 && tail.packed.size_bytes() > 1 || random.below(3) > 0 {
        return tail;
    }
    let to = random.pick(TYPES);
    if to != tail.packed {
        tail.steps.push(ElementStep::Cast { from: tail.packed, to });
        tail.dtype = to;
    }
    let kind = format!("{to}");
    if random.below(2) == 0 && !kind.starts_with("complex") && !kind.starts_with("bool") {
        let choices = [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply, Arithmetic::Divide];
        let mut operand = [0; 8];
        operand[..to.size_bytes()].copy_from_slice(&random.bytes(to.size_bytes()));
        tail.steps.push(ElementStep::Arithmetic { operation: random.pick(&choices), dtype: to, operand });
    }
    tail
}

/// Chunks of one shape laid over a strided array, their axes in any order.
fn random_case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let tail = random_tail(&mut random);
    let ndim = random.below(5);
    let large = random.below(4) == 0;
    let chunk: Vec<usize> = (0..ndim).map(|_| 1 + random.below(if large && ndim < 3 { 80 } else { 9 })).collect();
    let grid: Vec<usize> = (0..ndim).map(|_| 1 + random.below(3)).collect();
    let shape: Vec<usize> =
        (0..ndim).map(|axis| (chunk[axis] * grid[axis] - random.below(chunk[axis])).max(1)).collect();
    let layout = random_layout(&mut random, &shape, tail.dtype.size_bytes());
    let memory = random.bytes(layout.span_bytes().unwrap().1 + 7);
    let mut axes: Vec<usize> = (0..ndim).collect();
    if random.below(2) == 0 {
        axes.reverse();
    }
    let mut packed_strides = vec![0isize; ndim];
    let mut step = 1;
    for &axis in axes.iter().rev() {
        packed_strides[axis] = step;
        step *= chunk[axis] as isize;
    }
    let elems: usize = chunk.iter().product();
    let size = if tail.packing == Packing::Bits { elems.div_ceil(8) } else { elems * tail.packed.size_bytes() };
    let gap = random.pick(&[0, 0, 1, 5, 16]);
    let mut boxes = Vec::new();
    for number in 0..grid.iter().product::<usize>() {
        let mut rest = number;
        let at: Vec<usize> = grid.iter().map(|&count| (rest % count, rest /= count).0).collect();
        let start: Vec<usize> = (0..ndim).map(|axis| at[axis] * chunk[axis]).collect();
        if (0..ndim).any(|axis| start[axis] >= shape[axis]) {
            continue;
        }
        let extent = (0..ndim).map(|axis| chunk[axis].min(shape[axis] - start[axis])).collect();
        let offset = number * (size + gap);
        boxes.push(TransferBox {
            packed_offset_bytes: offset,
            packed_size_bytes: size,
            packed_first_elem: 0,
            start,
            extent,
        });
    }
    let packed = random.bytes(grid.iter().product::<usize>() * (size + gap));
    let packed_skew = random.pick(&[0, 0, 0, 1, 4]);
    Case {
        packed,
        packed_skew,
        dtype: tail.dtype,
        transfer: Transfer { tail, packed_strides, lists: None, boxes },
        memory,
        layout,
    }
}

fn random_layout(random: &mut Random, shape: &[usize], element: usize) -> Layout {
    let order = random.pick(&[Order::C, Order::C, Order::F]);
    let mut strides = Layout::contiguous(shape, element, order).unwrap().strides().to_vec();
    let mut offset = random.pick(&[0, 0, 0, element, 1]);
    if random.below(4) == 0 {
        strides.iter_mut().for_each(|stride| *stride *= 2);
    }
    for (stride, &extent) in strides.iter_mut().zip(shape) {
        if random.below(6) == 0 {
            offset += *stride as usize * (extent - 1);
            *stride = -*stride;
        }
    }
    Layout::strided(shape, &strides, offset, element, usize::MAX / 4).unwrap()
}

fn upload(device: Device, bytes: &[u8], skew: usize) -> Buffer {
    let whole = [vec![0; skew], bytes.to_vec()].concat();
    Buffer::from_bytes(device, &whole).unwrap().slice(skew..).unwrap()
}

fn array(device: Device, case: &Case) -> NdBuffer {
    NdBuffer::from_parts(Buffer::from_bytes(device, &case.memory).unwrap(), case.dtype, case.layout.clone()).unwrap()
}

#[test]
fn scatter_gives_the_same_bytes_as_the_cpu() {
    for device in devices() {
        for seed in 0..cases(device) {
            let case = random_case(seed);
            let run = |device| {
                let target = array(device, &case);
                let packed = upload(device, &case.packed, case.packed_skew);
                transfer::scatter(&packed, &case.transfer, &target).unwrap();
                target.buffer().to_vec().unwrap()
            };
            assert!(
                run(device) == run(Device::Cpu),
                "seed {seed} on {device}: {:?} {:?}",
                case.transfer.tail,
                case.layout
            );
        }
    }
}

#[test]
fn gather_gives_the_same_bytes_as_the_cpu() {
    for device in devices() {
        for seed in 0..cases(device) {
            let case = random_case(seed + 5000);
            let run = |device| {
                let source = array(device, &case);
                let packed = upload(device, &case.packed, case.packed_skew);
                transfer::gather(&source, &case.transfer, &packed).unwrap();
                packed.to_vec().unwrap()
            };
            assert!(
                run(device) == run(Device::Cpu),
                "seed {seed} on {device}: {:?} {:?}",
                case.transfer.tail,
                case.layout
            );
        }
    }
}

/// Values at which conversions differ between processors: NaN with payloads, infinities, limits of every integer.
fn telling_values(dtype: DType, random: &mut Random) -> Vec<u8> {
    let mut doubles: Vec<f64> =
        vec![0.0, -0.0, 0.5, -0.5, 1.5, 2.5, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300, 6e-8, 3e-8];
    for power in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = 2f64.powi(power);
        doubles.extend([limit, limit - 1.0, limit + 1.0, -limit, -limit - 1.0, limit * 0.99999, 65519.9, 65520.0]);
    }
    let mut bytes = Vec::new();
    for value in doubles {
        let parts = [value, -value * 0.75];
        match (format!("{dtype}").as_str(), dtype.size_bytes()) {
            ("float32", _) => bytes.extend((value as f32).to_ne_bytes()),
            ("float64", _) => bytes.extend(value.to_ne_bytes()),
            ("complex64", _) => parts.iter().for_each(|&part| bytes.extend((part as f32).to_ne_bytes())),
            ("complex128", _) => parts.iter().for_each(|&part| bytes.extend(part.to_ne_bytes())),
            (_, size) => bytes.extend(&(value as i64 as u64 ^ value as u64).to_le_bytes()[..size]),
        }
    }
    if dtype.size_bytes() == 2 {
        bytes.extend((0..=u16::MAX).step_by(7).flat_map(u16::to_ne_bytes));
    }
    let size = dtype.size_bytes();
    // All ones in the exponents too: NaN of every payload.
    bytes.extend(random.bytes(200 * size));
    for _ in 0..100 {
        let mut nan = random.bytes(size);
        nan[size - 1] |= 0x7f;
        nan[size.saturating_sub(2)] |= 0xf0;
        bytes.extend(nan);
    }
    bytes
}

#[test]
fn casts_between_all_types_agree_with_the_cpu() {
    for device in devices() {
        let mut random = Random::new(9);
        for &from in TYPES {
            let bytes = telling_values(from, &mut random);
            let len = bytes.len() / from.size_bytes();
            for &to in TYPES {
                let cast = |device| {
                    let source = NdBuffer::from_host(device, from, &[len], Order::C, &bytes).unwrap();
                    source.astype(to, Order::C).unwrap().to_host_bytes(Order::C).unwrap()
                };
                let (got, expected) = (cast(device), cast(Device::Cpu));
                let differs =
                    got.chunks(to.size_bytes()).zip(expected.chunks(to.size_bytes())).position(|(a, b)| a != b);
                if let Some(at) = differs {
                    let element =
                        |bytes: &[u8], dtype: DType| bytes[at * dtype.size_bytes()..][..dtype.size_bytes()].to_vec();
                    panic!(
                        "{from} {:02x?} to {to} on {device}: got {:02x?}, expected {:02x?}",
                        element(&bytes, from),
                        element(&got, to),
                        element(&expected, to)
                    );
                }
            }
        }
    }
}

#[test]
fn arithmetic_agrees_with_the_cpu_in_every_type() {
    for device in devices() {
        let mut random = Random::new(3);
        for &dtype in
            TYPES.iter().filter(|dtype| !matches!(**dtype, DType::BOOL | DType::COMPLEX64 | DType::COMPLEX128))
        {
            let bytes = telling_values(dtype, &mut random);
            let len = bytes.len() / dtype.size_bytes();
            for operation in
                [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply, Arithmetic::Divide, Arithmetic::Round]
            {
                for operand in
                    [[0; 8], [0xff; 8], random.bytes(8).try_into().unwrap(), [0, 0, 0x80, 0x3f, 0, 0, 0xf0, 0x3f]]
                {
                    // Whose payload survives when both are NaN is not defined anywhere.
                    let is_float = format!("{dtype}").contains("float");
                    if is_float && operand == [0xff; 8] {
                        continue;
                    }
                    let mut own = [0; 8];
                    own[..dtype.size_bytes()].copy_from_slice(&operand[..dtype.size_bytes()]);
                    let step = ElementStep::Arithmetic { operation, dtype, operand: own };
                    let run = |device| run_step(device, dtype, len, &bytes, step);
                    assert!(run(device) == run(Device::Cpu), "{operation:?} {own:02x?} in {dtype} on {device}");
                }
            }
        }
    }
}

fn run_step(device: Device, dtype: DType, len: usize, bytes: &[u8], step: ElementStep) -> Vec<u8> {
    let target = NdBuffer::empty(device, dtype, &[len], Order::C).unwrap();
    let tail = Tail { steps: vec![step], ..Tail::plain(dtype) };
    let whole = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: bytes.len(),
        packed_first_elem: 0,
        start: vec![0],
        extent: vec![len],
    };
    let transfer = Transfer { tail, packed_strides: vec![1], lists: None, boxes: vec![whole] };
    transfer::scatter(&Buffer::from_bytes(device, bytes).unwrap(), &transfer, &target).unwrap();
    target.to_host_bytes(Order::C).unwrap()
}

#[test]
fn copies_between_strided_arrays_agree_with_the_cpu() {
    for device in devices() {
        for seed in 0..cases(device) / 2 {
            let mut random = Random::new(seed + 77);
            let dtype = random.pick(&[TYPES, &[DType::opaque(3), DType::opaque(40)]].concat());
            let ndim = random.below(6);
            let shape: Vec<usize> = (0..ndim).map(|_| random.below(if ndim < 3 { 90 } else { 8 })).collect();
            let layouts: Vec<Layout> = (0..2)
                .map(|_| {
                    let clamped: Vec<usize> = shape.iter().map(|&extent| extent.max(1)).collect();
                    let layout = random_layout(&mut random, &clamped, dtype.size_bytes());
                    let memory = layout.span_bytes().unwrap().1;
                    Layout::strided(&shape, layout.strides(), layout.offset_bytes(), dtype.size_bytes(), memory)
                        .unwrap()
                })
                .collect();
            let memory: Vec<Vec<u8>> = layouts
                .iter()
                .map(|layout| random.bytes(layout.span_bytes().unwrap().1.max(layout.offset_bytes()) + 1))
                .collect();
            let run = |device| {
                let [source, target] = [0, 1].map(|at| {
                    let buffer = Buffer::from_bytes(device, &memory[at]).unwrap();
                    NdBuffer::from_parts(buffer, dtype, layouts[at].clone()).unwrap()
                });
                target.copy_from(&source).unwrap();
                assert!(target.all_equal(&source, true).unwrap());
                target.buffer().to_vec().unwrap()
            };
            assert!(run(device) == run(Device::Cpu), "seed {seed} on {device}: {dtype} {layouts:?}");
        }
    }
}

#[test]
fn fills_set_their_boxes_and_nothing_else() {
    for device in devices() {
        for seed in 0..cases(device) / 2 {
            let mut random = Random::new(seed + 999);
            let size = random.pick(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 100]);
            let dtype = DType::opaque(size);
            let ndim = random.below(4);
            let shape: Vec<usize> = (0..ndim).map(|_| 1 + random.below(if ndim < 2 { 2000 } else { 12 })).collect();
            let layout = random_layout(&mut random, &shape, size as usize);
            let memory = random.bytes(layout.span_bytes().unwrap().1 + 3);
            let start: Vec<usize> = shape.iter().map(|&extent| random.below(extent)).collect();
            let extent: Vec<usize> = (0..ndim).map(|axis| random.below(shape[axis] - start[axis] + 1)).collect();
            let element = random.bytes(size as usize);
            let run = |device| {
                let buffer = Buffer::from_bytes(device, &memory).unwrap();
                let target = NdBuffer::from_parts(buffer, dtype, layout.clone()).unwrap();
                transfer::fill_boxes(&target, &[(start.clone(), extent.clone())], &element).unwrap();
                let filled = target.region(&start, &extent, &vec![1; ndim]).unwrap();
                assert!(filled.all_equal_element(&element, false).unwrap(), "seed {seed} on {device}");
                target.buffer().to_vec().unwrap()
            };
            assert!(
                run(device) == run(Device::Cpu),
                "seed {seed} on {device}: {dtype} {layout:?} {start:?} {extent:?}"
            );
        }
    }
}

#[test]
fn comparisons_agree_with_the_cpu() {
    let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let nan = f32::NAN;
    let arrays = [
        (DType::FLOAT32, f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::FLOAT32, f32s(&[1.0, -nan, -0.0, 2.0])),
        (DType::FLOAT32, f32s(&[1.0, 3.0, -0.0, 2.0])),
        (DType::FLOAT32, f32s(&[nan, nan, nan, -nan])),
        (DType::COMPLEX64, f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::COMPLEX64, f32s(&[5.0, nan, -0.0, 2.0])),
        (DType::UINT32, f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::opaque(16), f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::FLOAT64, f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::BFLOAT16, f32s(&[1.0, nan, 0.0, 2.0])),
        (DType::FLOAT16, f32s(&[nan, nan, 0.0, 2.0])),
    ];
    for device in devices() {
        for (dtype, left) in &arrays {
            for (other, right) in arrays.iter().filter(|(other, _)| other == dtype) {
                for equal_nan in [false, true] {
                    let run = |device| {
                        let shape = [16 / dtype.size_bytes()];
                        let left = NdBuffer::from_host(device, *dtype, &shape, Order::C, left).unwrap();
                        let right = NdBuffer::from_host(device, *other, &shape, Order::C, right).unwrap();
                        let element = right.to_host_bytes(Order::C).unwrap()[..dtype.size_bytes()].to_vec();
                        let elements = left.all_equal_element(&element, equal_nan).unwrap();
                        (left.all_equal(&right, equal_nan).unwrap(), elements)
                    };
                    assert_eq!(
                        run(device),
                        run(Device::Cpu),
                        "{dtype} {left:02x?} {right:02x?} equal_nan={equal_nan} on {device}"
                    );
                }
            }
        }
    }
}

#[test]
fn one_different_byte_is_found_wherever_it_is() {
    for device in devices() {
        let bytes = vec![7u8; 5000];
        for at in [0, 1, 15, 16, 127, 128, 4095, 4096, 4999] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let [left, right] = [&bytes, &other]
                .map(|bytes| NdBuffer::from_host(device, DType::UINT8, &[5000], Order::C, bytes).unwrap());
            assert!(!left.all_equal(&right, false).unwrap(), "byte {at} on {device}");
            assert!(!right.all_equal_element(&[7], false).unwrap(), "byte {at} on {device}");
            assert!(left.all_equal_element(&[7], false).unwrap());
        }
    }
}

/// Chunks of a C-ordered array whose rows are multiples of 16 elements, so that runs are moved in groups; with `cut`, rows
/// of the last chunks end behind a group.
fn aligned_case(random: &mut Random, tail: Tail, cut: usize) -> Case {
    let (chunk, grid) = ([3, 32], [2, 2]);
    let shape = [chunk[0] * grid[0], chunk[1] * grid[1] - cut];
    let layout = Layout::contiguous(&shape, tail.dtype.size_bytes(), Order::C).unwrap();
    let elems = chunk[0] * chunk[1];
    let size = if tail.packing == Packing::Bits { elems / 8 } else { elems * tail.packed.size_bytes() };
    let boxes = (0..4).map(|number| {
        let start = vec![number / 2 * chunk[0], number % 2 * chunk[1]];
        let extent = vec![chunk[0], chunk[1].min(shape[1] - start[1])];
        TransferBox { packed_offset_bytes: number * size, packed_size_bytes: size, packed_first_elem: 0, start, extent }
    });
    let boxes = boxes.collect();
    Case {
        packed: random.bytes(4 * size),
        packed_skew: 0,
        dtype: tail.dtype,
        transfer: Transfer { tail, packed_strides: vec![chunk[1] as isize, 1], lists: None, boxes },
        memory: random.bytes(layout.span_bytes().unwrap().1),
        layout,
    }
}

#[test]
fn runs_that_are_moved_in_groups_agree_with_the_cpu() {
    let shuffled =
        |dtype: DType| Tail { packing: Packing::Shuffled { unit_bytes: dtype.size_bytes() }, ..Tail::plain(dtype) };
    let mut tails = vec![Tail { packing: Packing::Bits, ..Tail::plain(DType::BOOL) }];
    let pairs = [SmallNumber::ComplexFloat16, SmallNumber::ComplexBFloat16].map(DType::small);
    for &dtype in TYPES.iter().chain(&pairs) {
        let width = 8 * dtype.swap_unit_bytes() as u32;
        let floats = [0, 1, 3, width / 2, width - 1].map(|dropped_bits| ElementStep::RoundBits { dtype, dropped_bits });
        let integers = [1, 3, width - 1, width, 70].map(|kept_bits| ElementStep::RoundInteger { dtype, kept_bits });
        for round in floats.into_iter().chain(integers) {
            let write_steps = Some(vec![round]);
            tails.extend([
                Tail { write_steps: write_steps.clone(), ..shuffled(dtype) },
                Tail { write_steps, ..Tail::plain(dtype) },
            ]);
        }
        let swap = ElementStep::SwapBytes { unit_bytes: dtype.swap_unit_bytes() };
        tails.extend([shuffled(dtype), Tail { steps: vec![swap], ..shuffled(dtype) }]);
        for &to in TYPES {
            let cast = ElementStep::Cast { from: dtype, to };
            if dtype != to && cuzarr_device::internal::cpu::cast::is_supported(dtype, to) {
                tails.push(Tail { steps: vec![cast], dtype: to, ..Tail::plain(dtype) });
            }
        }
    }
    for (dtype, operand) in [
        (DType::FLOAT32, 3.3f32.to_ne_bytes().to_vec()),
        (DType::FLOAT64, 0.7f64.to_ne_bytes().to_vec()),
        (DType::INT16, vec![3, 0]),
    ] {
        let mut padded = [0; 8];
        padded[..operand.len()].copy_from_slice(&operand);
        for operation in
            [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply, Arithmetic::Divide, Arithmetic::Round]
        {
            let step = ElementStep::Arithmetic { operation, dtype, operand: padded };
            tails.push(Tail { steps: vec![step], ..Tail::plain(dtype) });
        }
    }
    for device in devices() {
        let mut random = Random::new(11);
        for tail in tails.iter().filter(|tail| tail.check().is_ok()) {
            for cut in [0, 4, 8, 9] {
                let case = aligned_case(&mut random, tail.clone(), cut);
                let run = |device| {
                    let (target, packed) = (array(device, &case), upload(device, &case.packed, 0));
                    transfer::scatter(&packed, &case.transfer, &target).unwrap();
                    let again = Buffer::zeroed(device, case.packed.len()).unwrap();
                    transfer::gather(&array(device, &case), &case.transfer, &again).unwrap();
                    (target.buffer().to_vec().unwrap(), again.to_vec().unwrap())
                };
                assert!(run(device) == run(Device::Cpu), "{:?} cut {cut} on {device}", case.transfer.tail);
            }
        }
    }
}

#[test]
fn shuffles_agree_with_the_cpu_and_undo_each_other() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let host = Stream::new(Device::Cpu).unwrap();
        let mut random = Random::new(5);
        for kind in [Shuffle::Bytes, Shuffle::Bits] {
            for (unit, step) in [1, 2, 3, 4, 5, 8, 12, 16, 24].into_iter().flat_map(|unit| [(unit, 1), (unit, 8)]) {
                // Spans anywhere, and spans that begin where 8 bytes can be stored at once.
                let sizes = [0, 1, unit, 8 * unit, 8 * unit + 3, 1000, 4096, 3001];
                let (mut spans, mut at) = (Vec::new(), (step - 1) / 7 * 8);
                for size_bytes in sizes {
                    spans.push(Span { src_offset_bytes: at, dst_offset_bytes: at, size_bytes });
                    at = (at + size_bytes + random.pick(&[0, 0, 3])).next_multiple_of(step);
                }
                let bytes = random.bytes(at);
                let run = |stream: &Stream| {
                    let source = Buffer::from_bytes(stream.device(), &bytes).unwrap();
                    let [there, back] = [0, 1].map(|_| Buffer::zeroed(stream.device(), at).unwrap());
                    shuffle::shuffle(kind, &source, &there, &spans, unit, stream).unwrap();
                    shuffle::unshuffle(kind, &there, &back, &spans, unit, stream).unwrap();
                    stream.synchronize().unwrap();
                    (there.to_vec().unwrap(), back.to_vec().unwrap())
                };
                let (got, expected) = (run(&stream), run(&host));
                assert!(got == expected, "{kind:?} of {unit} on {device}");
                for span in &spans {
                    let range = span.src_offset_bytes..span.src_offset_bytes + span.size_bytes;
                    assert!(got.1[range.clone()] == bytes[range]);
                }
            }
        }
    }
}
