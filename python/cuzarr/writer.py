"""Writers: they take rows of arrays from a running program, such as a simulation, and store them behind its back.

>>> import cuzarr, numpy as np
>>> array = cuzarr.create_array({}, shape=(0, 3), chunks=(8, 3), dtype="f4")
>>> with array.writer() as writer:
...     for step in range(10):
...         writer.append(np.full(3, step, "f4"))
>>> array.shape
(10, 3)

:meth:`cuzarr.Array.writer` and :meth:`cuzarr.Group.writer` open them. The guide "From inside a running program" says what they promise.
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr._node.writer import GroupWriter, Writer

__all__ = ["GroupWriter", "Writer"]

_names.publish(globals())
