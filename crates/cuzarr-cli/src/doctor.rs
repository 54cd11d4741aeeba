//! `cuzarr doctor`: shows what was found on this machine, what is missing, and the consequences.

use clap::Args;
use cuzarr::Result;
use cuzarr::internal::cores;
use cuzarr_device::{GpuReport, LibraryReport, Probe};
use serde_json::{Value, json};

use crate::output::{self, Output};
use crate::{Python, Verdict};

#[derive(Args)]
pub struct Doctor {}

/// The Python interpreter that runs the command, and the installed packages.
pub struct PythonFound {
    /// The version of Python.
    pub version: String,
    /// Packages that cuzarr works with. Only `doctor` shows them.
    pub packages: Vec<PythonPackage>,
}

/// A Python package that cuzarr works with.
pub struct PythonPackage {
    /// The package's name.
    pub name: String,
    /// The use that cuzarr makes of the package.
    pub purpose: String,
    /// The installed version; `None` if the package is not installed.
    pub version: Option<String>,
    /// The requirement by which pip installs the package.
    pub requirement: String,
    /// Whether the package is only useful with a GPU.
    pub needs_gpu: bool,
}

impl Doctor {
    pub fn run(self, python: Option<&Python<'_>>, output: &mut Output) -> Result<Verdict> {
        let probe = cuzarr_device::probe();
        let python = python.map(|python| &python.found);
        let threads = cores();
        output.answer(&document(&probe, python, threads), &text(&probe, python, threads));
        Ok(Verdict::Passed)
    }
}

fn document(probe: &Probe, python: Option<&PythonFound>, threads: usize) -> Value {
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
        "python": python.map(python_json),
    })
}

fn python_json(python: &PythonFound) -> Value {
    let package = |package: &PythonPackage| {
        let remedy = package.version.is_none().then(|| install(std::slice::from_ref(&package)));
        json!({"name": package.name, "for": package.purpose, "version": package.version, "remedy": remedy})
    };
    json!({"version": python.version, "packages": python.packages.iter().map(package).collect::<Vec<_>>()})
}

fn install(packages: &[&PythonPackage]) -> String {
    let names: Vec<&str> = packages.iter().map(|package| package.requirement.as_str()).collect();
    format!("pip install {}", names.join(" "))
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

fn text(probe: &Probe, python: Option<&PythonFound>, threads: usize) -> String {
    let mut lines = vec![
        format!("cuzarr {}", env!("CARGO_PKG_VERSION")),
        format!("[ok]      cpu: {threads} threads decode and copy"),
    ];
    match &probe.unusable {
        Some(problem) => lines.extend(without_gpu(probe, problem)),
        None => lines.extend(with_gpu(probe)),
    }
    lines.extend(python.into_iter().flat_map(|python| python_lines(python, probe.unusable.is_none())));
    lines.join("\n")
}

fn with_gpu(probe: &Probe) -> Vec<String> {
    let mut lines = vec![library_line(&probe.driver)];
    for gpu in &probe.gpus {
        let (major, minor) = gpu.compute_capability;
        let memory = output::bytes(gpu.total_bytes);
        lines.push(format!(
            "[ok]      cuda:{}: {}, {memory}, compute capability {major}.{minor}",
            gpu.ordinal, gpu.name
        ));
    }
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
    lines
}

/// Returns the lines of the report that explain why no GPU can be used. Parts that are only used with a GPU are named,
/// but not as missing.
fn without_gpu(probe: &Probe, problem: &str) -> Vec<String> {
    let (problem, remedy) = match &probe.driver.problem {
        Some(problem) => (problem.as_str(), probe.driver.remedy.as_str()),
        None => problem.split_once("\nhint: ").unwrap_or((problem, "check it: nvidia-smi")),
    };
    let problem = problem.replace('\n', "; ");
    let gpu = format!("[missing] GPU: {problem}; arrays are read into host memory\n          add it: {remedy}");
    let names: Vec<&str> = probe.libraries.iter().map(|library| library.name).collect();
    let unused = format!("[unused]  without a GPU: {}, shipped kernels, kernel cache", names.join(", "));
    vec![gpu, unused]
}

fn python_lines(python: &PythonFound, has_gpu: bool) -> Vec<String> {
    let (found, mut missing): (Vec<_>, Vec<_>) = python.packages.iter().partition(|package| package.version.is_some());
    missing.retain(|package| has_gpu || !package.needs_gpu);
    let named =
        |package: &&PythonPackage| format!("{} {}", package.name, package.version.as_deref().unwrap_or_default());
    let mut lines = vec![format!("[ok]      Python {}", python.version)];
    if !found.is_empty() {
        let found: Vec<String> = found.iter().map(named).collect();
        lines[0] += &format!(" with {}", found.join(", "));
    }
    if !missing.is_empty() {
        let named = |package: &&PythonPackage| format!("{} ({})", package.name, package.purpose);
        let names: Vec<String> = missing.iter().map(named).collect();
        lines.push(format!("[none]    Python packages that add something: {}", names.join(", ")));
        lines.push(format!("          add those you need: {}", install(&missing)));
    }
    lines
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
            "[missing] shipped kernels: this build has none; NVRTC compiles them at first use\n          add them: build the package by make wheels, or install a wheel of a release"
                .to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &'static str, problem: Option<&str>) -> LibraryReport {
        let path = problem.is_none().then(|| "/lib/it.so".into());
        let problem = problem.map(String::from);
        LibraryReport {
            name,
            purpose: "something",
            path,
            version: None,
            problem,
            remedy: format!("pip install {name}"),
        }
    }

    fn probe(has_gpu: bool) -> Probe {
        Probe {
            driver: library("CUDA driver", (!has_gpu).then_some("no CUDA driver: found none")),
            gpus: Vec::new(),
            unusable: (!has_gpu).then(|| "no CUDA driver".to_string()),
            libraries: vec![library("cuFile", Some("found none")), library("cuBLAS", Some("found none"))],
            cubin_directory: None,
            shipped_cubins: 0,
            cache_directory: None,
        }
    }

    fn python() -> PythonFound {
        let package = |name: &str, version: Option<&str>, needs_gpu| PythonPackage {
            name: name.into(),
            purpose: "something".into(),
            version: version.map(String::from),
            requirement: name.to_lowercase(),
            needs_gpu,
        };
        let packages =
            vec![package("NumPy", Some("2.5"), false), package("h5py", None, false), package("CuPy", None, true)];
        PythonFound { version: "3.13.0".into(), packages }
    }

    #[test]
    fn without_a_gpu_nothing_is_asked_for_that_needs_one() {
        let text = text(&probe(false), Some(&python()), 2);
        assert_eq!(text.matches("[missing]").count(), 1, "{text}");
        assert!(!text.contains("pip install cuFile") && !text.contains("cupy"), "{text}");
        assert!(text.contains("[unused]  without a GPU: cuFile, cuBLAS"), "{text}");
    }

    #[test]
    fn with_a_gpu_each_missing_thing_has_its_remedy() {
        let text = text(&probe(true), Some(&python()), 2);
        assert!(text.contains("pip install cuFile") && text.contains("pip install h5py cupy"), "{text}");
        assert!(!text.contains("pip install cuzarr"), "it is installed: {text}");
    }

    #[test]
    fn packages_of_python_are_listed_with_their_versions() {
        let text = text(&probe(false), Some(&python()), 2);
        assert!(text.contains("Python 3.13.0 with NumPy 2.5") && text.contains("pip install h5py"), "{text}");
        assert_eq!(document(&probe(false), Some(&python()), 2)["python"]["packages"][1]["remedy"], "pip install h5py");
    }
}
