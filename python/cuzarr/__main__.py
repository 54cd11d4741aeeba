"""The ``cuzarr`` command: ``python -m cuzarr``."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from importlib import metadata

from cuzarr import _core
from cuzarr.references.make import make_references_for_command

# Packages that cuzarr works with: name, purpose, and the names of distributions (the first one is the one to install).
_PACKAGES = (
    ("NumPy", "arrays in host memory", ("numpy",)),
    ("CuPy", "arrays on a GPU", ("cupy-cuda13x", "cupy-cuda12x", "cupy")),
    ("zarr-python", "the codec pipeline of cuzarr.zarr", ("zarr",)),
    ("numcodecs", "more codecs of format 2", ("numcodecs",)),
    ("xarray", "the engine cuzarr", ("xarray",)),
    ("dask", "dask arrays and clusters", ("dask[array]",)),
    ("PyTorch", "datasets of cuzarr.torch", ("torch",)),
    ("JAX", "datasets of cuzarr.jax", ("jax",)),
    ("h5py", "tables of references to HDF5 files", ("h5py",)),
    ("fsspec", "fsspec's stores", ("fsspec",)),
    ("obstore", "obstore's stores", ("obstore",)),
)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution.partition("[")[0])
    except (ImportError, LookupError, OSError, ValueError):
        # The package is not installed, or an interrupted pip left it damaged.
        return None


@dataclass
class Package:
    """A package that cuzarr works with, and its version, as the command ``cuzarr doctor`` shows it."""

    name: str
    purpose: str
    version: str | None
    requirement: str
    needs_gpu: bool


def _find_packages() -> list[Package]:
    found = []
    for name, purpose, distributions in _PACKAGES:
        version = next((version for version in map(_version, distributions) if version is not None), None)
        requirement = f"'{distributions[0]}'" if "[" in distributions[0] else distributions[0]
        found.append(Package(name, purpose, version, requirement, name == "CuPy"))
    return found


def main() -> int:
    """Runs the command with this process's arguments; returns its exit status."""
    # Python's own handler would wait until the command has ended. The command has its own handler, which says how to continue.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    packages = _find_packages() if "doctor" in sys.argv else []
    return _core.cli(["cuzarr", *sys.argv[1:]], make_references_for_command, packages)


if __name__ == "__main__":
    sys.exit(main())
