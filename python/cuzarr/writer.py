"""Writers: they take rows of arrays from a running program, such as a simulation, and store them in the background.

:meth:`cuzarr.Array.writer` and :meth:`cuzarr.Group.writer` open them. The guide "From inside a running program" says what they promise.
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr._node.writer import GroupWriter, Writer

__all__ = ["GroupWriter", "Writer"]

_names.publish(globals())
