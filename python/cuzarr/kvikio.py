"""A replacement for KvikIO's Zarr helpers: ``GDSStore``, ``open_cupy_array`` and ``CompatCompressor``, without KvikIO.

Change ``from kvikio.zarr import …`` to ``from cuzarr.kvikio import …``, or ``import kvikio`` to ``from cuzarr import kvikio``:
``kvikio.zarr`` is this module, too. New arrays are of Zarr format 2. Arrays that the helpers of KvikIO 25.08 and zarr-python
wrote, uncompressed or with LZ4, are read. Differences:

- The default compressor is LZ4, which every Zarr reader knows. KvikIO's default was nvCOMP's Snappy, which no other reader knew.
- One codec serves the CPU and the GPU, so nothing is overwritten in metadata. ``GDSStore`` takes
  ``compressor_config_overwrite`` and ``decompressor_config_overwrite``, and ignores them, if both are LZ4 or both zstd. It
  refuses others.
- Arrays of nvCOMP's own formats (``nvcomp_Snappy``, …) are read if NVIDIA's package ``nvidia-nvcomp-cu12`` or ``-cu13`` is
  installed; else an error names the format. They are not written.

>>> from cuzarr.kvikio import CompatCompressor
>>> CompatCompressor.lz4().gpu.get_config()
{'id': 'lz4', 'acceleration': 1}
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from cuzarr import _names, storage
from cuzarr._config import config
from cuzarr._node.array import Array
from cuzarr._node.open import open_array
from cuzarr.codecs import numcodecs as _codecs, nvcomp as _nvcomp
from cuzarr.errors import ArrayNotFoundError, ContainsGroupError, InvalidArgumentError, UnknownCodecError

__all__ = ["CompatCompressor", "GDSStore", "open_cupy_array"]

_MODES = ("r", "r+", "a", "w", "w-")


class CompatCompressor:
    """A pair of codecs that write the same format: one for readers on the CPU, and one for the GPU.

    Parameters
    ----------
    cpu
        The codec for other readers: a codec of numcodecs, or cuzarr's object for such a codec.
    gpu
        The codec that is used here. It must write a format that ``cpu`` reads.

    Raises
    ------
    ValueError
        The codecs write different formats.

    Examples
    --------
    >>> from cuzarr.kvikio import CompatCompressor
    >>> CompatCompressor.lz4().cpu.codec_id
    'lz4'
    """

    def __init__(self, cpu: CodecLike, gpu: CodecLike) -> None:
        self.cpu = cpu
        self.gpu = gpu

    @classmethod
    def lz4(cls) -> Self:
        """The pair for LZ4: numcodecs' codec for readers on the CPU, if numcodecs is installed, and cuzarr's codec for the GPU.

        Returns
        -------
        CompatCompressor
            The pair.

        Examples
        --------
        >>> from cuzarr.kvikio import CompatCompressor
        >>> CompatCompressor.lz4().gpu.codec_id
        'lz4'
        """
        gpu = _codecs.LZ4()
        try:
            from numcodecs import LZ4
        except ImportError:
            return cls(gpu, gpu)
        return cls(LZ4(), gpu)

    def __repr__(self) -> str:
        return f"CompatCompressor(cpu={self.cpu!r}, gpu={self.gpu!r})"


def _refuse_overwrites(normalize_keys: bool, overwrites: Sequence[Any]) -> None:
    if normalize_keys:
        raise InvalidArgumentError("normalize_keys is not supported", hint="leave out normalize_keys")
    formats = {_format(overwrite) for overwrite in overwrites if overwrite is not None}
    if len(formats) > 1 or not formats <= set(_nvcomp.COMMON):
        raise InvalidArgumentError(
            f"got codecs of the formats {' and '.join(sorted(formats))}, expected one format: {' or '.join(_nvcomp.COMMON)}",
            hint="leave out compressor_config_overwrite and decompressor_config_overwrite",
        )


def _format(configuration: Mapping[str, Any]) -> str:
    """Name of the format that a codec writes, from the settings of a numcodecs codec or of KvikIO's codec for batches."""
    name = str(configuration.get("id"))
    return str(configuration.get("algorithm")).lower() if name == "nvcomp_batch" else name


