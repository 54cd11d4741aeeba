"""The functions of ``cuzarr``, to be called (``synchronous``) or awaited (``asynchronous``)."""

from cuzarr import _names
from cuzarr.api import asynchronous, synchronous

__all__ = ["asynchronous", "synchronous"]

_names.list_public(globals())
