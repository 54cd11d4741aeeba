"""The configuration: every value, where it comes from, and how to change it.

A value is looked for in ``config.local`` (this task's own), then in ``config.set`` (the whole process'), then in the
environment (``CUZARR_ARRAY__ORDER=F`` is ``array.order``; ``ZARR_ARRAY__ORDER=F`` counts less), then in the defaults.
``device``, ``buffer`` and ``ndbuffer`` say the same thing in two ways, so whichever of them is set sets the others beside it.
"""

from __future__ import annotations

import ast
import base64
import binascii
import importlib
import json
import os
import pprint
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from fractions import Fraction
from typing import Any, Literal, TextIO

from cuzarr._checks import dictionary
from cuzarr._names import did_you_mean
from cuzarr.errors import ConfigInvalidError, CuzarrRuntimeWarning

DEFAULTS: dict[str, Any] = {
    # zarr-python's keys, with zarr-python's defaults
    "default_zarr_format": 3,
    "array.order": "C",
    "array.write_empty_chunks": False,
    "array.read_missing_chunks": True,
    "array.target_shard_size_bytes": None,
    "array.rectilinear_chunks": False,
    "array.sharding_coalesce_max_gap_bytes": 1 << 20,
    "array.sharding_coalesce_max_bytes": 16 << 20,
    "array.allow_unsafe_pickle_decode": False,
    "array.variable_chunk_max_bytes": 512 << 20,
    "async.concurrency": 10,
    "async.timeout": None,
    "threading.max_workers": None,
    "json_indent": 2,
    "codec_pipeline.path": "cuzarr.zarr.CodecPipeline",
    "codec_pipeline.batch_size": 1,
    "codec_pipeline.max_workers": None,
    "buffer": "cuzarr.buffer.cpu.Buffer",
    "ndbuffer": "cuzarr.buffer.cpu.NDBuffer",
    # where arrays are read to, and as what
    "device": "cpu",
    "array_type": "auto",
    # what may be done and used
    "strict": False,
    "allow_pickle": False,
    "memory_limit": None,
    "metadata_max_bytes": 256 << 20,
    "gds": "auto",
    "fsync": "none",
    "direct_io": "auto",
}

# zarr-python's table of codec classes. cuzarr has its own, the registry; entries are kept, so that one dictionary serves both.
_CODECS = {
    "blosc": "BloscCodec",
    "gzip": "GzipCodec",
    "zstd": "ZstdCodec",
    "bytes": "BytesCodec",
    "endian": "BytesCodec",
    "crc32c": "Crc32cCodec",
    "sharding_indexed": "ShardingCodec",
    "transpose": "TransposeCodec",
    "vlen-utf8": "VLenUTF8Codec",
    "vlen-bytes": "VLenBytesCodec",
}
_NUMCODECS = (
    "BZ2 CRC32 CRC32C LZ4 LZMA ZFPY Adler32 AsType BitRound Blosc Delta FixedScaleOffset Fletcher32 GZip JenkinsLookup3 "
    "PCodec PackBits Shuffle Quantize Zlib Zstd"
).split()
DEFAULTS |= {f"codecs.{name}": f"cuzarr.codecs.{codec}" for name, codec in _CODECS.items()}
DEFAULTS |= {
    f"codecs.numcodecs.{'jenkins_lookup3' if codec == 'JenkinsLookup3' else codec.lower()}": f"cuzarr.codecs.numcodecs.{codec}"
    for codec in _NUMCODECS
}

_ZARR_PYTHONS_KEYS = frozenset(DEFAULTS) - {
    "device",
    "array_type",
    "strict",
    "allow_pickle",
    "memory_limit",
    "gds",
    "fsync",
    "direct_io",
}

# Keys of zarr-python that change nothing here, and why. Setting one to something else than a default gives a warning.
_WITHOUT_EFFECT = {
    "async.timeout": "calls wait as long as the store takes",
    "codec_pipeline": "cuzarr has one pipeline",
    "codecs": "cuzarr finds codecs by their names, in its own registry and in those of numcodecs and zarr-python",
}

# Sections to which any key may be added, and the ones that name classes.
_OPEN_SECTIONS = ("async", "codec_pipeline", "codecs")
_CLASSES = ("buffer", "ndbuffer")
_PLACES = ("device", "buffer", "ndbuffer")

# Keys whose values may be written as ``"512 MiB"``.
_SIZES = ("memory_limit", "metadata_max_bytes", "array.variable_chunk_max_bytes")

