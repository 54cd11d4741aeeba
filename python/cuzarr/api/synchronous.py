"""The functions of ``cuzarr``, under zarr-python's name for their module."""

from cuzarr._api import *  # noqa: F403
from cuzarr._api import __all__ as _names
from cuzarr._compute.copy import copy

__all__ = [*_names, "copy"]
