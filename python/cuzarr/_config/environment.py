"""Reads settings from environment variables."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cuzarr._config.classes import PLACES, complete_places
from cuzarr._config.keys import OPEN_SECTIONS, ZARR_PYTHONS_KEYS, check_value, flatten
from cuzarr.errors import ConfigInvalidError

# The later prefix takes precedence. Variables of zarr-python count only if their keys exist here.
_ENVIRONMENT_PREFIXES = ("ZARR_", "CUZARR_")
# Holds the result of `Config.serialize`, for child processes.
_INHERITED = "internal_inherit_config"
# Variables that are not configuration keys: tests and the Rust side read them directly.
_NOT_KEYS = re.compile(
    "require_gpu|cache_dir|cubin_dir|log|conformance_engine|damage_rounds|commit|(test|fuzz|simt)_[a-z_]+|[a-z]+_library"
)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


Refuse = Callable[[ConfigInvalidError], None]
"""Type of functions that handle the error about an environment variable whose value is not valid, by raising or ignoring it."""


def _raise(error: ConfigInvalidError) -> None:
    raise error


def _read_variables(environ: Mapping[str, str], prefix: str, refuse: Refuse) -> Iterator[tuple[str, Any, str]]:
    """Yields key, value and origin of the settings that environment variables with a prefix give. Inherited settings come first, so that
    other variables override them."""
    variables = [name for name in environ if name.startswith(prefix)]
    for variable in sorted(variables, key=lambda name: name[len(prefix) :].lower() != _INHERITED):
        key, origin = variable[len(prefix) :].lower().replace("__", "."), f"environment {variable}"
        if key == _INHERITED:
            try:
                values = deserialize(environ[variable], origin)
            except ConfigInvalidError as error:
                refuse(error)
            else:
                yield from ((inherited, value, origin) for inherited, value in flatten(values))
        elif not _NOT_KEYS.fullmatch(key):
            yield key, _literal(environ[variable]), origin


def read_environment(environ: Mapping[str, str], refuse: Refuse = _raise) -> dict[str, tuple[Any, str]]:
    """The settings that environment variables give, each with its origin.

    Raises
    ------
    ConfigInvalidError
        A variable has a value that its setting cannot have. If ``refuse`` accepts the error, the variable is left out instead.
    """
    found: dict[str, tuple[Any, str]] = {}
    for prefix in _ENVIRONMENT_PREFIXES:
        here: dict[str, tuple[Any, str]] = {}
        for key, value, origin in _read_variables(environ, prefix, refuse):
            if prefix == "CUZARR_" or key in ZARR_PYTHONS_KEYS or key.split(".", 1)[0] in OPEN_SECTIONS:
                try:
                    here[key] = (check_value(key, value, origin), origin)
                except ConfigInvalidError as error:
                    refuse(error)
        places = {key: here.pop(key) for key in PLACES if key in here}
        try:
            here |= _with_partners(places)
        except ConfigInvalidError as error:
            refuse(error)
        found |= here
    return found


def _with_partners(places: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Completes the device and the buffer classes: adds the settings that follow from those that environment variables set."""
    if not places:
        return {}
    origin = " and ".join(dict.fromkeys(origin for _, origin in places.values()))
    complete = complete_places({key: value for key, (value, _) in places.items()}, "cpu", origin)
    return {key: places.get(key, (value, origin)) for key, value in complete.items()}


def deserialize(text: str, origin: str) -> dict[str, Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(text))
    except (binascii.Error, ValueError) as error:
        raise ConfigInvalidError(f"{origin} is not what config.serialize() gives") from error
    if not isinstance(values, dict):
        raise ConfigInvalidError(f"{origin} is not what config.serialize() gives")
    return values
