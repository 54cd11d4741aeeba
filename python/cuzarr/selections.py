"""The functions of :mod:`cuzarr.xp.statistics`, by the path that they had before."""

from cuzarr import _names
from cuzarr.xp.statistics import *  # noqa: F403
from cuzarr.xp.statistics import __all__ as __all__

_names.list_public(globals())
