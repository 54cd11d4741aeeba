"""The functions of ``cuzarr``: blocking ones (``synchronous``) and awaited ones (``asynchronous``)."""

from cuzarr import _names
from cuzarr.api import asynchronous, synchronous

__all__ = ["asynchronous", "synchronous"]

_names.list_public(globals())
