"""The configuration: the values of all settings, their origins, and functions to change them.

A value is looked up in ``config.local`` (this task's own), then in ``config.set`` (the whole process's), then in the
environment (``CUZARR_ARRAY__ORDER=F`` sets ``array.order``, and takes precedence over ``ZARR_ARRAY__ORDER=F``), then in the defaults.
``device``, ``buffer`` and ``ndbuffer`` choose the same thing in different ways, so setting one of them also sets the others.
"""

from __future__ import annotations

import base64
import json
import os
import pprint
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from typing import Any, Literal, TextIO

from cuzarr._checks import dictionary
from cuzarr._config.classes import complete_places, dotted_name
from cuzarr._config.environment import read_environment
from cuzarr._config.keys import DEFAULTS, check_value, flatten, is_secret, nest, normalize_key, tell_of_no_effect, unknown_key
from cuzarr._docstrings import documented
from cuzarr._locks import ProcessLock
from cuzarr.errors import ConfigInvalidError


class ConfigSet:
    """A change of settings that :meth:`Config.set` has made; in a ``with`` statement, it is undone when the block ends."""

    def __init__(self, config: Config, values: dict[str, Any]) -> None:
        self._config = config
        self._names = list(values)
        self._before = config._replace(values)

    def __enter__(self) -> Config:
        return self._config

    def __exit__(self, *exc_info: object) -> None:
        self._config._restore(self._before)

    def __repr__(self) -> str:
        return f"<settings changed: {', '.join(self._names) or 'none'}>"


class LocalSet:
    """A change of settings by :meth:`Config.local`, which holds inside a ``with`` block, for this task or thread only."""

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


