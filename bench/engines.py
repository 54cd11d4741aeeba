"""Each reader as its users call it: a path goes in, the whole array comes out, where the scenario wants it."""

import contextlib
import functools
import importlib.metadata
import importlib.util

FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"


def cuzarr(path, device):
    import cuzarr

    return cuzarr.open_array(path, mode="r", device=device)[...]


def zarrs(path, device):
    """The codec pipeline of the zarrs crate under zarr-python."""
    import zarr
    import zarrs  # noqa: F401

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return _placed(zarr.open_array(path, mode="r")[...], device)


def tensorstore(path, device):
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    return _placed(tensorstore.open(spec).result().read().result(), device)


def zarr(path, device):
    import zarr

    return _placed(zarr.open_array(path, mode="r")[...], device)


def zarr_fused(path, device):
    """zarr-python with the pipeline that it has from 3.3 on beside its default."""
    import zarr

    with zarr.config.set({"codec_pipeline.path": FUSED}):
        return _placed(zarr.open_array(path, mode="r")[...], device)


def zarr_gpu(path, device):
    """zarr-python with its own GPU buffers."""
    import zarr

    with zarr.config.enable_gpu():
        return zarr.open_array(path, mode="r")[...]


def zarr_fused_gpu(path, device):
    """zarr-python's fused pipeline with its own GPU buffers."""
    import zarr

    with zarr.config.enable_gpu(), zarr.config.set({"codec_pipeline.path": FUSED}):
        return zarr.open_array(path, mode="r")[...]


def kvikio(path, device):
    """zarr-python with GPU buffers over KvikIO's store."""
    import zarr
    from kvikio.zarr import GDSStore

    _all_threads()
    with zarr.config.enable_gpu():
        return zarr.open_array(GDSStore(path), mode="r")[...]


def zarr_cuzarr(path, device):
    """zarr-python with cuzarr's pipeline, chosen by the configuration alone."""
    import zarr

    with (
        _buffers(device),
        zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"}),
    ):
        return zarr.open_array(path, mode="r")[...]


def zarr_enabled(path, device):
    """The same by `cuzarr.zarr.enable()`, with its repairs."""
    import zarr

    import cuzarr.zarr

    with cuzarr.zarr.enable(gpu=device != "cpu"):
        return zarr.open_array(path, mode="r")[...]


def _buffers(device):
    import zarr

    return contextlib.nullcontext() if device == "cpu" else zarr.config.enable_gpu()


@functools.cache
def _all_threads():
    import os

    import kvikio.defaults

    kvikio.defaults.set({"num_threads": os.cpu_count()})


def _placed(host, device):
    """A host array, copied to the device when the scenario ends there."""
    if device == "cpu":
        return host
    import cupy

    with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
        return cupy.asarray(host)


ON_CPU = {engine.__name__: engine for engine in (cuzarr, zarr_cuzarr, zarr_enabled, zarrs, tensorstore, zarr, zarr_fused)}
ON_CUDA = ON_CPU | {engine.__name__: engine for engine in (zarr_gpu, zarr_fused_gpu, kvikio)}
PACKAGES = {
    "cuzarr": "cuzarr",
    "zarr_cuzarr": "zarr",
    "zarr_enabled": "zarr",
    "zarrs": "zarrs",
    "tensorstore": "tensorstore",
    "zarr": "zarr",
    "zarr_fused": "zarr",
    "zarr_gpu": "zarr",
    "zarr_fused_gpu": "zarr",
    "kvikio": "kvikio",
}


def available(device):
    """The engines that are installed here, for a scenario that ends on `device`."""
    engines = ON_CPU if device == "cpu" else ON_CUDA
    return {name: engine for name, engine in engines.items() if importlib.util.find_spec(PACKAGES[name])}


def versions():
    """The versions of everything that matters to a record."""
    found = {}
    for package in (
        "cuzarr",
        "zarrs",
        "tensorstore",
        "obstore",
        "zarr",
        "numcodecs",
        "numpy",
        "cupy-cuda13x",
        "cupy-cuda12x",
        "kvikio-cu13",
    ):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
