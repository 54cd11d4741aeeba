"""Shows how much memory is in use, limits it, and chooses the library whose pool it comes from.

>>> import cuzarr
>>> with cuzarr.memory.limit("512 MiB"):
...     cuzarr.config.get("memory_limit")
536870912
>>> cuzarr.memory.info("cpu").device
'cpu'
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cuzarr import _core, _names
from cuzarr._checks import element_type, parse_shape
from cuzarr._config import ConfigSet, config, device_name, parse_size
from cuzarr._docstrings import documented
from cuzarr._memory.element_types import core_dtype
from cuzarr._memory.foreign import numpy_view
from cuzarr._text import human_bytes, printable
from cuzarr.errors import DeviceUnavailableError, InvalidArgumentError, LibraryMissingError

__all__ = ["MemoryInfo", "PoolInfo", "empty_cache", "empty_pinned", "info", "limit", "reset_peak", "use_allocator"]

if TYPE_CHECKING:
    from cuzarr.typing import DTypeLike, ShapeLike

Library = Literal["cuzarr", "cupy", "torch", "rmm"]

_chosen: Library = "cuzarr"


# Largest number of arrays that the text of a report names. The largest arrays come first.
_MOST_NAMED = 8


@dataclass(frozen=True)
class PoolInfo:
    """Bytes in the memory pool that one library, such as CuPy, has on a device.

    Parameters
    ----------
    used : int
        Bytes of the pool that are in use.
    held : int or None
        Bytes that the pool holds; ``None`` if the library does not say.

    Raises
    ------
    None
        The class holds plain values.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.memory.PoolInfo(used=1, held=2).held
    2
    """

    used: int
    held: int | None


@dataclass(frozen=True)
class MemoryInfo:
    """Memory in use on one device, in bytes.

    Parameters
    ----------
    device, free, total, used, peak, pinned, in_flight, limit, allocator, pools, arrays
        The attributes below.

    Attributes
    ----------
    device : str
        The device.
    free, total : int
        Free memory and total memory of the device, as the driver reports them. They cover all programs.
    used, peak : int
        Memory from cuzarr's own pool: the amount in use now, and the largest since :func:`reset_peak`. Results in another library's pool
        are counted in that pool.
    pools : mapping of str to PoolInfo
        The pools of cuzarr and of those among CuPy, PyTorch and RMM that this program has imported.
    arrays : mapping of str to int
        Bytes of results on the device that are still alive, by the address of the array that was read. Results in the
        arrays of every library and from every pool are counted. Results of expressions have no address.
    pinned : int
        Pinned host memory kept for transfers to and from the device.
    in_flight : int
        The part of ``memory_limit`` that running reads and writes use.
    chunk_cache : int
        Memory of decoded chunks that arrays with ``chunk_cache`` keep. It counts towards ``memory_limit``, and is freed when running work
        needs it.
    limit : int or None
        The ``memory_limit``; ``None`` lets cuzarr choose.
    allocator : str
        The library whose pool results come from.

    Raises
    ------
    DeviceUnavailableError
        From :func:`info`: there is no such device.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.memory.info("cpu").used >= 0
    True
    """

    device: str
    free: int
    total: int
    used: int
    peak: int
    pinned: int
    in_flight: int
    chunk_cache: int
    limit: int | None
    allocator: str
    pools: Mapping[str, PoolInfo]
    arrays: Mapping[str, int]

    def __str__(self) -> str:
        limit = "chosen by cuzarr" if self.limit is None else human_bytes(self.limit)
        lines = [
            f"{self.device}: {human_bytes(self.free)} of {human_bytes(self.total)} free",
            f"  pinned    {human_bytes(self.pinned)}",
            f"  in flight {human_bytes(self.in_flight)}, limit {limit}",
            *([f"  cached    {human_bytes(self.chunk_cache)} of chunks"] if self.chunk_cache else []),
            f"  results   from {self.allocator}",
        ]
        for name, pool in self.pools.items():
            held = "" if pool.held is None else f", {human_bytes(pool.held)} held"
            most = f", {human_bytes(self.peak)} at most" if name == "cuzarr" else ""
            lines.append(f"  pool of {name}: {human_bytes(pool.used)} used{most}{held}")
        largest = sorted(self.arrays.items(), key=lambda array: -array[1])
        lines += [f"  {human_bytes(size)} of {name}" for name, size in largest[:_MOST_NAMED]]
        if len(largest) > _MOST_NAMED:
            lines.append(
                f"  {human_bytes(sum(size for _, size in largest[_MOST_NAMED:]))} of {len(largest) - _MOST_NAMED} others"
            )
        return "\n".join(map(printable, lines))


def info(device: str | None = None) -> MemoryInfo:
    """The memory that is in use on a device. For a GPU, the call starts CUDA.

    >>> cuzarr.memory.info("cpu").device
    'cpu'
    """
    chosen = device_name(device)
    numbers = _core.memory_info(chosen)
    counted = {name: numbers[name] for name in ("free", "total", "used", "peak", "pinned", "in_flight", "chunk_cache")}
    own = {} if chosen == "cpu" else {"cuzarr": PoolInfo(numbers["used"], numbers["held"])}
    pools = {**own, **_pools_of_others(chosen)}
    arrays = _core.memory_of_arrays(chosen)
    return MemoryInfo(device=chosen, limit=config.get("memory_limit"), allocator=_chosen, pools=pools, arrays=arrays, **counted)


def _pools_of_others(device: str) -> dict[str, PoolInfo]:
    """Bytes in the memory pools of other libraries that the program has imported. No library is imported for this."""
    if not device.startswith("cuda"):
        return {}
    pools, ordinal = {}, _ordinal(device)
    if cupy := sys.modules.get("cupy"):
        with cupy.cuda.Device(ordinal):
            pool = cupy.get_default_memory_pool()
            pools["cupy"] = PoolInfo(int(pool.used_bytes()), int(pool.total_bytes()))
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        pools["torch"] = PoolInfo(int(torch.cuda.memory_allocated(ordinal)), int(torch.cuda.memory_reserved(ordinal)))
    statistics = sys.modules.get("rmm.statistics")
    # Nothing unless it was told to count.
    if counted := statistics and statistics.get_statistics():
        pools["rmm"] = PoolInfo(int(counted.current_bytes), None)
    return pools


def limit(size: int | str | None) -> ConfigSet:
    """Limit the temporary memory of reads, writes and computations: what they need in addition to the results.

    The limit holds for a ``with`` block, or from now on. It sets the configuration's ``memory_limit``. It applies to running reads and
    writes, for each kind of memory (host, pinned, device), and to the regions that :func:`cuzarr.copy`, :func:`cuzarr.rechunk` and
    :func:`cuzarr.map_blocks` process.

    Parameters
    ----------
    size : int, str or None
        Bytes, or text such as ``"8 GiB"``; ``None`` lets cuzarr choose.

    Returns
    -------
    ConfigSet
        The change, already made; leaving its ``with`` block undoes it.

    Raises
    ------
    ConfigInvalidError
        The text is not a size.

    >>> with cuzarr.memory.limit("512 MiB"):
    ...     cuzarr.memory.info("cpu").limit
    536870912
    """
    return config.set({"memory_limit": parse_size(size)})


def empty_pinned(shape: ShapeLike, dtype: DTypeLike = "float64", *, device: str | None = None) -> np.ndarray[Any, np.dtype[Any]]:
    """Allocate a NumPy array in pinned memory, to which GPUs copy without a detour.

    Reads with an ``accelerator`` write their elements to such an ``out`` from the GPU itself. Pinned arrays of CuPy and PyTorch are as good.
    Pinning takes milliseconds, so use the array for many reads.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the array.
    dtype : dtype
        Type of its elements.
    device : str, optional
        The GPU that pins the memory; every GPU then reaches it. By default the first one. Without a GPU, memory is not pinned.

    Returns
    -------
    numpy.ndarray
        The array. Its elements are 0.

    Raises
    ------
    DeviceUnavailableError
        There is no such device.
    OutOfMemoryError
        The system pins no more memory.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(2, 3), dtype="float32", fill_value=7)
    >>> out = cuzarr.memory.empty_pinned((2, 3), "float32")
    >>> array.read(out=out) is out, out.sum()
    (True, np.float32(42.0))
    """
    kind, extents = element_type(dtype), parse_shape(shape)
    try:
        buffer = _core.NdBuffer.pinned(extents, core_dtype(kind), "cuda:0" if device is None else device_name(device))
    except DeviceUnavailableError:
        if device is not None:
            raise
        buffer = _core.NdBuffer.pinned(extents, core_dtype(kind), "cpu")
    return numpy_view(buffer, kind)


def empty_cache(device: str | None = None) -> None:
    """Give unused memory of cuzarr's pool, the chunk cache and pinned memory back to the system. The call waits for the device.

    Returns
    -------
    None
        The memory is free when the call returns.

    >>> cuzarr.memory.empty_cache("cpu")
    """
    _core.trim_memory(device_name(device))


def reset_peak(device: str | None = None) -> None:
    """Reset :attr:`MemoryInfo.peak` to the memory that is in use now.

    Returns
    -------
    None
        The peak begins again.

    >>> cuzarr.memory.reset_peak("cpu")
    """
    _core.reset_memory_peak(device_name(device))


def use_allocator(library: Library) -> None:
    """Take memory for later results on GPUs from another library's pool. Two pools then do not have to share one GPU.

    Scratch memory, which is bounded by ``memory_limit``, still comes from cuzarr's own pool.

    Parameters
    ----------
    library : {"cupy", "torch", "rmm", "cuzarr"}
        The library whose pool is used. Memory returns to the pool when the last array that uses it is deleted.

    Returns
    -------
    None
        Later results come from that pool.

    Raises
    ------
    LibraryMissingError
        The library is not installed.

    >>> cuzarr.memory.use_allocator("cuzarr")
    """
    global _chosen
    if not isinstance(library, str) or library not in _ALLOCATORS:
        raise InvalidArgumentError(f"allocator is {library!r}, expected one of {', '.join(_ALLOCATORS)}")
    make = _ALLOCATORS[library]
    _core.set_allocator(None if make is None else make())
    _chosen = library


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LibraryMissingError(f"{name} is not installed", hint=f"install {name}, or keep cuzarr's own pool") from error


def _ordinal(device: str) -> int:
    return int(device.partition(":")[2] or 0)


# Memory from these pools may still be used by earlier work on their stream. Once that stream is idle, every stream may use the memory.


def _of_cupy() -> Callable[[int, str], tuple[int, Any]]:
    cupy = _library("cupy")

    def allocate(size: int, device: str) -> tuple[int, Any]:
        with cupy.cuda.Device(_ordinal(device)):
            memory = cupy.cuda.alloc(size)
            cupy.cuda.get_current_stream().synchronize()
        return int(memory.ptr), memory

    return allocate


def _of_torch() -> Callable[[int, str], tuple[int, Any]]:
    torch = _library("torch")

    def allocate(size: int, device: str) -> tuple[int, Any]:
        place = f"cuda:{_ordinal(device)}"
        memory = torch.empty(size, dtype=torch.uint8, device=place)
        torch.cuda.current_stream(place).synchronize()
        return int(memory.data_ptr()), memory

    return allocate


def _of_rmm() -> Callable[[int, str], tuple[int, Any]]:
    rmm, stream = _library("rmm"), _library("rmm.pylibrmm.stream").DEFAULT_STREAM
    runtime = _library("cuda.bindings.runtime")

    def allocate(size: int, device: str) -> tuple[int, Any]:
        # RMM's resources only work on the thread's current device.
        _, before = runtime.cudaGetDevice()
        runtime.cudaSetDevice(_ordinal(device))
        try:
            memory = rmm.DeviceBuffer(size=size, stream=stream, mr=rmm.mr.get_current_device_resource())
            stream.synchronize()
        finally:
            runtime.cudaSetDevice(before)
        return int(memory.ptr), memory

    return allocate


_ALLOCATORS: dict[str, Callable[[], Callable[[int, str], tuple[int, Any]]] | None] = {
    "cuzarr": None,
    "cupy": _of_cupy,
    "torch": _of_torch,
    "rmm": _of_rmm,
}


documented(
    """
    device : str, optional
        The device; by default the configured one.
    >>> import cuzarr
    """,
    errors={"device": "DeviceUnavailableError\n    There is no such device, or it cannot be used."},
)(globals())

_names.list_public(globals())