_CHOICES: dict[str, tuple[Any, ...]] = {
    "default_zarr_format": (2, 3),
    "array.order": ("C", "F"),
    "array_type": ("auto", "cupy", "device"),
    "gds": ("auto", "on", "off"),
    "fsync": ("none", "data", "full"),
    "direct_io": ("auto", "on", "off"),
}

# The later one counts more. Of zarr-python's variables those count whose keys exist here.
_ENVIRONMENT_PREFIXES = ("ZARR_", "CUZARR_")
# Holds what `Config.serialize` gave, for child processes.
_INHERITED = "internal_inherit_config"
# Variables that are no configuration keys: tests and the Rust side read them by themselves.
_NOT_KEYS = re.compile("require_gpu|cache_dir|cubin_dir|log|test_device|conformance_engine|simt_flags|[a-z]+_library")


def _unknown(key: str, origin: str) -> ConfigInvalidError:
    hint = did_you_mean(key, DEFAULTS) or "print cuzarr.config to see every key"
    return ConfigInvalidError(f"unknown configuration key '{key}' ({origin})", hint=hint)


_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _size(value: Any) -> Any:
    """A number of bytes from what people write: ``"512 MiB"``, ``"0.5 GB"``, ``"64k"``; -1 for what is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i?))?b?\s*", str(value).lower())
    if isinstance(value, bool) or found is None:
        return -1
    size = Fraction(found[1]) * (1024 if found[3] else 1000) ** _UNITS[found[2] or ""]
    return int(size) if size.denominator == 1 else -1


def device_name(device: Any) -> str:
    """A device given by a caller, else the configuration's."""
    return str(config.get("device") if device is None else device)


def parse_size(value: Any) -> Any:
    """A number of bytes from a number or text such as ``"8 GiB"``."""
    return _check("memory_limit", value, "memory_limit")


def _check(key: str, value: Any, origin: str) -> Any:
    section = key.split(".", 1)[0]
    if key in _CLASSES:
        return _check_class(key, value, origin)
    if section in ("codecs", "codec_pipeline") or (section in _OPEN_SECTIONS and key not in DEFAULTS):
        return value
    if key not in DEFAULTS:
        raise _unknown(key, origin)
    default, choices, given = DEFAULTS[key], _CHOICES.get(key), value
    if choices is not None:
        valid, expected = isinstance(value, str | int) and value in choices, " or ".join(map(repr, choices))
    elif key == "async.timeout":
        valid = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
        expected = "seconds or None"
    elif key == "array.rectilinear_chunks":
        valid, expected = value is False, "False: chunk grids other than regular ones are not supported"
    elif isinstance(default, bool):
        valid, expected = isinstance(value, bool), "True or False"
    elif key == "device":
        value = str(value)
        valid, expected = value == "cpu" or value.partition(":")[0] in ("cuda", "gpu", "simt"), "'cpu' or 'cuda:N'"
    elif key in _SIZES:
        value = _size(value)
        valid = default is None if value is None else 0 <= value < 1 << 63
        expected = "a number of bytes below 2**63, a size such as '512 MiB'" + (", or None" if default is None else "")
    else:  # counts and sizes, some of which may be left to cuzarr
        optional = default is None or key == "json_indent"
        valid = (value is None and optional) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        expected = "a number of at least 0" + (" or None" if optional else "")
    if not valid:
        raise ConfigInvalidError(f"configuration key '{key}' cannot be {given!r} ({origin}), expected {expected}")
    return value


def resolve_class(name: Any) -> Any:
    """A class from its dotted name, or the class itself.

    Raises
    ------
    ConfigInvalidError
        There is no such class.
    """
    if not isinstance(name, str):
        return name
    # zarr-python's own names mean "the CPU" and "the GPU"; here they need neither zarr-python nor CuPy.
    if name.startswith("zarr."):
        name = re.sub(r"^zarr\.(core\.)?buffer\.(?=[cg]pu\.)", "cuzarr.buffer.", name)
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigInvalidError(f"there is no class '{name}'", hint="use its full dotted name, or the class itself") from error


def _check_class(key: str, value: Any, origin: str) -> Any:
    dotted = isinstance(value, str) and all(part.isidentifier() for part in value.split(".")) and "." in value
    if not dotted and not isinstance(value, type):
        raise ConfigInvalidError(f"configuration key '{key}' cannot be {value!r} ({origin}), expected a class or its dotted name")
    return value