@documented(
    """
    paths : None
        Not supported: cuzarr reads no configuration files.
    env : mapping of str to str, optional
        Variables to use instead of those of the process.
    >>> import cuzarr
    """,
)
class Config:
    """All settings of cuzarr, with the origin of each. There is one object of this class: ``cuzarr.config``.

    A value comes from the first of these that sets it: :meth:`local`, :meth:`set`, an environment variable, the default.
    The setting ``array.order`` is ``CUZARR_ARRAY__ORDER`` in the environment; zarr-python's ``ZARR_ARRAY__ORDER`` is used if that
    variable is not set. The guide "Change settings" lists all settings.

    Parameters
    ----------
    environ : mapping of str to str, optional
        Environment variables; by default those of the process.

    Raises
    ------
    ConfigInvalidError
        A setting is unknown, or cannot have its value.

    >>> with cuzarr.config.set({"array.order": "F"}):
    ...     cuzarr.config.get("array.order")
    'F'
    >>> cuzarr.config.get("array.order")
    'C'
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._lock = ProcessLock()
        self._set: dict[str, Any] = {}
        self._local: ContextVar[dict[str, Any]] = ContextVar("cuzarr_config_local", default={})  # noqa: B039, it is never changed
        self._environment: dict[str, tuple[Any, str]] | None = None
        self._current: tuple[object, object, object, dict[str, Any]] | None = None

    def _from_environment(self) -> dict[str, tuple[Any, str]]:
        # Read at first use, not at import, so that a bad variable does not make `import cuzarr` fail.
        if self._environment is None:
            self._environment = read_environment(self._environ)
        return self._environment

    def origins(self) -> tuple[object, ...]:
        """Objects by which a program can tell whether a setting has changed: as long as they are the same objects, none has.

        >>> before = cuzarr.config.origins()
        >>> with cuzarr.config.set({"array.order": "F"}):
        ...     all(a is b for a, b in zip(before, cuzarr.config.origins()))
        False
        """
        return self._local.get(), self._set, self._environment

    def _values(self) -> Mapping[str, Any]:
        """The values of all settings by name. The result is the same object as long as no value changes."""
        local, own, current = self._local.get(), self._set, self._current
        environment = self._from_environment() if self._environment is None else self._environment
        if current is not None and current[0] is local and current[1] is own and current[2] is environment:
            return current[3]
        values = DEFAULTS | {key: value for key, (value, _) in environment.items()} | own | local
        self._current = local, own, environment, values
        return values

    def get(self, key: str, default: Any = ...) -> Any:
        """The value of a setting, or of a section.

        Parameters
        ----------
        key : str
            The name, such as ``"memory_limit"`` or ``"array.order"``; or a section, such as ``"array"``.
        default : object, optional
            The result if there is no such setting. Without a default, a missing setting is an error.

        Returns
        -------
        object
            The value; a dictionary for a section.

        Raises
        ------
        ConfigInvalidError
            There is no such setting, and no default was given.

        >>> cuzarr.config.get("array.order"), cuzarr.config.get("nothing", "none")
        ('C', 'none')
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
        """Change settings for the whole process and all its threads: from now on, or until a ``with`` block ends.

        Parameters
        ----------
        arg : mapping, optional
            Values by name: ``{"array.order": "F"}``, or nested: ``{"array": {"order": "F"}}``.
        **kwargs
            Values by keyword. ``__`` stands for the dot: ``array__order="F"``.

        Returns
        -------
        ConfigSet
            The change, already made; leaving its ``with`` block undoes it.

        Raises
        ------
        ConfigInvalidError
            There is no such setting, or it cannot have this value. Nothing was changed.

        >>> with cuzarr.config.set({"array.order": "F"}, strict=True):
        ...     cuzarr.config.get("array.order"), cuzarr.config.get("strict")
        ('F', True)
        """
        return ConfigSet(self, self._parse(arg, kwargs, "config.set"))

    def local(self, arg: Mapping[str, Any] | None = None, **kwargs: Any) -> LocalSet:
        """Change settings for a ``with`` block, in this thread or asynchronous task only.

        Parameters
        ----------
        arg : mapping, optional
            Values by name, as for :meth:`set`.
        **kwargs
            Values by keyword, as for :meth:`set`.

        Returns
        -------
        LocalSet
            A context manager. The change holds inside its ``with`` block.

        Raises
        ------
        ConfigInvalidError
            There is no such setting, or it cannot have this value.

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
        """Change settings of the whole process from now on. ``priority`` says whether new values replace those that were set before.

        Parameters
        ----------
        new : mapping
            Values by name, as for :meth:`set`.
        priority : {"new", "old", "new-defaults"}
            ``"new"`` replaces all values, ``"old"`` only adds settings that do not exist yet, and ``"new-defaults"`` only replaces
            settings that have their default.

        Raises
        ------
        ConfigInvalidError
            There is no such setting, or it cannot have this value; or ``priority`` has another value.

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
        """Change settings of the whole process from now on, to the values in several mappings. Values of later mappings replace those of
        earlier ones.

        Parameters
        ----------
        *dicts : mapping
            Values by name, as for :meth:`set`.

        Raises
        ------
        ConfigInvalidError
            There is no such setting, or it cannot have this value.

        >>> cuzarr.config.merge({"array.order": "F"}, {"json_indent": 4})
        >>> cuzarr.config["array.order"], cuzarr.config["json_indent"]
        ('F', 4)
        >>> cuzarr.config.reset()
        """
        merged: dict[str, Any] = {}
        for values in dicts:
            merged |= dict(flatten(values))
        self.update(merged)

    def clear(self) -> None:
        """Give every setting its default. Environment variables have no effect from then on, until :meth:`refresh`.

        >>> _ = cuzarr.config.set({"array.order": "F"})
        >>> cuzarr.config.clear()
        >>> cuzarr.config.get("array.order")
        'C'
        >>> cuzarr.config.refresh()
        """
        with self._lock:
            self._set = {}
            self._environment = {}

    def reset(self) -> None:
        """Undo all calls of :meth:`set` and :meth:`update`, and read the environment variables again.

        >>> _ = cuzarr.config.set({"array.order": "F"})
        >>> cuzarr.config.reset()
        >>> cuzarr.config.get("array.order")
        'C'
        """
        self._reset(self._environ)

    def _reset(self, environ: Mapping[str, str]) -> None:
        # Read first, so that a refused variable changes nothing.
        environment = read_environment(environ)
        with self._lock:
            self._set, self._environ, self._environment = {}, environ, environment

    def refresh(self, paths: Any = None, env: Mapping[str, str] | None = None) -> None:
        """Undo all changes like :meth:`reset`, and read the settings again from the environment variables that the caller gives.

        Raises
        ------
        ConfigInvalidError
            ``paths`` is given, or a variable has a value that its setting cannot have.

        >>> import os, cuzarr
        >>> cuzarr.config.refresh(env={"CUZARR_ARRAY__ORDER": "F"})
        >>> cuzarr.config.get("array.order")
        'F'
        >>> cuzarr.config.refresh(env=os.environ)
        """
        _refuse_files(paths)
        self._reset(self._environ if env is None else env)

    def collect(self, paths: Any = None, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read the settings that environment variables give, without changing the configuration.

        Returns
        -------
        dict
            Values in nested dictionaries, by section.

        Raises
        ------
        ConfigInvalidError
            ``paths`` is given, or a variable has a value that its setting cannot have.

        >>> cuzarr.config.collect(env={"ZARR_ARRAY__ORDER": "F"})
        {'array': {'order': 'F'}}
        """
        _refuse_files(paths)
        found = read_environment(self._environ if env is None else env)
        return nest({key: value for key, (value, _) in found.items()})

    def serialize(self) -> str:
        """Write all settings that do not have their default as one line of text. Credentials in ``storage`` are left out.

        A process that is started with this text in the variable ``CUZARR_INTERNAL_INHERIT_CONFIG`` has the same settings.

        >>> with cuzarr.config.set({"array.order": "F"}):
        ...     text = cuzarr.config.serialize()
        >>> cuzarr.config.collect(env={"CUZARR_INTERNAL_INHERIT_CONFIG": text})["array"]["order"]
        'F'
        """
        values = {key: dotted_name(self.get(key)) for key in self if self.origin(key) != "default" and not is_secret(key)}
        return base64.urlsafe_b64encode(json.dumps(nest(values)).encode()).decode()

    def enable_gpu(self, device: int | str = 0) -> ConfigSet:
        """From now on, or in a ``with`` block, reads put elements into GPU memory. The GPU itself is not used yet.

        Parameters
        ----------
        device : int or str
            The number of the GPU, or its name: ``"cuda:1"``.

        Returns
        -------
        ConfigSet
            The change, already made; leaving its ``with`` block undoes it.

        Raises
        ------
        ConfigInvalidError
            The text is not a device.

        >>> with cuzarr.config.enable_gpu():
        ...     cuzarr.config.get("device")
        'cuda:0'
        >>> cuzarr.config.get("device")
        'cpu'
        """
        return self.set({"device": f"cuda:{device}" if isinstance(device, int) else device})

    def origin(self, key: str) -> str:
        """Tells where the value of a setting comes from, such as an environment variable.

        Parameters
        ----------
        key : str
            The name of the setting.

        Returns
        -------
        str
            ``"config.local"``, ``"config.set"``, ``"environment CUZARR_…"`` or ``"default"``.

        >>> with cuzarr.config.set({"array.order": "F"}):
        ...     cuzarr.config.origin("array.order"), cuzarr.config.origin("json_indent")
        ('config.set', 'default')
        """
        key = normalize_key(key)
        if key in self._local.get():
            return "config.local"
        if key in self._set:
            return "config.set"
        environment = self._from_environment()
        return environment[key][1] if key in environment else "default"

    def pprint(self, stream: TextIO | None = None, *, width: int | None = None, **options: Any) -> None:
        """Print every setting with its value and its origin. Settings that are not the default come first.

        Parameters
        ----------
        stream : file, optional
            The file to print to; by default the standard output.
        width : int, optional
            The longest line, in characters; by default lines are not broken.
        **options
            Options of Python's ``pprint.pformat``.

        >>> import io, cuzarr
        >>> text = io.StringIO()
        >>> cuzarr.config.pprint(text)
        >>> "memory_limit" in text.getvalue()
        True
        """
        print(self._text(width, options), file=stream or sys.stdout)

    def _readable(self) -> tuple[Config, list[str]]:
        """A copy of this configuration without its invalid environment variables, and a message for each of these."""
        invalid: list[str] = []
        readable = Config(self._environ)
        readable._set, readable._local, readable._environment = self._set, self._local, self._environment
        if readable._environment is None:
            readable._environment = read_environment(self._environ, lambda error: invalid.append(f"invalid: {error}"))
        return readable, invalid

    def _text(self, width: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        readable, lines = self._readable()
        return "\n".join([*readable._lines(width, options), *lines])

    def _lines(self, width: int | None, options: Mapping[str, Any] | None) -> Iterator[str]:
        names = max(map(len, self))
        for key in sorted(self, key=lambda key: self.origin(key) == "default"):
            shown = "(secret)" if is_secret(key) else self.get(key)
            value = pprint.pformat(shown, width=max((width or sys.maxsize) - names - 3, 1), **(options or {}))
            value = value.replace("\n", "\n" + " " * (names + 3))
            yield f"{key:<{names}} = {value}  ({self.origin(key)})"

    def to_dict(self) -> dict[str, Any]:
        """Every setting, in nested dictionaries by section.

        Returns
        -------
        dict
            Values by name.

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
    """The name of the given device, such as ``"cuda:0"``, or else of the configured one."""
    return str(config.get("device") if device is None else device)
