//! The dialect that kernels are written in, on every device that runs it.

mod device;

use cuzarr_device::{Arguments, Buffer, Device, ErrorKind, KernelSource, Result, Stream};
use device::devices;

static PRIMITIVES: KernelSource =
    KernelSource { name: "primitives", text: include_str!("primitives.cu"), headers: &[] };

const BLOCKS: u32 = 6;
const THREADS: u32 = 64;
const COUNT: usize = (BLOCKS * THREADS) as usize;

fn bytes(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn values(buffer: &Buffer) -> Vec<u32> {
    let bytes = buffer.to_vec().unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Launches a kernel over `input` and returns what it wrote.
fn map(device: Device, entry: &str, input: &[u32]) -> Vec<u32> {
    let stream = Stream::new(device).unwrap();
    let source = Buffer::from_bytes(device, &bytes(input)).unwrap();
    let target = Buffer::zeroed(device, input.len() * 4).unwrap();
    let kernel = PRIMITIVES.kernel(device, entry).unwrap();
    let arguments = (source.address(), target.address());
    // SAFETY: the kernel takes these two pointers and reads and writes one word a thread.
    unsafe { kernel.launch(&stream, BLOCKS, THREADS, arguments, &[&source, &target]) }.unwrap();
    stream.synchronize().unwrap();
    values(&target)
}

#[test]
fn a_block_sums_through_shared_memory_and_barriers() {
    let input: Vec<u32> = (0..COUNT as u32).map(|at| at * 7 + 1).collect();
    let sums = input.chunks(THREADS as usize).flat_map(|block| vec![block.iter().sum(); block.len()]);
    let expected: Vec<u32> = sums.collect();
    for device in devices() {
        assert_eq!(map(device, "primitives_block_sum", &input), expected, "{device}");
    }
}

#[test]
fn a_warp_scans_through_shuffles_and_ballots() {
    let input: Vec<u32> = (0..COUNT as u32).map(|at| at * at % 11).collect();
    let scan = |warp: &[u32]| {
        let at = |lane: usize| {
            let votes = warp[..lane].iter().filter(|value| *value & 1 == 1).count() as u32;
            warp[..=lane].iter().sum::<u32>() + votes * 1_000_000
        };
        (0..warp.len()).map(at).collect::<Vec<u32>>()
    };
    let expected: Vec<u32> = input.chunks(32).flat_map(scan).collect();
    for device in devices() {
        assert_eq!(map(device, "primitives_warp_scan", &input), expected, "{device}");
    }
}

#[test]
fn parts_of_a_warp_exchange_among_themselves() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let target = Buffer::zeroed(device, COUNT * 4).unwrap();
        let kernel = PRIMITIVES.kernel(device, "primitives_half_warps").unwrap();
        // SAFETY: the kernel takes one pointer and writes one word a thread.
        unsafe { kernel.launch(&stream, BLOCKS, THREADS, (target.address(),), &[&target]) }.unwrap();
        stream.synchronize().unwrap();
        for (thread, value) in values(&target).into_iter().enumerate() {
            let lane = thread as u32 % 32;
            // Lane 15 has no lane above it in its half, and keeps its own value on a GPU of either kind only by luck.
            if lane != 15 {
                assert_eq!(value, if lane < 16 { lane + 1 } else { 31 }, "{device}");
            }
        }
    }
}

#[test]
fn blocks_that_wait_for_each_other_all_finish() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let [turn, tickets, out] = [4, 4, BLOCKS as usize * 4].map(|size| Buffer::zeroed(device, size).unwrap());
        let kernel = PRIMITIVES.kernel(device, "primitives_chain").unwrap();
        let arguments = (turn.address(), tickets.address(), out.address());
        // SAFETY: three pointers; the kernel writes one word a block.
        unsafe { kernel.launch(&stream, BLOCKS, THREADS, arguments, &[&turn, &tickets, &out]) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(values(&out), (1..=BLOCKS).collect::<Vec<u32>>(), "{device}");
    }
}