class _Items:
    """Methods that make a store a mapping from keys to values, and read many values at once, each to its own device."""

    _values: storage.Store

    default_meta_array = np.empty(())

    def __getitem__(self, key: str) -> bytes:
        value = self._values.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._values.set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._values.delete(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._values.exists(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.list())

    def __len__(self) -> int:
        return len(self._values.list())

    def __bool__(self) -> bool:
        return True

    def getitems(self, keys: Sequence[str], *, contexts: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """Read several values, each to the device of an array. Missing values are left out.

        Parameters
        ----------
        keys : sequence of str
            The keys.
        contexts : mapping of str to mapping, optional
            For a key, ``{"meta_array": array}``: the value goes to the device of that array. Other values go to host memory.

        Returns
        -------
        dict of str to array of uint8
            The values that exist, by their keys.

        Examples
        --------
        >>> from cuzarr.kvikio import GDSStore
        >>> store = GDSStore("values")
        >>> store["a"] = b"ab"
        >>> store.getitems(["a", "b"])
        {'a': array([97, 98], dtype=uint8)}
        """
        found: dict[str, Any] = {}
        for key in keys:
            meta_array = (contexts or {}).get(key, {}).get("meta_array", self.default_meta_array)
            value = self._values.get_on(key, _device_of(meta_array))
            if value is not None:
                found[key] = value
        return found


def _root(root: Any, path: Any) -> Any:
    """The directory of a store, from either argument: zarr-python 3 calls it ``root``, and earlier versions of KvikIO called it
    ``path``."""
    if (root is None) == (path is None):
        raise InvalidArgumentError(f"a GDSStore has one directory, got root={root!r} and path={path!r}", hint="pass only root=")
    return path if root is None else root


class _PlainGDSStore(_Items, storage.GDSStore):
    def __init__(
        self,
        root: Any = None,
        normalize_keys: bool = False,
        dimension_separator: Any = None,
        *,
        path: Any = None,
        compressor_config_overwrite: Any = None,
        decompressor_config_overwrite: Any = None,
        **options: Any,
    ) -> None:
        _refuse_overwrites(normalize_keys, (compressor_config_overwrite, decompressor_config_overwrite))
        super().__init__(_root(root, path), **options)
        self._values = self


def _zarr_store() -> type[Any]:
    from cuzarr.storage import zarr_form as _zarr_stores

    class GDSStore(_Items, _zarr_stores.GDSStore):
        """A store in a directory, whose files cuFile reads into GPU memory and writes from GPU memory. It is a zarr-python store, and a
        mapping.

        Parameters
        ----------
        root
            The directory; ``path`` is another name for it.
        read_only
            Whether writing is refused.
        gds
            When cuFile is used; see :class:`cuzarr.storage.GDSStore`.

        Raises
        ------
        ValueError
            From writing to a store that is read-only.

        Examples
        --------
        >>> from cuzarr.kvikio import GDSStore
        >>> store = GDSStore("values")
        >>> store["a"] = b"bytes"
        >>> bytes(store["a"])
        b'bytes'
        """

        def __init__(
            self,
            root: Any = None,
            normalize_keys: bool = False,
            dimension_separator: Any = None,
            *,
            path: Any = None,
            compressor_config_overwrite: Any = None,
            decompressor_config_overwrite: Any = None,
            **options: Any,
        ) -> None:
            _refuse_overwrites(normalize_keys, (compressor_config_overwrite, decompressor_config_overwrite))
            super().__init__(_root(root, path), **options)

        @property
        def _values(self) -> storage.Store:  # type: ignore[override]
            return self.cuzarr_store

    GDSStore.__module__, GDSStore.__qualname__ = __name__, "GDSStore"
    return GDSStore


def __getattr__(name: str) -> Any:
    # Made on first access, so that importing this module needs no zarr-python.
    if name == "zarr":  # old programs write `kvikio.zarr.open_cupy_array`
        return sys.modules[__name__]
    if name != "GDSStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        made = _zarr_store()
    except ImportError:
        made = _PlainGDSStore
    globals()["GDSStore"] = made
    return made


if TYPE_CHECKING:
    from types import EllipsisType

    from cuzarr.typing import CodecLike, SupportsCudaArray

    GDSStore = _PlainGDSStore


def _device_of(meta_array: Any) -> str:
    """The device to read values to: that of the array ``meta_array``."""
    if isinstance(meta_array, np.ndarray):
        return "cpu"
    device = getattr(meta_array, "device", None)
    if isinstance(device, str):
        return device
    configured = str(config.get("device"))
    number = getattr(device, "id", None)
    if number is not None:
        return f"cuda:{number}"
    return configured if configured != "cpu" else "cuda:0"


def open_cupy_array(
    store: os.PathLike[str] | str,
    mode: Literal["r", "r+", "a", "w", "w-"] = "a",
    compressor: CodecLike | CompatCompressor | EllipsisType | None = ...,
    meta_array: SupportsCudaArray | None = None,
    **kwargs: Any,
) -> Array:
    """Open or create an array in a directory. Its elements are read to GPU memory, and written from there.

    Parameters
    ----------
    store
        The directory.
    mode
        ``"r"`` and ``"r+"`` open, ``"a"`` opens or creates, ``"w"`` replaces, ``"w-"`` creates only if nothing is there.
    compressor
        The compressor of an array that is created: a codec, a :class:`CompatCompressor`, or ``None``. By default LZ4.
    meta_array
        An array on a GPU; results are on that GPU. By default the configured GPU, else the first.
    **kwargs
        As for :func:`cuzarr.open_array`: ``shape``, ``dtype``, ``chunks``, …

    Returns
    -------
    Array
        The array, opened.

    Raises
    ------
    ValueError
        ``store`` is not a path, ``meta_array`` is not on a GPU, or the mode is unknown. Or the array was compressed by a codec that
        KvikIO's helpers do not read; use :func:`cuzarr.open_array` for it.

    Examples
    --------
    >>> import cuzarr.kvikio
    >>> array = cuzarr.kvikio.open_cupy_array("a.zarr", mode="w", shape=4, dtype="int32")  # doctest: +SKIP
    """
    if not isinstance(store, str | os.PathLike):
        raise InvalidArgumentError(f"store must be a path, got {type(store).__name__}")
    if meta_array is not None and not hasattr(meta_array, "__cuda_array_interface__"):
        raise InvalidArgumentError(f"meta_array must implement __cuda_array_interface__, a {type(meta_array).__name__} does not")
    if mode not in _MODES:
        raise InvalidArgumentError(f"Unknown mode: {mode}", hint=f"use one of {', '.join(_MODES)}")
    directory = storage.GDSStore(os.fspath(store), read_only=mode == "r")
    kwargs = {"device": _device_of(meta_array), **kwargs}
    if mode in ("r", "r+", "a"):
        try:
            array = open_array(directory, mode="r" if mode == "r" else "r+", **kwargs)
        except UnknownCodecError as error:
            raise UnknownCodecError(f"{directory}: {error}", hint=_nvcomp.INSTALL) from error
        except (ArrayNotFoundError, ContainsGroupError):
            if mode != "a":
                raise
        else:
            _check_compressor(array)
            return array
    chosen = CompatCompressor.lz4() if compressor is ... else compressor
    chosen = chosen.gpu if isinstance(chosen, CompatCompressor) else chosen
    kwargs = {"zarr_format": 2, **kwargs}
    return open_array(directory, mode=mode, compressor=chosen, **kwargs)


def _check_compressor(array: Array) -> None:
    """Refuses compressors that KvikIO refused, with its message."""
    if array.metadata.zarr_format != 2 or array.compressor is None or isinstance(array.compressor, _codecs.LZ4):
        return
    if array.compressor.name.removeprefix(_codecs.PREFIX).startswith("nvcomp_"):
        return
    raise InvalidArgumentError(
        f"the array at {array.store_path} was written using a non-CUDA compatible compressor: {array.compressor!r}",
        hint="open it with cuzarr.open_array(…, device='cuda'), or write it with CompatCompressor.lz4()",
    )


_names.list_public(globals())
