"""The accessor ``dataset.cuzarr``: methods that cuzarr adds to data sets."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import xarray

from cuzarr.errors import CuzarrError
from cuzarr.xarray._writer import Mode, Region, write_dataset

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from cuzarr._node.group import Group
    from cuzarr.typing import StoreLike, ZarrFormat


@xarray.register_dataset_accessor("cuzarr")  # type: ignore[no-untyped-call]
class DatasetAccessor:
    """Methods that cuzarr adds to datasets, as ``dataset.cuzarr``.

    Parameters
    ----------
    dataset : xarray.Dataset
        A dataset of any engine.

    Raises
    ------
    CuzarrError
        From loading variables that cannot be read.

    Examples
    --------
    >>> import cuzarr, numpy as np, xarray
    >>> group = cuzarr.create_group({})
    >>> for name in "tu":
    ...     _ = group.create_array(name, data=np.arange(3.0), dimension_names=("x",))
    >>> float(xarray.open_dataset(group, engine="cuzarr").cuzarr.load().t.sum())
    3.0
    """

    def __init__(self, dataset: xarray.Dataset) -> None:
        self._dataset = dataset

    def load(self) -> xarray.Dataset:
        """Load all variables of the dataset in one call; ``dataset.load()`` would read them one after the other. This also works in
        notebooks.

        With an xarray before 2025.8, which has no ``load_async``, variables are read one after the other, too.

        Returns
        -------
        xarray.Dataset
            The dataset itself, with its variables in memory. Variables of dask are computed first.

        Raises
        ------
        CuzarrError
            The first failure of any variable.

        Examples
        --------
        >>> import cuzarr, xarray
        >>> dataset = xarray.open_dataset(cuzarr.create_group({}), engine="cuzarr")
        >>> dataset.cuzarr.load() is dataset
        True
        """
        if not hasattr(self._dataset, "load_async"):
            return self._dataset.load()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _load(self._dataset)
        # This blocks the caller's event loop, like any call that is not awaited.
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, _load, self._dataset).result()

    def to_zarr(
        self,
        store: StoreLike | None = None,
        mode: Mode | None = None,
        group: str | None = None,
        encoding: Mapping[str, Mapping[str, object]] | None = None,
        *,
        compute: bool = True,
        consolidated: bool | None = None,
        append_dim: Hashable | None = None,
        region: Region | None = None,
        safe_chunks: bool = True,
        align_chunks: bool = False,
        storage_options: dict[str, Any] | None = None,
        zarr_format: ZarrFormat | None = None,
        write_empty_chunks: bool | None = None,
        chunkmanager_store_kwargs: Mapping[str, object] | None = None,
    ) -> Group | Delayed:
        """Write the data set to a group, by the arguments of :meth:`xarray.Dataset.to_zarr`. Variables may be on a GPU.

        The stored data and metadata are those of ``dataset.to_zarr``. All variables in memory are written by one call, or by several if
        they take more than ``memory_limit`` bytes. Elements on a GPU are encoded there: the array's library applies ``dtype``,
        ``scale_factor``, ``add_offset`` and fill values, and cuzarr compresses. Times, durations and strings are in host memory, and are
        encoded there. Variables that were not read yet are read one after the other; if they fit into memory, call :meth:`load` first.
        Variables of dask are computed and written block by block.

        Parameters
        ----------
        store : path, URL or store, optional
            Where to write; ``None`` is new memory.
        mode : {"w", "w-", "a", "a-", "r+"}, optional
            ``"w"`` replaces an existing group, and ``"w-"`` refuses to. ``"a"`` adds variables and replaces the elements of existing ones;
            ``"a-"`` leaves existing variables without ``append_dim`` unchanged. ``"r+"`` changes elements only. By default ``"a"`` with
            ``append_dim``, ``"r+"`` with ``region``, else ``"w-"``.
        group : str, optional
            The path of the group in the store.
        encoding : dict, optional
            The encoding of each variable, in place of its own: ``{"t": {"dtype": "int16", "scale_factor": 0.01}}``.
        compute : bool
            Whether variables of dask are computed now. With ``False``, everything else is written, and these variables are written when
            the result is computed.
        consolidated : bool, optional
            Whether metadata is consolidated at the root of the store; ``None`` does so unless the mode is ``"r+"``.
        append_dim : str, optional
            The dimension along which variables get longer.
        region : dict or "auto", optional
            The part of existing variables to write, as a slice for each dimension, or ``"auto"`` to find it by the coordinates.
        safe_chunks : bool
            Whether blocks of dask that share a stored chunk are refused.
        align_chunks : bool
            Whether blocks of dask are changed so that they share no stored chunk.
        storage_options : dict, optional
            Options for URLs of remote stores.
        zarr_format : {2, 3}, optional
            The format of a new group; by default the configured one.
        write_empty_chunks : bool, optional
            Whether chunks that hold the fill value only are stored.
        chunkmanager_store_kwargs : dict, optional
            Arguments for ``dask.array.store``.

        Returns
        -------
        Group or dask.delayed.Delayed
            The group. With ``compute=False``, a delayed object: computing it writes the variables of dask and returns the group.

        Raises
        ------
        InvalidArgumentError
            ``mode`` does not fit ``append_dim`` or ``region``.
        ArgumentTypeError
            The name of a variable is not text.
        UnsupportedError
            xarray is older than 2025.6.1, or a device cannot compute an encoding.
        ValueError, TypeError, KeyError
            From xarray: the data set does not fit the stored one, or there is no such encoding.
        FileExistsError, ContainsGroupError
            A group exists there, and the mode is ``"w-"``.
        ShapeMismatchError
            Another writer has appended to the data set since this call read its shapes. Call it again.
        CuzarrError
            The first failure of any write, with the array's name.

        Examples
        --------
        >>> import cuzarr, cuzarr.xarray, numpy as np, xarray
        >>> dataset = xarray.Dataset({"t": ("x", np.array([280.5, 281.25]))})
        >>> group = dataset.cuzarr.to_zarr({}, encoding={"t": {"dtype": "int16", "scale_factor": 0.01}}, consolidated=False)
        >>> group["t"][:].tolist(), group["t"].attrs["scale_factor"]
        ([28050, 28125], 0.01)
        """
        return write_dataset(
            self._dataset,
            store,
            mode=mode,
            group=group,
            encoding=encoding,
            compute=compute,
            consolidated=consolidated,
            append_dim=append_dim,
            region=region,
            safe_chunks=safe_chunks,
            align_chunks=align_chunks,
            storage_options=storage_options,
            zarr_format=zarr_format,
            write_empty_chunks=write_empty_chunks,
            chunkmanager_store_kwargs=chunkmanager_store_kwargs,
        )


def _load(dataset: xarray.Dataset) -> xarray.Dataset:
    """Loads all variables in one call, apart from those that xarray cannot await."""
    try:
        return asyncio.run(dataset.load_async())
    except NotImplementedError as error:
        if isinstance(error, CuzarrError):
            raise
    # xarray cannot await the results of some of its own decoders: bools, characters, elements of the other byte order.
    asyncio.run(_load_others(dataset))
    return dataset.load()


async def _load_others(dataset: xarray.Dataset) -> None:
    """Loads the variables for which xarray's ``load_async`` works. Their errors are raised again when the rest is loaded."""
    await asyncio.gather(*(variable.load_async() for variable in dataset.variables.values()), return_exceptions=True)
