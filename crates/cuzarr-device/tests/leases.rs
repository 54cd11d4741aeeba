//! No safe call reads host memory while another writes it, hands out writable views twice, or writes what is read-only.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::internal::transfer::{fill_boxes, gather_host, scatter_host};
use cuzarr_device::internal::{ElementBox, SlabRing};
use cuzarr_device::{
    Buffer, DType, Device, Error, ErrorKind, NdBuffer, Order, Result, Stream, Tail, Transfer, TransferBox, internal,
    pool,
};

/// Held by tests that allocate on a device: one of them changes the allocator of the process.
static ALLOCATOR: Mutex<()> = Mutex::new(());

fn refused<T>(outcome: Result<T>) -> bool {
    outcome.err().as_ref().map(Error::kind) == Some(ErrorKind::InvalidArgument)
}

fn array() -> NdBuffer {
    NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[4, 6], Order::C).unwrap()
}

/// Moves `extent` bytes of packed memory to a box of a 2-d array.
fn boxes(start: [usize; 2], extent: [usize; 2]) -> Transfer {
    let item = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: extent[0] * extent[1],
        packed_first_elem: 0,
        start: start.to_vec(),
        extent: extent.to_vec(),
    };
    Transfer {
        tail: Tail::plain(DType::UINT8),
        packed_strides: vec![extent[1] as isize, 1],
        lists: None,
        boxes: vec![item],
    }
}

#[test]
fn writable_views_of_one_range_are_given_once() {
    let buffer = Buffer::from_vec(vec![0; 16]);
    let first = buffer.host_bytes_mut().unwrap();
    assert!(refused(buffer.host_bytes_mut()) && refused(buffer.host_bytes()));
    assert!(refused(buffer.slice(15..).unwrap().host_bytes_mut()));
    drop(first);
    let left = buffer.slice(..8).unwrap().host_bytes_mut().unwrap();
    let right = buffer.slice(8..).unwrap().host_bytes_mut().unwrap();
    drop((left, right));
    assert!(buffer.host_bytes().is_ok());
}

#[test]
fn nothing_writes_what_is_being_read() {
    let array = array();
    let view = array.region(&[1, 1], &[2, 3], &[1, 2]).unwrap();
    let other = Buffer::from_vec(vec![1; 24]);
    let read = array.buffer().host_bytes().unwrap();
    let stream = Stream::new(Device::Cpu).unwrap();
    assert!(refused(array.fill(&[1])) && refused(view.fill(&[1])));
    assert!(refused(array.buffer().copy_from(&other)));
    assert!(refused(stream.memset(array.buffer(), 1)));
    assert!(refused(stream.h2d(&[0; 24], array.buffer())));
    assert!(refused(stream.d2d(&other, array.buffer())));
    assert!(refused(scatter_host(&[1; 4], &boxes([0, 0], [2, 2]), &array)));
    assert!(refused(fill_boxes(&array, &[(vec![0, 0], vec![1, 1])], &[1])));
    assert!(refused(array.copy_from(&NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[4, 6], Order::C).unwrap())));
    assert!(refused(array.writer()));
    assert_eq!(read, [0; 24]);
    drop(read);
    array.fill(&[1]).unwrap();
}

#[test]
fn nothing_reads_what_is_being_written() {
    let array = array();
    let mut written = array.buffer().host_bytes_mut().unwrap();
    written.fill(3);
    let stream = Stream::new(Device::Cpu).unwrap();
    let mut bytes = [0; 24];
    assert!(refused(array.host_slice::<u8>()) && refused(array.reader()));
    assert!(refused(array.buffer().to_vec()) && refused(array.copy(Order::F)));
    assert!(refused(stream.d2h(array.buffer(), &mut bytes)));
    assert!(refused(gather_host(&array, &boxes([0, 0], [2, 2]), &mut bytes[..4])));
    assert!(refused(array.all_equal(&array.clone(), false)));
    assert!(refused(array.all_equal_element(&[3], false)));
    drop(written);
    assert!(array.all_equal_element(&[3], false).unwrap());
}

#[test]
fn disjoint_strided_views_are_written_at_the_same_time() {
    let array = array();
    let even = array.region(&[0, 0], &[4, 3], &[1, 2]).unwrap();
    let odd = array.region(&[0, 1], &[4, 3], &[1, 2]).unwrap();
    let (first, second) = (even.writer().unwrap(), odd.writer().unwrap());
    assert!(refused(array.region(&[3, 4], &[1, 2], &[1, 1]).unwrap().writer()));
    drop((first, second));
    std::thread::scope(|threads| {
        threads.spawn(|| (0..500).for_each(|_| even.fill(&[2]).unwrap()));
        threads.spawn(|| (0..500).for_each(|_| odd.fill(&[1]).unwrap()));
    });
    assert_eq!(array.host_slice::<u8>().unwrap(), [2, 1].repeat(12));
}

