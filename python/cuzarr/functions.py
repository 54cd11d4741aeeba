"""The functions of :mod:`cuzarr.xp.elementwise`, by the path that they had before."""

from cuzarr import _names
from cuzarr.xp.elementwise import *  # noqa: F403
from cuzarr.xp.elementwise import __all__ as __all__

_names.list_public(globals())
