"""The configuration: every value, where it comes from, and how to change it.

A value is looked for in ``config.set`` (scoped first, then global), then in the environment (``CUZARR_ARRAY__ORDER=F``
is ``array.order``), then in the defaults.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from cuzarr.errors import ConfigInvalidError

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
    "threading.max_workers": None,
    "json_indent": 2,
    # where arrays are read to, and as what
    "device": "cpu",
    "array_type": "auto",
    # what may be done and used
    "strict": False,
    "allow_pickle": False,
    "memory_limit_bytes": None,
}

# Keys of zarr-python that steer parts it has and cuzarr has not. They are kept, so that one dictionary serves both.
_ACCEPTED_PREFIXES = ("async", "codec_pipeline", "codecs", "buffer", "ndbuffer")

_CHOICES: dict[str, tuple[Any, ...]] = {
    "default_zarr_format": (2, 3),
    "array.order": ("C", "F"),
    "array_type": ("auto", "cupy", "device"),
}

_ENVIRONMENT_PREFIX = "CUZARR_"
# Variables that are no configuration keys: tests and the Rust side read them by themselves.
_NOT_KEYS = re.compile("require_gpu|cache_dir|cubin_dir|log|test_device|conformance_engine|[a-z]+_library")


def _check(key: str, value: Any, origin: str) -> Any:
    if key not in DEFAULTS:
        if key.split(".", 1)[0] in _ACCEPTED_PREFIXES:
            return value
        near = difflib.get_close_matches(key, DEFAULTS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "print cuzarr.config to see every key"
        raise ConfigInvalidError(f"unknown configuration key '{key}' ({origin})", hint=hint)
    default, choices = DEFAULTS[key], _CHOICES.get(key)
    if choices is not None:
        valid, expected = value in choices, " or ".join(map(repr, choices))
    elif isinstance(default, bool):
        valid, expected = isinstance(value, bool), "True or False"
    elif key == "device":
        value = str(value)
        valid, expected = value == "cpu" or value.partition(":")[0] in ("cuda", "gpu", "simt"), "'cpu' or 'cuda:N'"
    else:  # counts and sizes, some of which may be left to cuzarr
        optional = default is None or key == "json_indent"
        valid = (value is None and optional) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        expected = "a number of at least 0" + (" or None" if optional else "")
    if not valid:
        raise ConfigInvalidError(f"configuration key '{key}' cannot be {value!r} ({origin}), expected {expected}")
    return value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        is_section = any(known.startswith(f"{key}.") for known in DEFAULTS)
        if isinstance(value, Mapping) and (is_section or key in _ACCEPTED_PREFIXES):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _read_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for variable, text in environ.items():
        if not variable.startswith(_ENVIRONMENT_PREFIX):
            continue
        key = variable[len(_ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
        if _NOT_KEYS.fullmatch(key):
            continue
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
        origin = f"environment {variable}"
        found[key] = (_check(key, value, origin), origin)
    return found


class ConfigSet:
    """What :meth:`Config.set` returns: the change is already made, and leaving the ``with`` block undoes it."""

    def __init__(self, config: Config, values: dict[str, Any]) -> None:
        self._config = config
        self._before = config._replace(values)

    def __enter__(self) -> Config:
        return self._config

    def __exit__(self, *exc_info: object) -> None:
        self._config._restore(self._before)


class Config:
    """Every setting of cuzarr, with its origin. There is one, ``cuzarr.config``.

    Keys are zarr-python's (``array.order``, ``array.write_empty_chunks``, ``threading.max_workers``, …) and:

    ====================  =========  ================================================================
    key                   default    meaning
    ====================  =========  ================================================================
    ``device``            ``"cpu"``  where arrays are read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``
    ``array_type``        ``"auto"`` type of results on a GPU: ``"cupy"``, ``"device"``, or whichever is there
    ``strict``            ``False``  raise instead of falling back to a slower way
    ``allow_pickle``      ``False``  decode pickled objects, which can run any code
    ``memory_limit_bytes``  ``None``  bytes in flight; ``None`` lets cuzarr choose
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
        self._environment: dict[str, tuple[Any, str]] | None = None

    def _from_environment(self) -> dict[str, tuple[Any, str]]:
        # Read at first use, not at import: a bad variable must not make `import cuzarr` fail.
        if self._environment is None:
            self._environment = _read_environment(self._environ)
        return self._environment

    def get(self, key: str, default: Any = ...) -> Any:
        """The value of ``key``; for a section such as ``"array"`` a dictionary of its values.

        Raises
        ------
        ConfigInvalidError
            The key is unknown and no default was given.
        """
        key = key.replace("-", "_")
        if key in self._set:
            return self._set[key]
        environment = self._from_environment()
        if key in environment:
            return environment[key][0]
        if key in DEFAULTS:
            return DEFAULTS[key]
        section = {name[len(key) + 1 :]: self.get(name) for name in self if name.startswith(f"{key}.")}
        if section:
            return section
        if default is not ...:
            return default
        return _check(key, None, "asked for")

    def set(self, arg: Mapping[str, Any] | None = None, **kwargs: Any) -> ConfigSet:
        """Changes values, for good, or for a ``with`` block.

        ``arg`` maps keys to values, nested or with dots; in keyword names ``__`` stands for the dot.

        Raises
        ------
        ConfigInvalidError
            A key is unknown, or a value has no meaning for it; nothing was changed.
        """
        given = dict(arg or {}) | {name.replace("__", "."): value for name, value in kwargs.items()}
        values = {key.replace("-", "_"): value for key, value in _flatten(given)}
        return ConfigSet(self, {key: _check(key, value, "config.set") for key, value in values.items()})

    def _replace(self, values: dict[str, Any]) -> dict[str, tuple[bool, Any]]:
        with self._lock:
            before = {key: (key in self._set, self._set.get(key)) for key in values}
            self._set = self._set | values
            return before

    def _restore(self, before: dict[str, tuple[bool, Any]]) -> None:
        with self._lock:
            kept = {key: value for key, value in self._set.items() if key not in before}
            self._set = kept | {key: value for key, (was_set, value) in before.items() if was_set}

    def reset(self) -> None:
        """Forgets everything that was set, and reads the environment again."""
        with self._lock:
            self._set = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads the environment again."""
        self._environment = _read_environment(self._environ)

    def enable_gpu(self, device: int | str = 0) -> ConfigSet:
        """Reads arrays into GPU memory from now on; also a context manager. Does not touch the GPU yet.

        >>> import cuzarr
        >>> with cuzarr.config.enable_gpu():
        ...     cuzarr.config.get("device")
        'cuda:0'
        """
        return self.set({"device": f"cuda:{device}" if isinstance(device, int) else device})

    def origin(self, key: str) -> str:
        """Where the value of ``key`` comes from: ``"config.set"``, ``"environment CUZARR_…"`` or ``"default"``."""
        if key in self._set:
            return "config.set"
        environment = self._from_environment()
        return environment[key][1] if key in environment else "default"

    def pprint(self) -> None:
        """Prints every value with its origin."""
        print(self)

    def to_dict(self) -> dict[str, Any]:
        """Every value, by its dotted key."""
        return {key: self.get(key) for key in self}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*DEFAULTS, *self._from_environment(), *self._set]))

    def __contains__(self, key: object) -> bool:
        return key in list(self)

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{key:<{width}} = {self.get(key)!r}  ({self.origin(key)})" for key in self)


config = Config()
"""The configuration of this process."""

ArrayType = Literal["auto", "cupy", "device"]