def _partner(key: str, value: Any) -> Any:
    """The ``ndbuffer`` that belongs to a ``buffer``, or the other way round: the one beside it in its module."""
    own, other = ("Buffer", "NDBuffer") if key == "buffer" else ("NDBuffer", "Buffer")
    name = value if isinstance(value, str) else f"{value.__module__}.{value.__qualname__}"
    module, _, attribute = name.rpartition(".")
    if attribute == own and isinstance(value, str):
        return f"{module}.{other}"
    beside = getattr(importlib.import_module(module), other, None) if attribute == own else None
    if beside is not None:
        return beside
    return f"cuzarr.buffer.{'cpu' if _is_on_cpu(value) else 'gpu'}.{other}"


def _is_on_cpu(value: Any) -> bool:
    # Known names are told apart without importing what they name.
    if isinstance(value, str) and value.split(".")[0] in ("cuzarr", "zarr"):
        return "gpu" not in value.split(".")

    return device_class(resolve_class(value)) == "cpu"


def _complete(values: dict[str, Any], device: str, origin: str) -> dict[str, Any]:
    """``values`` with ``device``, ``buffer`` and ``ndbuffer`` all set when one of them is; ``device`` is the present one."""
    given = {key: values[key] for key in _PLACES if key in values}
    if not given:
        return values
    on_cpu = {key: value == "cpu" if key == "device" else _is_on_cpu(value) for key, value in given.items()}
    if len(set(on_cpu.values())) > 1:
        said = ", ".join(f"{key} = {value!r}" for key, value in given.items())
        raise ConfigInvalidError(f"these contradict each other ({origin}): {said}", hint="set only 'buffer', or only 'device'")
    cpu = next(iter(on_cpu.values()))
    buffer, ndbuffer = given.get("buffer"), given.get("ndbuffer")
    kind = f"cuzarr.buffer.{'cpu' if cpu else 'gpu'}"
    if buffer is None:
        buffer = f"{kind}.Buffer" if ndbuffer is None else _partner("ndbuffer", ndbuffer)
    if ndbuffer is None:
        ndbuffer = _partner("buffer", buffer)
    fallback = "cpu" if cpu else device if device != "cpu" else "cuda:0"
    return values | {"device": given.get("device", fallback), "buffer": buffer, "ndbuffer": ndbuffer}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        is_section = any(known.startswith(f"{key}.") for known in DEFAULTS)
        if isinstance(value, Mapping) and (is_section or key in _OPEN_SECTIONS):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries made of dotted keys; the reverse of `_flatten`."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _read_variables(environ: Mapping[str, str], prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Keys, values and origins of the variables with a prefix. What was inherited comes first, so that it counts less."""
    variables = [name for name in environ if name.startswith(prefix)]
    for variable in sorted(variables, key=lambda name: name[len(prefix) :].lower() != _INHERITED):
        key, origin = variable[len(prefix) :].lower().replace("__", "."), f"environment {variable}"
        if key == _INHERITED:
            yield from ((inherited, value, origin) for inherited, value in _flatten(_deserialize(environ[variable], origin)))
        elif not _NOT_KEYS.fullmatch(key):
            yield key, _literal(environ[variable]), origin


def _read_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for prefix in _ENVIRONMENT_PREFIXES:
        here: dict[str, tuple[Any, str]] = {}
        for key, value, origin in _read_variables(environ, prefix):
            if prefix == "CUZARR_" or key in _ZARR_PYTHONS_KEYS or key.split(".", 1)[0] in _OPEN_SECTIONS:
                here[key] = (_check(key, value, origin), origin)
        places = {key: here[key] for key in _PLACES if key in here}
        if places:
            origin = " and ".join(dict.fromkeys(origin for _, origin in places.values()))
            complete = _complete({key: value for key, (value, _) in places.items()}, "cpu", origin)
            here |= {key: places.get(key, (value, origin)) for key, value in complete.items()}
        found |= here
    return found


def _deserialize(text: str, origin: str) -> dict[str, Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(text))
    except (binascii.Error, ValueError) as error:
        raise ConfigInvalidError(f"{origin} is not what config.serialize() gives") from error
    if not isinstance(values, dict):
        raise ConfigInvalidError(f"{origin} is not what config.serialize() gives")
    return values


def _dotted_name(value: Any) -> Any:
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value


