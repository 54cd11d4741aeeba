//! Kernels of the user's own: what the compiler says of them, and what they do on a GPU.

mod device;

use cuzarr_device::{Buffer, Device, ErrorKind, LaunchShape, Module, Stream, probe};
use device::say_skipped;

const SOURCE: &str = "
extern \"C\" __global__ void scale(float *x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
template <typename T> __global__ void set(T *x, T value) { x[blockIdx.y * gridDim.x + blockIdx.x] = value; }
extern \"C\" __global__ void reversed(int *x) {
    extern __shared__ int cells[];
    cells[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = cells[blockDim.x - 1 - threadIdx.x];
}
";

fn gpu() -> Option<Device> {
    if probe().gpus.is_empty() {
        assert!(std::env::var_os("CUZARR_REQUIRE_GPU").is_none(), "CUZARR_REQUIRE_GPU is set, and there is no GPU");
        say_skipped("no GPU");
        return None;
    }
    Some(Device::Cuda(0))
}

#[test]
fn the_compiler_shows_the_line_that_is_wrong() {
    let broken = "__global__ void f(float *x) {\n    x[0] = undefined_name;\n}\n";
    match Module::check("mine.cu", broken, &[], (9, 0)) {
        Err(error) if error.kind() == ErrorKind::LibraryMissing => say_skipped(error.message()),
        answer => {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KernelCompileFailed);
            for part in ["mine.cu(2)", "undefined_name", "x[0]"] {
                assert!(error.message().contains(part), "{error}");
            }
            // Twice, so that the second answer may come from what was kept.
            Module::check("mine.cu", SOURCE, &[], (9, 0)).unwrap();
            Module::check("mine.cu", SOURCE, &[], (9, 0)).unwrap();
            let needed = "#ifndef N\n#error N is missing\n#endif\n";
            Module::check("mine.cu", needed, &["-DN=4".to_string()], (9, 0)).unwrap();
            assert!(Module::check("mine.cu", needed, &[], (9, 0)).unwrap_err().message().contains("N is missing"));
        }
    }
}

#[test]
fn a_device_without_a_compiler_is_refused_by_name() {
    let error = Module::compile(Device::Cpu, "mine.cu", SOURCE, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("cpu"), "{error}");
}

#[test]
fn kernels_run_with_the_arguments_they_are_given() {
    let Some(device) = gpu() else { return };
    let module = Module::compile(device, "mine.cu", SOURCE, &[]).unwrap();
    let stream = Stream::new(device).unwrap();

    let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let x = Buffer::from_bytes(device, &bytes).unwrap();
    let scale = module.function("scale").unwrap();
    let arguments = (x.address(), 2f32, 999i32);
    // SAFETY: the kernel's parameters, and it stays below 999 elements.
    unsafe { scale.launch(&stream, LaunchShape::line(4, 256), arguments, &[&x]) }.unwrap();
    stream.synchronize().unwrap();
    let got = x.to_vec().unwrap();
    let got: Vec<f32> = got.as_chunks::<4>().0.iter().map(|word| f32::from_ne_bytes(*word)).collect();
    assert!((0..999).all(|i| got[i] == 2.0 * i as f32) && got[999] == 999.0);

    // A template, by x and y of the grid.
    let y = Buffer::zeroed(device, 8 * 12).unwrap();
    let set = module.function("set<double>").unwrap();
    let shape = LaunchShape { grid: [3, 4, 1], block: [1, 1, 1], shared_bytes: 0 };
    // SAFETY: 12 elements, one a block.
    unsafe { set.launch(&stream, shape, (y.address(), 0.5f64), &[&y]) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(y.to_vec().unwrap(), 0.5f64.to_ne_bytes().repeat(12));

    // Dynamic shared memory, far beyond what every kernel may take.
    let z: Vec<u8> = (0..256i32).flat_map(|i| i.to_ne_bytes()).collect();
    let z = Buffer::from_bytes(device, &z).unwrap();
    let reversed = module.function("reversed").unwrap();
    let shape = LaunchShape { shared_bytes: 96 << 10, ..LaunchShape::line(1, 256) };
    // SAFETY: 256 elements, one a thread.
    unsafe { reversed.launch(&stream, shape, (z.address(),), &[&z]) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(z.to_vec().unwrap(), (0..256i32).rev().flat_map(|i| i.to_ne_bytes()).collect::<Vec<u8>>());
}

#[test]
fn launches_that_do_not_fit_the_kernel_are_refused() {
    let Some(device) = gpu() else { return };
    let module = Module::compile(device, "mine.cu", SOURCE, &[]).unwrap();
    let error = module.function("no_such_kernel").unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains("no_such_kernel"), "{error}");

    let scale = module.function("scale").unwrap();
    let stream = Stream::new(device).unwrap();
    let x = Buffer::zeroed(device, 4).unwrap();
    let refused = |shape, arguments: Vec<Vec<u8>>| {
        // SAFETY: refused before anything is launched.
        let error = unsafe { scale.launch(&stream, shape, arguments, &[&x]) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_string()
    };
    let whole = vec![x.address().to_ne_bytes().to_vec(), vec![0; 4], vec![0; 4]];
    assert!(refused(LaunchShape::line(0, 32), whole.clone()).contains("got an empty launch"));
    assert!(refused(LaunchShape::line(1, 4096), whole.clone()).contains("4096 threads"));
    if scale.parameter_bytes().is_some() {
        assert!(refused(LaunchShape::line(1, 1), whole[..2].to_vec()).contains("3 parameters"));
        let long = vec![whole[0].clone(), vec![0; 8], vec![0; 4]];
        assert!(refused(LaunchShape::line(1, 1), long).contains("argument 1 has 8 bytes"));
    }
}
