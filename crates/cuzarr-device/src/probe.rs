//! A report of this machine's devices and libraries, with the reasons why others are missing. For `cuzarr doctor` and
//! error reports.

use std::path::PathBuf;

use crate::driver::cuda::driver::Driver;
use crate::driver::library;
use crate::driver::nvrtc::Nvrtc;
use crate::driver::nvtx;
use crate::driver::{cubin, cublas, cufile};
use crate::error::Result;

/// A library that cuzarr searches for at run time: whether it was found, where, and how to install it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryReport {
    /// Name of the library.
    pub name: &'static str,
    /// The feature that needs the library.
    pub purpose: &'static str,
    /// Path where the library was found.
    pub path: Option<PathBuf>,
    /// Version of the library, if it is known.
    pub version: Option<(u32, u32)>,
    /// Why the library cannot be used; `None` if it can.
    pub problem: Option<String>,
    /// How to install the library: a command, or an instruction.
    pub remedy: String,
}

/// One GPU that the driver shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReport {
    /// The number of the GPU: the N in `cuda:N`.
    pub ordinal: u32,
    /// Name of the GPU, from the driver.
    pub name: String,
    /// Compute capability of the GPU, as (major, minor).
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors of the GPU.
    pub multiprocessors: u32,
    /// Size of the GPU's memory in bytes.
    pub total_bytes: u64,
    /// Whether the GPU supports the driver's stream-ordered memory pools.
    pub memory_pools: bool,
}

/// The devices and libraries of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Whether the CUDA driver was found on this machine, and where.
    pub driver: LibraryReport,
    /// The GPUs that the driver shows.
    pub gpus: Vec<GpuReport>,
    /// Why no GPU can be used; `None` if one can.
    pub unusable: Option<String>,
    /// The optional libraries, such as NVRTC and cuFile, whether found or not.
    pub libraries: Vec<LibraryReport>,
    /// The folder of the compiled kernels (cubins) that the package ships.
    pub cubin_directory: Option<PathBuf>,
    /// Number of cubins (compiled kernels) in the folder `cubin_directory`.
    pub shipped_cubins: usize,
    /// The folder in which compiled kernels are cached.
    pub cache_directory: Option<PathBuf>,
}

/// Finds the devices and libraries of this machine. Loads and starts the driver, but makes no context. Never fails and
/// never panics.
pub fn probe() -> Probe {
    let driver = Driver::get();
    let gpus = driver.as_ref().map_or_else(|_| Vec::new(), |driver| gpus(driver));
    let unusable = match &driver {
        Err(error) => Some(error.to_string()),
        Ok(_) if gpus.is_empty() => Some("the driver shows no GPU\nhint: check CUDA_VISIBLE_DEVICES".to_string()),
        Ok(_) => None,
    };
    let cubin_directory = cubin::shipped_directory();
    let shipped_cubins = cubin_directory.as_ref().map_or(0, |directory| {
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        files.filter(|file| file.path().extension().is_some_and(|extension| extension == "cubin")).count()
    });
    let major = driver.as_ref().ok().and_then(|driver| driver.version().ok()).map(|(major, _)| major);
    let driver = report(
        "CUDA driver",
        "running anything on a GPU",
        "install NVIDIA's driver from https://www.nvidia.com/drivers; start a container with --gpus all",
        driver.map(|driver| (driver.path().into(), driver.version().ok())),
    );
    Probe {
        driver,
        gpus,
        unusable,
        libraries: libraries(major),
        cubin_directory,
        shipped_cubins,
        cache_directory: cubin::cache_directory(),
    }
}

fn gpus(driver: &Driver) -> Vec<GpuReport> {
    let gpu = |ordinal| {
        let properties = driver.properties(ordinal).ok()?;
        Some(GpuReport {
            ordinal,
            name: properties.name,
            compute_capability: properties.compute_capability,
            multiprocessors: properties.multiprocessors,
            total_bytes: properties.total_bytes,
            memory_pools: properties.memory_pools,
        })
    };
    (0..driver.device_count().unwrap_or(0)).filter_map(gpu).collect()
}

/// The optional libraries, such as NVRTC and cuFile, whether found or not. `cuda` is the driver's major version, which
/// decides which packages fit. Without a driver, the newest packages are named.
fn libraries(cuda: Option<u32>) -> Vec<LibraryReport> {
    let is_old = cuda.is_some_and(|major| major < 13);
    let (extra, suffix) = if is_old { ("cuda12", "-cu12") } else { ("cuda13", "") };
    let nvrtc = Nvrtc::get().map(|nvrtc| (nvrtc.path().into(), nvrtc.version().ok()));
    let optional = |name, purpose, remedy: &str, variable, files: &[&str]| {
        report(name, purpose, remedy, library::open(variable, files).map(|found| (found.path, None)))
    };
    vec![
        report(
            "NVRTC",
            "compiling kernels that have no shipped machine code",
            &format!("pip install 'cuzarr[{extra}]'"),
            nvrtc,
        ),
        optional(
            "cuFile",
            "reading storage straight into GPU memory",
            &format!("pip install nvidia-cufile{suffix}"),
            cufile::LIBRARY_VARIABLE,
            &cufile::LIBRARY_NAMES,
        ),
        optional(
            "cuBLAS",
            "products of matrices on a GPU",
            &format!("pip install nvidia-cublas{suffix}"),
            cublas::LIBRARY_VARIABLE,
            &cublas::LIBRARY_NAMES,
        ),
        optional(
            "nvCOMP",
            "comparing with NVIDIA's decoders",
            &format!("pip install nvidia-nvcomp-cu{}", if is_old { 12 } else { 13 }),
            "CUZARR_NVCOMP_LIBRARY",
            &["libnvcomp.so.6", "libnvcomp.so.5", "libnvcomp.so.4", "libnvcomp.so"],
        ),
        report(
            "NVTX",
            "naming ranges for the profiler that listens",
            "run the program under a profiler: nsys profile python program.py",
            nvtx::attached().map(|path| (path, None)),
        ),
    ]
}

fn report(
    name: &'static str,
    purpose: &'static str,
    remedy: &str,
    found: Result<(PathBuf, Option<(u32, u32)>)>,
) -> LibraryReport {
    let (path, version, problem) = match found {
        Ok((path, version)) => (Some(path), version, None),
        Err(error) => (None, None, Some(error.message().to_string())),
    };
    LibraryReport { name, purpose, path, version, problem, remedy: remedy.to_string() }
}
