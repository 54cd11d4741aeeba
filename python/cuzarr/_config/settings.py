"""The configuration: every value, where it comes from, and how to change it.

A value is looked for in ``config.local`` (this task's own), then in ``config.set`` (the whole process'), then in the
environment (``CUZARR_ARRAY__ORDER=F`` is ``array.order``; ``ZARR_ARRAY__ORDER=F`` counts less), then in the defaults.
``device``, ``buffer`` and ``ndbuffer`` say the same thing in two ways, so whichever of them is set sets the others beside it.
"""

from __future__ import annotations

import base64
import json
import os
import pprint
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from typing import Any, Literal, TextIO

from cuzarr._checks import dictionary
from cuzarr._config.classes import complete_places, dotted_name
from cuzarr._config.environment import read_environment
from cuzarr._config.keys import DEFAULTS, check_value, flatten, is_secret, nest, normalize_key, tell_of_no_effect, unknown_key
from cuzarr.errors import ConfigInvalidError


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
    ``storage``           ``{}``     options of remote stores, for all URLs: ``storage.timeout``; for one kind of server
                                     ``storage.s3.anon`` (``s3``, ``gs``, ``az``, ``http``)
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
            self._environment = read_environment(self._environ)
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
        key = key if key in DEFAULTS else normalize_key(key)
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
        section = nest({name[len(key) + 1 :]: self.get(name) for name in self if name.startswith(f"{key}.")})
        if section:
            return section
        if default is not ...:
            return default
        raise unknown_key(key, "asked for")

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
        values = {normalize_key(key): value for key, value in flatten(given)}
        checked = {key: check_value(key, value, origin) for key, value in values.items()}
        tell_of_no_effect(checked)
        return complete_places(checked, self.get("device"), origin)

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
        given = {normalize_key(key): value for key, value in flatten(new)}
        chosen = {key: value for key, value in given.items() if tests[priority](key)}
        self._replace(self._parse(chosen, {}, "config.update"))

    def merge(self, *dicts: Mapping[str, Any]) -> None:
        """Changes values for good by several dictionaries; of a key that is in several the last one counts."""
        merged: dict[str, Any] = {}
        for values in dicts:
            merged |= dict(flatten(values))
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
            self._environment = read_environment(self._environ)

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
        found = read_environment(self._environ if env is None else env)
        return nest({key: value for key, (value, _) in found.items()})

    def serialize(self) -> str:
        """Every value that is not a default, as one line of text. In the variable ``CUZARR_INTERNAL_INHERIT_CONFIG`` it
        gives a child process the same configuration; classes travel by their dotted names. Credentials in ``storage`` are
        left out."""
        values = {key: dotted_name(self.get(key)) for key in self if self.origin(key) != "default" and not is_secret(key)}
        return base64.urlsafe_b64encode(json.dumps(nest(values)).encode()).decode()

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
        key = normalize_key(key)
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
            shown = "(secret)" if is_secret(key) else self.get(key)
            value = pprint.pformat(shown, width=max((width or sys.maxsize) - names - 3, 1), **(options or {}))
            value = value.replace("\n", "\n" + " " * (names + 3))
            lines.append(f"{key:<{names}} = {value}  ({self.origin(key)})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Every value, in nested dictionaries by section.

        >>> import cuzarr
        >>> cuzarr.config.to_dict()["array"]["order"]
        'C'
        """
        return nest({key: self.get(key) for key in self})

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


config: Config = Config()
"""The configuration of this process."""

ArrayType = Literal["auto", "cupy", "device"]


def device_name(device: Any) -> str:
    """A device given by a caller, else the configuration's."""
    return str(config.get("device") if device is None else device)
