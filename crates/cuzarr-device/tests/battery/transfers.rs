//! Transfers between packed chunks and nd-buffers, compared with the naive model.

use cuzarr_device::internal::cpu::cast::is_supported;
use cuzarr_device::internal::transfer::{
    Scatter, fill_boxes, gather, gather_host, scatter, scatter_all_on, scatter_host,
};
use cuzarr_device::{
    Arithmetic, Buffer, DType, DTypeKind, Device, ElementStep, ErrorKind, NdBuffer, Order, Packing, Stream, Tail,
    Transfer, TransferBox,
};

use crate::devices::{devices, for_each_case};
use crate::naive;
use crate::random::{DTYPES, Random};

/// A tail of up to four steps.
fn random_tail(random: &mut Random) -> Tail {
    let packed = random.pick(&DTYPES);
    let size = packed.size_bytes();
    let packing = match random.below(5) {
        0 | 1 => Packing::Plain,
        2 if packed == DType::BOOL => Packing::Bits,
        2 => Packing::Shuffled { unit_bytes: size },
        3 => Packing::Shuffled { unit_bytes: random.pick(&[1, 2, 3, 4, 8, 16]) },
        _ if random.one_in(2) => Packing::Bits,
        _ => Packing::Plain,
    };
    let packed = if packing == Packing::Bits { DType::BOOL } else { packed };
    let mut steps = Vec::new();
    let mut dtype = packed;
    for _ in 0..random.below(5) {
        let step = match random.below(4) {
            0 => swap(random, dtype),
            3 => round_bits(random, dtype),
            1 => Some(ElementStep::Cast { from: dtype, to: random.pick(&DTYPES) }),
            _ => arithmetic(random, dtype),
        };
        match step {
            Some(ElementStep::Cast { from, to }) if !is_supported(from, to) => continue,
            Some(ElementStep::Cast { to, .. }) => dtype = to,
            Some(_) => (),
            None => continue,
        }
        steps.extend(step);
    }
    let tail = Tail { packing, packed, steps, write_steps: None, dtype };
    tail.check().unwrap();
    tail
}

fn swap(random: &mut Random, dtype: DType) -> Option<ElementStep> {
    let unit_bytes = match dtype.kind() {
        DTypeKind::Opaque => random.pick(&[2, 4, 8]),
        _ => dtype.swap_unit_bytes(),
    };
    let possible = unit_bytes > 1 && dtype.size_bytes().is_multiple_of(unit_bytes);
    possible.then_some(ElementStep::SwapBytes { unit_bytes })
}

fn round_bits(random: &mut Random, dtype: DType) -> Option<ElementStep> {
    match dtype.kind() {
        DTypeKind::Float | DTypeKind::BFloat | DTypeKind::Complex => {
            let dropped_bits = random.below(8 * dtype.swap_unit_bytes()) as u32;
            Some(ElementStep::RoundBits { dtype, dropped_bits })
        }
        DTypeKind::Int | DTypeKind::UInt => {
            let kept_bits = 1 + random.below(8 * dtype.size_bytes()) as u32;
            Some(ElementStep::RoundInteger { dtype, kept_bits })
        }
        DTypeKind::Bool | DTypeKind::Opaque => None,
    }
}

fn arithmetic(random: &mut Random, dtype: DType) -> Option<ElementStep> {
    let operations =
        [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply, Arithmetic::Divide, Arithmetic::Round];
    let operation = random.pick(&operations);
    let possible = matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat);
    if !possible {
        return None;
    }
    let mut operand = [0; 8];
    // A small number in any of the types: 3, or a float's bits.
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Float, 4) => operand[..4].copy_from_slice(&3.25_f32.to_ne_bytes()),
        (DTypeKind::Float, 8) => operand.copy_from_slice(&0.1_f64.to_ne_bytes()),
        (DTypeKind::Float, _) => operand[..2].copy_from_slice(&0x4100_u16.to_ne_bytes()),
        (DTypeKind::BFloat, _) => operand[..2].copy_from_slice(&0x4040_u16.to_ne_bytes()),
        (_, size) => operand[..size].copy_from_slice(&3_u64.to_le_bytes()[..size]),
    }
    Some(ElementStep::Arithmetic { operation, dtype, operand })
}