def _tell_of_no_effect(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        reason = _WITHOUT_EFFECT.get(key) or _WITHOUT_EFFECT.get(key.split(".", 1)[0])
        is_built_in = value == DEFAULTS.get(key) or str(_dotted_name(value)).startswith(("zarr.", "cuzarr.", "numcodecs."))
        if reason is not None and not is_built_in:
            message = f"configuration key '{key}' has no effect here: {reason}"
            warnings.warn(message, CuzarrRuntimeWarning, stacklevel=4)


def _normalize(key: str) -> str:
    # zarr-python's configuration takes either; names of codecs have the hyphen themselves.
    return key if key.startswith("codecs.") else key.replace("-", "_")


class ConfigSet:
    """What :meth:`Config.set` returns: the change is already made, and leaving the ``with`` block undoes it."""

    def __init__(self, config: Config, values: dict[str, Any]) -> None:
        self._config = config
        self._before = config._replace(values)

    def __enter__(self) -> Config:
        return self._config

    def __exit__(self, *exc_info: object) -> None:
        self._config._restore(self._before)


class LocalSet:
    """What :meth:`Config.local` returns: a change that holds inside the ``with`` block, for this task or thread only."""

    def __init__(self, config: Config, values: dict[str, Any]) -> None:
        self._config = config
        self._values = values
        self._tokens: list[Token[dict[str, Any]]] = []

    def __enter__(self) -> Config:
        local = self._config._local
        self._tokens.append(local.set(local.get() | self._values))
        return self._config

    def __exit__(self, *exc_info: object) -> None:
        self._config._local.reset(self._tokens.pop())


class Config:
    """Every setting of cuzarr, with its origin. There is one, ``cuzarr.config``.

    Keys are zarr-python's (``array.order``, ``array.write_empty_chunks``, ``threading.max_workers``, …) and:

    ====================  =========  ================================================================
    key                   default    meaning
    ====================  =========  ================================================================
    ``device``            ``"cpu"``  where arrays are read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``
    ``buffer``            CPU's      the same by zarr-python's word: a class of memory, or its dotted name; ``ndbuffer``
                                     follows it
    ``array_type``        ``"auto"`` type of results on a GPU: ``"cupy"``, ``"device"``, or whichever is there
    ``async.concurrency`` ``10``     calls that are awaited at once; ``async.timeout``, ``codec_pipeline`` and ``codecs``
                                     are zarr-python's and change nothing here, which a warning says when they are set
    ``strict``            ``False``  raise instead of falling back to a slower way
    ``allow_pickle``      ``False``  decode pickled objects, which can run any code
    ``memory_limit``      ``None``   bytes in flight, on the device and in pinned memory each: a number, or ``"512 MiB"``;
                                     ``None`` lets cuzarr choose
    ``metadata_max_bytes``  256 MiB  metadata documents larger than this are refused
    ``array.variable_chunk_max_bytes``
                          512 MiB    chunks of elements of variable length (strings, bytes) decode to at most this, and
                                     larger ones are not written
    ``gds``               ``"auto"`` cuFile for a :class:`cuzarr.storage.GDSStore`: where it pays, ``"on"`` or ``"off"``
    ``direct_io``         ``"auto"`` files that are not in the page cache are read around it: once more was read than it can
                                     hold, always (``"on"``) or never (``"off"``)
    ====================  =========  ================================================================

    >>> import cuzarr
    >>> with cuzarr.config.set({"array.order": "F"}):
    ...     cuzarr.config.get("array.order")
    'F'
    >>> cuzarr.config.get("array.order")
    'C'
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._lock = threading.Lock()
        self._set: dict[str, Any] = {}
        self._local: ContextVar[dict[str, Any]] = ContextVar("cuzarr_config_local", default={})  # noqa: B039, it is never changed
        self._environment: dict[str, tuple[Any, str]] | None = None

    def _from_environment(self) -> dict[str, tuple[Any, str]]:
        # Read at first use, not at import: a bad variable must not make `import cuzarr` fail.
        if self._environment is None:
            self._environment = _read_environment(self._environ)
        return self._environment

    def origins(self) -> tuple[object, ...]:
        """What all values come from. As long as it is the same, every value is: none of these objects is ever changed."""
        return self._local.get(), self._set, self._environment

    def get(self, key: str, default: Any = ...) -> Any:
        """The value of ``key``; for a section such as ``"array"`` a dictionary of its values.

        Raises
        ------
        ConfigInvalidError
            The key is unknown and no default was given.
        """
        if not isinstance(key, str):
            raise ConfigInvalidError(f"configuration key is {key!r}, expected a string")
        key = key if key in DEFAULTS else _normalize(key)
        local = self._local.get()
        if key in local:
            return local[key]
        if key in self._set:
            return self._set[key]
        environment = self._from_environment()
        if key in environment:
            return environment[key][0]
        if key in DEFAULTS:
            return DEFAULTS[key]
        section = _nest({name[len(key) + 1 :]: self.get(name) for name in self if name.startswith(f"{key}.")})
        if section:
            return section
        if default is not ...:
            return default
        raise _unknown(key, "asked for")

    def set(self, arg: Mapping[str, Any] | None = None, **kwargs: Any) -> ConfigSet:
        """Changes values of the whole process, its other threads included: for good, or until a ``with`` block ends.

        ``arg`` maps keys to values, nested or with dots; in keyword names ``__`` stands for the dot.

        Raises
        ------
        ConfigInvalidError
            A key is unknown, or a value has no meaning for it; nothing was changed.
        """
        return ConfigSet(self, self._parse(arg, kwargs, "config.set"))

    def local(self, arg: Mapping[str, Any] | None = None, **kwargs: Any) -> LocalSet:
        """Changes values for a ``with`` block, as this thread or asynchronous task sees them; others see nothing of it.

        Raises
        ------
        ConfigInvalidError
            As :meth:`set`.

        Examples
        --------
        >>> import cuzarr
        >>> with cuzarr.config.local({"array.order": "F"}):
        ...     cuzarr.config.origin("array.order")
        'config.local'
        """
        return LocalSet(self, self._parse(arg, kwargs, "config.local"))

    def _parse(self, arg: Mapping[str, Any] | None, kwargs: dict[str, Any], origin: str) -> dict[str, Any]:
        given = ({} if arg is None else dictionary(arg, origin)) | {
            name.replace("__", "."): value for name, value in kwargs.items()
        }
        values = {_normalize(key): value for key, value in _flatten(given)}
        checked = {key: _check(key, value, origin) for key, value in values.items()}
        _tell_of_no_effect(checked)
        return _complete(checked, self.get("device"), origin)

    def _replace(self, values: dict[str, Any]) -> dict[str, tuple[bool, Any]]:
        with self._lock:
            before = {key: (key in self._set, self._set.get(key)) for key in values}
            self._set = self._set | values
            return before

    def _restore(self, before: dict[str, tuple[bool, Any]]) -> None:
        with self._lock:
            kept = {key: value for key, value in self._set.items() if key not in before}
            self._set = kept | {key: value for key, (was_set, value) in before.items() if was_set}

    def update(self, new: Mapping[str, Any], priority: Literal["new", "old", "new-defaults"] = "new") -> None:
        """Changes values for good, as :meth:`set` does. ``priority`` says which values: all of them (``"new"``), those of
        keys that do not exist yet (``"old"``), or those of keys that have their default (``"new-defaults"``).

        Raises
        ------
        ConfigInvalidError
            As :meth:`set`, or ``priority`` is another word.

        Examples
        --------
        >>> import cuzarr
        >>> with cuzarr.config.set({"array.order": "F"}):
        ...     cuzarr.config.update({"array": {"order": "C"}, "json_indent": 4}, priority="new-defaults")
        ...     cuzarr.config["array.order"], cuzarr.config["json_indent"]
        ('F', 4)
        >>> cuzarr.config.reset()
        """
        tests: dict[str, Callable[[str], bool]] = {
            "new": lambda _: True,
            "old": lambda key: key not in self,
            "new-defaults": lambda key: self.origin(key) == "default",
        }
        if priority not in tests:
            raise ConfigInvalidError(f"priority is {priority!r}, expected 'new', 'old' or 'new-defaults'")
        given = {_normalize(key): value for key, value in _flatten(new)}
        chosen = {key: value for key, value in given.items() if tests[priority](key)}
        self._replace(self._parse(chosen, {}, "config.update"))

    def merge(self, *dicts: Mapping[str, Any]) -> None:
        """Changes values for good by several dictionaries; of a key that is in several the last one counts."""
        merged: dict[str, Any] = {}
        for values in dicts:
            merged |= dict(_flatten(values))
        self.update(merged)

    def clear(self) -> None:
        """Forgets everything that was set and what the environment says: every value is its default.
        :meth:`refresh` reads the environment again."""
        with self._lock:
            self._set = {}
            self._environment = {}

    def reset(self) -> None:
        """Forgets everything that was set, and reads the environment again."""
        with self._lock:
            self._set = {}
            self._environment = _read_environment(self._environ)

    def refresh(self, paths: Any = None, env: Mapping[str, str] | None = None) -> None:
        """Like :meth:`reset`; ``env`` takes the place of the environment."""
        _refuse_files(paths)
        if env is not None:
            self._environ = env
        self.reset()

    def collect(self, paths: Any = None, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the environment says, or ``env`` in its place, in nested dictionaries; changes nothing.

        Raises
        ------
        ConfigInvalidError
            ``paths`` names configuration files, which cuzarr does not read; or a variable has no meaning.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.config.collect(env={"ZARR_ARRAY__ORDER": "F"})
        {'array': {'order': 'F'}}
        """
        _refuse_files(paths)
        found = _read_environment(self._environ if env is None else env)
        return _nest({key: value for key, (value, _) in found.items()})

    def serialize(self) -> str:
        """Every value that is not a default, as one line of text. In the variable ``CUZARR_INTERNAL_INHERIT_CONFIG`` it
        gives a child process the same configuration; classes travel by their dotted names."""
        values = {key: _dotted_name(self.get(key)) for key in self if self.origin(key) != "default"}
        return base64.urlsafe_b64encode(json.dumps(_nest(values)).encode()).decode()

    def enable_gpu(self, device: int | str = 0) -> ConfigSet:
        """Reads arrays into GPU memory from now on; also a context manager. Does not touch the GPU yet.

        >>> import cuzarr
        >>> with cuzarr.config.enable_gpu():
        ...     cuzarr.config.get("device")
        'cuda:0'
        >>> cuzarr.config.get("device")
        'cpu'
        """
        return self.set({"device": f"cuda:{device}" if isinstance(device, int) else device})

    def origin(self, key: str) -> str:
        """Where the value of ``key`` comes from: ``"config.local"``, ``"config.set"``, ``"environment CUZARR_…"`` or
        ``"default"``."""
        key = _normalize(key)
        if key in self._local.get():
            return "config.local"
        if key in self._set:
            return "config.set"
        environment = self._from_environment()
        return environment[key][1] if key in environment else "default"

    def pprint(self, stream: TextIO | None = None, *, width: int | None = None, **options: Any) -> None:
        """Prints every value with its origin to ``stream``, the standard output unless given. ``width`` and the other
        options of Python's ``pprint`` say how long values are broken."""
        print(self._text(width, options), file=stream or sys.stdout)

    def _text(self, width: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        names = max(map(len, self))
        lines = []
        for key in self:
            value = pprint.pformat(self.get(key), width=max((width or sys.maxsize) - names - 3, 1), **(options or {}))
            value = value.replace("\n", "\n" + " " * (names + 3))
            lines.append(f"{key:<{names}} = {value}  ({self.origin(key)})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Every value, in nested dictionaries by section.

        >>> import cuzarr
        >>> cuzarr.config.to_dict()["array"]["order"]
        'C'
        """
        return _nest({key: self.get(key) for key in self})

    def __getitem__(self, key: str) -> Any:
        return self.get(key)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*DEFAULTS, *self._from_environment(), *self._set, *self._local.get()]))

    def __contains__(self, key: object) -> bool:
        return key in list(self)

    def __repr__(self) -> str:
        return self._text()


def _refuse_files(paths: Any) -> None:
    if paths:
        raise ConfigInvalidError(
            f"cuzarr reads no configuration files, got {paths!r}",
            hint="load the file yourself and pass its contents to cuzarr.config.update",
        )


config = Config()
"""The configuration of this process."""

ArrayType = Literal["auto", "cupy", "device"]


def device_class(buffer: Any) -> str:
    """``"cpu"`` or ``"cuda"``: the memory that a buffer class stands for: one of this package, of zarr-python or of a program."""
    accessible = getattr(buffer, "is_host_accessible", None)
    if accessible is not None:
        return "cpu" if accessible else "cuda"
    homes = (parent.__module__ for parent in getattr(buffer, "__mro__", ()))
    return "cuda" if any(home in ("zarr.core.buffer.gpu", "zarr.buffer.gpu") for home in homes) else "cpu"
