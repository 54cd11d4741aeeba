"""The functions of ``cuzarr``, to be called (``synchronous``) or awaited (``asynchronous``)."""

from cuzarr.api import asynchronous, synchronous

__all__ = ["asynchronous", "synchronous"]
