//! Nd-buffers: views, copies, casts, fills, comparisons.

use cuzarr_device::internal::cpu::cast::{cast, is_supported};
use cuzarr_device::{Buffer, DType, Device, ErrorKind, Layout, NdBuffer, Order};

use crate::devices::{devices, for_each_case};
use crate::naive::Offsets;
use crate::random::{DTYPES, Random, View};

#[test]
fn views_reach_the_elements_that_indexing_reaches() {
    for_each_case(300, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, shape) = (random.pick(&DTYPES), random.shape());
        let view = random.view(device, dtype, &shape);
        let size = dtype.size_bytes();
        let place = format!("{device} seed {seed}: {:?}", view.array);
        assert_eq!(view.array.to_host_bytes(Order::C).unwrap(), view.offsets.pack(&view.bytes, size), "{place}");
        let axes: Vec<usize> = (0..shape.len()).rev().collect();
        let transposed = view.offsets.transpose(&axes).pack(&view.bytes, size);
        assert_eq!(view.array.to_host_bytes(Order::F).unwrap(), transposed, "{place}, order F");
    });
}

#[test]
fn filling_a_view_changes_its_elements_only() {
    for_each_case(300, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, shape) = (random.pick(&DTYPES), random.shape());
        let view = random.view(device, dtype, &shape);
        let element = if random.one_in(3) { vec![7; dtype.size_bytes()] } else { random.elements(dtype, 1) };
        view.array.fill(&element).unwrap();
        let mut expected = view.bytes.clone();
        for &at in &view.offsets.bytes {
            expected[at..at + element.len()].copy_from_slice(&element);
        }
        assert_eq!(view.now(), expected, "{device} seed {seed}: {:?}", view.array);
    });
}

#[test]
fn copies_between_any_strides_move_every_element_once() {
    for_each_case(400, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, shape) = (random.pick(&DTYPES), random.shape());
        // Half of the copies cross between the device and the host.
        let other = if random.one_in(2) { device } else { Device::Cpu };
        let (from, to) = if random.one_in(2) { (device, other) } else { (other, device) };
        let (source, target) = (random.view(from, dtype, &shape), random.view(to, dtype, &shape));
        target.array.copy_from(&source.array).unwrap();
        let mut expected = target.bytes.clone();
        for (&at, element) in target.offsets.bytes.iter().zip(elements(&source.offsets, &source.bytes, dtype)) {
            expected[at..at + element.len()].copy_from_slice(&element);
        }
        assert!(target.now() == expected, "seed {seed}: {:?} to {:?}", source.array, target.array);
        assert!(source.now() == source.bytes, "seed {seed}: the source changed");
    });
}

fn elements(offsets: &Offsets, memory: &[u8], dtype: DType) -> Vec<Vec<u8>> {
    offsets.bytes.iter().map(|&at| memory[at..at + dtype.size_bytes()].to_vec()).collect()
}

#[test]
fn planes_larger_than_a_block_are_transposed() {
    for device in devices() {
        for (size, shape) in
            [(1, [130, 200]), (2, [67, 90]), (4, [33, 50]), (8, [16, 17]), (16, [9, 21]), (12, [20, 31])]
        {
            let mut random = Random::new(size as u64);
            let dtype = DType::opaque(size);
            let bytes = random.elements(dtype, shape[0] * shape[1]);
            let array = NdBuffer::from_host(device, dtype, &shape, Order::C, &bytes).unwrap();
            let expected =
                Offsets::packed(&shape, size as usize, Order::C).transpose(&[1, 0]).pack(&bytes, size as usize);
            let transposed = array.transpose(&[1, 0]).unwrap().copy(Order::C).unwrap();
            assert!(transposed.to_host_bytes(Order::C).unwrap() == expected, "{device}, {size} bytes");
        }
    }
}

#[test]
fn astype_converts_every_element_of_a_view() {
    for_each_case(300, |device, seed| {
        let mut random = Random::new(seed);
        let (from, to, shape) = (random.pick(&DTYPES), random.pick(&DTYPES), random.shape());
        let view = random.view(device, from, &shape);
        let order = random.pick(&[Order::C, Order::F]);
        let converted = view.array.astype(to, order);
        if from != to && !is_supported(from, to) {
            assert_eq!(converted.unwrap_err().kind(), ErrorKind::Unsupported, "{from} to {to}");
            return;
        }
        let converted = converted.unwrap();
        let packed = view.offsets.pack(&view.bytes, from.size_bytes());
        let mut expected = vec![0; converted.size_bytes()];
        match from == to {
            true => expected.copy_from_slice(&packed),
            false => cast(from, to, &packed, &mut expected).unwrap(),
        }
        assert!(converted.is_contiguous(order) && converted.dtype() == to && converted.shape() == shape);
        let got = converted.to_host_bytes(Order::C).unwrap();
        assert!(got == expected, "{device} seed {seed}: {:?} to {to}", view.array);
    });
}