#[test]
fn threads_share_the_bits_of_a_byte() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let bits = Buffer::from_bytes(device, &[0xff; COUNT / 8]).unwrap();
        let kernel = PRIMITIVES.kernel(device, "primitives_bits").unwrap();
        // SAFETY: one pointer; the kernel changes one bit a thread.
        unsafe { kernel.launch(&stream, BLOCKS, THREADS, (bits.address(),), &[&bits]) }.unwrap();
        stream.synchronize().unwrap();
        for (byte, value) in bits.to_vec().unwrap().into_iter().enumerate() {
            let expected = (0..8).map(|bit| u8::from((byte * 8 + bit) % 3 == 0) << bit).sum::<u8>();
            assert_eq!(value, expected, "{device}");
        }
    }
}

#[test]
fn simt_reports_threads_that_wait_for_ever() {
    if !devices().contains(&Device::Simt) {
        return;
    }
    let stream = Stream::new(Device::Simt).unwrap();
    let out = Buffer::zeroed(Device::Simt, 256).unwrap();
    let kernel = PRIMITIVES.kernel(Device::Simt, "primitives_deadlock").unwrap();
    // SAFETY: one pointer; the kernel writes one word a thread.
    let stuck = unsafe { kernel.launch(&stream, 1, 32, (out.address(),), &[&out]) }.unwrap_err();
    assert!(stuck.message().contains("deadlock"), "{stuck}");
}

/// Runs only as a child of `simt_sees_an_access_outside_memory`, which it kills.
#[test]
fn overrun_child() {
    if std::env::var_os("CUZARR_OVERRUN_CHILD").is_none() {
        return;
    }
    let stream = Stream::new(Device::Simt).unwrap();
    let [source, out] = [0, 1].map(|_| Buffer::zeroed(Device::Simt, 64).unwrap());
    let kernel = PRIMITIVES.kernel(Device::Simt, "primitives_overrun").unwrap();
    let arguments = (source.address(), out.address(), 16u32);
    // SAFETY: not safe at all: it reads behind `source`, which the sanitizer must stop.
    let _ = unsafe { kernel.launch(&stream, 1, 32, arguments, &[&source, &out]) };
    println!("survived");
}

#[test]
fn simt_sees_an_access_outside_memory() {
    if !devices().contains(&Device::Simt) {
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["overrun_child", "--exact", "--nocapture"])
        .env("CUZARR_OVERRUN_CHILD", "1")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(!child.status.success() && words.contains("heap-buffer-overflow"), "{words}");
    assert!(words.contains("primitives_overrun"), "{words}");
}

#[test]
fn arguments_that_are_not_those_of_the_kernel_are_refused() {
    fn launch(device: Device, arguments: impl Arguments, buffers: &[&Buffer]) -> Result<()> {
        let kernel = PRIMITIVES.kernel(device, "primitives_block_sum")?;
        let stream = Stream::new(device)?;
        // SAFETY: the first two arguments begin with the pointers that the kernel takes; it reads and writes one word a thread.
        unsafe { kernel.launch(&stream, 1, THREADS, arguments, buffers) }?;
        stream.synchronize()
    }
    for device in devices() {
        let words = Buffer::zeroed(device, THREADS as usize * 4).unwrap();
        let address = words.address();
        launch(device, (address, address), &[&words]).unwrap();
        // Drivers from before CUDA 12.4 do not say what a kernel takes; what is too much here does no harm then.
        let refusals = [
            (launch(device, (address, address, 0u64), &[&words]), "got 3 arguments, it has 2 parameters"),
            (launch(device, (address, [address, 0]), &[&words]), "argument 1 has 16 bytes, the parameter 8"),
        ];
        for (refused, message) in refusals {
            match refused {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    assert!(
                        error.message().contains("primitives_block_sum") && error.message().contains(message),
                        "{error}"
                    );
                }
                Ok(()) => assert_ne!(device, Device::Simt),
            }
        }
    }
}
