"""The prototype that the configuration chooses, and the device of a prototype's memory."""

from __future__ import annotations

from typing import Any

from cuzarr._config import config, device_class, resolve_class
from cuzarr.buffer._classes import BufferPrototype


def default_buffer_prototype() -> BufferPrototype:
    """The configured prototype: the pair of buffer classes that the settings ``buffer`` and ``ndbuffer`` name.

    Returns
    -------
    BufferPrototype
        The pair.

    Raises
    ------
    ConfigInvalidError
        A name does not belong to a class of buffers.

    Examples
    --------
    >>> import cuzarr
    >>> with cuzarr.config.set({"buffer": "cuzarr.buffer.gpu.Buffer"}):
    ...     cuzarr.buffer.default_buffer_prototype().nd_buffer
    <class 'cuzarr.buffer.gpu.NDBuffer'>
    """
    return BufferPrototype(resolve_class(config.get("buffer")), resolve_class(config.get("ndbuffer")))


def prototype_device(prototype: Any, current: str) -> str:
    """The device on which the buffer classes of a prototype make memory. For a GPU prototype it is ``current`` if that is a GPU, else the
    class's default device."""
    nd_buffer = getattr(prototype, "nd_buffer", prototype)
    if device_class(nd_buffer) == "cpu":
        return "cpu"
    if current != "cpu":
        return current
    return str(nd_buffer.default_device()) if hasattr(nd_buffer, "default_device") else "cuda:0"