#[test]
fn copying_needs_equal_shapes_and_dtypes() {
    for device in devices() {
        let make = |dtype, shape: &[usize]| NdBuffer::zeroed(device, dtype, shape, Order::C).unwrap();
        let target = make(DType::INT32, &[2, 3]);
        assert_eq!(target.copy_from(&make(DType::INT32, &[3, 2])).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(target.copy_from(&make(DType::UINT32, &[2, 3])).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(target.copy_from_cast(&make(DType::UINT32, &[2, 3])).is_ok());
        assert_eq!(target.fill(&[0; 3]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn overlapping_views_copy_as_if_by_way_of_another_memory() {
    for device in devices() {
        let bytes: Vec<u8> = (0..60).collect();
        for shift in [1, 3] {
            let array = NdBuffer::from_host(device, DType::UINT8, &[60], Order::C, &bytes).unwrap();
            let view = |start: usize| array.region(&[start], &[60 - shift], &[1]).unwrap();
            view(shift).copy_from(&view(0)).unwrap();
            let expected: Vec<u8> = (0..60).map(|at| if at < shift { at as u8 } else { (at - shift) as u8 }).collect();
            assert_eq!(array.to_host_bytes(Order::C).unwrap(), expected, "{device} by {shift}");
        }
        let square = NdBuffer::from_host(device, DType::UINT8, &[6, 6], Order::C, &bytes[..36]).unwrap();
        let flipped = square.transpose(&[1, 0]).unwrap().to_host_bytes(Order::C).unwrap();
        square.copy_from(&square.transpose(&[1, 0]).unwrap()).unwrap();
        assert_eq!(square.to_host_bytes(Order::C).unwrap(), flipped, "{device}");
    }
}

#[test]
fn reshape_index_squeeze_and_broadcast_are_views() {
    for device in devices() {
        let bytes: Vec<u8> = (0..48).collect();
        let array = NdBuffer::from_host(device, DType::UINT16, &[2, 3, 4], Order::C, &bytes).unwrap();
        let flat = array.reshape(&[24]).unwrap();
        assert!(flat.buffer().shares_memory_with(array.buffer()));
        let row = array.index_axis(0, 1).unwrap().index_axis(0, 2).unwrap();
        assert_eq!(row.to_host_bytes(Order::C).unwrap(), bytes[40..48], "{device}");
        assert_eq!(row.reshape(&[1, 4, 1]).unwrap().squeeze(&[0, 2]).unwrap().shape(), [4]);
        let repeated = row.broadcast_to(&[3, 4]).unwrap();
        assert_eq!(repeated.to_host_bytes(Order::C).unwrap(), bytes[40..48].repeat(3), "{device}");
        assert_eq!(repeated.fill(&[0, 0]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let columns = array.transpose(&[2, 0, 1]).unwrap();
        assert!(columns.reshape(&[24]).is_err());
        let copied = columns.reshape_copy(&[24]).unwrap();
        assert_eq!(copied.to_host_bytes(Order::C).unwrap(), columns.to_host_bytes(Order::C).unwrap(), "{device}");
        row.fill(&[9, 9]).unwrap();
        assert_eq!(flat.to_host_bytes(Order::C).unwrap()[40..48], [9; 8], "{device}");
    }
}

#[test]
fn zero_dimensions_hold_one_element_and_a_zero_extent_none() {
    for device in devices() {
        let scalar = NdBuffer::full(device, DType::INT16, &[], Order::C, &[3, 4]).unwrap();
        assert_eq!((scalar.len(), scalar.to_host_bytes(Order::F).unwrap()), (1, vec![3, 4]));
        let none = NdBuffer::full(device, DType::INT16, &[4, 0, 2], Order::F, &[3, 4]).unwrap();
        assert_eq!((none.len(), none.to_host_bytes(Order::C).unwrap()), (0, vec![]));
        none.copy_from(&none.copy(Order::C).unwrap()).unwrap();
        assert!(none.all_equal_element(&[0, 0], false).unwrap() && none.all_equal(&none, false).unwrap());
    }
}

#[test]
fn foreign_memory_may_have_negative_strides() {
    let bytes = Buffer::from_bytes(Device::Cpu, &[1, 2, 3, 4, 5, 6]).unwrap();
    let layout = Layout::strided(&[3, 2], &[-2, 1], 4, 1, 6).unwrap();
    let array = NdBuffer::from_parts(bytes.clone(), DType::UINT8, layout).unwrap();
    assert_eq!(array.to_host_bytes(Order::C).unwrap(), [5, 6, 3, 4, 1, 2]);
    let source = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[3, 2], Order::C, &[10, 20, 30, 40, 50, 60]).unwrap();
    array.copy_from(&source).unwrap();
    assert_eq!(bytes.to_vec().unwrap(), [50, 60, 30, 40, 10, 20]);
    let short = Layout::strided(&[3, 2], &[-2, 1], 4, 1, 6).unwrap();
    assert!(NdBuffer::from_parts(bytes.slice(..5).unwrap(), DType::UINT8, short).is_err());
}

#[test]
fn equality_of_arrays_is_numpys() {
    for device in devices() {
        let array = |values: &[f32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            NdBuffer::from_host(device, DType::FLOAT32, &[values.len()], Order::C, &bytes).unwrap()
        };
        assert!(array(&[0.0, 1.0]).all_equal(&array(&[-0.0, 1.0]), false).unwrap());
        assert!(!array(&[0.0, 1.0]).all_equal(&array(&[0.0, 2.0]), true).unwrap());
        assert!(!array(&[f32::NAN]).all_equal(&array(&[f32::NAN]), false).unwrap());
        assert!(array(&[f32::NAN]).all_equal(&array(&[-f32::NAN]), true).unwrap());
        assert!(!array(&[1.0]).all_equal(&array(&[1.0, 1.0]), true).unwrap());
    }
}

#[test]
fn equality_with_an_element_minds_the_sign_of_zero_and_the_kind_of_nan() {
    for device in devices() {
        let full =
            |value: f64| NdBuffer::full(device, DType::FLOAT64, &[3, 5], Order::C, &value.to_ne_bytes()).unwrap();
        let equals = |array: &NdBuffer, value: f64, nan| array.all_equal_element(&value.to_ne_bytes(), nan).unwrap();
        assert!(equals(&full(0.0), 0.0, true) && !equals(&full(0.0), -0.0, true) && !equals(&full(-0.0), 0.0, true));
        assert!(equals(&full(2.5), 2.5, false) && !equals(&full(2.5), 2.0, true));
        assert!(equals(&full(f64::NAN), -f64::NAN, true) && !equals(&full(f64::NAN), f64::NAN, false));
        let parts: Vec<u8> = [f64::NAN, 1.0].iter().flat_map(|part| part.to_ne_bytes()).collect();
        let other: Vec<u8> = [f64::NAN, 2.0].iter().flat_map(|part| part.to_ne_bytes()).collect();
        let complex = NdBuffer::full(device, DType::COMPLEX128, &[4], Order::C, &parts).unwrap();
        assert!(complex.all_equal_element(&parts, true).unwrap() && !complex.all_equal_element(&other, true).unwrap());
    }
}

#[test]
fn elements_are_the_same_only_with_the_same_bits() {
    for device in devices() {
        for (dtype, nan, other) in [
            (DType::FLOAT16, 0x7e00_u16.to_ne_bytes().to_vec(), 0xfe00_u16.to_ne_bytes().to_vec()),
            (DType::BFLOAT16, 0x7fc0_u16.to_ne_bytes().to_vec(), 0x7f81_u16.to_ne_bytes().to_vec()),
            (DType::FLOAT32, f32::NAN.to_ne_bytes().to_vec(), 0x7fc0_0001_u32.to_ne_bytes().to_vec()),
            (DType::FLOAT64, f64::NAN.to_ne_bytes().to_vec(), (-f64::NAN).to_ne_bytes().to_vec()),
            (DType::COMPLEX64, f32::NAN.to_ne_bytes().repeat(2), [f32::NAN, -f32::NAN].map(f32::to_ne_bytes).concat()),
            (DType::COMPLEX128, f64::NAN.to_ne_bytes().repeat(2), [f64::NAN, 0.0].map(f64::to_ne_bytes).concat()),
        ] {
            let array = NdBuffer::full(device, dtype, &[3, 5], Order::C, &nan).unwrap();
            assert!(array.holds_only(&nan).unwrap(), "{device}: {dtype}");
            assert!(!array.holds_only(&other).unwrap(), "{device}: {dtype}");
            array.region(&[2, 4], &[1, 1], &[1, 1]).unwrap().fill(&other).unwrap();
            assert!(!array.holds_only(&nan).unwrap(), "{device}: {dtype}");
        }
    }
}

#[test]
fn one_different_element_anywhere_is_seen() {
    for_each_case(150, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, shape) = (random.pick(&DTYPES), random.shape());
        let view = random.view(device, dtype, &shape);
        let element = random.elements(dtype, 1);
        view.array.fill(&element).unwrap();
        let place = format!("{device} seed {seed}: {:?}", view.array);
        // Random bits may be a NaN, which only equals itself when asked to.
        assert!(view.array.all_equal_element(&element, true).unwrap(), "{place}");
        if view.array.is_empty() {
            return;
        }
        let at: Vec<usize> = shape.iter().map(|&extent| random.below(extent)).collect();
        let mut other = element.clone();
        other[0] ^= 1;
        view.array.region(&at, &vec![1; at.len()], &vec![1; at.len()]).unwrap().fill(&other).unwrap();
        let nan = dtype.kind() != cuzarr_device::DTypeKind::Opaque && is_nan(dtype, &element);
        assert!(nan || !view.array.all_equal_element(&element, true).unwrap(), "{place}");
    });
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    let mut wide = [0; 16];
    cast(dtype, DType::COMPLEX128, element, &mut wide).unwrap();
    wide.chunks(8).any(|part| f64::from_ne_bytes(part.try_into().unwrap()).is_nan())
}

#[test]
fn buffers_copy_and_compare_on_every_device() {
    for device in devices() {
        let bytes: Vec<u8> = (0..100).collect();
        let buffer = Buffer::from_bytes(device, &bytes).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), bytes, "{device}");
        assert!(buffer.equals(&buffer.to_device(Device::Cpu).unwrap()).unwrap());
        assert!(!buffer.slice(80..).unwrap().equals(&buffer.slice(..20).unwrap()).unwrap());
        // Views of one block may overlap.
        buffer.slice(1..50).unwrap().copy_from(&buffer.slice(..49).unwrap()).unwrap();
        assert_eq!(buffer.slice(..50).unwrap().to_vec().unwrap(), [&[0], &bytes[..49]].concat(), "{device}");
        assert_eq!(Buffer::zeroed(device, 7).unwrap().to_vec().unwrap(), [0; 7], "{device}");
        let locked = buffer.into_read_only();
        assert!(locked.copy_from(&locked.clone()).is_err() && locked.slice(..1).unwrap().is_read_only(), "{device}");
    }
}

#[test]
fn host_memory_is_aligned_and_borrowed_in_place() {
    let array = NdBuffer::full(Device::Cpu, DType::FLOAT64, &[5], Order::C, &1.5_f64.to_ne_bytes()).unwrap();
    assert_eq!(array.address() % 64, 0);
    assert_eq!(array.host_slice::<f64>().unwrap(), [1.5; 5]);
    assert!(array.host_slice::<i64>().is_err() && array.region(&[0], &[2], &[2]).unwrap().host_slice::<f64>().is_err());
    let bytes = Buffer::from_bytes(Device::Cpu, &[0; 20]).unwrap();
    let layout = Layout::strided(&[2], &[8], 3, 8, 20).unwrap();
    let unaligned = NdBuffer::from_parts(bytes, DType::FLOAT64, layout).unwrap();
    assert!(unaligned.host_slice::<f64>().is_err() && unaligned.all_equal_element(&[0; 8], true).unwrap());
}

#[test]
fn sizes_that_overflow_are_refused() {
    for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[usize::MAX, 0, usize::MAX]] {
        let error = NdBuffer::empty(Device::Cpu, DType::INT64, shape, Order::C).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{shape:?}");
        assert!(Layout::strided(shape, &vec![0; shape.len()], 0, 8, 8).is_err(), "{shape:?}");
    }
    let huge = NdBuffer::empty(Device::Cpu, DType::INT8, &[1 << 60], Order::C).unwrap_err();
    assert_eq!(huge.kind(), ErrorKind::OutOfMemory);
}

/// A view with one of its dimensions the other way round, and where its elements lie.
fn backwards(view: &View, axis: usize) -> (NdBuffer, Vec<usize>) {
    let (array, shape) = (&view.array, view.array.shape());
    let mut strides = array.strides().to_vec();
    let reach = strides[axis] * (shape[axis] as isize - 1);
    strides[axis] = -strides[axis];
    let offset = array.layout().offset_bytes().wrapping_add_signed(if array.is_empty() { 0 } else { reach });
    let memory = array.buffer().clone();
    let elem_bytes = array.dtype().size_bytes();
    let layout = Layout::strided(shape, &strides, offset, elem_bytes, memory.size_bytes()).unwrap();
    let inner: usize = shape[axis + 1..].iter().product();
    let along = |at: usize| (at / inner) % shape[axis];
    let bytes = &view.offsets.bytes;
    let turned = (0..bytes.len()).map(|at| bytes[at + inner * (shape[axis] - 1 - along(at)) - inner * along(at)]);
    (NdBuffer::from_parts(memory, array.dtype(), layout).unwrap(), turned.collect())
}

#[test]
fn lists_take_and_put_the_elements_that_they_name() {
    for_each_case(400, |device, seed| {
        let mut random = Random::new(seed);
        let (dtype, mut shape) = (random.pick(&DTYPES), random.shape());
        shape.push(1 + random.below(9));
        let axis = random.below(shape.len());
        let size = dtype.size_bytes();
        let view = random.view(device, dtype, &shape);
        let (array, offsets) = match random.one_in(2) {
            true => backwards(&view, random.below(shape.len())),
            false => (view.array.clone(), view.offsets.bytes.clone()),
        };
        let place = format!("{device} seed {seed}: {array:?} by a list along {axis}");
        let count = if shape[axis] == 0 { 0 } else { random.below(12) };
        let list: Vec<u64> = (0..count).map(|_| random.below(shape[axis]) as u64).collect();
        let (outer, extent): (usize, usize) = (shape[..axis].iter().product(), shape[axis]);
        let inner: usize = shape[axis + 1..].iter().product();
        // Where the elements that the list names lie, in C order.
        let named: Vec<usize> = (0..outer)
            .flat_map(|row| list.iter().map(move |&index| (row * extent + index as usize) * inner))
            .flat_map(|first| (first..first + inner).map(|at| offsets[at]).collect::<Vec<_>>())
            .collect();
        let taken = array.take(axis, &list).unwrap();
        let mut listed = shape.clone();
        listed[axis] = list.len();
        assert_eq!(taken.shape(), listed, "{place}");
        let expected: Vec<u8> = named.iter().flat_map(|&at| view.bytes[at..at + size].to_vec()).collect();
        assert!(taken.to_host_bytes(Order::C).unwrap() == expected, "{place}");

        let other = if random.one_in(2) { device } else { Device::Cpu };
        let values = random.view(other, dtype, &listed);
        array.put(axis, &list, &values.array).unwrap();
        let mut expected = view.bytes.clone();
        let packed = values.offsets.pack(&values.bytes, size);
        for (&at, element) in named.iter().zip(packed.chunks(size)) {
            expected[at..at + size].copy_from_slice(element);
        }
        assert!(view.now() == expected, "{place}: put");
    });
}

#[test]
fn lists_that_leave_the_array_are_refused() {
    for device in devices() {
        let array = NdBuffer::zeroed(device, DType::INT32, &[3, 2], Order::C).unwrap();
        let kind = |result: cuzarr_device::Result<NdBuffer>| result.unwrap_err().kind();
        assert_eq!(kind(array.take(0, &[3])), ErrorKind::InvalidArgument);
        assert_eq!(kind(array.take(2, &[0])), ErrorKind::InvalidArgument);
        let values = NdBuffer::zeroed(device, DType::INT32, &[2, 2], Order::C).unwrap();
        assert_eq!(array.put(1, &[0, 2], &values).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(array.put(0, &[0, 1, 2], &values).unwrap_err().kind(), ErrorKind::InvalidArgument);
        // Values in the memory that is set are those before.
        let numbers = NdBuffer::from_host(device, DType::UINT8, &[4], Order::C, &[1, 2, 3, 4]).unwrap();
        numbers.put(0, &[3, 2, 1, 0], &numbers).unwrap();
        assert_eq!(numbers.to_host_bytes(Order::C).unwrap(), [4, 3, 2, 1]);
    }
}
