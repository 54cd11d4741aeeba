"""What cuzarr adds to data sets: ``dataset.cuzarr``."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import xarray


@xarray.register_dataset_accessor("cuzarr")  # type: ignore[no-untyped-call]
class DatasetAccessor:
    """Methods that cuzarr adds to data sets, as ``dataset.cuzarr``.

    Parameters
    ----------
    dataset : xarray.Dataset
        A data set of any engine.

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
        """Load all variables by one call, where ``dataset.load()`` reads one after the other. Works in notebooks, too.

        An xarray without ``load_async`` (before 2025.8) reads one after the other here, too.

        Returns
        -------
        xarray.Dataset
            The data set itself, with its variables in memory. Variables of dask are computed first.

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
            return asyncio.run(self._dataset.load_async())
        # The caller's loop stands still meanwhile, as in any call that is not awaited.
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, asyncio.run, self._dataset.load_async()).result()
