"""Configuration keys that choose the memory of elements: ``device``, and the classes ``buffer`` and ``ndbuffer``."""

from __future__ import annotations

import importlib
import re
from typing import Any

from cuzarr.errors import ConfigInvalidError

CLASSES = ("buffer", "ndbuffer")
"""Configuration keys whose values are buffer classes."""
PLACES = ("device", *CLASSES)
"""Configuration keys that choose whether elements are read to the host or to a GPU: by the device's name, or by a buffer class."""


def resolve_class(name: Any) -> Any:
    """Imports the class with a dotted name such as ``"cuzarr.buffer.gpu.Buffer"``. A class is returned unchanged.

    Raises
    ------
    ConfigInvalidError
        There is no such class.
    """
    if not isinstance(name, str):
        return name
    # For zarr-python's own names, only "CPU" or "GPU" counts. So they work here without zarr-python and CuPy.
    if name.startswith("zarr."):
        name = re.sub(r"^zarr\.(core\.)?buffer\.(?=[cg]pu\.)", "cuzarr.buffer.", name)
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigInvalidError(f"there is no class '{name}'", hint="use its full dotted name, or the class itself") from error


def check_class(key: str, value: Any, origin: str) -> Any:
    dotted = isinstance(value, str) and all(part.isidentifier() for part in value.split(".")) and "." in value
    if not dotted and not isinstance(value, type):
        raise ConfigInvalidError(f"configuration key '{key}' cannot be {value!r} ({origin}), expected a class or its dotted name")
    return value


def _partner(key: str, value: Any) -> Any:
    """The ``ndbuffer`` class for a ``buffer`` class, or the reverse: the one in the same module, else cuzarr's for the same device."""
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
    # Known names are recognised without an import.
    if isinstance(value, str) and value.split(".")[0] in ("cuzarr", "zarr"):
        return "gpu" not in value.split(".")

    return device_class(resolve_class(value)) == "cpu"


def complete_places(values: dict[str, Any], device: str, origin: str) -> dict[str, Any]:
    """Completes the settings ``device``, ``buffer`` and ``ndbuffer``: if one of them is set, the others get the values that fit it.
    ``device`` is the current device."""
    given = {key: values[key] for key in PLACES if key in values}
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


def dotted_name(value: Any) -> Any:
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value


def device_class(buffer: Any) -> str:
    """The memory that a buffer class stands for: ``"cpu"`` or ``"cuda"``. The class may be cuzarr's, zarr-python's or the user's."""
    accessible = getattr(buffer, "is_host_accessible", None)
    if accessible is not None:
        return "cpu" if accessible else "cuda"
    homes = (parent.__module__ for parent in getattr(buffer, "__mro__", ()))
    return "cuda" if any(home in ("zarr.core.buffer.gpu", "zarr.buffer.gpu") for home in homes) else "cpu"
