"""Stores and codecs written in Python, as the Rust side calls them.

The Rust side knows one small set of methods each; everything that differs between a dictionary, zarr-python's stores
and somebody's own object, or between numcodecs and zarr-python's codecs, ends here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

import numpy as np

from cuzarr._config import config
from cuzarr._dtypes import from_json_v3
from cuzarr.errors import PickleCodecDisabledError


class StoreAdapter(Protocol):
    """What the Rust side calls."""

    def get(self, key: str, start: int | None, stop: int | None) -> Any: ...
    def set(self, key: str, value: bytes) -> None: ...
    def set_if_not_exists(self, key: str, value: bytes) -> bool: ...
    def delete(self, key: str) -> None: ...
    def delete_dir(self, prefix: str) -> None: ...
    def getsize(self, key: str) -> int | None: ...
    def list_prefix(self, prefix: str) -> list[str]: ...
    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]: ...
    def describe(self) -> str: ...


def adapt_store(store: Any) -> StoreAdapter:
    """The adapter for a mapping, a store of zarr-python's, or an object with ``get``, ``set``, ``delete``, ``list``.

    Raises
    ------
    TypeError
        It is none of them.
    """
    if isinstance(store, MutableMapping):
        return MappingAdapter(store)
    if inspect.iscoroutinefunction(getattr(store, "get", None)) and hasattr(store, "list_prefix"):
        return ZarrStoreAdapter(store)
    missing = [name for name in ("get", "set", "delete", "list") if not callable(getattr(store, name, None))]
    if missing:
        raise TypeError(f"a {type(store).__name__} is no store: it has no {', '.join(missing)}")
    return ObjectAdapter(store)


def to_bytes(value: Any) -> bytes:
    """The bytes of what a store holds: bytes-like objects, arrays, zarr-python's buffers."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return bytes(value.to_bytes())
    return bytes(memoryview(value).cast("B")) if not isinstance(value, bytes) else value


def cut(value: Any, start: int | None, stop: int | None) -> bytes:
    """Part of a value; a negative ``start`` counts from the end, and all of a shorter value."""
    raw = to_bytes(value)
    return raw if start is None and stop is None else raw[start:stop]


class ListingAdapter:
    """Whatever can be told from a list of keys."""

    def keys(self) -> Iterable[str]:
        raise NotImplementedError  # each adapter has its own

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def set(self, key: str, value: bytes) -> None:
        raise NotImplementedError  # each adapter has its own

    def delete(self, key: str) -> None:
        raise NotImplementedError  # each adapter has its own

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self.getsize(key) is not None:
            return False
        self.set(key, value)
        return True

    def getsize(self, key: str) -> int | None:
        value = self.get(key, None, None)
        return None if value is None else len(value)

    def list_prefix(self, prefix: str) -> list[str]:
        lead = f"{prefix}/" if prefix else ""
        return sorted(key for key in list(self.keys()) if key.startswith(lead))

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        lead = len(prefix) + 1 if prefix else 0
        keys: list[str] = []
        prefixes: dict[str, None] = {}
        for key in self.list_prefix(prefix):
            name, below, _ = key[lead:].partition("/")
            if below:
                prefixes[key[:lead] + name] = None
            else:
                keys.append(key)
        return keys, list(prefixes)

    def delete_dir(self, prefix: str) -> None:
        for key in self.list_prefix(prefix):
            self.delete(key)


class MappingAdapter(ListingAdapter):
    """A mapping from keys to bytes. New values are of zarr-python's buffer class when the mapping holds those."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        self.mapping = mapping

    def keys(self) -> Iterable[str]:
        return list(self.mapping)

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        value = self.mapping.get(key)
        return None if value is None else cut(value, start, stop)

    def set(self, key: str, value: bytes) -> None:
        self.mapping[key] = value

    def delete(self, key: str) -> None:
        self.mapping.pop(key, None)

    def describe(self) -> str:
        return f"{type(self.mapping).__name__} at {id(self.mapping):#x}"


class ObjectAdapter(ListingAdapter):
    """Any object with ``get(key)``, ``set(key, value)``, ``delete(key)`` and ``list()``."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def keys(self) -> Iterable[str]:
        return list(self.store.list())

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            value = self.store.get(key)
        except KeyError:
            return None
        return None if value is None else cut(value, start, stop)

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)

    def delete(self, key: str) -> None:
        try:
            self.store.delete(key)
        except KeyError:
            pass

    def describe(self) -> str:
        return str(self.store)