#[test]
fn views_of_one_block_are_copied_onto_each_other() {
    let buffer = Buffer::from_vec((0..10).collect());
    buffer.slice(2..).unwrap().copy_from(&buffer.slice(..8).unwrap()).unwrap();
    assert_eq!(buffer.host_bytes().unwrap(), [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn many_threads_write_parts_of_one_array_and_none_reaches_anothers() {
    let array = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[64, 64], Order::C).unwrap();
    let tiles = |at: usize| {
        let start = vec![at / 8 * 8, at % 8 * 8];
        vec![ElementBox { start, extent: vec![8, 8] }]
    };
    let mut writer = array.writer().unwrap();
    let lent = writer.lend((0..64).map(tiles).collect()).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let lent = &lent;
            threads.spawn(move || {
                for number in (thread..64).step_by(4) {
                    let mut part = lent.part(number).unwrap();
                    let own = [number / 8 * 8, number % 8 * 8];
                    part.scatter(&[number as u8; 64], &boxes(own, [8, 8])).unwrap();
                    let next = [own[0], (own[1] + 8) % 64];
                    assert!(refused(part.scatter(&[0; 64], &boxes(next, [8, 8]))));
                    assert!(refused(lent.part(number)));
                }
            });
        }
    });
    drop(writer);
    let expected: Vec<u8> = (0..64 * 64).map(|at| (at / 64 / 8 * 8 + at % 64 / 8) as u8).collect();
    assert_eq!(array.host_slice::<u8>().unwrap(), expected);
}

#[test]
fn nothing_writes_read_only_memory() {
    let _allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    for device in [Device::Cpu, Device::Simt] {
        let Ok(()) = device.initialize() else {
            println!("skipped: no {device}");
            continue;
        };
        let locked = Buffer::from_bytes(device, &[5; 8]).unwrap().into_read_only();
        let other = Buffer::from_bytes(device, &[6; 8]).unwrap();
        let stream = Stream::new(device).unwrap();
        let ring = SlabRing::new(device, 4096, 8192).unwrap();
        let mut slab = ring.acquire(0).unwrap();
        assert!(refused(stream.h2d(&[1; 8], &locked)), "{device}");
        assert!(refused(stream.d2d(&other, &locked)), "{device}");
        assert!(refused(stream.memset(&locked, 1)), "{device}");
        assert!(refused(slab.upload(0..8, &locked, &stream)), "{device}");
        assert!(refused(ring.acquire(0).unwrap().upload_as_filled(&locked, &stream)), "{device}");
        assert!(refused(locked.copy_from(&other)), "{device}");
        assert!(refused(locked.host_bytes_mut()) || device == Device::Simt);
        assert_eq!(locked.to_vec().unwrap(), [5; 8], "{device}");
    }
}

#[test]
fn an_allocator_that_gives_something_else_is_refused() {
    struct Wrong(Buffer);
    impl pool::DeviceAllocator for Wrong {
        fn allocate(&self, _device: Device, _size_bytes: usize) -> Result<Buffer> {
            Ok(self.0.clone())
        }
    }
    let _allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(()) = Device::Simt.initialize() else { return println!("skipped: no {}", Device::Simt) };
    let on_device = Buffer::from_bytes(Device::Simt, &[0; 64]).unwrap();
    let given = [Buffer::from_vec(vec![0; 64]), on_device.slice(..63).unwrap(), on_device.clone().into_read_only()];
    for wrong in given {
        pool::set_allocator(Some(Arc::new(Wrong(wrong))));
        let outcome = internal::pool::allocate_on(Device::Simt, 64);
        pool::set_allocator(None);
        assert!(refused(outcome));
    }
    pool::set_allocator(Some(Arc::new(Wrong(on_device))));
    let larger = internal::pool::allocate_on(Device::Simt, 60);
    pool::set_allocator(None);
    assert_eq!(larger.unwrap().size_bytes(), 60);
}

#[test]
fn an_overlapping_copy_takes_memory_from_the_allocator_that_was_chosen() {
    #[derive(Default)]
    struct Counting(AtomicUsize);
    impl pool::DeviceAllocator for Counting {
        fn allocate(&self, device: Device, size_bytes: usize) -> Result<Buffer> {
            self.0.fetch_add(size_bytes, Ordering::Relaxed);
            pool::Pool.allocate(device, size_bytes)
        }
    }
    let _allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(()) = Device::Simt.initialize() else { return println!("skipped: no {}", Device::Simt) };
    let before: Vec<u8> = (0..200).collect();
    let block = Buffer::from_bytes(Device::Simt, &before).unwrap();
    let chosen = Arc::new(Counting::default());
    pool::set_allocator(Some(Arc::clone(&chosen) as Arc<dyn pool::DeviceAllocator>));
    let copied = block.slice(10..110).unwrap().copy_from(&block.slice(..100).unwrap());
    pool::set_allocator(None);
    copied.unwrap();
    assert_eq!(chosen.0.load(Ordering::Relaxed), 100);
    assert_eq!(block.to_vec().unwrap(), [&before[..10], &before[..100], &before[110..]].concat());
}
