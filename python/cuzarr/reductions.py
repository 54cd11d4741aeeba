"""The functions of :mod:`cuzarr.xp.reductions`, by the path that they had before."""

from cuzarr import _names
from cuzarr.xp.reductions import *  # noqa: F403
from cuzarr.xp.reductions import __all__ as __all__

_names.list_public(globals())
