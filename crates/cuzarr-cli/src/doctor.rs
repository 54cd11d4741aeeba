//! `cuzarr doctor`: shows what was found on this machine, what is missing, and what that costs.

use clap::Args;
use cuzarr::Result;
use cuzarr_device::{GpuReport, LibraryReport, Probe};
use serde_json::{Value, json};

use crate::Verdict;
use crate::output::{self, Output};

#[derive(Args)]
pub struct Doctor {}

impl Doctor {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let probe = cuzarr_device::probe();
        let threads = cuzarr::config::cores();
        output.answer(&document(&probe, threads), &text(&probe, threads));
        Ok(Verdict::Passed)
    }
}

fn document(probe: &Probe, threads: usize) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "threads": threads,
        "gpu_usable": probe.unusable.is_none(),
        "gpu_problem": probe.unusable,
        "driver": library_json(&probe.driver),
        "gpus": probe.gpus.iter().map(gpu_json).collect::<Vec<_>>(),
        "libraries": probe.libraries.iter().map(library_json).collect::<Vec<_>>(),
        "cubin_directory": probe.cubin_directory,
        "shipped_cubins": probe.shipped_cubins,
        "cache_directory": probe.cache_directory,
    })
}

fn library_json(library: &LibraryReport) -> Value {
    json!({
        "name": library.name, "for": library.purpose, "path": library.path,
        "version": library.version.map(|(major, minor)| format!("{major}.{minor}")), "problem": library.problem,
        "remedy": library.problem.as_ref().map(|_| &library.remedy),
    })
}

fn gpu_json(gpu: &GpuReport) -> Value {
    let (major, minor) = gpu.compute_capability;
    json!({
        "device": format!("cuda:{}", gpu.ordinal), "name": gpu.name, "compute_capability": format!("{major}.{minor}"),
        "multiprocessors": gpu.multiprocessors, "total_bytes": gpu.total_bytes, "memory_pools": gpu.memory_pools,
    })
}

fn text(probe: &Probe, threads: usize) -> String {
    let mut lines = vec![
        format!("cuzarr {}", env!("CARGO_PKG_VERSION")),
        format!("[ok]      cpu: {threads} threads decode and copy"),
    ];
    lines.push(library_line(&probe.driver));
    for gpu in &probe.gpus {
        let (major, minor) = gpu.compute_capability;
        let memory = output::bytes(gpu.total_bytes);
        lines.push(format!(
            "[ok]      cuda:{}: {}, {memory}, compute capability {major}.{minor}",
            gpu.ordinal, gpu.name
        ));
    }
    lines.extend(probe.unusable.as_deref().map(|problem| gpu_line(probe, problem)));
    lines.extend(probe.libraries.iter().map(library_line));
    lines.push(cubin_line(probe));
    match &probe.cache_directory {
        Some(directory) => lines.push(format!("[ok]      kernel cache: {}", directory.display())),
        None => {
            lines.push(
                "[missing] kernel cache: no home directory; every process compiles its kernels again\n          add it: export XDG_CACHE_HOME=/var/tmp/$USER"
                    .into(),
            );
        }
    }
    lines.join("\n")
}

/// Why no GPU can be used. A driver that is not there is told by its own line, so this one repeats the remedy alone.
fn gpu_line(probe: &Probe, problem: &str) -> String {
    let (problem, remedy) = match &probe.driver.problem {
        Some(_) => ("none without the CUDA driver", probe.driver.remedy.as_str()),
        None => problem.split_once("\nhint: ").unwrap_or((problem, "check it: nvidia-smi")),
    };
    let problem = problem.replace('\n', "; ");
    format!("[missing] GPU: {problem}; arrays are read into host memory\n          add it: {remedy}")
}

fn library_line(library: &LibraryReport) -> String {
    match (&library.path, &library.problem) {
        (Some(path), None) => {
            let version = library.version.map(|(major, minor)| format!(" {major}.{minor}")).unwrap_or_default();
            format!("[ok]      {}{version}: {}", library.name, path.display())
        }
        (_, problem) => {
            let problem = problem.as_deref().unwrap_or("not found");
            format!(
                "[missing] {}: {problem}; needed for {}\n          add it: {}",
                library.name, library.purpose, library.remedy
            )
        }
    }
}

fn cubin_line(probe: &Probe) -> String {
    match (&probe.cubin_directory, probe.shipped_cubins) {
        (Some(directory), 1..) => {
            format!("[ok]      shipped kernels: {} in {}", probe.shipped_cubins, directory.display())
        }
        _ => {
            "[missing] shipped kernels: this build has none; a GPU needs NVRTC to compile them at first use\n          add them: pip install cuzarr"
                .to_string()
        }
    }
}