/// Chunks of one random shape, and boxes that tile an array of `shape` in disjoint parts.
fn random_transfer(random: &mut Random, tail: Tail, shape: &[usize]) -> (Transfer, usize) {
    let ndim = shape.len();
    let cuts: Vec<usize> = shape.iter().map(|&extent| random.below(extent + 1)).collect();
    let (mut strides, mut chunk_elems) = (vec![0_isize; ndim], 1);
    let mut steps = vec![1_usize; ndim];
    let plain = random.one_in(3);
    let axes = if plain { (0..ndim).rev().collect() } else { random.permutation(ndim) };
    for axis in axes {
        let extent = cuts[axis].max(shape[axis] - cuts[axis]).max(1);
        steps[axis] = if plain { 1 } else { 1 + random.below(2) * random.below(3) };
        strides[axis] = (chunk_elems * steps[axis]) as isize;
        chunk_elems *= (extent - 1) * steps[axis] + 1 + if plain { 0 } else { random.below(2) };
    }
    let backwards = (!plain && ndim > 0 && random.one_in(5)).then(|| random.below(ndim));
    if let Some(axis) = backwards {
        strides[axis] = -strides[axis];
    }
    let lead = if plain { 0 } else { random.below(2) };
    let packed_size_bytes = match tail.packing {
        Packing::Bits => (chunk_elems + lead).div_ceil(8),
        _ => (chunk_elems + lead) * tail.packed.size_bytes() + random.below(2) * random.below(5),
    };
    let (mut boxes, mut offset) = (Vec::new(), random.below(5));
    for corner in naive::indexes(&vec![2; ndim]) {
        let start: Vec<usize> = (0..ndim).map(|axis| if corner[axis] == 0 { 0 } else { cuts[axis] }).collect();
        let end = |axis: usize| if corner[axis] == 0 { cuts[axis] } else { shape[axis] };
        let extent: Vec<usize> = (0..ndim).map(|axis| end(axis) - start[axis]).collect();
        let mut packed_first_elem = lead;
        if let Some(axis) = backwards {
            packed_first_elem += extent[axis].saturating_sub(1) * strides[axis].unsigned_abs();
        }
        boxes.push(TransferBox { packed_offset_bytes: offset, packed_size_bytes, packed_first_elem, start, extent });
        offset += packed_size_bytes + random.below(3);
    }
    (Transfer { tail, packed_strides: strides, lists: None, boxes }, offset)
}

fn packed_bytes(random: &mut Random, tail: &Tail, size: usize) -> Vec<u8> {
    match tail.packing {
        Packing::Bits => random.elements(DType::UINT8, size),
        _ => random.elements(if tail.packed == DType::BOOL { DType::BOOL } else { DType::UINT8 }, size),
    }
}

