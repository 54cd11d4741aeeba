"""The class :class:`cuzarr.Expression`, by the path that it had before."""

from cuzarr import _names
from cuzarr._compute.expression import Expression

__all__ = ["Expression"]

_names.list_public(globals())
