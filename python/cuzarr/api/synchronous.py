"""The functions of ``cuzarr``, in a module with zarr-python's name. Names, signatures and defaults are zarr-python's, except
``device``, which only cuzarr has.
"""

from __future__ import annotations

import numpy as np

from cuzarr import _core, _names
from cuzarr._compute.copy import copy
from cuzarr._docstrings import documented
from cuzarr._node.create import (
    array,
    create,
    create_array,
    empty,
    empty_like,
    from_array,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from cuzarr._node.create_group import create_group, create_hierarchy
from cuzarr._node.open import (
    consolidate_metadata,
    group,
    load,
    open,
    open_array,
    open_consolidated,
    open_group,
    open_like,
    tree,
)
from cuzarr._node.save import save, save_array, save_group
from cuzarr.errors import UnsupportedError


def copy_all(*args: object, **kwargs: object) -> tuple[int, int, int]:
    """Always raises an error, as zarr-python's function does. Use :func:`cuzarr.copy`, which copies whole groups.

    Raises
    ------
    UnsupportedError
        Always.

    >>> cuzarr.copy_all()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cuzarr.errors.UnsupportedError: ...
    """
    raise UnsupportedError("copy_all is not available", hint="use cuzarr.copy(group, target)")


def copy_store(*args: object, **kwargs: object) -> tuple[int, int, int]:
    """Always raises an error, as zarr-python's function does. Use :func:`cuzarr.copy`, which copies whole hierarchies.

    Raises
    ------
    UnsupportedError
        Always.

    >>> cuzarr.copy_store()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cuzarr.errors.UnsupportedError: ...
    """
    raise UnsupportedError("copy_store is not available", hint="use cuzarr.copy(source, target)")


def print_debug_info() -> None:
    """Print versions, devices and missing libraries, for a bug report.

    Returns
    -------
    None
        The text goes to standard output.

    Raises
    ------
    None
        Libraries and devices that cannot be found are printed as missing.

    >>> cuzarr.print_debug_info()  # doctest: +SKIP
    """
    print(f"cuzarr {_core.__version__}, numpy {np.__version__}")
    _core.cli(["cuzarr", "doctor"])


__all__ = [
    "array",
    "consolidate_metadata",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "print_debug_info",
    "save",
    "save_array",
    "save_group",
    "tree",
    "zeros",
    "zeros_like",
]


documented(
    """
    *args, **kwargs
        Ignored.
    >>> import cuzarr
    """,
)(globals())

_names.list_public(globals())