/// Scatters with the packed bytes of each box in a buffer of their own, some bytes behind its beginning.
fn scatter_each(random: &mut Random, device: Device, packed: &[u8], transfer: &Transfer, target: &NdBuffer) {
    let mut apart = |item: &TransferBox| {
        let own = &packed[item.packed_offset_bytes..item.packed_offset_bytes + item.packed_size_bytes];
        let before = random.below(3) * 16 + random.below(2) * random.below(16);
        let buffer = Buffer::from_bytes(device, &[&vec![0xAB; before], own].concat()).unwrap();
        (buffer, TransferBox { packed_offset_bytes: before, ..item.clone() })
    };
    let (buffers, boxes): (Vec<_>, Vec<_>) = transfer.boxes.iter().map(&mut apart).unzip();
    let stream = Stream::legacy(device).unwrap();
    let transfer = Transfer { boxes, ..transfer.clone() };
    let one = |(at, packed)| Scatter { packed, transfer: &transfer, range: at..at + 1, target };
    let mut moves: Vec<Scatter<'_>> = buffers.iter().enumerate().map(one).collect();
    scatter_all_on(&moves, &stream).unwrap();
    stream.synchronize().unwrap();
    if let Some(last) = moves.last_mut() {
        last.range.end += 1;
        assert_eq!(scatter_all_on(&moves, &stream).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn many_scatters_at_once_move_what_each_moves_alone() {
    for_each_case(300, |device, seed| {
        let mut random = Random::new(seed);
        // Some moves are alike in steps and strides, so that they share launches; others are not.
        let kinds: Vec<_> = (0..2).map(|_| (random_tail(&mut random), random.shape(), random.next())).collect();
        let moves: Vec<_> = (0..1 + random.below(6))
            .map(|_| {
                let (tail, shape, seed) = &kinds[random.below(2)];
                let mut of_kind = Random::new(*seed);
                let target = of_kind.view(device, tail.dtype, shape);
                let (transfer, size) = random_transfer(&mut of_kind, tail.clone(), shape);
                let packed = packed_bytes(&mut random, &transfer.tail, size);
                let buffer = Buffer::from_bytes(device, &packed).unwrap();
                (target, transfer, packed, buffer)
            })
            .collect();
        let stream = Stream::legacy(device).unwrap();
        let all = moves.iter().map(|(target, transfer, _, packed)| Scatter {
            packed,
            transfer,
            range: 0..transfer.boxes.len(),
            target: &target.array,
        });
        scatter_all_on(&all.collect::<Vec<_>>(), &stream).unwrap();
        stream.synchronize().unwrap();
        for (number, (target, transfer, packed, _)) in moves.iter().enumerate() {
            let mut expected = target.bytes.clone();
            naive::scatter(packed, transfer, &target.offsets, &mut expected);
            assert!(target.now() == expected, "{device} seed {seed}: move {number} of {}: {transfer:?}", moves.len());
        }
    });
}

#[test]
fn scatter_moves_every_box_as_the_model_does() {
    for_each_case(1500, |device, seed| {
        let mut random = Random::new(seed);
        let tail = random_tail(&mut random);
        let shape = random.shape();
        let target = random.view(device, tail.dtype, &shape);
        let (transfer, size) = random_transfer(&mut random, tail, &shape);
        let packed = packed_bytes(&mut random, &transfer.tail, size);
        let mut expected = target.bytes.clone();
        naive::scatter(&packed, &transfer, &target.offsets, &mut expected);
        if device == Device::Cpu && random.one_in(2) {
            scatter_host(&packed, &transfer, &target.array).unwrap();
        } else if random.one_in(2) {
            scatter_each(&mut random, device, &packed, &transfer, &target.array);
        } else {
            scatter(&Buffer::from_bytes(device, &packed).unwrap(), &transfer, &target.array).unwrap();
        }
        let same = target.now() == expected;
        assert!(
            same,
            "{device} seed {seed}: {:?} from {:?} by {:?}",
            target.array, transfer.tail, transfer.packed_strides
        );
    });
}

#[test]
fn gather_moves_every_box_as_the_model_does() {
    for_each_case(1500, |device, seed| {
        let mut random = Random::new(seed);
        let tail = random_tail(&mut random);
        let shape = random.shape();
        let source = random.view(device, tail.dtype, &shape);
        let (transfer, size) = random_transfer(&mut random, tail, &shape);
        let before = packed_bytes(&mut random, &transfer.tail, size);
        let mut expected = before.clone();
        naive::gather(&source.bytes, &source.offsets, &transfer, &mut expected);
        let mut got = before.clone();
        if device == Device::Cpu && random.one_in(2) {
            gather_host(&source.array, &transfer, &mut got).unwrap();
        } else {
            let packed = Buffer::from_bytes(device, &before).unwrap();
            gather(&source.array, &transfer, &packed).unwrap();
            got = packed.to_vec().unwrap();
        }
        let same = got == expected;
        assert!(
            same,
            "{device} seed {seed}: {:?} to {:?} by {:?}",
            source.array, transfer.tail, transfer.packed_strides
        );
        assert!(source.now() == source.bytes, "{device} seed {seed}: the source changed");
    });
}

#[test]
fn boxes_longer_than_a_tile_go_through_whole() {
    for device in devices() {
        let mut random = Random::new(1);
        let swap = ElementStep::SwapBytes { unit_bytes: 4 };
        let cast = ElementStep::Cast { from: DType::INT32, to: DType::FLOAT64 };
        for (packing, strides) in [
            (Packing::Plain, [300, 1]),
            (Packing::Plain, [1, 70]),
            (Packing::Shuffled { unit_bytes: 4 }, [300, 1]),
            (Packing::Shuffled { unit_bytes: 4 }, [1, 70]),
        ] {
            let tail = Tail {
                packing,
                packed: DType::INT32,
                steps: vec![swap, cast],
                write_steps: None,
                dtype: DType::FLOAT64,
            };
            let target = random.view(device, DType::FLOAT64, &[70, 300]);
            let item = TransferBox {
                packed_offset_bytes: 0,
                packed_size_bytes: 84_000,
                packed_first_elem: 0,
                start: vec![0, 0],
                extent: vec![70, 300],
            };
            let transfer = Transfer { tail, packed_strides: strides.to_vec(), lists: None, boxes: vec![item] };
            let packed = random.elements(DType::INT32, 21_000);
            let mut expected = target.bytes.clone();
            naive::scatter(&packed, &transfer, &target.offsets, &mut expected);
            scatter(&Buffer::from_bytes(device, &packed).unwrap(), &transfer, &target.array).unwrap();
            assert!(target.now() == expected, "{device}: {packing:?} {strides:?}");
            let back = Buffer::zeroed(device, packed.len()).unwrap();
            gather(&target.array, &transfer, &back).unwrap();
            assert!(back.to_vec().unwrap() == packed, "{device}: {packing:?} {strides:?}, back");
        }
    }
}

/// More boxes than one launch takes, of two sizes, as plain bytes and as packed bits.
#[test]
fn thousands_of_boxes_go_through_whole() {
    const ROWS: usize = 3000;
    for device in devices() {
        for packing in [Packing::Plain, Packing::Bits] {
            let tail = Tail { packing, ..Tail::plain(DType::BOOL) };
            let packed_bytes = if packing == Packing::Bits { 8 } else { 64 };
            let item = |row: usize| TransferBox {
                packed_offset_bytes: (ROWS - 1 - row) * packed_bytes,
                packed_size_bytes: packed_bytes,
                packed_first_elem: 0,
                start: vec![row, 0],
                extent: vec![1, if row.is_multiple_of(7) { 40 } else { 64 }],
            };
            let transfer =
                Transfer { tail, packed_strides: vec![0, 1], lists: None, boxes: (0..ROWS).map(item).collect() };
            let mut random = Random::new(11);
            let bytes: Vec<u8> = match packing {
                Packing::Bits => random.elements(DType::UINT8, ROWS * packed_bytes),
                _ => random.elements(DType::BOOL, ROWS * packed_bytes),
            };
            let target = NdBuffer::zeroed(device, DType::BOOL, &[ROWS, 64], Order::C).unwrap();
            scatter(&Buffer::from_bytes(device, &bytes).unwrap(), &transfer, &target).unwrap();
            let expected = NdBuffer::zeroed(Device::Cpu, DType::BOOL, &[ROWS, 64], Order::C).unwrap();
            scatter_host(&bytes, &transfer, &expected).unwrap();
            assert!(target.to_host_bytes(Order::C).unwrap() == expected.buffer().host_bytes().unwrap(), "{device}");
            let again = Buffer::zeroed(device, bytes.len()).unwrap();
            gather(&target, &transfer, &again).unwrap();
            let mut expected_again = vec![0; bytes.len()];
            gather_host(&expected, &transfer, &mut expected_again).unwrap();
            assert!(again.to_vec().unwrap() == expected_again, "{device}");
        }
    }
}

#[test]
fn steps_of_writing_may_differ_from_the_inverse() {
    // numcodecs' fixedscaleoffset: x / scale + offset one way, round((x - offset) * scale) the other.
    let double = |value: f64| value.to_ne_bytes();
    let arithmetic =
        |operation, value| ElementStep::Arithmetic { operation, dtype: DType::FLOAT64, operand: double(value) };
    let tail = Tail {
        packing: Packing::Plain,
        packed: DType::UINT8,
        steps: vec![
            ElementStep::Cast { from: DType::UINT8, to: DType::FLOAT64 },
            arithmetic(Arithmetic::Divide, 10.0),
            arithmetic(Arithmetic::Add, 1000.0),
        ],
        write_steps: Some(vec![
            arithmetic(Arithmetic::Subtract, 1000.0),
            arithmetic(Arithmetic::Multiply, 10.0),
            arithmetic(Arithmetic::Round, 0.0),
            ElementStep::Cast { from: DType::FLOAT64, to: DType::UINT8 },
        ]),
        dtype: DType::FLOAT64,
    };
    let item = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: 4,
        packed_first_elem: 0,
        start: vec![0],
        extent: vec![4],
    };
    let transfer = Transfer { tail, packed_strides: vec![1], lists: None, boxes: vec![item] };
    for device in devices() {
        let values: Vec<u8> = [1000.0, 1000.149, 1000.15, 1010.06].iter().flat_map(|&value| double(value)).collect();
        let array = NdBuffer::from_host(device, DType::FLOAT64, &[4], Order::C, &values).unwrap();
        let packed = Buffer::zeroed(device, 4).unwrap();
        gather(&array, &transfer, &packed).unwrap();
        assert_eq!(packed.to_vec().unwrap(), [0, 1, 1, 101], "{device}");
        scatter(&packed, &transfer, &array).unwrap();
        let expected: Vec<u8> = [1000.0, 1000.1, 1000.1, 1010.1].iter().flat_map(|&value| double(value)).collect();
        assert_eq!(array.to_host_bytes(Order::C).unwrap(), expected, "{device}");
    }
}

#[test]
fn boxes_that_leave_either_memory_are_refused_before_anything_moves() {
    for device in devices() {
        let target = NdBuffer::zeroed(device, DType::UINT8, &[4, 6], Order::C).unwrap();
        let packed = Buffer::from_bytes(device, &[1; 24]).unwrap();
        let good = TransferBox {
            packed_offset_bytes: 0,
            packed_size_bytes: 24,
            packed_first_elem: 0,
            start: vec![0, 0],
            extent: vec![4, 6],
        };
        let run = |item: TransferBox, strides: [isize; 2]| {
            let boxes = vec![good.clone(), item];
            let transfer =
                Transfer { tail: Tail::plain(DType::UINT8), packed_strides: strides.to_vec(), lists: None, boxes };
            let refused = scatter(&packed, &transfer, &target).is_err();
            assert_eq!(gather(&target, &transfer, &packed).is_err(), refused);
            refused
        };
        let huge = usize::MAX;
        for bad in [
            TransferBox { packed_offset_bytes: 1, ..good.clone() },
            TransferBox { packed_offset_bytes: huge, ..good.clone() },
            TransferBox { packed_size_bytes: 25, ..good.clone() },
            TransferBox { packed_size_bytes: 23, ..good.clone() },
            TransferBox { packed_first_elem: 1, ..good.clone() },
            TransferBox { packed_first_elem: huge, ..good.clone() },
            TransferBox { start: vec![1, 0], ..good.clone() },
            TransferBox { start: vec![huge, 0], ..good.clone() },
            TransferBox { extent: vec![4, 7], ..good.clone() },
            TransferBox { extent: vec![huge, 6], ..good.clone() },
            TransferBox { start: vec![0], extent: vec![4], ..good.clone() },
        ] {
            assert!(run(bad.clone(), [6, 1]), "{device}: {bad:?}");
        }
        for strides in [[6, 2], [7, 1], [-6, 1], [isize::MAX, 1], [isize::MIN, isize::MIN]] {
            assert!(run(good.clone(), strides), "{device}: {strides:?}");
        }
        assert_eq!(target.to_host_bytes(Order::C).unwrap(), [0; 24], "{device}: something moved");
        assert!(!run(good.clone(), [6, 1]));
        let empty = TransferBox { extent: vec![0, 6], packed_first_elem: huge, ..good.clone() };
        assert!(!run(empty, [6, 1]), "{device}: an empty box touches nothing");
    }
}

#[test]
fn tails_whose_types_do_not_join_up_are_refused() {
    let cast = |from, to| ElementStep::Cast { from, to };
    let tail = |packing, packed, steps, dtype| Tail { packing, packed, steps, write_steps: None, dtype };
    let plain = Packing::Plain;
    for (bad, kind) in [
        (tail(plain, DType::INT8, vec![], DType::INT16), ErrorKind::InvalidArgument),
        (tail(plain, DType::INT8, vec![cast(DType::INT16, DType::INT8)], DType::INT8), ErrorKind::InvalidArgument),
        (tail(plain, DType::INT8, vec![cast(DType::INT8, DType::opaque(2))], DType::opaque(2)), ErrorKind::Unsupported),
        (
            tail(plain, DType::INT32, vec![ElementStep::SwapBytes { unit_bytes: 8 }], DType::INT32),
            ErrorKind::InvalidArgument,
        ),
        (
            tail(plain, DType::opaque(3), vec![ElementStep::SwapBytes { unit_bytes: 3 }], DType::opaque(3)),
            ErrorKind::InvalidArgument,
        ),
        (tail(Packing::Bits, DType::UINT8, vec![], DType::UINT8), ErrorKind::InvalidArgument),
        (tail(Packing::Shuffled { unit_bytes: 0 }, DType::INT8, vec![], DType::INT8), ErrorKind::InvalidArgument),
    ] {
        assert_eq!(bad.check().unwrap_err().kind(), kind, "{bad:?}");
    }
    let operand = [0; 8];
    let add = ElementStep::Arithmetic { operation: Arithmetic::Add, dtype: DType::COMPLEX64, operand };
    let complex = tail(plain, DType::COMPLEX64, vec![add], DType::COMPLEX64);
    assert_eq!(complex.check().unwrap_err().kind(), ErrorKind::Unsupported);
    let write = Tail { write_steps: Some(vec![cast(DType::INT8, DType::INT16)]), ..Tail::plain(DType::INT8) };
    assert_eq!(write.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn memory_that_is_read_only_shared_or_elsewhere_is_refused() {
    let host = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[8], Order::C).unwrap();
    let item = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: 4,
        packed_first_elem: 0,
        start: vec![0],
        extent: vec![4],
    };
    let transfer =
        Transfer { tail: Tail::plain(DType::UINT8), packed_strides: vec![1], lists: None, boxes: vec![item] };
    let locked =
        NdBuffer::from_parts(host.buffer().clone().into_read_only(), DType::UINT8, host.layout().clone()).unwrap();
    assert_eq!(scatter_host(&[0; 4], &transfer, &locked).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(scatter(host.buffer(), &transfer, &host).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(gather(&host, &transfer, locked.buffer()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
        let array = NdBuffer::zeroed(device, DType::UINT8, &[8], Order::C).unwrap();
        assert_eq!(scatter_host(&[0; 4], &transfer, &array).unwrap_err().kind(), ErrorKind::MemorySpace);
        assert_eq!(scatter(host.buffer(), &transfer, &array).unwrap_err().kind(), ErrorKind::MemorySpace);
    }
}

#[test]
fn fill_boxes_fills_all_boxes_and_nothing_else() {
    for_each_case(200, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, shape) = (random.pick(&DTYPES), random.shape());
        let view = random.view(device, dtype, &shape);
        let element = random.elements(dtype, 1);
        let mut boxes = Vec::new();
        let mut expected = view.bytes.clone();
        for _ in 0..random.below(4) {
            let start: Vec<usize> = shape.iter().map(|&extent| random.below(extent + 1)).collect();
            let extent: Vec<usize> =
                start.iter().zip(&shape).map(|(&start, &extent)| random.below(extent - start + 1)).collect();
            for &at in &view.offsets.region(&start, &extent, &vec![1; shape.len()]).bytes {
                expected[at..at + element.len()].copy_from_slice(&element);
            }
            boxes.push((start, extent));
        }
        fill_boxes(&view.array, &boxes, &element).unwrap();
        assert!(view.now() == expected, "{device} seed {seed}: {:?} {boxes:?}", view.array);
        let outside = (vec![0; shape.len()], shape.iter().map(|extent| extent + 1).collect());
        assert!(shape.is_empty() || fill_boxes(&view.array, &[outside], &element).is_err());
    });
}

#[test]
fn threads_scatter_into_disjoint_boxes_of_one_array() {
    let (threads, rows) = (8, 50);
    let target = NdBuffer::zeroed(Device::Cpu, DType::INT32, &[threads * rows, 33], Order::C).unwrap();
    let swap = ElementStep::SwapBytes { unit_bytes: 4 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let target = &target;
            scope.spawn(move || {
                let value = i32::to_be_bytes(thread as i32 + 1);
                let packed: Vec<u8> = value.repeat(rows * 33);
                let item = TransferBox {
                    packed_offset_bytes: 0,
                    packed_size_bytes: packed.len(),
                    packed_first_elem: 0,
                    start: vec![thread * rows, 0],
                    extent: vec![rows, 33],
                };
                let native = i32::from_be_bytes(1_i32.to_ne_bytes()) == 1;
                let steps = if native { vec![] } else { vec![swap] };
                let tail = Tail { steps, ..Tail::plain(DType::INT32) };
                let transfer = Transfer { tail, packed_strides: vec![33, 1], lists: None, boxes: vec![item] };
                scatter_host(&packed, &transfer, target).unwrap();
            });
        }
    });
    let expected: Vec<i32> = (0..threads * rows * 33).map(|at| (at / (rows * 33)) as i32 + 1).collect();
    assert_eq!(target.host_slice::<i32>().unwrap(), expected);
}
