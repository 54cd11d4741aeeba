"""Holds the functions that operators of arrays call, for modules that cannot import them. The modules that define these functions register
them here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from cuzarr import _core
from cuzarr._numpy import check_dtype

apply: Callable[..., Any]
"""Applies an element-wise function, given by NumPy's name, to operands of any kind. Set by ``_compute.evaluate``."""

namespace: ModuleType
"""The module ``cuzarr.xp``, whose functions have names of NumPy and of the array API standard. ``xp`` sets this."""

functions: dict[str, Callable[..., Any]] = {}
"""The functions of cuzarr that NumPy's functions call for arrays of cuzarr, by NumPy's names. ``xp`` fills this."""

of_memory: dict[str, Callable[..., Any]] = {}
"""cuzarr's functions that take arrays in memory only, by NumPy's names: they take neither stored arrays nor plans."""


def register(named: Iterable[tuple[str, Callable[..., Any]]]) -> None:
    """Adds functions to :data:`functions`, by NumPy's names."""
    functions.update(named)


class Lazy:
    """An array whose elements are read or computed on request: a stored array, a view of one, or a plan."""

    _is_plan = False
    """Whether the elements must be computed before they can be used, as those of a plan. NumPy's own functions do not get the elements of
    such arrays."""

    _own_device: str | None
    """The device that was chosen for this array's elements; ``None`` if the configured device is used."""

    dtype: Any

    @property
    def device(self) -> str:
        """The device to which elements are read, or on which they are computed."""
        raise NotImplementedError  # each kind has its own

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of this array's dimensions; ``None`` if they have no names."""
        raise NotImplementedError  # each kind has its own

    def _as_expression(self, what: str) -> _core.Expr:
        """This array or plan as an expression object of the Rust side, to be computed there. Errors name the operation ``what``.

        Raises
        ------
        DTypeMismatchError
            The array's elements have no arithmetic.
        """
        raise NotImplementedError  # each kind has its own

    def _elements_on(self, device: str | None) -> Any:
        """Reads or computes all elements, into the memory of ``device`` (``None``: the array's own device)."""
        raise NotImplementedError  # each kind has its own


class Stored(Lazy):
    """Base class of stored arrays."""

    write_chunk_sizes: Any

    def _as_expression(self, what: str) -> _core.Expr:
        check_dtype(self.dtype, what)
        return _core.Expr.array(self._handle())

    def _check_writable(self) -> None:
        """Refuses to write, if the array was opened for reading only.

        Raises
        ------
        ReadOnlyError
        """
        raise NotImplementedError  # arrays have it

    def _handle(self, device: str | None = None) -> _core.Array:
        """The Rust object for this array, opened for reading to a device."""
        raise NotImplementedError  # arrays have it
