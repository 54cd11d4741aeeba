"""The functions that operators call. Rooms above register them here when they are imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from cuzarr import _core
from cuzarr._numpy import check_dtype

apply: Callable[..., Any]
"""Computes one of NumPy's functions of elements, by its name, of operands of any kind; set by ``_compute.evaluate``."""

namespace: ModuleType
"""The module with this library's functions by the names of NumPy and of the array API standard; set by ``xp``."""

functions: dict[str, Callable[..., Any]] = {}
"""This library's functions by NumPy's names; filled by ``xp``."""

of_memory: dict[str, Callable[..., Any]] = {}
"""Those that take elements in memory alone: neither arrays in stores nor plans."""


def register(named: Iterable[tuple[str, Callable[..., Any]]]) -> None:
    """Adds functions by NumPy's names."""
    functions.update(named)


class Lazy:
    """An array whose elements are read or computed when they are asked for: one of a store, a view of one, or a plan."""

    _is_plan = False
    """Whether elements are computed, and not merely read: NumPy's own functions do not get them."""

    _own_device: str | None
    """Where elements go, when that was said of this array and not of the process."""

    dtype: Any

    @property
    def device(self) -> str:
        """Where elements go."""
        raise NotImplementedError  # each kind has its own

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions, when there are any."""
        raise NotImplementedError  # each kind has its own

    def _as_expression(self, what: str) -> _core.Expr:
        """The array as part of an expression that is called ``what`` in errors.

        Raises
        ------
        DTypeMismatchError
            Its elements have no arithmetic.
        """
        raise NotImplementedError  # each kind has its own

    def _elements_on(self, device: str | None) -> Any:
        """All elements, in the memory of a device; of the one where they go, when none is named."""
        raise NotImplementedError  # each kind has its own


class Stored(Lazy):
    """An array of a store."""

    write_chunk_sizes: Any

    def _as_expression(self, what: str) -> _core.Expr:
        check_dtype(self.dtype, what)
        return _core.Expr.array(self._handle())

    def _check_writable(self) -> None:
        """Refuses to write where the array was opened for reading.

        Raises
        ------
        ReadOnlyError
        """
        raise NotImplementedError  # arrays have it

    def _handle(self, device: str | None = None) -> _core.Array:
        """The array as the Rust side has it, reading to a device."""
        raise NotImplementedError  # arrays have it
