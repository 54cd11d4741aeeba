"""Keys of the configuration: their defaults, and their valid values."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from cuzarr import _core
from cuzarr._config.classes import CLASSES, check_class, dotted_name
from cuzarr._names import did_you_mean
from cuzarr.errors import ConfigInvalidError, CuzarrRuntimeWarning

_OF_LIBRARY = _core.config_defaults()

DEFAULT_MEMORY_LIMIT_BYTES: int = _OF_LIBRARY["memory_limit"]
"""Memory limit in bytes of plans, and of NumPy's functions on stored arrays, if the configuration has none."""

DEFAULTS: dict[str, Any] = _OF_LIBRARY | {
    "default_zarr_format": int(_OF_LIBRARY["default_zarr_format"]),
    "memory_limit": None,
    # zarr-python's keys, with zarr-python's defaults
    "array.rectilinear_chunks": False,
    "array.chunk_cache": False,
    "async.timeout": None,
    "json_indent": 2,
    "codec_pipeline.path": "cuzarr.zarr.CodecPipeline",
    "codec_pipeline.batch_size": 1,
    "codec_pipeline.max_workers": None,
    "buffer": "cuzarr.buffer.cpu.Buffer",
    "ndbuffer": "cuzarr.buffer.cpu.NDBuffer",
    "array_type": "auto",
    "allow_pickle": False,
}

# zarr-python's table of codec classes. cuzarr uses its own registry; entries are kept, so that one dictionary serves both libraries.
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

ZARR_PYTHONS_KEYS = frozenset(DEFAULTS) - {
    "device",
    "accelerator",
    "array_type",
    "strict",
    "allow_pickle",
    "memory_limit",
    "array.chunk_cache",
    "chunk_cache.size",
    "chunk_cache.max_age",
    "gds",
    "fsync",
    "direct_io",
}

# Keys of zarr-python that have no effect here, and the reasons. Setting one to a value other than its default gives a warning.
_WITHOUT_EFFECT = {
    "async.timeout": "calls wait as long as the store takes",
    "codec_pipeline": "cuzarr has one pipeline",
    "codecs": "cuzarr finds codecs by their names, in its own registry and in those of numcodecs and zarr-python",
}

# Sections to which any key may be added.
OPEN_SECTIONS = ("async", "codec_pipeline", "codecs", "storage")


def is_secret(key: str) -> bool:
    """Whether a key is an option of remote stores with a secret value, which is never shown and never sent to other processes."""
    return key.startswith("storage.") and _core.Store.is_secret_option(key)


# Keys whose values may be written as ``"512 MiB"``.
_SIZES = ("memory_limit", "chunk_cache.size", "metadata_max_bytes", "array.variable_chunk_max_bytes")

_CHOICES: dict[str, tuple[Any, ...]] = {
    "default_zarr_format": (2, 3),
    "array.order": ("C", "F"),
    "array_type": ("auto", "cupy", "device"),
    "gds": ("auto", "on", "off"),
    "fsync": ("none", "data", "full"),
    "direct_io": ("auto", "on", "off"),
}


def unknown_key(key: str, origin: str) -> ConfigInvalidError:
    hint = did_you_mean(key, DEFAULTS) or "print cuzarr.config to see every key"
    return ConfigInvalidError(f"unknown configuration key '{key}' ({origin})", hint=hint)


_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _size(value: Any) -> Any:
    """Converts text such as ``"512 MiB"``, ``"0.5 GB"`` or ``"64k"`` to a number of bytes; -1 if the text is not a size."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i?))?b?\s*", str(value).lower())
    if isinstance(value, bool) or found is None:
        return -1
    size = Fraction(found[1]) * (1024 if found[3] else 1000) ** _UNITS[found[2] or ""]
    return int(size) if size.denominator == 1 else -1


def parse_size(value: Any) -> Any:
    """Converts a size, which is a number or text such as ``"8 GiB"``, to a number of bytes."""
    return check_value("memory_limit", value, "memory_limit")


def _is_gpu(device: str) -> bool:
    return re.fullmatch("cuda(:[0-9]+)?|gpu|simt", device) is not None


def check_value(key: str, value: Any, origin: str) -> Any:
    section = key.split(".", 1)[0]
    if key in CLASSES:
        return check_class(key, value, origin)
    if section in ("codecs", "codec_pipeline") or (section in OPEN_SECTIONS and key not in DEFAULTS):
        return value
    if key not in DEFAULTS:
        raise unknown_key(key, origin)
    default, choices, given = DEFAULTS[key], _CHOICES.get(key), value
    if choices is not None:
        valid, expected = isinstance(value, str | int) and value in choices, " or ".join(map(repr, choices))
    elif key == "async.timeout":
        valid = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
        expected = "seconds or None"
    elif isinstance(default, bool):
        valid, expected = isinstance(value, bool), "True or False"
    elif key == "device":
        value = str(value)
        valid, expected = value == "cpu" or _is_gpu(value), "'cpu' or 'cuda:N'"
    elif key == "accelerator":
        value = str(value)
        valid, expected = value in ("none", "auto") or _is_gpu(value), "'none', 'auto' or 'cuda:N'"
    elif key in _SIZES:
        value = _size(value)
        valid = default is None if value is None else 0 <= value < 1 << 63
        expected = "a number of bytes below 2**63, a size such as '512 MiB'" + (", or None" if default is None else "")
    else:  # counts and sizes; ``None`` leaves some of them to cuzarr
        optional = default is None or key == "json_indent"
        is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
        valid = is_number or (value is None and optional)
        expected = "a number of at least 0, below 2**63" + (", or None" if optional else "")
    if not valid:
        raise ConfigInvalidError(f"configuration key '{key}' cannot be {given!r} ({origin}), expected {expected}")
    return value


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        # Nested options of stores are kept as single keys, so that a secret option is recognised by its name.
        is_section = key.startswith("storage.") or any(known.startswith(f"{key}.") for known in DEFAULTS)
        if isinstance(value, Mapping) and (is_section or key in OPEN_SECTIONS):
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Makes nested dictionaries from a dictionary with dotted keys; the reverse of `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def tell_of_no_effect(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        reason = _WITHOUT_EFFECT.get(key) or _WITHOUT_EFFECT.get(key.split(".", 1)[0])
        is_built_in = value == DEFAULTS.get(key) or str(dotted_name(value)).startswith(("zarr.", "cuzarr.", "numcodecs."))
        if reason is not None and not is_built_in:
            message = f"configuration key '{key}' has no effect here: {reason}"
            warnings.warn(message, CuzarrRuntimeWarning, stacklevel=4)


def normalize_key(key: str) -> str:
    # zarr-python accepts hyphens and underscores. Names of codecs contain hyphens themselves.
    return key if key.startswith("codecs.") else key.replace("-", "_")
