"""``enable`` turns cuzarr on inside zarr-python."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any, Self

import zarr

from cuzarr._config import config
from cuzarr.zarr import _ahead, _patches
from cuzarr.zarr._pipeline import CodecPipeline

PIPELINE = "cuzarr.zarr.CodecPipeline"


class Enabled:
    """The object that :func:`enable` returns, by which a program can stop zarr-python from using cuzarr. Leaving the ``with`` block, or
    :meth:`disable`, undoes the change to zarr-python.

    Parameters
    ----------
    settings, patches, patched
        Internal; use :func:`enable`.

    Attributes
    ----------
    patches : tuple of str
        Names of the changes inside zarr-python that are in force.

    Raises
    ------
    None
        The undo cannot fail.

    Examples
    --------
    >>> import cuzarr.zarr
    >>> with cuzarr.zarr.enable(patch=False) as enabled:
    ...     enabled.patches
    ()
    """

    def __init__(self, settings: contextlib.ExitStack, patches: tuple[str, ...], *, patched: bool) -> None:
        self.patches = patches
        self._settings = settings
        self._patched = patched
        self._is_on = True

    def disable(self) -> None:
        """Make zarr-python read and write by itself again. A second call does nothing.

        Examples
        --------
        >>> import cuzarr.zarr, zarr
        >>> enabled = cuzarr.zarr.enable(patch=False)
        >>> enabled.disable()
        >>> zarr.config.get("codec_pipeline.path") == "cuzarr.zarr.CodecPipeline"
        False
        """
        if self._is_on:
            self._is_on = False
            self._settings.close()
            _ahead.leave()
            if self._patched:
                _patches.revert()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disable()

    def __repr__(self) -> str:
        return f"<Enabled {'on' if self._is_on else 'off'} patches={list(self.patches)}>"


def enable(*, gpu: bool = False, patch: bool = True, accelerator: str | None = None) -> Enabled:
    """Make zarr-python read and write through cuzarr, from now on or for a ``with`` block.

    While the change is in force, Python's monitoring (``sys.monitoring``) informs cuzarr when zarr-python starts to list the chunks of a
    read. cuzarr then starts the read immediately.

    Parameters
    ----------
    gpu
        Also read arrays into GPU memory: with zarr-python's buffers, like ``zarr.config.enable_gpu()``, or, if CuPy is missing, with
        cuzarr's buffers, which hold ``cuzarr.DeviceArray``.
    patch
        Change zarr-python in four ways. Coordinate (``vindex``) reads and writes, ``numpy.asarray(array)`` and metadata
        work with GPU memory. Boxes are read and written without zarr-python's object for each chunk. In directories and in
        memory, they are read on the calling thread, without zarr-python's event loop. Stores of ``cuzarr.storage`` are
        accepted. Results are the same.
    accelerator : {"none", "auto", "cuda:0", ...}, optional
        The GPU that decodes and encodes for NumPy arrays, as in the setting ``accelerator``. By default the setting stays as it is.

    Returns
    -------
    Enabled
        The change, already made; leaving its ``with`` block undoes it.

    Raises
    ------
    LibraryMissingError
        zarr-python is not installed.
    ConfigInvalidError
        There is no such accelerator.

    Examples
    --------
    >>> import cuzarr.zarr, zarr
    >>> with cuzarr.zarr.enable(patch=False) as enabled:
    ...     zarr.config.get("codec_pipeline.path")
    'cuzarr.zarr.CodecPipeline'
    >>> enabled.patches
    ()
    """
    values: dict[str, Any] = {"codec_pipeline.path": PIPELINE}
    if gpu:
        # zarr-python's own buffers consist of CuPy's arrays.
        module = "zarr.buffer.gpu" if importlib.util.find_spec("cupy") else "cuzarr.zarr"
        values |= {"buffer": f"{module}.Buffer", "ndbuffer": f"{module}.NDBuffer"}
    settings = contextlib.ExitStack()
    if accelerator is not None:
        settings.enter_context(config.set(accelerator=accelerator))
    settings.enter_context(zarr.config.set(values))
    _ahead.listen(CodecPipeline)
    patches = _patches.apply(CodecPipeline) if patch else ()
    return Enabled(settings, patches, patched=patch)