class _Loop:
    """One event loop in a thread of its own, for stores that are asynchronous."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def run(cls, coroutine: Any) -> Any:
        with cls._lock:
            if cls._loop is None:
                cls._loop = asyncio.new_event_loop()
                threading.Thread(target=cls._loop.run_forever, name="cuzarr-stores", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, cls._loop).result()


class ZarrStoreAdapter:
    """A store of zarr-python's: its methods are coroutines and its values buffers."""

    def __init__(self, store: Any) -> None:
        from zarr.core.buffer import cpu
        from zarr.core.buffer.core import default_buffer_prototype

        self.store = store
        self._buffer = cpu.Buffer
        self._prototype = default_buffer_prototype()

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

        request: Any = None
        if start is not None and start < 0:
            request = SuffixByteRequest(-start)
        elif stop is not None:
            request = RangeByteRequest(start or 0, stop)
        elif start is not None:
            request = OffsetByteRequest(start)
        value = _Loop.run(self.store.get(key, self._prototype, request))
        return None if value is None else to_bytes(value)

    def set(self, key: str, value: bytes) -> None:
        _Loop.run(self.store.set(key, self._buffer.from_bytes(value)))

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if _Loop.run(self.store.exists(key)):
            return False
        _Loop.run(self.store.set_if_not_exists(key, self._buffer.from_bytes(value)))
        return True

    def delete(self, key: str) -> None:
        _Loop.run(self.store.delete(key))

    def delete_dir(self, prefix: str) -> None:
        _Loop.run(self.store.delete_dir(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            return int(_Loop.run(self.store.getsize(key)))
        except (FileNotFoundError, KeyError):
            return None

    async def _collect(self, names: Any) -> list[str]:
        return [name async for name in names]

    def list_prefix(self, prefix: str) -> list[str]:
        found = _Loop.run(self._collect(self.store.list_prefix(f"{prefix}/" if prefix else "")))
        return sorted(found)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        keys: list[str] = []
        prefixes: list[str] = []
        for name in sorted(_Loop.run(self._collect(self.store.list_dir(prefix)))):
            full = f"{prefix}/{name}" if prefix else name
            # zarr-python does not say which names are keys.
            (keys if _Loop.run(self.store.exists(full)) else prefixes).append(full)
        return keys, prefixes

    def describe(self) -> str:
        return str(self.store)


# numcodecs' codecs that take arrays apart themselves; its others, as far as they are not built in, take bytes.
_ARRAY_CODECS = ("zfpy", "pcodec")


class NumcodecsHost:
    """A codec of numcodecs', or one registered there."""

    def __init__(self, codec: Any, role: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._codec = codec
        self._role = role
        self._dtype = dtype
        self._shape = shape

    def decode(self, encoded: bytes) -> bytes:
        decoded = self._codec.decode(encoded)
        if self._role == "array_bytes":
            return np.ascontiguousarray(decoded, self._dtype).tobytes()
        return to_bytes(decoded)

    def encode(self, decoded: bytes) -> bytes:
        value: Any = decoded
        if self._role == "array_bytes":
            value = np.frombuffer(decoded, self._dtype).reshape(self._shape)
        return to_bytes(self._codec.encode(value))


class ZarrHost:
    """A codec registered with zarr-python."""

    def __init__(self, codec: Any, role: str, spec: Any, encoded_spec: Any) -> None:
        self._codec = codec
        self._role = role
        self._spec = spec
        self._encoded_spec = encoded_spec

    def _array(self, raw: bytes, spec: Any) -> Any:
        elements = np.frombuffer(raw, spec.dtype.to_native_dtype()).reshape(spec.shape)
        return spec.prototype.nd_buffer.from_numpy_array(elements.copy())

    def _bytes(self, raw: bytes) -> Any:
        return self._spec.prototype.buffer.from_bytes(raw)

    def decode(self, encoded: bytes) -> bytes:
        value = self._array(encoded, self._encoded_spec) if self._role == "array_array" else self._bytes(encoded)
        (decoded,) = _Loop.run(self._codec.decode([(value, self._spec)]))
        return to_bytes(decoded) if self._role == "bytes_bytes" else decoded.as_numpy_array().tobytes()

    def encode(self, decoded: bytes) -> bytes:
        value = self._bytes(decoded) if self._role == "bytes_bytes" else self._array(decoded, self._spec)
        (encoded,) = _Loop.run(self._codec.encode([(value, self._spec)]))
        return encoded.as_numpy_array().tobytes() if self._role == "array_array" else to_bytes(encoded)


# What the Rust side gets: the role, the codec, and for array-to-array codecs shape and data type after encoding.
OpenedCodec = tuple[str, Any, list[int] | None, str | None]


def open_codec(
    name: str, configuration: str, zarr_format: int, shape: tuple[int, ...], data_type: str
) -> OpenedCodec | None:
    """The codec of that name in Python's registries, or ``None``. Called by the Rust side, for names it does not know.

    ``configuration`` and ``data_type`` are JSON, the latter as format 3 writes it; ``shape`` is the chunk's.

    Raises
    ------
    PickleCodecDisabledError
        It is pickle, and ``allow_pickle`` is off.
    """
    settings = json.loads(configuration)
    identifier = name.removeprefix("numcodecs.")
    if identifier == "pickle" and not (config.get("allow_pickle") or config.get("array.allow_unsafe_pickle_decode")):
        raise PickleCodecDisabledError(
            "data is pickled, and unpickling can run any code",
            hint="if you trust it: cuzarr.config.set({'allow_pickle': True})",
        )
    if zarr_format == 3 and not name.startswith("numcodecs."):
        return _open_zarr(name, settings, shape, json.loads(data_type))
    try:
        import numcodecs
    except ImportError:
        return None
    try:
        codec = numcodecs.get_codec({"id": identifier, **settings})
    except ValueError as error:
        if type(error).__name__ == "UnknownCodecError" or "not available" in str(error):
            return None
        raise
    role = "array_bytes" if identifier in _ARRAY_CODECS else "bytes_bytes"
    dtype = from_json_v3(json.loads(data_type)).native if role == "array_bytes" else np.dtype("u1")
    return role, NumcodecsHost(codec, role, dtype, tuple(shape)), None, None


def _open_zarr(name: str, settings: dict[str, Any], shape: tuple[int, ...], data_type: Any) -> OpenedCodec | None:
    try:
        from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
        from zarr.core.array_spec import ArrayConfig, ArraySpec
        from zarr.core.buffer.cpu import buffer_prototype
        from zarr.dtype import parse_dtype as parse_zarr_dtype
        from zarr.registry import get_codec_class
    except ImportError:
        return None
    try:
        cls = get_codec_class(name)
    except KeyError:
        return None
    except Exception as error:
        if type(error).__name__ in ("UnknownCodecError", "BadConfigError"):
            return None
        raise
    dtype = parse_zarr_dtype(data_type, zarr_format=3)
    settled = ArrayConfig(order="C", write_empty_chunks=False)
    spec = ArraySpec(tuple(shape), dtype, dtype.default_scalar(), settled, buffer_prototype)
    document: dict[str, Any] = {"name": name, "configuration": settings} if settings else {"name": name}
    codec = cls.from_dict(document).evolve_from_array_spec(spec)
    encoded = codec.resolve_metadata(spec)
    if isinstance(codec, ArrayArrayCodec):
        encoded_type = json.dumps(encoded.dtype.to_json(zarr_format=3))
        return "array_array", ZarrHost(codec, "array_array", spec, encoded), list(encoded.shape), encoded_type
    role = "array_bytes" if isinstance(codec, ArrayBytesCodec) else "bytes_bytes"
    return role, ZarrHost(codec, role, spec, encoded), None, None
