"""The class :class:`cuzarr.DeviceArray`, by the path that it had before."""

from cuzarr import _names
from cuzarr._memory.device_array import DeviceArray

__all__ = ["DeviceArray"]

_names.list_public(globals())
